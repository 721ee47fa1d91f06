"""Matrix decompositions and functions based on them; device_class_linalg_cases.py tests the kernels for GPUs."""

from collections.abc import Callable

import pytest
import torch
from float64 import computed
from op_table import covers
from releases import RELEASE, release

# Composite functions of rows, or functions whose rows no OpInfo names.
COMPOSED = {
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a @ a.mH),
    "svdvals": torch.linalg.svdvals,
    "cond": torch.linalg.cond,
    "inverse": torch.inverse,
    "matrix_rank": torch.linalg.matrix_rank,
    "pinv": torch.linalg.pinv,
    "pinv of a hermitian matrix": lambda a: torch.linalg.pinv(a @ a.mH, hermitian=True),
    "nuclear norm": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "logdet": lambda a: torch.logdet(a @ a.mH).real,
    "orgqr": lambda a: torch.orgqr(*torch.geqrf(a)),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a, transpose=True),
    "ldl": lambda a: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a @ a.mH), a),
    "lu": lambda a: torch.cat(torch.linalg.lu(a)),
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a, adjoint=True),
    "lstsq": lambda a: torch.linalg.lstsq(a, a[..., :2]).solution,
    "solve from the right": lambda a: torch.linalg.solve(a, a.mT, left=False),
    "tensorinv": lambda a: torch.linalg.tensorinv(a.reshape(*a.shape, 1), ind=1) if a.dim() == 2 else a,
    "matrix_exp": torch.matrix_exp,
    "cholesky_inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a @ a.mH)),
    "cholesky_solve": lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a @ a.mH)),
}
if release("2.14") > RELEASE:  # removed there
    COMPOSED["cholesky"] = lambda a: torch.cholesky(a @ a.mH, upper=True)


def well_conditioned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=dtype) + shape[-1] * torch.eye(shape[-1], dtype=dtype)


@pytest.mark.parametrize("name", COMPOSED)
def test_without_a_fallback_and_as_on_the_cpu(device, name):
    torch.opencl.reset_fallbacks()
    for dtype in computed((torch.float32, torch.float64, torch.complex64)):
        for shape in ((5, 5), (2, 3, 4, 4)):
            a = well_conditioned(*shape, dtype=dtype)
            actual = COMPOSED[name](a.to(device))
            torch.testing.assert_close(actual.cpu(), COMPOSED[name](a), rtol=1e-4, atol=1e-5)
    assert torch.opencl.fallbacks() == {}


def pairs(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable]:
    """Calls with two matrices."""
    pivots = torch.tensor([1, 2, 3], dtype=torch.int32)
    return {
        "solve": lambda: torch.linalg.solve(a, b),
        "solve_triangular": lambda: torch.linalg.solve_triangular(a, b, upper=True),
        "triangular_solve": lambda: torch.triangular_solve(b, a),
        "cholesky_solve": lambda: torch.cholesky_solve(b, a),
        "lu_solve": lambda: torch.linalg.lu_solve(a, pivots.to(a.device), b),
        "ldl_solve": lambda: torch.linalg.ldl_solve(a, pivots.to(a.device), b),
        "lstsq": lambda: torch.linalg.lstsq(a, b),
        "ormqr": lambda: torch.ormqr(a, a[0], b),
        "householder_product": lambda: torch.linalg.householder_product(a, b[0]),
    }


@pytest.mark.parametrize("name", pairs(torch.eye(3), torch.eye(3)))
def test_matrices_on_two_devices_are_refused(device, name):
    a, b = torch.eye(3), torch.eye(3)
    for call in (pairs(a.to(device), b)[name], pairs(a, b.to(device))[name]):
        with pytest.raises(RuntimeError, match=r"on the same device, but found .*(opencl.*cpu|cpu.*opencl)"):
            call()


def broken(device: torch.device | str) -> list[Callable]:
    """Calls that the CPU refuses because of the values or shapes of their matrices."""
    singular = torch.tensor([[1.0, 2], [2, 4]], device=device)
    zero, ragged = torch.zeros(3, 2, 2, device=device), torch.ones(2, 3, device=device)
    nan = torch.full((3, 3), torch.nan, device=device)
    linalg = torch.linalg
    on_values = [
        lambda: linalg.inv(singular),
        lambda: linalg.inv(zero),
        lambda: linalg.solve(singular, singular),
        lambda: linalg.solve(zero, zero),
        lambda: linalg.solve_ex(singular, singular, check_errors=True),
        lambda: linalg.lu_factor(singular),
        lambda: linalg.lu_factor_ex(zero, check_errors=True),
        lambda: linalg.cholesky(singular),
        lambda: linalg.cholesky(-zero - 1, upper=True),
        lambda: linalg.cholesky(nan),
        lambda: torch.cholesky(zero),
        lambda: torch.cholesky_inverse(zero),
        lambda: linalg.eigh(nan),
        lambda: linalg.eigvalsh(nan),
        lambda: linalg.eig(nan),
        lambda: linalg.svd(nan),
        lambda: linalg.ldl_factor(zero),
    ]
    on_shapes = [
        lambda f=f: f(ragged)
        for f in (linalg.inv, linalg.det, linalg.slogdet, linalg.cholesky, linalg.eigh, linalg.eig, linalg.matrix_exp)
    ]
    return [
        *on_values,
        *on_shapes,
        lambda: linalg.inv(singular.half()),
        lambda: linalg.inv(singular.int()),
        lambda: linalg.solve(singular, ragged.T),
        lambda: linalg.solve_triangular(singular, singular.double(), upper=True),
        lambda: linalg.qr(singular, mode="some"),
        lambda: linalg.eigh(singular, UPLO="X"),
        lambda: linalg.lstsq(singular, singular, driver="none"),
        lambda: linalg.lu(singular, pivot=False),
        lambda: torch.lu_unpack(singular, singular),
        lambda: torch.ormqr(singular, singular, singular),
        lambda: linalg.householder_product(singular, singular),
    ]


@pytest.mark.parametrize("case", range(len(broken("cpu"))))
def test_errors_are_those_of_the_cpu(device, case):
    try:
        broken("cpu")[case]()
    except (RuntimeError, ValueError) as error:
        expected = error
    else:
        pytest.skip("the CPU takes it")
    with pytest.raises(type(expected)) as actual:
        broken(device)[case]()
    assert type(actual.value) is type(expected)
    assert str(actual.value).splitlines()[0] == str(expected).splitlines()[0]
    assert torch.ones(2, device=device).sum().item() == 2


def test_eigenvalues_of_nan_are_refused_although_the_cpu_crashes(device):
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eigvals(torch.full((3, 3), torch.nan, device=device))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0), (2, 0, 3), (3, 0)])
def test_empty_matrices_and_empty_batches(device, shape):
    a = torch.empty(shape)
    calls = [torch.linalg.svd, torch.linalg.svdvals, torch.linalg.qr, torch.linalg.pinv, torch.linalg.lu_factor]
    if shape[-1] == shape[-2]:
        square = [torch.linalg.inv, torch.linalg.det, torch.linalg.slogdet, torch.linalg.eigh, torch.linalg.eigvals]
        calls += [*square, torch.linalg.cholesky, torch.matrix_exp, lambda a: torch.linalg.solve(a, a)]
    for call in calls:
        expected, actual = call(a), call(a.to(device))
        if isinstance(expected, torch.Tensor):
            expected, actual = (expected,), (actual,)
        for theirs, ours in zip(expected, actual, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)


@covers("_compute_linear_combination")
def test_linear_combinations_of_tensors(device):
    for dtype in computed((torch.float32, torch.float64, torch.complex64)):
        terms, coefficients = torch.randn(5, 2, 3, dtype=dtype), torch.randn(4, 5, dtype=dtype)
        expected = torch._compute_linear_combination(terms, coefficients)
        actual = torch._compute_linear_combination(terms.to(device), coefficients.to(device))
        torch.testing.assert_close(actual.cpu(), expected)
        # ATen accumulates into the output.
        out = torch.zeros(4, 2, 3, dtype=dtype, device=device)
        torch.ops.aten._compute_linear_combination.out(terms.to(device), coefficients.to(device), out=out)
        torch.testing.assert_close(out.cpu(), expected)
