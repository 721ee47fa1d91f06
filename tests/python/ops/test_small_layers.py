"""Small layers on CPU devices, for which the host uses several functions of ATen, or other ones."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

pytestmark = [
    pytest.mark.usefixtures("small_calls_on_host"),
    pytest.mark.skipif(
        torch.opencl.get_device_properties().device_class != "cpu",
        reason="the host computes small calls only on CPU devices",
    ),
]


def launches(function):
    """Return the result and the number of launched kernels."""
    torch.opencl.synchronize()
    before = torch.opencl.launches()
    result = function()
    return result, torch.opencl.launches() - before


ATTENTION = [("causal", None), *product(["plain", "groups", "widths"], [None, "float", "infinite", "blind"])]


@pytest.mark.parametrize(("shape", "bias"), ATTENTION)
def test_attention_and_its_gradients_are_the_kernels(device, bias, shape):
    """A query that sees no key has an output and gradients of 0."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 5, 8) for _ in range(3))
    if shape == "groups":
        key, value = key[:, :2].contiguous(), value[:, :2].contiguous()
    if shape == "widths":
        value = value[..., :3].contiguous()
    inputs = [query, key, value]
    if bias is not None:
        added = torch.randn(1, 4, 5, 5)
        added[..., 1, 2:] = -torch.inf if bias == "infinite" else 0
        added[..., 3, :] = -torch.inf if bias == "blind" else 0
        inputs.append(added)
    gradient = torch.randn(2, 4, 5, value.size(-1))

    def attend():
        leaves = [each.to(device).requires_grad_() for each in inputs]
        mask = None if bias is None else leaves[3].detach() if shape == "plain" else leaves[3]
        options = {"is_causal": shape == "causal", "enable_gqa": shape == "groups"}
        output = scaled_dot_product_attention(*leaves[:3], mask, **options)
        output.backward(gradient.to(device))
        return [output, *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    host, on_host = launches(attend)
    torch.backends.opencl.small_calls("kernels")
    kernels, by_kernels = launches(attend)
    # The CPU's fused operator takes neither shared heads nor other widths, and gives a bias no gradient.
    assert (on_host == 0) == (shape in {"plain", "causal"})
    assert by_kernels > 0
    for actual, expected in zip(host, kernels, strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_with_few_elements_are_interpolated_by_the_host_unless_the_result_is_large(device, mode):
    image = torch.randn(2, 3, 8, 8)
    there = image.to(device)
    small, of_small = launches(lambda: interpolate(there, size=(16, 12), mode=mode))
    large, of_large = launches(lambda: interpolate(there, size=(200, 100), mode=mode))
    assert of_small == 0 < of_large
    torch.testing.assert_close(small.cpu(), interpolate(image, size=(16, 12), mode=mode))
    torch.testing.assert_close(large.cpu(), interpolate(image, size=(200, 100), mode=mode))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_sparse_matmuls_of_few_elements_launch_nothing(device, layout):
    torch.manual_seed(0)
    matrix, dense = torch.randn(6, 9).relu(), torch.randn(9, 4)
    sparse, there = matrix.to_sparse(layout=layout).to(device), dense.to(device)
    result, kernels = launches(lambda: sparse @ there)
    assert kernels == 0
    torch.testing.assert_close(result.cpu(), matrix @ dense)


@pytest.mark.parametrize("wrong", ["columns", "rows"])
def test_indices_of_a_sparse_matrix_out_of_range_are_refused(device, wrong):
    rows, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    (columns if wrong == "columns" else rows)[-1] = 10**6
    parts = (rows, columns, torch.ones(2))
    matrix = torch.sparse_csr_tensor(*(part.to(device) for part in parts), size=(2, 3), check_invariants=False)
    with pytest.raises((RuntimeError, IndexError)):
        (matrix @ torch.ones(3, 4, device=device)).cpu()
    assert torch.ones(2, device=device).sum().item() == 2


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2}], ids=str)
def test_training_of_a_short_lstm_launches_nothing(device, options):
    torch.manual_seed(0)
    layer, x = nn.LSTM(3, 5, **options), torch.randn(4, 2, 3)
    ours = nn.LSTM(3, 5, **options).to(device)
    ours.load_state_dict(layer.state_dict())
    results = []
    for network, place in ((layer, "cpu"), (ours, device)):
        given = x.detach().to(place).requires_grad_()

        def train(network=network, given=given):
            output, (hy, cy) = network(given)
            (output.square().sum() + hy.sum() * 2 + cy.sum()).backward()
            return [output, hy, cy, given.grad, *(p.grad for p in network.parameters())]

        trained, kernels = launches(train)
        assert kernels == 0
        results.append(trained)
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


def test_second_derivatives_and_captured_gradients_of_a_short_lstm(device):
    torch.manual_seed(0)
    layer, x = nn.LSTM(3, 5), torch.randn(4, 2, 3)
    given = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer(given)[0].square().sum(), given, create_graph=True)
    (twice,) = torch.autograd.grad(expected.square().sum(), given, retain_graph=True)
    layer.to(device)
    there = x.to(device).requires_grad_()
    loss = layer(there)[0].square().sum()
    (first,) = torch.autograd.grad(loss, there, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(first.square().sum(), there, retain_graph=True)[0].cpu(), twice)
    graph = torch.opencl.OpenCLGraph()
    torch.opencl.synchronize()
    with torch.opencl.graph(graph):
        (captured,) = torch.autograd.grad(loss, there, retain_graph=True)
    graph.replay()
    torch.testing.assert_close(captured.cpu(), expected.detach())


def test_given_outputs_casts_and_indices_of_the_host_launch_nothing(device):
    x = torch.randn(6, 9)
    there, out = x.to(device), torch.empty(6, 6, device=device)
    index = torch.tensor([3, 1])
    results, kernels = launches(
        lambda: [
            torch.mm(there, there.t(), out=out),
            torch.sum(there, 1, out=torch.empty(6, device=device)),
            there.bfloat16().float(),
            there.to(torch.complex64),
            there[index],
        ]
    )
    assert kernels == 0
    assert results[0] is out
    expected = [x @ x.t(), x.sum(1), x.bfloat16().float(), x.to(torch.complex64), x[index]]
    for actual, right in zip(results, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scalar", [True, 3, 0.1], ids=str)
@pytest.mark.parametrize("size", [(), (4,)], ids=str)
def test_scalars_of_other_dtypes_meet_16_bit_floats(device, dtype, scalar, size):
    x, y = torch.rand(size, dtype=dtype) + 1, torch.tensor(scalar)
    for op in (torch.mul, torch.div, torch.add, torch.maximum, torch.remainder, torch.eq, torch.atan2):
        there = x.to(device), y.to(device)
        torch.opencl.synchronize()
        torch.testing.assert_close(op(*there).cpu(), op(x, y))
        torch.opencl.synchronize()
        torch.testing.assert_close(op(*reversed(there)).cpu(), op(y, x))


def test_padding_and_pooling_with_strided_outputs_and_indices(device):
    """The CPU's functions give outputs other strides, and read indices as contiguous ones."""
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    out = torch.zeros(2, 3, 10, 10, device=device)
    torch._C._nn.replication_pad2d(x.to(device), [1, 1, 1, 1], out=out)
    torch.testing.assert_close(out.cpu(), torch._C._nn.replication_pad2d(x.contiguous(), [1, 1, 1, 1]))
    volume = torch.randn(1, 2, 4, 4, 4, device=device)
    pooled, indices = torch.ops.aten.adaptive_max_pool3d(volume, [3, 3, 3])
    apart = torch.full((*indices.shape, 3), 10**12, device=device)
    apart[..., 1] = indices
    gradient = torch.ops.aten.adaptive_max_pool3d_backward(torch.ones_like(pooled), volume, apart[..., 1])
    assert gradient.sum().item() == pooled.numel()


def test_a_dtype_the_cpu_refuses_does_not_disable_the_host_for_others(device):
    x = torch.rand(4, 6, device=device)
    torch.cumsum(x, 1, out=torch.empty(0, dtype=torch.bool, device=device))  # the CPU does not support this sum
    assert launches(lambda: torch.cumsum(x, 1, out=torch.empty(4, 6, device=device)))[1] == 0


def test_functions_slow_on_the_host_run_as_kernels(device):
    x = torch.rand(10000, device=device)
    index = torch.zeros(700, dtype=torch.int64, device=device)
    query, key = torch.randn(1, 4, 64, 8, device=device), torch.randn(1, 2, 64, 8, device=device)
    for call in (
        lambda: torch.special.zeta(x + 2, x),
        lambda: torch.special.bessel_j0(x),
        lambda: x.view(2, 50, 100)[index[:, None] * 0, index],
        lambda: scaled_dot_product_attention(query, key, key, enable_gqa=True),
    ):
        assert launches(call)[1] > 0


def test_given_outputs_are_resized_and_may_be_inputs(device):
    x = torch.randn(4, 4)
    there = x.to(device)
    out = torch.empty(0, device=device)
    torch.testing.assert_close(torch.mm(there, there, out=out).cpu(), x @ x)
    assert out.shape == (4, 4)
    columns = torch.zeros(8, 4, device=device)
    torch.mm(there, there, out=columns[::2])
    torch.testing.assert_close(columns.cpu()[::2], x @ x)
    assert not columns[1::2].any()
    # The CPU's functions write as if outputs were contiguous.
    for op in (torch.ops.aten._softmax.out, torch.ops.aten._log_softmax.out):
        columns = torch.zeros(4, 8, device=device)
        expected = torch.zeros(4, 4)
        op(x, 0, False, out=expected)
        op(there, 0, False, out=columns[:, ::2])
        torch.testing.assert_close(columns.cpu()[:, ::2], expected)
        assert not columns[:, 1::2].any()
        with pytest.raises(RuntimeError, match="single memory location"):
            op(there, 0, False, out=torch.zeros((), device=device).expand(4, 4))
    torch.cumsum(there, 0, out=there)
    torch.testing.assert_close(there.cpu(), x.cumsum(0))
    with pytest.raises(RuntimeError, match="dtype"):
        torch.mm(out, out, out=torch.empty(4, 4, dtype=torch.int64, device=device))
