"""Assertions on the device, and zero tensors without memory."""

import pytest
import torch
from op_samples import NoFallback
from op_table import DTYPES, covers

from float64 import computed  # isort: skip


@pytest.mark.parametrize("dtype", computed(DTYPES["all"]), ids=str)
@covers("_assert_async", "_assert_async.msg")
def test_an_assertion_is_raised_at_the_next_wait(dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        torch._assert_async(torch.ones(1, 1, dtype=dtype, device=device))
        torch._assert_async(torch.ones((), dtype=dtype, device=device), "fine")
        torch.opencl.synchronize()
        zero = torch.zeros((), dtype=dtype, device=device)
        for arguments, says in (
            ((), "Expected Tensor with single nonzero value, but got zero"),
            (("the sum is 0",), "the sum is 0"),
            (("",), "Assertion is failed"),
        ):
            torch._assert_async(zero, *arguments)
            with pytest.raises(RuntimeError, match=f"^{says}$"):
                torch.opencl.synchronize()
    torch.opencl.synchronize()


def test_an_assertion_needs_one_value(device: torch.device) -> None:
    for count, says in ((0, "no values"), (2, "more than one value")):
        with pytest.raises(RuntimeError, match=f"Boolean value of Tensor with {says} is ambiguous"):
            torch._assert_async(torch.ones(count, device=device))


@covers("_efficientzerotensor")
def test_zeros_without_memory_are_zeros_to_operators(device: torch.device) -> None:
    allocated = torch.opencl.memory_allocated()
    with NoFallback():
        zeros = torch._efficientzerotensor((1000, 1000), device=device)
        assert torch.opencl.memory_allocated() == allocated
        assert zeros.device.type == "opencl" and zeros.shape == (1000, 1000) and zeros._is_zerotensor()
        x = torch.randn(1000, 1000, device=device)
        assert torch.equal(x + zeros, x)
        assert (zeros * x)._is_zerotensor()
        assert zeros.clone().sum() == 0
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(dual * 2 + x).tangent
        assert (tangent == 2).all()


@covers("_functional_assert_async.msg", "_make_dep_token")
def test_assertions_of_traced_programs_return_their_token(device: torch.device) -> None:
    token = torch.ops.aten._make_dep_token(device=device)
    assert token.device.type == device.type
    assert token.shape == ()
    token.fill_(3)
    after = torch.ops.aten._functional_assert_async.msg(torch.tensor(1, device=device), "no", token)
    assert after.item() == 3
    with pytest.raises(RuntimeError, match="no such luck"):
        torch.ops.aten._functional_assert_async.msg(torch.tensor(0, device=device), "no such luck", token).item()
    with pytest.raises(RuntimeError):
        torch.ops.aten._functional_assert_async.msg(torch.ones(2, device=device), "no", token)
