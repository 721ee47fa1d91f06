// Gradients of attention, from the logsumexp that the forward pass writes: weights are computed again, block by block
// (Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023).
//
// A work-group owns a run of keys of one head. It walks over all queries with KEYS keys at a time, so that the
// gradients of keys and values are summed in local memory and no two groups write to the same address. The gradients of
// queries are summed in device memory, separately for each run of keys, so that results do not depend on the order in
// which groups run.

// If the maximum of the scores is greater, a logsumexp rounds the logarithm of the sum of weights by more than 2^-10.
#ifdef CLASS_D
#define PRECISE_LOGSUMEXP 0x1p42
#else
#define PRECISE_LOGSUMEXP 0x1p14f
#endif

// The logarithm of the sum of the weights computed from a rounded logsumexp; an exact logsumexp would give 0. Without
// this correction, a query whose keys are all masked by -FLT_MAX would give each of them weight 1.
OUTLINED T log_of_weights(const Attention *p, __global const uchar *query, __global const uchar *key,
                          __global const uchar *bias, long last_key, T scale, T query_logsumexp, int dtype1) {
  T total = 0;
  for (long k = 0; k < last_key; k++) {
    TV dot = (TV)0;
    for (long i = 0; i < p->head_dim; i += VEC)
      dot = FMA_OR_MAD(load_of_row(query, i, p->head_dim, DTYPE0),
                       load_of_row(key + k * p->key.row, i, p->head_dim, DTYPE0) * (TV)scale, dot);
    T score = lanes_sum(dot);
    if (BIASED) score += load_mask(bias + k * p->bias_column, dtype1);
    total += exp(score - query_logsumexp);
  }
  // Otherwise the rounding errors of the scores exceed the range of the exponential: no correction is known.
  return total > 0 && total < INFINITY ? log(total) : 0;
}

// Items that read a row of attention_delta side by side, and rows of a group.
#define ROW_ITEMS (LSIZE > 1 ? 8 : 1)
#define GROUP_ROWS (LSIZE / ROW_ITEMS)

// Writes three values for each query: its logsumexp, the correction to it, and the dot product of its output with the
// output's gradient.
__kernel GROUPS_OF(LSIZE) void attention_delta(ATTENTION_ARGUMENTS, __global const uchar *grad_out,
                                               ulong grad_out_offset, __global const uchar *out, ulong out_offset,
                                               __global const uchar *logsumexp, ulong logsumexp_offset,
                                               __global uchar *row_terms, ulong row_terms_offset, long count) {
  __local T dots[LSIZE];
  const int item = (int)get_local_id(0);
  SHARE_TASKS((count + GROUP_ROWS - 1) / GROUP_ROWS, get_group_id(0), get_num_groups(0), first, last);
  for (long block = first; block < last; block++) {
    // Rows after the last one repeat it, and are not stored.
    const long i = min(block * GROUP_ROWS + item / ROW_ITEMS, count - 1);
    const long unit = i / p.queries, row = i % p.queries, batch = unit / p.heads, head = unit % p.heads;
    __global const uchar *g = grad_out + grad_out_offset + head_offset(&p.grad_out, batch, head) + row * p.grad_out.row;
    __global const uchar *y = out + out_offset + head_offset(&p.out, batch, head) + row * p.out.row;
    TV sum = (TV)0;
    for (long k = item % ROW_ITEMS * VEC; k < p.value_head_dim; k += ROW_ITEMS * VEC)
      sum = FMA_OR_MAD(load_of_row(g, k, p.value_head_dim, DTYPE0), load_of_row(y, k, p.value_head_dim, DTYPE0), sum);
    dots[item] = lanes_sum(sum);
    SYNC;
    if (item % ROW_ITEMS == 0 && block * GROUP_ROWS + item / ROW_ITEMS < count) {
      T dot = 0;
  UNROLL for (int j = 0; j < ROW_ITEMS; j++) dot += dots[item + j];
      // The logsumexp of a query that sees no key is infinity here, and -infinity in the CPU's kernels.
      const T given = ((__global const T *)(logsumexp + logsumexp_offset))[i];
      const T query_logsumexp = given == -INFINITY ? INFINITY : given;
      T correction = 0;
      if (fabs(query_logsumexp) > PRECISE_LOGSUMEXP && query_logsumexp != INFINITY)
        correction = log_of_weights(&p, query + query_offset + head_offset(&p.query, batch, head) + row * p.query.row,
                                    key + key_offset + head_offset(&p.key, batch, head / p.group),
                                    bias + bias_offset + head_offset(&p.bias, batch, head) + row * p.bias.row,
                                    p.is_causal ? min(p.keys, row + 1) : p.keys, scale, query_logsumexp, DTYPE1);
      __global T *const terms = (__global T *)(row_terms + row_terms_offset) + 3 * i;
      terms[0] = query_logsumexp;
      terms[1] = correction;
      terms[2] = dot;
    }
    SYNC;
  }
}

// Turns scores into weights; keys past the end or after the query get weight 0.
INLINE void weigh(__local T *weights, int rows, int columns, __local const T *logs, __local const T *corrections,
                  long first_query, long first_key, const Attention *p) {
  const int parts = (columns + VEC - 1) / VEC;
  const TV lanes = lane_indices();
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    const long end = p->is_causal ? min(p->keys, first_query + row + 1) : p->keys;
    const T limit = (T)clamp(end - first_key - column, 0L, (long)VEC);
    __local T *at = weights + row * KEYS + column;
    VECTOR_AT(at) = lanes < (TV)limit ? exp_vector(VECTOR_AT(at) - logs[row] - corrections[row]) : (TV)0;
  }
}

// Adds `factor` times a block to rows of T in device memory, or overwrites them.
INLINE void sum_rows(__local const T *block, int rows, int width, __global uchar *target, long step, T factor,
                     bool replaces) {
  const int parts = (width + VEC - 1) / VEC;
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    TV v = *(__local const TV *)(block + row * WIDTH + column) * factor;
    if (!replaces) v += load_of_row(target + row * step, column, width, T_DTYPE);
    store_of_row(target + row * step, column, width, T_DTYPE, v);
  }
}

// One group for each key head and run of `run` keys. `sums` holds a gradient of the queries for each run, `sums_step`
// bytes apart, 0 for queries that see no key of the run. `grad_bias` is dense, 0 for keys that are not seen, and null
// if it is not requested. No SYNC depends on a condition: PoCL separates the items of a group there.
__kernel GROUPS_OF(LSIZE) void attention_backward(ATTENTION_ARGUMENTS, __global const uchar *grad_out,
                                                  ulong grad_out_offset, __global const uchar *row_terms,
                                                  ulong row_terms_offset, __global uchar *sums, ulong sums_offset,
                                                  long sums_step, __global uchar *grad_key, ulong grad_key_offset,
                                                  __global uchar *grad_value, ulong grad_value_offset,
                                                  __global uchar *grad_bias, ulong grad_bias_offset, long runs,
                                                  long run, DROPOUT_ARGUMENTS) {
  BLOCK_MEMORY(keys, KEYS, WIDTH);
  BLOCK_MEMORY(transposed_keys, WIDTH, KEYS);
  BLOCK_MEMORY(transposed_values, WIDTH, KEYS);
  BLOCK_MEMORY(key_sums, KEYS, WIDTH);
  BLOCK_MEMORY(value_sums, KEYS, WIDTH);
  BLOCK_MEMORY(queries, QUERIES, WIDTH);
  BLOCK_MEMORY(grad_outputs, QUERIES, WIDTH);
  BLOCK_MEMORY(weights, QUERIES, KEYS);
  BLOCK_MEMORY(grad_scores, QUERIES, KEYS);
  BLOCK_MEMORY(query_sums, QUERIES, WIDTH);
  __local T logs[QUERIES], corrections[QUERIES], deltas[QUERIES];

  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  const long key_heads = p.heads / p.group, chunk = get_group_id(0) % runs, owner = get_group_id(0) / runs;
  const long batch = owner / key_heads, key_head = owner % key_heads;
  const bool wants_bias = BIASED && grad_bias;
  const long run_end = min(p.keys, (chunk + 1) * run);
  key += key_offset + head_offset(&p.key, batch, key_head);
  value += value_offset + head_offset(&p.value, batch, key_head);
  grad_key += grad_key_offset + head_offset(&p.grad_key, batch, key_head);
  grad_value += grad_value_offset + head_offset(&p.grad_value, batch, key_head);
  sums += sums_offset + chunk * sums_step;

  for (long first_key = chunk * run; first_key < run_end; first_key += KEYS) {
    const int count = (int)min((long)KEYS, run_end - first_key), columns = ROUND_UP(count, VEC);
    const bool is_first = first_key == chunk * run;
    load_block(keys, KEYS, WIDTH, key + first_key * p.key.row, p.key.row, count, head_dim, DTYPE0);
    load_transposed(transposed_keys, ROUND_UP(head_dim, VEC), KEYS, key + first_key * p.key.row, p.key.row, count,
                    head_dim, scale);
    load_transposed(transposed_values, ROUND_UP(value_head_dim, VEC), KEYS, value + first_key * p.value.row,
                    p.value.row, count, value_head_dim, 1);
    fill_block(key_sums, KEYS * WIDTH, 0);
    fill_block(value_sums, KEYS * WIDTH, 0);

    for (long head = key_head * p.group; head < (key_head + 1) * p.group; head++) {
      const long unit = batch * p.heads + head;
      // Queries before these keys do not see them.
      const long start = p.is_causal ? first_key / QUERIES * QUERIES : 0;
      for (long first_query = start; first_query < p.queries; first_query += QUERIES) {
        const int present = (int)min((long)QUERIES, p.queries - first_query), rows = ROUND_UP(present, BLOCK_ROWS);
        SYNC;
        load_block(queries, rows, WIDTH,
                   query + query_offset + head_offset(&p.query, batch, head) + first_query * p.query.row, p.query.row,
                   present, head_dim, DTYPE0);
        load_block(grad_outputs, rows, WIDTH,
                   grad_out + grad_out_offset + head_offset(&p.grad_out, batch, head) + first_query * p.grad_out.row,
                   p.grad_out.row, present, value_head_dim, DTYPE0);
        EACH(i, rows) {
          __global const T *const terms =
              (__global const T *)(row_terms + row_terms_offset) + 3 * (unit * p.queries + first_query + i);
          // Rows past the end get weight 0.
          logs[i] = i < present ? terms[0] : (T)INFINITY;
          corrections[i] = i < present ? terms[1] : (T)0;
          deltas[i] = i < present ? terms[2] : (T)0;
        }
        SYNC;
        block_matmul(queries, WIDTH, 1, transposed_keys, KEYS, rows, columns, head_dim, weights, KEYS, REPLACE, 0);
        block_matmul(grad_outputs, WIDTH, 1, transposed_values, KEYS, rows, columns, value_head_dim, grad_scores, KEYS,
                     REPLACE, 0);
        SYNC;
        if (BIASED) {
          add_bias(weights, KEYS, present, count,
                   bias + bias_offset + head_offset(&p.bias, batch, head) + first_query * p.bias.row +
                       first_key * p.bias_column,
                   p.bias.row, p.bias_column, DTYPE1);
          SYNC;
        }
        weigh(weights, rows, columns, logs, corrections, first_query, first_key, &p);
        SYNC;
        if (DROPS) {
          apply_dropout(grad_scores, KEYS, 1, present, count, &p, unit, first_query, first_key, seed, offset,
                        keep_prob);
          SYNC;
        }
        const int parts = columns / VEC;
        EACH(i, rows * parts) {
          const int row = i / parts, at = row * KEYS + i % parts * VEC;
          VECTOR_AT(grad_scores + at) = VECTOR_AT(weights + at) * (VECTOR_AT(grad_scores + at) - deltas[row]);
        }
        SYNC;
        if (DROPS) {
          apply_dropout(weights, KEYS, 1, present, count, &p, unit, first_query, first_key, seed, offset, keep_prob);
          SYNC;
        }
        block_matmul(weights, 1, KEYS, grad_outputs, WIDTH, count, value_head_dim, rows, value_sums, WIDTH, ADD, 0);
        block_matmul(grad_scores, 1, KEYS, queries, WIDTH, count, head_dim, rows, key_sums, WIDTH, ADD, 0);
        block_matmul(grad_scores, KEYS, 1, keys, WIDTH, rows, head_dim, count, query_sums, WIDTH, REPLACE, 0);
        SYNC;
        sum_rows(query_sums, present, head_dim,
                 sums + head_offset(&p.grad_query, batch, head) + first_query * p.grad_query.row, p.grad_query.row,
                 scale, is_first);
        if (wants_bias) {
          const long before = (unit * p.queries + first_query) * p.keys + first_key;
          store_block(grad_scores, present, KEYS, grad_bias + grad_bias_offset + before * (long)sizeof(T),
                      p.keys * (long)sizeof(T), count, T_DTYPE, 1);
        }
      }
    }
    SYNC;
    store_block(key_sums, count, WIDTH, grad_key + first_key * p.grad_key.row, p.grad_key.row, head_dim, DTYPE0, scale);
    store_block(value_sums, count, WIDTH, grad_value + first_key * p.grad_value.row, p.grad_value.row, value_head_dim,
                DTYPE0, 1);
    SYNC;
  }
}

// Sums the dense gradients of the queries over the runs of keys, into a tensor of any dtype. An item takes a vector of
// a row.
__kernel void attention_finish(Attention p, __global const uchar *sums, ulong sums_offset, long runs, long sums_step,
                               __global uchar *grad_query, ulong grad_query_offset, int dtype0, long count) {
  const long parts = (p.head_dim + VEC - 1) / VEC;
  ITEM_TASKS(count * parts, first, last);
  for (long i = first; i < last; i++) {
    const long row = i / parts, k = i % parts * VEC, unit = row / p.queries;
    __global const uchar *from = sums + sums_offset + row * p.head_dim * (long)sizeof(T);
    __global uchar *to = grad_query + grad_query_offset +
                         head_offset(&p.grad_query, unit / p.heads, unit % p.heads) +
                         row % p.queries * p.grad_query.row;
    TV sum = load_of_row(from, k, p.head_dim, T_DTYPE);
    for (long run = 1; run < runs; run++) sum += load_of_row(from + run * sums_step, k, p.head_dim, T_DTYPE);
    store_of_row(to, k, p.head_dim, DTYPE0, sum);
  }
}
