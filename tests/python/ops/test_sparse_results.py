"""Operators on sparse tensors for graph networks and masked attention: as on the CPU, without a fallback."""

import pytest
import torch
from float64 import computed
from op_table import FLOATING, covers
from test_sparse import LAYOUTS, leaf, numbers, on_device, repeated, same, wide

REDUCTIONS = ("sum", "mean", "amax", "amin")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
def test_matmul_with_a_reduction_and_gradients(
    device: torch.device, dtype: torch.dtype, reduce: str, index_dtype: torch.dtype
) -> None:
    matrix = numbers(9, 7, dtype=torch.float64)
    matrix[3] = 0
    dense, weight = torch.randn(7, 21, dtype=dtype), torch.randn(9, 21, dtype=dtype)

    def run(where: torch.device | str, dtype: torch.dtype) -> list[torch.Tensor]:
        csr = matrix.to(dtype).to_sparse_csr()
        csr = torch.sparse_csr_tensor(
            csr.crow_indices().to(index_dtype), csr.col_indices().to(index_dtype), csr.values(), csr.shape
        )
        a, b = leaf(csr, where), leaf(dense.to(dtype), where)
        result = torch.sparse.mm(a, b, reduce)
        (result * weight.to(where, dtype)).sum().backward()
        return [result.detach(), a.grad.values(), b.grad]

    with on_device():
        ours = run(device, dtype)
    for mine, expected in zip(ours, run("cpu", torch.float64 if dtype != torch.float64 else dtype), strict=True):
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(dtype)
        tolerances = {} if tolerance is None else {"rtol": tolerance, "atol": 10 * tolerance}
        torch.testing.assert_close(mine.cpu(), expected.to(dtype), **tolerances)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extremes_of_a_matmul_keep_nan_and_name_their_elements(device: torch.device, reduce: str) -> None:
    matrix = numbers(40, 30).to_sparse_csr()
    dense = torch.randint(-3, 4, (30, 9)).float()
    dense[4, 2], dense[5, 3] = float("nan"), float("inf")
    a, b = matrix.requires_grad_(), dense.requires_grad_()
    theirs = torch.ops.aten._sparse_mm_reduce_impl(a, b, reduce)
    with on_device():
        ours = torch.ops.aten._sparse_mm_reduce_impl(
            leaf(matrix.detach(), device), leaf(dense.detach(), device), reduce
        )
        inference = torch.ops.aten._sparse_mm_reduce_impl(matrix.detach().to(device), dense.detach().to(device), reduce)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.detach().cpu(), expected.detach(), equal_nan=True)
    torch.testing.assert_close(inference[0].cpu(), theirs[0].detach(), equal_nan=True)
    assert inference[1].numel() == 0


def test_matmul_with_a_reduction_of_empty_tensors(device: torch.device) -> None:
    for shape, columns in (((3, 4), 2), ((0, 4), 2), ((3, 4), 0)):
        matrix = torch.zeros(shape).to_sparse_csr()
        for reduce in REDUCTIONS:
            theirs = torch.sparse.mm(matrix, torch.ones(shape[1], columns), reduce)
            ours = torch.sparse.mm(matrix.to(device), torch.ones(shape[1], columns, device=device), reduce)
            torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda a, b: (a, b, "prod"), RuntimeError),
        (lambda a, b: (a, b, "median"), RuntimeError),
        (lambda a, b: (a, b.double(), "sum"), RuntimeError),
        (lambda a, b: (a, b[:2], "amax"), RuntimeError),
        (lambda a, b: (a, b[0], "mean"), RuntimeError),
        (lambda a, b: (a.to(torch.int64), b.to(torch.int64), "sum"), NotImplementedError),
        (lambda a, b: (a.to_sparse_csc(), b, "sum"), RuntimeError),
    ],
)
def test_matmul_with_a_reduction_refuses_arguments_as_the_cpu_does(device: torch.device, change, error) -> None:
    for where in ("cpu", device):
        a, b = torch.eye(3).to_sparse_csr().to(where), torch.ones(3, 2, device=where)
        with pytest.raises(error):
            torch.sparse.mm(*change(a, b))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dense_dim", [0, 1])
@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
def test_softmax_of_given_elements_and_gradients(
    device: torch.device, dtype: torch.dtype, dense_dim: int, dim: int
) -> None:
    tensor = repeated(4, 3, 5, dtype=dtype, nnz=30, dense_dim=dense_dim)
    weight = torch.randn(4, 3, 5, dtype=torch.float64)
    for function in (torch.sparse.softmax, torch.sparse.log_softmax):

        def run(where: torch.device | str, of: torch.Tensor, dim: int, function=function) -> list[torch.Tensor]:
            x = leaf(of, where)
            result = function(x, dim)
            result.to_dense().mul(weight.to(where, of.dtype)).sum().backward()
            return [result.detach(), x.grad]

        with on_device():
            ours = run(device, tensor, dim)
        # The CPU's gradients along a negative dimension are wrong.
        theirs = run("cpu", wide(tensor), dim % 3)
        for mine, expected in zip(ours, theirs, strict=True):
            # Gradients are computed from results that are rounded to 16 bits.
            tolerance = {torch.float16: 5e-3, torch.bfloat16: 4e-2}.get(dtype)
            same(mine, expected.to(dtype), **({} if tolerance is None else {"rtol": tolerance, "atol": tolerance}))


def test_softmax_of_one_sparse_dimension_and_of_no_elements(device: torch.device) -> None:
    for tensor in (repeated(7, nnz=9), torch.sparse_coo_tensor(torch.zeros(2, 0), torch.zeros(0), (2, 3))):
        for function in (torch.sparse.softmax, torch.sparse.log_softmax):
            same(function(tensor.to(device), 0), function(tensor, 0))
            with pytest.raises(IndexError):
                function(tensor.to(device), 3)
    with pytest.raises(NotImplementedError):
        torch.ops.aten._sparse_softmax(repeated(7, dtype=torch.int64).to(device), 0, False)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
def test_matmuls_with_sparse_results(device: torch.device, dtype: torch.dtype) -> None:
    mat1, mat2 = repeated(6, 5, dtype=dtype, nnz=8), torch.randint(-3, 4, (5, 4)).to(dtype)
    self = repeated(6, 4, dtype=dtype, nnz=5)
    with on_device():
        ours = torch.hspmm(mat1.to(device), mat2.to(device))
        out = torch.hspmm(
            mat1.to(device), mat2.to(device), out=torch.sparse_coo_tensor((2, 2), device=device, dtype=dtype)
        )
        added = torch.sspaddmm(self.to(device), mat1.to(device), mat2.to(device), beta=2, alpha=3)
    theirs = torch.hspmm(wide(mat1), wide(mat2))
    same(ours, theirs.to(dtype))
    same(out, theirs.to(dtype))
    assert torch.equal(ours._indices().cpu(), theirs._indices())
    same(added, torch.sspaddmm(wide(self), wide(mat1), wide(mat2), beta=2, alpha=3).to(dtype))


def test_matmuls_with_sparse_results_refuse_arguments_as_the_cpu_does(device: torch.device) -> None:
    for where in ("cpu", device):
        sparse, dense = repeated(2, 3, nnz=4).to(where), torch.ones(3, 2, device=where)
        square = torch.eye(2).to_sparse().to(where)
        for call in (
            lambda a, b: torch.hspmm(a, b[:2]),
            lambda a, b: torch.hspmm(a, b[0]),
            lambda a, b: torch.hspmm(a, a),
            lambda a, b: torch.hspmm(a, b.double()),
            lambda a, b, square=square: torch.sspaddmm(square, a, b[:2]),
            lambda a, b, square=square: torch.sspaddmm(square, a, a),
            lambda a, b, square=square: torch.sspaddmm(square, b, b),
            lambda a, b: torch.sspaddmm(a, a, b),
        ):
            with pytest.raises(RuntimeError):
                call(sparse, dense)


# With beta 0, which ignores the first tensor, and with fractions, which integers lose.
FACTORS = ((1, 2.0), (1, 2.5), (0, 2.5), (0.5, 1), (0.0, 1.0))


@pytest.mark.parametrize(("beta", "alpha"), FACTORS)
@pytest.mark.parametrize("layout", (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo), ids=str)
def test_factors_do_not_change_the_dtype(device: torch.device, layout: torch.layout, beta: float, alpha: float) -> None:
    dense, factors = numbers(4, 4, dtype=torch.int64), {"beta": beta, "alpha": alpha}
    sparse, strided = dense.to_sparse(layout=layout).to(device), dense.to(device)
    # The CPU refuses compressed matrices of integers.
    expected = torch.addmm(dense, dense, dense, **factors)
    calls = [(strided, sparse, strided)]
    if layout != torch.sparse_coo:
        calls += [(strided, strided, sparse), (strided, sparse, sparse), (sparse, sparse, sparse)]
    with on_device():
        for call in calls:
            same(torch.addmm(*call, **factors).to_dense(), expected)
        if layout == torch.sparse_coo:
            same(torch.sspaddmm(sparse, sparse, strided, **factors).to_dense(), expected)
        else:
            result = torch.addmv(strided[0], sparse, strided[1], **factors)
            same(result, torch.addmv(dense[0], dense, dense[1], **factors))


@pytest.mark.parametrize("layout", (torch.sparse_csr, torch.sparse_coo), ids=str)
def test_sums_of_matmuls_refuse_other_dtypes(device: torch.device, layout: torch.layout) -> None:
    matrix = numbers(4, 4, dtype=torch.float32)
    for where in ("cpu", device):
        sparse, strided = matrix.to_sparse(layout=layout).to(where), matrix.to(where)
        for other in (torch.float16, torch.int64):
            with pytest.raises(RuntimeError):
                torch.addmm(strided.to(other), sparse, strided, beta=0)
            if layout != torch.sparse_coo:
                with pytest.raises(RuntimeError):
                    torch.addmm(sparse.to(other), sparse, sparse, beta=0)
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.addmm(strided, sparse, strided, alpha=1j)


@covers("_spdiags")
def test_matrices_of_diagonals(device: torch.device) -> None:
    for dtype in computed((torch.float32, torch.int64, torch.complex128)):
        diagonals = torch.arange(1, 13).reshape(3, 4).to(dtype)
        for offsets, shape in (([0, -1, 1], (4, 4)), ([3, -4, 2], (6, 5)), ([0, 1, -2], (3, 4))):
            for layout in (None, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
                theirs = torch.sparse.spdiags(diagonals, torch.tensor(offsets), shape, layout)
                with on_device():
                    ours = torch.sparse.spdiags(
                        diagonals.to(device), torch.tensor(offsets, device=device), shape, layout
                    )
                same(ours, theirs)
    one = torch.sparse.spdiags(diagonals[0].to(device), torch.tensor(1, device=device), (3, 3))
    same(one, torch.sparse.spdiags(diagonals[0], torch.tensor(1), (3, 3)))


def test_matrices_of_diagonals_refuse_arguments_as_the_cpu_does(device: torch.device) -> None:
    for where in ("cpu", device):
        diagonals, offsets = torch.ones(3, 4, device=where), torch.tensor([0, 1, 2], device=where)
        for call in (
            (diagonals, offsets[:2], (3, 3)),
            (diagonals, offsets.float(), (3, 3)),
            (diagonals, offsets * 0, (3, 3)),
            (diagonals, offsets, (3,)),
            (diagonals[None], offsets, (3, 3)),
            (diagonals, offsets[None], (3, 3)),
            (diagonals, offsets, (3, 3), torch.strided),
        ):
            with pytest.raises(RuntimeError):
                torch.sparse.spdiags(*call)


def test_matmul_into_a_given_tensor(device: torch.device) -> None:
    dense, other = numbers(6, 5), numbers(5, 3)
    with on_device():
        for layout in LAYOUTS:
            matrix, out = dense.to_sparse(layout=layout).to(device), torch.empty(0, device=device)
            torch.mm(matrix, other.to(device), out=out)
            same(out, dense @ other)
            square, product = numbers(5, 5).to_sparse(layout=layout), torch.zeros(6, 5).to_sparse(layout=layout)
            out = product.to(device)
            torch.mm(matrix, square.to(device), out=out)
            same(out.to_dense(), dense @ square.to_dense())
            with pytest.raises(RuntimeError, match="layout"):
                torch.mm(matrix, other.to(device), out=out)
    with pytest.raises(RuntimeError, match="strided"):
        csr = torch.eye(3).to_sparse_csr().to(device)
        torch.add(torch.ones(3, 3, device=device), csr, out=csr.clone())
    with pytest.raises(RuntimeError, match="dense dimensions"):
        torch.mm(numbers(3, 3).to_sparse(1).to(device), torch.ones(3, 2, device=device))


def test_sums_leave_their_operands_as_they_are(device: torch.device) -> None:
    total = torch.eye(3).to_sparse().to(device)
    other = total.clone()
    with torch.inference_mode():
        total.add_(other)
    assert not total.is_inference()
    (torch.zeros(3, 3).to_sparse().to(device) + other).neg_()
    same(other, torch.eye(3).to_sparse())
