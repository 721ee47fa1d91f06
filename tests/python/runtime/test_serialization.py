"""Saving and loading, pickling, copying, and the storage of a tensor."""

import copy
import io
import pickle

import pytest
import torch


def saved(value: object) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_saved_tensor_comes_back_to_its_device(device, dtype):
    tensor = torch.arange(6, device=device).to(dtype).view(2, 3).t()
    loaded = torch.load(saved(tensor))
    assert loaded.device == device and loaded.dtype == dtype
    assert loaded.stride() == tensor.stride()
    assert loaded.cpu().equal(tensor.cpu())


def test_map_location_both_ways(device):
    host, there = torch.arange(5.0), torch.arange(5.0, device=device)
    assert torch.load(saved(there), map_location="cpu").device.type == "cpu"
    assert torch.load(saved(there), map_location=lambda storage, _: storage).equal(host)
    for location in ("opencl", f"opencl:{device.index}", device, {"cpu": "opencl"}):
        loaded = torch.load(saved(host), map_location=location)
        assert loaded.device == device
        assert loaded.cpu().equal(host)


@pytest.mark.parametrize("weights_only", [True, False])
def test_checkpoints_of_a_cuda_device_are_loaded(device, monkeypatch, weights_only):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    with monkeypatch.context() as patched:
        # A file stores this location for each of its storages.
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        stream = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    loaded = torch.load(stream, map_location="opencl", weights_only=weights_only)
    assert loaded["model"]["weight"].device == device
    assert loaded["model"]["weight"].cpu().equal(model.weight.detach())
    there = torch.nn.Linear(3, 2, device=device)
    there.load_state_dict(loaded["model"])
    again = torch.optim.Adam(there.parameters())
    again.load_state_dict(loaded["optimizer"])
    assert again.state[there.weight]["exp_avg"].device == device


def test_the_error_for_a_missing_location_suggests_map_location(device):
    stream = saved(torch.ones(1))
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(stream, map_location="opencl:99")


def test_views_share_a_storage_after_loading(device):
    base = torch.zeros(10, device=device)
    first, second = torch.load(saved([base[:5], base[3:]]))
    first.fill_(1)
    assert second.cpu().tolist() == [1, 1, 0, 0, 0, 0, 0]


def test_pickle(device):
    tensor = torch.randn(3, 4, device=device, requires_grad=True)
    loaded = pickle.loads(pickle.dumps(tensor))
    assert loaded.requires_grad and loaded.device == device
    assert loaded.detach().cpu().equal(tensor.detach().cpu())


def test_deepcopy(device):
    tensor = torch.randn(3, 4, device=device)
    module = torch.nn.Linear(2, 2).to(device)
    copied, (shared, view) = copy.deepcopy(tensor), copy.deepcopy([tensor, tensor[1]])
    tensor.zero_()
    assert copied.cpu().count_nonzero() == 12
    shared[1] = 5
    assert view.cpu().tolist() == [5, 5, 5, 5]
    twin = copy.deepcopy(module)
    assert twin.weight.data_ptr() != module.weight.data_ptr()
    assert twin.weight.cpu().equal(module.weight.cpu())


def test_the_state_of_a_module_and_its_optimizer(device):
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(device)
        return module, torch.optim.Adam(module.parameters())

    module, optimizer = make()
    module(torch.randn(8, 3, device=device)).sum().backward()
    optimizer.step()
    other, other_optimizer = make()
    other.load_state_dict(torch.load(saved(module.state_dict()), map_location="cpu"))
    other_optimizer.load_state_dict(torch.load(saved(optimizer.state_dict())))
    for name, value in module.state_dict().items():
        assert other.state_dict()[name].device == device
        assert other.state_dict()[name].cpu().equal(value.cpu())
    for state in other_optimizer.state.values():
        assert state["exp_avg"].device == device


def test_module_to_moves_parameters_and_buffers(device):
    module = torch.nn.BatchNorm1d(3).opencl()
    assert {value.device for value in module.state_dict().values()} == {device}
    assert {value.device.type for value in module.cpu().state_dict().values()} == {"cpu"}


def test_storage(device):
    tensor = torch.arange(4, dtype=torch.int32, device=device)
    storage = tensor.untyped_storage()
    assert storage.device == device and storage.nbytes() == 16
    assert storage.cpu().tolist()[:5] == [0, 0, 0, 0, 1]
    assert storage.data_ptr() == tensor.data_ptr()
    assert torch.UntypedStorage(8, device=device).fill_(3).cpu().tolist() == [3] * 8


def test_resizing_a_storage_keeps_what_fits(device):
    tensor = torch.arange(4, dtype=torch.int32, device=device)
    tensor.untyped_storage().resize_(64)
    assert tensor.cpu().tolist() == [0, 1, 2, 3]
    tensor.resize_(16)
    assert tensor.cpu()[:4].tolist() == [0, 1, 2, 3]
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0


def test_resize(device):
    tensor = torch.arange(6, device=device)
    assert tensor.resize_(2, 2).cpu().tolist() == [[0, 1], [2, 3]]
    assert tensor.resize_(2, 3).cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensor.resize_(0).shape == (0,)
    like = torch.empty(0, device=device).resize_as_(torch.ones(2, 3, device=device))
    assert like.shape == (2, 3)
    channels = torch.empty(0, device=device).resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert channels.is_contiguous(memory_format=torch.channels_last)


def test_set(device):
    source = torch.arange(12, device=device)
    tensor = torch.empty(0, dtype=torch.int64, device=device)
    assert tensor.set_(source) is tensor
    assert tensor.data_ptr() == source.data_ptr() and tensor.shape == (12,)
    tensor.set_(source.untyped_storage(), 2, (2, 3), (1, 4))
    assert tensor.cpu().tolist() == [[2, 6, 10], [3, 7, 11]]
    assert tensor.set_().shape == (0,)
    with pytest.raises(RuntimeError):
        tensor.set_(torch.arange(3))
