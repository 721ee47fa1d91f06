// GEMM for GPUs with matrix instructions, or sums of products: C = activation(alpha * A B + beta * bias), with float32
// sums. Along k one float32, rounded to TensorFloat-32, counts as two 16-bit elements, and two int8 count as one
// (tile_layout.cl). Sums of int8, and their results, are int32: they have no epilogue, and parts of k are added to
// what the result contains.
//
// A work-group computes BLOCK_ROWS x BLOCK_COLUMNS of C. Each of its GROUPS_DOWN x GROUPS_ACROSS sub-groups computes a
// part of them, in tiles of 16 x 16. Blocks of BLOCK_K values of k are copied from global to local memory in chunks of
// 16 bytes, in the order in which they lie in memory: nothing is transposed on the way.
//
// On devices with copies that continue while items compute, and for aligned operands (ASYNC), local memory has STAGES
// blocks, and all but one are being copied. Otherwise it has two, and the next block waits in registers while this one
// is multiplied. Either way a step has one barrier: a block is overwritten one step after its last use.
//
// Constants: TILE_KIND, TILE_EMULATED, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_K, GROUPS_DOWN, GROUPS_ACROSS, STAGES,
// A_ALONG_K and B_ALONG_K (rows of an operand in memory run along k), A_ALIGNED and B_ALIGNED (all its chunks are at
// multiples of 16 bytes), A_KIND and B_KIND (gemm_operands.cl), LINES (the result and the bias have one stride for
// rows and one for columns).

#define ASYNC (TILE_COPIES && A_ALIGNED && B_ALIGNED)

// uint4s of a block of A, of B and of both.
#define A_BLOCK (BLOCK_ROWS * BLOCK_K / CHUNK)
#define B_BLOCK (BLOCK_COLUMNS * BLOCK_K / CHUNK)
#define STAGE (A_BLOCK + B_BLOCK)
// A sub-group stores 16 rows of its part of C at a time; a row begins 8 banks after the one above.
#define OUT_PITCH (SUB_COLUMNS + 8)
#define OUT_MEMORY (SUB_GROUPS * TILE * OUT_PITCH / 4)
#define MEMORY (STAGES * STAGE > OUT_MEMORY ? STAGES * STAGE : OUT_MEMORY)

// The chunks that an item copies from rows of `width` elements: the first, and the rows to the next.
#define FIRST_ROW(width) (item / ((width) / CHUNK))
#define FIRST_COLUMN(width) (item % ((width) / CHUNK) * CHUNK)
#define ROW_STEP(width) (ITEMS / ((width) / CHUNK))
// The offset of an item's first chunk in a block that begins at a value's outer index and k.
INLINE long chunk_offset(long outer, long k, int along_k, long stride, uint row, uint column) {
  return along_k ? (outer + row) * stride + k + column
                 : (k / VALUE_ELEMENTS + row) * stride + outer * VALUE_ELEMENTS + column;
}
// The number of a chunk's elements that exist.
INLINE int chunk_count(uint row, uint column, int along_k, int outers_left, int k_left) {
  const int rows_left = along_k ? outers_left : k_left / VALUE_ELEMENTS;
  const int columns_left = along_k ? k_left : outers_left * VALUE_ELEMENTS;
  return (int)row < rows_left ? clamp(columns_left - (int)column, 0, CHUNK) : 0;
}

// For each chunk of a block runs CHUNK_CODE with its `index` in local memory, `at` in global memory and `count`.
#define EACH_CHUNK(chunks, from, along_k, width, stride, outers_left, k_left, CHUNK_CODE)                \
  {                                                                                                      \
    __global const ushort *at = from;                                                                    \
    UNROLL for (uint l = 0; l < (chunks); ++l) {                                                         \
      const uint to_row = FIRST_ROW(width) + l * ROW_STEP(width), to_column = FIRST_COLUMN(width);       \
      const uint index = INDEX_IN_ROWS(width, to_row, to_column) / CHUNK;                                \
      const int count = is_whole ? CHUNK : chunk_count(to_row, to_column, along_k, outers_left, k_left); \
      CHUNK_CODE;                                                                                        \
      at += ROW_STEP(width) * (stride);                                                                  \
    }                                                                                                    \
  }
#if A_KIND == FROM_IM2COL
#define EACH_CHUNK_OF_A(left, CODE) EACH_CHUNK_OF_ELEMENTS(A_CHUNKS, left, CODE)
#define NEXT_STEP_OF_A move_kernel_element(&im2col, &kernel_element, BLOCK_K);
#else
#define EACH_CHUNK_OF_A(left, CODE) EACH_CHUNK(A_CHUNKS, a_from, A_ALONG_K, A_WIDTH, a_stride, a_rows, left, CODE)
#define NEXT_STEP_OF_A a_from += a_step;
#endif
#if B_KIND == FROM_IM2COL
#define EACH_CHUNK_OF_B(left, CODE) EACH_CHUNK_OF_ELEMENTS(B_CHUNKS, left, CODE)
#define NEXT_STEP_OF_B move_kernel_element(&im2col, &kernel_element, BLOCK_K);
#elif B_KIND == FROM_IM2COL_TRANSPOSED
#define EACH_CHUNK_OF_B(left, CODE) EACH_CHUNK_OF_POSITIONS(B_CHUNKS, BLOCK_COLUMNS, b_columns, (uint)last_k, CODE)
#define NEXT_STEP_OF_B position += BLOCK_K;
#else
#define EACH_CHUNK_OF_B(left, CODE) EACH_CHUNK(B_CHUNKS, b_from, B_ALONG_K, B_WIDTH, b_stride, b_columns, left, CODE)
#define NEXT_STEP_OF_B b_from += b_step;
#endif
// Nearly all blocks are whole, and all items know which: for these they count nothing.
#define IF_WHOLE(left, CODE)            \
  if (is_inside && (left) >= BLOCK_K) { \
    const bool is_whole = true;         \
    CODE                                \
  } else {                              \
    const bool is_whole = false;        \
    CODE                                \
  }

#if ASYNC
#define COPY_TO(first) copy_chunk(&copies, memory + (first) + index, (__global const uchar *)at, is_whole, 2 * count)
// Starts the copies of a step's blocks, with `left` values of k.
#define START_STEP(stage, left)                                                   \
  if ((left) > 0) {                                                               \
    IF_WHOLE(left, EACH_CHUNK_OF_A(left, COPY_TO((stage) * STAGE))                \
                       EACH_CHUNK_OF_B(left, COPY_TO((stage) * STAGE + A_BLOCK))) \
    NEXT_STEP_OF_A                                                                \
    NEXT_STEP_OF_B                                                                \
  }                                                                               \
  close_copies(&copies);
#else
INLINE uint4 fetch_chunk(__global const ushort *at, int count, bool aligned) {
  if (count == CHUNK && aligned) return *(__global const uint4 *)at;
  uint values[CHUNK];
  UNROLL for (int e = 0; e < CHUNK; ++e) values[e] = e < count ? at[e] : 0;
  return (uint4)(values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                 values[6] | values[7] << 16);
}
#define FETCH_STEP(left)                                                                   \
  IF_WHOLE(left, EACH_CHUNK_OF_A(left, a_next[l] = fetch_chunk(at, count, A_ALIGNED))      \
                     EACH_CHUNK_OF_B(left, b_next[l] = fetch_chunk(at, count, B_ALIGNED))) \
  NEXT_STEP_OF_A                                                                           \
  NEXT_STEP_OF_B
#define KEEP_STEP(stage)                                                      \
  {                                                                           \
    const bool is_whole = true;                                               \
    EACH_CHUNK_OF_A(0, memory[(stage) * STAGE + index] = a_next[l])           \
    EACH_CHUNK_OF_B(0, memory[(stage) * STAGE + A_BLOCK + index] = b_next[l]) \
  }
#endif

#define LOAD_TILES(to_a, to_b, k)                                                          \
  UNROLL for (int r = 0; r < ROW_TILES; ++r)                                               \
      tile_load_a(&(to_a)[r], a_block, A_ALONG_K, A_WIDTH, first_row + r * TILE, k, lane); \
  UNROLL for (int t = 0; t < COLUMN_TILES; ++t)                                            \
      tile_load_b(&(to_b)[t], b_block, B_ALONG_K, B_WIDTH, first_column + t * TILE, k, lane);

// Global size: blocks * batches * splits groups of ITEMS, in one dimension.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void gemm_tile(
    __global const uchar *a, ulong a_offset, __global const uchar *b, ulong b_offset, Matrix a_layout, Matrix b_layout,
    Im2colLayout im2col, Extent extent, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  __local uint4 memory[MEMORY] __attribute__((aligned(128)));
  TILE_MEMORY

  const uint item = (uint)get_local_id(0), lane = item % TILE_LANES, sub_group = item / TILE_LANES;
  const uint first_row = sub_group / GROUPS_ACROSS * SUB_ROWS, first_column = sub_group % GROUPS_ACROSS * SUB_COLUMNS;
  const uint blocks_down = (uint)((extent.rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
  const uint blocks_across = (uint)((extent.columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);
  const uint blocks = blocks_down * blocks_across, part = (uint)get_group_id(0) / blocks, splits = (uint)extent.splits;
  const uint batch = part / splits, split = part - batch * splits;
  uint down, across;
  find_block((uint)get_group_id(0) - part * blocks, blocks_down, blocks_across, &down, &across);
  const long row = (long)down * BLOCK_ROWS, column = (long)across * BLOCK_COLUMNS;
  // Parts are whole blocks, so that their chunks are aligned.
  const long per_split = ((extent.k + BLOCK_K - 1) / BLOCK_K + splits - 1) / splits * BLOCK_K;
  const long first_k = min(split * per_split, extent.k), last_k = min(first_k + per_split, extent.k);
  const int steps = (int)((last_k - first_k + BLOCK_K - 1) / BLOCK_K);
  const int a_rows = (int)min(extent.rows - row, (long)BLOCK_ROWS);
  const int b_columns = (int)min(extent.columns - column, (long)BLOCK_COLUMNS);
  const bool is_inside = a_rows == BLOCK_ROWS && b_columns == BLOCK_COLUMNS;
  const long a_stride = (A_ALONG_K ? &a_layout.rows : &a_layout.columns)->strides[0];
  const long b_stride = (B_ALONG_K ? &b_layout.columns : &b_layout.rows)->strides[0];
  __global const ushort *a_from =
      (__global const ushort *)(a + a_offset) + batch * a_layout.batch_stride +
      chunk_offset(row, first_k, A_ALONG_K, a_stride, FIRST_ROW(A_WIDTH), FIRST_COLUMN(A_WIDTH));
  __global const ushort *b_from =
      (__global const ushort *)(b + b_offset) + batch * b_layout.batch_stride +
      chunk_offset(column, first_k, B_ALONG_K, b_stride, FIRST_ROW(B_WIDTH), FIRST_COLUMN(B_WIDTH));
#if A_KIND == FROM_IM2COL || B_KIND == FROM_IM2COL
  __global const ushort *input = A_KIND == FROM_IM2COL
                                     ? (__global const ushort *)(a + a_offset) + batch * a_layout.batch_stride
                                     : (__global const ushort *)(b + b_offset) + batch * b_layout.batch_stride;
  const uint first_position = (uint)(A_KIND == FROM_IM2COL ? row : column) + FIRST_ROW(BLOCK_K);
  const uint positions = (uint)(A_KIND == FROM_IM2COL ? extent.rows : extent.columns);
  Corner corners[POSITION_CHUNKS];
  find_corners(&im2col, first_position, ROW_STEP(BLOCK_K), positions, corners);
  KernelElement kernel_element = kernel_element_of(&im2col, (uint)first_k + FIRST_COLUMN(BLOCK_K));
#elif B_KIND == FROM_IM2COL_TRANSPOSED
  __global const ushort *input = (__global const ushort *)(b + b_offset) + batch * b_layout.batch_stride;
  const KernelElement kernel_element = kernel_element_of(&im2col, (uint)column + FIRST_COLUMN(BLOCK_COLUMNS));
  const int first_channel = CHUNKS(kernel_element.channel_index);
  int first_at[SPATIAL];
  UNROLL for (int d = 0; d < SPATIAL; ++d) first_at[d] =
      (int)im2col.origin[d] + kernel_element.at[d] * (int)im2col.dilation[d];
  uint position = (uint)first_k + FIRST_ROW(BLOCK_COLUMNS);
#endif
  const long a_step = A_ALONG_K ? BLOCK_K : BLOCK_K / VALUE_ELEMENTS * a_stride;
  const long b_step = B_ALONG_K ? BLOCK_K : BLOCK_K / VALUE_ELEMENTS * b_stride;

  TileC sums[ROW_TILES * COLUMN_TILES];
  UNROLL for (int n = 0; n < ROW_TILES * COLUMN_TILES; ++n)
      UNROLL for (int i = 0; i < TILE_C_ITEMS; ++i) sums[n].items[i] = 0;

  // Values of k from this step on, which fit an int where they matter.
  long left = last_k - first_k;
  int stage = 0;
#define LEFT ((int)min(left, (long)BLOCK_K))
#if ASYNC
  START_COPIES(copies)
  UNROLL for (int s = 0; s < STAGES - 1; ++s) {
    START_STEP(s, LEFT)
    left -= BLOCK_K;
  }
  int next_stage = STAGES - 1;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies(&copies, STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    START_STEP(next_stage, LEFT)
    left -= BLOCK_K;
    next_stage = next_stage == STAGES - 1 ? 0 : next_stage + 1;
#else
  uint4 a_next[A_CHUNKS], b_next[B_CHUNKS];
  FETCH_STEP(LEFT)
  KEEP_STEP(0)
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 0; step < steps; ++step) {
    left -= BLOCK_K;
    FETCH_STEP(LEFT)
#endif
    __local const ushort *a_block = (__local const ushort *)(memory + stage * STAGE);
    __local const ushort *b_block = (__local const ushort *)(memory + stage * STAGE + A_BLOCK);
    // The next tiles are loaded while these are multiplied.
    TileA a_tiles[2][ROW_TILES];
    TileB b_tiles[2][COLUMN_TILES];
    LOAD_TILES(a_tiles[0], b_tiles[0], 0)
    UNROLL for (int k = 0; k < BLOCK_K; k += TILE_K) {
      const int now = k / TILE_K % 2;
      if (k + TILE_K < BLOCK_K) {
        LOAD_TILES(a_tiles[1 - now], b_tiles[1 - now], k + TILE_K)
      }
      tile_multiply(sums, a_tiles[now], b_tiles[now], ROW_TILES, COLUMN_TILES, lane, sub_group TILE_PASS);
    }
#if ASYNC
    stage = stage == STAGES - 1 ? 0 : stage + 1;
#else
    stage ^= 1;
    KEEP_STEP(stage)
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
  }

  // The results go through local memory, so that an item has neighbours of a row, whatever the layout of a tile.
#if ASYNC
  wait_for_copies(&copies, 0);
#endif
  __local TileSum *rows = (__local TileSum *)memory + sub_group * TILE * OUT_PITCH;
  const Epilogue e = EPILOGUE(batch, split, extent.split_stride);
#if LINES
#define OFFSET_ALONG(axis, i) ((i) * (axis)->strides[0])
#define IS_RUN(layout, c) (layout.columns.strides[0] == 1)
#else
#define OFFSET_ALONG(axis, i) axis_offset(axis, i)
#define IS_RUN(layout, c) axis_is_dense(&layout.columns, x + (c), VEC)
#endif
#define COLUMN_OFFSET(layout, c) OFFSET_ALONG(&layout.columns, x + (c))
#define RESULT(c) rows[y * OUT_PITCH + first + (c)]
  _Pragma("unroll 1") for (int r = 0; r < ROW_TILES; ++r) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int taken = 0; taken < ROW_TILES; ++taken)
      if (taken == r)
        UNROLL for (int t = 0; t < COLUMN_TILES; ++t) UNROLL for (int i = 0; i < TILE_C_ITEMS; ++i)
            rows[TILE_C_ROW(lane, i) * OUT_PITCH + t * TILE + TILE_C_COLUMN(lane, i)] =
                sums[taken * COLUMN_TILES + t].items[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint v = lane; v < TILE * SUB_COLUMNS / VEC; v += TILE_LANES) {
      const uint y = v / (SUB_COLUMNS / VEC), first = v % (SUB_COLUMNS / VEC) * VEC;
      const long at = row + first_row + r * TILE + y, x = column + first_column + first, left = extent.columns - x;
      if (at >= extent.rows || left <= 0) continue;
      const long out_row = OFFSET_ALONG(&out_layout.rows, at);
#if INPUT_DTYPE == DT_I8
      __global int *to = (__global int *)e.out + out_row + COLUMN_OFFSET(out_layout, 0);
      UNROLL for (int l = 0; l < VEC; ++l) if (l < left) {
        if (splits > 1) atomic_add(to + l, RESULT(l));
        else to[l] = RESULT(l);
      }
#else
      const long bias_row = has_bias ? OFFSET_ALONG(&bias_layout.rows, at) : 0;
      STORE_RUN(0, left, RESULT)
#endif
    }
  }
}
