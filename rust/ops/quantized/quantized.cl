// Matmuls with quantised weights, and unpacking of the weights.

// TILE rows of the weight, and ROWS rows of x, are multiplied at a time: constants of the program.

// A CPU sums by lane until the end of a row. For GPUs a vector of sums would take too many registers.
#ifdef IS_CPU
#define SUMS TV
#define TOTAL(sums) lanes_sum(sums)
#else
#define SUMS T
#define TOTAL(sums) (sums)
#endif

// 32 elements of x in the order of a chunk.
typedef struct {
  Lanes first, second;
} Elements;

INLINE void load_elements(Elements *elements, __global const uchar *x, long at, int dtype0) {
  const TV a = load_vector(x, at * CHUNK, DTYPE0), b = load_vector(x, at * CHUNK + 16, DTYPE0);
#ifdef IS_PAIRED
  elements->first.vector = (TV)(a.even, b.even);
  elements->second.vector = (TV)(a.odd, b.odd);
#else
  elements->first.vector = a;
  elements->second.vector = b;
#endif
}

INLINE void add_products(SUMS *sums, const Chunk *chunk, const Elements *elements) {
#ifdef IS_CPU
  *sums = FMA_OR_MAD(chunk->second, elements->second.vector, FMA_OR_MAD(chunk->first, elements->first.vector, *sums));
#else
  Lanes first, second;
  first.vector = chunk->first;
  second.vector = chunk->second;
  UNROLL for (int l = 0; l < VEC; l++) {
    *sums = FMA_OR_MAD(first.lanes[l], elements->first.lanes[l], *sums);
    *sums = FMA_OR_MAD(second.lanes[l], elements->second.lanes[l], *sums);
  }
#endif
}

// out = x @ weight.T, for a dense x [rows, k] and out [rows, layout.rows]. A group takes tiles of the weight's rows, and
// its items the chunks of a row in turn.
__kernel GROUPS_OF(LSIZE) void quantized_few_rows(__global const uchar *x, ulong x_offset, int dtype0,
                                                  QUANTIZED_ARGUMENTS, __global uchar *out, ulong out_offset,
                                                  long rows) {
  GROUP_SHARED(shared);
  weight += weight_offset;
  scales += scales_offset;
  zeros += zeros_offset;
  table += table_offset;
  out += out_offset;
  DECLARE_TABLE(values, table);
  const long chunks = layout.k / CHUNK, bytes = layout.k * dtype_size(DTYPE0), last_row = layout.rows - 1;
  GROUP_TASKS((layout.rows + TILE - 1) / TILE, first_tile, last_tile);
  for (long tile = first_tile; tile < last_tile; tile++) {
    for (long row = 0; row < rows; row += ROWS) {
      SUMS sums[TILE][ROWS];
      for (int c = 0; c < TILE; c++) {
        for (int r = 0; r < ROWS; r++) sums[c][r] = (SUMS)0;
      }
      for (long at = get_local_id(0); at < chunks; at += LSIZE) {
        Elements elements[ROWS];
  // Past the last row, the last row is read again, and its sum is not stored.
  UNROLL for (int r = 0; r < ROWS; r++)
          load_elements(&elements[r], x + x_offset + min(row + r, rows - 1) * bytes, at, dtype0);
        UNROLL for (int c = 0; c < TILE; c++) {
          Chunk chunk;
          decode_chunk(&chunk, weight, scales, zeros, table, &layout, min(tile * TILE + c, last_row), at, values);
          UNROLL for (int r = 0; r < ROWS; r++) add_products(&sums[c][r], &chunk, &elements[r]);
        }
      }
      for (int c = 0; c < TILE; c++) {
        for (int r = 0; r < ROWS; r++) {
          const T total = group_sum(TOTAL(sums[c][r]), shared);
          if (row + r < rows && tile * TILE + c <= last_row && get_local_id(0) == 0)
            store(out, (row + r) * layout.rows + tile * TILE + c, DTYPE0, total);
        }
      }
    }
  }
}

// Unpacks the weight to a dense [layout.rows, layout.k]. An item takes chunks.
__kernel GROUPS_OF(LSIZE) void quantized_unpack(QUANTIZED_ARGUMENTS, int dtype0, __global uchar *out,
                                                ulong out_offset) {
  DECLARE_TABLE(values, table + table_offset);
  const long chunks = layout.k / CHUNK;
  ITEM_TASKS(layout.rows * chunks, first_task, last_task);
  for (long task = first_task; task < last_task; task++) {
    Chunk chunk;
    decode_chunk(&chunk, weight + weight_offset, scales + scales_offset, zeros + zeros_offset, table + table_offset,
                 &layout, task / chunks, task % chunks, values);
#ifdef IS_PAIRED
    TV a, b;
    a.even = chunk.first.lo;
    a.odd = chunk.second.lo;
    b.even = chunk.first.hi;
    b.odd = chunk.second.hi;
#else
    const TV a = chunk.first, b = chunk.second;
#endif
    store_vector(out + out_offset, task * CHUNK, DTYPE0, a);
    store_vector(out + out_offset, task * CHUNK + 16, DTYPE0, b);
  }
}
