// Values among others: where sorted ones would take them, and whether they are there.

#ifndef IS_COMPLEX
// The element of a row of boundaries at a position in ascending order. `sorter`, where given, has its index.
INLINE T boundary(__global const uchar *boundaries, __global const uchar *sorter, long row, long position, int dtype0) {
  const long at = sorter ? ((__global const long *)sorter)[row + position] : position;
  return load(boundaries, row + at, DTYPE0);
}

// True if a value is inserted behind a boundary; `right` puts equal ones there. Negated, so that NaN counts as larger
// than every boundary.
#define IS_BEHIND(position, v)                                          \
  (right ? !(boundary(boundaries, sorter, row, position, dtype0) > (v)) \
         : !(boundary(boundaries, sorter, row, position, dtype0) >= (v)))

// Insertion index of values[i] in its ascending row of `length` boundaries. `per_row` values share a row; rows are
// `row_step` elements apart (0: all use the only one). An item takes `chunk` values (one on GPUs). It looks from the index
// of the value before, in steps that double, and between the last two by halves: a galloping search (Bentley and Yao, An
// Almost Optimal Algorithm for Unbounded Searching, 1976), as values are often in order too.
__kernel void searchsorted(__global uchar *out, ulong out_offset, __global const uchar *values, ulong values_offset,
                           __global const uchar *boundaries, ulong boundaries_offset, __global const uchar *sorter,
                           ulong sorter_offset, int out_dtype, int dtype0, long length, long count, long chunk,
                           long per_row, long row_step, int right) {
  boundaries += boundaries_offset;
  if (sorter) sorter += sorter_offset;
  const long first = get_global_id(0) * chunk, last = min(first + chunk, count);
  long found = 0;
  for (long i = first; i < last; i++) {
    const long row = i / per_row * row_step;
    const T v = load(values + values_offset, i, DTYPE0);
    long low = 0, high = length;
    if (i > first) {
      long step = 1;
      if (found == 0 || IS_BEHIND(found - 1, v)) {
        low = found;
        for (; low + step <= length && IS_BEHIND(low + step - 1, v); step *= 2) low += step;
        high = min(low + step - 1, length);
      } else {
        high = found - 1;
      }
    }
    while (low < high) {
      const long middle = low + (high - low) / 2;
      if (IS_BEHIND(middle, v)) low = middle + 1;
      else high = middle;
    }
    found = low;
    if (out_dtype == DT_I64) ((__global long *)(out + out_offset))[i] = low;
    else ((__global int *)(out + out_offset))[i] = (int)low;
  }
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
