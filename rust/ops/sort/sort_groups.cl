// The sorting and merging of sort.cl for GPUs: a group takes TILE elements, with coalesced loads and stores. In
// local memory only their order changes, by merge path again: an item finds TAKEN elements of each merged run.

#if !defined(IS_CPU) && !defined(IS_COMPLEX)

#define TAKEN 4
#define TILE (LSIZE * TAKEN)

// Index of an element in a tile.
typedef ushort TileIndex;

// How many of the first `taken` elements of the merge of a (na) and b (nb) come from a.
static inline INLINED_ON_GPUS int local_split(__local const T *keys, __local const TileIndex *a, int na,
                                              __local const TileIndex *b, int nb, int taken, int descending) {
  int low = max(0, taken - nb), high = min(taken, na);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (overtakes(keys[b[taken - middle - 1]], keys[a[middle]], descending)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Writes TAKEN elements of the merge of the run `a` (na) and the run after it (nb), from element `first` on.
static inline INLINED_ON_GPUS void merge_taken(__local TileIndex *to, __local const T *keys, __local const TileIndex *a,
                                               int na, int nb, int first, int descending) {
  __local const TileIndex *b = a + na;
  const int count = min(TAKEN, na + nb - first);
  if (count <= 0) return;
  int i = local_split(keys, a, na, b, nb, first, descending), j = first - i;
  for (int l = 0; l < count; l++) {
    const bool from_b = j < nb && (i >= na || overtakes(keys[b[j]], keys[a[i]], descending));
    to[first + l] = from_b ? b[j] : a[i];
    j += from_b;
    i += !from_b;
  }
}

// Sorts blocks of `width` elements, a power of two from TAKEN to TILE. A row has `blocks` of them, of TILE elements; or
// it has one block, and a group takes as many rows as fill its tile.
__kernel GROUPS_OF(LSIZE) void sort_group_blocks(__global uchar *values, ulong values_offset, __global uchar *indices,
                                                 ulong indices_offset, __global const uchar *input, ulong input_offset,
                                                 int dtype0, long length, long blocks, long rows, int width,
                                                 int descending) {
  __local T keys[TILE];
  __local TileIndex orders[2 * TILE];
  const int item = get_local_id(0), shift = 31 - clz(width);
  const long group = get_group_id(0), first = width == TILE ? group % blocks * TILE : 0;
  const long first_row = width == TILE ? group / blocks : group * (TILE >> shift);
  // A block may lack elements at its end only.
  const int most = (int)min((long)width, length - first);
  for (int t = item; t < TILE; t += LSIZE) {
    const long row = first_row + (t >> shift);
    const int column = t & (width - 1);
    if (row < rows && column < most) keys[t] = load(input + input_offset, row * length + first + column, DTYPE0);
    orders[t] = (TileIndex)t;
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const int own = item * TAKEN, start = own & -width;
  const int count = first_row + (own >> shift) < rows ? most : 0;
  const int end = min(own + TAKEN, start + count);
  for (int i = own + 1; i < end; i++) {
    const T key = keys[i];
    int to = i;
    for (; to > own && overtakes(key, keys[orders[to - 1]], descending); to--) orders[to] = orders[to - 1];
    orders[to] = (TileIndex)i;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;
  for (int run = TAKEN; run < width; run *= 2) {
    const int pair = own & -(2 * run), left = max(count - (pair - start), 0);
    const int na = min(run, left), nb = min(run, left - na);
    merge_taken(orders + (TILE - now) + pair, keys, orders + now + pair, na, nb, own - pair, descending);
    now = TILE - now;
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  for (int t = item; t < TILE; t += LSIZE) {
    const long row = first_row + (t >> shift);
    if (row >= rows || (t & (width - 1)) >= most) continue;
    const long at = row * length + first + (t & (width - 1));
    const int from = orders[now + t];
    store(values + values_offset, at, DTYPE0, keys[from]);
    ((__global long *)(indices + indices_offset))[at] = first + (from & (width - 1));
  }
}

// Merges neighbouring runs of `run` elements, a multiple of `chunk`, which is TILE; `chunks` groups make a row.
__kernel GROUPS_OF(LSIZE) void sort_merge(__global uchar *values, ulong values_offset, __global uchar *indices,
                                          ulong indices_offset, __global const uchar *input, ulong input_offset,
                                          __global const uchar *in_indices, ulong in_indices_offset, int dtype0,
                                          long length, long run, long chunk, long chunks, int descending) {
  __local T keys[TILE];
  __local TileIndex orders[2 * TILE];
  __local long splits[2];
  const int item = get_local_id(0);
  const long row_start = get_group_id(0) / chunks * length, first = get_group_id(0) % chunks * chunk;
  const long pair = first / (2 * run) * (2 * run);
  const long all_a = min(run, length - pair), all_b = min(run, length - pair - all_a);
  const int count = (int)min(chunk, length - first);
  __global const uchar *a = input + input_offset + (row_start + pair) * dtype_size(DTYPE0);
  __global const uchar *b = a + all_a * dtype_size(DTYPE0);
  for (int end = item; end < 2; end += LSIZE)
    splits[end] = merge_split(a, all_a, b, all_b, first - pair + end * count, DTYPE0, descending);
  barrier(CLK_LOCAL_MEM_FENCE);

  // The tile has elements of a from `from_a` on, then elements of b from `from_b` on.
  const long from_a = splits[0], from_b = all_a + first - pair - from_a;
  const int na = (int)(splits[1] - from_a);
  for (int t = item; t < count; t += LSIZE) {
    keys[t] = load(a, t < na ? from_a + t : from_b + t - na, DTYPE0);
    orders[t] = (TileIndex)t;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  merge_taken(orders + TILE, keys, orders, na, count - na, item * TAKEN, descending);
  barrier(CLK_LOCAL_MEM_FENCE);

  __global const long *a_indices = (__global const long *)(in_indices + in_indices_offset) + row_start + pair;
  __global long *to_indices = (__global long *)(indices + indices_offset) + row_start + first;
  for (int t = item; t < count; t += LSIZE) {
    const int from = orders[TILE + t];
    store(values + values_offset, row_start + first + t, DTYPE0, keys[from]);
    to_indices[t] = a_indices[from < na ? from_a + from : from_b + from - na];
  }
}

#endif
