"""Fake operators agree with our results: compiled graphs and FakeTensorMode rely on strides, dtypes and devices."""

import functools
from itertools import islice

import pytest
import torch
from op_samples import mirror_all
from releases import requires_torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# Operators that differ, each with its reason.
ALLOWED = {
    "aten.col2im.default": "The offset of a result without elements.",
    "aten._embedding_bag.default": "ATen's fake operator counts one bag too many if include_last_offset is set.",
    "aten.log_sigmoid_forward.default": "The backward needs no buffer, and ignores the buffer of other devices.",
    "aten.native_batch_norm.default": "In evaluation nothing is saved: the backward uses the running statistics.",
}
# For channels-last tensors. PyTorch's fakes of these are decompositions, and also differ from the CPU.
LAID_OUT_OTHERWISE = {
    "aten._log_softmax_backward_data.default",
    "aten.glu_backward.default",
    "aten.max_unpool2d.default",
    # Channels-last if the host computes them, contiguous if kernels do: graphs keep only contiguous ones undecomposed,
    # and gradients of replication padding, which PyTorch cannot decompose.
    *(
        f"aten.{kind}_pad{dims}d{end}.default"
        for kind in ("reflection", "replication")
        for dims in (2, 3)
        for end in ("", "_backward")
    ),
}
# Samples of each OpInfo; all samples would take minutes.
SAMPLES = 2
TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.inplace_view, torch.Tag.data_dependent_output}
LIFTS = {torch.ops.aten.lift_fresh.default, torch.ops.aten._local_scalar_dense.default}
PARTS = 4


@pytest.fixture(params=["host", "kernels"], autouse=True)
def small_calls(request):
    """Whether the host or kernels compute small calls on CPU devices: both must agree with the fakes."""
    before = torch.backends.opencl.small_calls()
    torch.backends.opencl.small_calls(request.param)
    torch.opencl.synchronize()
    yield
    torch.backends.opencl.small_calls(before)


def described(tensor):
    """The properties that a graph may rely on; strides only of dimensions where they matter."""
    strides = [
        stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1 and tensor.numel()
    ]
    return tuple(tensor.shape), strides, tensor.dtype, tensor.device.type, tensor.storage_offset()


class Compare(TorchDispatchMode):
    """Calls each operator with fake tensors first, and records differences."""

    def __init__(self):
        super().__init__()
        self.differences = {}
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        fakes = None if self._is_left_out(func, args, kwargs) else self._fake(func, args, kwargs)
        real = func(*args, **kwargs)
        if fakes is not None and str(func) not in ALLOWED:
            self.calls += 1
            mine, theirs = (
                [described(leaf) if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in tree_leaves(results)]
                for results in (real, fakes)
            )
            if mine != theirs:
                self.differences.setdefault(str(func), (mine, theirs))
        return real

    @staticmethod
    def _is_left_out(func, args, kwargs):
        mutates = any(arg.alias_info and arg.alias_info.is_write and not arg.is_out for arg in func._schema.arguments)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        strided = all(tensor.layout == torch.strided for tensor in tensors)
        return func in LIFTS or mutates or not strided or TAGS & set(func.tags)

    @staticmethod
    def _fake(func, args, kwargs):
        try:
            with FakeTensorMode(shape_env=ShapeEnv()) as mode:
                make = functools.partial(mode.from_tensor, static_shapes=True)
                fake_args, fake_kwargs = tree_map_only(torch.Tensor, make, (args, kwargs))
                return func(*fake_args, **fake_kwargs)
        except Exception:
            # The operator refuses the arguments, or has no fake.
            return None


def sample_calls(info):
    torch.manual_seed(0)
    grads = info.supports_autograd and torch.float32 in info.supported_backward_dtypes("cpu")
    return list(islice(info.sample_inputs("cpu", torch.float32, grads), SAMPLES))


def run(compare, info, first, args, kwargs):
    """Call an operator and its gradient, if it accepts the arguments, and compare results."""
    with compare:
        try:
            out = info.op(first, *args, **kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            return
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        ins = [leaf for leaf in tree_leaves((first, args, kwargs)) if isinstance(leaf, torch.Tensor)]
        ins = [leaf for leaf in ins if leaf.requires_grad]
        if outs and ins:
            torch.autograd.grad(outs, ins, [torch.ones_like(leaf) for leaf in outs], allow_unused=True)


@pytest.mark.slow
@requires_torch("2.13", "some fake operators, which were added or fixed later")
@pytest.mark.parametrize("part", range(PARTS))
def test_results_agree_with_fake_operators(device, part):
    compare = Compare()
    for info in op_db[part::PARTS]:
        if torch.float32 not in info.supported_dtypes("cpu") or "sparse" in info.name or "jiterator" in info.name:
            continue
        for sample in sample_calls(info):
            first, args, kwargs = mirror_all((sample.input, sample.args, sample.kwargs), device)
            run(compare, info, first, args, kwargs)
    assert compare.calls > 500
    assert not compare.differences


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats or not tensor.is_floating_point():
        return tensor
    return tensor.detach().contiguous(memory_format=formats[tensor.dim()]).requires_grad_(tensor.requires_grad)


def has_channels(sample):
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(leaf.dim() in (4, 5) for leaf in leaves if isinstance(leaf, torch.Tensor))


@requires_torch("2.13", "some fake operators, which were added or fixed later")
def test_layouts_of_channels_last_results_agree_with_fakes(device):
    compare = Compare()
    for info in op_db:
        if not info.name.startswith("nn.functional.") or torch.float32 not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        samples = info.sample_inputs("cpu", torch.float32, info.supports_autograd)
        for sample in islice(filter(has_channels, islice(samples, 40)), 3):
            call = mirror_all((sample.input, sample.args, sample.kwargs), device)
            first, args, kwargs = tree_map_only(torch.Tensor, channels_last, call)
            run(compare, info, first, args, kwargs)
    assert compare.calls > 500
    assert not compare.differences.keys() - LAID_OUT_OTHERWISE, compare.differences


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 4, 8, 8)], ids=["2d", "3d"])
@pytest.mark.parametrize("channels_last", ["input", "weight", "neither"])
def test_convolutions_have_the_memory_format_of_their_fakes(device, shape, channels_last):
    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x, w = torch.randn(shape, device=device), torch.randn(4, 3, *[3] * (len(shape) - 2), device=device)
    x = x.to(memory_format=last) if channels_last == "input" else x
    w = w.to(memory_format=last) if channels_last == "weight" else w
    x.requires_grad_()
    w.requires_grad_()
    compare = Compare()
    with compare:
        function = torch.nn.functional.conv2d if len(shape) == 4 else torch.nn.functional.conv3d
        function(x, w, padding=1).sum().backward()
    assert compare.calls > 1
    assert not compare.differences


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("turned", ["nothing", "query", "all"])
def test_fused_attention_agrees_with_its_fake(device, dropout, turned):
    def operand(is_turned):
        shape = (2, 6, 3, 8) if is_turned else (2, 3, 6, 8)
        x = torch.randn(shape, device=device)
        return (x.transpose(1, 2) if is_turned else x).requires_grad_()

    q, *others = (operand(turned == "all" or (turned == "query" and i == 0)) for i in range(3))
    k, v = others
    torch.opencl.synchronize()
    compare = Compare()
    with compare:
        torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout).sum().backward()
    assert not compare.differences


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4)], ids=str)
def test_nonzero_has_the_layout_of_the_cpu(device, shape):
    x = (torch.arange(float(torch.Size(shape).numel())) % 3).view(shape)
    assert x.to(device).nonzero().stride() == x.nonzero().stride()
    assert x.to(device).nonzero().tolist() == x.nonzero().tolist()


@pytest.mark.parametrize("grad", [False, True])
def test_3d_pooling_of_4d_channels_last_tensors(device, grad):
    x = torch.randn(3, 4, 6, 8).to(memory_format=torch.channels_last).to(device).requires_grad_(grad)
    compare = Compare()
    with compare:
        result = torch.nn.functional.adaptive_avg_pool3d(x, 2)
        if grad:
            result.sum().backward()
    assert not compare.differences
