"""Kernels under Oclgrind: no data race between work-items, no access out of bounds, and right results."""

from pathlib import Path

import pytest
from processes import output_of

# Where Debian and Oclgrind's own build put its driver for the OpenCL loader.
DRIVERS = [
    Path(folder) / "liboclgrind-rt-icd.so"
    for folder in ("/usr/lib/oclgrind", "/usr/local/lib", "/usr/lib", "/usr/lib64")
]

# One call of each kind of kernel that shares local memory, stores parts of vectors, or counts on bits of numbers. Not
# interpolation: of it clang makes a call of llvm.abs, which Oclgrind 21.10 does not know.
SAMPLE = """
    import torch
    import torch.nn.functional as F
    from torch.utils._pytree import tree_leaves, tree_map

    assert "Oclgrind" in torch.opencl.get_device_name(), torch.opencl.get_device_name()
    torch.manual_seed(0)

    def gradients(function):
        def call(*inputs):
            inputs = [t.detach().requires_grad_() for t in inputs]
            result = function(*inputs)
            weights = torch.linspace(1, 2, result.numel()).view(result.shape).to(result)
            return result, torch.autograd.grad(result, inputs, weights)
        return call

    r, csr = torch.randn, torch.sparse_csr_tensor
    CALLS = {
        "attention": (gradients(F.scaled_dot_product_attention), r(1, 2, 5, 8), r(1, 2, 9, 8), r(1, 2, 9, 8)),
        "attention_query": (F.scaled_dot_product_attention, r(1, 2, 1, 8), r(1, 2, 9, 8), r(1, 2, 9, 8)),
        "matmul": (torch.matmul, r(9, 17), r(17, 5)),
        "gelu": (gradients(F.gelu), r(37)),
        "exp": (torch.exp, r(37) * 20),
        "pow": (torch.pow, r(37).abs(), torch.tensor(2.5)),
        "erfinv": (torch.erfinv, torch.linspace(-0.9, 0.9, 19)),
        "double": (torch.digamma, torch.linspace(0.1, 9, 19, dtype=torch.float64)),
        "complex": (torch.sqrt, r(9, dtype=torch.complex64)),
        "softmax": (gradients(lambda x: F.softmax(x, -1)), r(3, 33)),
        "softmax of columns": (gradients(lambda x: F.softmax(x, 0)), r(37, 5)),
        "sum": (torch.sum, r(600)),
        "sum of columns": (lambda x: x.sum(0), r(300, 5)),
        "argmax": (torch.argmax, r(300)),
        "argmax of columns": (lambda x: x.argmax(0), r(300, 5)),
        "var": (torch.var, r(300)),
        "var of columns": (lambda x: x.var(0), r(300, 5)),
        "batch_norm of columns": (gradients(lambda x: F.batch_norm(x, None, None, training=True)), r(70, 5)),
        "layer_norm": (gradients(lambda x: F.layer_norm(x, (33,))), r(3, 33)),
        "cumsum": (lambda x: x.cumsum(-1), r(2, 300)),
        "sort": (lambda x: x.sort(stable=True), r(70)),
        "convolution": (gradients(F.conv2d), r(1, 3, 6, 6), r(2, 3, 3, 3)),
        "max_pool": (gradients(lambda x: F.max_pool2d(x, 2)), r(1, 2, 6, 6)),
        "grid_sample": (lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False), r(1, 1, 4, 4), r(1, 3, 3, 2)),
        "index_add": (lambda x, s: x.index_add(0, torch.tensor([1, 0, 1], device=x.device), s), r(2, 5), r(3, 5)),
        "add transposed": (lambda a, b: a.t() + b, r(17, 33), r(33, 17)),
        "transpose": (lambda x: x.t().contiguous(), r(17, 33)),
        "solve": (torch.linalg.solve, r(40, 40) + 9 * torch.eye(40), r(40, 3)),
        "cholesky": (lambda x: torch.linalg.cholesky(x @ x.t() + torch.eye(9).to(x)), r(9, 9)),
        "qr": (torch.linalg.qr, r(40, 9)),
        "fake_quantize": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7), r(37)),
        "hash": (lambda x: torch.hash_tensor(x).view(torch.int64), r(37)),
        "sparse_mm": (lambda i, x: torch.sparse.mm(csr(i, i[:5], x[:5, 0]), x, "amax"), torch.arange(6), r(5, 19)),
    }
    for name, (function, *inputs) in CALLS.items():
        expected = tree_leaves(function(*inputs))
        actual = tree_leaves(function(*[t.to("opencl") for t in inputs]))
        for mine, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs, msg=lambda text: f"{name}: {text}")
    print(len(CALLS))
"""

# Kernels that torch.compile generates for the functions and the models of its tests, forward and backward.
GENERATED = """
    import sys
    sys.path += {folders!r}
    import torch
    from test_compile import FUNCTIONS, MODELS
    from torch.utils._pytree import tree_leaves

    assert "Oclgrind" in torch.opencl.get_device_name(), torch.opencl.get_device_name()
    torch.manual_seed(0)

    def check(name, actual, expected):
        for mine, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
            text = lambda text: f"{{name}}: {{text}}"
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-4, msg=text)

    names = sorted(FUNCTIONS)[{part}::4]
    for name in names:
        torch._dynamo.reset()
        x, y = torch.randn(5, 130), torch.randn(130)
        check(name, torch.compile(FUNCTIONS[name])(x.to("opencl"), y.to("opencl")), FUNCTIONS[name](x, y))
    for name in sorted(MODELS)[{part}::4]:
        torch._dynamo.reset()
        model, x = MODELS[name]()
        expected = model(x)
        expected.square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        model, x = model.to("opencl"), x.to("opencl")
        actual = torch.compile(model)(x)
        actual.square().mean().backward()
        check(name, [actual, *(parameter.grad for parameter in model.parameters())], [expected, *gradients])
        names.append(name)
    print(len(names))
"""


@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_kernels_have_no_races_and_stay_within_bounds(device_class: str, tmp_path: Path) -> None:
    assert run_clean(SAMPLE, device_class, tmp_path) > 20


@pytest.mark.parametrize("part", [1, 2])  # half of them, which scatter
def test_generated_kernels_for_gpus_have_no_races_and_stay_within_bounds(part: int, tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    code = GENERATED.format(folders=[str(tests), str(tests / "runtime")], part=part)
    assert run_clean(code, "gpu", tmp_path) > 5


def run_clean(code: str, device_class: str, tmp_path: Path) -> int:
    """Run code under Oclgrind, which may find nothing.

    Args:
        code: prints a number last.
        device_class: for which kernels are built.
        tmp_path: an empty folder.

    Returns:
        The number.
    """
    driver = next((path for path in DRIVERS if path.exists()), None)
    if driver is None:
        pytest.skip("Oclgrind is not installed (Debian: apt-get install oclgrind)")
    (tmp_path / "oclgrind.icd").write_text(f"{driver}\n")
    log = tmp_path / "log"
    printed = output_of(
        code,
        OCL_ICD_VENDORS=str(tmp_path),
        OCLGRIND_LOG=str(log),
        OCLGRIND_DATA_RACES="1",
        # Where clang optimises it makes calls of llvm.abs and others that Oclgrind 21.10 does not know.
        OCLGRIND_BUILD_OPTIONS="-cl-opt-disable",
        TORCH_OPENCL_DEVICE_CLASS=device_class,
        TORCH_OPENCL_CACHE_DIR="",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
    found = log.read_text() if log.exists() else ""
    assert not found, found[:2000]
    return int(printed.splitlines()[-1])
