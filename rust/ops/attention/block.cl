// Matmuls of small matrices in local memory, for kernels that keep intermediate matrices there (CLASS_F and CLASS_D).
//
// A block is a dense matrix of T whose rows are multiples of VEC elements. The LSIZE items of a work-group work on one
// block together, with a SYNC between dependent steps. On CPUs a group is one item, which processes a block in vectors
// as wide as a register.

// Rows and vectors of the part of C that an item keeps in registers: 8 x 2 leave a CPU with 32 registers room for the
// operands of several steps.
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 4
#endif
#ifndef BLOCK_VECTORS
#define BLOCK_VECTORS 1
#endif

#if LSIZE > 1
#define SYNC barrier(CLK_LOCAL_MEM_FENCE)
#else
#define SYNC
#endif

// Indices 0 to count - 1, divided among the items of the group.
#define EACH(i, count) for (int i = get_local_id(0); i < (count); i += LSIZE)

// Row, and first column, of vector i of a block with `parts` vectors in a row; unsigned, as that division by a constant
// is faster.
#define POSITION(i, parts, row, column) \
  const int row = (uint)(i) / (uint)(parts), column = (uint)(i) % (uint)(parts) * VEC;

// A block of the kernel's local memory.
#define BLOCK_MEMORY(name, rows, columns)             \
  __local TV name##_memory[(rows) * (columns) / VEC]; \
  __local T *name = (__local T *)name##_memory

#define VECTOR_AT(p) (*(__local TV *)(p))
#define ROUND_UP(n, step) (((n) + (step) - 1) / (step) * (step))

INLINE void fill_block(__local T *block, int count, T value) {
  EACH(i, count / VEC) VECTOR_AT(block + i * VEC) = (TV)value;
}

// Transposes a square of VEC vectors: each stage rotates the bits of row and column by one. Always inlined: the square
// must stay in registers.
static inline __attribute__((always_inline)) void transpose_square(TV *v) {
  for (int stage = 1; stage < VEC; stage *= 2) {
    TV next[VEC];
  UNROLL for (int i = 0; i < VEC / 2; i++) {
      next[2 * i].even = v[i].lo;
      next[2 * i].odd = v[i + VEC / 2].lo;
      next[2 * i + 1].even = v[i].hi;
      next[2 * i + 1].odd = v[i + VEC / 2].hi;
    }
    UNROLL for (int i = 0; i < VEC; i++) v[i] = next[i];
  }
}

// Load and store a vector of a row of n elements, from element i < n on. The ends of rows are rare and their code is
// long, so it is kept out of the loops.
OUTLINED TV load_end(__global const uchar *row, long i, long n, int dtype) {
  return load_part(row, i, n, dtype, 0);
}
OUTLINED void store_end(__global uchar *row, long i, long n, int dtype, TV value) {
  store_part(row, i, n, dtype, value);
}
INLINE TV load_of_row(__global const uchar *row, long i, long n, int dtype) {
  return i + VEC <= n ? load_vector(row, i, dtype) : load_end(row, i, n, dtype);
}
INLINE void store_of_row(__global uchar *row, long i, long n, int dtype, TV value) {
  if (i + VEC <= n) {
    store_vector(row, i, dtype, value);
  } else {
    store_end(row, i, n, dtype, value);
  }
}

// Loads `present` rows of `length` elements that lie `step` bytes apart. Rows up to `rows`, and columns up to `width`,
// become 0.
INLINE void load_block(__local T *block, int rows, int width, __global const uchar *input, long step, int present,
                       int length, int dtype) {
  const int parts = width / VEC;
  const bool is_whole = present == rows && length == width;
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    TV v = (TV)0;
    if (is_whole)
      v = load_vector(input + row * step, column, dtype);
    else if (row < present && column < length)
      v = load_of_row(input + row * step, column, length, dtype);
    VECTOR_AT(block + row * width + column) = v;
  }
}

// Loads one square of a transposed block: `present` rows from column `column` on. Not inlined, as it is long. The dtype
// is the one that the program is built for, as an argument would not be a constant here.
OUTLINED void load_square(__local T *to, int width, __global const uchar *input, long step,
                          int present, int column, int length, T factor) {
  TV square[VEC];
  UNROLL for (int l = 0; l < VEC; l++) {
    square[l] = (TV)0;
    if (l < present && column < length) square[l] = load_of_row(input + l * step, column, length, DTYPE0);
  }
  transpose_square(square);
  UNROLL for (int l = 0; l < VEC; l++) VECTOR_AT(to + l * width) = square[l] * factor;
}

// As load_block, but transposed and multiplied by `factor`: the loaded rows become columns of a block with `width`.
INLINE void load_transposed(__local T *block, int rows, int width, __global const uchar *input, long step, int present,
                            int length, T factor) {
  const int parts = width / VEC;
  EACH(i, rows / VEC * parts) {
    POSITION(i, parts, row_of_squares, column)
    const int row = row_of_squares * VEC;
    load_square(block + row * width + column, width, input + column * step, step, present - column, row, length,
                factor);
  }
}

// Stores `rows` rows of `length` elements, `step` bytes apart, multiplied by `factor`.
INLINE void store_block(__local const T *block, int rows, int width, __global uchar *target, long step, int length,
                        int dtype, T factor) {
  const int parts = (length + VEC - 1) / VEC;
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    const TV v = *(__local const TV *)(block + row * width + column) * factor;
    store_of_row(target + row * step, column, length, dtype, v);
  }
}

// As store_block for columns of the block, which become rows, with a factor for each.
INLINE void store_transposed(__local const T *block, int columns, int width, __global uchar *target, long step,
                             int length, int dtype, __local const T *factors) {
  const int parts = (length + VEC - 1) / VEC;
  EACH(i, (columns + VEC - 1) / VEC * parts) {
    POSITION(i, parts, column_of_squares, row)
    const int column = column_of_squares * VEC;
    const TV factor = *(__local const TV *)(factors + column);
    TV square[VEC];
    UNROLL for (int l = 0; l < VEC; l++)
        square[l] = *(__local const TV *)(block + (row + l) * width + column) * factor;
    transpose_square(square);
    UNROLL for (int l = 0; l < VEC; l++)
        if (column + l < columns) store_of_row(target + (column + l) * step, row, length, dtype, square[l]);
  }
}

// How a matmul treats the old values of C.
#define REPLACE 0
#define ADD 1
#define ADD_DECAYED 2  // after multiplying C by a factor for each column

// BLOCK_ROWS rows and COUNT vectors of C; see `block_matmul`.
#define DEFINE_PART(COUNT, CALLED)                                                                            \
  CALLED void PASTE(block_matmul_part_, COUNT)(__local const T *a, int a_row, int a_step, __local const T *b, \
                                               int b_step, int k_count, __local T *c, int c_row, int mode,    \
                                               __local const T *decay) {                                      \
    TV sums[BLOCK_ROWS][COUNT];                                                                               \
    UNROLL for (int r = 0; r < BLOCK_ROWS; r++)                                                               \
        UNROLL for (int v = 0; v < COUNT; v++) {                                                              \
      sums[r][v] = mode == REPLACE ? (TV)0 : VECTOR_AT(c + r * c_row + v * VEC);                              \
      if (mode == ADD_DECAYED) sums[r][v] *= *(__local const TV *)(decay + v * VEC);                          \
    }                                                                                                         \
    for (int k = 0; k < k_count; k++) {                                                                       \
      TV columns[COUNT];                                                                                      \
      UNROLL for (int v = 0; v < COUNT; v++) columns[v] = *(__local const TV *)(b + v * VEC);                 \
      UNROLL for (int r = 0; r < BLOCK_ROWS; r++)                                                             \
          UNROLL for (int v = 0; v < COUNT; v++) sums[r][v] = FMA_OR_MAD((TV)a[r * a_row], columns[v], sums[r][v]);  \
      a += a_step;                                                                                            \
      b += b_step;                                                                                            \
    }                                                                                                         \
    UNROLL for (int r = 0; r < BLOCK_ROWS; r++)                                                               \
        UNROLL for (int v = 0; v < COUNT; v++) VECTOR_AT(c + r * c_row + v * VEC) = sums[r][v];               \
  }

#if BLOCK_VECTORS > 1
// Only for the ends of rows: inlining it in each matmul would double the code.
DEFINE_PART(1, OUTLINED)
DEFINE_PART(2, INLINE)
#else
DEFINE_PART(1, INLINE)
#endif

// C (+)= A B, with A of `rows` x `k_count` and B of `k_count` x `columns`. Element (r, k) of A is at r * a_row + k *
// a_step, so that A may be the transpose of a block; rows and columns of C are rounded up to whole parts, for which all
// blocks have memory.
INLINE void block_matmul(__local const T *a, int a_row, int a_step, __local const T *b, int b_step, int rows,
                         int columns, int k_count, __local T *c, int c_row, int mode, __local const T *decay) {
  const int row_parts = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const int column_parts = (columns + BLOCK_VECTORS * VEC - 1) / (BLOCK_VECTORS * VEC);
#ifdef IS_CPU
#define FIRST_ROW (i % row_parts * BLOCK_ROWS)
#define FIRST_COLUMN (i / row_parts * BLOCK_VECTORS * VEC)
#define ROW_STEP 1
#else
// Neighbouring items take neighbouring columns, and the next row after these. What they read of A is in few rows, one
// below the other: in different banks, if rows are not a multiple of the banks long.
#define FIRST_ROW (i / column_parts)
#define FIRST_COLUMN (i % column_parts * BLOCK_VECTORS * VEC)
#define ROW_STEP row_parts
#endif
  EACH(i, row_parts * column_parts) {
    const int row = FIRST_ROW, column = FIRST_COLUMN;
    __local T *to = c + row * c_row + column;
#if BLOCK_VECTORS > 1
    if (columns - column > VEC)
      block_matmul_part_2(a + row * a_row, a_row * ROW_STEP, a_step, b + column, b_step, k_count, to,
                          c_row * ROW_STEP, mode, decay + column);
    else
#endif
      block_matmul_part_1(a + row * a_row, a_row * ROW_STEP, a_step, b + column, b_step, k_count, to, c_row * ROW_STEP,
                          mode, decay + column);
  }
}
