// Scaled dot-product attention without the matrix of weights (CLASS_F and CLASS_D): Dao, Fu, Ermon, Rudra and Ré,
// "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (NeurIPS 2022), with the online
// softmax of Milakov and Gimelshein (2018).
//
// A work-group handles QUERIES queries of one head and walks over the keys, KEYS at a time. It keeps the running
// maximum of the scores and the sum of the weights of each query, and rescales the sums when the maximum grows. Blocks
// hold queries in columns, so that each lane does this for its own query, and both matmuls read keys and values without
// a transpose.
//
// A score costs 2 * (head_dim + value_head_dim) operations in the two matmuls and about 16 in between, a sixteenth as
// many at a head_dim of 64. Memory is read once for each block of queries, and nothing of the size queries x keys is
// written.

// Masks keys past the end and, with `is_causal`, keys after the query.
INLINE void mask_keys(__local T *scores, int columns, int rows, long first_query, long first_key, const Attention *p) {
  const int parts = (columns + VEC - 1) / VEC;
  const TV lanes = lane_indices();
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    const long key = first_key + row;
    __local T *at = scores + row * QUERIES + column;
    // Lanes below this hold queries before the key.
    const T limit = key >= p->keys ? (T)VEC : p->is_causal ? (T)clamp(key - first_query - column, 0L, (long)VEC) : (T)0;
    VECTOR_AT(at) = lanes < (TV)limit ? (TV)-INFINITY : VECTOR_AT(at);
  }
}

// The maximum of each column over rows [first, last). Four rows at a time, as each step depends on the previous one.
INLINE TV top_of_rows(__local const T *column, int first, int last) {
  TV tops[4] = {(TV)-INFINITY, (TV)-INFINITY, (TV)-INFINITY, (TV)-INFINITY};
  int k = first;
  for (; k + 4 <= last; k += 4) UNROLL for (int j = 0; j < 4; j++)
        tops[j] = larger(tops[j], *(__local const TV *)(column + (k + j) * QUERIES));
  for (; k < last; k++) tops[0] = larger(tops[0], *(__local const TV *)(column + k * QUERIES));
  return larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
}

__kernel GROUPS_OF(LSIZE) void attention(ATTENTION_ARGUMENTS, __global uchar *out, ulong out_offset,
                                         __global uchar *logsumexp, ulong logsumexp_offset, DROPOUT_ARGUMENTS) {
  BLOCK_MEMORY(queries, WIDTH, QUERIES);
  BLOCK_MEMORY(sums, WIDTH, QUERIES);
  BLOCK_MEMORY(operand, KEYS, WIDTH);
  BLOCK_MEMORY(scores, KEYS, QUERIES);
  BLOCK_MEMORY(tops, 1, QUERIES);
  BLOCK_MEMORY(totals, 1, QUERIES);
  BLOCK_MEMORY(decay, 1, QUERIES);
  BLOCK_MEMORY(slices, SLICES, QUERIES);

  const long blocks = (p.queries + QUERIES - 1) / QUERIES;
  const long unit = get_group_id(0) / blocks, batch = unit / p.heads, head = unit % p.heads;
  // The last queries see most keys: they come first, which evens out the load at the end.
  const long first_query = (blocks - 1 - get_group_id(0) % blocks) * QUERIES;
  const int present = (int)min((long)QUERIES, p.queries - first_query), columns = ROUND_UP(present, VEC);
  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  const long last_key = p.is_causal ? min(p.keys, first_query + present) : p.keys;
  key += key_offset + head_offset(&p.key, batch, head / p.group);
  value += value_offset + head_offset(&p.value, batch, head / p.group);
  bias = bias ? bias + bias_offset + head_offset(&p.bias, batch, head) + first_query * p.bias.row : bias;

  load_transposed(queries, ROUND_UP(head_dim, VEC), QUERIES,
                  query + query_offset + head_offset(&p.query, batch, head) + first_query * p.query.row, p.query.row,
                  present, head_dim, scale);
  fill_block(sums, WIDTH * QUERIES, 0);
  fill_block(tops, QUERIES, -INFINITY);
  fill_block(totals, QUERIES, 0);

  for (long first_key = 0; first_key < last_key; first_key += KEYS) {
    const int count = (int)min((long)KEYS, p.keys - first_key), rows = ROUND_UP(count, BLOCK_ROWS);
    load_block(operand, rows, WIDTH, key + first_key * p.key.row, p.key.row, count, head_dim, DTYPE0);
    SYNC;
    block_matmul(operand, WIDTH, 1, queries, QUERIES, rows, columns, head_dim, scores, QUERIES, REPLACE, 0);
    SYNC;
    if (BIASED) {
      add_bias(scores, QUERIES, count, present, bias + first_key * p.bias_column, p.bias_column, p.bias.row, DTYPE1);
      SYNC;
    }
    if (rows > count || (p.is_causal && first_key + count > first_query + 1))
      mask_keys(scores, columns, rows, first_query, first_key, &p);
    SYNC;
    const int parts = columns / VEC;
    EACH(i, parts * SLICES) {
      const int part = i % parts * VEC, first = i / parts * rows / SLICES, last = (i / parts + 1) * rows / SLICES;
      VECTOR_AT(slices + i / parts * QUERIES + part) = top_of_rows(scores + part, first, last);
    }
    SYNC;
    EACH(i, parts) {
      TV top = VECTOR_AT(tops + i * VEC);
      for (int s = 0; s < SLICES; s++) top = larger(top, VECTOR_AT(slices + s * QUERIES + i * VEC));
      // A query that sees no key yet keeps its sums, which are 0.
      const TV pivot = top == (TV)-INFINITY ? (TV)0 : top;
      VECTOR_AT(decay + i * VEC) = exp_vector(VECTOR_AT(tops + i * VEC) - pivot);
      VECTOR_AT(tops + i * VEC) = top;
    }
    SYNC;
    EACH(i, parts * SLICES) {
      const int part = i % parts * VEC, first = i / parts * rows / SLICES, last = (i / parts + 1) * rows / SLICES;
      const TV top = VECTOR_AT(tops + part), pivot = top == (TV)-INFINITY ? (TV)0 : top;
      TV total = (TV)0;
      for (int k = first; k < last; k++) {
        const TV weight = exp_vector(VECTOR_AT(scores + k * QUERIES + part) - pivot);
        VECTOR_AT(scores + k * QUERIES + part) = weight;
        total += weight;
      }
      VECTOR_AT(slices + i / parts * QUERIES + part) = total;
    }
    load_block(operand, rows, WIDTH, value + first_key * p.value.row, p.value.row, count, value_head_dim, DTYPE0);
    SYNC;
    EACH(i, parts) {
      TV total = VECTOR_AT(totals + i * VEC) * VECTOR_AT(decay + i * VEC);
      for (int s = 0; s < SLICES; s++) total += VECTOR_AT(slices + s * QUERIES + i * VEC);
      VECTOR_AT(totals + i * VEC) = total;
    }
    if (DROPS) {
      apply_dropout(scores, 1, QUERIES, present, count, &p, unit, first_query, first_key, seed, offset, keep_prob);
      SYNC;
    }
    block_matmul(operand, 1, WIDTH, scores, QUERIES, value_head_dim, columns, count, sums, QUERIES, ADD_DECAYED, decay);
    SYNC;
  }

  // A query that sees no key gets 0, and an infinite logsumexp, so that all its weights are 0 in the backward pass.
  __global T *logs = (__global T *)(logsumexp + logsumexp_offset) + unit * p.queries + first_query;
  EACH(i, columns / VEC) {
    const TV total = VECTOR_AT(totals + i * VEC), top = VECTOR_AT(tops + i * VEC);
    // Not two conditional operators on one condition: LLVM turns those into a mask which Oclgrind 21.10 extends
    // wrongly.
    const TM is_blind = total == (TV)0;
    VECTOR_AT(decay + i * VEC) = select(1 / total, (TV)0, is_blind);
    const TV query_logsumexp = select(top + log(total), (TV)INFINITY, is_blind);
    store_part((__global uchar *)logs, i * VEC, present, T_DTYPE, query_logsumexp);
  }
  SYNC;
  store_transposed(sums, present, QUERIES,
                   out + out_offset + head_offset(&p.out, batch, head) + first_query * p.out.row, p.out.row,
                   value_head_dim, DTYPE0, decay);
}
