// Scaled dot-product attention of 16-bit floats by matrix instructions, forward, in the order of work of Dao,
// "FlashAttention-2: faster attention with better parallelism and work partitioning" (2023).
//
// A sub-group has 16 queries, whose tiles usually stay in registers, and multiplies them by KEYS keys at a time. The scores are
// tiles of C. Their exponentials, rounded to 16 bits, become tiles of A: in registers where the layout of both is the same
// (NVIDIA), else through local memory. Nothing of the size queries x keys is written.
//
// Local memory has one block of keys and one of values. Values are copied while scores are computed, and the next keys
// while weights are multiplied by values, on devices with such copies.
//
// A score costs 2 * (head_dim + value_head_dim) operations of matrix instructions, and outside of them an exponential, a
// maximum, a sum and, for each WIDTH / 8 scores of a lane, as many products by `decay` as a lane has sums. A block of keys
// and values is read once for QUERIES queries.
//
// Constants: TILE_KIND, TILE_EMULATED, SPEC_DTYPE0, SUB_GROUPS, KEYS, WIDTH (a row in local memory: 16, 32, 64 or 128
// elements), RELOADS_QUERIES (their tiles do not stay in registers), BIASED, and with a bias SPEC_DTYPE1. Rows are read in chunks of 8 elements: their addresses and lengths are
// multiples of 16 bytes.

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

// Copies rows of `elements` elements, `step` bytes apart. Rows from `rows` on, and elements after a row's last, become 0.
#if TILE_COPIES
#define COPY(to, from, exists) copy_chunk(&copies, to, from, false, (exists) ? 16 : 0)
#define CLOSE_COPIES close_copies(&copies);
#define WAIT_FOR_COPIES wait_for_copies(&copies, 0);
#else
#define COPY(to, from, exists) *(to) = (exists) ? *(__global const uint4 *)(from) : (uint4)(0)
#define CLOSE_COPIES
#define WAIT_FOR_COPIES
#endif
#define COPY_BLOCK(to, from, step, rows, elements)                                   \
  UNROLL for (uint l = 0; l < COPIES; ++l) {                                         \
    const uint n = item + l * ITEMS, r = n / ROW_CHUNKS, c = n % ROW_CHUNKS * CHUNK; \
    if (BLOCK_CHUNKS % ITEMS == 0 || n < BLOCK_CHUNKS)                               \
      COPY((to) + INDEX_IN_ROWS(WIDTH, r, c) / CHUNK, (from) + r * (step) + c * 2,   \
           (int)r < (rows) && (int)c < (elements));                                  \
  }                                                                                  \
  CLOSE_COPIES

#if TILE_KIND == TILE_MMA
// A lane has the same elements of a tile of C and of one of A.
#define KEEP_WEIGHTS
#define LOAD_WEIGHTS(a, t)                                                         \
  UNROLL for (int w = 0; w < TILE_A_WORDS; ++w) {                                  \
    const int first = w / 2 * 4 + w % 2 * 2;                                       \
    (a)->words[w] = tile_pack(scores[t].items[first], scores[t].items[first + 1]); \
  }
#else
#define KEEP_WEIGHTS                                                                                          \
  EACH_ITEM(KEY_TILES, weights[INDEX_IN_ROWS(KEYS, TILE_C_ROW(lane, i), t * TILE + TILE_C_COLUMN(lane, i))] = \
                           (ushort)tile_pack(scores[t].items[i], 0))
#define LOAD_WEIGHTS(a, t) tile_load_a(a, weights, 1, KEYS, 0, (t) * TILE, lane);
#endif

// Intel's instructions need sub-groups of this size.
#if !TILE_EMULATED && (TILE_KIND == TILE_DPAS16 || TILE_KIND == TILE_DPAS8)
#define SUB_GROUP_SIZE __attribute__((intel_reqd_sub_group_size(TILE_LANES)))
#else
#define SUB_GROUP_SIZE
#endif

// Global size: batches * heads * blocks of queries, ITEMS each.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void attention_tile(
    ATTENTION_ARGUMENTS, __global uchar *out, ulong out_offset, __global uchar *logsumexp, ulong logsumexp_offset) {
  __local uint4 memory[MEMORY] __attribute__((aligned(128)));
#if TILE_KIND != TILE_MMA
  __local ushort all_weights[QUERIES * KEYS] __attribute__((aligned(128)));
#endif
  TILE_MEMORY
  const uint item = (uint)get_local_id(0), lane = item % TILE_LANES, sub_group = item / TILE_LANES;
#if TILE_KIND != TILE_MMA
  __local ushort *weights = all_weights + sub_group * TILE * KEYS;
#endif
  const int all_queries = (int)p.queries, all_keys = (int)p.keys;
  const uint blocks = (uint)(all_queries + QUERIES - 1) / QUERIES;
  const uint unit = (uint)get_group_id(0) / blocks, batch = unit / (uint)p.heads, head = unit - batch * (uint)p.heads;
  // The last queries see most keys: they come first, which evens out the load at the end.
  const int first_query = (int)((blocks - 1 - ((uint)get_group_id(0) - unit * blocks)) * QUERIES);
  const int last_key = p.is_causal ? min(all_keys, first_query + QUERIES) : all_keys;
  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  query += query_offset + head_offset(&p.query, batch, head) + first_query * p.query.row;
  key += key_offset + head_offset(&p.key, batch, head / (uint)p.group);
  value += value_offset + head_offset(&p.value, batch, head / (uint)p.group);
  // From here, offsets in the bias fit 32 bits.
  bias += BIASED ? bias_offset + head_offset(&p.bias, batch, head) + first_query * p.bias.row : 0;
  const int bias_row = (int)p.bias.row, bias_column = (int)p.bias_column;

  for (uint n = item; n < QUERY_CHUNKS; n += ITEMS) {
    const uint r = n / ROW_CHUNKS, c = n % ROW_CHUNKS * CHUNK;
    const bool exists = first_query + (int)r < all_queries && (int)c < head_dim;
    memory[INDEX_IN_ROWS(WIDTH, r, c) / CHUNK] =
        exists ? *(__global const uint4 *)(query + r * p.query.row + c * 2) : (uint4)(0);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#define LOAD_QUERIES(to, w) tile_load_a(to, (__local const ushort *)memory, 1, WIDTH, sub_group *TILE, (w) * TILE, lane)
#if !RELOADS_QUERIES
  TileA queries[WIDTH_TILES];
  UNROLL for (int w = 0; w < WIDTH_TILES; ++w) LOAD_QUERIES(&queries[w], w);
  barrier(CLK_LOCAL_MEM_FENCE);
#endif

  // The sum of a lane's weights, and the largest score of a row so far.
  TileC sums[WIDTH_TILES];
  float tops[TILE_LANE_ROWS], totals[TILE_LANE_ROWS];
  EACH_ITEM(WIDTH_TILES, sums[t].items[i] = 0)
  EACH_ROW(tops[h] = -INFINITY; totals[h] = 0)
  // A bias is added to scores that have been scaled.
  const float factor = BIASED ? 1 : scale, log2_factor = factor * LOG2_E;
  __local uint4 *key_block = memory + FIRST_KEYS, *value_block = key_block + BLOCK_CHUNKS;
  __local const ushort *keys = (__local const ushort *)key_block, *values = (__local const ushort *)value_block;

#if TILE_COPIES
  START_COPIES(copies)
#endif
  COPY_BLOCK(key_block, key, p.key.row, all_keys, head_dim)
  for (int first_key = 0; first_key < last_key; first_key += KEYS) {
    WAIT_FOR_COPIES
    // All items have copied the keys, and have used the values of the step before.
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY_BLOCK(value_block, value + first_key * p.value.row, p.value.row, all_keys - first_key, value_head_dim)
    TileC scores[KEY_TILES];
    EACH_ITEM(KEY_TILES, scores[t].items[i] = 0)
  UNROLL for (int w = 0; w < WIDTH_TILES; ++w) {
      TileB tiles[KEY_TILES];
      UNROLL for (int t = 0; t < KEY_TILES; ++t) tile_load_b(&tiles[t], keys, 1, WIDTH, t * TILE, w * TILE, lane);
#if RELOADS_QUERIES
      TileA query_tile;
      LOAD_QUERIES(&query_tile, w);
#else
      const TileA query_tile = queries[w];
#endif
      tile_multiply(scores, &query_tile, tiles, 1, KEY_TILES, lane, sub_group TILE_PASS);
    }
    // Only blocks at the end, or across the diagonal, have keys that are not seen.
    const bool is_edge = first_key + KEYS > all_keys || (p.is_causal && first_key + KEYS > first_query + 1);
    if (BIASED || is_edge) {
      EACH_ITEM(
          KEY_TILES, const int k = first_key + t * TILE + (int)TILE_C_COLUMN(lane, i);
          const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i)); const int q = first_query + row;
          if (k >= all_keys || (p.is_causal && k > q)) scores[t].items[i] = -INFINITY;
          else if (BIASED && q < all_queries) scores[t].items[i] =
              fma(scores[t].items[i], scale, load_mask(bias + (row * bias_row + k * bias_column), DTYPE1)))
    }
    float next[TILE_LANE_ROWS], decay[TILE_LANE_ROWS], added[TILE_LANE_ROWS];
    EACH_ROW(next[h] = tops[h]; added[h] = 0)
    // A NaN is ignored here, and reaches the sums by its weight.
    EACH_ITEM(KEY_TILES, next[h] = fmax(next[h], scores[t].items[i]))
    JOIN_LANES(next, fmax)
    EACH_ROW(
        // A query that has seen no key keeps its sums, which are 0.
        const float pivot = next[h] == -INFINITY ? 0 : next[h]; decay[h] = tile_exp2((tops[h] - pivot) * log2_factor);
        tops[h] = next[h]; next[h] = BIASED ? pivot : pivot * log2_factor)
    // The lowest bias times log2(e) would be infinite: it is subtracted first.
#define EXPONENT(score, h) (BIASED ? ((score)-next[h]) * log2_factor : fma(score, log2_factor, -next[h]))
    EACH_ITEM(KEY_TILES, const float weight = tile_exp2(EXPONENT(scores[t].items[i], h)); scores[t].items[i] = weight;
              added[h] += weight)
    EACH_ROW(totals[h] = fma(totals[h], decay[h], added[h]))
    EACH_ITEM(WIDTH_TILES, sums[t].items[i] *= decay[h])
    KEEP_WEIGHTS
    WAIT_FOR_COPIES
    // All items have copied the values, kept their weights, and used the keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (first_key + KEYS < last_key) {
      COPY_BLOCK(key_block, key + (first_key + KEYS) * p.key.row, p.key.row, all_keys - first_key - KEYS, head_dim)
    }
    UNROLL for (int n = 0; n < KEY_TILES; ++n) {
      TileA a;
      TileB tiles[WIDTH_TILES];
      LOAD_WEIGHTS(&a, n)
      UNROLL for (int w = 0; w < WIDTH_TILES; ++w) tile_load_b(&tiles[w], values, 0, WIDTH, w * TILE, n * TILE, lane);
      tile_multiply(sums, &a, tiles, 1, WIDTH_TILES, lane, sub_group TILE_PASS);
    }
  }

  JOIN_LANES(totals, ADD)
  // A query that sees no key gets 0, and an infinite logsumexp, so that all its weights are 0 in the backward pass.
  out += out_offset + head_offset(&p.out, batch, head) + first_query * p.out.row;
  __global float *logs = (__global float *)(logsumexp + logsumexp_offset) + (long)unit * all_queries + first_query;
  EACH_ITEM(
      WIDTH_TILES, const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i));
      const int column = t * TILE + (int)TILE_C_COLUMN(lane, i); const bool is_blind = totals[h] == 0;
      if (first_query + row < all_queries) {
        if (column < value_head_dim) store(out + row * p.out.row, column, DTYPE0, is_blind ? 0 : sums[t].items[i] / totals[h]);
        if (column == 0) logs[row] = is_blind ? INFINITY : fma(tops[h], factor, log(totals[h]));
      })
}
