// Values among others: where sorted ones would take them, and whether they are there.

#ifndef IS_COMPLEX
// Insertion index of values[i] in its ascending row of `length` boundaries. `right` puts equal values after. `per_row`
// values share a row; rows are `row_step` elements apart (0: all use the only one). Where `sorted` is 0 the row is read
// through the sorter, a tensor of 64-bit indices.
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

// Which of n values are among `count` others, or with `inverted` which are not: bools. All others are looked at, which
// vectors of values share.
__kernel void is_among(__global uchar *out, ulong out_offset, __global const uchar *values, ulong values_offset,
                       __global const uchar *others, ulong others_offset, int dtype0, long n, long count,
                       int inverted) {
  const long size = dtype_size(DTYPE0);
  ITEM_TASKS((n + VEC - 1) / VEC, first, last);
  for (long i = first * VEC; i < min(last * VEC, n); i += VEC) {
    const int width = (int)min(n - i, (long)VEC);
    const TV v = load_lanes(values + values_offset + i * size, size, width, DTYPE0);
    union {
      TM vector;
      TI lanes[VEC];
    } found;
    found.vector = (TM)0;
    for (long k = 0; k < count; k++) found.vector |= v == (TV)load(others + others_offset, k, DTYPE0);
    FIRST_LANES(l, width) out[out_offset + i + l] = (found.lanes[l] != 0) != (inverted != 0);
  }
}
#endif
