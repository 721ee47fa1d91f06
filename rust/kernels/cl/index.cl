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
// An index out of range is reported in `status`, which the host turns into an IndexError, and touches no
// memory.

#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

#define SET_ASSIGN 0
#define SET_ADD 1
#define SET_MUL 2
#define SET_MAX 3
#define SET_MIN 4

// What an index means: it counts steps of `stride` bytes along `dim`, which has `size` of them;
// `lowest` is -size where negative indices count from the end, else 0.
typedef struct {
  long size;
  long stride;
  long lowest;
  long dim;
} Axis;

// Byte offset of an index, or -1 after reporting it. The first report stays: the fields of one launch
// agree on dim and size, so work-items that race differ only in the index they name.
INLINE long resolve(long index, const Axis *axis, __global long *status) {
  // One comparison: what is too low becomes the largest of unsigned numbers.
  if ((ulong)(index - axis->lowest) < (ulong)(axis->size - axis->lowest))
    return (index < 0 ? index + axis->size : index) * axis->stride;
  if (status[0] == 0) {
    status[1] = index;
    status[2] = axis->dim;
    status[3] = axis->size;
    status[0] = 1;
  }
  return -1;
}

// Byte offsets of position p among dimensions [first, last), added to offsets[operand].
INLINE void add_offsets(const Layout *layout, int operands, int first, int last, long p, long *offsets) {
  for (int d = first; d < last; d++) {
    // The outermost dimension takes what is left, without a division.
    long i = d + 1 < last ? p % layout->sizes[d] : p;
    for (int k = 0; k < operands; k++) offsets[k] += i * layout->strides[k][d];
    p /= d + 1 < last ? layout->sizes[d] : 1;
  }
}

INLINE long extent(const Layout *layout, int first, int last) {
  long n = 1;
  for (int d = first; d < last; d++) n *= layout->sizes[d];
  return n;
}

// Eight dense 64-bit indices: one load, of which PoCL's vload8 makes several.
typedef struct __attribute__((packed, aligned(8))) {
  long8 values;
} Block;

// Their byte offsets; false, and nothing reported, if one of them is out of range.
INLINE bool resolve_block(__global const uchar *index, const Axis *axis, long8 *steps) {
  long8 i = ((__global const Block *)index)->values;
  long8 outside = (i < axis->lowest) | (i >= axis->size);
  long4 halves = outside.lo | outside.hi;
  if (halves.x | halves.y | halves.z | halves.w) return false;
  *steps = (i < 0 ? i + axis->size : i) * axis->stride;
  return true;
}

// Folds one index tensor into byte offsets; the first one overwrites them. A rejected position stays
// negative, so that the move that follows leaves it alone.
// Layout: offsets, index. A work-item takes `chunk` elements of dimension 0, as in index_get.
__kernel void index_offsets(__global uchar *offsets, ulong offsets_offset, __global const uchar *index,
                            ulong index_offset, int index_dtype, const Layout layout, const Axis axis, int first,
                            long chunk, __global uchar *status, ulong status_offset) {
  long chunks = (layout.sizes[0] + chunk - 1) / chunk;
  long item = get_global_id(0);
  long i = item % chunks * chunk, end = min(i + chunk, layout.sizes[0]);
  long at[2] = {offsets_offset, index_offset};
  add_offsets(&layout, 2, 1, layout.ndim, item / chunks, at);
  const Axis known = axis;
  const long to_step = layout.strides[0][0], from_step = layout.strides[1][0];
  __global uchar *to = offsets + at[0];
  __global const uchar *from = index + at[1];
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
    long step = resolve(load_index(from + i * from_step, 0, index_dtype), &known,
                        (__global long *)(status + status_offset));
    long before = first ? 0 : *offset;
    *offset = step < 0 || before < 0 ? -1 : before + step;
  }
}

// Copies elements [begin, end) of dimension 0. Where one index serves the whole run it is read once; dense 64-bit ones
// are looked at 8 at a time, so that loads do not wait for comparisons.
#define DEFINE_GET_RUN(TYPE)                                                                                       \
  inline void get_run_##TYPE(__global uchar *dst, __global const uchar *src, __global const uchar *index,         \
                             int index_dtype, const Layout *layout, const Axis *axis, long begin, long end,       \
                             __global long *status) {                                                             \
    long dst_step = layout->strides[0][0], src_step = layout->strides[1][0], index_step = layout->strides[2][0];  \
    if (index_step == 0) {                                                                                        \
      long at = resolve(load_index(index, 0, index_dtype), axis, status);                                         \
      for (long i = begin; i < end; i++)                                                                          \
        *(__global TYPE *)(dst + i * dst_step) =                                                                  \
            at < 0 ? (TYPE)0 : *(__global const TYPE *)(src + at + i * src_step);                                 \
      return;                                                                                                     \
    }                                                                                                             \
    long i = begin;                                                                                               \
    if (index_step == 8 && index_dtype == DT_I64) {                                                               \
      const long8 along = (long8)(0, 1, 2, 3, 4, 5, 6, 7) * src_step;                                             \
      for (; i + 8 <= end; i += 8) {                                                                              \
        union {                                                                                                   \
          long8 vector;                                                                                           \
          long lanes[8];                                                                                          \
        } at;                                                                                                     \
        if (!resolve_block(index + i * 8, axis, &at.vector)) break;                                               \
        at.vector += along + i * src_step;                                                                        \
        TYPE block[8];                                                                                            \
        for (int l = 0; l < 8; l++) block[l] = *(__global const TYPE *)(src + at.lanes[l]);                       \
        __global uchar *to = dst + i * dst_step;                                                                  \
        if (dst_step == sizeof(TYPE)) {                                                                           \
          for (int l = 0; l < 8; l++) ((__global TYPE *)to)[l] = block[l];                                        \
        } else {                                                                                                  \
          for (int l = 0; l < 8; l++) *(__global TYPE *)(to + l * dst_step) = block[l];                           \
        }                                                                                                         \
      }                                                                                                           \
    }                                                                                                             \
    for (; i < end; i++) {                                                                                        \
      long at = resolve(load_index(index + i * index_step, 0, index_dtype), axis, status);                        \
      *(__global TYPE *)(dst + i * dst_step) =                                                                    \
          at < 0 ? (TYPE)0 : *(__global const TYPE *)(src + at + i * src_step);                                   \
    }                                                                                                             \
  }

DEFINE_GET_RUN(uchar)
DEFINE_GET_RUN(ushort)
DEFINE_GET_RUN(uint)
DEFINE_GET_RUN(ulong)
DEFINE_GET_RUN(ulong2)

// Layout: dst, src, index. A work-item takes `chunk` elements of dimension 0, so the range is
// ceil(sizes[0] / chunk) times the other sizes. Elements are `width` bytes; the dtype does not matter.
__kernel void index_get(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                        __global const uchar *index, ulong index_offset, int index_dtype, const Layout layout,
                        const Axis axis, int width, long chunk, __global uchar *status, ulong status_offset) {
  long chunks = (layout.sizes[0] + chunk - 1) / chunk;
  long item = get_global_id(0);
  long begin = item % chunks * chunk, end = min(begin + chunk, layout.sizes[0]);
  long at[3] = {dst_offset, src_offset, index_offset};
  add_offsets(&layout, 3, 1, layout.ndim, item / chunks, at);
  __global uchar *d = dst + at[0];
  __global const uchar *s = src + at[1];
  __global const uchar *x = index + at[2];
  __global long *report = (__global long *)(status + status_offset);
  switch (width) {
    case 1: get_run_uchar(d, s, x, index_dtype, &layout, &axis, begin, end, report); break;
    case 2: get_run_ushort(d, s, x, index_dtype, &layout, &axis, begin, end, report); break;
    case 4: get_run_uint(d, s, x, index_dtype, &layout, &axis, begin, end, report); break;
    case 8: get_run_ulong(d, s, x, index_dtype, &layout, &axis, begin, end, report); break;
    case 16: get_run_ulong2(d, s, x, index_dtype, &layout, &axis, begin, end, report); break;
  }
}

INLINE T combine(int op, T a, T b) {
  switch (op) {
    case SET_ADD: return a + b;
#ifdef IS_COMPLEX
    case SET_MUL: return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
#else
    case SET_MUL: return a * b;
    // A NaN wins over everything, from either side.
    case SET_MAX: return IS_NAN(a) || a > b ? a : b;
    case SET_MIN: return IS_NAN(a) || a < b ? a : b;
#endif
  }
  return b;
}

INLINE void update(__global uchar *p, int dt, int op, T v) {
  store_at(p, dt, op == SET_ASSIGN ? v : combine(op, load_at(p, dt), v));
}

// Adds a dense run of elements to another: the rows of an embedding's gradient. By vectors, as drivers for CPUs do not
// vectorise a loop whose operands may overlap (28 against 11 ms for 16384 rows of 512 floats, PoCL).
INLINE void add_run(__global uchar *dst, __global const uchar *src, long begin, long end, int dt) {
  long i = begin;
  for (; i + VEC <= end; i += VEC) store_vector(dst, i, dt, load_vector(dst, i, dt) + load_vector(src, i, dt));
  for (; i < end; i++) store(dst, i, dt, load(dst, i, dt) + load(src, i, dt));
}

// A stored element held in the low bits of a word, and back.
inline T from_bits(ulong bits, int dt) {
  ushort half_bits = (ushort)bits;
  switch (dt) {
    case DT_U8: return FROM_REAL((uchar)bits);
    case DT_I8: return FROM_REAL((char)bits);
    case DT_I16: return FROM_REAL((short)bits);
    case DT_I32: return FROM_REAL((int)bits);
    case DT_I64: return FROM_REAL((long)bits);
    case DT_F16: return FROM_REAL(vload_half(0, (const half *)&half_bits));
    case DT_F32: return FROM_REAL(as_float((uint)bits));
    case DT_BF16: return FROM_REAL(bf16_to_float(half_bits));
    case DT_BOOL: return FROM_REAL((uchar)bits != 0);
    case DT_C64: return FROM_PAIR(as_float((uint)bits), as_float((uint)(bits >> 32)));
#ifdef HAS_FP64
    case DT_F64: return FROM_REAL(as_double(bits));
#endif
  }
  return FROM_REAL(0);
}

inline ulong to_bits(T v, int dt) {
  ushort half_bits = 0;
  switch (dt) {
    case DT_F16: vstore_half_rte((float)REAL(v), 0, (half *)&half_bits); return half_bits;
    case DT_F32: return as_uint((float)REAL(v));
    case DT_BF16: return float_to_bf16((float)REAL(v));
    case DT_BOOL: return IS_NONZERO(v);
    case DT_C64: return as_uint((float)PAIR_X(v)) | (ulong)as_uint((float)PAIR_Y(v)) << 32;
#ifdef HAS_FP64
    case DT_F64: return as_ulong((double)REAL(v));
#endif
  }
  return (ulong)TO_LONG(v);
}

// Compare-and-swap on the word that holds the element: 32 bits everywhere in OpenCL 1.2, 64 bits where the
// device has them (the host does not ask for 8-byte elements elsewhere, nor for 16-byte ones).
inline void combine_atomic(__global uchar *p, int dt, int op, T v) {
#ifdef cl_khr_int64_base_atomics
  if (dtype_size(dt) == 8) {
    volatile __global ulong *word = (volatile __global ulong *)p;
    ulong seen = *word, expected;
    do {
      expected = seen;
      seen = atom_cmpxchg(word, expected, to_bits(combine(op, from_bits(expected, dt), v), dt));
    } while (seen != expected);
    return;
  }
#endif
  uint byte = (uint)((uintptr_t)p & 3);
  uint shift = byte * 8;
  uint mask = (uint)((1ul << dtype_size(dt) * 8) - 1) << shift;
  volatile __global uint *word = (volatile __global uint *)(p - byte);
  uint seen = *word, expected;
  do {
    expected = seen;
    T now = combine(op, from_bits(expected >> shift, dt), v);
    seen = atomic_cmpxchg(word, expected, (expected & ~mask) | ((uint)to_bits(now, dt) << shift & mask));
  } while (seen != expected);
}

// Layout: dst, src, index. A work-item takes `chunk` elements of dimension 0 at one position of the next dimensions, up
// to `spread`, and walks the others in order. If dst moves along every dimension that is spread, no two
// work-items meet and the result is that of a sequential loop; otherwise `atomic` must be set, but for SET_ASSIGN, where
// one of the values stays and it must not.
__kernel void index_set(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                        __global const uchar *index, ulong index_offset, int dtype1, const Layout layout,
                        const Axis axis, int spread, int atomic, int op, int dtype0, long chunk,
                        __global uchar *status, ulong status_offset) {
  long chunks = (layout.sizes[0] + chunk - 1) / chunk;
  long item = get_global_id(0);
  long begin = item % chunks * chunk, end = min(begin + chunk, layout.sizes[0]);
  long lane[3] = {dst_offset, src_offset, index_offset};
  add_offsets(&layout, 3, 1, spread, item / chunks, lane);
  __global long *report = (__global long *)(status + status_offset);
  long depth = extent(&layout, spread, layout.ndim);
  // Copies, as stores to dst might change what arguments hold for all that a compiler knows.
  const Axis known = axis;
  const long dst_step = layout.strides[0][0], src_step = layout.strides[1][0], index_step = layout.strides[2][0];
  bool dense = OP == SET_ADD && !atomic && dst_step == dtype_size(DTYPE0) && src_step == dst_step && index_step == 0;
  for (long d = 0; d < depth; d++) {
    long at[3] = {lane[0], lane[1], lane[2]};
    add_offsets(&layout, 3, spread, layout.ndim, d, at);
    long step = 0;
    if (dense) {
      step = resolve(load_index(index + at[2], 0, DTYPE1), &known, report);
      if (step >= 0) add_run(dst + at[0] + step, src + at[1], begin, end, DTYPE0);
      continue;
    }
    __global uchar *to = dst + at[0] + begin * dst_step;
    __global const uchar *from = src + at[1] + begin * src_step, *where = index + at[2] + begin * index_step;
    long count = end - begin;
    if (atomic) {
      for (; count > 0; count--, to += dst_step, from += src_step, where += index_step) {
        step = resolve(load_index(where, 0, DTYPE1), &known, report);
        if (step >= 0) combine_atomic(to + step, DTYPE0, OP, load_at(from, DTYPE0));
      }
      continue;
    }
    for (; count > 0; count--, to += dst_step, from += src_step, where += index_step) {
      step = resolve(load_index(where, 0, DTYPE1), &known, report);
      if (step >= 0) update(to + step, DTYPE0, OP, load_at(from, DTYPE0));
    }
  }
}

// Adds `copies` dense rows of `size` elements to one whose elements are `step` bytes apart. One work-item an element.
__kernel void index_add_copies(__global uchar *dst, ulong dst_offset, __global const uchar *copies,
                               ulong copies_offset, int dtype0, long size, long step, int count) {
  long item = get_global_id(0);
  T sum = load_at(dst + dst_offset + item * step, DTYPE0);
  for (int copy = 0; copy < count; copy++) sum += load(copies + copies_offset, copy * size + item, DTYPE0);
  store_at(dst + dst_offset + item * step, DTYPE0, sum);
}

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
    for (int d = 0; d < layout.ndim; d++) {
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
