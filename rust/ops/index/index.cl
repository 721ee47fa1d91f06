// Indexing: reads and writes whose position in one tensor comes from another tensor.
//
// Every operation of this family is one of two moves over three operands of one shape:
//
//   index_get   dst[p]                      = src[p + index[p] * stride]
//   index_set   dst[p + index[p] * stride] op= src[p]
//
// The indexed side does not move along the indexed dimensions (its strides there are 0). gather, take,
// index_select and advanced indexing are all index_get; scatter, put, index_add, index_copy, index_fill
// and index_put are all index_set. Several index tensors are first folded by index_offsets into one
// tensor of byte offsets.
//
// An index out of range is reported in `status`, which the host turns into an IndexError, and accesses no memory.
// `status` is a record of faults (fault.cl), followed by the dimension.

// The indexed dimension: `size` steps of `stride` bytes along `dim`. `lowest` is -size if negative indices count from
// the end, else 0.
typedef struct {
  long size;
  long stride;
  long lowest;
  long dim;
} Indexed;
SHARED(Indexed, 32);

// Byte offset of an index, or -1 after reporting it. The first report is kept: all reports of one launch agree on dim
// and size, so racing work-items differ only in the index.
INLINE long resolve(long index, const Indexed *axis, __global long *status) {
  // One comparison: as unsigned, an index that is too low exceeds every size.
  if ((ulong)(index - axis->lowest) < (ulong)(axis->size - axis->lowest))
    return (index < 0 ? index + axis->size : index) * axis->stride;
  if (status[0] == 0) {
    status[1] = index;
    status[2] = axis->size;
    status[3] = axis->dim;
    status[0] = FAULT_INDEX;
  }
  return -1;
}

// Byte offsets of position p among dimensions [first, last), added to offsets[operand].
INLINE void add_offsets(const Layout *layout, int operands, int first, int last, long p, long *offsets) {
  FOR_DIMS(d, 0, last) {
    if (d < first) continue;
    // The outermost dimension takes what is left, without a division.
    long i = d + 1 < last ? p % layout->sizes[d] : p;
    for (int k = 0; k < operands; k++) offsets[k] += i * layout->strides[k][d];
    p /= d + 1 < last ? layout->sizes[d] : 1;
  }
}

INLINE long extent(const Layout *layout, int first, int last) {
  long n = 1;
  FOR_DIMS(d, 0, last) n *= d < first ? 1 : layout->sizes[d];
  return n;
}

// The work-item's share: elements [begin, end) of dimension 0, at positions [first_row, last_row) of the others. On
// GPUs an item takes one element.
#ifdef IS_CPU
#define ITEM_ROWS(rows) rows
#else
#define ITEM_ROWS(rows) 1
#endif
#define ITEM_SHARE(layout, chunk, rows)                                                      \
  const long chunks = ((layout).sizes[0] + (chunk) - 1) / (chunk), item = get_global_id(0);  \
  const long begin = item % chunks * (chunk), end = min(begin + (chunk), (layout).sizes[0]); \
  const long first_row = item / chunks * ITEM_ROWS(rows);                                    \
  const long last_row = min(first_row + ITEM_ROWS(rows), extent(&(layout), 1, (layout).ndim));

// Eight dense 64-bit indices in one load; PoCL's vload8 uses several.
typedef struct __attribute__((packed, aligned(8))) {
  long8 values;
} Block;

// Finds the byte offsets of eight indices. Returns false, without a report, if one of them is out of range.
INLINE bool resolve_block(__global const uchar *index, const Indexed *axis, long8 *steps) {
  long8 i = ((__global const Block *)index)->values;
  long8 outside = (i < axis->lowest) | (i >= axis->size);
  long4 halves = outside.lo | outside.hi;
  if (halves.x | halves.y | halves.z | halves.w) return false;
  *steps = (i < 0 ? i + axis->size : i) * axis->stride;
  return true;
}

// Folds one index tensor into byte offsets; the first one overwrites them. A rejected position stays negative, so that
// the following move skips it.
// Layout: offsets, index. A work-item takes a share as in index_get.
__kernel void index_offsets(__global uchar *offsets, ulong offsets_offset, __global const uchar *index,
                            ulong index_offset, int index_dtype, const Layout layout, const Indexed axis, int first,
                            long chunk, long rows, __global uchar *status, ulong status_offset) {
  const Indexed known = axis;
  const long to_step = layout.strides[0][0], from_step = layout.strides[1][0];
  ITEM_SHARE(layout, chunk, rows)
  for (long row = first_row; row < last_row; row++) {
    long at[2] = {offsets_offset, index_offset};
    add_offsets(&layout, 2, 1, layout.ndim, row, at);
    __global uchar *to = offsets + at[0];
    __global const uchar *from = index + at[1];
    long i = begin;
    if (index_dtype == DT_I64 && to_step == 8 && from_step == 8) {
      for (; i + 8 <= end; i += 8) {
        long8 steps;
        if (!resolve_block(from + i * 8, &known, &steps)) break;
        if (!first) {
          long8 before = ((__global const Block *)(to + i * 8))->values;
          steps = before < 0 ? before : before + steps;
        }
        ((__global Block *)(to + i * 8))->values = steps;
      }
    }
    for (; i < end; i++) {
      __global long *offset = (__global long *)(to + i * to_step);
      long step =
          resolve(load_index(from + i * from_step, 0, index_dtype), &known, (__global long *)(status + status_offset));
      long before = first ? 0 : *offset;
      *offset = step < 0 || before < 0 ? -1 : before + step;
    }
  }
}

// Copies `size` bytes, dense on both sides, in cache lines; the last one overlaps the previous one. Returns false if
// `size` is less than a line.
typedef struct __attribute__((packed, aligned(1))) {
  uint16 values;
} Line;

INLINE bool copy_lines(__global uchar *dst, __global const uchar *src, long size) {
  if (size < sizeof(Line)) return false;
  for (long i = 0; i < size; i += sizeof(Line)) {
    const long at = min(i, size - (long)sizeof(Line));
    ((__global Line *)(dst + at))->values = ((__global const Line *)(src + at))->values;
  }
  return true;
}

// Gathers eight elements at a vector of offsets. The vector is built by component and not in a loop, which PoCL would
// turn into two gathers through memory (3.9 instead of 1.7 ms for 2048 x 2048 floats along rows:
// `make bench CASES="'gather rows f32'"`).
#define TAKE(TYPE, l) (*(__global const TYPE *)(src + at.s##l))
#define DEFINE_GET_EIGHT(TYPE)                                                                             \
  typedef struct __attribute__((packed, aligned(sizeof(TYPE)))) {                                          \
    TYPE##8 values;                                                                                        \
  } Eight_##TYPE;                                                                                          \
  INLINE void get_eight_##TYPE(__global uchar *dst, long step, __global const uchar *src, long8 at) {      \
    const TYPE##8 v = (TYPE##8)(TAKE(TYPE, 0), TAKE(TYPE, 1), TAKE(TYPE, 2), TAKE(TYPE, 3), TAKE(TYPE, 4), \
                                TAKE(TYPE, 5), TAKE(TYPE, 6), TAKE(TYPE, 7));                              \
    if (step == sizeof(TYPE)) {                                                                            \
      ((__global Eight_##TYPE *)dst)->values = v;                                                          \
      return;                                                                                              \
    }                                                                                                      \
    const TYPE lanes[8] = {v.s0, v.s1, v.s2, v.s3, v.s4, v.s5, v.s6, v.s7};                                \
    for (int l = 0; l < 8; l++) *(__global TYPE *)(dst + l * step) = lanes[l];                             \
  }

DEFINE_GET_EIGHT(uchar)
DEFINE_GET_EIGHT(ushort)
DEFINE_GET_EIGHT(uint)
DEFINE_GET_EIGHT(ulong)

// There are no vectors of elements this wide.
INLINE void get_eight_ulong2(__global uchar *dst, long step, __global const uchar *src, long8 at) {
  const ulong2 lanes[8] = {TAKE(ulong2, 0), TAKE(ulong2, 1), TAKE(ulong2, 2), TAKE(ulong2, 3),
                           TAKE(ulong2, 4), TAKE(ulong2, 5), TAKE(ulong2, 6), TAKE(ulong2, 7)};
  for (int l = 0; l < 8; l++) *(__global ulong2 *)(dst + l * step) = lanes[l];
}

// Copies elements [begin, end) of dimension 0. An index for the whole run is read once; dense 64-bit indices are
// checked 8 at a time, so that loads do not wait for comparisons.
#define DEFINE_GET_RUN(TYPE)                                                                                           \
  static inline void get_run_##TYPE(__global uchar *dst, __global const uchar *src, __global const uchar *index,       \
                                    int index_dtype, const Layout *layout, const Indexed *axis, long begin, long end,  \
                                    __global long *status) {                                                           \
    long dst_step = layout->strides[0][0], src_step = layout->strides[1][0], index_step = layout->strides[2][0];       \
    if (index_step == 0) {                                                                                             \
      long at = resolve(load_index(index, 0, index_dtype), axis, status);                                              \
      const bool is_dense = at >= 0 && dst_step == sizeof(TYPE) && src_step == sizeof(TYPE);                           \
      __global const uchar *from = src + at + begin * src_step;                                                        \
      if (is_dense && copy_lines(dst + begin * dst_step, from, (end - begin) * sizeof(TYPE))) return;                  \
      for (long i = begin; i < end; i++)                                                                               \
        *(__global TYPE *)(dst + i * dst_step) = at < 0 ? (TYPE)0 : *(__global const TYPE *)(src + at + i * src_step); \
      return;                                                                                                          \
    }                                                                                                                  \
    long i = begin;                                                                                                    \
    if (index_step == 8 && index_dtype == DT_I64) {                                                                    \
      const long8 along = (long8)(0, 1, 2, 3, 4, 5, 6, 7) * src_step;                                                  \
      for (; i + 8 <= end; i += 8) {                                                                                   \
        long8 at;                                                                                                      \
        if (!resolve_block(index + i * 8, axis, &at)) break;                                                           \
        get_eight_##TYPE(dst + i * dst_step, dst_step, src, at + along + i * src_step);                                \
      }                                                                                                                \
    }                                                                                                                  \
    for (; i < end; i++) {                                                                                             \
      long at = resolve(load_index(index + i * index_step, 0, index_dtype), axis, status);                             \
      *(__global TYPE *)(dst + i * dst_step) = at < 0 ? (TYPE)0 : *(__global const TYPE *)(src + at + i * src_step);   \
    }                                                                                                                  \
  }

DEFINE_GET_RUN(uchar)
DEFINE_GET_RUN(ushort)
DEFINE_GET_RUN(uint)
DEFINE_GET_RUN(ulong)
DEFINE_GET_RUN(ulong2)

// Layout: dst, src, index. A work-item takes `chunk` elements of dimension 0 at each of `rows` positions of the others;
// `rows` is more than 1 only if `chunk` is all of dimension 0. Elements are `width` bytes; the dtype does not matter.
__kernel void index_get(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                        __global const uchar *index, ulong index_offset, int index_dtype, const Layout layout,
                        const Indexed axis, int width, long chunk, long rows, __global uchar *status,
                        ulong status_offset) {
  __global long *report = (__global long *)(status + status_offset);
  // A copy, as the compiler must assume that stores to dst change the arguments.
  const Indexed known = axis;
  ITEM_SHARE(layout, chunk, rows)
  for (long row = first_row; row < last_row; row++) {
    long at[3] = {dst_offset, src_offset, index_offset};
    add_offsets(&layout, 3, 1, layout.ndim, row, at);
    __global uchar *d = dst + at[0];
    __global const uchar *s = src + at[1];
    __global const uchar *x = index + at[2];
    switch (width) {
      case 1: get_run_uchar(d, s, x, index_dtype, &layout, &known, begin, end, report); break;
      case 2: get_run_ushort(d, s, x, index_dtype, &layout, &known, begin, end, report); break;
      case 4: get_run_uint(d, s, x, index_dtype, &layout, &known, begin, end, report); break;
      case 8: get_run_ulong(d, s, x, index_dtype, &layout, &known, begin, end, report); break;
      case 16: get_run_ulong2(d, s, x, index_dtype, &layout, &known, begin, end, report); break;
    }
  }
}
