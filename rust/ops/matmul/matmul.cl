// Matmuls that are too thin, or too small, to be worth packing: each work-item streams its operands once.
//
// Both kernels have the global size (column blocks, row blocks, batches * splits); with splits > 1 they write partial
// sums for gemm_finish. The launcher swaps the operands if that makes the layout fit.

#if !HAS_IM2COL
#define THIN_ROWS 4

// Arguments of both kernels: the operands, the number of parts of k, and the distance between the parts' results.
#define THIN_ARGUMENTS                                                                                                \
  __global const uchar *a, ulong a_offset, __global const uchar *b, ulong b_offset, int input_dtype, Matrix a_layout, \
      Matrix b_layout, long rows, long columns, long k, long splits, long split_stride

// Part `split` of `splits` of k.
typedef struct {
  long first;
  long last;
} Range;

static inline Range split_range(long k, long split, long splits) {
  const long step = (k + splits - 1) / splits;
  const Range range = {min(split * step, k), min((split + 1) * step, k)};
  return range;
}

// Offsets of `count` indices from `first` on. Indices past `limit` repeat the last one; their results are not stored.
OUTLINED void find_offsets(const Axis *axis, long first, long limit, int count, long *offsets) {
  for (int i = 0; i < count; ++i) offsets[i] = axis_offset(axis, min(first + i, limit - 1));
}

// --- k is dense in both operands: dot products --------------------------------------------------------------------

#define DEFINE_DOT(ROWS, COLUMNS)                                                                              \
  OUTLINED void PASTE(PASTE(dot_, ROWS), PASTE(x, COLUMNS))(__global const uchar *a, const long *a_at,         \
                                                            __global const uchar *b, const long *b_at, int dt, \
                                                            Range range, T *values) {                          \
    TV sums[ROWS][COLUMNS];                                                                                    \
    UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int c = 0; c < COLUMNS; ++c) sums[r][c] = (TV)(0);       \
    long k = range.first;                                                                                      \
    for (; k + VEC <= range.last; k += VEC) {                                                                  \
      TV columns[COLUMNS];                                                                                     \
      UNROLL for (int c = 0; c < COLUMNS; ++c) columns[c] = load_dense(b, b_at[c] + k, dt);                    \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                                  \
        const TV row = load_dense(a, a_at[r] + k, dt);                                                         \
        UNROLL for (int c = 0; c < COLUMNS; ++c) sums[r][c] = MULTIPLY_ADD(row, columns[c], sums[r][c]);       \
      }                                                                                                        \
    }                                                                                                          \
    for (int r = 0; r < ROWS; ++r) {                                                                           \
      for (int c = 0; c < COLUMNS; ++c) {                                                                      \
        T sum = sequential_sum(sums[r][c]);                                                                    \
        for (long i = k; i < range.last; ++i)                                                                  \
          sum = MULTIPLY_ADD(load(a, a_at[r] + i, dt), load(b, b_at[c] + i, dt), sum);                         \
        values[r * DOT_COLUMNS + c] = sum;                                                                     \
      }                                                                                                        \
    }                                                                                                          \
  }

// Several sums at a time hide the latency of an addition: 4 x 4, or 1 x 4 for a single row. A single dot product has
// one sum.
#define DOT_COLUMNS 4
DEFINE_DOT(1, 1)
DEFINE_DOT(1, 4)
DEFINE_DOT(4, 4)

// The launcher gives k stride 1 in both operands.
__kernel void gemm_dot(THIN_ARGUMENTS, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  const long column = get_global_id(0) * DOT_COLUMNS;
  const long row = get_global_id(1) * THIN_ROWS;
  const long batch = get_global_id(2) / splits;
  const long split = get_global_id(2) % splits;
  a += a_offset + batch * a_layout.batch_stride * dtype_size(INPUT_DTYPE);
  b += b_offset + batch * b_layout.batch_stride * dtype_size(INPUT_DTYPE);
  long a_at[THIN_ROWS], b_at[DOT_COLUMNS];
  find_offsets(&a_layout.rows, row, rows, THIN_ROWS, a_at);
  find_offsets(&b_layout.columns, column, columns, DOT_COLUMNS, b_at);

  const Range range = split_range(k, split, splits);
  T values[THIN_ROWS * DOT_COLUMNS];
  if (rows > 1) dot_4x4(a, a_at, b, b_at, INPUT_DTYPE, range, values);
  else if (columns > 1) dot_1x4(a, a_at, b, b_at, INPUT_DTYPE, range, values);
  else dot_1x1(a, a_at, b, b_at, INPUT_DTYPE, range, values);
  const Epilogue epilogue = EPILOGUE(batch, split, split_stride);
  apply_epilogue(&epilogue, values, DOT_COLUMNS, row, column, (int)min((long)THIN_ROWS, rows - row),
                 (int)min((long)DOT_COLUMNS, columns - column));
}

// --- columns are dense in B: multiples of its rows are added up ---------------------------------------------------

#define DEFINE_ADD_ROWS(ROWS, VECTORS)                                                                      \
  OUTLINED void PASTE(PASTE(add_rows_, ROWS), PASTE(x, VECTORS))(                                           \
      __global const uchar *a, const long *a_at, const Axis *a_columns, __global const uchar *b, long b_at, \
      const Axis *b_rows, int dt, Range range, T *values) {                                                 \
    TV sums[ROWS][VECTORS];                                                                                 \
    UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int v = 0; v < VECTORS; ++v) sums[r][v] = (TV)(0);    \
    for (long k = range.first; k < range.last; ++k) {                                                       \
      const long b_row = b_at + axis_offset(b_rows, k);                                                     \
      const long a_column = axis_offset(a_columns, k);                                                      \
      TV row[VECTORS];                                                                                      \
      UNROLL for (int v = 0; v < VECTORS; ++v) row[v] = load_dense(b, b_row + v * VEC, dt);                 \
      UNROLL for (int r = 0; r < ROWS; ++r) {                                                               \
        const TV a_value = (TV)(load(a, a_at[r] + a_column, dt));                                           \
        UNROLL for (int v = 0; v < VECTORS; ++v) sums[r][v] = MULTIPLY_ADD(a_value, row[v], sums[r][v]);    \
      }                                                                                                     \
    }                                                                                                       \
    UNROLL for (int r = 0; r < ROWS; ++r) UNROLL for (int v = 0; v < VECTORS; ++v)                          \
        STORE_VALUES(sums[r][v], values + (r * VECTORS + v) * VEC);                                         \
  }

// With several rows, registers hold the sums of 4 vectors.
DEFINE_ADD_ROWS(4, 1)
DEFINE_ADD_ROWS(4, 4)

// If B is large, the sums of up to LONGEST vectors of each row stay in L1 while k advances. Rows of B are then read in
// runs as long as a page, within which hardware prefetches. A single row always uses this function.
#define LONGEST 64
#define DEFINE_ADD_LONG_ROWS(ROWS)                                                                            \
  OUTLINED void PASTE(add_long_rows_, ROWS)(__global const uchar *a, const long *a_at, const Axis *a_columns, \
                                            __global const uchar *b, long b_at, const Axis *b_rows, int dt,   \
                                            Range range, int vectors, T *values) {                            \
    for (int v = 0; v < ROWS * vectors; ++v) STORE_PRIVATE((TV)(0), values + v * VEC);                        \
    for (long k = range.first; k < range.last; ++k) {                                                         \
      const long b_row = b_at + axis_offset(b_rows, k), a_column = axis_offset(a_columns, k);                 \
      TV a_values[ROWS];                                                                                      \
      UNROLL for (int r = 0; r < ROWS; ++r) a_values[r] = (TV)(load(a, a_at[r] + a_column, dt));              \
      for (int v = 0; v < vectors; ++v) {                                                                     \
        const TV column = load_dense(b, b_row + v * VEC, dt);                                                 \
        UNROLL for (int r = 0; r < ROWS; ++r) {                                                               \
          T *sum = values + (r * vectors + v) * VEC;                                                          \
          STORE_PRIVATE(MULTIPLY_ADD(a_values[r], column, LOAD_PRIVATE(sum)), sum);                           \
        }                                                                                                     \
      }                                                                                                       \
    }                                                                                                         \
  }

DEFINE_ADD_LONG_ROWS(1)
DEFINE_ADD_LONG_ROWS(4)

// One value at a time, for columns that are not dense.
OUTLINED T add_elements(__global const uchar *a, long a_at, const Axis *a_columns, __global const uchar *b, long b_at,
                        const Axis *b_rows, int dt, Range range) {
  T sum = FROM_REAL(0);
  for (long k = range.first; k < range.last; ++k)
    sum = MULTIPLY_ADD(load(a, a_at + axis_offset(a_columns, k), dt), load(b, b_at + axis_offset(b_rows, k), dt), sum);
  return sum;
}

// Any strides. A work-item computes THIN_ROWS x `width` * VEC values; `width` is LONGEST at most.
__kernel void gemm_add_rows(THIN_ARGUMENTS, long width, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  const long row = get_global_id(1) * THIN_ROWS;
  const long batch = get_global_id(2) / splits;
  const long split = get_global_id(2) % splits;
  a += a_offset + batch * a_layout.batch_stride * dtype_size(INPUT_DTYPE);
  b += b_offset + batch * b_layout.batch_stride * dtype_size(INPUT_DTYPE);
  const int some_rows = (int)min((long)THIN_ROWS, rows - row);
  long a_at[THIN_ROWS];
  find_offsets(&a_layout.rows, row, rows, THIN_ROWS, a_at);
  const Range range = split_range(k, split, splits);
  const Epilogue epilogue = EPILOGUE(batch, split, split_stride);

  const bool is_long = rows == 1 || width == LONGEST;
  const long last = min(columns, (long)(get_global_id(0) + 1) * width * VEC);
  for (long column = get_global_id(0) * width * VEC; column < last;) {
    const long b_at = axis_offset(&b_layout.columns, column);
    // As many contiguous vectors as there are sums.
    int vectors = (int)min((last - column) / VEC, is_long ? width : 4L);
    if (!axis_is_dense(&b_layout.columns, column, vectors * VEC)) vectors = min(vectors, 1);
    if (!axis_is_dense(&b_layout.columns, column, VEC)) vectors = 0;
    if (!is_long && vectors < 4) vectors = min(vectors, 1);
    const int count = vectors > 0 ? vectors * VEC : 1;
    T values[THIN_ROWS * LONGEST * VEC];
    if (vectors == 0)
      for (int r = 0; r < some_rows; ++r)
        values[r] = add_elements(a, a_at[r], &a_layout.columns, b, b_at, &b_layout.rows, INPUT_DTYPE, range);
    else if (rows == 1)
      add_long_rows_1(a, a_at, &a_layout.columns, b, b_at, &b_layout.rows, INPUT_DTYPE, range, vectors, values);
    else if (is_long)
      add_long_rows_4(a, a_at, &a_layout.columns, b, b_at, &b_layout.rows, INPUT_DTYPE, range, vectors, values);
    else if (vectors == 4)
      add_rows_4x4(a, a_at, &a_layout.columns, b, b_at, &b_layout.rows, INPUT_DTYPE, range, values);
    else add_rows_4x1(a, a_at, &a_layout.columns, b, b_at, &b_layout.rows, INPUT_DTYPE, range, values);
    apply_epilogue(&epilogue, values, count, row, column, some_rows, count);
    column += count;
  }
}
#endif
