// Stable sort of the rows of a contiguous [rows, length] tensor, with the original indices of the elements.
//
// A merge sort in global memory: sort_blocks sorts runs of elements, then each sort_merge doubles the runs, from one
// pair of buffers into another. A work-item on a CPU, or a group on a GPU (sort_groups.cl), makes consecutive
// elements of the merged run; their starts in the two sources are found by bisection (merge path), so one long row is
// as parallel as many short ones. NaN counts as larger than every number.

#ifndef IS_COMPLEX

// Returns true if b must come before a, which precedes it. False for equal elements, so the sort is stable.
static inline bool overtakes(T b, T a, int descending) {
#ifdef IS_FLOAT
  if (isnan(a) || isnan(b)) return descending ? isnan(b) && !isnan(a) : isnan(a) && !isnan(b);
#endif
  return descending ? b > a : b < a;
}

// How many of the first `taken` elements of the merge of a (na) and b (nb) come from a.
static inline long merge_split(__global const uchar *a, long na, __global const uchar *b, long nb, long taken, int dt,
                               int descending) {
  long low = max(0l, taken - nb), high = min(taken, na);
  while (low < high) {
    long middle = low + (high - low) / 2;
    if (overtakes(load(b, taken - middle - 1, dt), load(a, middle, dt), descending)) high = middle;
    else low = middle + 1;
  }
  return low;
}

#ifdef IS_CPU
// Length of the runs that merging begins with.
#define BLOCK 32

// One work-item per block; `blocks` of them make a row. An element's index is the number of elements that go before it:
// more comparisons than in an insertion sort, but without branches, and drivers vectorise them (10 ms become 5 for
// 65536 rows of 16 floats, PoCL, 2 cores; `make bench CASES="'sort short rows *'"`).
__kernel void sort_blocks(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                          __global const uchar *input, ulong input_offset, int dtype0, long length, long blocks,
                          int descending) {
  Key keys[BLOCK];
  long row = get_global_id(0) / blocks, first = get_global_id(0) % blocks * BLOCK;
  long start = row * length + first;
  int count = (int)min((long)BLOCK, length - first);
  for (int i = 0; i < count; i++) keys[i] = sort_key(load(input + input_offset, start + i, DTYPE0), DTYPE0, descending);
  for (int i = 0; i < count; i++) {
    Key key = keys[i];
    int before = 0;
    for (int j = 0; j < i; j++) before += keys[j] <= key;
    for (int j = i + 1; j < count; j++) before += keys[j] < key;
    store(values + values_offset, start + before, DTYPE0, load(input + input_offset, start + i, DTYPE0));
    ((__global long *)(indices + indices_offset))[start + before] = first + i;
  }
}

// Merges neighbouring runs of `run` elements; `chunks` work-items make a row.
__kernel void sort_merge(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                         __global const uchar *input, ulong input_offset, __global const uchar *in_indices,
                         ulong in_indices_offset, int dtype0, long length, long run, long chunk, long chunks,
                         int descending) {
  long row_start = get_global_id(0) / chunks * length;
  __global const uchar *from = input + input_offset + row_start * dtype_size(DTYPE0);
  __global uchar *to = values + values_offset + row_start * dtype_size(DTYPE0);
  __global const long *from_index = (__global const long *)(in_indices + in_indices_offset) + row_start;
  __global long *to_index = (__global long *)(indices + indices_offset) + row_start;

  long first = get_global_id(0) % chunks * chunk, last = min(first + chunk, length);
  // `chunk` divides `run`, so the work-item stays in one pair of runs.
  long pair = first / (2 * run) * (2 * run);
  long na = min(run, length - pair), nb = min(run, length - pair - na);
  __global const uchar *a = from + pair * dtype_size(DTYPE0);
  __global const uchar *b = a + na * dtype_size(DTYPE0);
  long i = merge_split(a, na, b, nb, first - pair, DTYPE0, descending);
  long j = first - pair - i;
  for (long k = first; k < last; k++) {
    bool from_b = i == na || (j < nb && overtakes(load(b, j, DTYPE0), load(a, i, DTYPE0), descending));
    store(to, k, DTYPE0, from_b ? load(b, j, DTYPE0) : load(a, i, DTYPE0));
    to_index[k] = from_index[pair + (from_b ? na + j : i)];
    if (from_b) j++;
    else i++;
  }
}
#endif

// Copies the first `k` elements of rows of `length`. One work-item per element.
__kernel void sort_prefix(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                          __global const uchar *sorted_values, ulong sorted_values_offset,
                          __global const uchar *sorted_indices, ulong sorted_indices_offset, int to_dtype,
                          int from_dtype, long length, long k) {
  long item = get_global_id(0), at = item / k * length + item % k;
  store(values + values_offset, item, to_dtype, load(sorted_values + sorted_values_offset, at, from_dtype));
  ((__global long *)(indices + indices_offset))[item] =
      ((__global const long *)(sorted_indices + sorted_indices_offset))[at];
}

// Copies one element of each sorted row: the one at its position. One work-item per row.
__kernel void sort_pick(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                        __global const uchar *sorted_values, ulong sorted_values_offset,
                        __global const uchar *sorted_indices, ulong sorted_indices_offset,
                        __global const uchar *positions, ulong positions_offset, int dtype0, long length) {
  long row = get_global_id(0), at = row * length + ((__global const long *)(positions + positions_offset))[row];
  store(values + values_offset, row, DTYPE0, load(sorted_values + sorted_values_offset, at, DTYPE0));
  ((__global long *)(indices + indices_offset))[row] =
      ((__global const long *)(sorted_indices + sorted_indices_offset))[at];
}

#endif
