"""Small calls on CPU devices: the host computes them if the device is idle."""

import warnings
from itertools import islice

import pytest
import torch
from op_checks import assert_right, forward, has_inplace, inplace
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo

pytestmark = [
    pytest.mark.usefixtures("small_calls_on_host"),
    pytest.mark.skipif(
        torch.opencl.get_device_properties().device_class != "cpu",
        reason="the host computes small calls only on CPU devices",
    ),
]
INFOS = [pytest.param(info, id=info.full_name) for info, dtypes in opinfo_dtypes() if torch.float32 in dtypes]
OTHERS = [
    pytest.param(info, dtype, id=f"{info.full_name}-{str(dtype).removeprefix('torch.')}")
    for info, dtypes in opinfo_dtypes()
    for dtype in (torch.int32, torch.bfloat16)
    if dtype in dtypes
]
INPLACE = [param for param in INFOS if has_inplace(param.values[0])]


@pytest.mark.parametrize("info", INFOS)
def test_results_are_the_cpus(info: OpInfo, device: torch.device) -> None:
    for case in forward(info, torch.float32):
        torch.opencl.synchronize()
        assert_right(case, info, torch.float32, device)


@pytest.mark.parametrize(("info", "dtype"), OTHERS)
def test_results_of_other_dtypes_are_the_cpus(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    """Includes some dtypes that only kernels support."""
    for case in islice(forward(info, dtype), 3):
        torch.opencl.synchronize()
        assert_right(case, info, dtype, device)


@pytest.mark.parametrize("info", INPLACE)
def test_in_place_results_are_the_cpus(info: OpInfo, device: torch.device) -> None:
    for case in inplace(info, torch.float32):
        torch.opencl.synchronize()
        assert_right(case, info, torch.float32, device)


def test_small_calls_launch_nothing_while_the_device_is_idle(device):
    x = torch.randn(8, 16)
    ours = x.to(device)
    torch.opencl.synchronize()
    before = torch.opencl.launches()

    def chain(x):
        y = ((x * 2 + x.t().contiguous().t()).relu().sum(-1, keepdim=True) - x).softmax(-1)
        return torch.cat([y.double().exp_().float(), y[:, :4].cumsum(0).sort().values], 1)

    result = chain(ours)
    assert torch.opencl.launches() == before
    torch.testing.assert_close(result.cpu(), chain(x))


def test_small_calls_after_pending_work_are_enqueued(device):
    large, small = torch.randn(1 << 20, device=device), torch.ones(4, device=device)
    torch.opencl.synchronize()
    before = torch.opencl.launches()
    large.mul_(2)
    result = small + large[:4]
    assert torch.opencl.launches() == before + 2
    torch.testing.assert_close(result.cpu(), 1 + large[:4].cpu())


def test_another_streams_event_is_waited_for(device, side_stream):
    large = torch.zeros(1 << 22, device=device)
    torch.opencl.synchronize()
    for step in range(20):
        with torch.opencl.stream(side_stream):
            large.add_(1)
        torch.opencl.current_stream().wait_stream(side_stream)
        result = large[-3:] * 2
        side_stream.wait_stream(torch.opencl.current_stream())
        assert result.tolist() == [2.0 * (step + 1)] * 3


def test_small_calls_are_captured_in_graphs(device):
    x = torch.ones(4, device=device)
    graph = torch.opencl.OpenCLGraph()
    torch.opencl.synchronize()
    with torch.opencl.graph(graph):
        y = (x + 1).sum(0)
    x.fill_(4)
    graph.replay()
    assert y.item() == 20


def test_small_calls_by_kernels_can_be_selected(device):
    torch.backends.opencl.small_calls("kernels")
    x = torch.ones(4, device=device)
    torch.opencl.synchronize()
    before = torch.opencl.launches()
    x.add_(1)
    assert torch.opencl.launches() == before + 1
    with pytest.raises(RuntimeError, match="'host' or by 'kernels', not by 'gpu'"):
        torch.backends.opencl.small_calls("gpu")


def test_an_index_out_of_range_raises_at_once(device):
    x = torch.ones(4, device=device)
    torch.opencl.synchronize()
    with pytest.raises(IndexError, match=r"out of range|out of bounds"):
        x.index_select(0, torch.tensor([9], device=device))
    assert x.sum().item() == 4


NETWORKS = {
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 2),
    "rms_norm": lambda x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x, 2),
    "adaptive_max_pool": lambda x: torch.nn.functional.adaptive_max_pool2d(x, 3),
    "avg_pool": lambda x: torch.nn.functional.avg_pool2d(x, 2),
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, x.detach().argmax(1)),
    **{
        f"embedding_bag-{mode}": lambda x, mode=mode: torch.nn.functional.embedding_bag(
            torch.arange(12, device=x.device).view(3, 4) % 5, x.flatten(1).mT, mode=mode
        )
        for mode in ("sum", "mean", "max")
    },
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "attention-bias": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, x[:1, :, :1]),
    "attention-widths": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x[..., :3], is_causal=True),
    "attention-groups": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x, x[:, :2], x[:, 1:3], enable_gqa=True
    ),
    "bilinear": lambda x: torch.nn.functional.interpolate(x, size=(9, 4), mode="bilinear"),
    "bicubic": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "convolution": lambda x: torch.nn.functional.conv2d(x, x[:, :, :3, :3].detach(), padding=1),
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "linear": lambda x: torch.nn.functional.linear(x, x[0, 0].detach(), x[0, 0, 0].detach()).relu() @ x,
    "median": lambda x: x.median(1).values,
    "sort": lambda x: x.sort(-1).values,
    "cummax": lambda x: x.cummax(-1).values,
    "weight_norm": lambda x: torch._weight_norm(x, x.detach().norm(2, (1, 2, 3), keepdim=True), 0),
    "prod": lambda x: x.prod(1),
    "std": lambda x: x.std(1),
}


def test_overlapping_arguments_are_computed_by_kernels(device):
    x = torch.arange(9.0, device=device).view(3, 3)
    torch.opencl.synchronize()
    with pytest.raises(RuntimeError, match="single memory location"):
        x.scatter_(0, torch.zeros(3, 3, dtype=torch.int64, device=device), x)
    lists = [torch.full((2,), 2.0, device=device), torch.tensor([True, True], device=device)]
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch._foreach_addcmul_(lists, lists, lists)
    assert lists[0].tolist() in ([2.0, 2.0], [6.0, 6.0])
    lazy = torch._lazy_clone(x)
    lazy.index_fill_(0, torch.tensor([0], device=device), 5.0)
    assert x[0].tolist() == [0.0, 1.0, 2.0]


def test_bags_with_weights_have_gradients(device):
    weights = torch.randn(6, 4)
    results = []
    for place in ("cpu", device):
        table, scales = (
            weights.detach().to(place, copy=True).requires_grad_(),
            torch.ones(2, 3, device=place, requires_grad=True),
        )
        indices = torch.tensor([[0, 1, 2], [3, 4, 0]], device=place)
        bags = torch.nn.functional.embedding_bag(indices, table, mode="sum", per_sample_weights=scales)
        bags.square().sum().backward()
        results.append([table.grad.cpu(), scales.grad.cpu()])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("options", [(False, -1), (True, -1), (False, 2)], ids=["", "last offset", "padding"])
def test_host_and_kernels_save_the_same_for_embedding_bag(device, mode, dtype, options):
    """Compiled graphs rely on shapes and dtypes of the saved tensors; gradients on their values."""
    last, padding_idx = options
    table = torch.randn(10, 4).to(device)
    indices = torch.tensor([1, 2, 2, 5, 7, 9, 2], device=device, dtype=dtype)
    offsets = torch.tensor([0, 2, 2, 3] + [7] * last, device=device, dtype=dtype)
    results, launches = {}, {}
    for choice in ("host", "kernels"):
        torch.backends.opencl.small_calls(choice)
        torch.opencl.synchronize()
        before = torch.opencl.launches()
        bags = torch.ops.aten._embedding_bag(table, indices, offsets, False, mode, False, None, last, padding_idx)
        gradient = torch.ops.aten._embedding_bag_dense_backward(
            torch.ones_like(bags[0]), indices, *bags[1:], 10, False, mode, None, padding_idx
        )
        results[choice] = [*bags, gradient]
        launches[choice] = torch.opencl.launches() - before
    for host, kernels in zip(results["host"], results["kernels"], strict=True):
        torch.testing.assert_close(host, kernels)
    assert launches["host"] == 0 < launches["kernels"]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_zero_bags(device, mode, last):
    table = torch.randn(10, 3, device=device, requires_grad=True)
    indices, offsets = torch.arange(0, device=device), torch.zeros(int(last), dtype=torch.int64, device=device)
    bags = torch.nn.functional.embedding_bag(indices, table, offsets, mode=mode, include_last_offset=last)
    bags.sum().backward()
    assert bags.shape == (0, 3)
    assert not table.grad.any()


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, -2, 3], [0, -200000000, 3], [0, 3, 200000000]], ids=str)
def test_invalid_offsets_are_refused(device, offsets):
    table, indices = torch.randn(6, 4, device=device), torch.arange(6, device=device)
    with pytest.raises((RuntimeError, IndexError)):
        torch.nn.functional.embedding_bag(indices, table, torch.tensor(offsets, device=device), mode="sum").cpu()


@pytest.mark.parametrize("index", [-1, 10**9])
@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_of_embeddings_refuse_indices_out_of_range(device, index, scaled):
    grad = torch.ones(2, 3, device=device)
    indices = torch.tensor([0, index], device=device)
    with pytest.raises((RuntimeError, IndexError)):
        torch.ops.aten.embedding_dense_backward(grad, indices, 5, -1, scaled).cpu()
    assert torch.ones(2, device=device).sum().item() == 2


def test_host_and_kernels_draw_the_same_random_values(device):
    x = torch.ones(100, device=device)
    results = {}
    for choice in ("host", "kernels"):
        torch.backends.opencl.small_calls(choice)
        torch.manual_seed(1)
        results[choice] = [
            torch.rand_like(x),
            torch.nn.functional.dropout(x),
            x.bernoulli(0.3),
            torch.randperm(9, device=device),
        ]
        torch.opencl.synchronize()
    for host, kernels in zip(results["host"], results["kernels"], strict=True):
        assert torch.equal(host, kernels)


def test_a_small_recurrent_layer_gives_the_cpus_results(device):
    torch.manual_seed(0)
    layer, x = torch.nn.LSTMCell(5, 7), torch.randn(3, 5)
    ours = torch.nn.LSTMCell(5, 7).to(device)
    ours.load_state_dict(layer.state_dict())
    results = []
    for cell, given in ((layer, x.clone().requires_grad_()), (ours, x.to(device).requires_grad_())):
        hy, cy = cell(given)
        hy, cy = cell(given, (hy, cy))
        (hy.sum() + cy.square().sum()).backward()
        results.append([hy.cpu(), cy.cpu(), given.grad.cpu(), *(p.grad.cpu() for p in cell.parameters())])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW], ids=lambda kind: kind.__name__)
def test_small_optimizer_steps_are_the_cpus(device, optimizer):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(5, 7), torch.randn(3, 5)
    ours = torch.nn.Linear(5, 7).to(device)
    ours.load_state_dict(layer.state_dict())
    for model, given in ((layer, x), (ours, x.to(device))):
        steps = optimizer(model.parameters(), lr=0.1)
        for _ in range(3):
            steps.zero_grad()
            model(given).square().sum().backward()
            steps.step()
    for expected, actual in zip(layer.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


def test_outputs_of_log_sigmoid_are_those_of_kernels(device):
    """With outputs of other sizes, of other dtypes, and equal to an input."""
    forward, backward = torch._C._nn.log_sigmoid, torch.ops.aten.log_sigmoid_backward
    x = torch.linspace(-3, 3, 5)
    for shape in [(4,), (3, 5), (7,)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about resized outputs that are not empty
            results = [forward(each[1:3], out=torch.zeros(shape, device=each.device)) for each in (x, x.to(device))]
        assert results[0].shape == results[1].shape == (2,)
        torch.testing.assert_close(results[1].cpu(), results[0])
    there = x.to(device)
    torch.testing.assert_close(forward(there, out=there).cpu(), forward(x))
    grad = torch.ones(3, 5)
    there = backward(grad.to(device), x.to(device), torch.empty(0, device=device))
    torch.testing.assert_close(there.cpu(), grad * torch.sigmoid(-x))
    with pytest.raises(RuntimeError):
        forward(x.to(device), out=torch.zeros(5, device=device, dtype=torch.float64))
    many = torch.zeros(10, device=device)
    with pytest.raises(RuntimeError, match="single memory location"):
        forward(many[:9], out=many[1:])


@pytest.mark.parametrize("backward", ["kernels", "host"])
@pytest.mark.parametrize("name", NETWORKS)
def test_host_and_kernels_can_share_a_forward_and_backward(device, name, backward):
    x = torch.randn(2, 4, 6, 6)
    expected = x.clone().requires_grad_()
    output = NETWORKS[name](expected)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    ours = x.to(device).requires_grad_()
    torch.backends.opencl.small_calls("host" if backward == "kernels" else "kernels")
    output = NETWORKS[name](ours)
    torch.opencl.synchronize()
    torch.backends.opencl.small_calls(backward)
    output.backward(gradient.to(device))
    torch.testing.assert_close(ours.grad.cpu(), expected.grad)


def test_known_bugs_of_the_cpus_functions_are_avoided(device):
    """For rows with `on_cpu: never`, and scale_grad_by_freq of embedding_bag, kernels also compute small calls."""
    nan = torch.full((64,), float("nan"), device=device)
    for name in ("chebyshev_polynomial_u", "shifted_chebyshev_polynomial_w", "laguerre_polynomial_l"):
        torch.opencl.synchronize()
        assert getattr(torch.special, name)(nan, 3).isnan().all(), name
    huge = torch.full((64,), 3e38, device=device)
    for name in ("fmod", "remainder"):
        torch.opencl.synchronize()
        assert (getattr(torch, name)(huge, 2.0**-40) == 0).all(), name
    weight = torch.ones(4, 3, device=device, requires_grad=True)
    index, offsets = torch.tensor([1, 1, 3], device=device), torch.tensor([0], device=device)
    bags = torch.nn.functional.embedding_bag(index, weight, offsets, mode="sum", scale_grad_by_freq=True)
    torch.opencl.synchronize()
    bags.sum().backward()
    assert weight.grad[:, 0].tolist() == [0, 1, 0, 1]


def test_gradients_of_pooling_take_indices_of_any_layout(device):
    x = torch.randperm(2 * 3 * 6 * 6 * 6).float().view(2, 3, 6, 6, 6)
    values, indices = torch.nn.functional.adaptive_max_pool3d(x, 3, return_indices=True)
    grad = torch.randn(values.shape)
    backward = torch.ops.aten.adaptive_max_pool3d_backward
    expected = backward(grad, x, indices)
    last = indices.contiguous(memory_format=torch.channels_last_3d).to(device)
    torch.opencl.synchronize()
    assert torch.equal(backward(grad.to(device), x.to(device), last).cpu(), expected)
