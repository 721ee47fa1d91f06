"""torch.compile: element-wise operations after a matmul are fused into its kernel, in both device classes."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from epilogue_checks import close, compiled
from processes import run_python
from torch import nn
from torch._inductor.utils import run_and_get_code

for_cpus = pytest.mark.skipif(
    torch.opencl.get_device_properties().device_class == "gpu", reason="this is the other class"
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Make CPU devices fuse, too: whether fusion is faster there does not affect correctness."""
    from torch_opencl.inductor.graph import epilogues

    monkeypatch.setattr(epilogues, "gains", lambda device: True)
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def result_and_more(x, w, y, b, c):
    z = x @ w
    return z, F.gelu(z + b), z + y


# x [rows, k], w [k, columns], y [rows, columns], b [columns], c [rows, 1]
CHAINS = {
    "bias and GELU": lambda x, w, y, b, c: F.gelu(x @ w + b),
    "GELU by tanh": lambda x, w, y, b, c: F.gelu(x @ w, approximate="tanh"),
    "SiLU and a gate": lambda x, w, y, b, c: F.silu(x @ w) * y,
    "a residual": lambda x, w, y, b, c: torch.addmm(b, x, w) * 0.5 + y,
    "alpha and beta": lambda x, w, y, b, c: torch.addmm(b, x, w, beta=0.5, alpha=-2).clamp(-1, 2) + c,
    "rows and columns": lambda x, w, y, b, c: (x @ w) * c + b,
    "a dtype of 16 bits": lambda x, w, y, b, c: ((x @ w).relu() + y).half(),
    "masks and integers": lambda x, w, y, b, c: torch.where(y > 0, x @ w, -1.0).int(),
    "another order": lambda x, w, y, b, c: (x @ w).t() * 2 + y.t(),
    "positions": lambda x, w, y, b, c: (x @ w).masked_fill(torch.arange(b.shape[0], device=b.device) > 20, 0.0),
    "several results, and the matmul's": result_and_more,
}
# One row, one column, few rows and many columns, splits of k with partial sums, partial tiles.
SIZES = [(1, 64, 100), (70, 20, 1), (3, 40, 700), (8, 5000, 16), (130, 200, 260)]


def operands(device, rows, k, columns, dtype=torch.float32):
    shapes = ((rows, k), (k, columns), (rows, columns), (columns,), (rows, 1))
    return [
        (torch.randn(*shape, device=device) / (k**0.5 if i == 0 else 1)).to(dtype) for i, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("name", CHAINS)
def test_chains_after_a_matmul_are_fused(device, name):
    args = operands(device, 33, 17, 50)
    close(compiled(CHAINS[name], *args), CHAINS[name](*args))


@pytest.mark.parametrize("sizes", SIZES)
def test_every_kind_of_matmul_has_epilogues(device, sizes):
    function = CHAINS["SiLU and a gate"]
    args = operands(device, *sizes)
    close(compiled(function, *args), function(*args))


@pytest.mark.parametrize("layout", ["weights", "batches", "batches with a bias"])
def test_layouts_and_batches(device, layout):
    x, w, y = (torch.randn(3, 40, 24, device=device) for _ in range(3))
    functions = {
        "weights": lambda x, w, y: F.gelu(F.linear(x[0], w[0])) * 2,
        "batches": lambda x, w, y: (x @ w.transpose(1, 2) * 0.125).sigmoid(),
        "batches with a bias": lambda x, w, y: torch.baddbmm(y @ w.mT, x, w.mT, alpha=0.5).relu() + 1,
    }
    args = (x, w, y)
    close(compiled(functions[layout], *args), functions[layout](*args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_are_rounded_once(device, dtype):
    args = operands(device, 65, 33, 70, dtype)
    function = CHAINS["SiLU and a gate"]
    exact = function(*(arg.double().cpu() for arg in args)).to(dtype)
    close(compiled(function, *args).cpu(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


def test_one_kernel_serves_all_sizes(device):
    function = torch.compile(CHAINS["a residual"], dynamic=True)
    for sizes in ((33, 17, 50), (64, 48, 96), (70, 20, 35)):
        args = operands(device, *sizes)
        close(function(*args), CHAINS["a residual"](*args))


def test_a_result_may_be_read_and_added_to(device):
    x, w = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    function = lambda x, w: x + (x @ w) * 0.1  # noqa: E731 compiled and not
    close(compiled(function, x, w), function(x, w))


def test_partly_read_results_are_not_fused(device):
    x, w, y = (torch.randn(40, 40, device=device) for _ in range(3))
    function = lambda x, w, y: (x @ w)[:, ::2] * y[:, 1::2]  # noqa: E731 as above
    close(compiled(function, x, w, y, fused=0, launches=1), function(x, w, y))
    close(compiled(lambda x, w: x @ w, x, w, fused=0), x @ w)


def test_too_many_buffers_are_not_fused(device):
    x, w, *others = (torch.randn(20, 20, device=device) for _ in range(12))
    function = lambda x, w, *others: (x @ w + sum(others)).relu()  # noqa: E731 as above
    result, _ = run_and_get_code(torch.compile(function), x, w, *others)
    close(result, function(x, w, *others))


def test_indices_after_a_matmul_are_checked(device):
    x, w, table = (torch.randn(16, 16, device=device) for _ in range(3))
    index = torch.arange(16, device=device)
    function = lambda x, w, table, index: (x @ w).relu() + table[index]  # noqa: E731 as above
    close(compiled(function, x, w, table, index), function(x, w, table, index))
    with pytest.raises(IndexError):
        torch.compile(function)(x, w, table, index + 1)
        torch.opencl.synchronize()


def test_empty_matmuls(device):
    x, w, b = torch.randn(0, 8, device=device), torch.randn(8, 5, device=device), torch.randn(5, device=device)
    assert torch.compile(lambda x, w, b: F.gelu(x @ w + b))(x, w, b).shape == (0, 5)
    sums = torch.compile(lambda x, w, b: F.gelu(x @ w + b))(x.t()[:0].t(), w[:0], b)
    assert sums.shape == (0, 5)


def test_gradients_of_layers(device):
    def layer():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24), nn.ReLU()).to(device)

    eager, model = layer(), layer()
    fast = torch.compile(model)
    x = torch.randn(50, 24, device=device)
    (eager(x) ** 2).sum().backward()
    (fast(x) ** 2).sum().backward()
    for actual, expected in zip(model.parameters(), eager.parameters(), strict=True):
        close(actual.grad, expected.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_few_rows_are_multiplied_by_weights_of_8_bits_as_they_are_stored(device, rows, dtype):
    x = torch.randn(1, rows, 64, device=device, dtype=dtype)
    weight = torch.randint(-127, 128, (70, 64), dtype=torch.int8, device=device)
    scales, bias = (torch.rand(70, device=device, dtype=dtype) / 100 for _ in range(2))
    function = lambda x, weight, scales, bias: F.linear(x, weight.to(x.dtype)) * scales + bias  # noqa: E731 as above
    result, (code,) = run_and_get_code(torch.compile(function), x, weight, scales, bias)
    assert ("_weight_int8pack_mm" in code) == (rows < 16), code
    limits = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 2e-2}
    close(result, function(x, weight, scales, bias), **limits)


@pytest.mark.slow
@for_cpus
def test_epilogues_of_the_kernels_for_gpus():
    kinds = ("-k", "chains or every_kind or indices or gradients")
    done = run_python(f"-m pytest -q -x {Path(__file__)}", *kinds, TORCH_OPENCL_DEVICE_CLASS="gpu")
    assert done.returncode == 0, done.stdout[-4000:]


@for_cpus
@pytest.mark.slow
def test_epilogues_of_convolutions_on_gpus():
    path = Path(__file__).with_name("test_compile_epilogues_convolutions.py")
    done = run_python(f"-m pytest -q -x {path}", TORCH_OPENCL_DEVICE_CLASS="gpu")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout


@for_cpus
def test_convolutions_are_not_fused_on_cpu_devices(device, monkeypatch):
    monkeypatch.undo()
    x, w = torch.randn(2, 8, 7, 6, device=device), torch.randn(12, 8, 3, 3, device=device)
    function = lambda x, w: F.conv2d(x, w).relu()  # noqa: E731 as above
    close(compiled(function, x, w, fused=0, launches=1), function(x, w))
