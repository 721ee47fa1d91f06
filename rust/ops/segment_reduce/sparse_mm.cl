// Matmuls of a CSR matrix and a dense one, with a choice of reduction (CLASS_F and CLASS_D).

// out[r, k] is the sum, mean, maximum or minimum of values[e] * other[col_indices[e], k] over the elements e of row r.
// For an extreme, arg_out, which may be absent, gets the element: the first of equal ones, or `nnz` if all are the
// infinity that the search begins with. A NaN stays. A row without elements is 0. All tensors are contiguous. A task is
// a vector of columns of one row.
__kernel void sparse_mm_reduce(__global uchar *out, ulong out_offset, __global uchar *arg_out, ulong arg_out_offset,
                               __global const uchar *crow_indices, ulong crow_indices_offset,
                               __global const uchar *col_indices, ulong col_indices_offset,
                               __global const uchar *values, ulong values_offset, __global const uchar *other,
                               ulong other_offset, int dtype0, int index_dtype, int op, long rows, long columns,
                               long other_rows, long nnz) {
  const long strips = (columns + VEC - 1) / VEC, row_bytes = columns * dtype_size(DTYPE0);
  ITEM_TASKS(rows * strips, first, last);
  for (long task = first; task < last; task++) {
    const long row = task / strips, column = task % strips * VEC;
    const long begin = max(load_index(crow_indices + crow_indices_offset, row, index_dtype), 0l);
    const long end = min(load_index(crow_indices + crow_indices_offset, row + 1, index_dtype), nnz);
    const bool is_extreme = OP == SEGMENT_MAX || OP == SEGMENT_MIN;
    TV best = (TV)(is_extreme && begin < end ? (OP == SEGMENT_MAX ? -INFINITY : INFINITY) : 0);
    long elements[VEC];
    for (int l = 0; l < VEC; l++) elements[l] = nnz;
    for (long e = begin; e < end; e++) {
      const long index = clamp(load_index(col_indices + col_indices_offset, e, index_dtype), 0l, other_rows - 1);
      const TV factor = load_part(other + other_offset + index * row_bytes, column, columns, DTYPE0, 0);
      const TV product = factor * load(values + values_offset, e, DTYPE0);
      if (!is_extreme) {
        best += product;
        continue;
      }
      const TM better = (TM)(OP == SEGMENT_MAX ? product > best : product < best) | (TM)(product != product);
      best = better ? product : best;
      Lanes chosen;
      chosen.vector = better ? (TV)1 : (TV)0;
      for (int l = 0; l < VEC; l++) elements[l] = chosen.lanes[l] != 0 ? e : elements[l];
    }
    if (OP == SEGMENT_MEAN && begin < end) best /= (T)(end - begin);
    store_part(out + out_offset + row * row_bytes, column, columns, DTYPE0, best);
    for (int l = 0; arg_out && l < VEC && column + l < columns; l++) {
      const long at = row * columns + column + l;
      if (index_dtype == DT_I64) ((__global long *)(arg_out + arg_out_offset))[at] = elements[l];
      else ((__global int *)(arg_out + arg_out_offset))[at] = (int)elements[l];
    }
  }
}

// The gradient of the elements of the CSR matrix if each result is a sum: for element e, the dot product of row
// row_indices[e] of `grad` and row col_indices[e] of `other`. All tensors are contiguous.
__kernel void sparse_mm_grad_values(__global uchar *grad_values, ulong grad_values_offset,
                                    __global const uchar *row_indices, ulong row_indices_offset,
                                    __global const uchar *col_indices, ulong col_indices_offset,
                                    __global const uchar *grad, ulong grad_offset, __global const uchar *other,
                                    ulong other_offset, int dtype0, int index_dtype, long rows, long columns,
                                    long other_rows, long nnz) {
  const long row_bytes = columns * dtype_size(DTYPE0);
  ITEM_TASKS(nnz, first, last);
  for (long e = first; e < last; e++) {
    const long row = clamp(load_index(row_indices + row_indices_offset, e, index_dtype), 0l, rows - 1);
    const long index = clamp(load_index(col_indices + col_indices_offset, e, index_dtype), 0l, other_rows - 1);
    Lanes sums;
    sums.vector = (TV)0;
    for (long column = 0; column < columns; column += VEC)
      sums.vector += load_part(grad + grad_offset + row * row_bytes, column, columns, DTYPE0, 0) *
                     load_part(other + other_offset + index * row_bytes, column, columns, DTYPE0, 0);
    T sum = 0;
    for (int l = 0; l < VEC; l++) sum += sums.lanes[l];
    store(grad_values + grad_values_offset, e, DTYPE0, sum);
  }
}
