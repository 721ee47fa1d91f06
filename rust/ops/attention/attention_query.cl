// Attention with few queries (CLASS_F and CLASS_D), as in token-by-token decoding. Its cost is reading keys and values,
// so the whole device reads them, once. In attention.cl most columns of a block would be empty.
//
// A group handles one query and a run of keys, KEYS at a time, with the online softmax of attention.cl; runs are joined
// afterwards, by their maxima and sums of weights. Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context
// inference" (2023).

// Vectors of a row, and how many of them an item sums. If there are more items than vectors, they share the keys.
#define PARTS (WIDTH / VEC)
#define OWN_PARTS ((PARTS + LSIZE - 1) / LSIZE)
#define SHARES (LSIZE > PARTS ? LSIZE / PARTS : 1)

// Part `part` of a row of `length` elements, which may end before it.
INLINE TV load_row_part(__global const uchar *row, int part, int length, int dtype) {
  return part * VEC < length ? load_of_row(row, part * VEC, length, dtype) : (TV)0;
}

// With several runs, each writes a result to `out`, `out_step` bytes apart. `logsumexp` then holds the maximum scores
// of all runs, followed by the sums of their weights: a logarithm would round the sum away next to a large maximum.
__kernel GROUPS_OF(LSIZE) void attention_query(ATTENTION_ARGUMENTS, __global uchar *out, ulong out_offset,
                                               int out_dtype, __global uchar *logsumexp, ulong logsumexp_offset,
                                               long runs, long run, long out_step) {
  BLOCK_MEMORY(scores, 1, KEYS);
  BLOCK_MEMORY(shares, SHARES, WIDTH);
  const long task = get_group_id(0) / runs, piece = get_group_id(0) % runs;
  const long unit = task / p.queries, row = task % p.queries, batch = unit / p.heads, head = unit % p.heads;
  const long last_key = min(p.is_causal ? min(p.keys, row + 1) : p.keys, (piece + 1) * run);
  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  key += key_offset + head_offset(&p.key, batch, head / p.group);
  value += value_offset + head_offset(&p.value, batch, head / p.group);
  bias = bias ? bias + bias_offset + head_offset(&p.bias, batch, head) + row * p.bias.row : bias;
  query += query_offset + head_offset(&p.query, batch, head) + row * p.query.row;

  TV columns[PARTS], sums[OWN_PARTS];
  UNROLL for (int v = 0; v < PARTS; v++)
      columns[v] = load_row_part(query, v, head_dim, DTYPE0) * (TV)scale;
  UNROLL for (int v = 0; v < OWN_PARTS; v++) sums[v] = (TV)0;
  const int share = (int)get_local_id(0) / PARTS, first_part = (int)get_local_id(0) % PARTS;
  T top = -INFINITY, total = 0;

  for (long first_key = piece * run; first_key < last_key; first_key += KEYS) {
    const int count = (int)min((long)KEYS, last_key - first_key), padded = ROUND_UP(count, VEC);
    EACH(k, padded) {
      __global const uchar *at = key + (first_key + k) * p.key.row;
      TV dot = (TV)0;
      if (k < count) {
        UNROLL for (int v = 0; v < PARTS; v++)
            dot = FMA_OR_MAD(columns[v], load_row_part(at, v, head_dim, DTYPE0), dot);
      }
      T score = k < count ? lanes_sum(dot) : -INFINITY;
      if (BIASED && k < count) score += load_mask(bias + (first_key + k) * p.bias_column, DTYPE1);
      scores[k] = score;
    }
    SYNC;
    TV tops = (TV)top;
    for (int k = 0; k < padded; k += VEC) tops = VECTOR_AT(scores + k) > tops ? VECTOR_AT(scores + k) : tops;
    const T next = lanes_max(tops), pivot = next == -INFINITY ? (T)0 : next;
    const T decay = exp_vector((TV)(top - pivot)).s0;
    top = next;
    SYNC;
    EACH(i, padded / VEC) VECTOR_AT(scores + i * VEC) = exp_vector(VECTOR_AT(scores + i * VEC) - (TV)pivot);
    SYNC;
    TV weights = (TV)0;
    for (int k = 0; k < padded; k += VEC) weights += VECTOR_AT(scores + k);
    total = total * decay + lanes_sum(weights);
    UNROLL for (int v = 0; v < OWN_PARTS; v++) sums[v] *= (TV)decay;
    if (share < SHARES) {
      for (int k = share; k < count; k += SHARES) {
        __global const uchar *at = value + (first_key + k) * p.value.row;
        UNROLL for (int v = 0; v < OWN_PARTS; v++) {
          const TV part = load_row_part(at, first_part + v * LSIZE, value_head_dim, DTYPE0);
          sums[v] = FMA_OR_MAD((TV)scores[k], part, sums[v]);
        }
      }
    }
    SYNC;
  }

  UNROLL for (int v = 0; v < OWN_PARTS; v++) {
    const int part = first_part + v * LSIZE;
    if (share < SHARES && part < PARTS) VECTOR_AT(shares + share * WIDTH + part * VEC) = sums[v];
  }
  SYNC;
  // A query that sees no key gets 0, and an infinite logsumexp, so that all its weights are 0.
  const T factor = total == 0 ? (T)0 : 1 / total;
  out += out_offset + piece * out_step + head_offset(&p.out, batch, head) + row * p.out.row;
  EACH(v, (value_head_dim + VEC - 1) / VEC) {
    TV sum = (TV)0;
    for (int s = 0; s < SHARES; s++) sum += VECTOR_AT(shares + s * WIDTH + v * VEC);
    store_of_row(out, v * VEC, value_head_dim, out_dtype, sum * (TV)factor);
  }
  if (get_local_id(0) == 0) {
    __global T *to = (__global T *)(logsumexp + logsumexp_offset);
    if (runs == 1) {
      to[task] = total == 0 ? INFINITY : top + log(total);
    } else {
      const long tasks = get_num_groups(0) / runs;
      to[piece * tasks + task] = top;
      to[(runs + piece) * tasks + task] = total;
    }
  }
}

// Joins the runs of each query: their mean, weighted by the sums of their weights. Partial results are dense.
__kernel void attention_join(Attention p, __global const uchar *parts, ulong parts_offset,
                             __global const uchar *part_totals, ulong part_totals_offset, int dtype0,
                             __global uchar *out, ulong out_offset, __global uchar *logsumexp, ulong logsumexp_offset,
                             long runs, long tasks) {
  const int value_head_dim = (int)p.value_head_dim;
  ITEM_TASKS(tasks, first, last);
  for (long task = first; task < last; task++) {
    const long unit = task / p.queries, row = task % p.queries;
    // The maximum and the sum of weights of each run.
    __global const T *tops = (__global const T *)(part_totals + part_totals_offset) + task;
    __global const T *totals = tops + runs * tasks;
    T top = -INFINITY, total = 0;
    for (long r = 0; r < runs; r++) top = tops[r * tasks] <= top ? top : tops[r * tasks];
    const T pivot = top == -INFINITY ? (T)0 : top;
    for (long r = 0; r < runs; r++) total += totals[r * tasks] * exp(tops[r * tasks] - pivot);
    __global uchar *to = out + out_offset + head_offset(&p.out, unit / p.heads, unit % p.heads) + row * p.out.row;
    for (int v = 0; v * VEC < value_head_dim; v++) {
      TV sum = (TV)0;
      for (long r = 0; r < runs; r++) {
        const T share = totals[r * tasks] * exp(tops[r * tasks] - pivot);
        const T weight = share == 0 ? (T)0 : share / total;
        __global const T *from = (__global const T *)(parts + parts_offset) + (r * tasks + task) * value_head_dim;
        sum = FMA_OR_MAD(load_of_row((__global const uchar *)from, v * VEC, value_head_dim, T_DTYPE), (TV)weight, sum);
      }
      store_of_row(to, v * VEC, value_head_dim, DTYPE0, sum);
    }
    *((__global T *)(logsumexp + logsumexp_offset) + task) = total == 0 ? INFINITY : top + log(total);
  }
}
