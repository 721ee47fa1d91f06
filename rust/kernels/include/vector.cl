// Vectors of the compute type, for kernels whose inner loop runs along contiguous elements.
//
// A work-item processes VEC neighbouring elements at a time. On CPUs VEC fills a SIMD register, because drivers do not
// vectorise across work-items that loop; on GPUs it fills one 16-byte load. LSIZE is the number of work-items that
// share one reduction: 1 on CPUs, where cooperation costs more than it saves and its code is eliminated at compile
// time.

#ifndef LSIZE
#define LSIZE 1
#endif

// A specialised program may process more at a time: its elements are narrower than T.
#ifdef SPEC_VEC
#undef VEC
#define VEC SPEC_VEC
#endif

#ifdef IS_COMPLEX
#undef VEC
#define VEC 1
#elif !defined(VEC)
#ifdef CLASS_F
#define VEC 16
#else
#define VEC 8
#endif
#endif

#ifndef IS_COMPLEX
typedef T TR;
#endif

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

// TV holds VEC values, TM the result of comparing two TV (0 and -1 by lane).
#if defined(CLASS_F)
#define T_NAME float
#define TM_NAME int
#elif defined(CLASS_D)
#define T_NAME double
#define TM_NAME long
#elif defined(CLASS_U)
#define T_NAME ulong
#define TM_NAME long
#elif defined(SPEC_INT)
#define T_NAME int
#define TM_NAME int
#else
#define T_NAME long
#define TM_NAME long
#endif

#if VEC == 1
typedef T TV;
#ifndef IS_COMPLEX
typedef TI TM;
#endif
#else
typedef PASTE(T_NAME, VEC) TV;
typedef PASTE(TM_NAME, VEC) TM;
#if VEC == 16
#define REVERSED(v) (v).sfedcba9876543210
#elif VEC == 8
#define REVERSED(v) (v).s76543210
#elif VEC == 4
#define REVERSED(v) (v).wzyx
#else
#define REVERSED(v) (v).yx
#endif
#define VLOAD PASTE(vload, VEC)
#define VSTORE PASTE(vstore, VEC)
#define TO(type) PASTE(convert_, PASTE(type, VEC))
#define TO_TV TO(T_NAME)
#endif

typedef union {
  TV vector;
  T lanes[VEC];
} Lanes;

// Loops over the first n lanes of a vector. A GPU's compiler keeps lanes in memory if their index is not a constant.
#ifdef IS_CPU
#define FIRST_LANES(l, n) for (int l = 0; l < (n); l++)
#else
#define FIRST_LANES(l, n) UNROLL for (int l = 0; l < VEC && l < (n); l++)
#endif

// Loads from, and stores to, an address that is aligned for one element. vloadN requires no more, and NVIDIA's GPUs
// then move one element at a time: so addresses that are multiples of the vector's size, as nearly all are, use a
// vector access. In programs with SPEC_ALIGNED all are (the host checks it); in others each access has a condition, and some
// compilers merge its two sides to accesses of single elements. CPUs and AMD's GPUs move whole vectors anyway.
#if VEC > 1
#if defined(IS_CPU) || defined(__AMDGCN__)
#define IS_ALIGNED(p, element) false
#elif defined(SPEC_ALIGNED)
#define IS_ALIGNED(p, element) true
#else
#define IS_ALIGNED(p, element) (((uintptr_t)(p) & (VEC * sizeof(element) - 1)) == 0)
#endif
#define VECTOR_AT(type, p) (*(__global PASTE(type, VEC) *)(p))
#define CONST_VECTOR_AT(type, p) (*(__global const PASTE(type, VEC) *)(p))
#define LOAD_RUN(type, p) (IS_ALIGNED(p, type) ? CONST_VECTOR_AT(type, p) : VLOAD(0, p))

// Without fp16, `half` can only be used in pointer types: a vector of halves is moved as bits.
INLINE PASTE(float, VEC) half_values(PASTE(ushort, VEC) bits) { return PASTE(vload_half, VEC)(0, (const half *)&bits); }
INLINE PASTE(ushort, VEC) half_bits(PASTE(float, VEC) v) {
  PASTE(ushort, VEC) bits;
  PASTE(PASTE(vstore_half, VEC), _rte)(v, 0, (half *)&bits);
  return bits;
}
#endif

// A store through a packed struct has the effect of vstoreN, which PoCL 3.1 splits: into four stores for a float16, and
// into sixteen, each with an extraction, for a ushort16.
#if VEC > 1
#define DEFINE_STORE(type)                                               \
  typedef struct __attribute__((packed, aligned(sizeof(type)))) {        \
    PASTE(type, VEC) v;                                                  \
  } PASTE(Unaligned_, type);                                             \
  INLINE void PASTE(put_, type)(__global type * p, PASTE(type, VEC) v) { \
    if (IS_NON_TEMPORAL(p, v)) {                                         \
      STORE_NON_TEMPORAL(p, PASTE(type, VEC), v);                        \
    } else if (IS_ALIGNED(p, type)) {                                    \
      VECTOR_AT(type, p) = v;                                            \
    } else {                                                             \
      ((__global PASTE(Unaligned_, type) *)p)->v = v;                    \
    }                                                                    \
  }
DEFINE_STORE(uchar)
DEFINE_STORE(ushort)
#ifdef IS_FLOAT
DEFINE_STORE(float)
#ifdef CLASS_D
DEFINE_STORE(double)
#endif
#endif
#if !defined(IS_FLOAT) || !defined(IS_CPU)
DEFINE_STORE(uint)
DEFINE_STORE(long)
#endif

// GPUs move halves as bits. On CPUs PoCL 3.1 compiles vstore_half8 as if its address were aligned to 16 bytes; if LLVM
// stores the converted vector with a separate instruction, an address without that alignment crashes the process:
// there, halves are stored as bits.
#ifdef IS_CPU
INLINE PASTE(float, VEC) load_halves(__global const half *p) { return PASTE(vload_half, VEC)(0, p); }
#define STORES_BITS(p) (((uintptr_t)(p) & 15) != 0)
#else
INLINE PASTE(float, VEC) load_halves(__global const half *p) {
  return half_values(LOAD_RUN(ushort, (__global const ushort *)p));
}
#define STORES_BITS(p) true
#endif
INLINE void store_halves(__global half *p, PASTE(float, VEC) v) {
  if (STORES_BITS(p)) put_ushort((__global ushort *)p, half_bits(v));
  else PASTE(PASTE(vstore_half, VEC), _rte)(v, 0, p);
}
#endif

// Elements i to i + VEC - 1 of a contiguous run. Dtypes that are rare in a class are loaded lane by lane: a case for
// each would double the build time of a generic program.
INLINED_IF_SPECIALISED TV load_vector(__global const uchar *p, long i, int dt) {
#if VEC == 1
  return load(p, i, dt);
#else
  switch (dt) {
#ifdef IS_FLOAT
    case DT_F32: return TO_TV(LOAD_RUN(float, (__global const float *)p + i));
    case DT_F16: return TO_TV(load_halves((__global const half *)p + i));
    case DT_BF16: return TO_TV(PASTE(as_float, VEC)(TO(uint)(LOAD_RUN(ushort, (__global const ushort *)p + i)) << 16));
#else
    case DT_I8: return TO_TV(LOAD_RUN(char, (__global const char *)p + i));
    case DT_I16: return TO_TV(LOAD_RUN(short, (__global const short *)p + i));
#endif
#ifdef CLASS_D
    case DT_F64: return LOAD_RUN(double, (__global const double *)p + i);
#endif
#ifdef CLASS_U
    case DT_U64: return LOAD_RUN(ulong, (__global const ulong *)p + i);
#endif
    case DT_U8: return TO_TV(LOAD_RUN(uchar, p + i));
    case DT_I32: return TO_TV(LOAD_RUN(int, (__global const int *)p + i));
    case DT_I64: return TO_TV(LOAD_RUN(long, (__global const long *)p + i));
    case DT_BOOL: return TO_TV(min(LOAD_RUN(uchar, p + i), (uchar)1));
  }
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = load(p, i + l, dt);
  return v.vector;
#endif
}

INLINED_IF_SPECIALISED void store_vector(__global uchar *p, long i, int dt, TV value) {
#if VEC == 1
  store(p, i, dt, value);
#else
  switch (dt) {
#ifdef IS_FLOAT
    case DT_F32: put_float((__global float *)p + i, TO(float)(value)); return;
    case DT_F16: store_halves((__global half *)p + i, TO(float)(value)); return;
    case DT_BF16: {
      PASTE(float, VEC) single = TO(float)(value);
      PASTE(uint, VEC) bits = PASTE(as_uint, VEC)(single);
      // Halfway values carry only if they round to an even number, as the last kept bit is or-ed to the first dropped
      // bit: one operation with three inputs, while adding it takes two. The upper halves are extracted with one
      // permutation.
      bits = (bits | ((bits >> 16) & 1u)) + 0x7fffu;
      bits = single != single ? (PASTE(uint, VEC))(0x7fc00000u) : bits;
      const PASTE(ushort, VEC) low = PASTE(as_ushort, VEC)(bits.lo), high = PASTE(as_ushort, VEC)(bits.hi);
      put_ushort((__global ushort *)p + i, (PASTE(ushort, VEC))(low.odd, high.odd));
      return;
    }
#ifndef IS_CPU
    // Lane by lane these would be stores of single bytes, as many bytes apart as a vector has lanes.
    case DT_U8:
    case DT_I8: put_uchar(p + i, TO(uchar)(TO(long)(value))); return;
    case DT_I16: put_ushort((__global ushort *)p + i, TO(ushort)(TO(long)(value))); return;
    case DT_I32: put_uint((__global uint *)p + i, TO(uint)(TO(long)(value))); return;
    case DT_I64: put_long((__global long *)p + i, TO(long)(value)); return;
#endif
#else
    case DT_U8: put_uchar(p + i, TO(uchar)(value)); return;
    case DT_I8: put_uchar(p + i, TO(uchar)(value)); return;
    case DT_I16: put_ushort((__global ushort *)p + i, TO(ushort)(value)); return;
    case DT_I32: put_uint((__global uint *)p + i, TO(uint)(value)); return;
    case DT_I64: put_long((__global long *)p + i, TO(long)(value)); return;
#endif
#ifdef CLASS_D
    case DT_F64: put_double((__global double *)p + i, value); return;
#endif
#ifdef CLASS_U
    case DT_U64: put_long((__global long *)p + i, TO(long)(value)); return;
#endif
    case DT_BOOL: {
#ifdef IS_CPU
      // LLVM would load a constant of ones under the mask. If no lane is set, as in isnan of finite values, such a load
      // never brings the constant's page in, and the processor suppresses a fault each time: six times as slow.
      volatile PASTE(uchar, VEC) is_set = TO(uchar)(value != 0);
#else
      const PASTE(uchar, VEC) is_set = TO(uchar)(value != 0);
#endif
      put_uchar(p + i, is_set & (uchar)1);
      return;
    }
  }
  Lanes v;
  v.vector = value;
  FIRST_LANES(l, VEC) store(p, i + l, dt, v.lanes[l]);
#endif
}

// n <= VEC elements at distances of `stride` bytes; the lanes past n are zero.
INLINED_IF_SPECIALISED TV load_lanes(__global const uchar *p, long stride, int n, int dt) {
  if (n == VEC && stride == dtype_size(dt)) return load_vector(p, 0, dt);
  Lanes v;
  if (n == VEC) {
    // Without the condition below, these become one gather.
    for (int l = 0; l < VEC; l++) v.lanes[l] = load_at(p + l * stride, dt);
  } else {
    for (int l = 0; l < VEC; l++) v.lanes[l] = l < n ? load_at(p + l * stride, dt) : FROM_REAL(0);
  }
  return v.vector;
}

INLINED_IF_SPECIALISED void store_lanes(__global uchar *p, long stride, int n, int dt, TV value) {
  if (n == VEC && stride == dtype_size(dt)) {
    store_vector(p, 0, dt, value);
    return;
  }
#if VEC > 1
  // A flipped output is stored in reverse.
  if (n == VEC && stride == -dtype_size(dt)) {
    store_vector(p + (VEC - 1) * stride, 0, dt, REVERSED(value));
    return;
  }
#endif
  Lanes v;
  v.vector = value;
  FIRST_LANES(l, n) store_at(p + l * stride, dt, v.lanes[l]);
}

// Elements i to i + VEC - 1 of a row of n; the lanes past its end hold `filler`.
INLINE TV load_part(__global const uchar *row, long i, long n, int dtype, T filler) {
  if (i + VEC <= n) return load_vector(row, i, dtype);
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = i + l < n ? load(row, i + l, dtype) : filler;
  return v.vector;
}

// Has the same condition as load_part, so that compilers evaluate it once for both.
INLINE void store_part(__global uchar *row, long i, long n, int dtype, TV value) {
  if (i + VEC <= n) {
    store_vector(row, i, dtype, value);
    return;
  }
  Lanes v;
  v.vector = value;
  FIRST_LANES(l, n - i) store(row, i + l, dtype, v.lanes[l]);
}

// Byte offset of position `index` of one operand, and of run `run`, which excludes the innermost dimension.
#define layout_offset(layout, operand, index) offset_from(layout, operand, 0, index)
#define layout_run_offset(layout, operand, run) offset_from(layout, operand, 1, run)

// Tasks [first, last) of this work-group or work-item: contiguous blocks keep a CPU core in one region of memory. On
// GPUs nearly all launches have an item, or a group, for each task: these need no division.
#define SHARE_TASKS(tasks, part, parts, first, last)         \
  long first = (part), last = min(first + 1, (long)(tasks)); \
  if (HAS_SHARES(tasks, parts)) {                            \
    first = (tasks) * (long)(part) / (long)(parts);          \
    last = (tasks) * ((long)(part) + 1) / (long)(parts);     \
  }
#ifdef IS_CPU
#define HAS_SHARES(tasks, parts) true
#else
#define HAS_SHARES(tasks, parts) ((tasks) > (long)(parts))
#endif
#define GROUP_TASKS(tasks, first, last) SHARE_TASKS(tasks, get_group_id(0), get_num_groups(0), first, last)
#define ITEM_TASKS(tasks, first, last) SHARE_TASKS(tasks, get_global_id(0), get_global_size(0), first, last)

// Returns the first element of a split of `length` elements. It is a multiple of VEC: if the row is aligned, the split
// is aligned too.
INLINE long split_begin(long length, long split, long splits) {
  return split == splits ? length : length / VEC * split / splits * VEC;
}

#ifdef IS_FLOAT
// The larger by lane, in one instruction, for the weights of a softmax: a NaN is not selected, but still reaches every
// result through the sum.
INLINE TV larger(TV a, TV b) { return b > a ? b : a; }
#endif

// The sum of all lanes, pairwise, so that few additions depend on others.
INLINE T lanes_sum(TV v) {
#if VEC == 1
  return v;
#else
  UNROLL for (int n = VEC / 2; n > 0; n /= 2) v = (TV)(v.even + v.odd, v.even + v.odd);
  return v.s0;
#endif
}

// Sum and maximum of `value` over the work-group, for each of its items; NaN wins the maximum. `shared` holds LSIZE
// values, and is null if LSIZE is 1.
#ifdef IS_FLOAT
#if LSIZE > 1
#define GROUP_SHARED(name) __local T name[LSIZE]
INLINE T group_sum(T value, __local T *shared) {
  int item = get_local_id(0);
  shared[item] = value;
  for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) shared[item] += shared[item + half_size];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  value = shared[0];
  // The next use must not overwrite shared[0] before every item has read it.
  barrier(CLK_LOCAL_MEM_FENCE);
  return value;
}
INLINE T group_max(T value, __local T *shared) {
  int item = get_local_id(0);
  shared[item] = value;
  for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) {
      T other = shared[item + half_size];
      if (other > shared[item] || other != other) shared[item] = other;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  value = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return value;
}
#else
#define GROUP_SHARED(name) __local T *name = 0
INLINE T group_sum(T value, __local T *shared) { return value; }
INLINE T group_max(T value, __local T *shared) { return value; }
#endif

INLINE T lanes_max(TV v) {
  Lanes lanes;
  lanes.vector = v;
  T top = lanes.lanes[0];
  for (int l = 1; l < VEC; l++) top = (lanes.lanes[l] > top || lanes.lanes[l] != lanes.lanes[l]) ? lanes.lanes[l] : top;
  return top;
}
#endif
