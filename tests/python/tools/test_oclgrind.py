"""Kernels under Oclgrind: no data races between work-items, no out-of-bounds access, and right results."""

import json
import re
from pathlib import Path

import pytest
from processes import output_of

# The folders where Debian and Oclgrind's own build install its ICD.
DRIVERS = [
    Path(folder) / "liboclgrind-rt-icd.so"
    for folder in ("/usr/lib/oclgrind", "/usr/local/lib", "/usr/lib", "/usr/lib64")
]

# Calls of odd sizes for kernels that use local memory, store parts of vectors, or depend on bit patterns.
SAMPLE = """
    import functools
    import os
    import torch
    import torch.nn.functional as F
    from torch.utils._pytree import tree_leaves, tree_map
    from torch_opencl.quantized import QuantizedWeight

    assert "Oclgrind" in torch.opencl.get_device_name(), torch.opencl.get_device_name()
    torch.manual_seed(0)

    def gradients(function):
        def call(*inputs):
            inputs = [t.detach().requires_grad_() for t in inputs]
            result = function(*inputs)
            weights = torch.linspace(1, 2, result.numel()).view(result.shape).to(result)
            return result, torch.autograd.grad(result, inputs, weights)
        return call

    def scores(loss):
        return lambda x, y: gradients(lambda x: loss(x, y))(x)

    def drawn(x):
        kept, bits = F.dropout(x, 0.5), torch.bernoulli(torch.full_like(x, 0.5))
        integers = torch.randint(5, x.shape, device=x.device)
        # Zeros, if all draws are possible values.
        return kept * (kept - 2 * x), bits * (bits - 1), integers.clamp(0, 4) - integers, torch.randn_like(x) * 0

    def int8_mm(x, weight, scales):
        return torch._weight_int8pack_mm(x, weight.to(torch.int8), scales)

    def int4_linear(x, codes, scales):
        if x.is_cpu:
            weight = torch.stack([codes & 15, codes >> 4], -1).flatten(1) - 8.0
            return x @ (weight * scales.repeat_interleave(32, 1)).t()
        return QuantizedWeight(codes, "affine4", (37, 96), scales, group_size=32, bias=8).linear(x)

    r, csr, f64, c64 = torch.randn, torch.sparse_csr_tensor, torch.float64, torch.complex64
    sdpa = F.scaled_dot_product_attention
    grouped = functools.partial(sdpa, enable_gqa=True)
    codes = torch.arange(37 * 48, dtype=torch.uint8).view(37, 48)
    # Sizes at which kernels for CPUs transform tiles; under Oclgrind kernels for GPUs would take minutes for them.
    many = 17 if os.environ["TORCH_OPENCL_DEVICE_CLASS"] == "cpu" else 3
    # Calls whose kernels are built for each dtype of their inputs.
    TYPED = {
        "attention": (gradients(sdpa), r(1, 2, 5, 6), r(1, 2, 9, 6), r(1, 2, 9, 7)),
        "attention with a mask": (gradients(sdpa), r(1, 1, 11, 5), r(1, 1, 19, 5), r(1, 1, 19, 5), r(11, 19)),
        "attention_query": (grouped, r(1, 4, 1, 9), r(1, 2, 70, 9), r(1, 2, 70, 5)),
        "matmul": (torch.matmul, r(9, 17), r(17, 5)),
        "matmul of many blocks": (torch.matmul, r(67, 37), r(37, 35)),
        "matmul of a long sum": (torch.matmul, r(2, 141), r(141, 3)),
        "softmax": (gradients(lambda x: F.softmax(x, -1)), r(3, 33)),
        "softmax of long rows": (gradients(lambda x: F.softmax(x, -1)), r(2, 2001)),
        "softmax of columns": (gradients(lambda x: F.softmax(x, 0)), r(37, 5)),
        "sum": (torch.sum, r(601)),
        "sum of columns": (lambda x: x.sum(0), r(301, 5)),
        "argmax": (torch.argmax, r(301)),
        "argmax of columns": (lambda x: x.argmax(0), r(301, 5)),
        "var": (torch.var, r(301)),
        "var of columns": (lambda x: x.var(0), r(301, 5)),
        "batch_norm": (gradients(lambda x: F.batch_norm(x, None, None, training=True)), r(3, 5, 7, 3)),
        "batch_norm of columns": (gradients(lambda x: F.batch_norm(x, None, None, training=True)), r(71, 5)),
        "layer_norm": (gradients(lambda x: F.layer_norm(x, (33,))), r(3, 33)),
        "cumsum": (lambda x: x.cumsum(-1), r(2, 301)),
        "cummax": (lambda x: x.cummax(-1), r(2, 301)),
        "sort": (lambda x: x.sort(stable=True), r(71)),
        "convolution": (gradients(F.conv2d), r(1, 3, 7, 5), r(2, 3, 3, 3)),
        "transpose": (lambda x: x.t().contiguous(), r(17, 33)),
        "transpose vectors": (lambda x: x.t().contiguous(), r(20, 36)),
        "transpose large tiles": (lambda x: x.t().contiguous(), r(67, 129)),
        "transpose large tiles of vectors": (lambda x: x.t().contiguous(), r(68, 132)),
        "foreach_norm": (lambda x, y: torch._foreach_norm([x, y]), r(37), r(301)),
        "nonzero": (lambda x: F.relu(x).nonzero(), r(301)),
    }
    # Calls for kernels of one type, and for kernels that only certain sizes reach.
    CALLS = {
        "gelu": (gradients(F.gelu), r(37)),
        "exp": (torch.exp, r(37) * 20),
        "pow": (torch.pow, r(37).abs(), torch.tensor(2.5)),
        "erfinv": (torch.erfinv, torch.linspace(-0.9, 0.9, 19)),
        "double": (torch.digamma, torch.linspace(0.1, 9, 19, dtype=f64)),
        "complex": (torch.sqrt, r(9, dtype=c64)),
        "argmax in parts": (torch.argmax, r(70001)),
        "cumsum in parts": (lambda x: x.cumsum(-1), r(9001, dtype=f64)),
        "sort in parts": (lambda x: x.sort(stable=True), r(2501)),
        "convolution of channels": (gradients(F.conv2d), r(1, many, 9, 11) / 9, r(many + 2, many, 3, 3) / 9),
        "convolution with strides": (gradients(lambda x, w: F.conv2d(x, w, None, 2, 1)), r(1, 3, 9, 7), r(5, 3, 3, 3)),
        "interpolation": (lambda x: F.interpolate(x, (7, 19), mode="bilinear", antialias=True), r(1, 3, 13, 37)),
        "max_pool": (gradients(lambda x: F.max_pool2d(x, 2)), r(1, 2, 6, 6)),
        "grid_sample": (lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False), r(1, 1, 4, 4), r(1, 3, 3, 2)),
        "index_add": (lambda x, s: x.index_add(0, torch.tensor([1, 0, 1], device=x.device), s), r(2, 5), r(3, 5)),
        "add transposed": (lambda a, b: a.t() + b, r(17, 33), r(33, 17)),
        "solve": (torch.linalg.solve, r(41, 41) + 9 * torch.eye(41), r(41, 3)),
        "cholesky": (lambda x: torch.linalg.cholesky(x @ x.t() + torch.eye(37).to(x)), r(37, 37)),
        "qr": (torch.linalg.qr, r(41, 9)),
        "fake_quantize": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7), r(37)),
        "hash": (lambda x: torch.hash_tensor(x).view(torch.int64), r(37)),
        "sparse_mm": (lambda i, x: torch.sparse.mm(csr(i, i[:5], x[:5, 0]), x, "amax"), torch.arange(6), r(5, 19)),
        "csr matmul": (lambda s, i, v, x: csr(s, i, v, (2, 301)) @ x,
                       torch.tensor([0, 301, 302]), torch.tensor([*range(301), 7]), r(302), r(301, 3)),
        "nll_loss": (scores(F.cross_entropy), r(301, 5), torch.arange(301) % 5),
        "multi_margin_loss": (scores(F.multi_margin_loss), r(7, 37), torch.arange(7)),
        "multilabel_margin_loss": (scores(F.multilabel_margin_loss), r(3, 37), torch.arange(111).view(3, 37) % 37),
        "int8_mm": (int8_mm, r(3, 96), torch.arange(37 * 96).view(37, 96) % 11, r(37).abs() / 99),
        "int4 weight": (int4_linear, r(3, 96) / 9, codes, r(37, 3)),
        "int4 weight of many rows": (int4_linear, r(17, 96) / 9, codes, r(37, 3)),
        "draws": (drawn, r(301)),
        "complex matmul": (torch.matmul, r(9, 17, dtype=c64), r(17, 5, dtype=c64)),
        "complex sum": (torch.sum, r(301, dtype=c64)),
        "complex sum of columns": (lambda x: x.sum(0), r(301, 5, dtype=c64)),
        "complex cumsum": (lambda x: x.cumsum(-1), r(301, dtype=c64)),
        "complex convolution": (F.conv2d, r(1, 3, 7, 5, dtype=c64), r(2, 3, 3, 3, dtype=c64)),
        "complex solve": (torch.linalg.solve, r(41, 41, dtype=c64) + 9 * torch.eye(41), r(41, 3, dtype=c64)),
        "complex qr": (torch.linalg.qr, r(9, 5, dtype=c64)),
    }
    # Sums in 16 bits are rounded at other places than the CPU's.
    TOLERANCES = {torch.float16: {"rtol": 4e-3, "atol": 1e-2}, torch.bfloat16: {"rtol": 3e-2, "atol": 6e-2}}
    # Both 16-bit types are computed in float32.
    narrow = torch.float16 if many > 3 else torch.bfloat16
    for dtype in (torch.float32, f64, narrow):
        for name, (function, *inputs) in TYPED.items():
            CALLS[f"{name} in {dtype}"] = (function, *(t.to(dtype) for t in inputs))
    for name, (function, *inputs) in CALLS.items():
        expected = tree_leaves(function(*inputs))
        actual = tree_leaves(function(*[t.to("opencl") for t in inputs]))
        for mine, theirs in zip(actual, expected, strict=True):
            tolerances = TOLERANCES.get(theirs.dtype, {})
            torch.testing.assert_close(mine.cpu(), theirs, msg=lambda text: f"{name}: {text}", **tolerances)
    print(len(CALLS))
"""

# Kernels that torch.compile generates for the functions and models of its tests, forward and backward.
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


# Kernels with local memory that the calls above do not run in either device class, and why.
NOT_CALLED = {
    "conv_weight": "only for gradients of weights of many channels: minutes",
    "fft_block": "needs llvm.experimental.noalias.scope.decl, which Oclgrind 21.10 lacks",
    "gemm_dot": "has no local block, but calls a function with the name of one that has",
    "attention_tile_backward": "test_tiles_have_no_races_and_stay_within_bounds runs it",
    "attention_tile": "test_tiles_have_no_races_and_stay_within_bounds runs it",
    "gemm_tile": "test_tiles_have_no_races_and_stay_within_bounds runs it",
    "gemm_local_dot": "the shortest sum that uses it takes a minute",
    "var_mean_merge": "needs llvm.experimental.noalias.scope.decl, which Oclgrind 21.10 lacks",
}
# Kernels with local memory that only one device class has, or uses for these sizes.
ONLY_ON = {
    "cpu": {"gemm", "gemm_add_rows", "resample_rows", "winograd", "winograd_tiles"},
    "gpu": {
        *("arg_merge", "cholesky_block", "csr_matmul_group", "gemm_local", "lu_panel", "qr_panel", "scan_group_apply"),
        *("scan_group_extreme", "scan_group_totals", "solve_block", "sort_group_blocks", "transpose_tiles"),
    },
}


def kernels_with_local_blocks() -> set[str]:
    """Kernels that declare or take local memory, or call a function or a macro that does."""
    sources = Path(__file__).parents[3] / "rust"
    text = "\n".join(path.read_text() for path in sorted(sources.rglob("*.cl")))
    text = re.sub(r"//[^\n]*", "", text).replace("\\\n", " ")
    shared = {"__local", *re.findall(r"^#define (\w+)[^\n]*\b__local\b", text, re.M)}
    shared.update(re.findall(r"^[\w ]*?\b(\w+)\([^(){};]*\b__local\b[^(){};]*\) \{", text, re.M))
    kernels = re.finditer(r"^__kernel\b[^;{]*?\bvoid (\w+)\(.*?^}", text, re.M | re.S)
    return {kernel[1] for kernel in kernels if shared.intersection(re.findall(r"\w+", kernel[0]))}


@pytest.mark.slow
@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_kernels_have_no_races_and_stay_within_bounds(device_class: str, tmp_path: Path) -> None:
    printed = run_clean(SAMPLE, device_class, tmp_path, OCLGRIND_INST_COUNTS="1")
    called = set(re.findall(r"Instructions executed for kernel '(\w+)'", printed))
    other = "cpu" if device_class == "gpu" else "gpu"
    left_out = kernels_with_local_blocks() - called - set(NOT_CALLED) - ONLY_ON[other]
    assert not left_out, f"no call above runs {sorted(left_out)}"


def test_kernels_that_are_left_out_exist() -> None:
    assert kernels_with_local_blocks().issuperset({*NOT_CALLED, *ONLY_ON["cpu"], *ONLY_ON["gpu"]})


# The first calls also run the check of results, with blocks at all edges.
TILES = """
    import json
    import torch
    torch.manual_seed(0)
    a, b = torch.randn(24, 40).half(), torch.randn(40, 24).half()
    torch.testing.assert_close((a.to("opencl") @ b.to("opencl")).cpu(), a @ b, rtol=4e-3, atol=1e-2)
    given = [torch.randn(1, 1, n, 8).half().requires_grad_() for n in (16, 20, 20)]
    device = [x.detach().to("opencl").requires_grad_() for x in given]
    for each in (given, device):
        torch.nn.functional.scaled_dot_product_attention(*each).square().sum().backward()
    for mine, expected in zip(device, given):
        torch.testing.assert_close(mine.grad.cpu(), expected.grad, rtol=1e-2, atol=1e-2)
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mma", "mfma"])  # with copies that continue, and by registers
def test_tiles_have_no_races_and_stay_within_bounds(kind: str, tmp_path: Path) -> None:
    # An emulation takes more local memory than Oclgrind has by default.
    variables = {"TORCH_OPENCL_MATRIX": f"emulated:{kind}", "OCLGRIND_LOCAL_MEM_SIZE": str(128 << 10)}
    report = json.loads(run_clean(TILES, "gpu", tmp_path, **variables).splitlines()[-1])
    assert report["used"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2])  # half of them, which scatter
def test_generated_kernels_for_gpus_have_no_races_and_stay_within_bounds(part: int, tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    code = GENERATED.format(folders=[str(tests), str(tests / "runtime")], part=part)
    assert int(run_clean(code, "gpu", tmp_path).splitlines()[-1]) > 5


def run_clean(code: str, device_class: str, tmp_path: Path, **environment: str) -> str:
    """Run code under Oclgrind, which must report nothing.

    Args:
        code: the program.
        device_class: the class of the kernels.
        tmp_path: an empty folder.
        environment: additional variables.

    Returns:
        Its output.
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
        # With optimisation, clang calls llvm.abs and other functions that Oclgrind 21.10 does not implement.
        OCLGRIND_BUILD_OPTIONS="-cl-opt-disable",
        TORCH_OPENCL_DEVICE_CLASS=device_class,
        TORCH_OPENCL_CACHE_DIR="",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
        **environment,
    )
    found = log.read_text() if log.exists() else ""
    assert not found, found[:2000]
    return printed
