// Indices of non-zero elements: nonzero_count counts them in each block of a contiguous tensor, and nonzero_write
// writes their coordinates in row-major order, from the offset given by the running total of the counts. A block is a
// work-item's on CPUs, and on GPUs a group's, whose items take neighbouring elements.

#ifdef IS_CPU

// Counts the non-zero elements of each block of `block` elements of a contiguous tensor.
__kernel void nonzero_count(__global const uchar *input, ulong input_offset, __global uchar *counts,
                            ulong counts_offset, int dtype0, long n, long block) {
  long begin = get_global_id(0) * block, end = min(begin + block, n);
  long count = 0;
  for (long i = begin; i < end; i++) count += IS_NONZERO(load(input + input_offset, i, DTYPE0));
  ((__global long *)(counts + counts_offset))[get_global_id(0)] = count;
}

// `ends` is the running total of nonzero_count; layout holds the sizes of the input, and its first row of strides those
// of the output's columns (bytes).
__kernel void nonzero_write(__global const uchar *input, ulong input_offset, __global const uchar *ends,
                            ulong ends_offset, __global uchar *out, ulong out_offset, int dtype0, long n, long block,
                            const Layout layout, long row_stride) {
  long item = get_global_id(0);
  long begin = item * block, end = min(begin + block, n);
  long row = item == 0 ? 0 : ((__global const long *)(ends + ends_offset))[item - 1];
  if (layout.ndim == 1 && layout.sizes[0] == n) {
    // Without an unpredictable branch on the elements: each index is written, and overwritten by the next one if the
    // element was zero. It stops at the last row, as the next one belongs to the next block.
    long last = ((__global const long *)(ends + ends_offset))[item];
    __global uchar *column = out + out_offset + layout.strides[0][0];
    for (long i = begin; i < end && row < last; i++) {
      *(__global long *)(column + row * row_stride) = i;
      row += IS_NONZERO(load(input + input_offset, i, DTYPE0));
    }
    return;
  }
  for (long i = begin; i < end; i++) {
    if (!IS_NONZERO(load(input + input_offset, i, DTYPE0))) continue;
    long rest = i;
    FOR_DIMS(d, 0, layout.ndim) {
      *(__global long *)(out + out_offset + row * row_stride + layout.strides[0][d]) = rest % layout.sizes[d];
      rest /= layout.sizes[d];
    }
    row++;
  }
}

#else

// Items of a group: the ITEM_GROUP of rust/ops/core/target.rs. Each checks STEPS elements at a time, NONZERO_ITEMS
// apart.
#define NONZERO_ITEMS 64
#define STEPS 8

// Flags of an item's next elements that are not zero: one byte each, 0 or 1, as the counts of a whole group fit a byte.
static inline ulong nonzero_flags(__global const uchar *input, long first, long end, int dt) {
  ulong flags = 0;
  UNROLL for (int step = 0; step < STEPS; step++) {
    const long i = first + step * NONZERO_ITEMS;
    const T v = i < end ? load(input, i, dt) : FROM_REAL(0);
    flags |= (ulong)IS_NONZERO(v) << (8 * step);
  }
  return flags;
}

__kernel GROUPS_OF(NONZERO_ITEMS) void nonzero_count(__global const uchar *input, ulong input_offset, __global uchar *counts,
                                                     ulong counts_offset, int dtype0, long n, long block) {
  __local int count;
  const int item = get_local_id(0);
  const long begin = get_group_id(0) * block, end = min(begin + block, n);
  if (item == 0) count = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  int found = 0;
  for (long first = begin + item; first < end; first += STEPS * NONZERO_ITEMS)
    found += (int)popcount(nonzero_flags(input + input_offset, first, end, DTYPE0));
  atomic_add(&count, found);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item == 0) ((__global long *)(counts + counts_offset))[get_group_id(0)] = count;
}

__kernel GROUPS_OF(NONZERO_ITEMS) void nonzero_write(__global const uchar *input, ulong input_offset,
                                                     __global const uchar *ends, ulong ends_offset, __global uchar *out,
                                                     ulong out_offset, int dtype0, long n, long block,
                                                     const Layout layout, long row_stride) {
  __local ulong shared[NONZERO_ITEMS];
  const int item = get_local_id(0);
  const long group = get_group_id(0), begin = group * block, end = min(begin + block, n);
  const bool is_whole = extent(&layout, 0, layout.ndim) == n;
  long row = group == 0 ? 0 : ((__global const long *)(ends + ends_offset))[group - 1];
  for (long start = begin; start < end; start += STEPS * NONZERO_ITEMS) {
    const ulong flags = nonzero_flags(input + input_offset, start + item, end, DTYPE0);
    // Running totals of all steps at once, one in each byte.
    ulong totals = flags;
    shared[item] = totals;
    for (int step = 1; step < NONZERO_ITEMS; step *= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item >= step) totals += shared[item - step];
      barrier(CLK_LOCAL_MEM_FENCE);
      shared[item] = totals;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong counts = shared[NONZERO_ITEMS - 1];
    // The next elements must not overwrite it before every item has read it.
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int step = 0; step < STEPS; step++) {
      const int shift = 8 * step;
      if (flags >> shift & 1) {
        __global uchar *to = out + out_offset + (row + (long)(totals >> shift & 255) - 1) * row_stride;
        long rest = start + step * NONZERO_ITEMS + item;
        FOR_DIMS(d, 0, layout.ndim) {
          // The outermost dimension takes what is left, without a division.
          const long size = layout.sizes[d], next = is_whole && d + 1 == layout.ndim ? 0 : rest / size;
          *(__global long *)(to + layout.strides[0][d]) = rest - next * size;
          rest = next;
        }
      }
      row += (long)(counts >> shift & 255);
    }
  }
}

#endif
