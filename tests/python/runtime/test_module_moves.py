"""`Module.to` and similar methods move parameters in place: references to a parameter stay valid."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

MOVES = {
    "to": lambda module, device: module.to(device),
    "opencl": lambda module, device: module.opencl(),
    "to_dtype": lambda module, device: module.to(device=device, dtype=torch.float32),
    "apply": lambda module, device: module._apply(lambda tensor: tensor.to(device)),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_parameters_keep_their_identity(device, move):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = list(module.parameters())
    versions = [parameter.detach().clone() for parameter in before]
    move(module, device)
    after = list(module.parameters())
    assert all(a is b for a, b in zip(after, before, strict=True))
    assert all(parameter.device == device and parameter.is_leaf and parameter.requires_grad for parameter in after)
    torch.testing.assert_close([parameter.cpu() for parameter in after], versions, rtol=0, atol=0)
    module.cpu()
    assert all(a is b for a, b in zip(module.parameters(), before, strict=True))
    assert all(parameter.device.type == "cpu" for parameter in before)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_an_optimizer_made_before_the_move_trains(device, make):
    results = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
        optimizer = make(module.parameters(), lr=0.01)
        x = torch.randn(6, 5).to(where)
        module.to(where)

        def closure(module=module, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        assert losses[2] < losses[0]
        results.append([parameter.detach().cpu() for parameter in module.parameters()])
    torch.testing.assert_close(*results)


def test_gradients_move_with_their_parameters(device):
    module = nn.Linear(3, 2)
    module(torch.ones(1, 3)).sum().backward()
    gradient = module.weight.grad
    module.to(device)
    assert module.weight.grad is gradient and gradient.device == device
    module(torch.ones(1, 3, device=device)).sum().backward()
    assert module.weight.grad.cpu().tolist() == [[2.0] * 3] * 2


def test_tied_weights_stay_one(device):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    gradients = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        model = Tied().to(where)
        assert model.head.weight is model.embed.weight
        assert len(list(model.parameters())) == 1
        model(torch.arange(5, device=where)).logsumexp(-1).sum().backward()
        gradients.append(model.embed.weight.grad.cpu())
    torch.testing.assert_close(*gradients)
    assert copy.deepcopy(model).head.weight.device == device


def test_assigning_data_moves_a_tensor(device):
    parameter = nn.Parameter(torch.zeros(2))
    other = parameter
    parameter.data = torch.ones(3, device=device)
    assert other.device == device and other.tolist() == [1.0] * 3 and isinstance(other, nn.Parameter)
    (other * 2).sum().backward()
    assert other.grad.device == device
    other.grad = None
    other.data = torch.full((2,), 5.0)
    assert parameter.tolist() == [5.0, 5.0] and parameter.device.type == "cpu"


def test_a_dense_tensor_does_not_take_over_a_sparse_one(device):
    tensor = torch.zeros(2, 2, device=device)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.eye(2).to_sparse()


@pytest.mark.parametrize("setting", ["swap", "overwrite"])
def test_the_other_ways_to_convert_modules(device, setting):
    module = nn.Linear(3, 2)
    before = module.weight
    switches = {
        "swap": torch.__future__.set_swap_module_params_on_conversion,
        "overwrite": torch.__future__.set_overwrite_module_params_on_conversion,
    }
    switches[setting](True)
    try:
        module.to(device)
    finally:
        switches[setting](False)
    assert module.weight.device == device
    assert (module.weight is before) == (setting == "swap")


def test_swapped_tensors_change_devices(device):
    a, b = torch.zeros(2), torch.ones(3, device=device)
    torch.utils.swap_tensors(a, b)
    assert a.device == device and a.tolist() == [1.0] * 3
    assert b.device.type == "cpu" and b.tolist() == [0.0] * 2


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.orthogonal], ids=lambda f: f.__name__)
def test_parametrized_modules_move(device, wrap):
    module = wrap(nn.Linear(4, 4))
    expected = module.weight.detach().clone()
    before = list(module.parameters())
    module.to(device)
    assert all(a is b for a, b in zip(module.parameters(), before, strict=True))
    torch.testing.assert_close(module.weight.detach().cpu(), expected)


def test_recurrent_modules_and_to_empty(device):
    module = nn.LSTM(3, 4)
    before = list(module.parameters())
    module.to(device)
    assert all(a is b for a, b in zip(module.parameters(), before, strict=True))
    assert module(torch.zeros(2, 1, 3, device=device))[0].device == device
    with torch.device("meta"):
        empty = nn.Linear(2, 2)
    assert all(parameter.device == device for parameter in empty.to_empty(device=device).parameters())
