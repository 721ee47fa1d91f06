"""Devices that do not compute in float64: tensors of it can be kept there, and everything else is refused."""

import pytest
import torch

pytestmark = pytest.mark.skipif(
    torch.opencl.is_available() and torch.opencl.get_device_properties().fp64,
    reason="the device computes in float64 (`make test DRIVER=rusticl` has one that does not)",
)

REFUSED = {
    "to": lambda x: x.to(torch.float64),
    "to, from integers": lambda x: x.int().to(torch.float64),
    "to, of a number in memory": lambda x: x[0].to(torch.complex128),
    "to, of columns": lambda x: x.expand(3, 4).t().to(torch.float64),
    "copy_": lambda x: torch.empty_like(x, dtype=torch.float64).copy_(x),
    "copy_, from float64": lambda x: x.copy_(torch.ones(4, dtype=torch.float64).to(x.device)),
    "comparison": lambda x: torch.ones(4, dtype=torch.float64).to(x.device) < x,
    "add": lambda x: x + torch.ones(4, dtype=torch.float64).to(x.device),
    "sum": lambda x: x.sum(dtype=torch.float64),
    "any": lambda x: torch.ones(4, dtype=torch.float64).to(x.device).any(),
    "_foreach_copy_": lambda x: torch._foreach_copy_([torch.empty_like(x, dtype=torch.float64)], [x]),
    "random_": lambda x: torch.empty_like(x, dtype=torch.float64).random_(9),
    "bernoulli_": lambda x: torch.empty_like(x, dtype=torch.float64).bernoulli_(x),
    "softmax": lambda x: x.softmax(0, dtype=torch.float64),
    "arange": lambda x: torch.arange(4, dtype=torch.float64, device=x.device),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_convert_or_compute_raises(device: torch.device, name: str) -> None:
    with pytest.raises(NotImplementedError, match="does not compute in float64"):
        REFUSED[name](torch.full((4,), 0.5, device=device))


@pytest.mark.parametrize("dtype", (torch.float64, torch.complex128))
def test_elements_are_kept(device: torch.device, dtype: torch.dtype) -> None:
    host = torch.randn(5, 7, dtype=dtype)
    there = host.to(device)
    assert torch.equal(there.cpu(), host)
    assert torch.equal(there[1:, 2].cpu(), host[1:, 2])
    assert torch.equal(there.clone().cpu(), host)
