"""The legacy tensor types: torch.opencl.FloatTensor and similar."""

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


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("kind", [*TYPES, "ComplexDouble", "ComplexFloat"])
def test_typed_storages_are_made_recognised_and_saved(device, kind, tmp_path):
    storage_type, on_the_host = getattr(torch.opencl, f"{kind}Storage"), getattr(torch, f"{kind}Storage")
    storage = storage_type([1, 0, 1])
    assert storage.device == device and storage.tolist() == [1, 0, 1] and len(storage_type(5)) == 5
    assert isinstance(storage, storage_type) and not isinstance(storage.cpu(), storage_type)
    assert isinstance(storage.cpu(), on_the_host) and storage_type.dtype == on_the_host.dtype
    assert storage.type() == f"torch.opencl.{kind}Storage"
    torch.save(storage, tmp_path / "storage.pt")
    assert torch.load(tmp_path / "storage.pt", weights_only=False).tolist() == [1, 0, 1]
