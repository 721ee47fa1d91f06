// Gradients of attention of 16-bit floats by matrix instructions, from the row terms that attention_delta writes:
// weights are computed again, block by block (Dao, "FlashAttention-2", 2023).
//
// With OWNS_KEYS 0 a group owns queries, walks over keys and values, and writes the gradient of its queries. With
// OWNS_KEYS 1 it owns keys and values, walks over queries and the gradients of their results, for all heads that share
// the keys, and writes the gradients of its keys and values. Both multiply the same matrices, one transposed: with
//
//   owned      = queries | keys       owned_other = grad_out | values
//   step       = keys | queries       step_other  = values | grad_out
//
//   scores = owned step^T,  grads = owned_other step_other^T,  weights = exp(scale scores + bias - logsumexp)
//   grad_scores = weights (dropout(grads) - delta)
//   sums += grad_scores step,  and with OWNS_KEYS  value_sums += dropout(weights) step_other
//
// Dropout multiplies by 0 or 1 / keep_prob, in both formulas by the same.
//
// Weights and the gradients of scores are rounded to 16 bits for their products; a float16 gradient beyond 65504
// becomes infinite, as gradient scaling expects. A score costs 4 head_dim + 2 value_head_dim operations of matrix
// instructions, and with OWNS_KEYS 4 head_dim + 4 value_head_dim. No two groups write to the same address.
//
// Constants: those of attention_tile.cl, and OWNS_KEYS.

#if OWNS_KEYS
#define BY_QUERY_OR_KEY(of_queries, of_keys) (of_keys)
#else
#define BY_QUERY_OR_KEY(of_queries, of_keys) (of_queries)
#endif
// Three values for each query: its logsumexp, the correction to it, and delta.
#define TERMS 3

INLINE float weight_of(float score, float logsumexp, float correction) {
  return tile_exp2((score - logsumexp - correction) * LOG2_E);
}

// One group for each block of queries of a head, or of keys of a key head.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) SUB_GROUP_SIZE void attention_tile_backward(
    ATTENTION_ARGUMENTS, __global const uchar *grad_out, ulong grad_out_offset, __global const uchar *row_terms,
    ulong row_terms_offset, __global uchar *grad_owned, ulong grad_owned_offset, __global uchar *grad_value,
    ulong grad_value_offset, DROPOUT_ARGUMENTS) {
  __local uint4 memory[2 * OWN_CHUNKS + 2 * STEP_CHUNKS] __attribute__((aligned(128)));
#if TILE_KIND != TILE_MMA
  __local ushort all_left[(1 + OWNS_KEYS) * OWN_ROWS * STEP_ROWS] __attribute__((aligned(128)));
#endif
#if OWNS_KEYS
  __local float terms[STEP_ROWS * TERMS];
#endif
  TILE_MEMORY
  const uint item = (uint)get_local_id(0), lane = item % TILE_LANES, sub_group = item / TILE_LANES;
#if TILE_KIND != TILE_MMA
  __local ushort *left_scores = all_left + sub_group * TILE * STEP_ROWS;
  __local ushort *left_weights = left_scores + OWNS_KEYS * OWN_ROWS * STEP_ROWS;
#endif
  const int all_queries = (int)p.queries, all_keys = (int)p.keys, head_dim = (int)p.head_dim;
  const int value_head_dim = (int)p.value_head_dim;
  const int all_owned = BY_QUERY_OR_KEY(all_queries, all_keys), all_steps = BY_QUERY_OR_KEY(all_keys, all_queries);
  const uint heads = BY_QUERY_OR_KEY((uint)p.heads, (uint)(p.heads / p.group));
  const uint blocks = (uint)(all_owned + OWN_ROWS - 1) / OWN_ROWS;
  const uint unit = (uint)get_group_id(0) / blocks, batch = unit / heads, own_head = unit - batch * heads;
  const uint block = (uint)get_group_id(0) - unit * blocks;
  // The longest walks come first: those of the last queries, or of the first keys.
  const int first_owned = (int)(BY_QUERY_OR_KEY(blocks - 1 - block, block) * OWN_ROWS);
  const uint key_head = BY_QUERY_OR_KEY(own_head / (uint)p.group, own_head);
  key += key_offset + head_offset(&p.key, batch, key_head);
  value += value_offset + head_offset(&p.value, batch, key_head);

  __local uint4 *own_blocks = memory, *step_block = memory + 2 * OWN_CHUNKS, *other_block = step_block + STEP_CHUNKS;
  __local const ushort *owned = (__local const ushort *)own_blocks, *owned_other = owned + OWN_CHUNKS * CHUNK;
  __local const ushort *step = (__local const ushort *)step_block, *step_other = (__local const ushort *)other_block;
  {
    __global const uchar *from = BY_QUERY_OR_KEY(query + query_offset + head_offset(&p.query, batch, own_head), key);
    __global const uchar *other =
        BY_QUERY_OR_KEY(grad_out + grad_out_offset + head_offset(&p.grad_out, batch, own_head), value);
    const long pitch = BY_QUERY_OR_KEY(p.query.row, p.key.row);
    const long other_pitch = BY_QUERY_OR_KEY(p.grad_out.row, p.value.row);
    for (uint n = item; n < OWN_CHUNKS; n += ITEMS) {
      const uint r = n / ROW_CHUNKS, c = n % ROW_CHUNKS * CHUNK, to = INDEX_IN_ROWS(WIDTH, r, c) / CHUNK;
      const long row = first_owned + (int)r;
      const bool exists = row < all_owned;
      own_blocks[to] = exists && (int)c < head_dim ? *(__global const uint4 *)(from + row * pitch + c * 2) : (uint4)(0);
      own_blocks[OWN_CHUNKS + to] =
          exists && (int)c < value_head_dim ? *(__global const uint4 *)(other + row * other_pitch + c * 2) : (uint4)(0);
    }
  }

  TileC sums[WIDTH_TILES];
  EACH_ITEM(WIDTH_TILES, sums[t].items[i] = 0)
#if OWNS_KEYS
  TileC value_sums[WIDTH_TILES];
  EACH_ITEM(WIDTH_TILES, value_sums[t].items[i] = 0)
  // Queries before the keys do not see them.
  const int first_step = p.is_causal ? first_owned / STEP_ROWS * STEP_ROWS : 0, last_step = all_steps;
#else
  const int first_step = 0, last_step = p.is_causal ? min(all_keys, first_owned + OWN_ROWS) : all_keys;
#endif
  const int bias_row = (int)p.bias.row, bias_column = (int)p.bias_column;
#if TILE_COPIES
  START_COPIES(copies)
#endif

  for (uint head = BY_QUERY_OR_KEY(own_head, own_head * (uint)p.group);
       head < BY_QUERY_OR_KEY(own_head + 1, (own_head + 1) * (uint)p.group); ++head) {
    __global const uchar *queries = query + query_offset + head_offset(&p.query, batch, head);
    __global const uchar *grads_of_out = grad_out + grad_out_offset + head_offset(&p.grad_out, batch, head);
    __global const float *terms_of_head =
        (__global const float *)(row_terms + row_terms_offset) + TERMS * (batch * p.heads + head) * p.queries;
    __global const uchar *bias_of_head = BIASED ? bias + bias_offset + head_offset(&p.bias, batch, head) : bias;
#if !OWNS_KEYS
    float logs[TILE_LANE_ROWS], corrections[TILE_LANE_ROWS], deltas[TILE_LANE_ROWS];
    EACH_ITEM(1, const int q = first_owned + (int)(sub_group * TILE + TILE_C_ROW(lane, i));
              const bool is_row = q < all_queries; __global const float *own = terms_of_head + TERMS * (long)q;
              logs[h] = is_row ? own[0] : INFINITY; corrections[h] = is_row ? own[1] : 0;
              deltas[h] = is_row ? own[2] : 0)
#endif
    for (int first = first_step; first < last_step; first += STEP_ROWS) {
      const int left = all_steps - first;
      // All items have used the blocks of the step before, and have written their own rows.
      barrier(CLK_LOCAL_MEM_FENCE);
      COPY_BLOCK(step_block, BY_QUERY_OR_KEY(key + first * p.key.row, queries + first * p.query.row),
                 BY_QUERY_OR_KEY(p.key.row, p.query.row), left, head_dim)
      COPY_BLOCK(other_block, BY_QUERY_OR_KEY(value + first * p.value.row, grads_of_out + first * p.grad_out.row),
                 BY_QUERY_OR_KEY(p.value.row, p.grad_out.row), left, value_head_dim)
#if OWNS_KEYS
      for (uint n = item; n < STEP_ROWS * TERMS; n += ITEMS)
        terms[n] = (int)(n / TERMS) < left ? terms_of_head[TERMS * (long)first + n] : n % TERMS == 0 ? INFINITY : 0;
#endif
      const int first_query = BY_QUERY_OR_KEY(first_owned, first), first_key = BY_QUERY_OR_KEY(first, first_owned);
      DRAW_DROPOUT(
          kept, batch * (uint)p.heads + head,
          first_query + BY_QUERY_OR_KEY(sub_group * TILE + TILE_C_ROW(lane, i), t * TILE + TILE_C_COLUMN(lane, i)),
          first_key + BY_QUERY_OR_KEY(t * TILE + TILE_C_COLUMN(lane, i), sub_group * TILE + TILE_C_ROW(lane, i)))
      WAIT_FOR_COPIES(1)
      barrier(CLK_LOCAL_MEM_FENCE);
      TileC scores[STEP_TILES], grads[STEP_TILES];
      EACH_ITEM(STEP_TILES, scores[t].items[i] = grads[t].items[i] = 0)
      MULTIPLY_ROWS(scores, owned, step)
      WAIT_FOR_COPIES(0)
      barrier(CLK_LOCAL_MEM_FENCE);
      MULTIPLY_ROWS(grads, owned_other, step_other)
      __global const uchar *block_bias =
          BIASED ? bias_of_head + first_query * p.bias.row + first_key * p.bias_column : bias_of_head;
      // Only blocks at the end, or across the diagonal, have keys that are not seen.
      const bool is_edge = first_key + BY_QUERY_OR_KEY(STEP_ROWS, OWN_ROWS) > all_keys ||
                           (p.is_causal && first_key + BY_QUERY_OR_KEY(STEP_ROWS, OWN_ROWS) > first_query + 1);
      EACH_ITEM(STEP_TILES, const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i));
                const int column = t * TILE + (int)TILE_C_COLUMN(lane, i); const int q = BY_QUERY_OR_KEY(row, column);
                const int k = BY_QUERY_OR_KEY(column, row);
                const bool is_seen =
                    !is_edge || (first_key + k < all_keys && !(p.is_causal && first_key + k > first_query + q));
                float score = scores[t].items[i] * scale;
                if (BIASED && is_seen && first_query + q < all_queries) score +=
                load_mask(block_bias + (q * bias_row + k * bias_column), DTYPE1);
                const float weight = !is_seen ? 0
                                              : weight_of(score, BY_QUERY_OR_KEY(logs[h], terms[TERMS * column]),
                                                          BY_QUERY_OR_KEY(corrections[h], terms[TERMS * column + 1]));
                const float delta = BY_QUERY_OR_KEY(deltas[h], terms[TERMS * column + 2]);
                scores[t].items[i] = DROPPED(weight, kept);
                grads[t].items[i] = weight * (DROPPED(grads[t].items[i], kept) - delta))
      STORE_LEFT(left_scores, grads)
#if OWNS_KEYS
      STORE_LEFT(left_weights, scores)
#endif
#if TILE_KIND != TILE_MMA
      barrier(CLK_LOCAL_MEM_FENCE);
#endif
      ADD_PRODUCT(sums, left_scores, grads, step)
#if OWNS_KEYS
      ADD_PRODUCT(value_sums, left_weights, scores, step_other)
#endif
    }
  }

#define STORE_SUMS(sums, to, to_offset, rows, factor, columns)                                              \
  {                                                                                                         \
    __global uchar *target = to + to_offset + head_offset(&rows, batch, own_head) + first_owned * rows.row; \
    EACH_ITEM(WIDTH_TILES, const int row = (int)(sub_group * TILE + TILE_C_ROW(lane, i));                   \
              const int column = t * TILE + (int)TILE_C_COLUMN(lane, i);                                    \
              if (first_owned + row < all_owned && column < (columns))                                      \
                  store(target + row * rows.row, column, DTYPE0, sums[t].items[i] * (factor)))              \
  }
#if OWNS_KEYS
  STORE_SUMS(sums, grad_owned, grad_owned_offset, p.grad_key, scale, head_dim)
  STORE_SUMS(value_sums, grad_value, grad_value_offset, p.grad_value, 1, value_head_dim)
#else
  STORE_SUMS(sums, grad_owned, grad_owned_offset, p.grad_query, scale, head_dim)
#endif
}
