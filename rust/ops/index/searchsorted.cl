// Searches for values among others: their insertion index in sorted values, and whether they are present.

#ifndef IS_COMPLEX
// The element of a row of boundaries at a position in ascending order. `sorter`, if given, has its index.
INLINE T boundary(__global const uchar *boundaries, __global const uchar *sorter, long row, long position, int dtype0) {
  const long at = sorter ? ((__global const long *)sorter)[row + position] : position;
  return load(boundaries, row + at, DTYPE0);
}

// On CPUs an item searches for several values at once; on GPUs neighbouring items search for neighbouring values.
#ifdef IS_CPU
#define SEARCHES VEC
#else
#define SEARCHES 1
#endif

// True if value l is inserted after a boundary; with `right`, equal values are too. Negated, so that NaN counts as
// larger than every boundary.
#define IS_BEHIND(l, position)                                               \
  (right ? !(boundary(boundaries, sorter, rows[l], position, dtype0) > v[l]) \
         : !(boundary(boundaries, sorter, rows[l], position, dtype0) >= v[l]))

// Insertion index of values[i] in its ascending row of `length` boundaries. `per_row` values share a row; rows are
// `row_step` elements apart (0: all use the only one). An item searches for SEARCHES values at a time by bisection,
// with the same number of steps for all, so that there are no mispredicted branches and loads do not wait for one
// another. With unsorted boundaries it finds the same index as PyTorch's other devices, as it reads the same
// boundaries.
__kernel void searchsorted(__global uchar *out, ulong out_offset, __global const uchar *values, ulong values_offset,
                           __global const uchar *boundaries, ulong boundaries_offset, __global const uchar *sorter,
                           ulong sorter_offset, int out_dtype, int dtype0, long length, long count, long per_row,
                           long row_step, int right) {
  boundaries += boundaries_offset;
  if (sorter) sorter += sorter_offset;
  ITEM_TASKS((count + SEARCHES - 1) / SEARCHES, first, last);
  for (long i = first * SEARCHES; i < last * SEARCHES; i += SEARCHES) {
    const int width = (int)min(count - i, (long)SEARCHES);
    T v[SEARCHES];
    long rows[SEARCHES], low[SEARCHES], high[SEARCHES];
    for (int l = 0; l < SEARCHES; l++) {
      // Lanes past the last value repeat it.
      const long at = i + min(l, width - 1);
      v[l] = load(values + values_offset, at, DTYPE0);
      rows[l] = at / per_row * row_step;
      low[l] = 0;
      high[l] = length;
    }
    for (long left = length; left > 0; left /= 2) {
      for (int l = 0; l < SEARCHES; l++) {
        const long middle = (low[l] + high[l]) / 2;
        const bool behind = (low[l] < high[l]) & IS_BEHIND(l, min(middle, length - 1));
        low[l] = behind ? middle + 1 : low[l];
        high[l] = behind ? high[l] : middle;
      }
    }
    for (int l = 0; l < width; l++) {
      if (out_dtype == DT_I64) ((__global long *)(out + out_offset))[i + l] = low[l];
      else ((__global int *)(out + out_offset))[i + l] = (int)low[l];
    }
  }
}

// Writes bools: which of n values are among `count` others, or with `inverted` which are not. Compares each value with
// all others, which are loaded once for a vector of values.
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
