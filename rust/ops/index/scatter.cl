// Writing by index: index_set, in variants for different devices and updates (see index.cl).

#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

#define SET_ASSIGN 0
#define SET_ADD 1
#define SET_MUL 2
#define SET_MAX 3
#define SET_MIN 4

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

INLINE void store_combined(__global uchar *p, int dt, int op, T v) {
  store_at(p, dt, op == SET_ASSIGN ? v : combine(op, load_at(p, dt), v));
}

// `combine` for vectors.
INLINE TV combine_vectors(int op, TV a, TV b) {
#ifdef IS_COMPLEX
  return combine(op, a, b);
#else
  switch (op) {
    case SET_ADD: return a + b;
    case SET_MUL: return a * b;
    case SET_MAX: return (a != a) | (a > b) ? a : b;
    case SET_MIN: return (a != a) | (a < b) ? a : b;
  }
  return b;
#endif
}

// Combines a dense run of elements with another, such as the rows of an embedding's gradient. With explicit vectors, as
// CPU drivers do not vectorise a loop whose operands may overlap (28 against 11 ms for 16384 rows of 512 floats, PoCL).
INLINE void combine_run(__global uchar *dst, __global const uchar *src, long begin, long end, int dt, int src_dt,
                        int op) {
  long i = begin;
  for (; i + VEC <= end; i += VEC) {
    store_vector(dst, i, dt, combine_vectors(op, load_vector(dst, i, dt), load_vector(src, i, src_dt)));
  }
  for (; i < end; i++) store(dst, i, dt, combine(op, load(dst, i, dt), load(src, i, src_dt)));
}

// Converts a stored element in the low bits of a word to a value, and back.
static inline T from_bits(ulong bits, int dt) {
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

static inline ulong to_bits(T v, int dt) {
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

// Compare-and-swap on the word that holds the element: 32 bits everywhere in OpenCL 1.2, 64 bits if the device supports
// them (otherwise the host does not use this for 8-byte elements, and it never does for 16-byte ones).
static inline void combine_atomic(__global uchar *p, int dt, int op, T v) {
#ifdef IS_INTEGER
  if (op == SET_ADD && dt == DT_I32) {
    atomic_add((volatile __global int *)p, (int)v);
    return;
  }
#ifdef cl_khr_int64_base_atomics
  if (op == SET_ADD && dt == DT_I64) {
    atom_add((volatile __global long *)p, (long)v);
    return;
  }
#endif
#endif
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

// Layout: dst, src, index. A work-item takes `chunk` elements of dimension 0 (one on GPUs) at one position of the next
// dimensions, up to `parallel`, and loops over the others in order. If dst moves along all dimensions up to `parallel`,
// no two work-items write the same element and the result is that of a sequential loop. Otherwise `atomic` must be set,
// except for SET_ASSIGN, where any one of the values is kept and it must not be set. `dtype0` is the dtype of dst,
// `dtype2` of src.
__kernel void index_set(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                        __global const uchar *index, ulong index_offset, int dtype1, const Layout layout,
                        const Indexed axis, int parallel, int atomic, int op, int dtype0, int dtype2, long chunk,
                        __global uchar *status, ulong status_offset) {
  long chunks = (layout.sizes[0] + chunk - 1) / chunk;
  long item = get_global_id(0);
  long begin = item % chunks * chunk, end = min(begin + chunk, layout.sizes[0]);
  long lane[3] = {dst_offset, src_offset, index_offset};
  add_offsets(&layout, 3, 1, parallel, item / chunks, lane);
  __global long *report = (__global long *)(status + status_offset);
  long depth = extent(&layout, parallel, layout.ndim);
  // Copies, as the compiler must assume that stores to dst change the arguments.
  const Indexed known = axis;
  const long dst_step = layout.strides[0][0], src_step = layout.strides[1][0], index_step = layout.strides[2][0];
#ifdef IS_CPU
  bool dense = !atomic && dst_step == dtype_size(DTYPE0) && src_step == dtype_size(DTYPE2) && index_step == 0;
#endif
  for (long d = 0; d < depth; d++) {
    long at[3] = {lane[0], lane[1], lane[2]};
    add_offsets(&layout, 3, parallel, layout.ndim, d, at);
    long step = 0;
#ifdef IS_CPU
    if (dense) {
      step = resolve(load_index(index + at[2], 0, DTYPE1), &known, report);
      if (step >= 0) combine_run(dst + at[0] + step, src + at[1], begin, end, DTYPE0, DTYPE2, OP);
      continue;
    }
#endif
    __global uchar *to = dst + at[0] + begin * dst_step;
    __global const uchar *from = src + at[1] + begin * src_step, *where = index + at[2] + begin * index_step;
    long count = end - begin;
    if (atomic) {
      for (; count > 0; count--, to += dst_step, from += src_step, where += index_step) {
        step = resolve(load_index(where, 0, DTYPE1), &known, report);
        if (step >= 0) combine_atomic(to + step, DTYPE0, OP, load_at(from, DTYPE2));
      }
      continue;
    }
#ifdef IS_CPU
    if (DTYPE1 == DT_I64 && index_step == 8) {
      // Eight indices are read before the first write, as no load may be moved before a store.
      for (; count >= 8; count -= 8, to += 8 * dst_step, from += 8 * src_step, where += 64) {
        long8 at8;
        if (!resolve_block(where, &known, &at8)) break;
        const long steps[8] = {at8.s0, at8.s1, at8.s2, at8.s3, at8.s4, at8.s5, at8.s6, at8.s7};
  UNROLL for (int l = 0; l < 8; l++)
            store_combined(to + l * dst_step + steps[l], DTYPE0, OP, load_at(from + l * src_step, DTYPE2));
      }
    }
#endif
    for (; count > 0; count--, to += dst_step, from += src_step, where += index_step) {
      step = resolve(load_index(where, 0, DTYPE1), &known, report);
      if (step >= 0) store_combined(to + step, DTYPE0, OP, load_at(from, DTYPE2));
    }
  }
}

#ifdef IS_CPU
// Dense rows of `width` elements, dst[index[d]] op= src[d], for rows that are too short to divide: a work-item makes
// all updates of a part of dst, in order. All work-items read all indices.
__kernel void index_set_rows(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                             __global const uchar *index, ulong index_offset, int dtype1, const Indexed axis, int op,
                             int dtype0, int dtype2, long count, long width, long src_step, long index_step,
                             __global uchar *status, ulong status_offset) {
  const Indexed known = axis;
  SHARE_TASKS(known.size, get_global_id(0), get_global_size(0), first, last)
  const long begin = first * known.stride, end = last * known.stride;
  for (long d = 0; d < count; d++) {
    const long step = resolve(load_index(index + index_offset + d * index_step, 0, DTYPE1), &known,
                              (__global long *)(status + status_offset));
    if (step < begin || step >= end) continue;
    combine_run(dst + dst_offset + step, src + src_offset + d * src_step, 0, width, DTYPE0, DTYPE2, OP);
  }
}
#endif

// Applies updates sorted by destination, in order. `offsets` has the byte offsets of each lane's `depth` updates in
// ascending order, as a stable sort returns them, so that updates of one destination are adjacent; `positions` has the
// index of each update. An offset of -1 is an index out of range.
// Layout: dst, src. Its dimensions are, in this order: `shared` dimensions along which the index does not change, so
// that their lanes use one row of `offsets`; the other lanes, up to `lanes`, with one row each; the depth. A work-item
// takes `chunk` elements of dimension 0 (one on GPUs), which is shared, at one update. The item at the first update of
// a destination makes all its updates; for SET_ASSIGN the item at the last update makes only that one. An item keeps
// SORTED_PIECE sums of its chunk at a time, so that it reads each source in pieces. Sums are rounded to the dtype once,
// at the end.
#ifdef IS_CPU
#define SORTED_PIECE 16
#else
#define SORTED_PIECE 1
#endif
__kernel void index_set_sorted(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                               __global const uchar *offsets, ulong offsets_offset, __global const uchar *positions,
                               ulong positions_offset, const Layout layout, int shared, int lanes, int op, int dtype0,
                               int dtype2, long depth, long chunk) {
  const long chunks = (layout.sizes[0] + chunk - 1) / chunk, beside = chunks * extent(&layout, 1, shared);
  const long item = get_global_id(0), part = item % beside, row = item / beside / depth;
  const long first = item / beside % depth;
  __global const long *offset_of = (__global const long *)(offsets + offsets_offset) + row * depth;
  __global const long *position_of = (__global const long *)(positions + positions_offset) + row * depth;
  const long offset = offset_of[first];
  if (offset < 0) return;
  const bool is_last = first + 1 == depth || offset_of[first + 1] != offset;
  if (OP == SET_ASSIGN ? !is_last : first > 0 && offset_of[first - 1] == offset) return;
  long at[2] = {dst_offset + offset, src_offset};
  add_offsets(&layout, 2, 1, shared, part / chunks, at);
  add_offsets(&layout, 2, shared, lanes, row, at);
  const long begin = part % chunks * chunk, end = min(begin + chunk, layout.sizes[0]);
  const long dst_step = layout.strides[0][0], src_step = layout.strides[1][0];
  for (long c = begin; c < end; c += SORTED_PIECE) {
    const int count = (int)min((long)SORTED_PIECE, end - c);
    __global uchar *to = dst + at[0] + c * dst_step;
    T v[SORTED_PIECE];
    for (int k = 0; k < count; k++) v[k] = load_at(to + k * dst_step, DTYPE0);
    long i = first;
    do {
      long from[2] = {0, at[1] + c * src_step};
      add_offsets(&layout, 2, lanes, layout.ndim, position_of[i], from);
      for (int k = 0; k < count; k++) v[k] = combine(OP, v[k], load_at(src + from[1] + k * src_step, DTYPE2));
      i++;
    } while (OP != SET_ASSIGN && i < depth && offset_of[i] == offset);
    for (int k = 0; k < count; k++) store_at(to + k * dst_step, DTYPE0, v[k]);
  }
}

// Adds `count` dense rows of `size` elements, `copies`, to a row whose elements are `step` bytes apart. One work-item
// for each element.
__kernel void index_add_copies(__global uchar *dst, ulong dst_offset, __global const uchar *copies, ulong copies_offset,
                               int dtype0, long size, long step, int count) {
  long item = get_global_id(0);
  T sum = load_at(dst + dst_offset + item * step, DTYPE0);
  for (int copy = 0; copy < count; copy++) sum += load(copies + copies_offset, copy * size + item, DTYPE0);
  store_at(dst + dst_offset + item * step, DTYPE0, sum);
}
