// Searches: the places of non-zero elements, and those of values among sorted ones.

// Non-zero elements of each block of `block` elements of a contiguous tensor.
__kernel void nonzero_count(__global const uchar *in, ulong in_offset, __global uchar *counts, ulong counts_offset,
                            int dtype0, long n, long block) {
  long begin = get_global_id(0) * block, end = min(begin + block, n);
  long count = 0;
  for (long i = begin; i < end; i++) count += IS_NONZERO(load(in + in_offset, i, DTYPE0));
  ((__global long *)(counts + counts_offset))[get_global_id(0)] = count;
}

// Coordinates of the non-zero elements in row-major order. `ends` is the running total of nonzero_count;
// layout holds the sizes of the input, and its first row of strides those of the output's columns (bytes).
__kernel void nonzero_write(__global const uchar *in, ulong in_offset, __global const uchar *ends, ulong ends_offset,
                            __global uchar *out, ulong out_offset, int dtype0, long n, long block,
                            const Layout layout, long row_stride) {
  long item = get_global_id(0);
  long begin = item * block, end = min(begin + block, n);
  long row = item == 0 ? 0 : ((__global const long *)(ends + ends_offset))[item - 1];
  if (layout.ndim == 1 && layout.sizes[0] == n) {
    // Without a branch on the elements, which nobody can predict: each is written, and the next one over it if it was
    // zero. Not past the last row, which is the next block's.
    long last = ((__global const long *)(ends + ends_offset))[item];
    __global uchar *column = out + out_offset + layout.strides[0][0];
    for (long i = begin; i < end && row < last; i++) {
      *(__global long *)(column + row * row_stride) = i;
      row += IS_NONZERO(load(in + in_offset, i, DTYPE0));
    }
    return;
  }
  for (long i = begin; i < end; i++) {
    if (!IS_NONZERO(load(in + in_offset, i, DTYPE0))) continue;
    long rest = i;
    FOR_DIMS(d, 0, layout.ndim) {
      *(__global long *)(out + out_offset + row * row_stride + layout.strides[0][d]) = rest % layout.sizes[d];
      rest /= layout.sizes[d];
    }
    row++;
  }
}

#ifndef IS_COMPLEX
// Where values[i] belongs in its ascending row of `length` boundaries. `right` puts equal values after.
// `per_row` values share a row; rows are `row_step` elements apart (0: all use the only one). Where `sorted`
// is 0 the row is read through the sorter, a tensor of 64-bit indices.
__kernel void searchsorted(__global uchar *out, ulong out_offset, __global const uchar *values, ulong values_offset,
                           __global const uchar *boundaries, ulong boundaries_offset, __global const uchar *sorter,
                           ulong sorter_offset, int out_dtype, int dtype0, long length, long per_row, long row_step,
                           int sorted, int right) {
  long item = get_global_id(0);
  long row = item / per_row * row_step;
  T v = load(values + values_offset, item, DTYPE0);
  long low = 0, high = length;
  while (low < high) {
    long middle = low + (high - low) / 2;
    long at = sorted ? middle : ((__global const long *)(sorter + sorter_offset))[row + middle];
    T b = load(boundaries + boundaries_offset, row + at, DTYPE0);
    // Negated, so that NaN counts as larger than every boundary.
    if (right ? !(b > v) : !(b >= v)) low = middle + 1;
    else high = middle;
  }
  if (out_dtype == DT_I64) ((__global long *)(out + out_offset))[item] = low;
  else ((__global int *)(out + out_offset))[item] = (int)low;
}
#endif
