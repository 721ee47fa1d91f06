"""The old names of tensor types: torch.opencl.FloatTensor and its kin."""

import pytest
import torch

TYPES = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]


@pytest.mark.parametrize("name", [f"{kind}Tensor" for kind in TYPES])
def test_types_make_recognise_and_name_tensors(device, name):
    kind, on_the_host = getattr(torch.opencl, name), getattr(torch, name)
    tensor = kind([1, 0, 1])
    assert tensor.device == device and tensor.dtype == on_the_host.dtype
    assert tensor.tolist() == [1, 0, 1]
    assert kind(2, 3).shape == (2, 3)
    assert tensor.type() == f"torch.opencl.{name}"
    assert isinstance(tensor, kind) and not isinstance(tensor.cpu(), kind)
    assert not isinstance(tensor, getattr(torch.opencl, "LongTensor" if name != "LongTensor" else "IntTensor"))


def test_a_type_s_name_converts(device):
    moved = torch.ones(2).type("torch.opencl.HalfTensor")
    assert moved.device == device and moved.dtype == torch.float16
    assert moved.type(torch.FloatTensor).device.type == "cpu"
