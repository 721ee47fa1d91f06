"""Matmuls with sparse matrices. `mm` of a sparse and a dense matrix has a kernel, which the others call."""

from typing import Any

import torch
from torch import Tensor
from torch._prims_common.wrappers import _maybe_resize_out

from ._sparse import assign, coo

COMPRESSED = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))


def pairs(columns: Tensor, rows: Tensor, inner: int) -> tuple[Tensor, Tensor]:
    """Return the positions i and j of all pairs with columns[i] == rows[j]; both are less than `inner`.

    The expansion of Bell, Dalton and Olson, Exposing Fine-Grained Parallelism in Algebraic Multigrid Methods, SIAM J.
    Sci. Comput. 34 (2012).
    """
    ascending, order = rows.sort(stable=True)
    starts = torch.searchsorted(ascending, torch.arange(inner + 1, dtype=rows.dtype, device=rows.device))
    first = starts.index_select(0, columns)
    counts = starts.index_select(0, columns + 1) - first
    ends = counts.cumsum(0)
    pair = torch.arange(int(ends[-1]) if counts.numel() > 0 else 0, device=rows.device)
    i = torch.searchsorted(ends, pair, right=True)
    nth = pair - (ends - counts).index_select(0, i)
    return i, order.index_select(0, first.index_select(0, i) + nth)


def _sparse_matmul(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Return the matmul of two COO matrices: Bell, Dalton and Olson sort and compress the terms."""
    (rows, inner1), (inner2, columns) = mat1._indices(), mat2._indices()
    i, j = pairs(inner1, inner2, mat2.shape[0])
    indices = torch.stack((rows.index_select(0, i), columns.index_select(0, j)))
    terms = mat1._values().index_select(0, i) * mat2._values().index_select(0, j)
    return coo(indices, terms, (mat1.shape[0], mat2.shape[1])).coalesce()


def sparse_sparse_matmul(self: Tensor, other: Tensor) -> Tensor:
    """Return the matmul of two COO matrices."""
    if any(each.sparse_dim() != 2 or each.dense_dim() != 0 for each in (self, other)):
        raise RuntimeError("sparse_sparse_matmul: expected two matrices without dense dimensions")
    _check_inner_sizes(self, other)
    if self.dtype != other.dtype:
        raise RuntimeError(f"mat1 dtype {self.dtype} does not match mat2 dtype {other.dtype}")
    return _sparse_matmul(self, other)


def _check_inner_sizes(mat1: Tensor, mat2: Tensor) -> None:
    if mat1.shape[1] != mat2.shape[0]:
        shapes = " and ".join("x".join(map(str, each.shape)) for each in (mat1, mat2))
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")


def _check_dtypes(op: str, *tensors: Tensor) -> None:
    dtypes = [tensor.dtype for tensor in tensors]
    if len(set(dtypes)) > 1:
        raise RuntimeError(f"{op}: expected tensors of the same dtype, but got {', '.join(map(str, dtypes))}")


def _in_dtype(dtype: torch.dtype, *scalars: complex) -> tuple[Any, ...]:
    """Convert beta and alpha to integers for integer matrices, as the CPU does: they do not promote a result."""
    if dtype.is_complex or (dtype.is_floating_point and not any(isinstance(each, complex) for each in scalars)):
        return scalars
    # Cuts off fractions, and refuses what the dtype cannot hold.
    return tuple(torch.full((), each, dtype=dtype, device="cpu").item() for each in scalars)


def _sum(self: Tensor, matmul: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta * self + alpha * matmul. As in BLAS, NaN in `self` is ignored where beta is 0."""
    beta, alpha = _in_dtype(self.dtype, beta, alpha)
    if self.shape != matmul.shape:
        self = self.expand(matmul.shape)
    if alpha != 1:
        matmul = matmul * alpha
    if beta != 0:
        matmul = self.mul(beta).add_(matmul)
    return matmul.contiguous()


def _store(out: Tensor, result: Tensor) -> Tensor:
    return _maybe_resize_out(out, result.shape).copy_(result)


def _store_layout(op: str, out: Tensor, result: Tensor) -> Tensor:
    if (out.layout == torch.strided) != (result.layout == torch.strided):
        raise RuntimeError(f"{op}: the result has layout {result.layout}, but out has layout {out.layout}")
    return assign_compressed(out, result)


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * self + alpha * mat1 @ mat2 for a COO matrix `mat1`, or if a matrix is compressed."""
    if _has_compressed(self, mat1, mat2):
        return _addmm_compressed(self, mat1, mat2, beta, alpha)
    if not mat1.is_sparse or mat2.is_sparse or self.is_sparse:
        raise RuntimeError(
            "addmm: expected a sparse mat1, a dense mat2 and a dense self, but got layouts "
            f"{mat1.layout}, {mat2.layout} and {self.layout}"
        )
    if mat1.sparse_dim() != 2:
        raise RuntimeError(f"addmm: matrices expected, got {mat1.sparse_dim()}D tensor")
    if mat1.dense_dim() != 0:
        raise RuntimeError(f"addmm: scalar values expected, got {mat1.dense_dim()}D values")
    if mat2.dim() != 2:
        raise RuntimeError(f"addmm: matrices expected, got {mat2.dim()}D tensor")
    if mat2.shape[0] != mat1.shape[1]:
        raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {mat1.shape[1]}, got {mat2.shape[0]}")
    _check_dtypes("addmm", self, mat1, mat2)
    return _sum(self, torch.mm(mat1, mat2), beta, alpha)


def addmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor) -> Tensor:
    """Compute `addmm` into `out`."""
    return _store_layout("addmm", out, addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def mm_out(self: Tensor, mat2: Tensor, *, out: Tensor) -> Tensor:
    """Compute the matmul of a sparse and a dense matrix, or of two sparse ones, into `out`."""
    return _store_layout("mm", out, torch.mm(self, mat2))


def addmm_(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute `addmm` in place, which does not broadcast `self`."""
    if self.shape != (mat1.shape[0], mat2.shape[-1]):
        raise RuntimeError(
            f"addmm: Argument #1 (t): Expected size {mat1.shape[0]} x {mat2.shape[-1]}, got {list(self.shape)}"
        )
    return self.copy_(addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """Return the matmuls of a batch: one with a matrix that has the batch's sparse matrices on its diagonal."""
    if not self.is_sparse or mat2.is_sparse:
        raise RuntimeError("bmm_sparse: Tensor 'mat2' must be dense")
    if self.dense_dim() != 0:
        raise RuntimeError(f"bmm_sparse: Tensor 'self' must have 0 dense dims, but has {self.dense_dim()}")
    if self.sparse_dim() != 3:
        raise RuntimeError(f"bmm_sparse: Tensor 'self' must have 3 sparse dims, but has {self.sparse_dim()}")
    if mat2.dim() != 3:
        raise RuntimeError(f"bmm_sparse: Tensor 'mat2' must have 3 dims, but has {mat2.dim()}")
    (batch, rows, inner), columns = self.shape, mat2.shape[2]
    if batch != mat2.shape[0]:
        raise RuntimeError("bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match")
    if inner != mat2.shape[1]:
        raise RuntimeError("bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match")
    matrix, row, column = self._indices()
    indices = torch.stack((torch.add(row, matrix, alpha=rows), torch.add(column, matrix, alpha=inner)))
    blocks = coo(indices, self._values(), (batch * rows, batch * inner), self.is_coalesced())
    return torch.mm(blocks, mat2.reshape(batch * inner, columns)).view(batch, rows, columns)


def bmm_out(self: Tensor, mat2: Tensor, *, out: Tensor) -> Tensor:
    """Compute `bmm` into `out`."""
    result = bmm(self, mat2)
    return out.resize_(result.shape).copy_(result)


def _check_product(op: str, mat1: Tensor, mat2: Tensor) -> None:
    if not mat1.is_sparse:
        raise RuntimeError(f"{op}: expected 'mat1' to have sparse layout, got 'mat1' with layout {mat1.layout}")
    if mat2.layout != torch.strided:
        raise RuntimeError(f"{op}: expected 'mat2' to have strided layout, got 'mat2' with layout {mat2.layout}")
    if mat1.sparse_dim() != 2 or mat1.dense_dim() != 0:
        raise RuntimeError(f"{op}: Argument #2: matrices expected, got {mat1.sparse_dim()}D tensor")
    if mat2.dim() != 2:
        raise RuntimeError(f"{op}: Argument #3: matrices expected, got {mat2.dim()}D tensor")
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"{op}: Argument #3: Expected dim 0 size {mat1.shape[1]}, got {mat2.shape[0]}")


def _nonempty_rows(mat1: Tensor, mat2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of mat1 @ mat2 for which `mat1` has elements: their indices, ascending, and their values."""
    mat1 = mat1.coalesce()
    row, column = mat1._indices()
    rows, inverse = torch._unique2(row, sorted=True, return_inverse=True)[:2]
    compact = coo(torch.stack((inverse, column)), mat1._values(), (rows.shape[0], mat1.shape[1]), is_coalesced=True)
    return rows, torch.mm(compact, mat2)


def hspmm_out(mat1: Tensor, mat2: Tensor, *, out: Tensor) -> Tensor:
    """Compute mat1 @ mat2 for a COO matrix as a tensor with sparse rows and dense columns."""
    _check_product("hspmm", mat1, mat2)
    if not out.is_sparse:
        raise RuntimeError(f"hspmm: expected 'out' to be sparse, but got layout {out.layout}")
    rows, values = _nonempty_rows(mat1, mat2)
    return assign(out, rows.unsqueeze(0), values, (mat1.shape[0], mat2.shape[1]), is_coalesced=True)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Return mat1 @ mat2 for a COO matrix as a tensor with sparse rows and dense columns."""
    _check_product("hspmm", mat1, mat2)
    rows, values = _nonempty_rows(mat1, mat2)
    return coo(rows.unsqueeze(0), values, (mat1.shape[0], mat2.shape[1]), is_coalesced=True)


def sspaddmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor) -> Tensor:
    """Compute beta * self + alpha * mat1 @ mat2 for COO matrices `self` and `mat1` as a COO matrix."""
    _check_product("sspaddmm", mat1, mat2)
    if not self.is_sparse or not out.is_sparse:
        raise RuntimeError(
            f"sspaddmm: expected 'self' and 'out' to be sparse, but got layouts {self.layout} and {out.layout}"
        )
    size = rows, columns = mat1.shape[0], mat2.shape[1]
    if self.sparse_dim() != 2 or self.dense_dim() != 0 or self.shape != size:
        raise RuntimeError(f"sspaddmm: Argument #1: Expected size {rows} x {columns}, got {list(self.shape)}")
    _check_dtypes("sspaddmm", self, mat1, mat2)
    beta, alpha = _in_dtype(self.dtype, beta, alpha)
    row, values = _nonempty_rows(mat1, mat2)
    row = row.repeat_interleave(columns, output_size=row.shape[0] * columns)
    column = torch.arange(columns, device=row.device).repeat(values.shape[0])
    indices = torch.cat((self._indices(), torch.stack((row, column))), 1)
    return assign(out, indices, torch.cat((self._values() * beta, values.flatten() * alpha)), size)


def _check_matrices(mat1: Tensor, mat2: Tensor) -> None:
    if mat1.dim() != 2 or mat2.dim() != 2:
        raise RuntimeError(f"addmm: Expected two matrices, but got {mat1.dim()}-D and {mat2.dim()}-D tensors")
    _check_inner_sizes(mat1, mat2)


def _has_compressed(*tensors: Tensor) -> bool:
    return any(tensor.layout in COMPRESSED for tensor in tensors)


def _addmm_compressed(self: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float) -> Tensor:
    _check_matrices(mat1, mat2)
    _check_dtypes("addmm", self, mat1, mat2)
    if mat1.layout not in COMPRESSED or mat2.layout not in COMPRESSED:
        if self.layout != torch.strided:
            raise RuntimeError(
                "addmm: the matmul of a sparse and a strided matrix is strided, but self has layout " + str(self.layout)
            )
        return _sum(self, torch.mm(mat1, mat2), beta, alpha)
    product = _sparse_matmul(mat1.to_sparse(), mat2.to_sparse())
    if self.layout == torch.strided:
        return _sum(self, product.to_dense(), beta, alpha)
    beta, alpha = _in_dtype(self.dtype, beta, alpha)
    if alpha != 1:
        product = product * alpha
    if beta != 0:
        product = torch.add(self.to_sparse().mul(beta), product).coalesce()
    return product.to_sparse(layout=self.layout)


def assign_compressed(out: Tensor, contents: Tensor) -> Tensor:
    """Give `out`, strided or in a compressed layout, other contents, which may have another layout."""
    if out.layout == torch.strided:
        return _store(out, contents)
    contents = contents.to_sparse(layout=out.layout)
    return torch.resize_as_sparse_(out, contents).copy_(contents)


def addmv_out(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor) -> Tensor:
    """Compute beta * self + alpha * mat @ vec for a compressed matrix."""
    if mat.layout not in COMPRESSED or vec.dim() != 1:
        raise RuntimeError("addmv: Expected a sparse matrix and a vector")
    rows, columns = mat.shape
    if columns != vec.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({vec.shape[0]})")
    _check_dtypes("addmv", self, mat, vec)
    return assign_compressed(out, _sum(self, torch.mm(mat, vec.unsqueeze(1)).squeeze(1), beta, alpha))


def sampled_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * self + alpha * mat1 @ mat2 at the elements of the CSR matrix `self`."""
    return sampled_addmm_out(self, mat1, mat2, beta=beta, alpha=alpha, out=self.clone())


def sampled_addmm_out(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor
) -> Tensor:
    """Compute `sampled_addmm` into a CSR matrix."""
    if self.layout != torch.sparse_csr or self.dim() != 2:
        raise RuntimeError(f"sampled_addmm: Expected self to be a matrix in CSR layout, but got {self.layout}")
    _check_matrices(mat1, mat2)
    size = mat1.shape[0], mat2.shape[1]
    if self.shape != size:
        raise RuntimeError(f"sampled_addmm: Expected self.shape to be {size[0]}x{size[1]}, but got {list(self.shape)}")
    rows, columns = torch._convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices())
    products = mat1.index_select(0, rows).mul_(mat2.t().index_select(0, columns))
    sums = products.sum(1).mul_(alpha).add_(self.values().mul(beta))
    if out is not self:
        torch.resize_as_sparse_(out, self).copy_(self)
    out.values().copy_(sums)
    return out
