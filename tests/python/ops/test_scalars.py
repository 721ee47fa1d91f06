"""Python scalars with integer tensors: they wrap, or are refused, exactly as on the CPU."""

import platform

import pytest
import torch
from op_samples import NoFallback

UINT8 = torch.tensor([0, 1, 2, 200, 255], dtype=torch.uint8)
INT8 = torch.tensor([-128, -1, 0, 1, 3, 127], dtype=torch.int8)

USES = {
    "compare below the range": lambda u, i: u < -2,
    "compare above the range": lambda u, i: u == 2**40 + 1,
    "floor divide": lambda u, i: i // 1000,
    "remainder": lambda u, i: i % 1000,
    "reflected": lambda u, i: 1000 - i,
    "negative power": lambda u, i: i**-1,
    "power that does not fit": lambda u, i: u**1000,
    "add": lambda u, i: u + 300,
    "add a multiple": lambda u, i: torch.add(u, u, alpha=300),
    "add a negative in place": lambda u, i: u.clone().add_(-1),
    "clamp": lambda u, i: i.clamp(-1000, 1000),
    "clamp below": lambda u, i: u.clamp_min(-1),
    "fill": lambda u, i: i.clone().fill_(1000),
    "fill with a negative": lambda u, i: u.clone().fill_(-1),
    "fill with a fraction": lambda u, i: (u > 1).fill_(0.5),
    "fill with nan": lambda u, i: i.clone().fill_(float("nan")),
    "full": lambda u, i: torch.full((2,), 2**40, dtype=torch.int32, device=u.device),
    "masked fill": lambda u, i: i.masked_fill(i > 0, 1000),
    "index fill": lambda u, i: i.index_fill(0, torch.tensor([0], device=i.device), 1000),
    "scatter": lambda u, i: i.scatter(0, torch.tensor([0], device=i.device), 1000),
    "addcmul": lambda u, i: torch.addcmul(i, i, i, value=1000),
    "where": lambda u, i: torch.where(i > 0, i, 1000),
    "threshold": lambda u, i: torch.nn.functional.threshold(i, 1000, 5),
    "maximum with a host tensor": lambda u, i: torch.maximum(i, torch.tensor(1000)),
    "mask bits": lambda u, i: i & 0x1FF,
    "fill one half that overflows": lambda u, i: torch.zeros(1, dtype=torch.float16, device=u.device).fill_(1e6),
    "fill halves that overflow": lambda u, i: torch.zeros(2, dtype=torch.float16, device=u.device).fill_(1e6),
    "set one half that overflows": lambda u, i: (x := u.half()).__setitem__(0, 1e6) or x,
    "where of a half that overflows": lambda u, i: torch.where(i > 0, -1e9, u.half()),
    "one bfloat16 that overflows": lambda u, i: torch.full((), 3.5e38, dtype=torch.bfloat16, device=u.device),
    "one float8 that overflows": lambda u, i: torch.full((1,), 1e6, dtype=torch.float8_e5m2, device=u.device).half(),
    "one float that overflows": lambda u, i: torch.full((1,), 1e39, dtype=torch.float32, device=u.device),
    "compare half with complex": lambda u, i: u.half() == 1 + 2j,
}


def outcome(use, device: torch.device | str):
    """Return the result on the CPU, or the error's type and message."""
    try:
        return use(UINT8.to(device), INT8.to(device)).cpu()
    except (RuntimeError, ZeroDivisionError) as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.parametrize("use", USES)
def test_scalars_out_of_range(use, device):
    expected, actual = outcome(USES[use], "cpu"), outcome(USES[use], device)
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)
    else:
        assert actual == expected


def test_division_by_zero_gives_zero(device):
    x, zero = torch.tensor([-7, 0, 7], device=device), torch.tensor(0)
    with NoFallback():
        assert (x // zero).tolist() == torch.div(x, zero, rounding_mode="trunc").tolist() == [0, 0, 0]


@pytest.mark.skipif(platform.machine() == "aarch64", reason="on Arm PyTorch's CPU backend bounds -0 by 0 to 0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_bound_of_zero_keeps_the_sign_of_zero(dtype, device):
    zeros = torch.tensor([-0.0, 0.0] * 20, dtype=dtype)
    for bounded in (torch.relu, lambda x: x.clamp(min=0), lambda x: x.clamp(0, 1), lambda x: x.clamp(max=0)):
        assert torch.equal(bounded(zeros.to(device)).cpu().signbit(), bounded(zeros).signbit())


@pytest.mark.usefixtures("small_calls_on_host")
@pytest.mark.parametrize("small_calls", ["kernels", "host"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_one_element_becomes_infinite_if_its_value_is_too_large(dtype, small_calls, device):
    torch.backends.opencl.small_calls(small_calls)
    largest = torch.finfo(torch.float32).max
    x, mask = torch.zeros(3, dtype=dtype), torch.tensor([True, False, True])
    assert torch.equal(torch.where(mask.to(device), x.to(device), largest).cpu(), torch.where(mask, x, largest))
    assert x[:1].to(device).fill_(-largest).item() == -torch.inf
    with pytest.raises(RuntimeError, match="overflow"):
        x.to(device).fill_(largest)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64, torch.float32], ids=str)
def test_extremes_are_cast_to_the_dtype_of_out(dtype, device):
    numbers = torch.tensor([5, -3, 200], dtype=torch.int32)
    for extreme in (torch.min, torch.max):
        out = torch.zeros((), dtype=dtype, device=device)
        assert torch.equal(
            extreme(numbers.to(device), out=out).cpu(), extreme(numbers, out=torch.zeros((), dtype=dtype))
        )
