"""torch.compile: kernels that Inductor generates for the device, in both device classes, against eager operators."""

import copy

import pytest
import torch
import torch.nn.functional as F
from processes import run_python, two_devices
from torch import nn

FUNCTIONS = {
    "a chain of functions": lambda x, y: F.gelu(x * y + x).tanh() * x.sigmoid(),
    "numbers and dtypes": lambda x, y: (x.double() + 2 > y).to(torch.int8) * 3 - 100,
    "softmax of rows": lambda x, y: x.softmax(-1),
    "softmax of columns": lambda x, y: x.softmax(0),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:], y, y),
    "sums along each dimension": lambda x, y: (x.sum(0), x.sum(1), x.sum(), x.mean(), x.prod(1)),
    "extremes and their indices": lambda x, y: (x.amax(1), x.amin(0), x.argmax(1), x.argmin(), x.any(1)),
    "variance": lambda x, y: (x.var(1), torch.var_mean(x, 0), x.std()),
    "transposes": lambda x, y: x.t().contiguous() + x.t() * 2,
    "pieces of tensors": lambda x, y: torch.cat([x[:, 3:], x[:, :5] * 2, y.expand(x.shape[0], -1)], 1),
    "padding": lambda x, y: F.pad(x, (1, 2, 3, 4), value=1.5).roll(2, 0),
    "triangles": lambda x, y: x.tril() + x.triu(1) * 2,
    "indices": lambda x, y: x[torch.arange(x.shape[0], device=x.device).flip(0)] + y[(x > 0).long()],
    "scatters": lambda x, y: torch.zeros_like(x).index_add(0, (x[:, 0] > 0).long(), x),
    "integer division": lambda x, y: ((x * 9).int() // 4, (x * 9).int() % 4, torch.fmod(x * 9, 4), (x * 9).int() >> 1),
    "scans and sorts": lambda x, y: x.cumsum(1).sort(1)[0] + 1,
    "functions without a template": lambda x, y: torch.special.bessel_j0(x) + torch.erfinv(x.clamp(-0.9, 0.9)),
    "bools in order": lambda x, y: (
        (x > 0) < (y > 0),
        (x > 0) >= (y > 0),
        torch.maximum(x > 0, y > 0),
        torch.minimum(x > 0, y > 0),
        (x > 0).view(torch.uint8),
        (x > 0).max(1)[1],
        (x > 0).clone().max(0)[1],
        (x > 0).any(0).float() * 2,
    ),
    "arithmetic of sizes": lambda x, y: (
        x * (x.shape[0] / 3),
        x.double() * (x.shape[0] / 7),
        x * round(x.shape[0] * 0.3),
        x * x.shape[1] ** 0.5,
    ),
    "arithmetic of positions": lambda x, y: (
        y + torch.arange(y.shape[0], device=y.device).clamp(3, 20),
        y + (torch.arange(y.shape[0], device=y.device) - 5) // 3,
    ),
    "windows": lambda x, y: (
        F.interpolate(x[None, None], size=x.shape[0] * 2 // 3 + 3, mode="nearest")
        if x.dim() == 3
        else F.avg_pool2d(x[None, None], 3, 2, 1, count_include_pad=False)
    ),
    "whole rows of odd length": lambda x, y: x[:, :37].softmax(-1) * y[:37],
}


def close(actual, expected, **limits):
    torch.testing.assert_close(actual, expected, equal_nan=True, **(limits or {"rtol": 1e-5, "atol": 1e-5}))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_generated_kernels_agree_with_eager_operators(device, name, dynamic):
    function = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    for rows, columns in ((48, 64), (5, 130)):
        x, y = torch.randn(rows, columns, device=device), torch.randn(columns, device=device)
        close(compiled(x, y), function(x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool])
def test_other_dtypes(device, dtype):
    x = torch.randint(0, 7, (33, 48), device=device).to(dtype)
    function = FUNCTIONS["transposes"] if dtype == torch.bool else lambda x: (x * 3 + x.t().contiguous().t()).sum(1)
    call = (lambda x: function(x, x)) if dtype == torch.bool else function
    close(torch.compile(call)(x), call(x), rtol=2e-2, atol=2e-2)


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


def images(channels_last):
    x = torch.randn(4, 3, 20, 20)
    return x.to(memory_format=torch.channels_last) if channels_last else x


MODELS = {
    "transformer": lambda: (Block(), torch.randn(2, 16, 64)),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8)),
        images(False),
    ),
    "channels-last": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)),
        images(True),
    ),
    "embeddings": lambda: (nn.Sequential(nn.Embedding(50, 16), nn.Tanh()), torch.randint(0, 50, (4, 9))),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", MODELS)
def test_training_steps_are_those_of_eager_mode(device, name, backend):
    model, x = MODELS[name]()
    model, x = model.to(device), x.to(device)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend=backend)
    for mine, run in ((model, model), (twin, compiled)):
        optimizer = torch.optim.SGD(mine.parameters(), 0.1, momentum=0.9)
        for _ in range(2):
            run(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    close(list(twin.parameters()), list(model.parameters()), rtol=1e-3, atol=1e-4)


def test_autocast(device):
    model, x = Block().to(device), torch.randn(2, 16, 64, device=device)
    with torch.autocast("opencl", torch.bfloat16):
        close(torch.compile(model)(x), model(x), rtol=3e-2, atol=3e-2)


def test_distributions_of_random_values(device):
    x = torch.ones(40000, device=device)
    dropped = torch.compile(lambda x: F.dropout(x, 0.25))(x)
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.02
    uniform, normal = torch.compile(lambda x: (torch.rand_like(x), torch.randn_like(x)))(x)
    assert abs(uniform.mean().item() - 0.5) < 0.02
    assert abs(uniform.var().item() - 1 / 12) < 0.01
    assert abs(normal.mean().item()) < 0.03
    assert abs(normal.std().item() - 1) < 0.03


def test_random_values_depend_only_on_positions(device):
    """They do not depend on how a kernel's loops are divided into vectors."""
    results = []
    for shape in [(1024,), (1001,), (7, 143), (13, 7, 11)]:
        torch._dynamo.reset()
        draw = torch.compile(lambda x: (torch.rand_like(x), torch.randint_like(x, 0, 1000), torch.randn_like(x)))
        torch.manual_seed(3)
        results.append([numbers.flatten()[:1001] for numbers in draw(torch.empty(shape, device=device))])
    for uniform, integers, normal in results[1:]:
        assert torch.equal(uniform, results[0][0])
        assert torch.equal(integers, results[0][1])
        torch.testing.assert_close(normal, results[0][2], rtol=1e-6, atol=1e-6)
    assert results[0][0].unique().numel() > 1000
    assert results[0][2].unique().numel() > 1000


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32]
)
def test_atomic_additions(device, dtype):
    base = torch.zeros(7, 16, device=device, dtype=dtype)
    index, values = torch.randint(0, 7, (300,), device=device), torch.ones(300, 16, device=device, dtype=dtype)
    close(
        torch.compile(lambda *args: args[0].index_add(0, *args[1:]))(base, index, values),
        base.index_add(0, index, values),
    )


def test_an_index_out_of_range_raises_as_in_eager_mode(device):
    take = torch.compile(lambda table, index: table[index] * 2)
    table = torch.randn(5, 16, device=device)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension with size 5"):
        take(table, torch.tensor([0, 7], device=device)).cpu()
    good = torch.tensor([-1, 2], device=device)
    close(take(table, good), table[good] * 2)


def test_a_0d_host_tensor_among_device_tensors(device):
    function = torch.compile(lambda x, scale: x * scale + scale)
    x = torch.randn(20, device=device)
    for scale in (torch.tensor(2.5), torch.tensor(3.5)):
        close(function(x, scale), x * scale + scale)


def test_a_wrapper_in_cpp_is_refused(device):
    with torch._inductor.config.patch(cpp_wrapper=True), pytest.raises(Exception, match="no wrapper in C\\+\\+"):
        torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device=device))


SCRIPT = """
    import torch
    from torch._dynamo.utils import counters
    def model(x, y):
        return torch.nn.functional.layer_norm(x, x.shape[-1:]).softmax(0) + (x * y).sum(1, keepdim=True), x.amax(1)
    x, y = torch.randn(40, 70, device="opencl"), torch.randn(70, device="opencl")
    torch.testing.assert_close(torch.compile(model)(x, y), model(x, y), rtol=1e-5, atol=1e-5)
    print("hits", counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"])
    print("compiled", torch.ops.torch_opencl.kernel_cache_info())
"""


def test_kernels_for_gpus(tmp_path):
    done = run_python(SCRIPT, TORCH_OPENCL_DEVICE_CLASS="gpu", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_a_second_process_loads_the_kernels_of_the_first(tmp_path):
    for expected in ("hits 0 0", "hits 1 1"):
        done = run_python(SCRIPT, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        if expected == "hits 0 0":
            assert expected in done.stdout
    assert "hits 0 0" not in done.stdout


@pytest.mark.slow
def test_another_device_class_does_not_get_the_kernels_of_the_first(tmp_path):
    for kind in ("cpu", "gpu"):
        done = run_python(SCRIPT, TORCH_OPENCL_DEVICE_CLASS=kind, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "hits 0 0" in done.stdout


@pytest.mark.slow
def test_two_devices_have_separate_kernels():
    done = run_python(
        """
        import torch
        function = torch.compile(lambda x: (x.sin() + 1).sum(1))
        for index in (1, 0):
            x = torch.randn(8, 40, device=f"opencl:{index}")
            result = function(x)
            assert result.device.index == index
            torch.testing.assert_close(result, (x.sin() + 1).sum(1))
        """,
        **two_devices(),
    )
    assert done.returncode == 0, done.stderr


def test_kernels_with_more_buffers_than_devices_take_are_divided(device):
    tensors = [torch.randn(20, device=device) for _ in range(150)]
    function = lambda tensors: [tensor.sin() + 1 for tensor in tensors]  # noqa: E731 compiled and not
    close(torch.compile(function)(tensors), function(tensors))
    total = lambda tensors: sum(tensor.sin() for tensor in tensors)  # noqa: E731 as above
    close(torch.compile(total)(tensors), total(tensors), rtol=1e-4, atol=1e-4)


def test_importing_torch_imports_nothing_of_the_compiler():
    done = run_python("""
        import sys, torch
        assert torch.opencl.is_available()
        print([name for name in sys.modules if name.startswith(("torch._inductor", "torch._dynamo", "sympy"))])
    """)
    assert done.stdout.strip() == "[]", done.stdout
