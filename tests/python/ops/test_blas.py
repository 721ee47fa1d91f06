"""Matmuls by each available library, the choice between them, and its cache."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from op_samples import assert_near_exact
from processes import output_of, run_python

blas = torch.backends.opencl
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Stricter than torch.testing's defaults.
TOLERANCES = {torch.float64: {"rtol": 1e-10, "atol": 1e-10}}


def usable(library: str) -> bool:
    try:
        blas.preferred_blas_library(library)
    except RuntimeError:
        return False
    return True


@pytest.fixture(autouse=True)
def restored():
    before = blas.preferred_blas_library()
    yield
    blas.preferred_blas_library(before)


@pytest.fixture(params=["opencl", "host", "cublas"])
def library(request) -> str:
    """Each library that the device can use, selected."""
    if not usable(request.param):
        pytest.skip(f"{request.param} cannot be used on this device")
    return request.param


def check(result: torch.Tensor, expected: torch.Tensor, rounded: torch.Tensor | None = None) -> None:
    """Compare with a float64 matmul, and if `rounded` is given, with the CPU's result in the same dtype."""
    if rounded is not None and result.dtype not in TOLERANCES:
        assert_near_exact(result, rounded, expected)
        return
    torch.testing.assert_close(result.cpu(), expected.to(result.dtype), **TOLERANCES.get(result.dtype, {}))


def operands(dtype: torch.dtype, device: torch.device, *shapes: tuple[int, ...]):
    """Random tensors of the dtype on the device, and the same values in float64 on the host."""
    on_host = [torch.randn(shape).to(dtype) for shape in shapes]
    return [tensor.to(device) for tensor in on_host], [tensor.double() for tensor in on_host]


# --- right results


@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matmuls_that_end_in_an_activation(device, dtype, is_transposed, use_gelu):
    # Thin, small, split along k, in blocks with remaining columns, and with k = 0.
    for rows, k, columns in [(1, 17, 5), (20, 20, 20), (3, 8000, 40), (64, 200, 150), (5, 0, 6)]:
        (a, b, bias), (x, y, z) = operands(dtype, device, (rows, k), (columns, k), (columns,))
        b, y = (b.t(), y.t()) if is_transposed else (b.t().contiguous(), y.t())
        scale = {"beta": 0.5, "alpha": 0.1}
        activate = torch.nn.functional.gelu if use_gelu else torch.relu
        exact = torch.addmm(z, x, y, **scale)
        rounded = activate(torch.addmm(*(tensor.to(dtype) for tensor in (z, x, y)), **scale))
        check(torch._addmm_activation(bias, a, b, **scale, use_gelu=use_gelu), activate(exact), rounded)


def test_an_activation_keeps_nan(device):
    a, b, bias = torch.full((2, 3), torch.nan), torch.ones(3, 20), torch.zeros(20)
    for use_gelu in (False, True):
        result = torch._addmm_activation(bias.to(device), a.to(device), b.to(device), use_gelu=use_gelu)
        assert result.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 3), (70, 130, 90), (1, 300, 64), (257, 33, 1)])
def test_matmuls(library, device, dtype, sizes):
    rows, k, columns = sizes
    (a, b, c), (x, y, z) = operands(dtype, device, (rows, k), (k, columns), (rows, columns))
    rounded = [tensor.to(dtype) for tensor in (x, y, z)]
    for call in (
        lambda a, b, c: a @ b,
        lambda a, b, c: torch.addmm(c, a, b),
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=-2),
        lambda a, b, c: torch.addmm(c, a, b, beta=0, alpha=3),
        lambda a, b, c: torch.mv(a, b[:, 0]),
    ):
        check(call(a, b, c), call(x, y, z), call(*rounded))


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(library, device, dtype):
    (a, b, c), (x, y, z) = operands(dtype, device, (3, 20, 30), (3, 30, 40), (3, 20, 40))
    check(torch.bmm(a, b), x @ y)
    check(torch.baddbmm(c, a, b), torch.baddbmm(z, x, y))
    check(torch.baddbmm(c, a, b, beta=2, alpha=0.5), torch.baddbmm(z, x, y, beta=2, alpha=0.5))
    check(torch.matmul(a, b[0]), x @ y[0])
    check(torch.bmm(a[:1].expand(3, 20, 30), b), x[0] @ y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_and_strided_operands(library, device, dtype):
    (a, b, c), (x, y, z) = operands(dtype, device, (60, 50), (70, 60), (40, 120))
    check(a.t() @ b.t(), x.t() @ y.t())
    check(b @ a, y @ x)
    check(c[:, 10:70] @ a, z[:, 10:70] @ x)
    check(c[:, ::2] @ a, z[:, ::2] @ x)
    check(c[1::3, :60] @ b.t(), z[1::3, :60] @ y.t())
    (batch,), (same,) = operands(dtype, device, (8, 5, 16))
    check(batch.transpose(0, 1) @ batch.permute(1, 2, 0), same.transpose(0, 1) @ same.permute(1, 2, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_results(library, device, dtype):
    (a, b), (x, y) = operands(dtype, device, (20, 30), (30, 40))
    for around, target in [
        (torch.zeros(60, 60), lambda t: t[10:30, 5:45]),
        (torch.zeros(60, 60), lambda t: t.t()[10:30, 5:45]),
        (torch.zeros(40, 80), lambda t: t[::2, ::2]),
    ]:
        expected, there = around.double(), around.to(dtype).to(device)
        target(expected).copy_(x @ y)
        torch.mm(a, b, out=target(there))
        check(there, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_adding_in_place(library, device, dtype):
    (a, b, c), (x, y, z) = operands(dtype, device, (20, 30), (30, 40), (20, 40))
    check(c.addmm_(a, b), z.addmm_(x, y))
    z = c.cpu().double()
    check(c.addmm_(a, b, beta=0.5, alpha=2), z.addmm_(x, y, beta=0.5, alpha=2))
    z = c.cpu().double()
    check(c.unsqueeze(0).baddbmm_(a.unsqueeze(0), b.unsqueeze(0)), z.addmm_(x, y).unsqueeze(0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_forward_and_backward(library, device, dtype):
    (w, bias, i, g), (u, v, x, h) = operands(dtype, device, (24, 40), (24,), (6, 10, 40), (6, 10, 24))
    ours, theirs = ([t.requires_grad_() for t in tensors] for tensors in ([i, w, bias], [x, u, v]))
    result, expected = torch.nn.functional.linear(*ours), torch.nn.functional.linear(*theirs)
    check(result.detach(), expected.detach())
    result.backward(g)
    expected.backward(h)
    for mine, its in zip(ours, theirs, strict=True):
        check(mine.grad, its.grad)


def test_other_dtypes_and_empty_matmuls_go_to_our_kernels(library, device):
    integers = torch.arange(12, device=device).view(3, 4)
    assert (integers @ integers.t()).tolist() == (integers.cpu() @ integers.cpu().t()).tolist()
    numbers = torch.randn(3, 4, dtype=torch.complex64, device=device)
    torch.testing.assert_close((numbers @ numbers.mH).cpu(), numbers.cpu() @ numbers.cpu().mH)
    assert (torch.ones(2, 0, device=device) @ torch.ones(0, 3, device=device)).tolist() == [[0, 0, 0]] * 2
    assert (torch.ones(0, 4, device=device) @ torch.ones(4, 3, device=device)).shape == (0, 3)
    assert (
        torch.addmm(
            torch.ones(3, device=device), torch.ones(2, 0, device=device), torch.ones(0, 3, device=device)
        ).sum()
        == 6
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_matmuls_with_complex_alpha_and_beta(library, device, dtype):
    on_host = [torch.randn(sizes, dtype=dtype) for sizes in [(2, 20, 30), (2, 30, 40), (2, 20, 40)]]
    (a, b, c), (x, y, z) = [tensor.to(device) for tensor in on_host], on_host
    torch.testing.assert_close((a @ b).cpu(), x @ y)
    torch.testing.assert_close((a[0].conj() @ b[1]).cpu(), x[0].conj() @ y[1])
    scales = {"beta": 0.5 - 1j, "alpha": 2j}
    torch.testing.assert_close(torch.baddbmm(c, a, b, **scales).cpu(), torch.baddbmm(z, x, y, **scales))
    torch.testing.assert_close(c[0].addmm_(a[0], b[0], **scales).cpu(), z[0].addmm_(x[0], y[0], **scales))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
def test_the_host_needs_no_kernel(device, dtype):
    if not usable("host"):
        pytest.skip("the device does not share its memory with the host")
    a, c = torch.ones(2, 8, 8, dtype=dtype, device=device), torch.zeros(2, 8, 8, dtype=dtype, device=device)
    torch.opencl.synchronize()
    before = torch.opencl.launches()
    torch.bmm(a, a, out=c)
    torch.mm(a[0], a[1], out=c[0])
    torch.addmm(c[0], a[0], a[0], beta=3, alpha=2, out=c[1])
    assert torch.opencl.launches() == before
    assert c[:, 0, 0].tolist() == [8, 40]


def test_nan_in_a_bias_scaled_by_zero_is_ignored(library, device):
    c = torch.full((4, 4), float("nan"), device=device)
    ones = torch.ones(4, 4, device=device)
    assert torch.addmm(c, ones, ones, beta=0, alpha=2).tolist() == [[8.0] * 4] * 4


def test_work_before_and_after_is_in_order(library, device, side_stream):
    with torch.opencl.stream(side_stream):
        x = torch.zeros(300, 300, device=device)
        for step in range(20):
            x += 1
            y = (x @ x) / 300
            x = y - y + step + 1
        assert x.eq(20).all().item() and y.eq(400).all().item()


def test_autocast_of_the_host_does_not_reach_the_matmul(library, device):
    (a, b), (x, y) = operands(torch.float32, device, (50, 60), (60, 70))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = torch.empty(50, 70, device=device)
        torch.mm(a, b, out=result)
        check(result, x @ y)
        check(torch.addmm(result, a, b), 2 * (x @ y))


def test_no_operator_falls_back(library, device, no_fallback):
    torch.randn(40, 50, device=device) @ torch.randn(50, 60, device=device)


# --- the choice


def test_the_preference_is_returned_and_kept():
    assert blas.preferred_blas_library("opencl") == "opencl"
    assert blas.preferred_blas_library() == "opencl"
    assert torch.backends.opencl.preferred_blas_library("auto") == "auto"


def test_an_unknown_library_is_refused_with_those_that_exist():
    before = blas.preferred_blas_library()
    with pytest.raises(RuntimeError, match=r"no BLAS library 'mkl'.*'auto', 'opencl', 'host', 'cublas'"):
        blas.preferred_blas_library("mkl")
    assert blas.preferred_blas_library() == before


def test_an_unusable_library_is_refused_with_the_reason(device):
    if usable("cublas"):
        pytest.skip("cuBLAS can be used here")
    with pytest.raises(RuntimeError, match=r"'cublas' cannot be used on .*: .*Choose another one"):
        blas.preferred_blas_library("cublas")
    assert blas.preferred_blas_library() != "cublas"
    assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).sum().item() == 8


MATMUL = """
    import torch
    x = torch.eye(3, device="opencl")
    try:
        print((x @ x).sum().item(), torch.backends.opencl.preferred_blas_library())
    except RuntimeError as error:
        print(error)
    print((x + 1).sum().item())
"""


@pytest.mark.parametrize("name", ["auto", "opencl", "host"])
def test_the_environment_variable_sets_the_initial_library(name):
    if not usable(name):
        pytest.skip(f"{name} cannot be used on this device")
    assert output_of(MATMUL, TORCH_OPENCL_BLAS=name).splitlines() == [f"3.0 {name}", "12.0"]
    assert output_of(MATMUL, TORCH_OPENCL_BLAS=None).splitlines()[0] == "3.0 auto"


def test_a_variable_that_names_no_library_is_an_error_of_the_matmul_alone():
    message, sum_of_others = output_of(MATMUL, TORCH_OPENCL_BLAS="fast").splitlines()
    assert message.startswith("TORCH_OPENCL_BLAS=fast: expected one of 'auto', 'opencl', 'host', 'cublas'")
    assert sum_of_others == "12.0"
    code = "import torch; print(torch.backends.opencl.preferred_blas_library('opencl'))"
    assert output_of(code, TORCH_OPENCL_BLAS="fast") == "opencl"


def test_an_unusable_library_in_the_variable_is_an_error_of_the_matmul_alone():
    if usable("cublas"):
        pytest.skip("cuBLAS can be used here")
    message, sum_of_others = output_of(MATMUL, TORCH_OPENCL_BLAS="cublas").splitlines()
    assert "'cublas' cannot be used on" in message and sum_of_others == "12.0"


def test_without_a_device_the_reason_is_the_device():
    code = "import torch; torch.backends.opencl.preferred_blas_library('host')"
    done = run_python(code, TORCH_OPENCL_DEVICES="")
    assert done.returncode == 1 and "RuntimeError" in done.stderr
    assert (
        output_of(
            "import torch; print(torch.backends.opencl.preferred_blas_library('opencl'))", TORCH_OPENCL_DEVICES=""
        )
        == "opencl"
    )


# --- auto

CHOOSE = """
    import json, torch
    x = torch.arange(300.0, device="opencl").remainder(7).expand(300, 300).contiguous()
    expected = x.cpu() @ x.cpu()
    (torch.ones(100, 100, device="opencl") @ torch.ones(100, 100, device="opencl")).sum().item()
    assert torch.backends.opencl.blas_choices() == {}, "small matmuls are not measured"
    assert torch.equal((x @ x).cpu(), expected)
    first = torch.opencl.launches()
    assert torch.equal((x @ x).cpu(), expected)
    again = torch.opencl.launches() - first
    print(json.dumps([torch.backends.opencl.blas_choices(), first, again]))
"""


def choose(folder) -> tuple[dict[str, str], int, int]:
    """Choose in a new process; return choices, launches up to the first large matmul, and launches of the second."""
    return json.loads(output_of(CHOOSE, TORCH_OPENCL_CACHE_DIR=str(folder), TORCH_OPENCL_BLAS="auto"))


@pytest.fixture
def measures():
    """Skip the test if only one library is available."""
    if not usable("host"):
        pytest.skip("our own kernels are the only library here")


def test_auto_measures_once_and_remembers(measures, tmp_path):
    chosen, measured, again = choose(tmp_path)
    assert len(chosen) == 1
    ((name, library),) = chosen.items()
    assert name.startswith("torch.float32 1x256x256x256 on") and library in ("opencl", "host")
    assert again <= measured
    notes = list(tmp_path.glob("*.note"))
    assert len(notes) == 1 and notes[0].read_bytes().endswith(library.encode())
    recalled, launched, _ = choose(tmp_path)
    assert recalled == chosen and launched < measured, "the second process recalls"


@pytest.mark.parametrize(
    "damage", [lambda text: b"", lambda text: text[:-2], lambda text: text + b"?"], ids=["empty", "short", "long"]
)
def test_a_damaged_cache_entry_is_measured_again(measures, tmp_path, damage):
    choose(tmp_path)
    (note,) = tmp_path.glob("*.note")
    note.write_bytes(damage(note.read_bytes()))
    chosen, measured, _ = choose(tmp_path)
    assert len(chosen) == 1
    recalled, launched, _ = choose(tmp_path)
    assert recalled == chosen and launched < measured


def test_processes_may_choose_at_once(measures, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(choose, [tmp_path] * 3))
    assert all(len(chosen) == 1 for chosen, _, _ in answers)
    assert len(list(tmp_path.glob("*.note"))) == 1 and not list(tmp_path.glob("*.tmp"))
    recalled, launched, _ = choose(tmp_path)
    assert recalled in [chosen for chosen, _, _ in answers]
    assert launched < max(measured for _, measured, _ in answers)


@pytest.mark.slow
def test_without_a_folder_each_process_measures(measures, tmp_path):
    choose(tmp_path)
    _, launched, _ = choose(tmp_path)
    for _ in range(2):
        chosen, measured, _ = choose("")
        assert len(chosen) == 1 and measured > launched


def test_auto_does_not_change_operands_or_results(measures, device, tmp_path):
    code = f"""
        import sys, torch
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from op_samples import assert_near_exact
        torch.manual_seed(0)
        for dtype in (torch.float32, torch.bfloat16):
            a, b, c = (torch.randn(size).to(dtype) for size in ((2, 300, 260), (2, 260, 280), (2, 300, 280)))
            x, y, z = a.to("opencl"), b.to("opencl"), c.to("opencl")
            exact = a.double() @ b.double()
            for _ in range(2):
                c = z.cpu()
                assert_near_exact(torch.baddbmm(z, x, y), torch.baddbmm(c, a, b), c.double() + exact)
                assert_near_exact(
                    z.baddbmm_(x, y, beta=0.5), torch.baddbmm(c, a, b, beta=0.5), c.double() / 2 + exact
                )
            assert torch.equal(x.cpu(), a) and torch.equal(y.cpu(), b)
        print(len(torch.backends.opencl.blas_choices()))
    """
    assert output_of(code, TORCH_OPENCL_CACHE_DIR=str(tmp_path), TORCH_OPENCL_BLAS="auto") == "2"


def test_matmuls_of_two_dtypes_are_refused_as_on_the_cpu(device):
    a, b = torch.ones(1, 10, dtype=torch.int16, device=device), torch.ones(10, 20, device=device)
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype, but got: short int != float"):
        a @ b
    with pytest.raises(RuntimeError, match="expected scalar type Short but found Float"):
        torch.bmm(a[None], b[None])
