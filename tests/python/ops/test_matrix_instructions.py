"""Matmuls and convolutions by emulated matrix instructions: odd sizes, layouts, and the check before their use."""

import json
from textwrap import dedent

import pytest
import torch
from processes import output_of

# A slice of calls for every constant of the kernel but the order, and all orders.
CALLS = """
    import json
    import torch
    torch.manual_seed(0)

    def check(expected, found, tolerance):
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < tolerance, error

    def operand(rows, columns, dtype, transposed, *batch):
        if transposed:
            return torch.randn(*batch, columns, rows).to(dtype).mT
        return torch.randn(*batch, rows, columns).to(dtype)

    def product(rows, columns, k, dtype, order=(0, 0), batch=()):
        a, b = operand(rows, k, dtype, order[0], *batch), operand(k, columns, dtype, order[1], *batch)
        check(a.double() @ b.double(), a.to("opencl") @ b.to("opencl"), TOLERANCE[dtype])

    TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3}
    for order in ((0, 0), (0, 1), (1, 0), (1, 1)):
        product(72, 88, 104, torch.float16, order)  # all chunks are aligned
    product(130, 137, 104, torch.float16, (0, 1))  # the large block; columns end in a chunk
    product(33, 47, 101, torch.bfloat16)  # rows of B and of A are not aligned
    product(24, 40, 1032, torch.float16)  # sums in parts of k
    product(40, 24, 72, torch.float16, batch=(3,))
    # Rows that overlap, and batches one element apart: chunks are not at multiples of their size.
    given, weight = torch.randn(3000).half(), torch.randn(72, 40).half()
    for sizes, strides in (((130, 72), (1, 1)), ((3, 40, 72), (1, 72, 1))):
        found = given.to("opencl").as_strided(sizes, strides) @ weight.to("opencl")
        check(given.as_strided(sizes, strides).double() @ weight.double(), found, 1e-3)
    x, weight = torch.randn(24, 72).half(), torch.randn(40, 72).half()
    bias = torch.randn(40).half()
    device = [t.to("opencl") for t in (x, weight, bias)]
    expected = x.double() @ weight.double().t() + bias.double()
    check(expected, torch.nn.functional.linear(*device), 1e-3)
    check(expected.relu(), torch._addmm_activation(device[2], device[0], device[1].t()), 1e-3)
    expected = 0.5 * x.double() @ weight.double().t() + 2 * bias.double()
    check(expected, torch.addmm(device[2], device[0], device[1].t(), beta=2, alpha=0.5), 1e-3)
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


def run(choice: str, code: str = CALLS) -> dict:
    """Run code with kernels for GPUs and a choice of matrix instructions; return what it prints last."""
    variables = {"TORCH_OPENCL_DEVICE_CLASS": "gpu", "TORCH_OPENCL_MATRIX": choice, "TORCH_OPENCL_CACHE_DIR": ""}
    return json.loads(output_of(code, **variables).splitlines()[-1])


# Emulations take more local memory than some GPUs have.
on_cpus = pytest.mark.skipif(
    torch.opencl.get_device_properties().type != "cpu", reason="emulations are tested on CPU devices"
)


@on_cpus
@pytest.mark.parametrize(
    "kind",
    [
        *("mma", "dpas16", "mfma", "dot"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("wmma", "wmma12", "dpas8")),
    ],
)
def test_results_by_matrix_instructions(kind):
    report = run(f"emulated:{kind}")
    assert report["kinds"]["float16"] == kind
    assert report["emulated"]
    # "dot" is not for bfloat16.
    assert report["used"] >= (6 if kind == "dot" else 7)
    assert report["refused"] == 0


@on_cpus
def test_wrong_instructions_are_not_used():
    code = f"""
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        exec({dedent(CALLS)!r})
    assert any("(mma) computes wrong results" in str(each.message) for each in caught), caught
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
    """
    report = run("emulated:mma:wrong", code)
    assert report["used"] == 0
    assert report["refused"] >= 7


def test_instructions_of_the_device_are_used_unless_they_are_off():
    assert run("off") == {"kinds": {}, "emulated": False, "used": 0, "refused": 0}
    report = run("auto")
    assert report["refused"] == 0
    assert (report["used"] > 0) == ("float16" in report["kinds"])


INT8_CALLS = """
    import json
    import torch
    torch.manual_seed(0)
    # Whole chunks; the large block; rows that are not at multiples of 16 bytes; several parts of k, and sums
    # of more than 24 bits.
    for rows, columns, k in ((40, 72, 96), (130, 136, 64), (33, 48, 70), (24, 40, 8192)):
        a, b = (torch.randint(-128, 128, (size, k), dtype=torch.int8) for size in (rows, columns))
        a[0], b[0] = -128, -128
        found = torch._int_mm(a.to("opencl"), b.to("opencl").t()).cpu()
        assert torch.equal(found, (a.long() @ b.long().t()).int()), (rows, columns, k)
    # No results, empty sums, and views at odd offsets with odd strides.
    for rows, columns, k in ((0, 40, 64), (40, 40, 0)):
        found = torch._int_mm(*(torch.ones(s, dtype=torch.int8, device="opencl") for s in ((rows, k), (k, columns))))
        assert found.shape == (rows, columns) and not found.any()
    a, b = (torch.randint(-128, 128, (40, 67), dtype=torch.int8) for _ in range(2))
    found = torch._int_mm(a.to("opencl")[:, 1:65], b.to("opencl")[:, 3:67].t()).cpu()
    assert torch.equal(found, (a[:, 1:65].long() @ b[:, 3:67].long().t()).int())
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
@pytest.mark.parametrize(
    "kind", ["mma", "dot", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("dpas16", "dpas8"))]
)
def test_matmuls_of_int8_are_exact(kind):
    report = run(f"emulated:{kind}", INT8_CALLS)
    assert report["used"] >= 2
    assert report["refused"] == 0


# Of both operands, one at least has columns along k, or rows of an odd number of bytes.
INT8_ORDERS = """
    import json
    import torch
    torch.manual_seed(0)
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((40, TERMS), (TERMS, 72)))
    in_columns = [matrix.t().contiguous().to("opencl").t() for matrix in (a, b)]
    for x, y in ((a.to("opencl"), b.to("opencl")), (in_columns[0], in_columns[1]), (in_columns[0], b.to("opencl"))):
        assert torch.equal(torch._int_mm(x, y).cpu(), (a.long() @ b.long()).int())
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
@pytest.mark.parametrize(("kind", "terms"), [("mma", 71), ("dot", 96)])
def test_int8_matmuls_in_other_orders(kind, terms):
    report = run(f"emulated:{kind}", INT8_ORDERS.replace("TERMS", str(terms)))
    assert report["used"] >= 1
    assert report["refused"] == 0


def test_int8_by_instructions_of_the_device():
    report = run("auto", INT8_CALLS)
    assert report["refused"] == 0
    assert (report["used"] > 0) == ("int8" in report["kinds"])


FLOAT32_CALLS = """
    import json
    import torch
    torch.manual_seed(0)

    def error(rows, columns, k, *batch, a_along_k=True, b_along_k=True):
        a = torch.randn(*batch, rows, k) if a_along_k else torch.randn(*batch, k, rows).mT
        b = torch.randn(*batch, columns, k) if b_along_k else torch.randn(*batch, k, columns).mT
        exact = a.double() @ b.double().mT
        found = a.to("opencl") @ b.to("opencl").mT
        return ((found.cpu().double() - exact).abs().max() / exact.abs().max()).item()

    def solution_error():
        a, b = torch.randn(160, 160).tril() + 40 * torch.eye(160), torch.randn(160, 160)
        exact = torch.cholesky_solve(b.double(), a.double())
        found = torch.cholesky_solve(b.to("opencl"), a.to("opencl"))
        return ((found.cpu().double() - exact).abs().max() / exact.abs().max()).item()

    def convolution_error():
        x, weight = torch.randn(2, 32, 9, 9), torch.randn(48, 32, 1, 1)
        exact = torch.nn.functional.conv2d(x.double(), weight.double())
        found = torch.nn.functional.conv2d(x.to("opencl"), weight.to("opencl"))
        return ((found.cpu().double() - exact).abs().max() / exact.abs().max()).item()

    # The large block, on up to 4 compute units; rows that are not at multiples of 16 bytes; sums in parts of k, in a
    # batch.
    SHAPES = [(132, 140, 52), (33, 47, 101), (24, 40, 1032, 2)]
    report = {"exact": [error(*shape) for shape in SHAPES]}
    torch.set_float32_matmul_precision("high")
    report |= {"rounded": [error(*shape) for shape in SHAPES]}
    report["rounded"] += [error(*shape, a_along_k=False, b_along_k=False) for shape in SHAPES]
    report["rounded"].append(error(*SHAPES[0], b_along_k=False))
    report |= {"kept": [convolution_error(), solution_error()]}
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    report["rounded"].append(error(*SHAPES[0]))
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    report["exact"].append(error(*SHAPES[0]))
    report |= {"tf32": torch.opencl.is_tf32_supported(), **torch.backends.opencl.matrix_instructions()}
    print(json.dumps(report))
"""


@on_cpus
def test_float32_matmuls_are_rounded_to_tf32_only_if_pytorch_allows_it():
    report = run("emulated:mma", FLOAT32_CALLS)
    assert report["tf32"]
    assert report["used"] >= 5
    assert report["refused"] == 0
    assert max(report["exact"]) < 1e-6
    assert max(report["kept"]) < 1e-6
    # TensorFloat-32 has 10 bits of the significand.
    assert min(report["rounded"]) > 2e-5
    assert max(report["rounded"]) < 1e-3


def test_a_wrong_choice_is_an_error():
    code = """
    import json, torch
    x = torch.ones(32, 32, dtype=torch.half, device="opencl")
    try:
        x @ x
    except RuntimeError as error:
        print(json.dumps({"message": str(error)}))
    """
    message = run("emulated:sse", code)["message"]
    assert "TORCH_OPENCL_MATRIX=emulated:sse: expected off, auto or emulated:KIND, with one of mma, wmma" in message


CONVOLUTIONS = """
    import json
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)

    def check(expected, found):
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < 1e-3, error

    def compare(channels, out_channels, kernel, stride, padding, dilation, groups, format):
        x = torch.randn(2, channels, 9, 11).half()
        weight = torch.randn(out_channels, channels // groups, *kernel).half() / 8
        bias = torch.randn(out_channels).half()
        settings = stride, padding, dilation, groups
        inputs = [x.double().requires_grad_(), weight.double().requires_grad_()]
        expected = F.conv2d(*inputs, bias.double(), *settings)
        scale = torch.randn_like(expected).half()
        gradients = torch.autograd.grad(expected, inputs, scale.double())
        inputs = [t.to("opencl").contiguous(memory_format=format).requires_grad_() for t in (x, weight)]
        found = F.conv2d(*inputs, bias.to("opencl"), *settings)
        assert found.is_contiguous(memory_format=format)
        check(expected.detach(), found.detach())
        scale = scale.to("opencl").contiguous(memory_format=format)
        for theirs, ours in zip(gradients, torch.autograd.grad(found, inputs, scale)):
            check(theirs, ours)
        weight = torch.randn(channels, out_channels // groups, *kernel).half() / 8
        settings = stride, padding, 0, groups, dilation
        inputs = [x.to("opencl").contiguous(memory_format=format), weight.to("opencl"), bias.to("opencl")]
        expected = F.conv_transpose2d(x.double(), weight.double(), bias.double(), *settings)
        check(expected, F.conv_transpose2d(*inputs, *settings))

    cases = (
        (24, 32, (3, 3), 1, 1, 1, 1),
        (16, 24, (3, 5), 2, (2, 1), 2, 1),
        (24, 32, (3, 2), (2, 3), 1, 1, 1),  # strides longer than the kernel leave zeros in gradients
        (32, 48, (3, 3), 1, 1, 1, 2),
        (64, 32, (1, 1), 1, 0, 1, 1),
        (32, 48, (1, 1), 2, 0, 1, 1),
        (24, 32, (3, 3), 3, 0, 2, 1),  # gradients as convolutions with negative padding
    )
    for case in cases[FIRST:LAST]:
        for format in (torch.channels_last, torch.contiguous_format):
            compare(*case, format)
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        ("mma", 0, 1),
        ("dot", 2, 3),
        *(pytest.param(kind, 0, 7, marks=pytest.mark.slow) for kind in ("mma", "dpas16", "dot")),
    ],
)
def test_convolutions_by_matrix_instructions(kind, first, last):
    code = CONVOLUTIONS.replace("FIRST", str(first)).replace("LAST", str(last))
    report = run(f"emulated:{kind}", code)
    # Images as either operand, and gradients of weights.
    assert report["used"] >= 3
    assert report["refused"] == 0


IMAGES = """
    import json
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 32, 24, 24), torch.randn(40, 32, 1, 1) / 8, torch.randn(40)
    inputs = [tensor.half().to("opencl").requires_grad_() for tensor in (x, weight, bias)]
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in inputs]
    expected, scale = F.conv2d(*exact), torch.randn(2, 40, 24, 24).half()
    gradients = torch.autograd.grad(expected, exact, scale.double())
    for _ in range(2):
        before = torch.opencl.launches()
        found = F.conv2d(*inputs)
        launches = torch.opencl.launches() - before
    # Images and the weight are not copied.
    assert launches == 1, launches
    assert torch.backends.opencl.matrix_instructions()["used"] >= 1
    pairs = [(expected, found), *zip(gradients, torch.autograd.grad(found, inputs, scale.to("opencl")))]
    other = weight.half().transpose(0, 1).contiguous()
    transposed = F.conv_transpose2d(inputs[0], other.to("opencl"), inputs[2])
    pairs.append((F.conv_transpose2d(exact[0], other.double(), exact[2]), transposed))
    # A part of larger images, and a weight that is a part of a larger one.
    wide = torch.cat([inputs[0], inputs[0]], -1)[..., :24], torch.cat([inputs[1], inputs[1]], -1)[..., :1]
    pairs.append((expected, F.conv2d(*wide, inputs[2])))
    last = scale.to("opencl").contiguous(memory_format=torch.channels_last)
    pairs += zip(gradients, torch.autograd.grad(F.conv2d(*inputs), inputs, last))
    for theirs, ours in pairs:
        assert (ours.cpu().double() - theirs).abs().max() < 1e-3 * theirs.abs().max()
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
def test_convolutions_of_one_kernel_element_read_images_in_place():
    assert run("emulated:mma", IMAGES)["used"] >= 3


VOLUMES = """
    import json
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    x, weight = torch.randn(2, 16, 4, 5, 6).half(), torch.randn(16, 16, 2, 3, 3).half() / 8
    settings = None, (2, 1, 1), 1, (1, 2, 1)
    inputs = [x.double().requires_grad_(), weight.double().requires_grad_()]
    expected = F.conv3d(*inputs, *settings)
    scale = torch.randn_like(expected).half()
    gradients = torch.autograd.grad(expected, inputs, scale.double())
    def move(tensor):
        return tensor.to("opencl").contiguous(memory_format=torch.channels_last_3d)
    inputs = [move(tensor).requires_grad_() for tensor in (x, weight)]
    found = F.conv3d(*inputs, *settings)
    results = (found, *torch.autograd.grad(found, inputs, move(scale)))
    for theirs, ours in zip((expected, *gradients), results, strict=True):
        assert (ours.detach().cpu().double() - theirs.detach()).abs().max() < 1e-3 * theirs.abs().max()
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
def test_convolutions_of_volumes_by_matrix_instructions():
    report = run("emulated:mma", VOLUMES)
    # Images as an operand, and transposed for the gradient of the weight.
    assert report["used"] >= 2
    assert report["refused"] == 0


FUSED = """
    import json
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    x, weight, factor = torch.randn(130, 72).half(), torch.randn(72, 136).half(), torch.randn(130, 136).half()
    expected = F.silu(x.double() @ weight.double()) * factor.double()
    function = torch.compile(lambda x, weight, factor: F.silu(x @ weight) * factor)
    found = function(*(t.to("opencl") for t in (x, weight, factor))).cpu().double()
    assert (found - expected).abs().max() / expected.abs().max() < 1e-3
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
def test_fused_epilogues_follow_matrix_instructions():
    report = run("emulated:mma", FUSED)
    assert report["used"] == 1
    assert report["refused"] == 0
