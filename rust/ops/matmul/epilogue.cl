// Epilogue of every matmul: out = activation(alpha * A B + beta * bias).
//
// `bias` is a matrix (beta * C of BLAS); the bias of a linear layer has stride 0 for its rows, or its columns.
//
// If FUSED is defined, results go to functions that torch.compile has generated (python/torch_opencl/inductor/
// layout/epilogue_source.py), with their position in the layout of `out`; nothing is stored to `out` itself:
//   fused_one(const Fused *, long position, float value), and on CPUs where VEC is 16
//   fused_lanes(const Fused *, long position, float16 values) for consecutive positions.
// The generated source also defines FUSED_PARAMETERS, the parameters that it adds to kernels, and a `Fused` of them.
#ifndef FUSED
#define FUSED_PARAMETERS
#endif

typedef struct {
  T alpha;
  T beta;
  bool has_bias;
  __global const uchar *bias;
  int bias_dtype;
  const Matrix *bias_layout;
  __global uchar *out;
  int out_dtype;
  const Matrix *out_layout;
#ifdef FUSED
  long first;  // position of the batch's first result
  Fused fused;
#endif
} Epilogue;

#ifdef SPEC_DTYPE1
#define OUT_DTYPE_OF(e) SPEC_DTYPE1
#else
#define OUT_DTYPE_OF(e) (e)->out_dtype
#endif
#ifdef SPEC_DTYPE2
#define BIAS_DTYPE_OF(e) SPEC_DTYPE2
#else
#define BIAS_DTYPE_OF(e) (e)->bias_dtype
#endif

#define EPILOGUE_ARGUMENTS                                                                                          \
  T alpha, T beta, int has_bias, __global const uchar *bias, ulong bias_offset, int bias_dtype, Matrix bias_layout, \
      __global uchar *out, ulong out_offset, int out_dtype, Matrix out_layout

// The epilogue of a kernel with EPILOGUE_ARGUMENTS. Partial results are `part_stride` elements apart, and are added
// to in place.
#define EPILOGUE(batch, part, part_stride)                                                                      \
  {alpha,                                                                                                       \
   beta,                                                                                                        \
   has_bias != 0,                                                                                               \
   bias + bias_offset + ((batch) * bias_layout.batch_stride + (part) * (part_stride)) * dtype_size(BIAS_DTYPE), \
   BIAS_DTYPE,                                                                                                  \
   &bias_layout,                                                                                                \
   out + out_offset + ((batch) * out_layout.batch_stride + (part) * (part_stride)) * dtype_size(OUT_DTYPE),     \
   OUT_DTYPE,                                                                                                   \
   &out_layout FUSED_VALUES(batch)}
#ifdef FUSED
#define FUSED_VALUES(batch) , (batch) * out_layout.batch_stride, FUSED_OPERANDS
#else
#define FUSED_VALUES(batch)
#endif

static inline T scale(T alpha, T x) {
#ifdef IS_COMPLEX
  return multiply(alpha, x);
#else
  return alpha * x;
#endif
}

// Stores a result, and VEC of them in neighbouring columns, at their position in `out`.
static inline void store_result(const Epilogue *e, long i, T value) {
#ifdef FUSED
  fused_one(&e->fused, e->first + i, value);
#else
  store(e->out, i, OUT_DTYPE_OF(e), value);
#endif
}

#ifndef IS_COMPLEX
static inline void store_results(const Epilogue *e, long i, TV values) {
#if !defined(FUSED)
  if (OUT_DTYPE_OF(e) == R_DTYPE) STORE_UNALIGNED(values, (__global R *)e->out + i);
  else store_vector(e->out, i, OUT_DTYPE_OF(e), values);
#elif defined(IS_CPU) && VEC == 16
  fused_lanes(&e->fused, e->first + i, values);
#else
  Lanes lanes;
  lanes.vector = values;
  for (int l = 0; l < VEC; ++l) fused_one(&e->fused, e->first + i + l, lanes.lanes[l]);
#endif
}
#endif

// Stores any columns, in runs in which both `out` and `bias` are evenly spaced.
static inline void store_elements(const Epilogue *e, const T *values, int pitch, long row, long column, int rows,
                                  int columns) {
  const Axis *out_columns = &e->out_layout->columns, *bias_columns = &e->bias_layout->columns;
  Walk out_walk = walk_from(out_columns, column), bias_walk = walk_from(bias_columns, column);
  for (int c = 0; c < columns;) {
    int run = (int)min((long)(columns - c), out_walk.left);
    if (e->has_bias) run = (int)min((long)run, bias_walk.left);
    for (int r = 0; r < rows; ++r) {
      const T *from = values + r * pitch + c;
      const long out = axis_offset(&e->out_layout->rows, row + r) + out_walk.offset;
      const long out_step = out_columns->strides[0];
#ifndef FUSED
      if (OUT_DTYPE_OF(e) == T_DTYPE && !e->has_bias) {
        __global T *to = (__global T *)e->out + out;
        for (int i = 0; i < run; ++i) to[i * out_step] = ACTIVATE(scale(e->alpha, from[i]));
        continue;
      }
#endif
      const long bias = axis_offset(&e->bias_layout->rows, row + r) + bias_walk.offset;
      for (int i = 0; i < run; ++i) {
        T v = scale(e->alpha, from[i]);
        if (e->has_bias) v += scale(e->beta, load_one(e->bias, bias + i * bias_columns->strides[0], BIAS_DTYPE_OF(e)));
        store_result(e, out + i * out_step, ACTIVATE(v));
      }
    }
    c += run;
    walk_on(out_columns, &out_walk, run);
    walk_on(bias_columns, &bias_walk, run);
  }
}

#ifndef IS_COMPLEX
// Stores `vectors` vectors of columns that are dense in `out`; `bias` is dense too, or has one value per row.
static inline void store_vectors(const Epilogue *e, const T *values, int pitch, long row, long column, int rows,
                                 int vectors, bool one_value) {
  const long out_column = axis_offset(&e->out_layout->columns, column);
  const long bias_column = e->has_bias ? axis_offset(&e->bias_layout->columns, column) : 0;
  for (int r = 0; r < rows; ++r) {
    const long out = axis_offset(&e->out_layout->rows, row + r) + out_column;
    const long bias = e->has_bias ? axis_offset(&e->bias_layout->rows, row + r) + bias_column : 0;
    TV added = (TV)(e->has_bias && one_value ? e->beta * load(e->bias, bias, BIAS_DTYPE_OF(e)) : 0);
    for (int v = 0; v < vectors; ++v) {
      if (e->has_bias && !one_value) added = e->beta * load_dense(e->bias, bias + v * VEC, BIAS_DTYPE_OF(e));
      const TV sum = e->alpha * LOAD_PRIVATE(values + r * pitch + v * VEC) + added;
      store_results(e, out + v * VEC, ACTIVATE_VECTOR(sum));
    }
  }
}

// Stores BLOCK rows of a transposed result, dense in `out`; `bias` is dense too, or has one value per column.
static inline void store_blocks(const Epilogue *e, const T *values, int pitch, long row, long column, int columns,
                                bool one_value) {
  const long out_row = axis_offset(&e->out_layout->rows, row);
  const long bias_row = e->has_bias ? axis_offset(&e->bias_layout->rows, row) : 0;
  for (int c = 0; c < columns; ++c) {
    union {
      RB vector;
      R lanes[BLOCK];
    } block;
  UNROLL for (int r = 0; r < BLOCK; ++r) block.lanes[r] = values[r * pitch + c];
    RB value = e->alpha * block.vector;
    if (e->has_bias) {
      const long bias = bias_row + axis_offset(&e->bias_layout->columns, column + c);
      value += e->beta * (one_value ? (RB)(load(e->bias, bias, BIAS_DTYPE_OF(e)))
                          : load_block(e->bias, bias, BIAS_DTYPE_OF(e)));
    }
    const long out = out_row + axis_offset(&e->out_layout->columns, column + c);
#ifdef FUSED
    block.vector = ACTIVATE_BLOCK(value);
    for (int r = 0; r < BLOCK; ++r) store_result(e, out + r, block.lanes[r]);
#else
    store_block(e->out, out, OUT_DTYPE_OF(e), ACTIVATE_BLOCK(value));
#endif
  }
}
#endif

// Applies the epilogue to rows x columns values, rows `pitch` apart, and stores them at (row, column) of the result.
static inline void apply_epilogue(const Epilogue *e, const T *values, int pitch, long row, long column, int rows,
                                  int columns) {
  int c = 0;
#ifndef IS_COMPLEX
  const Axis *out_columns = &e->out_layout->columns, *bias_columns = &e->bias_layout->columns;
  const Axis *out_rows = &e->out_layout->rows, *bias_rows = &e->bias_layout->rows;
  if (rows == BLOCK && out_columns->strides[0] != 1 && axis_is_dense(out_rows, row, BLOCK)) {
    const bool one_bias = axis_is_constant(bias_rows);
    if (!e->has_bias || one_bias || axis_is_dense(bias_rows, row, BLOCK)) {
      store_blocks(e, values, pitch, row, column, columns, one_bias);
      return;
    }
  }
  const bool one_value = axis_is_constant(bias_columns);
  while (c + VEC <= columns) {
    // As many vectors at once as possible.
    int count = (columns - c) / VEC * VEC;
    while (count > 0 && !(axis_is_dense(out_columns, column + c, count) &&
                          (!e->has_bias || one_value || axis_is_dense(bias_columns, column + c, count))))
      count -= VEC;
    if (count > 0)
      store_vectors(e, values + c, pitch, row, column + c, rows, count / VEC, one_value);
    else
      store_elements(e, values + c, pitch, row, column + c, rows, count = VEC);
    c += count;
  }
#endif
  if (c < columns) store_elements(e, values + c, pitch, row, column + c, rows, columns - c);
}
