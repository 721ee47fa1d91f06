// int4 weights (CLASS_F): matmuls with few rows of x, and unpacking for matmuls with more.
// With few rows, most time goes into reading the weight, so each value is read once for ROWS rows.

#define ROWS 4

// x [rows, k], out [rows, columns], and a weight with `columns` rows of k values.
#define FEW_ROWS_ARGUMENTS                                                                                             \
  __global const uchar *x, ulong x_offset, __global const uchar *weight, ulong weight_offset,                          \
      __global const uchar *scales, ulong scales_offset, int dtype0, __global uchar *out, ulong out_offset, long rows, \
      long columns, long k

// Stores the sum over the work-group of each of ROWS values, for the rows from `first` on.
#define STORE_SUMS(sums, first, column)                                           \
  for (int r = 0; r < ROWS; r++) {                                                \
    const T total = group_sum(sums[r], shared);                                   \
    if ((first) + r < rows && get_local_id(0) == 0)                               \
      store(out + out_offset, ((first) + r) * columns + (column), DTYPE0, total); \
  }

// Each int32 of [rows / 8][outer][32][pairs] has eight 4-bit values, in the layout of operand B of NVIDIA's tensor
// cores: in two tiles of 16 columns, int32 4 * row + pair of 32 has the columns 2 * pair, 2 * pair + 8 and their
// neighbours.
#define TILE_ROWS 8
#define PAIR_COLUMNS 32

// int32 j of a row, which has 4 * outer * pairs, and the first of its columns.
typedef struct {
  uint values;
  long column;
} Int4Word;

INLINE void load_word(Int4Word *word, __global const uchar *weight, long row, long j, long outer, int log2_pairs) {
  const int run = 4 << log2_pairs, rest = (int)j & (run - 1), pair = rest >> log2_pairs;
  const long block = j >> (log2_pairs + 2);
  const long at = ((row / TILE_ROWS * outer + block) * TILE_ROWS + row % TILE_ROWS) * run + rest;
  word->values = ((__global const uint *)weight)[at];
  word->column = ((block << log2_pairs) + (rest - (pair << log2_pairs))) * PAIR_COLUMNS + pair * 2;
}

// Value of the neighbour (0, 1) in part `part` of 4, whose columns are 8 * part further on.
#define INT4_VALUE(word, part, neighbour) (T)((int)((word).values >> (16 * (neighbour) + 4 * (part)) & 15u) - 8)

// out = x @ weight.T, where the weight is (value - 8) * scale + zero. `scales` [groups, columns, 2] has scale and zero
// of every group of columns.
__kernel GROUPS_OF(LSIZE) void int4_few_rows(FEW_ROWS_ARGUMENTS, int log2_pairs, int log2_group) {
  GROUP_SHARED(shared);
  const long outer = k / PAIR_COLUMNS >> log2_pairs, words = k / 8;
  const int size = dtype_size(DTYPE0);
  GROUP_TASKS(columns, first_column, last_column);
  for (long column = first_column; column < last_column; column++) {
    for (long row = 0; row < rows; row += ROWS) {
      T sums[ROWS];
      for (int r = 0; r < ROWS; r++) sums[r] = 0;
      for (long j = get_local_id(0); j < words; j += LSIZE) {
        Int4Word word;
        load_word(&word, weight + weight_offset, column, j, outer, log2_pairs);
        const long group = ((word.column >> log2_group) * columns + column) * 2;
        const T scale = load(scales + scales_offset, group, DTYPE0),
                zero = load(scales + scales_offset, group + 1, DTYPE0);
        for (int r = 0; r < ROWS; r++) {
          __global const uchar *other = x + x_offset + (min(row + r, rows - 1) * k + word.column) * size;
          T product = 0, total = 0;
  UNROLL for (int part = 0; part < 4; part++) {
            const T a = load(other, 8 * part, DTYPE0), b = load(other, 8 * part + 1, DTYPE0);
            product = FMA_OR_MAD(INT4_VALUE(word, part, 0), a, FMA_OR_MAD(INT4_VALUE(word, part, 1), b, product));
            total += a + b;
          }
          sums[r] += FMA_OR_MAD(product, scale, total * zero);
        }
      }
      STORE_SUMS(sums, row, column)
    }
  }
}

// Unpacks the weight to [columns, k]. One item per int32.
__kernel void int4_unpack(__global const uchar *weight, ulong weight_offset, __global const uchar *scales,
                          ulong scales_offset, int dtype0, __global uchar *out, ulong out_offset, long columns, long k,
                          int log2_pairs, int log2_group) {
  const long outer = k / PAIR_COLUMNS >> log2_pairs, words = k / 8;
  if (get_global_id(0) >= columns * words) return;
  const long column = get_global_id(0) / words;
  Int4Word word;
  load_word(&word, weight + weight_offset, column, get_global_id(0) % words, outer, log2_pairs);
  const long group = ((word.column >> log2_group) * columns + column) * 2;
  const T scale = load(scales + scales_offset, group, DTYPE0), zero = load(scales + scales_offset, group + 1, DTYPE0);
  for (int part = 0; part < 4; part++) {
    for (int neighbour = 0; neighbour < 2; neighbour++)
      store(out + out_offset, column * k + word.column + 8 * part + neighbour, DTYPE0,
            FMA_OR_MAD(INT4_VALUE(word, part, neighbour), scale, zero));
  }
}
