// Vectors of the compute type, for kernels whose inner loop runs along contiguous elements.
//
// A work-item takes VEC neighbouring elements at a time. On CPUs VEC fills a SIMD register, because
// drivers do not vectorise across work-items that loop; on GPUs it fills one 16-byte load. LSIZE is the
// number of work-items that share one reduction: 1 on CPUs, where every cooperation costs more than it
// saves and the code for it compiles away.

#ifndef LSIZE
#define LSIZE 1
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
#define VLOAD PASTE(vload, VEC)
#define VSTORE PASTE(vstore, VEC)
#define TO(type) PASTE(convert_, PASTE(type, VEC))
#define TO_TV TO(T_NAME)
#endif

typedef union {
  TV vector;
  T lanes[VEC];
} Lanes;

// Elements i to i + VEC - 1 of a contiguous run. Dtypes that rarely meet a class go lane by lane: a case for
// each would double the time a generic program takes to build.
INLINE TV load_vector(__global const uchar *p, long i, int dt) {
#if VEC == 1
  return load(p, i, dt);
#else
  switch (dt) {
#ifdef IS_FLOAT
    case DT_F32: return TO_TV(VLOAD(0, (__global const float *)p + i));
    case DT_F16: return TO_TV(PASTE(vload_half, VEC)(0, (__global const half *)p + i));
    case DT_BF16:
      return TO_TV(PASTE(as_float, VEC)(TO(uint)(VLOAD(0, (__global const ushort *)p + i)) << 16));
#else
    case DT_I8: return TO_TV(VLOAD(0, (__global const char *)p + i));
    case DT_I16: return TO_TV(VLOAD(0, (__global const short *)p + i));
#endif
#ifdef CLASS_D
    case DT_F64: return VLOAD(0, (__global const double *)p + i);
#endif
    case DT_U8: return TO_TV(VLOAD(0, p + i));
    case DT_I32: return TO_TV(VLOAD(0, (__global const int *)p + i));
    case DT_I64: return TO_TV(VLOAD(0, (__global const long *)p + i));
    case DT_BOOL: return TO_TV(min(VLOAD(0, p + i), (uchar)1));
  }
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = load(p, i + l, dt);
  return v.vector;
#endif
}

INLINE void store_vector(__global uchar *p, long i, int dt, TV value) {
#if VEC == 1
  store(p, i, dt, value);
#else
  switch (dt) {
#ifdef IS_FLOAT
    case DT_F32: VSTORE(TO(float)(value), 0, (__global float *)p + i); return;
    case DT_F16: PASTE(PASTE(vstore_half, VEC), _rte)(TO(float)(value), 0, (__global half *)p + i); return;
    case DT_BF16: {
      PASTE(uint, VEC) bits = PASTE(as_uint, VEC)(TO(float)(value));
      PASTE(uint, VEC) rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      bits = (bits & 0x7fffffffu) > 0x7f800000u ? (PASTE(uint, VEC))(0x7fc0u) : rounded;
      VSTORE(TO(ushort)(bits), 0, (__global ushort *)p + i);
      return;
    }
#else
    case DT_U8: VSTORE(TO(uchar)(value), 0, p + i); return;
    case DT_I8: VSTORE(TO(char)(value), 0, (__global char *)p + i); return;
    case DT_I16: VSTORE(TO(short)(value), 0, (__global short *)p + i); return;
    case DT_I32: VSTORE(TO(int)(value), 0, (__global int *)p + i); return;
    case DT_I64: VSTORE(value, 0, (__global long *)p + i); return;
#endif
#ifdef CLASS_D
    case DT_F64: VSTORE(value, 0, (__global double *)p + i); return;
#endif
    case DT_BOOL: VSTORE(TO(uchar)(value != 0) & (uchar)1, 0, p + i); return;
  }
  Lanes v;
  v.vector = value;
  for (int l = 0; l < VEC; l++) store(p, i + l, dt, v.lanes[l]);
#endif
}

// n <= VEC elements that lie `stride` bytes apart; the lanes past n are zero.
INLINE TV load_lanes(__global const uchar *p, long stride, int n, int dt) {
  if (n == VEC && stride == dtype_size(dt)) return load_vector(p, 0, dt);
  Lanes v;
  if (n == VEC) {
    // Without the condition below these become one gather.
    for (int l = 0; l < VEC; l++) v.lanes[l] = load_at(p + l * stride, dt);
  } else {
    for (int l = 0; l < VEC; l++) v.lanes[l] = l < n ? load_at(p + l * stride, dt) : FROM_REAL(0);
  }
  return v.vector;
}

INLINE void store_lanes(__global uchar *p, long stride, int n, int dt, TV value) {
  if (n == VEC && stride == dtype_size(dt)) {
    store_vector(p, 0, dt, value);
    return;
  }
  Lanes v;
  v.vector = value;
  for (int l = 0; l < n; l++) store_at(p + l * stride, dt, v.lanes[l]);
}

// Elements i to i + VEC - 1 of a row of n; the lanes past its end hold `filler`.
INLINE TV load_part(__global const uchar *row, long i, long n, int dtype, T filler) {
  if (i + VEC <= n) return load_vector(row, i, dtype);
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = i + l < n ? load(row, i + l, dtype) : filler;
  return v.vector;
}

INLINE void store_part(__global uchar *row, long i, long n, int dtype, TV value) {
  int size = dtype_size(dtype);
  store_lanes(row + i * size, size, (int)min(n - i, (long)VEC), dtype, value);
}

// Byte offset of position `index` of one operand.
INLINE long layout_offset(const Layout *layout, int operand, long index) {
  long offset = 0;
  int last = layout->ndim - 1;
  for (int d = 0; d < last; d++) {
    long size = layout->sizes[d];
    offset += index % size * layout->strides[operand][d];
    index /= size;
  }
  return last < 0 ? 0 : offset + index * layout->strides[operand][last];
}

// The same with the innermost dimension left out: where run `run` of a layout begins.
INLINE long layout_run_offset(const Layout *layout, int operand, long run) {
  long offset = 0;
  int last = layout->ndim - 1;
  for (int d = 1; d < last; d++) {
    long size = layout->sizes[d];
    offset += run % size * layout->strides[operand][d];
    run /= size;
  }
  return last < 1 ? 0 : offset + run * layout->strides[operand][last];
}

// Tasks [first, last) of this work-group or work-item: contiguous blocks keep a CPU core in one region of memory.
#define SHARE_TASKS(tasks, part, parts, first, last)            \
  long first = (tasks) * (long)(part) / (long)(parts);          \
  long last = (tasks) * ((long)(part) + 1) / (long)(parts)
#define GROUP_TASKS(tasks, first, last) SHARE_TASKS(tasks, get_group_id(0), get_num_groups(0), first, last)
#define ITEM_TASKS(tasks, first, last) SHARE_TASKS(tasks, get_global_id(0), get_global_size(0), first, last)

// Sum and maximum of `value` over the work-group, for every item of it; NaN wins the maximum. `shared` holds LSIZE
// values, and null where LSIZE is 1.
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

INLINE T lanes_sum(TV v) {
  Lanes lanes;
  lanes.vector = v;
  T sum = lanes.lanes[0];
  for (int l = 1; l < VEC; l++) sum += lanes.lanes[l];
  return sum;
}

INLINE T lanes_max(TV v) {
  Lanes lanes;
  lanes.vector = v;
  T top = lanes.lanes[0];
  for (int l = 1; l < VEC; l++) top = (lanes.lanes[l] > top || lanes.lanes[l] != lanes.lanes[l]) ? lanes.lanes[l] : top;
  return top;
}
#endif
