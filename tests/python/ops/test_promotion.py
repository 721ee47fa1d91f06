"""Operands of several dtypes: a scalar is first converted to the common dtype, from the host or the device."""

from collections.abc import Callable, Iterator

import pytest
import torch
from float64 import computed
from op_samples import DEFAULT_TOLERANCES
from op_table import ROWS, Row

VECTORS = {
    torch.uint8: [0, 1, 2, 3, 100, 200, 255, 50, 7],
    torch.int8: [0, 1, -1, 3, -2, 100, -128, 50, 7],
    torch.int32: [0, 1, -1, 3, -2, 100, -128, 50, 7],
    torch.float16: [0.0, 1.0, -1.0, 3.0, -2.0, 100.0, 0.5, -0.25, 7.0],
    torch.bfloat16: [0.0, 1.0, -1.0, 3.0, -2.0, 100.0, 0.5, -0.25, 7.0],
    torch.float32: [0.0, 1.0, -1.0, 3.0, -2.0, 100.0, 0.5, -0.25, 7.0],
}
NUMBERS = [
    (3, torch.int64),
    (-1, torch.int16),
    (300, torch.int16),
    (2**40 + 50, torch.int64),
    (2049.0, torch.float32),
    (70000.0, torch.float64),
    (0.1, torch.float64),
    (2049.0, torch.float16),
]
# PyTorch's own for the dtype, except for float64, for which the CPU computes some steps in float32.
TOLERANCES = DEFAULT_TOLERANCES | {torch.float64: (1.3e-6, 1e-5)}
# Values for a schema's parameters without defaults.
FILLERS = {"number": 0.5, "float": 0.5, "bool": False, "int": 1}
# Rows whose tensors have different roles or restricted dtypes, or whose schema has more than tensors and scalars.
OTHERS = {"complex", "polar", "where", "glu", "glu_backward", "glu_jvp", "clamp", "div"}
# Rows whose CPU kernels do not compute in the common dtype: they round at other points, or reuse a buffer of forward.
OTHERS |= {"huber_loss", "log_sigmoid_backward", "mse_loss_backward"}
# Their other tensors have special roles: scales, zero points, switches.
OTHERS |= {"_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "_fused_moving_avg_obs_fq_helper"}
# The CPU uses the low 32 bits of the exponent.
OTHERS |= {"ldexp"}
# Their CPU kernels round to 16 bits between steps, or use other steps for vectors than for single elements.
STEPWISE = {
    "addcdiv", "addr", "gelu_backward", "huber_loss_backward", "logit_backward", "mish_backward", "mse_loss",
    "silu_backward", "smooth_l1_loss", "smooth_l1_loss_backward",
    "elu_backward", "glu_jvp", "threshold",
}  # fmt: skip
ROWS_OF_SEVERAL = [
    row
    for row in ROWS
    if row.family in ("binary", "ternary", "quaternary")
    and row.base not in OTHERS
    and "Scalar" not in row.op
    # With these values as degrees they lose all digits, or loop over the degree: test_special.py tests other degrees.
    and "polynomial" not in row.base
]


def function_of(row: Row) -> tuple[Callable, int]:
    """Return the functional variant of a row's op as a function of tensors only, and the number of tensors."""
    packet = getattr(torch.ops.aten, row.base)
    named = getattr(packet, row.op.partition(".")[2] or "default")
    kinds = [str(a.type) for a in named._schema.arguments if not a.is_out]
    overloads = (getattr(packet, name) for name in packet.overloads())
    function = next(f for f in overloads if [str(a.type) for a in f._schema.arguments] == kinds)
    slots = [a for a in function._schema.arguments if not a.has_default_value() and not a.kwarg_only]

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        given = iter(tensors)
        return function(*(next(given) if str(a.type) == "Tensor" else FILLERS[str(a.type)] for a in slots))

    return call, sum(str(a.type) == "Tensor" for a in slots)


def operands(count: int) -> Iterator[tuple[list[torch.Tensor], int]]:
    """Make operands, one of which is a 0-d tensor, and its position."""
    there = computed({dtype for _, dtype in NUMBERS})
    numbers = [(value, dtype) for value, dtype in NUMBERS if dtype in there]
    for dtype, values in VECTORS.items():
        for value, other in numbers:
            for place in range(count):
                tensors = [torch.tensor(values, dtype=dtype) for _ in range(count)]
                tensors[place] = torch.tensor(value, dtype=other)
                yield tensors, place


@pytest.mark.parametrize("row", ROWS_OF_SEVERAL, ids=lambda row: row.op)
def test_a_0d_tensor_of_another_dtype(row: Row, device: torch.device) -> None:
    call, count = function_of(row)
    compared = 0
    for tensors, place in operands(count):
        try:
            expected = call(*tensors)
        except (RuntimeError, NotImplementedError):
            continue
        there = [tensor.to(device) for tensor in tensors]
        results = [call(*there)]
        try:
            results.append(call(*there[:place], tensors[place], *there[place + 1 :]))
        except RuntimeError as error:
            # This TensorIterator accepts no 0-d host tensor, on any device.
            assert "Expected all tensors to be on the same device" in str(error)
        is_rough = row.base in STEPWISE and expected.dtype.itemsize == 2
        rtol, atol = (0.02, 0.02) if is_rough else TOLERANCES.get(expected.dtype, (0.0, 0.0))
        for actual in results:
            torch.testing.assert_close(
                actual.cpu(), expected, rtol=rtol, atol=atol, equal_nan=True,
                msg=lambda text, given=tensors: f"{given}: {text}",
            )  # fmt: skip
        compared += 1
    assert compared or not row.dtypes & set(VECTORS)


MIXED = (
    (torch.bool, torch.uint8),
    (torch.bool, torch.float32),
    (torch.uint8, torch.int16),
    (torch.int64, torch.bfloat16),
    (torch.int32, torch.float32),
    (torch.float16, torch.float32),
    (torch.float32, torch.complex64),
)


@pytest.mark.parametrize("row", ROWS_OF_SEVERAL, ids=lambda row: row.op)
def test_tensors_of_two_dtypes_are_promoted_on_the_device(row: Row, device: torch.device) -> None:
    call, count = function_of(row)
    for one, other in (*MIXED, *(pair[::-1] for pair in MIXED)):
        tensors = [torch.tensor([1, 2, 1, 3, 1, 2, 1], dtype=other) for _ in range(count)]
        tensors[0] = torch.tensor([2, 1, 1, 1, 3, 2, 0], dtype=one)
        there = [tensor.to(device) for tensor in tensors]
        try:
            expected = call(*tensors)
        except (RuntimeError, NotImplementedError):
            # GPUs promote for some operators for which the CPU does not.
            continue
        torch.opencl.reset_fallbacks()
        actual = call(*there)
        assert not torch.opencl.fallbacks() or expected.dtype not in row.dtypes, (one, other)
        if row.base == "gelu_backward":
            # With one 16-bit tensor, CPUs with 16-bit instructions compute entirely in 16 bits.
            expected = call(*(tensor.to(expected.dtype) for tensor in tensors))
        is_rough = row.base in STEPWISE and expected.dtype.itemsize == 2
        rtol, atol = (0.02, 0.02) if is_rough else TOLERANCES.get(expected.dtype, (0.0, 0.0))
        torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("rounding_mode", [None, "trunc", "floor"])
def test_division_by_a_0d_tensor_of_another_dtype(rounding_mode: str | None, device: torch.device) -> None:
    values = torch.tensor([1, -7, 100, 50], dtype=torch.int8)
    for number in (torch.tensor(300), torch.tensor(2**40 + 3), torch.tensor(-2), torch.tensor(2.5)):
        expected = torch.div(values, number, rounding_mode=rounding_mode)
        for divisor in (number, number.to(device)):
            actual = torch.div(values.to(device), divisor, rounding_mode=rounding_mode)
            torch.testing.assert_close(actual.cpu(), expected)


def test_clamp_limits_of_another_dtype(device: torch.device) -> None:
    for values in (torch.tensor([1, -7, 100], dtype=torch.int8), torch.tensor([1.0, -7.0, 100.0], dtype=torch.float16)):
        for low, high in ((torch.tensor(-300), torch.tensor(300)), (torch.tensor(2**40 + 2), None)):
            expected = torch.clamp(values, low, high)
            actual = torch.clamp(values.to(device), low.to(device), None if high is None else high.to(device))
            assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)


def test_comparison_of_a_wider_integer(device: torch.device) -> None:
    small, number = torch.tensor([1, 100], dtype=torch.int8, device=device), torch.tensor(2**40 + 50)
    for wide in (number, number.to(device), 2**40 + 50):
        assert torch.lt(small, wide).tolist() == [True, False]
    # Specialised programs and strided operands give the same.
    many = small.repeat(1 << 19)
    assert torch.lt(many, number.to(device)).sum() == 1 << 19
    assert torch.lt(many.view(2, -1, 2).transpose(0, 1), number.to(device)).sum() == 1 << 19


def test_integers_among_halves_are_rounded(device: torch.device) -> None:
    integers, halves = torch.tensor([2049, 2051, 70000]), torch.tensor([2048.0, 2052.0, 1.0], dtype=torch.float16)
    for op in (torch.eq, torch.add, torch.mul, torch.maximum):
        assert torch.equal(op(integers.to(device), halves.to(device)).cpu(), op(integers, halves))


@pytest.mark.parametrize(("value", "dtype"), [(0.1, torch.float32), (3.3, torch.float64)])
def test_factors_and_divisors_keep_their_precision(value: float, dtype: torch.dtype, device: torch.device) -> None:
    halves, number = torch.rand(100, dtype=torch.float16), torch.tensor(value, dtype=dtype)
    for op in (torch.mul, torch.div):
        assert torch.equal(op(halves.to(device), number).cpu(), op(halves, number))
        assert torch.equal(op(halves.to(device), number.to(device)).cpu(), op(halves, number))


@pytest.mark.parametrize("op", [torch.logical_and, torch.logical_or, torch.logical_xor], ids=lambda op: op.__name__)
def test_logic_accepts_a_0d_tensor_in_either_position(op: Callable, device: torch.device) -> None:
    values, number = torch.tensor([0, 1, 2, 0]), torch.tensor(3.5)
    expected = op(number, values)
    there = values.to(device)
    for actual in (op(number, there), op(there, number), op(number, there, out=torch.empty(0, device=device).bool())):
        assert actual.device == there.device
        assert torch.equal(actual.cpu(), expected)


def test_tensors_of_two_dtypes_are_equal_by_value(device: torch.device) -> None:
    ones = torch.ones(3, dtype=torch.bool)
    assert torch.equal(ones.to(device), ones.float().to(device)) == torch.equal(ones, ones.float())
    assert not torch.equal(ones.to(device), 2 * ones.float().to(device))


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_means_in_16_bits_round_only_the_result(dtype: torch.dtype, device: torch.device) -> None:
    for values in (torch.tensor([[100001, -100000], [3, 4]]), torch.tensor([[100001.0, -100000.0], [3.0, 4.0]])):
        for call in (
            lambda x: x.mean(1, dtype=dtype),
            lambda x: x.mean(dtype=dtype),
            lambda x: x.mean(0, True, dtype=dtype),
        ):
            torch.testing.assert_close(call(values.to(device)).cpu(), call(values))


def test_dtypes_that_are_not_promoted_have_the_results_of_the_cpu(device: torch.device) -> None:
    counts, weights = torch.tensor([1, 2, 1]), torch.tensor([5, 6, 7], dtype=torch.uint16)
    found = torch.bincount(counts.to(device), weights=weights.to(device))
    assert found.tolist() == torch.bincount(counts, weights=weights).tolist()
    with pytest.raises(RuntimeError, match="Promotion for uint16"):
        torch.add(weights.to(device), counts.to(device))
