// GEMMs on GPUs: their sizes, and the order of their blocks.

// Rows, columns and K; k is split into `splits` parts with separate sums, `split_stride` elements apart.
typedef struct {
  long rows;
  long columns;
  long k;
  long splits;
  long split_stride;
} Extent;
SHARED(Extent, 40);

// Finds a block of C by its number. Groups that run at the same time compute blocks of a few rows, which share what
// they read of B.
#ifndef BAND
#define BAND 8
#endif
static inline void find_block(uint number, uint blocks_down, uint blocks_across, uint *down, uint *across) {
  const uint band = number / (BAND * blocks_across), in_band = number - band * (BAND * blocks_across);
  const uint height = min((uint)BAND, blocks_down - band * BAND);
  *down = band * BAND + in_band % height;
  *across = in_band / height;
}

// Applies the epilogue `e` to SUM(c) to SUM(c + VEC - 1), neighbours in a row of C of which `left` exist, and stores
// them. COLUMN_OFFSET(layout, c) is the offset of a column in its row, and IS_RUN(layout, c) is true if the columns
// are dense.
#define STORE_RUN(c, left, SUM)                                                                                   \
  {                                                                                                               \
    Lanes values, biases;                                                                                         \
    UNROLL for (int l = 0; l < VEC; ++l) values.lanes[l] = scale(e.alpha, SUM((c) + l));                          \
    if (has_bias) {                                                                                               \
      if ((left) >= VEC && IS_RUN(bias_layout, c))                                                                \
        biases.vector = load_vector(e.bias, bias_row + COLUMN_OFFSET(bias_layout, c), BIAS_DTYPE);                \
      else                                                                                                        \
        UNROLL for (int l = 0; l < VEC; ++l) biases.lanes[l] =                                                    \
            l < (left) ? load(e.bias, bias_row + COLUMN_OFFSET(bias_layout, (c) + l), BIAS_DTYPE) : FROM_REAL(0); \
      UNROLL for (int l = 0; l < VEC; ++l) values.lanes[l] += scale(e.beta, biases.lanes[l]);                     \
    }                                                                                                             \
    values.vector = ACTIVATE_VECTOR(values.vector);                                                               \
    if (STORES_VECTORS && (left) >= VEC && IS_RUN(out_layout, c))                                                 \
      store_vector(e.out, out_row + COLUMN_OFFSET(out_layout, c), OUT_DTYPE, values.vector);                      \
    else                                                                                                          \
      UNROLL for (int l = 0; l < VEC; ++l) if (l < (left))                                                        \
          store_result(&e, out_row + COLUMN_OFFSET(out_layout, (c) + l), values.lanes[l]);                        \
  }
#ifdef FUSED
#define STORES_VECTORS 0
#else
#define STORES_VECTORS 1
#endif
