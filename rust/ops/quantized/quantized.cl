// Matmuls with quantised weights, and unpacking of the weights.

// TILE rows of the weight, and ROWS rows of x, are multiplied at a time: constants of the program.

// 32 elements of x in the order of a chunk.
typedef struct {
  Lanes first, second;
  T total[2];
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
#if !defined(IS_CPU) && (defined(BIAS) || defined(HAS_OFFSETS))
  elements->total[0] = lanes_sum(elements->first.vector);
  elements->total[1] = lanes_sum(elements->second.vector);
#endif
}

#ifdef IS_CPU
// A CPU sums by lane until the end of a row.
#define SUMS TV
#define TOTAL(sums) lanes_sum(sums)
INLINE void add_products(SUMS *sums, const Chunk *chunk, const Elements *elements, const QuantizedLayout *layout) {
  *sums = FMA_OR_MAD(chunk->second, elements->second.vector, FMA_OR_MAD(chunk->first, elements->first.vector, *sums));
}
#else
// For GPUs a vector of sums would take too many registers. They multiply codes, and scale the sum of 16 products:
// that takes one instruction a weight less, or two. With infinite elements in x the result may be NaN instead.
#define SUMS T
#define TOTAL(sums) (sums)
INLINE T codes_dot(TV codes, const Lanes *elements) {
  Lanes from;
  from.vector = codes;
  T sum = 0;
  UNROLL for (int l = 0; l < VEC; l++) sum = FMA_OR_MAD(from.lanes[l], elements->lanes[l], sum);
  return sum;
}
INLINE void add_products(SUMS *sums, const Chunk *chunk, const Elements *elements, const QuantizedLayout *layout) {
  T dot[2] = {codes_dot(chunk->first, &elements->first), codes_dot(chunk->second, &elements->second)};
  UNROLL for (int i = 0; i < 2; i++) {
#ifdef BIAS
    dot[i] = FMA_OR_MAD(-(T)BIAS, elements->total[i], dot[i]);
#endif
    *sums = FMA_OR_MAD(chunk->scale[i], dot[i], *sums);
#ifdef HAS_OFFSETS
    *sums = FMA_OR_MAD(chunk->offset[i], elements->total[i], *sums);
#endif
  }
}
#endif

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
          load_chunk(&chunk, weight, scales, zeros, table, &layout, min(tile * TILE + c, last_row), at, values);
#ifdef IS_CPU
          scale_chunk(&chunk, &layout);
#endif
          UNROLL for (int r = 0; r < ROWS; r++) add_products(&sums[c][r], &chunk, &elements[r], &layout);
        }
      }
      UNROLL for (int c = 0; c < TILE; c++) {
        UNROLL for (int r = 0; r < ROWS; r++) {
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
    load_chunk(&chunk, weight + weight_offset, scales + scales_offset, zeros + zeros_offset, table + table_offset,
               &layout, task / chunks, task % chunks, values);
    scale_chunk(&chunk, &layout);
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
