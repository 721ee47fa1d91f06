// Shared by the kernels of attention that use matrix instructions: loops over the items of a lane, and blocks of rows
// in local memory.

#define LOG2_E 1.4426950408889634f

// Runs CODE for each item of this lane, with its tile `t`, `i`, and the row `h` of the lane.
#define EACH_ITEM(tiles, CODE)                                                             \
  UNROLL for (int t = 0; t < (tiles); ++t) UNROLL for (int i = 0; i < TILE_C_ITEMS; ++i) { \
    const int h = TILE_LANE_ROW(i);                                                        \
    CODE;                                                                                  \
  }
#define EACH_ROW(CODE) \
  UNROLL for (int h = 0; h < TILE_LANE_ROWS; ++h) { CODE; }
// Joins the values of the lanes that hold the same rows.
#define JOIN_LANES(values, JOIN)                               \
  UNROLL for (uint mask = 1; mask < TILE_ROW_LANES; mask *= 2) \
      EACH_ROW(values[h] = JOIN(values[h], tile_shuffle(values[h], mask, lane, sub_group TILE_PASS)))
#define ADD(a, b) ((a) + (b))

// Dropout multiplies the weight of a query and a key by 0 or 1 / keep_prob, with the same draw as apply_dropout of
// scores.cl. DRAW_DROPOUT sets the bits of the items whose weights are kept; QUERY and KEY are those of item `i` of
// tile `t`. A lane has one, two or four of the weights that a counter decides on: compilers compute its words once. If
// the loop over tiles were unrolled, compilers would keep the words of all tiles in registers. The draw comes before
// the products, whose sums need these registers.
#if DROPS
DEFINE_PHILOX(1, uint, ulong)

// `first` is the first counter of the head, and `row` the number of blocks of queries.
INLINE bool is_kept(ulong seed, ulong first, float keep_prob, uint row, uint query, uint key) {
  const ulong block = (ulong)(key / DROPOUT_KEYS) * row + query / DROPOUT_QUERIES;
  uint words[4];
  words_of_1(seed, first + block * DROPOUT_COUNTERS + query % DROPOUT_COUNTERS, words);
  const bool is_late = query % DROPOUT_QUERIES >= DROPOUT_COUNTERS;
  const uint word = key % DROPOUT_KEYS == 0 ? is_late ? words[1] : words[0] : is_late ? words[3] : words[2];
  return (float)(word >> 8) * 0x1p-24f < keep_prob;
}
#define DRAW_DROPOUT(kept, unit, QUERY, KEY)                                                            \
  uint kept[STEP_TILES] = {0};                                                                          \
  {                                                                                                     \
    const ulong first = offset + (unit) * DROPOUT_HEAD(p);                                              \
    _Pragma("unroll 1") for (int t = 0; t < STEP_TILES; ++t) {                                          \
      uint bits = 0;                                                                                    \
      UNROLL for (int i = 0; i < TILE_C_ITEMS; ++i) bits |=                                             \
          (uint)is_kept(seed, first, keep_prob, (uint)DROPOUT_ROW(p), (uint)(QUERY), (uint)(KEY)) << i; \
      UNROLL for (int s = 0; s < STEP_TILES; ++s) kept[s] = s == t ? bits : kept[s];                    \
    }                                                                                                   \
  }
#define DROPPED(weight, kept) (((kept)[t] >> i & 1) ? (weight) * (1 / keep_prob) : 0)
#else
#define DRAW_DROPOUT(kept, unit, QUERY, KEY)
#define DROPPED(weight, kept) (weight)
#endif

// Copies rows of `elements` elements, `step` bytes apart. Rows from `rows` on, and elements after a row's last, become
// 0.
#if TILE_COPIES
#define COPY(to, from, exists) copy_chunk(&copies, to, from, false, (exists) ? 16 : 0)
#define CLOSE_COPIES close_copies(&copies);
#define WAIT_FOR_COPIES(open) wait_for_copies(&copies, open);
#else
#define COPY(to, from, exists) *(to) = (exists) ? *(__global const uint4 *)(from) : (uint4)(0)
#define CLOSE_COPIES
#define WAIT_FOR_COPIES(open)
#endif
#define COPY_BLOCK(to, from, step, rows, elements)                                   \
  UNROLL for (uint l = 0; l < COPIES; ++l) {                                         \
    const uint n = item + l * ITEMS, r = n / ROW_CHUNKS, c = n % ROW_CHUNKS * CHUNK; \
    if (STEP_CHUNKS % ITEMS == 0 || n < STEP_CHUNKS)                                 \
      COPY((to) + INDEX_IN_ROWS(WIDTH, r, c) / CHUNK, (from) + r * (step) + c * 2,   \
           (int)r < (rows) && (int)c < (elements));                                  \
  }                                                                                  \
  CLOSE_COPIES

// A matrix of OWN_ROWS x STEP_ROWS in tiles of C, such as weights, becomes the left operand of a product. On NVIDIA's
// GPUs a lane has the same elements of a tile of C and of one of A; else they go through local memory, and a barrier
// follows.
#if TILE_KIND == TILE_MMA
#define STORE_LEFT(to, tiles)
#define LOAD_LEFT(a, from, tiles, t)                                             \
  UNROLL for (int w = 0; w < TILE_A_WORDS; ++w) {                                \
    const int first = w / 2 * 4 + w % 2 * 2;                                     \
    (a)->words[w] = tile_pack(tiles[t].items[first], tiles[t].items[first + 1]); \
  }
#else
#define STORE_LEFT(to, tiles)                                                                                    \
  EACH_ITEM(STEP_TILES, (to)[INDEX_IN_ROWS(STEP_ROWS, TILE_C_ROW(lane, i), t * TILE + TILE_C_COLUMN(lane, i))] = \
                            (ushort)tile_pack(tiles[t].items[i], 0))
#define LOAD_LEFT(a, from, tiles, t) tile_load_a(a, from, 1, STEP_ROWS, 0, (t) * TILE, lane);
#endif

// Unrolled, these loops would load the tiles of all their steps before the first product, and spill them.
#if TILE_KIND == TILE_MMA && WIDTH < 128
#define EACH_PART UNROLL
#else
#define EACH_PART _Pragma("unroll 1")
#endif
#if TILE_KIND == TILE_MMA
#define EACH_LEFT UNROLL
#else
#define EACH_LEFT _Pragma("unroll 1")
#endif
// to += a_rows b_rows^T: the sub-group's rows of one block, multiplied by all rows of another.
#define MULTIPLY_ROWS(to, a_rows, b_rows)                                                                       \
  EACH_PART for (int w = 0; w < WIDTH_TILES; ++w) {                                                             \
    TileA a;                                                                                                    \
    TileB b[STEP_TILES];                                                                                        \
    tile_load_a(&a, a_rows, 1, WIDTH, sub_group * TILE, w * TILE, lane);                                        \
    UNROLL for (int t = 0; t < STEP_TILES; ++t) tile_load_b(&b[t], b_rows, 1, WIDTH, t * TILE, w * TILE, lane); \
    tile_multiply(to, &a, b, 1, STEP_TILES, lane, sub_group TILE_PASS);                                         \
  }
// to += tiles b_rows: a left operand, multiplied by the rows of a block.
#define ADD_PRODUCT(to, memory, tiles, b_rows)                                                                   \
  EACH_LEFT for (int n = 0; n < STEP_TILES; ++n) {                                                               \
    TileA a;                                                                                                     \
    TileB b[WIDTH_TILES];                                                                                        \
    LOAD_LEFT(&a, memory, tiles, n)                                                                              \
    UNROLL for (int w = 0; w < WIDTH_TILES; ++w) tile_load_b(&b[w], b_rows, 0, WIDTH, w * TILE, n * TILE, lane); \
    tile_multiply(to, &a, b, 1, WIDTH_TILES, lane, sub_group TILE_PASS);                                         \
  }
