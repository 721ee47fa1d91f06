"""Rows of the op table without an OpInfo, and a check that a test covers every row."""

import copy

import pytest
import test_assertions  # noqa: F401 - these tests declare the rows that they cover
import test_attention  # noqa: F401
import test_attention_names  # noqa: F401
import test_convolution_names  # noqa: F401
import test_copies  # noqa: F401
import test_distances  # noqa: F401
import test_distributions  # noqa: F401
import test_embedding_bag  # noqa: F401
import test_fake_quantize  # noqa: F401
import test_foreach  # noqa: F401
import test_fused_attention  # noqa: F401
import test_indexing  # noqa: F401
import test_interpolation  # noqa: F401
import test_jagged  # noqa: F401
import test_layers  # noqa: F401
import test_linear_algebra  # noqa: F401
import test_losses  # noqa: F401
import test_low_precision_matmul  # noqa: F401
import test_nested  # noqa: F401
import test_pooling  # noqa: F401
import test_random_ops  # noqa: F401
import test_segments  # noqa: F401
import test_sparse  # noqa: F401
import test_sparse_results  # noqa: F401
import test_sync_batch_norm  # noqa: F401
import torch
from float64 import computed
from op_samples import NoFallback, assert_same
from op_table import (
    COVERED,
    DTYPES,
    FLOATING,
    INTEGRAL,
    NOT_COMPARABLE,
    ROWS,
    ROWS_OF_OTHER_RELEASES,
    covers,
    opinfos_of,
)

# Rows that the tests of their feature cover.
ELSEWHERE = {
    "_amp_foreach_non_finite_check_and_unscale_": "test_amp.py",
    "_amp_update_scale_": "test_amp.py",
    **{
        f"_fused_{rule}_{lr}": "test_optim.py"
        for rule in ("sgd", "adam", "adamw", "adagrad")
        for lr in ("", ".tensor_lr")
    },
    "_thnn_fused_gru_cell": "test_layers.py",
    "_thnn_fused_gru_cell_backward": "test_layers.py",
    "_thnn_fused_lstm_cell": "test_layers.py",
    "_thnn_fused_lstm_cell_backward_impl": "test_layers.py",
    "is_set_to": "test_layouts.py",
    "record_stream": "test_memory.py",
}
REAL = (torch.bool, *INTEGRAL, *FLOATING)


def test_every_row_is_covered() -> None:
    by_opinfo = {row.op for row in ROWS if any(info.name not in NOT_COMPARABLE for info in opinfos_of(row))}
    untested = {row.op for row in ROWS} - by_opinfo - set(COVERED) - set(ELSEWHERE)
    assert not untested, f"no test covers {sorted(untested)}"


def test_covered_rows_exist() -> None:
    assert set(COVERED) | set(ELSEWHERE) <= {row.op for row in (*ROWS, *ROWS_OF_OTHER_RELEASES)}


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Small values, with repetitions."""
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=0, high=5)


@pytest.mark.parametrize("dtype", DTYPES["all"], ids=str)
@covers("set_", "set_.source_Tensor", "set_.source_Storage", "set_.source_Storage_storage_offset")
def test_set(dtype: torch.dtype, device: torch.device) -> None:
    source = some(dtype, 4, 6).to(device)
    target = torch.empty(0, dtype=dtype, device=device)
    assert target.set_(source).data_ptr() == source.data_ptr()
    assert torch.equal(target.cpu(), source.cpu())
    target.set_(source.untyped_storage())
    assert torch.equal(target.cpu(), source.cpu().flatten())
    target.set_(source.untyped_storage(), 3, (2, 3), (6, 2))
    assert torch.equal(target.cpu(), source.cpu().as_strided((2, 3), (6, 2), 3))
    assert target.set_().numel() == 0


@covers("empty.memory_format", "empty_strided")
def test_empty(device: torch.device) -> None:
    plain = torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    strided = torch.empty_strided((2, 3), (10, 2), dtype=torch.float16, device=device)
    assert (strided.stride(), strided.dtype) == ((10, 2), torch.float16)
    assert torch.empty(0, 7, device=device).shape == (0, 7)


@pytest.mark.parametrize("dtype", DTYPES["all"], ids=str)
@covers("_local_scalar_dense")
def test_item(dtype: torch.dtype, device: torch.device) -> None:
    values = some(dtype, 3, 2)
    assert values.to(device)[2, 1].item() == values[2, 1].item()


@pytest.mark.parametrize("dtype", DTYPES["all"], ids=str)
@covers("_copy_from_and_resize")
def test_copy_from_and_resize(dtype: torch.dtype, device: torch.device) -> None:
    source = some(dtype, 3, 4)
    target = torch.ops.aten._copy_from_and_resize(source, torch.empty(0, dtype=dtype, device=device))
    assert_same(target, source)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.complex32, torch.float8_e4m3fn], ids=str)
def test_dtypes_without_arithmetic_are_copied(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.arange(12, dtype=torch.uint8).view(dtype) if dtype.itemsize < 4 else torch.ones(3, dtype=dtype)
    there = values.to(device)
    assert (there.dtype, there.device.type) == (dtype, "opencl")
    assert torch.equal(there.cpu().view(torch.uint8), values.view(torch.uint8))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("slopes", [1, 3])
@covers("_prelu_kernel")
def test_prelu(slopes: int, dtype: torch.dtype, device: torch.device) -> None:
    inputs, slope = some(dtype, 2, 3, 4) - 2, some(dtype, slopes)
    with NoFallback():
        actual = torch.nn.functional.prelu(inputs.to(device), slope.to(device))
    assert_same(actual, torch.nn.functional.prelu(inputs, slope))


@pytest.mark.parametrize("sections", [3, [2, 5], torch.tensor([1, 4]), torch.tensor(4)], ids=str)
def test_split_into_sections(sections: int | list[int] | torch.Tensor, device: torch.device) -> None:
    """OpInfo passes the sections on the device; PyTorch requires them on the host."""
    values = torch.arange(21.0).view(3, 7)

    def run(where: torch.device) -> list[torch.Tensor]:
        whole = values.to(where).requires_grad_()
        parts = whole.tensor_split(sections, dim=1)
        return [*parts, *torch.autograd.grad(parts[1].square().sum(), whole)]

    assert_same(run(device), run(torch.device("cpu")))


@pytest.mark.parametrize("dim", [0, 1, None])
# If a device refuses float64, the parametrization mistakes that for a layer without the inverse it looks for first.
@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float64]), ids=str)
@covers("_weight_norm_interface", "_weight_norm_interface_backward")
def test_weight_norm(dtype: torch.dtype, dim: int | None, device: torch.device) -> None:
    layer = torch.nn.Linear(4, 3, dtype=dtype)
    inputs = torch.randn(2, 4, dtype=dtype)

    def run(where: torch.device) -> list[torch.Tensor]:
        normed = torch.nn.utils.parametrizations.weight_norm(copy.deepcopy(layer).to(where), dim=dim)
        result = normed(inputs.to(where))
        return [result, *torch.autograd.grad(result.square().sum(), list(normed.parameters()))]

    with NoFallback():
        actual = run(device)
    assert_same(actual, run(torch.device("cpu")))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@covers("embedding_dense_backward")
def test_embedding_backward(index_dtype: torch.dtype, scaled: bool, dtype: torch.dtype, device: torch.device) -> None:
    def gradient(where: torch.device) -> torch.Tensor:
        weight = torch.ones(10, 4, dtype=dtype, device=where, requires_grad=True)
        index = torch.tensor([[1, 2, 2], [9, 1, 0]], dtype=index_dtype, device=where)
        rows = torch.nn.functional.embedding(index, weight, padding_idx=0, scale_grad_by_freq=scaled)
        weights = torch.arange(24, dtype=dtype).view(2, 3, 4).to(where)
        return torch.autograd.grad(rows, weight, weights)[0]

    expected = gradient(torch.device("cpu"))
    with NoFallback():
        assert_same(gradient(device), expected)


@pytest.mark.parametrize("dtype", [*INTEGRAL, *FLOATING], ids=str)
@covers("range.out")
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_range(dtype: torch.dtype, device: torch.device) -> None:
    # Integer tensors truncate fractional bounds.
    for bounds in ((1, 20, 3), (0.5, 8.25, 2.5), (9.75, 1.5, -1.25)):
        with NoFallback():
            actual = torch.range(*bounds, dtype=dtype, device=device)
        assert_same(actual, torch.range(*bounds, dtype=dtype))


@pytest.mark.parametrize(("dtype", "end"), [(torch.float16, 70000), (torch.uint8, 300)], ids=str)
def test_linspace_refuses_ends_that_the_dtype_does_not_hold(dtype, end, device: torch.device) -> None:
    for bounds in ((0, end), (end, 0)):
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.linspace(*bounds, 3, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(("shape", "weighted"), [((5, 3), True), ((2, 9, 100), True), ((128, 768), False)])
@covers("_fused_rms_norm", "_fused_rms_norm_backward")
def test_rms_norm(shape: tuple[int, ...], weighted: bool, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    host = [torch.randn(shape).to(dtype), torch.rand(shape[-1:]).to(dtype)][: 1 + weighted]
    grad = torch.randn(shape).to(dtype)
    results = []
    for where in (torch.device("cpu"), device):
        inputs = [tensor.to(where).requires_grad_() for tensor in host]
        output = torch.nn.functional.rms_norm(inputs[0], shape[-1:], *inputs[1:])
        results.append((output, *torch.autograd.grad(output, inputs, grad.to(where))))
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(0,), (1,), (500,), (6, 7)])
@covers("_unique2")
def test_unique(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    values = some(dtype, *shape)
    with NoFallback():
        actual = torch.unique(values.to(device), return_inverse=True, return_counts=True)
    assert_same(actual, torch.unique(values, return_inverse=True, return_counts=True))


@pytest.mark.parametrize("dtype", DTYPES["all"], ids=str)
def test_fill_with_a_host_scalar(dtype: torch.dtype, device: torch.device) -> None:
    values, mask, number = some(dtype, 4, 5), some(torch.bool, 4, 5), torch.tensor(3).to(dtype)
    expected = values.masked_fill(mask, number)
    with NoFallback():
        assert_same(values.to(device).masked_fill_(mask.to(device), number), expected)
        assert_same(values.to(device).fill_(number), values.fill_(number))


# Each matmul, and its expected result.
PRODUCTS = {
    "mm": (lambda b: torch.mm(b[0], b[0], out=b[0]), lambda b: b[0] @ b[0]),
    "mm of a part": (lambda b: torch.mm(b[0, :16], b[0], out=b[0, 8:24]), lambda b: b[0, :16] @ b[0]),
    "mm of a transpose": (lambda b: torch.mm(b[0].t(), b[1], out=b[0]), lambda b: b[0].t() @ b[1]),
    "addmm_": (lambda b: b[0].addmm_(b[0], b[0], beta=0), lambda b: b[0] @ b[0]),
    "addmm_ with itself": (lambda b: b[0].addmm_(b[0], b[1]), lambda b: b[0] + b[0] @ b[1]),
    "addmm into its addend": (lambda b: b[0].addmm_(b[1], b[1]), lambda b: b[0] + b[1] @ b[1]),
    "addmm of a row": (lambda b: torch.addmm(b[0, 3], b[1], b[1], out=b[0]), lambda b: b[0, 3] + b[1] @ b[1]),
    "addmm of a transpose": (lambda b: b[0].t().addmm_(b[0].t(), b[1]), lambda b: b[0].t() + b[0].t() @ b[1]),
    "baddbmm_": (lambda b: b.baddbmm_(b, b), lambda b: b + b @ b),
    "addmv_": (
        lambda b: torch.addmv(b[0, 0], b[0], b[0, 1], out=b[0, 0]),
        lambda b: b[0, 0] + b[0] @ b[0, 1],
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmuls_into_their_own_inputs(name: str, device: torch.device) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(2, 33, 33)
    use, formula = PRODUCTS[name]
    torch.testing.assert_close(use(inputs.to(device)).cpu(), formula(inputs))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.float16], ids=str)
def test_sums_are_converted_as_they_are_loaded(dtype: torch.dtype, device: torch.device) -> None:
    values = some(dtype, 512, 1024)
    there = values.to(device)
    out = torch.float32 if dtype == torch.float16 else torch.int64
    torch.opencl.reset_peak_memory_stats()
    before = torch.opencl.memory_allocated()
    whole, rows, columns = there.sum(dtype=out), there.sum(1, dtype=out), there.t().sum(1, dtype=out)
    assert torch.opencl.max_memory_allocated() - before < values.nbytes
    for actual, expected in ((whole, values), (rows, values.sum(1, dtype=out)), (columns, values.sum(0, dtype=out))):
        torch.testing.assert_close(actual.cpu(), expected.sum(dtype=out) if actual.dim() == 0 else expected)
    assert there.sum(dtype=torch.bool).item() is True
    assert torch.equal(there.sum(1, dtype=torch.int8).cpu(), values.sum(1, dtype=torch.int8))


# An op, its inputs, and an output with a wider dtype than the one in which PyTorch computes.
WIDER_OUTPUTS = {
    "uint8 wraps": (torch.sub, [torch.tensor([1, 200], dtype=torch.uint8), torch.tensor([3, 5], dtype=torch.uint8)]),
    "int8 wraps": (torch.mul, [torch.tensor([100, -7], dtype=torch.int8), torch.tensor([3, 5], dtype=torch.int8)]),
    "bool stays one": (torch.add, [torch.tensor([True, False]), torch.tensor([True, True])]),
    "shifts wrap": (
        torch.bitwise_left_shift,
        [torch.tensor([100, -7], dtype=torch.int8), torch.tensor([2, 7], dtype=torch.int8)],
    ),
    "float16 overflows": (torch.mul, [torch.tensor([300.0, 3.0]).half(), torch.tensor([300.0, 0.1]).half()]),
    "bfloat16 rounds": (torch.add, [torch.tensor([256.0, 1.0]).bfloat16(), torch.tensor([1.0, 0.01]).bfloat16()]),
}


@pytest.mark.parametrize("name", WIDER_OUTPUTS)
@pytest.mark.parametrize("step", [1, 2], ids=["dense", "strided"])
def test_results_are_rounded_before_a_wider_output(name: str, step: int, device: torch.device) -> None:
    function, inputs = WIDER_OUTPUTS[name]
    expected = function(*inputs, out=torch.empty(2))
    storage = torch.empty(2 * step, device=device)
    actual = function(*[value.to(device) for value in inputs], out=storage[::step])
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", computed((*INTEGRAL, torch.float32, torch.float64)), ids=str)
@covers("_add_relu.Tensor", "_add_relu.Scalar", "_add_relu.out", "_add_relu_.Tensor", "_add_relu_.Scalar")
def test_add_relu(dtype: torch.dtype, device: torch.device) -> None:
    a, b = some(dtype, 3, 4), some(dtype, 4)
    a = a - 3 if dtype.is_signed else a
    with NoFallback():
        for other, arguments in ((b, {}), (b, {"alpha": 2}), (2, {})):
            there = other.to(device) if isinstance(other, torch.Tensor) else other
            # The CPU has no kernel for uint8.
            theirs = torch.add(a, other, **arguments).relu()
            assert_same(torch._add_relu(a.to(device), there, **arguments), theirs)
            assert_same(torch._add_relu_(a.to(device), there, **arguments), theirs)
        out = torch.empty(0, dtype=dtype, device=device)
        assert_same(torch._add_relu(a.to(device), b.to(device), out=out), torch.add(a, b).relu())


def test_hashes_are_those_of_the_cpu(device: torch.device) -> None:
    special = [0.0, -0.0, 1e-45, -3e-39, 1.1754944e-38, 1.0, -2.5, 3.4e38, float("inf"), -float("inf"), float("nan")]
    with NoFallback():
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            for number in special:
                x = torch.tensor([number]).to(dtype)
                assert torch.hash_tensor(x.to(device)).cpu() == torch.hash_tensor(x), number
        for dtype in computed((torch.bool, *INTEGRAL, *FLOATING)):
            x = torch.testing.make_tensor((5, 3000), dtype=dtype, device="cpu")
            for arguments in ({}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"dim": (0, 1)}):
                for given in (x, x.t(), x[:, ::3]):
                    theirs = torch.hash_tensor(given, **arguments)
                    ours = torch.hash_tensor(given.to(device), **arguments)
                    assert torch.equal(ours.cpu().view(torch.int64), theirs.view(torch.int64))
    for wrong in (lambda x: torch.hash_tensor(x, mode=1), lambda x: torch.hash_tensor(x.cfloat())):
        with pytest.raises(RuntimeError):
            wrong(torch.ones(3, device=device))
