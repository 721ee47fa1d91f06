// Pointwise ops: out[i] = f(in0[i], in1[i] ...), with up to two, three or four inputs (ARITY). Inputs that a row lacks
// are passed as scalars. A row with two results has a case for each, and separate programs (OUTPUTS).
//
// `op` selects f in a switch, which the build generates from native_functions.yaml and inserts at the marker line
// below: one `case` for each row that shares the program and has an expression for this class.
//
// An expression can use
//   a, b, c, d          the inputs, each a TV
//   alpha, beta ...     the stub's scalar parameters by the row's names for them, each one T for all lanes
//   DTYPE               the dtype that the result is rounded to: the one that PyTorch promoted the inputs to
//   C B NZ SEL ANY      see notation.cl; elementary.cl, power.cl and math.cl have what OpenCL C lacks
// and must be right for every width: `a * 2` and `a < b` are right for TV and T, but an `if` or `?:` on a comparison of
// TV is not (SEL is), and a constant argument of a function is written C(0), not 0.
//
// Each work-item computes VEC consecutive elements, or tiles of them. Inputs are dense, one element for all, or a value
// passed with the launch: a Python number never becomes a buffer.

#ifndef ARITY
#define ARITY 4
#endif
#ifndef OUTPUTS
#define OUTPUTS 1
#endif

// How pointwise_dense reads an input: two bits of `sources` each, in0 lowest.
#define SOURCE_DENSE 0
#define SOURCE_ONE 1
#define SOURCE_VALUE 2

// All arguments of a launch but its buffers; the outputs are the first operands. mod.rs writes the same struct. It is
// one argument because each argument costs time: thirteen of them took a third of the time of a small launch.
#ifdef SPEC_INT
typedef long Passed;  // as in the generic program, which takes the same struct
#else
typedef T Passed;
#endif
typedef struct {
  Passed parameters[4];  // of the stub
  Passed values[4];  // of inputs whose source is SOURCE_VALUE
  long n;
  ulong offsets[MAX_OPERANDS];
  long tasks;  // of pointwise_strided
  int dtypes[MAX_OPERANDS];
  int dtype;  // of the result before it is stored: an output from the caller may have another dtype
  int op;
  int sources;
  int casts;  // bit k: in`k` is cast to `common` first
  int common;  // the dtype that PyTorch promoted the inputs to
  int tile_vectors;
  int tile_rows;
  int rows_at_once;  // of dimension 1, that a vector covers if rows are short
} Launch;

#ifdef SPEC_OP
#define OP SPEC_OP
#else
#define OP launch.op
#endif
#ifdef SPEC_SOURCES
#define SOURCES SPEC_SOURCES
#else
#define SOURCES launch.sources
#endif
// A specialised program without casts lacks the constant.
#ifdef SPEC_CASTS
#define CASTS SPEC_CASTS
#define COMMON SPEC_COMMON
#elif defined(SPEC_OP)
#define CASTS 0
#define COMMON 0
#else
#define CASTS launch.casts
#define COMMON launch.common
#endif
#ifdef SPEC_NDIM
#define NDIM SPEC_NDIM
#else
#define NDIM layout.ndim
#endif
#ifdef SPEC_DTYPE_OUT
#define DTYPE_OUT SPEC_DTYPE_OUT
#else
#define DTYPE_OUT launch.dtypes[0]
#endif
#ifdef SPEC_DTYPE_OUT1
#define DTYPE_OUT1 SPEC_DTYPE_OUT1
#else
#define DTYPE_OUT1 launch.dtypes[1]
#endif
#ifdef SPEC_DTYPE
#define DTYPE_RESULT SPEC_DTYPE
#else
#define DTYPE_RESULT launch.dtype
#endif
#ifdef SPEC_DTYPE0
#define DTYPE0 SPEC_DTYPE0
#else
#define DTYPE0 launch.dtypes[OUTPUTS]
#endif
#ifdef SPEC_DTYPE1
#define DTYPE1 SPEC_DTYPE1
#else
#define DTYPE1 launch.dtypes[OUTPUTS + 1]
#endif
#ifdef SPEC_DTYPE2
#define DTYPE2 SPEC_DTYPE2
#else
#define DTYPE2 launch.dtypes[OUTPUTS + 2]
#endif
#ifdef SPEC_DTYPE3
#define DTYPE3 SPEC_DTYPE3
#else
#define DTYPE3 launch.dtypes[OUTPUTS + 3]
#endif

//@FUNCTIONS@

static inline TV apply(int op, int DTYPE, TV a, TV b, TV c, TV d, T s0, T s1, T s2, T s3) {
  switch (op) {
    //@CASES@
  }
  return a;
}

// Input k in the promoted dtype, as in the CPU's TensorIterator: integers are wrapped, floats rounded.
#ifdef SPEC_OP
INLINE TV cast_to(TV x, int dtype) { return rounded(x, dtype); }
#else
OUTLINED TV cast_to(TV x, int dtype) { return rounded(x, dtype); }
#endif
#define CAST(x, k) \
  if (CASTS >> k & 1) x = cast_to(x, COMMON);
#define CAST_INPUTS CAST(a, 0) CAST(b, 1) CAST(c, 2) CAST(d, 3)

// The value stored in an output of dtype `out`.
INLINE TV result_of(int op, int dtype, int out, TV a, TV b, TV c, TV d, T s0, T s1, T s2, T s3) {
  const TV result = apply(op, dtype, a, b, c, d, s0, s1, s2, s3);
  return dtype == out ? result : rounded(result, dtype);
}

// Prefetches 32 cache lines ahead in specialised kernels for CPUs with one input in memory. While a processor computes
// a function of 30 instructions, it sees few vectors ahead: with data outside its own caches, `exp` takes a quarter
// less time with prefetches, `neg` 5 % less, and a sum of two tensors 15 % more
// (`python -m benchmarks "exp f32 dense"`). OpenCL's prefetch does nothing with PoCL 3.1, clang's does; other drivers
// do without.
#define PREFETCH(p)
#if defined(SPEC_OP) && ARITY == 2 && (SPEC_SOURCES >> 2) == SOURCE_VALUE && VEC >= 8 && defined(HAS_CLANG_BUILTINS)
#if __has_builtin(__builtin_prefetch)
#undef PREFETCH
#define PREFETCH(p) __builtin_prefetch((p) + 2048)
#endif
#endif

// Elements first, first + 1 ... of a dense operand of n, which may end before the vector does unless `is_whole`. Lanes
// past the end repeat the last element.
INLINE TV load_dense(__global const uchar *p, long first, long n, bool is_whole, int dt, int source, T value) {
  if (source == SOURCE_VALUE) return (TV)(value);
  if (source == SOURCE_ONE) return (TV)(load_at(p, dt));
#if VEC > 1
  if (!is_whole && first + VEC > n) {
    T lanes[VEC];
    for (int k = 0; k < VEC; k++) lanes[k] = load(p, min(first + k, n - 1), dt);
    return VLOAD(0, lanes);
  }
#endif
  PREFETCH(p + first * dtype_size(dt));
  return load_vector(p, first, dt);
}

INLINE void store_dense(__global uchar *p, long first, long n, bool is_whole, int dt, TV v) {
#if VEC > 1
  if (!is_whole && first + VEC > n) {
    T lanes[VEC];
    VSTORE(v, 0, lanes);
    for (int k = 0; k < VEC && first + k < n; k++) store(p, first + k, dt, lanes[k]);
    return;
  }
#endif
  store_vector(p, first, dt, v);
}

#if ARITY == 2
#define INPUTS(EACH) \
  EACH(0)            \
    EACH(1)
#elif ARITY == 3
#define INPUTS(EACH) \
  EACH(0)            \
    EACH(1)          \
      EACH(2)
#else
#define INPUTS(EACH) \
  EACH(0)            \
    EACH(1)          \
      EACH(2)        \
        EACH(3)
#endif
#define DECLARED(k) , __global const uchar *in##k
#define NAMED(k) , in##k
#if OUTPUTS == 2
#define SECOND_OUT , __global uchar *out1
#define SECOND_OUT_NAME , out1
#else
#define SECOND_OUT
#define SECOND_OUT_NAME
#endif
#define OPERANDS __global uchar *out SECOND_OUT INPUTS(DECLARED)
#define OPERAND_NAMES out SECOND_OUT_NAME INPUTS(NAMED)

#define PARAMETERS launch.parameters[0], launch.parameters[1], launch.parameters[2], launch.parameters[3]

INLINE void compute_dense(Launch launch, OPERANDS, long first, bool is_whole) {
  const long n = launch.n;
  TV a = C(0), b = C(0), c = C(0), d = C(0);
#define LOAD(k, DTYPE) \
  load_dense(in##k + launch.offsets[OUTPUTS + k], first, n, is_whole, DTYPE, (SOURCES >> (2 * k)) & 3, launch.values[k])
  a = LOAD(0, DTYPE0);
  b = LOAD(1, DTYPE1);
#if ARITY >= 3
  c = LOAD(2, DTYPE2);
#endif
#if ARITY >= 4
  d = LOAD(3, DTYPE3);
#endif
#undef LOAD
  CAST_INPUTS
  store_dense(out + launch.offsets[0], first, n, is_whole, DTYPE_OUT,
              result_of(OP, DTYPE_RESULT, DTYPE_OUT, a, b, c, d, PARAMETERS));
#if OUTPUTS == 2
  store_dense(out1 + launch.offsets[1], first, n, is_whole, DTYPE_OUT1,
              result_of(OP + OUTPUT_CASES, DTYPE_OUT1, DTYPE_OUT1, a, b, c, d, PARAMETERS));
#endif
}

// Each operand is contiguous with n elements, or a single element.
__kernel void pointwise_dense(Launch launch, OPERANDS) {
  const long first = (long)get_global_id(0) * VEC;
#ifdef SPEC_OP
  // The condition is the same for all items, so a compiler that turns work-groups into loops makes two loops. The loop
  // for whole groups needs no registers for the ends of operands: `abs` of bf16 takes a fifth less time, GELU a tenth.
  if ((long)(get_group_id(0) + 1) * (long)get_local_size(0) * VEC <= launch.n) {
    compute_dense(launch, OPERAND_NAMES, first, true);
    return;
  }
#endif
  if (first < launch.n) compute_dense(launch, OPERAND_NAMES, first, false);
}

// Byte offsets of the lanes of a vector that covers several short rows.
typedef struct {
  long lanes[VEC];
  bool is_line;  // the lanes are evenly spaced, like elements of one row
} LaneOffsets;

static inline LaneOffsets lane_offsets(long row, long stride, long row_stride) {
  LaneOffsets offsets;
  for (int l = 0; l < VEC; l++) offsets.lanes[l] = l / row * row_stride + l % row * stride;
  offsets.is_line = row_stride == row * stride;
  return offsets;
}

// VEC elements of one row, or of several, of which `count` exist.
static inline TV load_strided(__global const uchar *p, long stride, const LaneOffsets *offsets, int rows, int count,
                              int dt, int source, T value) {
  if (source == SOURCE_VALUE) return (TV)(value);
  if (rows == 1 || offsets->is_line) return stride == 0 ? (TV)(load_at(p, dt)) : load_lanes(p, stride, count, dt);
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = load_at(p + offsets->lanes[min(l, count - 1)], dt);
  return v.vector;
}

static inline void store_strided(__global uchar *p, long stride, const LaneOffsets *offsets, int rows, int count,
                                 int dt, TV value) {
  if (rows == 1 || offsets->is_line) {
    store_lanes(p, stride, count, dt, value);
    return;
  }
  Lanes v;
  v.vector = value;
  for (int l = 0; l < count; l++) store_at(p + offsets->lanes[l], dt, v.lanes[l]);
}

// Whole vectors of a row, in specialised programs for CPUs: if operands are dense along it, or repeat one element,
// which is loaded once, no checks are needed for each vector.
#if defined(SPEC_OP) && defined(IS_CPU) && OUTPUTS == 1 && ARITY <= 3
#if ARITY == 2
#define EACH_INPUT(EACH) \
  EACH(0, DTYPE0)        \
    EACH(1, DTYPE1)
#define THIRD C(0)
#else
#define EACH_INPUT(EACH) \
  EACH(0, DTYPE0)        \
    EACH(1, DTYPE1)      \
      EACH(2, DTYPE2)
#define THIRD next2
#endif
#define IS_VALUE(k) (((SOURCES >> (2 * k)) & 3) == SOURCE_VALUE)
#define REPEATS(k) (IS_VALUE(k) || layout.strides[1 + k][0] == 0)
#define IS_DENSE(k, DTYPE) (layout.strides[k][0] == dtype_size(DTYPE))
#define AND_IS_PLAIN(k, DTYPE) &&(REPEATS(k) || IS_DENSE(1 + k, DTYPE))
#define ROW_OF(k) (bases[k] + y * layout.strides[k][1])
#define ROW(k, DTYPE)                                         \
  __global const uchar *const row##k = in##k + ROW_OF(1 + k); \
  const TV one##k = IS_VALUE(k) ? (TV)(launch.values[k]) : REPEATS(k) ? (TV)(load_at(row##k, DTYPE)) : (TV)(C(0));
#define NEXT(k, DTYPE) const TV next##k = REPEATS(k) ? one##k : load_vector(row##k, x * VEC, DTYPE);
// Advances x over the row's whole vectors, and leaves the rest to the caller.
#define ROW_OF_WHOLE_VECTORS                                                        \
  if (rows == 1 && IS_DENSE(0, DTYPE_OUT) EACH_INPUT(AND_IS_PLAIN)) {               \
    EACH_INPUT(ROW)                                                                 \
    for (const long whole = min(x_last, layout.sizes[0] / VEC); x < whole; x++) {   \
      EACH_INPUT(NEXT)                                                              \
      TV a = next0, b = next1, c = THIRD, d = C(0);                                 \
      CAST_INPUTS                                                                   \
      store_vector(out + ROW_OF(0), x * VEC, DTYPE_OUT,                             \
                   result_of(OP, DTYPE_RESULT, DTYPE_OUT, a, b, c, d, PARAMETERS)); \
    }                                                                               \
  }
#else
#define ROW_OF_WHOLE_VECTORS
#endif

// Any strides; operand 0 of the layout is the output. `sources` marks SOURCE_VALUE only: stride 0 repeats. A task is a
// tile of `tile_rows * rows_at_once` positions of dimension 1 by `tile_vectors` vectors along dimension 0. On CPUs an
// item takes whole tiles. On GPUs it takes one vector, which has one element if rows are not aligned: neighbouring
// items take neighbours of a row, or, if a tile has many rows, a group takes a tile. Transposed operands are then read
// in lines as long as the tile is high, and the group uses all of each line.
__kernel void pointwise_strided(Launch launch, Layout layout, OPERANDS) {
  const long vectors = (layout.sizes[0] + VEC - 1) / VEC;
  const long across = (vectors + launch.tile_vectors - 1) / launch.tile_vectors;
#ifdef IS_CPU
  const int rows = launch.rows_at_once;
#else
  // On GPUs, a vector lies within a row.
  const int rows = 1;
#endif
  const long tile_rows = (long)launch.tile_rows * rows, down = (layout.sizes[1] + tile_rows - 1) / tile_rows;
  LaneOffsets lanes[ARITY + OUTPUTS];
  if (rows > 1)
    for (int k = 0; k < ARITY + OUTPUTS; k++)
      lanes[k] = lane_offsets(layout.sizes[0], layout.strides[k][0], layout.strides[k][1]);
#ifdef IS_CPU
  ITEM_TASKS(launch.tasks, first, last);
#else
  const bool shares = launch.tile_rows > 1;
  const long first = shares ? get_group_id(0) : get_global_id(0), last = min(first + 1, launch.tasks);
#endif
  for (long task = first; task < last; task++) {
    long rest = task / across, bases[ARITY + OUTPUTS];
    long x_first = (task - rest * across) * launch.tile_vectors, y_first = rest % down * tile_rows;
    long x_last = min(vectors, x_first + launch.tile_vectors), y_last = min(layout.sizes[1], y_first + tile_rows);
    rest /= down;
#ifndef IS_CPU
    if (shares) {
      x_first += get_local_id(0) % launch.tile_vectors;
      x_last = min(x_last, x_first + 1);
      y_first += get_local_id(0) / launch.tile_vectors * rows;
      y_last = min(y_last, y_first + rows);
    }
#endif
    for (int k = 0; k < ARITY + OUTPUTS; k++) bases[k] = launch.offsets[k];
    FOR_DIMS(j, 2, NDIM) {
      const long index = rest % layout.sizes[j];
      rest /= layout.sizes[j];
      for (int k = 0; k < ARITY + OUTPUTS; k++) bases[k] += index * layout.strides[k][j];
    }
    for (long y = y_first; y < y_last; y += rows) {
      long x = x_first;
      ROW_OF_WHOLE_VECTORS
      for (; x < x_last; x++) {
        const int count = (int)min((long)VEC, layout.sizes[0] * min((long)rows, y_last - y) - x * VEC);
        TV a = C(0), b = C(0), c = C(0), d = C(0);
#define OFFSET(k) (bases[k] + y * layout.strides[k][1] + x * VEC * layout.strides[k][0])
#define LOAD(k, DTYPE)                                                                                               \
  load_strided(in##k + OFFSET(OUTPUTS + k), layout.strides[OUTPUTS + k][0], &lanes[OUTPUTS + k], rows, count, DTYPE, \
               (SOURCES >> (2 * k)) & 3, launch.values[k])
        a = LOAD(0, DTYPE0);
        b = LOAD(1, DTYPE1);
#if ARITY >= 3
        c = LOAD(2, DTYPE2);
#endif
#if ARITY >= 4
        d = LOAD(3, DTYPE3);
#endif
#undef LOAD
        CAST_INPUTS
        store_strided(out + OFFSET(0), layout.strides[0][0], &lanes[0], rows, count, DTYPE_OUT,
                      result_of(OP, DTYPE_RESULT, DTYPE_OUT, a, b, c, d, PARAMETERS));
#if OUTPUTS == 2
        store_strided(out1 + OFFSET(1), layout.strides[1][0], &lanes[1], rows, count, DTYPE_OUT1,
                      result_of(OP + OUTPUT_CASES, DTYPE_OUT1, DTYPE_OUT1, a, b, c, d, PARAMETERS));
#endif
#undef OFFSET
      }
    }
  }
}
