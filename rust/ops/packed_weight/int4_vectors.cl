// Matmuls with int4 weights on CPUs. A row has VEC int32 in a block, 4 * pairs. Value s of all of them makes a vector,
// whose columns are not adjacent. x is put into that order first, so that only multiplications of vectors remain.

#if defined(IS_CPU) && VEC > 1

// Vectors of a block: one of x for each value of an int32, and their sum.
#define VALUES 8
#define BLOCK_VECTORS (VALUES + 1)
// Columns of a block, in units of PAIR_COLUMNS.
#define PAIRS (VEC / 4)

#if VEC == 16
#define PAIR_OF_LANE (TM)(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3)
#elif VEC == 8
#define PAIR_OF_LANE (TM)(0, 1, 0, 1, 0, 1, 0, 1)
#else
#define PAIR_OF_LANE (TM)0
#endif

// The int32 of a row in a block, and a vector of x. Not by vload, which PoCL splits.
typedef struct __attribute__((packed, aligned(4))) {
  PASTE(int, VEC) values;
} Int4Words;
typedef struct __attribute__((packed, aligned(4))) {
  TV values;
} OrderedVector;

// Stores x as floats in the order of the weight. An item takes a block of a row.
__kernel void int4_order(__global const uchar *x, ulong x_offset, int dtype0, __global uchar *ordered,
                         ulong ordered_offset) {
  const long block = get_global_id(0);
  __global OrderedVector *to = (__global OrderedVector *)(ordered + ordered_offset) + block * BLOCK_VECTORS;
  TV total = (TV)0;
  for (int s = 0; s < VALUES; s++) {
    Lanes v;
    for (int l = 0; l < VEC; l++) {
      const int column = l % PAIRS * PAIR_COLUMNS + l / PAIRS * 2 + s % 4 * 8 + s / 4;
      v.lanes[l] = load(x + x_offset, block * VEC * VALUES + column, DTYPE0);
    }
    to[s].values = v.vector;
    total += v.vector;
  }
  to[VALUES].values = total;
}

// A scale (0) or a zero (1) for each lane of a block.
INLINE TV lane_parameters(__global const uchar *scales, long column, long columns, long block, int which,
                          int log2_group, int dtype0) {
  const long first = block * PAIRS;
  // Groups have 32 columns or more.
  const int log2_pairs = log2_group - 5;
  const long group = first >> log2_pairs;
  TV v = (TV)load(scales, (group * columns + column) * 2 + which, DTYPE0);
  if ((first + PAIRS - 1) >> log2_pairs == group) return v;
  UNROLL for (int pair = 1; pair < PAIRS; pair++) {
    const T other = load(scales, (((first + pair) >> log2_pairs) * columns + column) * 2 + which, DTYPE0);
    v = PAIR_OF_LANE == (TM)pair ? (TV)other : v;
  }
  return v;
}

// COUNT rows of x, from x[0] on, times the TILE_ROWS rows of the weight from `column` on. COUNT is a constant of the
// source: loops that are unrolled late leave their sums in memory.
#define DEFINE_INT4_TILE(NAME, COUNT)                                                                               \
  INLINE void NAME(__global const OrderedVector *x, __global const Int4Words *weight, __global const uchar *scales, \
                   __global uchar *out, long column, long columns, long blocks, int log2_group, int dtype0) {       \
    const long pitch = blocks * BLOCK_VECTORS;                                                                      \
    TV sums[TILE_ROWS][COUNT];                                                                                      \
    for (int c = 0; c < TILE_ROWS; c++) {                                                                           \
      for (int r = 0; r < COUNT; r++) sums[c][r] = (TV)0;                                                           \
    }                                                                                                               \
    for (long block = 0; block < blocks; block++) {                                                                 \
      __global const OrderedVector *here = x + block * BLOCK_VECTORS;                                               \
      for (int c = 0; c < TILE_ROWS; c++) {                                                                         \
        const PASTE(int, VEC) words = weight[block * TILE_ROWS + c].values;                                         \
        TV products[COUNT];                                                                                         \
  UNROLL for (int r = 0; r < COUNT; r++) products[r] = (TV)0;                                                       \
  UNROLL for (int s = 0; s < VALUES; s++) {                                                                         \
          const TV v = TO_TV(words >> (4 * s) & 15);                                                                \
  UNROLL for (int r = 0; r < COUNT; r++) products[r] = FMA_OR_MAD(v, here[r * pitch + s].values, products[r]);        \
        }                                                                                                           \
        const TV scale = lane_parameters(scales, column + c, columns, block, 0, log2_group, DTYPE0);                \
        const TV zero = lane_parameters(scales, column + c, columns, block, 1, log2_group, DTYPE0);                 \
        /* The values are 8 too high. */                                                                            \
        const TV offset = FMA_OR_MAD(scale, (TV)-8, zero);                                                            \
  UNROLL for (int r = 0; r < COUNT; r++)                                                                            \
          sums[c][r] += FMA_OR_MAD(products[r], scale, here[r * pitch + VALUES].values * offset);                     \
      }                                                                                                             \
    }                                                                                                               \
    for (int c = 0; c < TILE_ROWS; c++) {                                                                           \
      for (int r = 0; r < COUNT; r++) store(out, r * columns + column + c, DTYPE0, lanes_sum(sums[c][r]));          \
    }                                                                                                               \
  }

DEFINE_INT4_TILE(int4_tile, ROWS)
DEFINE_INT4_TILE(int4_row, 1)

// Rows of x that all tiles of an item read before the next rows: few enough to stay in a core's cache.
#define CACHED_ROWS 32

// out = x @ weight.T as in int4_few_rows, for an ordered x.
__kernel void int4_ordered_rows(FEW_ROWS_ARGUMENTS, int log2_group) {
  const long blocks = k / (VEC * VALUES);
  x += x_offset;
  weight += weight_offset;
  scales += scales_offset;
  out += out_offset;
  ITEM_TASKS(columns / TILE_ROWS, first_tile, last_tile);
  for (long begin = 0; begin < rows; begin += CACHED_ROWS) {
    const long end = min(begin + CACHED_ROWS, rows);
    for (long tile = first_tile; tile < last_tile; tile++) {
      __global const Int4Words *words = (__global const Int4Words *)weight + tile * blocks * TILE_ROWS;
      const long column = tile * TILE_ROWS;
      for (long row = begin; row < end;) {
        __global const OrderedVector *from = (__global const OrderedVector *)x + row * blocks * BLOCK_VECTORS;
        __global uchar *to = out + row * columns * dtype_size(DTYPE0);
        if (row + ROWS <= end) {
          int4_tile(from, words, scales, to, column, columns, blocks, log2_group, DTYPE0);
          row += ROWS;
        } else {
          int4_row(from, words, scales, to, column, columns, blocks, log2_group, DTYPE0);
          row++;
        }
      }
    }
  }
}

#endif
