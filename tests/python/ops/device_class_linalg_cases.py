"""Like device_class_cases.py, for linear algebra: one block, several, batches, and nearly singular matrices."""

import pytest
import torch
from device_class_cases import check
from float64 import computed
from releases import RELEASE, release

DTYPES = computed((torch.float32, torch.float64, torch.complex64, torch.complex128))
# Part of a block of 32, one block, and several with a remainder, which take two levels of halving.
SIZES = [1, 5, 32, 100]
linalg = torch.linalg


def matrix(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(shape[-1])
    return torch.randn(shape, dtype=dtype)


def definite(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A hermitian positive definite matrix."""
    a = matrix(*shape, dtype=dtype) / shape[-1] ** 0.5
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)


def same(actual: torch.Tensor, expected: torch.Tensor, times: float = 1) -> None:
    """Compare relative to the largest element."""
    eps = torch.finfo(expected.dtype).eps
    scale = 1 + (expected.abs().max().item() if expected.numel() else 0)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=times * 100 * eps * scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_lu(n: int, dtype: torch.dtype):
    for shape in ((n, n), (n, n + 40), (n + 40, n), (2, 3, n, n)):
        a = matrix(*shape, dtype=dtype)
        factors, pivots = linalg.lu_factor(a.to("opencl"))
        expected, expected_pivots = linalg.lu_factor(a)
        assert torch.equal(pivots.cpu(), expected_pivots)
        same(factors, expected, n)
        p, lower, upper = linalg.lu(a.to("opencl"))
        same(p @ lower @ upper, a, n)
    # Rows of a matrix that needs no pivoting are not moved.
    a = definite(2, n, n, dtype=dtype)
    p, lower, upper = linalg.lu(a.to("opencl"), pivot=False)
    assert p.numel() == 0
    same(lower @ upper, a, n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_solutions_inverses_and_determinants(n: int, dtype: torch.dtype):
    a = definite(2, n, n, dtype=dtype) + matrix(2, n, n, dtype=dtype) / (4 * n)
    b = matrix(2, n, 37, dtype=dtype)
    there, right = a.to("opencl"), b.to("opencl")
    same(linalg.solve(there, right), linalg.solve(a, b), n)
    same(linalg.solve(there, right[0, :, 0]), linalg.solve(a, b[0, :, 0]), n)
    same(linalg.solve(there, right.mT, left=False), linalg.solve(a, b.mT, left=False), n)
    same(linalg.inv(there), linalg.inv(a), n)
    same(linalg.det(there), linalg.det(a), n)
    for ours, theirs in zip(linalg.slogdet(there), linalg.slogdet(a), strict=True):
        same(ours, theirs, n)
    factors, pivots = linalg.lu_factor(there)
    for left in (True, False):
        for adjoint in (True, False):
            expected = linalg.solve(a.mH if adjoint else a, b if left else b.mT, left=left)
            solution = linalg.lu_solve(factors, pivots, right if left else right.mT, left=left, adjoint=adjoint)
            same(solution, expected, n)
    # One factorisation for a batch.
    same(linalg.lu_solve(factors[:1], pivots[:1], right), linalg.solve(a[:1], b), n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_triangles(n: int, dtype: torch.dtype):
    a = matrix(2, n, n, dtype=dtype) / n + 2 * torch.eye(n, dtype=dtype)
    b = matrix(2, n, 5, dtype=dtype)
    for upper in (True, False):
        triangle = a.triu() if upper else a.tril()
        for unitriangular in (True, False):
            for layout in (lambda t: t, lambda t: t.mT.contiguous().mT, lambda t: t.mH.contiguous().mH):
                for left in (True, False):
                    right = b if left else b.mT
                    options = {"upper": upper, "left": left, "unitriangular": unitriangular}
                    expected = linalg.solve_triangular(triangle, right, **options)
                    # Elements outside the triangle are not read.
                    same(linalg.solve_triangular(layout(a.to("opencl")), right.to("opencl"), **options), expected, n)
            for transpose in (True, False):
                options = {"upper": upper, "transpose": transpose, "unitriangular": unitriangular}
                actual = torch.triangular_solve(b.to("opencl"), a.to("opencl"), **options)
                same(actual.solution, torch.triangular_solve(b, a, **options).solution, n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n: int, dtype: torch.dtype):
    a, b = definite(2, n, n, dtype=dtype), matrix(2, n, 5, dtype=dtype)
    for upper in (True, False):
        factor = linalg.cholesky(a, upper=upper)
        there = linalg.cholesky(a.to("opencl"), upper=upper)
        same(there, factor, n)
        if release("2.14") > RELEASE:  # removed there
            same(torch.cholesky(a.to("opencl"), upper=upper), factor, n)
        same(torch.cholesky_solve(b.to("opencl"), there, upper=upper), torch.cholesky_solve(b, factor, upper=upper), n)
        same(torch.cholesky_inverse(there, upper=upper), torch.cholesky_inverse(factor, upper=upper), n)
    # The first matrix is not positive definite from some row on; the second one is.
    for row in {0, n // 2, n - 1}:
        broken = a.clone()
        broken[0, row, row] = -1
        for upper in (True, False):
            infos = linalg.cholesky_ex(broken.to("opencl"), upper=upper).info
            assert torch.equal(infos.cpu(), linalg.cholesky_ex(broken, upper=upper).info)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_qr(n: int, dtype: torch.dtype):
    for shape in ((n, n), (n, n + 40), (n + 40, n), (2, 3, n, n)):
        a = matrix(*shape, dtype=dtype)
        if not dtype.is_complex:
            for ours, theirs in zip(torch.geqrf(a.to("opencl")), torch.geqrf(a), strict=True):
                same(ours, theirs, n)
        for mode in ("reduced", "complete", "r"):
            for ours, theirs in zip(linalg.qr(a.to("opencl"), mode), linalg.qr(a, mode), strict=True):
                # The last reflection of a square complex matrix only changes a phase, and MKL may omit it.
                same(*((ours.abs(), theirs.abs()) if dtype.is_complex else (ours, theirs)), n)
        q, r = linalg.qr(a.to("opencl"))
        same(q @ r, a, 1)
        same(q.mH @ q, torch.eye(q.shape[-1], dtype=dtype).expand(*q.shape[:-2], -1, -1), 1)
    # Fewer reflectors than columns, zeros, and values whose squares overflow or underflow.
    a = matrix(n, n, dtype=dtype)
    reflectors, tau = torch.geqrf(a)
    expected = linalg.householder_product(reflectors, tau[: n // 2])
    same(linalg.householder_product(reflectors.to("opencl"), tau[: n // 2].to("opencl")), expected, n)
    for extreme in (torch.zeros_like(a), a * 1e30, a * 1e-30):
        for ours, theirs in zip(linalg.qr(extreme.to("opencl")), linalg.qr(extreme), strict=True):
            scale = theirs.abs().max().clamp(min=1e-35)
            pair = (ours.cpu() / scale, theirs / scale)
            same(*((pair[0].abs(), pair[1].abs()) if dtype.is_complex else pair), n)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_exponentials_of_matrices(n: int):
    for dtype in DTYPES:
        for scale in (1e-9, 1e-3, 0.1, 1, 10):
            a = matrix(3, n, n, dtype=dtype) * scale / n**0.5
            same(torch.matrix_exp(a.to("opencl")), torch.matrix_exp(a), 100)
        # A batch of matrices that need different degrees.
        a = matrix(4, n, n, dtype=dtype) * torch.tensor([1e-9, 1e-2, 1, 5]).to(dtype)[:, None, None]
        same(torch.matrix_exp(a.to("opencl")), torch.matrix_exp(a), 100)


def test_gradients():
    for n in (4, 40):
        a, b = definite(2, n, n, dtype=torch.float32), matrix(2, n, 3, dtype=torch.float32)
        check(linalg.solve, a, b, times=20)
        check(lambda a, b: linalg.solve_triangular(a, b, upper=False), a, b, times=20)
        check(linalg.inv, a, times=20)
        check(lambda a: linalg.slogdet(a).logabsdet, a, times=20)
        check(lambda a: linalg.det(a / 2), a, times=50)
        check(lambda a: linalg.cholesky((a + a.mT) / 2), a, times=20)
        check(lambda a: torch.cat(linalg.qr(a)), a, times=50)
        check(lambda a: torch.cat(linalg.lu(a)[1:]), a, times=50)
        check(lambda a, b: torch.cholesky_solve(b, linalg.cholesky((a + a.mT) / 2)), a, b, times=20)
        check(lambda a: torch.matrix_exp(a / 4), a, times=50)


@pytest.mark.parametrize("n", [2, 40])
def test_ill_conditioned_matrices(n: int):
    """Residuals stay small even if solutions are inaccurate."""
    for dtype in DTYPES:
        eps = torch.finfo(dtype).eps
        decay = torch.logspace(0, -6, n, dtype=torch.float64).to(dtype)
        q = linalg.qr(matrix(n, n, dtype=dtype)).Q
        a, b = q * decay @ q.mH, matrix(n, 2, dtype=dtype)
        x = linalg.solve(a.to("opencl"), b.to("opencl")).cpu()
        assert (a @ x - b).abs().max() < 100 * n * eps * x.abs().max()
        factor, info = linalg.cholesky_ex((a + a.mH).to("opencl") / 2)
        if info.item() == 0:
            same(factor @ factor.mH, (a + a.mH) / 2, 10)


@pytest.mark.parametrize("n", [2, 32, 70])
def test_singular_matrices(n: int):
    for dtype in DTYPES:
        a = definite(3, n, n, dtype=dtype)
        column = n // 2
        a[1, :, column] = 0
        infos = linalg.lu_factor_ex(a.to("opencl")).info
        assert infos.tolist() == linalg.lu_factor_ex(a).info.tolist() == [0, column + 1, 0]
        assert linalg.det(a.to("opencl"))[1].item() == 0
        for call in (linalg.inv, linalg.lu_factor, lambda a: linalg.solve(a, a)):
            with pytest.raises(RuntimeError) as expected:
                call(a)
            with pytest.raises(RuntimeError) as actual:
                call(a.to("opencl"))
            assert actual.type is expected.type
            assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
        with pytest.raises(linalg.LinAlgError, match=r"Batch element 1.* not positive-definite"):
            linalg.cholesky((a - 3 * torch.eye(n) * (torch.arange(3) == 1)[:, None, None]).to("opencl"))
    nan = torch.full((n, n), torch.nan)
    assert linalg.inv_ex(nan.to("opencl")).inverse.isnan().all()
    with pytest.raises(linalg.LinAlgError):
        linalg.cholesky(nan.to("opencl"))


def test_empty_matrices_and_batches():
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0), (2, 0, 3), (3, 0)):
        a = torch.empty(shape)
        calls = [linalg.qr, linalg.lu_factor, linalg.lu, torch.geqrf]
        if shape[-1] == shape[-2]:
            calls += [linalg.inv, linalg.det, linalg.slogdet, linalg.cholesky, torch.matrix_exp]
            calls += [lambda a: linalg.solve(a, a), lambda a: linalg.solve_triangular(a, a, upper=True)]
        for call in calls:
            expected, actual = call(a), call(a.to("opencl"))
            if isinstance(expected, torch.Tensor):
                expected, actual = (expected,), (actual,)
            for theirs, ours in zip(expected, actual, strict=True):
                torch.testing.assert_close(ours.cpu(), theirs)


def test_into_given_outputs():
    """Outputs with ATen's layout, with another layout, and to be resized."""
    a = definite(2, 40, 40, dtype=torch.float32)
    for make in (lambda: torch.empty(2, 40, 40), lambda: torch.empty(2, 40, 80)[..., ::2], lambda: torch.empty(0)):
        out = make().to("opencl")
        linalg.inv(a.to("opencl"), out=out)
        same(out, linalg.inv(a), 40)
        out = make().to("opencl")
        linalg.cholesky(a.to("opencl"), out=out)
        same(out, linalg.cholesky(a), 40)
        out = make().to("opencl")
        linalg.solve_triangular(a.to("opencl"), a.to("opencl"), upper=True, out=out)
        same(out, linalg.solve_triangular(a.triu(), a, upper=True), 40)
