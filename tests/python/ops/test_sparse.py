"""Sparse tensors, in COO and CSR layout: as on the CPU, without a fallback, with gradients and sparse optimizers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from float64 import computed
from op_table import DTYPES, covers
from torch.nn import functional

LAYOUTS = (torch.sparse_coo, torch.sparse_csr)
DTYPES_ALL = computed(DTYPES["all"])


def same(ours: torch.Tensor, theirs: torch.Tensor, **tolerances: float) -> None:
    """Compare layouts, and elements as dense tensors."""
    assert ours.layout == theirs.layout
    assert ours.device.type == "opencl"
    if theirs.layout != torch.strided:
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        ours, theirs = ours.to_dense(), theirs.to_dense()
    torch.testing.assert_close(ours.cpu(), theirs, **tolerances)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Dense small values, some of them zero."""
    dense = torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=0, high=4)
    return torch.where(torch.rand(shape) < 0.4, dense, torch.zeros((), dtype=dtype))


def repeated(*shape: int, dtype: torch.dtype = torch.float32, nnz: int = 20, dense_dim: int = 0) -> torch.Tensor:
    """A COO tensor with repeated indices."""
    sparse_shape, dense_shape = shape[: len(shape) - dense_dim], shape[len(shape) - dense_dim :]
    indices = torch.stack([torch.randint(size, (nnz,)) for size in sparse_shape])
    values = torch.testing.make_tensor((nnz, *dense_shape), dtype=dtype, device="cpu", low=0, high=4)
    return torch.sparse_coo_tensor(indices, values, shape)


@contextmanager
def on_device() -> Iterator[None]:
    """Allow no fallback to the CPU."""
    torch.opencl.reset_fallbacks()
    yield
    assert not torch.opencl.fallbacks()


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to a wider dtype, in which the CPU can multiply matrices."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def leaf(tensor: torch.Tensor, where: torch.device | str) -> torch.Tensor:
    """A copy that requires a gradient."""
    return tensor.to(where, copy=True).requires_grad_()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES_ALL, ids=str)
def test_conversions_between_layouts(device: torch.device, dtype: torch.dtype) -> None:
    dense = numbers(6, 8, dtype=dtype)
    with on_device():
        ours = dense.to(device)
        for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            theirs = dense.to_sparse(layout=layout)
            same(ours.to_sparse(layout=layout), theirs)
            same(ours.to_sparse(layout=layout).to_dense(), dense)
            same(theirs.to(device), theirs)
            assert torch.equal(theirs.to(device).cpu().to_dense(), dense)
            for other in LAYOUTS:
                same(ours.to_sparse(layout=layout).to_sparse(layout=other), theirs.to_sparse(layout=other))
        for layout in (torch.sparse_bsr, torch.sparse_bsc):
            theirs = dense.to_sparse(layout=layout, blocksize=(2, 4))
            same(ours.to_sparse(layout=layout, blocksize=(2, 4)), theirs)
            same(ours.to_sparse(layout=layout, blocksize=(2, 4)).to_dense(), dense)


def test_construction_and_parts_of_coo_tensors(device: torch.device) -> None:
    theirs = repeated(4, 5, 3, dense_dim=1)
    with on_device():
        ours = torch.sparse_coo_tensor(theirs._indices().to(device), theirs._values().to(device), theirs.shape)
        inferred = torch.sparse_coo_tensor(theirs._indices().to(device), theirs._values().to(device))
        assert inferred.shape == torch.sparse_coo_tensor(theirs._indices(), theirs._values()).shape
        assert (ours._nnz(), ours.sparse_dim(), ours.dense_dim()) == (20, 2, 1)
        assert not ours.is_coalesced()
        whole, expected = ours.coalesce(), theirs.coalesce()
        assert whole.is_coalesced()
        assert torch.equal(whole.indices().cpu(), expected.indices())
        torch.testing.assert_close(whole.values().cpu(), expected.values())
        same(
            torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), device=device),
            torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3)),
        )
        empty = torch.sparse_coo_tensor(size=(2, 3), device=device)
        assert empty._nnz() == 0
        same(empty.to_dense(), torch.zeros(2, 3))
    assert "nnz=20" in repr(ours)


def test_construction_and_parts_of_csr_tensors(device: torch.device) -> None:
    theirs = numbers(5, 7).to_sparse_csr()
    with on_device():
        parts = (theirs.crow_indices(), theirs.col_indices(), theirs.values())
        ours = torch.sparse_csr_tensor(*(part.to(device) for part in parts), size=theirs.shape)
        for part, expected in zip((ours.crow_indices(), ours.col_indices(), ours.values()), parts, strict=True):
            assert torch.equal(part.cpu(), expected)
        assert ours._nnz() == theirs._nnz()
        same(ours, theirs)
        same(
            torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2), device=device),
            torch.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0], (2, 2)),
        )
        batch = numbers(2, 3, 3)
        batch[0], batch[1] = torch.eye(3), torch.eye(3).flip(0)
        same(batch.to(device).to_sparse_csr(), batch.to_sparse_csr())
        same(batch.to_sparse_csr().to(device).to_sparse(), batch.to_sparse_csr().to_sparse())


@covers("_validate_compressed_sparse_indices")
def test_bad_indices_are_refused_when_invariants_are_checked(device: torch.device) -> None:
    with torch.sparse.check_sparse_tensor_invariants():
        for where in ("cpu", device):
            with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
                torch.sparse_coo_tensor(torch.tensor([[9]], device=where), torch.ones(1, device=where), (3,))
            with pytest.raises(RuntimeError, match="col_indices"):
                ones = torch.ones(2, device=where)
                torch.sparse_csr_tensor(torch.tensor([0, 1, 2]).to(where), torch.tensor([0, 5]).to(where), ones, (2, 2))


@pytest.mark.parametrize("dtype", DTYPES_ALL, ids=str)
def test_repeated_indices_are_summed(device: torch.device, dtype: torch.dtype) -> None:
    for tensor in (repeated(3, 4, dtype=dtype), repeated(3, 4, 2, dtype=dtype, dense_dim=1), repeated(5, dtype=dtype)):
        with on_device():
            ours = tensor.to(device).coalesce()
        same(ours, tensor.coalesce())
        assert torch.equal(ours._indices().cpu(), tensor.coalesce()._indices())


@pytest.mark.parametrize("dtype", DTYPES_ALL, ids=str)
def test_addition_of_sparse_to_dense_and_to_sparse(device: torch.device, dtype: torch.dtype) -> None:
    dense, a, b = numbers(4, 5, dtype=dtype), repeated(4, 5, dtype=dtype), numbers(4, 5, dtype=dtype).to_sparse()
    with on_device():
        same(dense.to(device) + a.to(device), dense + a)
        same(dense.t().contiguous().t().to(device).add_(a.to(device)), dense + a)
        if dtype == torch.bool:
            return
        same(torch.add(dense.to(device), a.to(device), alpha=3), torch.add(dense, a, alpha=3))
        if dtype in (torch.float16, torch.bfloat16):
            # The CPU has no kernel for these.
            same(b.to(device) + b.to(device), (b.float() + b.float()).to(dtype))
            return
        for x, y in ((a, b), (b, b), (b, a)):
            same(x.to(device) + y.to(device), x + y)
            if dtype.is_signed:
                same(torch.sub(x.to(device), y.to(device), alpha=2), torch.sub(x, y, alpha=2))
            assert (x.to(device) + y.to(device)).is_coalesced() or not (x + y).is_coalesced()


def test_unsigned_values_are_subtracted_in_the_dtype_of_the_result(device: torch.device) -> None:
    signed, unsigned = torch.eye(4, dtype=torch.int8), torch.full((4, 4), 200, dtype=torch.uint8)
    with on_device():
        difference = torch.sub(signed.to_sparse().to(device), unsigned.to_sparse().to(device))
    same(difference, (signed.short() - unsigned.short()).to_sparse())


@pytest.mark.parametrize("dtype", (torch.float32, torch.int64, torch.complex64), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_multiplication_and_division(device: torch.device, dtype: torch.dtype, layout: torch.layout) -> None:
    dense, a, b = (numbers(4, 5, dtype=dtype) for _ in range(3))
    a, b = a.to_sparse(layout=layout), b.to_sparse(layout=layout)
    with on_device():
        same(a.to(device) * 3, a * 3)
        same(a.to(device) * b.to(device), a * b)
        same(a.to(device) * dense.to(device), a * dense)
        ours = a.to(device)
        ours.mul_(2)
        same(ours, a * 2)
        if layout == torch.sparse_coo:
            same(a.to(device) / 2, a / 2)
            uncoalesced = repeated(4, 5, dtype=dtype)
            same(uncoalesced.to(device) * 2, uncoalesced * 2)
            hybrid, other = repeated(4, 5, 2, dense_dim=1), repeated(4, 5, 2, dense_dim=1)
            same(hybrid.to(device) * other.to(device), hybrid * other)


@pytest.mark.parametrize("dtype", DTYPES_ALL, ids=str)
@pytest.mark.parametrize("layout", (*LAYOUTS, torch.sparse_csc), ids=str)
def test_matmul_with_a_dense_matrix(device: torch.device, dtype: torch.dtype, layout: torch.layout) -> None:
    if dtype == torch.bool:
        pytest.skip("matmul does not support bool")
    dense, other = numbers(6, 5, dtype=dtype), numbers(5, 3, dtype=dtype)
    matrix, base = dense.to_sparse(layout=layout), numbers(6, 3, dtype=dtype)
    product = (wide(dense) @ wide(other)).to(dtype)
    with on_device():
        ours, right = matrix.to(device), other.to(device)
        same(ours @ right, product)
        same(torch.sparse.mm(ours, right), product)
        same(torch.addmm(base.to(device), ours, right, beta=2, alpha=3), (base * 2 + product * 3).to(dtype))
        same(ours @ right[:, 0], product[:, 0])
        for out in (torch.empty(0, dtype=dtype, device=device), base.to(device)):
            torch.addmm(base.to(device), ours, right, out=out)
            same(out, (base + product).to(dtype))
        if layout != torch.sparse_coo:
            same(base.t().contiguous().to(device) @ ours, (wide(base.t()) @ wide(dense)).to(dtype))
    with pytest.raises(RuntimeError):
        ours @ torch.ones(7, 2, dtype=dtype, device=device)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_matmul_of_sparse_matrices(device: torch.device, layout: torch.layout) -> None:
    a, b = numbers(6, 5).to_sparse(layout=layout), numbers(5, 7).to_sparse(layout=layout)
    with on_device():
        same(torch.sparse.mm(a.to(device), b.to(device)), a @ b)
        nothing = torch.zeros(5, 7).to_sparse(layout=layout)
        same(torch.sparse.mm(a.to(device), nothing.to(device)), a @ nothing)


def test_matmul_of_a_batch(device: torch.device) -> None:
    batch, other = numbers(3, 4, 5), torch.randn(3, 5, 2)
    with on_device():
        same(torch.bmm(batch.to_sparse().to(device), other.to(device)), torch.bmm(batch, other))
        out = torch.empty(0, device=device)
        torch.bmm(batch.to_sparse().to(device), other.to(device), out=out)
        same(out, batch @ other)


def test_shapes_sums_and_selections(device: torch.device) -> None:
    for theirs in (repeated(4, 5), repeated(4, 5, 3, dense_dim=1)):
        ours = theirs.to(device)
        with on_device():
            same(ours.transpose(0, 1), theirs.transpose(0, 1))
            same(ours.unsqueeze(0), theirs.unsqueeze(0))
            same(torch.cat([ours, ours]), torch.cat([theirs, theirs]))
            same(ours.sum(), theirs.sum())
            for dim in (0, 1, (0, 1)):
                same(torch.sparse.sum(ours, dim), torch.sparse.sum(theirs, dim))
            index = torch.tensor([3, 0, 3])
            same(ours.index_select(0, index.to(device)), theirs.index_select(0, index))
            same(ours.index_select(1, index.to(device)), theirs.index_select(1, index))
            same(ours.narrow_copy(0, 1, 2), theirs.narrow_copy(0, 1, 2))
            same(ours[2], theirs[2])
            same(ours.norm(), theirs.norm())
            mask = numbers(*theirs.shape).to_sparse(theirs.sparse_dim())
            same(ours.sparse_mask(mask.to(device)), theirs.sparse_mask(mask))
            same(ours.to_dense().sparse_mask(mask.to(device)), theirs.to_dense().sparse_mask(mask))
    with pytest.raises(IndexError):
        ours.index_select(0, torch.tensor([7], device=device))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_functions_of_values_copies_and_zeros(device: torch.device, layout: torch.layout) -> None:
    theirs = numbers(4, 5).sub(1).mul(0.3).to_sparse(layout=layout)
    ours = theirs.to(device)
    with on_device():
        for name in ("abs", "neg", "sin", "tanh", "relu", "sqrt", "sign", "floor", "isnan", "expm1"):
            same(getattr(ours, name)(), getattr(theirs, name)(), equal_nan=True)
        same(ours.clone(), theirs)
        same(torch.empty_like(ours).copy_(ours) if layout == torch.sparse_coo else ours.clone(), theirs)
        same(ours.to(torch.float16), theirs.to(torch.float16))
        same(torch.zeros_like(ours), torch.zeros_like(theirs))
        ours.neg_()
        same(ours, -theirs)
        ours.zero_()
        same(ours.to_dense(), torch.zeros(4, 5))


@covers(
    "_convert_indices_from_coo_to_csr",
    "_convert_indices_from_csr_to_coo",
    "_to_sparse",
)
@pytest.mark.parametrize("out_int32", [False, True])
def test_indices_of_rows_are_compressed_and_back(device: torch.device, out_int32: bool) -> None:
    rows, columns = torch.tensor([0, 0, 2, 2, 2, 4]), torch.tensor([1, 3, 0, 1, 2, 2])
    with on_device():
        crow = torch._convert_indices_from_coo_to_csr(rows.to(device), 6, out_int32=out_int32)
        expected = torch._convert_indices_from_coo_to_csr(rows, 6, out_int32=out_int32)
        assert torch.equal(crow.cpu(), expected)
        for transpose in (False, True):
            options = {"out_int32": out_int32, "transpose": transpose}
            ours = torch._convert_indices_from_csr_to_coo(crow, columns.to(device, crow.dtype), **options)
            theirs = torch._convert_indices_from_csr_to_coo(expected, columns.to(crow.dtype), **options)
            assert torch.equal(ours.cpu(), theirs)
            assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_of_a_matmul(device: torch.device, layout: torch.layout) -> None:
    grads = []
    dense, other = numbers(6, 5), torch.randn(5, 3)
    with on_device():
        for where in (device, "cpu"):
            matrix = dense.to_sparse(layout=layout).to(where).requires_grad_()
            right = leaf(other, where)
            torch.sparse.mm(matrix, right).cos().sum().backward()
            grads.append((matrix.grad, right.grad))
    for ours, theirs in zip(*grads, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", computed((torch.float32, torch.float64, torch.bfloat16)), ids=str)
def test_matmul_with_a_reduction(device: torch.device, dtype: torch.dtype, reduce: str) -> None:
    dense, other = numbers(6, 5, dtype=dtype), torch.randn(5, 3).to(dtype)
    # An empty row, and NaN.
    dense[2] = 0
    dense[1, 1], other[1, 1] = 2, torch.nan
    results = []
    with on_device():
        for where in (device, "cpu"):
            matrix, right = dense.to_sparse_csr().to(where).requires_grad_(), leaf(other, where)
            product = torch.sparse.mm(matrix, right, reduce)
            product.nan_to_num().cos().sum().backward()
            results.append((product.detach(), matrix.grad, right.grad))
            with torch.no_grad():
                results[-1] += (torch.sparse.mm(matrix, right, reduce),)
    for ours, theirs in zip(*results, strict=True):
        close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
        same(ours, theirs, equal_nan=True, **close)
    with pytest.raises(RuntimeError, match="prod has not been enabled"):
        torch.sparse.mm(dense.to_sparse_csr().to(device), other.to(device), "prod")


def test_gradients_through_conversions_and_sums(device: torch.device) -> None:
    weights, values = torch.randn(4, 5), torch.randn(3)
    indices = torch.tensor([[0, 1, 3], [2, 0, 4]])
    grads = []
    with on_device():
        for where in (device, "cpu"):
            x, v = leaf(weights, where), leaf(values, where)
            made = torch.sparse_coo_tensor(indices.to(where), v, (4, 5))
            (torch.sparse.mm(made, x.t()).sum() + (made.to_dense() * x).sum()).backward()
            y = leaf(weights, where)
            torch.sparse.sum(y.to_sparse(), 0).to_dense().cos().sum().backward()
            grads.append((x.grad, v.grad, y.grad))
    for ours, theirs in zip(*grads, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
    ],
    ids=["SGD", "SGD with momentum", "SparseAdam", "Adagrad"],
)
@pytest.mark.parametrize("kind", ["embedding", "embedding_bag"])
def test_training_of_embeddings_with_sparse_gradients(device: torch.device, optimizer: Callable, kind: str) -> None:
    weight, index = torch.randn(12, 4), torch.tensor([[1, 5, 5], [0, 11, 1]])
    trained = []
    with on_device():
        for where in (device, "cpu"):
            parameter = torch.nn.Parameter(weight.to(where))
            steps = optimizer([parameter])
            for _ in range(3):
                steps.zero_grad()
                lookup = getattr(functional, kind)
                lookup(index.to(where), parameter, sparse=True).cos().sum().backward()
                assert parameter.grad.is_sparse
                steps.step()
            trained.append(parameter.detach())
    same(*trained)


def test_gradients_accumulate_and_are_cleared(device: torch.device) -> None:
    weight, index = torch.randn(6, 3), torch.tensor([1, 4, 1])
    grads = []
    for where in (device, "cpu"):
        parameter = torch.nn.Parameter(weight.to(where))
        for _ in range(2):
            functional.embedding(index.to(where), parameter, sparse=True).sum().backward()
        grads.append(parameter.grad.clone())
        torch.optim.SGD([parameter], lr=1).zero_grad(set_to_none=False)
        assert parameter.grad.to_dense().abs().sum() == 0
    same(*grads)


def test_operators_without_a_kernel_run_on_the_cpu(device: torch.device) -> None:
    theirs = numbers(4, 5).to_sparse_csr()
    product = torch.ops.aten._sparse_csr_prod.dim_dtype
    torch.opencl.reset_fallbacks()
    same(product(theirs.to(device), [0], True), product(theirs, [0], True))
    assert "aten::_sparse_csr_prod.dim_dtype" in torch.opencl.fallbacks()


def test_tensors_on_two_devices_are_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        numbers(4, 5).to_sparse().to(device) @ torch.ones(5, 2)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(4, 5).add_(numbers(4, 5).to_sparse().to(device))
