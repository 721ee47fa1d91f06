// Scaled dot-product attention of 16-bit floats by matrix instructions, forward, in the order of work of Dao,
// "FlashAttention-2: faster attention with better parallelism and work partitioning" (2023).
//
// A sub-group has 16 queries, and multiplies them by STEP_ROWS keys at a time. The scores are tiles of C. Their
// exponentials, rounded to 16 bits, become tiles of A: in registers where the layout of both is the same (NVIDIA), else
// through local memory. Nothing of the size queries x keys is written.
//
// Local memory has one block of keys and one of values. Values are copied while scores are computed, and the next keys
// while weights are multiplied by values, on devices with such copies.
//
// A score costs 2 * (head_dim + value_head_dim) operations of matrix instructions. Outside of them it costs an
// exponential, a maximum, a sum, and WIDTH / STEP_ROWS products of sums by `decay`. A block of keys and values is read
// once for OWN_ROWS queries.
//
// Constants: TILE_KIND, TILE_EMULATED, SPEC_DTYPE0, SUB_GROUPS, STEP_ROWS, WIDTH (a row in local memory: 16, 32, 64 or
// 128 elements), DROPS, BIASED, and with a bias SPEC_DTYPE1. Rows are read in chunks of 8 elements: their addresses and
// lengths are multiples of 16 bytes.

// Global size: batches * heads * blocks of queries, ITEMS each.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void attention_tile(
    ATTENTION_ARGUMENTS, __global uchar *out, ulong out_offset, __global uchar *logsumexp, ulong logsumexp_offset,
    DROPOUT_ARGUMENTS) {
  __local uint4 memory[OWN_CHUNKS + 2 * STEP_CHUNKS] __attribute__((aligned(128)));
#if TILE_KIND != TILE_MMA
  __local ushort all_weights[OWN_ROWS * STEP_ROWS] __attribute__((aligned(128)));
#endif
  TILE_MEMORY
  const uint item = (uint)get_local_id(0), lane = item % TILE_LANES, sub_group = item / TILE_LANES;
#if TILE_KIND != TILE_MMA
  __local ushort *weights = all_weights + sub_group * TILE * STEP_ROWS;
#endif
  const int all_queries = (int)p.queries, all_keys = (int)p.keys;
  const uint blocks = (uint)(all_queries + OWN_ROWS - 1) / OWN_ROWS;
  const uint unit = (uint)get_group_id(0) / blocks, batch = unit / (uint)p.heads, head = unit - batch * (uint)p.heads;
  // The last queries see most keys: they come first, which evens out the load at the end.
  const int first_query = (int)((blocks - 1 - ((uint)get_group_id(0) - unit * blocks)) * OWN_ROWS);
  const int last_key = p.is_causal ? min(all_keys, first_query + OWN_ROWS) : all_keys;
  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  query += query_offset + head_offset(&p.query, batch, head) + first_query * p.query.row;
  key += key_offset + head_offset(&p.key, batch, head / (uint)p.group);
  value += value_offset + head_offset(&p.value, batch, head / (uint)p.group);
  // tile.rs refuses a bias in which an offset within a block of scores does not fit 32 bits.
  bias += BIASED ? bias_offset + head_offset(&p.bias, batch, head) + first_query * p.bias.row : 0;
  const int bias_row = (int)p.bias.row, bias_column = (int)p.bias_column;

  for (uint n = item; n < OWN_CHUNKS; n += ITEMS) {
    const uint r = n / ROW_CHUNKS, c = n % ROW_CHUNKS * CHUNK;
    const bool exists = first_query + (int)r < all_queries && (int)c < head_dim;
    memory[INDEX_IN_ROWS(WIDTH, r, c) / CHUNK] =
        exists ? *(__global const uint4 *)(query + r * p.query.row + c * 2) : (uint4)(0);
  }
  // The sum of a lane's weights, and the largest score of a row so far.
  TileC sums[WIDTH_TILES];
  float tops[TILE_LANE_ROWS], totals[TILE_LANE_ROWS];
  EACH_ITEM(WIDTH_TILES, sums[t].items[i] = 0)
  EACH_ROW(tops[h] = -INFINITY; totals[h] = 0)
  // A bias is added to scores that have been scaled.
  const float factor = BIASED ? 1 : scale, log2_factor = factor * LOG2_E;
  __local uint4 *key_block = memory + OWN_CHUNKS, *value_block = key_block + STEP_CHUNKS;
  __local const ushort *queries = (__local const ushort *)memory, *keys = (__local const ushort *)key_block;
  __local const ushort *values = (__local const ushort *)value_block;

#if TILE_COPIES
  START_COPIES(copies)
#endif
  COPY_BLOCK(key_block, key, p.key.row, all_keys, head_dim)
  for (int first_key = 0; first_key < last_key; first_key += STEP_ROWS) {
    WAIT_FOR_COPIES(0)
    // All items have copied the keys, and have used the values of the step before.
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY_BLOCK(value_block, value + first_key * p.value.row, p.value.row, all_keys - first_key, value_head_dim)
    DRAW_DROPOUT(kept, unit, first_query + sub_group * TILE + TILE_C_ROW(lane, i),
                 first_key + t * TILE + TILE_C_COLUMN(lane, i))
    TileC scores[STEP_TILES];
    EACH_ITEM(STEP_TILES, scores[t].items[i] = 0)
    MULTIPLY_ROWS(scores, queries, keys)
    // Only blocks at the end, or across the diagonal, have keys that are not seen.
    const bool is_edge = first_key + STEP_ROWS > all_keys || (p.is_causal && first_key + STEP_ROWS > first_query + 1);
    __global const uchar *block_bias = BIASED ? bias + first_key * p.bias_column : bias;
    if (BIASED || is_edge) {
      EACH_ITEM(STEP_TILES, const int column = t * TILE + (int)TILE_C_COLUMN(lane, i); const int k = first_key + column;
                const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i)); const int q = first_query + row;
                if (k >= all_keys || (p.is_causal && k > q)) scores[t].items[i] = -INFINITY;
                else if (BIASED && q < all_queries) scores[t].items[i] = fma(
                    scores[t].items[i], scale, load_mask(block_bias + (row * bias_row + column * bias_column), DTYPE1)))
    }
    float next[TILE_LANE_ROWS], pivots[TILE_LANE_ROWS], decay[TILE_LANE_ROWS], added[TILE_LANE_ROWS];
    EACH_ROW(next[h] = tops[h]; added[h] = 0)
    // A NaN is ignored here, and reaches the sums by its weight.
    EACH_ITEM(STEP_TILES, next[h] = fmax(next[h], scores[t].items[i]))
    JOIN_LANES(next, fmax)
    EACH_ROW(
        // A query that has seen no key keeps its sums, which are 0.
        const float top = next[h] == -INFINITY ? 0 : next[h]; decay[h] = tile_exp2((tops[h] - top) * log2_factor);
        tops[h] = next[h]; pivots[h] = BIASED ? top : top * log2_factor)
    // The lowest bias times log2(e) would be infinite: it is subtracted first.
#define EXPONENT(score, h) (BIASED ? ((score) - pivots[h]) * log2_factor : fma(score, log2_factor, -pivots[h]))
    EACH_ITEM(STEP_TILES, const float weight = tile_exp2(EXPONENT(scores[t].items[i], h)); added[h] += weight;
              scores[t].items[i] = DROPPED(weight, kept))
    EACH_ROW(totals[h] = fma(totals[h], decay[h], added[h]))
    EACH_ITEM(WIDTH_TILES, sums[t].items[i] *= decay[h])
    STORE_LEFT(weights, scores)
    WAIT_FOR_COPIES(0)
    // All items have copied the values, kept their weights, and used the keys.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (first_key + STEP_ROWS < last_key) {
      const int following = first_key + STEP_ROWS;
      COPY_BLOCK(key_block, key + following * p.key.row, p.key.row, all_keys - following, head_dim)
    }
    ADD_PRODUCT(sums, weights, scores, values)
  }

  JOIN_LANES(totals, ADD)
  // A query that sees no key gets 0, and an infinite logsumexp, so that all its weights are 0 in the backward pass.
  out += out_offset + head_offset(&p.out, batch, head) + first_query * p.out.row;
  __global float *logs = (__global float *)(logsumexp + logsumexp_offset) + (long)unit * all_queries + first_query;
  EACH_ITEM(
      WIDTH_TILES, const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i));
      const int column = t * TILE + (int)TILE_C_COLUMN(lane, i); const bool is_blind = totals[h] == 0;
      if (first_query + row < all_queries) {
        if (column < value_head_dim) {
          store(out + row * p.out.row, column, DTYPE0, is_blind ? 0 : sums[t].items[i] / totals[h]);
        }
        if (column == 0) logs[row] = is_blind ? INFINITY : fma(tops[h], factor, log(totals[h]));
      })
}
