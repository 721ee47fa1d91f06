"""torch._foreach_*: one operation on lists of tensors, in few launches."""

from collections.abc import Callable

import pytest
import torch
from op_samples import NoFallback, assert_near_exact
from op_table import covers

Lists = list[torch.Tensor]

UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
]  # fmt: skip
LISTS = ["add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum"]
SCALAR_LISTS = ["add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "pow"]

CALLS: dict[str, tuple[str, Callable[[Callable, Lists, Lists, Lists], Lists | None]]] = {
    **{name: (name, lambda op, a, b, c: op(a)) for name in UNARY},
    **{f"{name}.List": (name, lambda op, a, b, c: op(a, b)) for name in LISTS},
    **{f"{name}.Scalar": (name, lambda op, a, b, c: op(a, 0.75)) for name in LISTS},
    **{f"{name}.ScalarList": (name, lambda op, a, b, c: op(a, numbers(a))) for name in SCALAR_LISTS},
    **{f"{name}.alpha": (name, lambda op, a, b, c: op(a, b, alpha=-1.5)) for name in ("add", "sub")},
    **{f"{name}.Tensor": (name, lambda op, a, b, c: op(a, b[0].sum())) for name in ("add", "mul", "div")},
    **{f"{name}.Scalar": (name, lambda op, a, b, c: op(a, b, c, 0.25)) for name in ("addcmul", "addcdiv")},
    **{f"{name}.ScalarList": (name, lambda op, a, b, c: op(a, b, c, numbers(a))) for name in ("addcmul", "addcdiv")},
    "lerp.List": ("lerp", lambda op, a, b, c: op(a, b, c)),
    "lerp.Scalar": ("lerp", lambda op, a, b, c: op(a, b, 0.3)),
    "lerp.ScalarList": ("lerp", lambda op, a, b, c: op(a, b, numbers(a))),
    "pow.List": ("pow", lambda op, a, b, c: op(a, b)),
    "pow.Scalar": ("pow", lambda op, a, b, c: op(a, 1.5)),
}
ROWS = [
    f"_foreach_{name}{suffix}{overload}"
    for call, (name, _) in CALLS.items()
    if "alpha" not in call
    for suffix in ("", "_")
    for overload in [f".{call.split('.')[1]}" if "." in call else ""]
]


def numbers(tensors: Lists) -> list[float]:
    """One Python scalar per tensor."""
    return [0.5 + 0.25 * index for index in range(len(tensors))]


def small(count: int, dtype: torch.dtype = torch.float32) -> Lists:
    """Tensors of the sizes of a model's parameters, from empty to a matrix, one transposed, one a view."""
    tensors = [(torch.rand(3 * index % 41, 7) + 0.5).to(dtype) for index in range(count)]
    return [
        *tensors,
        (torch.rand(9, 5) + 0.5).to(dtype).t(),
        (torch.rand(70) + 0.5).to(dtype)[3:],
        torch.ones((), dtype=dtype),
    ]


def large() -> Lists:
    """Tensors for a specialised program, and one that gets its own launch."""
    return [torch.rand(5000) + 0.5 for _ in range(20)] + [torch.rand(70_000) + 0.5]


def moved(tensors: Lists, where: torch.device) -> Lists:
    """Copies of the tensors with the same strides."""
    return [tensor.to(where) for tensor in tensors]


@pytest.mark.parametrize("make", [lambda: small(40), large], ids=["small", "large"])
@pytest.mark.parametrize("call", CALLS)
@covers(*ROWS)
def test_against_the_cpu(call: str, make: Callable[[], Lists], device: torch.device, no_fallback: None) -> None:
    name, run = CALLS[call]
    lists = [make() for _ in range(3)]
    expected = run(getattr(torch, f"_foreach_{name}"), *lists)
    actual = run(getattr(torch, f"_foreach_{name}"), *(moved(tensors, device) for tensors in lists))
    there = [moved(tensors, device) for tensors in lists]
    run(getattr(torch, f"_foreach_{name}_"), *there)
    for results in (actual, there[0]):
        for mine, wanted in zip(results, expected, strict=True):
            assert mine.stride() == wanted.stride()
            torch.testing.assert_close(mine.cpu(), wanted, rtol=1.3e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype, device: torch.device, no_fallback: None) -> None:
    a, b, c = (small(20, dtype) for _ in range(3))
    actual = torch._foreach_addcmul(*(moved(tensors, device) for tensors in (a, b, c)), 0.5)
    for mine, wanted in zip(actual, torch._foreach_addcmul(a, b, c, 0.5), strict=True):
        torch.testing.assert_close(mine.cpu(), wanted)


@pytest.mark.parametrize("case", ["integers", "mixed dtypes", "strides", "complex number"])
def test_lists_that_run_one_tensor_at_a_time(case: str, device: torch.device) -> None:
    a, b = small(4), small(4)
    number: complex = 2
    match case:
        case "integers":
            a, b = ([tensor.mul(10).long() for tensor in tensors] for tensors in (a, b))
        case "mixed dtypes":
            b = [tensor.half() for tensor in b]
        case "strides":
            a[1] = torch.rand(7, 3).t()
        case "complex number":
            number = 1 + 2j
    for op, arguments in ((torch._foreach_add, (a, b)), (torch._foreach_mul, (a, number))):
        with NoFallback():
            actual = op(*(moved(value, device) if isinstance(value, list) else value for value in arguments))
        for mine, wanted in zip(actual, op(*arguments), strict=True):
            torch.testing.assert_close(mine.cpu(), wanted)


@covers("_foreach_zero_", "_foreach_copy_")
def test_zero_and_copy(device: torch.device, no_fallback: None) -> None:
    source = small(30)
    target = [torch.empty_like(tensor) for tensor in moved(source, device)]
    torch._foreach_copy_(target, moved(source, device))
    assert all(torch.equal(mine.cpu(), wanted) for mine, wanted in zip(target, source, strict=True))
    torch._foreach_zero_(target)
    assert not any(tensor.any() for tensor in target)


def test_few_launches(device: torch.device) -> None:
    tensors = [torch.rand(1000, device=device) for _ in range(100)]
    others = [torch.rand(1000, device=device) for _ in range(100)]
    before = torch.opencl.launches()
    torch._foreach_add_(tensors, others)
    assert torch.opencl.launches() - before <= 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("order", [1, 2, float("inf"), 3, 0, -float("inf")])
@covers("_foreach_norm.Scalar")
def test_norms(order: float, dtype: torch.dtype, device: torch.device, no_fallback: None) -> None:
    tensors = [tensor.sub(1) for tensor in [*small(60, dtype)[1:], torch.rand(70_001).to(dtype)] if tensor.numel()]
    actual = torch._foreach_norm(moved(tensors, device), order)
    for mine, tensor in zip(actual, tensors, strict=True):
        wanted, exact = (torch.linalg.vector_norm(wide, order) for wide in (tensor.float(), tensor.double()))
        assert mine.shape == () and mine.dtype == dtype
        assert_near_exact(mine, wanted.to(dtype), exact)


def test_norms_of_non_finite_values_and_of_empty_tensors(device: torch.device) -> None:
    tensors = [torch.ones(100), torch.ones(100), torch.empty(0)]
    tensors[0][40], tensors[1][99] = float("nan"), -float("inf")
    for order in (1, 2, float("inf")):
        here = [] if order == float("inf") else tensors[2:]
        actual = torch._foreach_norm(moved(tensors[:2] + here, device), order)
        for mine, wanted in zip(actual, torch._foreach_norm(tensors[:2] + here, order), strict=True):
            torch.testing.assert_close(mine.cpu(), wanted, equal_nan=True)
    # The square of a value may overflow or underflow although its norm does not.
    for number in (1e30, -1e-30):
        (norm,) = torch._foreach_norm([torch.tensor([number], device=device)])
        assert norm.item() == pytest.approx(abs(number))
    with pytest.raises(RuntimeError):
        torch._foreach_norm(moved(tensors, device), float("inf"))


@pytest.mark.needs_float64
def test_norms_of_a_wider_dtype(device: torch.device) -> None:
    (norm,) = torch._foreach_norm([torch.ones(100, device=device)], 2, dtype=torch.float64)
    assert norm.dtype == torch.float64 and norm.item() == 10


def test_norms_take_few_launches(device: torch.device) -> None:
    tensors = [torch.rand(1000, device=device) for _ in range(100)]
    before = torch.opencl.launches()
    torch._foreach_norm(tensors)
    assert torch.opencl.launches() - before <= 5


def test_no_tensors(device: torch.device) -> None:
    empty = [torch.empty(0, 3, device=device)]
    assert torch._foreach_add(empty, 1)[0].shape == (0, 3)
    torch._foreach_zero_(empty)


def test_arguments_are_refused_as_on_the_cpu(device: torch.device) -> None:
    x = torch.arange(10.0, device=device)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch._foreach_mul_([x[0:5]], [x[1:6]])
    with pytest.raises(RuntimeError, match="bool"):
        torch._foreach_sub([x], True)


def test_a_0d_tensor_on_the_device_promotes_0d_tensors(device: torch.device) -> None:
    (product,) = torch._foreach_mul(
        [torch.ones((), dtype=torch.bfloat16, device=device)], torch.tensor(2.0, device=device)
    )
    assert product.dtype == torch.float32


def test_lists_may_hold_tensors_of_several_devices(device: torch.device) -> None:
    places = (torch.device("cpu"), device)
    lists = [[torch.full((3,), float(i), device=where) for where in places] for i in range(2)]
    added = torch._foreach_add(*lists)
    assert [tensor.device for tensor in added] == list(places)
    assert [tensor.tolist() for tensor in added] == [[1, 1, 1]] * 2
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._foreach_add(lists[0], lists[1][::-1])
    scaled = torch._foreach_mul([torch.ones(3, device=device), torch.ones(2)], torch.tensor(2.0))
    assert [tensor.tolist() for tensor in scaled] == [[2, 2, 2], [2, 2]]
    assert [norm.item() for norm in torch._foreach_norm(lists[1])] == pytest.approx([3**0.5] * 2)
    with pytest.raises(RuntimeError, match="scalar tensor expected to be 0 dim"):
        torch._foreach_mul(lists[0][1:], torch.tensor([1.0, 2.0]))


@covers(
    "_foreach_clone",
    "_foreach_addcmul.Tensor",
    "_foreach_addcmul_.Tensor",
    "_foreach_addcdiv.Tensor",
    "_foreach_addcdiv_.Tensor",
)
def test_lists_with_scalars_in_a_tensor_and_clones(device: torch.device) -> None:
    torch.manual_seed(0)
    lists = [[torch.rand(size) + 0.5 for size in ((3,), (), (40, 7), (0, 2))] for _ in range(3)]
    ours = [[tensor.to(device) for tensor in each] for each in lists]
    scalars = torch.tensor([0.5, -1.0, 2.0, 3.0])
    for name in ("addcmul", "addcdiv"):
        function, inplace = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
        expected = function(*lists, scalars)
        for mine, theirs in zip(function(*ours, scalars), expected, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs)
        changed = torch.ops.aten._foreach_clone(ours[0])
        inplace(changed, *ours[1:], scalars)
        for mine, theirs in zip(changed, expected, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs)
        for wrong in (scalars[:2], scalars.to(device)):
            with pytest.raises(RuntimeError):
                function(*ours, wrong)
    transposed = [tensor.t() if tensor.dim() == 2 else tensor for tensor in ours[0]]
    for clone, source in zip(torch.ops.aten._foreach_clone(transposed), transposed, strict=True):
        assert clone.stride() == source.stride()
        assert torch.equal(clone, source)
        assert clone.numel() == 0 or clone.data_ptr() != source.data_ptr()
