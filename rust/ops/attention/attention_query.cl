// Attention with few queries (CLASS_F), as in token-by-token decoding. Its cost is reading keys and values, so the
// whole device reads them. In attention.cl most columns of a block would be empty.
//
// A row is a query of one head. A work-group handles ROWS rows of heads that share a head of keys and values, and reads
// these once: row r is query r / sharing of their head r % sharing. The work-group takes a run of keys, KEYS at a time,
// with the online softmax of attention.cl; runs are joined afterwards, by their maxima and sums of weights. Dao,
// Haziza, Massa and Sizov, "Flash-Decoding for long-context inference" (2023).
//
// KEY_ITEMS neighbouring items read the row of a key, and of a value, in neighbouring vectors, and use each vector for
// all ROWS rows. So a key and a value cost (head_dim + value_head_dim) / VEC loads, and ROWS times as many operations
// as they have elements. A key's product with a row then is the sum of KEY_ITEMS numbers in local memory.
//
// Constants: LSIZE, VEC, WIDTH (elements of the longest row, in whole vectors), ROWS, KEY_ITEMS (a power of two), KEYS,
// SPEC_DTYPE0, BIASED, and with a bias SPEC_DTYPE1. With SPEC_ALIGNED, all rows have WIDTH elements, and their vectors
// are aligned.

// Vectors of a row, and how many of them an item reads.
#define PARTS (WIDTH / VEC)
#define OWN_PARTS ((PARTS + KEY_ITEMS - 1) / KEY_ITEMS)
// Keys that a group reads at the same time.
#define SHARES (LSIZE / KEY_ITEMS)
// Keys of an item whose rows are loaded before the first is used: about four vectors are on their way at a time.
#define MOST_LOADS (LSIZE > 1 && OWN_PARTS < 4 ? 4 / OWN_PARTS : 1)
#define LOADS (MOST_LOADS < KEYS / SHARES ? MOST_LOADS : KEYS / SHARES)
// Vectors of the scores of a row.
#define KEY_PARTS (KEYS / VEC)
// Elements of local memory for an item's products of each key with all rows. Those of the next item begin VEC banks
// further.
#define PRODUCTS (ROWS * KEYS + (KEY_ITEMS > 1 ? VEC : 0))

// Part `part` of a row of `length` elements, which may end before it. A condition that is not constant would make an
// item wait for each load.
INLINE TV load_row_part(__global const uchar *row, int part, int length, int dtype) {
#ifdef SPEC_ALIGNED
  return OWN_PARTS * KEY_ITEMS == PARTS || part < PARTS ? load_vector(row, part * VEC, dtype) : (TV)0;
#else
  return part * VEC < length ? load_of_row(row, part * VEC, length, dtype) : (TV)0;
#endif
}

// Loads the bias of n keys, `step` bytes apart. Its vectors need not be aligned, and its bytes are few.
INLINE TV load_bias(__global const uchar *p, long step, int n, int dtype) {
#if LSIZE > 1
  Lanes v;
  UNROLL for (int l = 0; l < VEC; l++) v.lanes[l] = l < n ? load_mask(p + l * step, dtype) : 0;
  return v.vector;
#else
  return as_mask(load_apart(p, step, n, dtype), dtype);
#endif
}

// The sum of a vector of products over the items of their keys. Unrolled, the outer loop would load all vectors first.
INLINE TV sum_of_items(__local const T *products) {
  TV sum = (TV)0;
  _Pragma("unroll 1") for (int item = 0; item < KEY_ITEMS; item += 4) {
    UNROLL for (int i = 0; i < 4 && i < KEY_ITEMS; i++)
        sum += *(__local const TV *)(products + (item + i) * PRODUCTS);
  }
  return sum;
}

// Loops over the rows of the group, over the vectors of an item, and over the keys of LOADS.
#define FOR_ROWS UNROLL for (int r = 0; r < ROWS; r++)
#define FOR_PARTS UNROLL for (int v = 0; v < OWN_PARTS; v++)
#define FOR_LOADS UNROLL for (int n = 0; n < LOADS; n++)
// Runs CODE for LOADS keys of an item at a time, of the `count` keys from `first_key` on: keys first, first + SHARES
// and so on, with the vectors loads[n][v] of the rows that begin at `start`. After the last key its row repeats.
#define FOR_KEYS(start, step, length, CODE)                                                           \
  for (int first = share; first < count; first += LOADS * SHARES) {                                   \
    TV loads[LOADS][OWN_PARTS];                                                                       \
    FOR_LOADS {                                                                                       \
      __global const uchar *at = (start) + (first_key + min(first + n * SHARES, count - 1)) * (step); \
      FOR_PARTS loads[n][v] = load_row_part(at, first_part + v * KEY_ITEMS, length, DTYPE0);          \
    }                                                                                                 \
    CODE                                                                                              \
  }

// With several runs, each writes a result in T to `out`, `out_step` bytes apart. `logsumexp` then holds the maximum
// scores of all runs, followed by the sums of their weights: a logarithm would round the sum away next to a large
// maximum.
__kernel GROUPS_OF(LSIZE) void attention_query(ATTENTION_ARGUMENTS, __global uchar *out, ulong out_offset,
                                               __global uchar *logsumexp, ulong logsumexp_offset, long runs, long run,
                                               long out_step) {
#if LSIZE > 1
  // Queries in registers would leave GPUs too few for loads.
  BLOCK_MEMORY(queries, ROWS, OWN_PARTS * KEY_ITEMS * VEC);
#define QUERY_PART(r, v) VECTOR_AT(queries + ((r) * OWN_PARTS * KEY_ITEMS + first_part + (v) * KEY_ITEMS) * VEC)
#else
  TV queries[ROWS][OWN_PARTS];
#define QUERY_PART(r, v) queries[r][v]
#endif
  BLOCK_MEMORY(products, 1, KEY_ITEMS * PRODUCTS > SHARES * WIDTH ? KEY_ITEMS * PRODUCTS : SHARES * WIDTH);
  BLOCK_MEMORY(scores, ROWS, KEYS);
  __local T part_tops[ROWS * KEY_PARTS], part_totals[ROWS * KEY_PARTS];
  const uint sharing = (uint)p.group, all_rows = sharing * (uint)p.queries, blocks = (all_rows + ROWS - 1) / ROWS;
  const uint task = (uint)get_group_id(0) / (uint)runs, piece = (uint)get_group_id(0) % (uint)runs;
  const uint key_heads = (uint)p.heads / sharing, unit = task / blocks, batch = unit / key_heads;
  const uint first_head = unit % key_heads * sharing;
  const uint first_row = task % blocks * ROWS, last_row = min(first_row + ROWS, all_rows) - 1;
  // Rows after the last one repeat it, and are not stored.
#define ROW(r) min(first_row + (uint)(r), last_row)
#define QUERY_OF(r) (ROW(r) / sharing)
#define HEAD_OF(r) (first_head + ROW(r) % sharing)
  const long all_keys = p.is_causal ? min(p.keys, (long)(last_row / sharing) + 1) : p.keys;
  const long last_key = min(all_keys, (piece + 1) * run);
  const int head_dim = (int)p.head_dim, value_head_dim = (int)p.value_head_dim;
  query += query_offset;
  key += key_offset + head_offset(&p.key, batch, first_head / sharing);
  value += value_offset + head_offset(&p.value, batch, first_head / sharing);
  bias += BIASED ? bias_offset : 0;

  const int share = (int)get_local_id(0) / KEY_ITEMS, first_part = (int)get_local_id(0) % KEY_ITEMS;
  TV sums[ROWS][OWN_PARTS];
  T tops[ROWS];
  FOR_ROWS {
    __global const uchar *row = query + head_offset(&p.query, batch, HEAD_OF(r)) + QUERY_OF(r) * p.query.row;
    FOR_PARTS {
      const int part = first_part + v * KEY_ITEMS;
      if (share == 0) QUERY_PART(r, v) = load_row_part(row, part, head_dim, DTYPE0) * (TV)scale;
      sums[r][v] = (TV)0;
    }
    tops[r] = -INFINITY;
  }
  // One item reads and writes each of these, until all are read at the end.
  EACH(i, ROWS * KEY_PARTS) part_totals[i] = 0;
  SYNC;

  for (long first_key = piece * run; first_key < last_key; first_key += KEYS) {
    const int count = (int)min((long)KEYS, last_key - first_key), padded = ROUND_UP(count, VEC);
    // Scores of keys after the last one are replaced below.
    FOR_KEYS(
        key, p.key.row, head_dim, FOR_ROWS {
          TV dots[LOADS];
          FOR_LOADS dots[n] = (TV)0;
          FOR_PARTS {
            const TV part = QUERY_PART(r, v);
            FOR_LOADS dots[n] = FMA_OR_MAD(part, loads[n][v], dots[n]);
          }
          FOR_LOADS products[first_part * PRODUCTS + r * KEYS + first + n * SHARES] = lanes_sum(dots[n]);
        })
    SYNC;
    EACH(i, ROWS * KEY_PARTS) {
      const int r = i / KEY_PARTS, first = i % KEY_PARTS * VEC;
      TV score = (TV)-INFINITY;
      if (first < padded) {
        score = sum_of_items(products + r * KEYS + first);
        if (BIASED) {
          __global const uchar *at = bias + head_offset(&p.bias, batch, HEAD_OF(r)) + QUERY_OF(r) * p.bias.row;
          score += load_bias(at + (first_key + first) * p.bias_column, p.bias_column, min(count - first, VEC), DTYPE1);
        }
        const long seen = p.is_causal ? min(last_key, (long)QUERY_OF(r) + 1) : last_key;
        score = lane_indices() < (TV)(T)clamp(seen - first_key - first, 0L, (long)VEC) ? score : (TV)-INFINITY;
        VECTOR_AT(scores + i * VEC) = score;
      }
      part_tops[i] = lanes_max(score);
    }
    SYNC;
    T pivots[ROWS], decays[ROWS];
    FOR_ROWS {
      T next = tops[r];
      UNROLL for (int i = 0; i < KEY_PARTS; i++) {
        const T top = part_tops[r * KEY_PARTS + i];
        next = top > next ? top : next;
      }
      pivots[r] = next == -INFINITY ? (T)0 : next;
      decays[r] = exp_vector((TV)(tops[r] - pivots[r])).s0;
      tops[r] = next;
      FOR_PARTS sums[r][v] *= (TV)decays[r];
    }
    EACH(i, ROWS * KEY_PARTS) {
      T pivot = pivots[0], decay = decays[0];
      UNROLL for (int r = 1; r < ROWS; r++) {
        pivot = i / KEY_PARTS == r ? pivots[r] : pivot;
        decay = i / KEY_PARTS == r ? decays[r] : decay;
      }
      TV weights = (TV)0;
      if (i % KEY_PARTS * VEC < padded) {
        weights = exp_vector(VECTOR_AT(scores + i * VEC) - (TV)pivot);
        VECTOR_AT(scores + i * VEC) = weights;
      }
      part_totals[i] = part_totals[i] * decay + lanes_sum(weights);
    }
    SYNC;
    FOR_KEYS(value, p.value.row, value_head_dim, FOR_ROWS FOR_LOADS {
      const int k = first + n * SHARES;
      // A weight of 0 would make a NaN of an infinite value.
      FOR_PARTS if (k < count) sums[r][v] = FMA_OR_MAD((TV)scores[r * KEYS + k], loads[n][v], sums[r][v]);
    })
  }

  // The sums of each share of the keys, where the products were.
  __local T *shares = products;
  out += out_offset + piece * out_step;
  __global T *totals = (__global T *)(logsumexp + logsumexp_offset);
  FOR_ROWS {
    FOR_PARTS {
      const int part = first_part + v * KEY_ITEMS;
      if (part < PARTS) VECTOR_AT(shares + share * WIDTH + part * VEC) = sums[r][v];
    }
    SYNC;
    T total = 0;
    UNROLL for (int i = 0; i < KEY_PARTS; i++) total += part_totals[r * KEY_PARTS + i];
    // A query that sees no key gets 0, and an infinite logsumexp, so that all its weights are 0.
    const T factor = total == 0 ? (T)0 : 1 / total;
    if (first_row + r <= last_row) {
      __global uchar *to = out + head_offset(&p.out, batch, HEAD_OF(r)) + QUERY_OF(r) * p.out.row;
      EACH(v, (value_head_dim + VEC - 1) / VEC) {
        TV sum = (TV)0;
        for (int s = 0; s < SHARES; s++) sum += VECTOR_AT(shares + s * WIDTH + v * VEC);
        if (runs == 1) store_of_row(to, v * VEC, value_head_dim, DTYPE0, sum * (TV)factor);
        else store_of_row(to, v * VEC, value_head_dim, T_DTYPE, sum * (TV)factor);
      }
      if (get_local_id(0) == 0) {
        const long index = (batch * p.heads + HEAD_OF(r)) * p.queries + QUERY_OF(r);
        if (runs == 1) {
          totals[index] = total == 0 ? INFINITY : tops[r] + log(total);
        } else {
          const long tasks = (long)get_num_groups(0) / runs / blocks * all_rows;
          totals[piece * tasks + index] = tops[r];
          totals[(runs + piece) * tasks + index] = total;
        }
      }
    }
    SYNC;
  }
}

// Joins the runs of each query: their mean, weighted by the sums of their weights. Partial results are dense. An item
// takes a vector of a query's result.
__kernel void attention_join(Attention p, __global const uchar *parts, ulong parts_offset,
                             __global const uchar *part_totals, ulong part_totals_offset, int dtype0,
                             __global uchar *out, ulong out_offset, __global uchar *logsumexp, ulong logsumexp_offset,
                             long runs, long tasks) {
  const long value_head_dim = p.value_head_dim, row_parts = (value_head_dim + VEC - 1) / VEC;
  ITEM_TASKS(tasks * row_parts, first, last);
  for (long i = first; i < last; i++) {
    const long task = i / row_parts, column = i % row_parts * VEC, unit = task / p.queries, row = task % p.queries;
    // The maximum and the sum of weights of each run.
    __global const T *tops = (__global const T *)(part_totals + part_totals_offset) + task;
    __global const T *totals = tops + runs * tasks;
    T top = -INFINITY, total = 0;
    for (long r = 0; r < runs; r++) top = tops[r * tasks] <= top ? top : tops[r * tasks];
    const T pivot = top == -INFINITY ? (T)0 : top;
    for (long r = 0; r < runs; r++) total += totals[r * tasks] * exp(tops[r * tasks] - pivot);
    TV sum = (TV)0;
    for (long r = 0; r < runs; r++) {
      const T share = totals[r * tasks] * exp(tops[r * tasks] - pivot);
      const T weight = share == 0 ? (T)0 : share / total;
      __global const T *from = (__global const T *)(parts + parts_offset) + (r * tasks + task) * value_head_dim;
      const TV part = load_of_row((__global const uchar *)from, column, value_head_dim, T_DTYPE);
      sum = FMA_OR_MAD(part, (TV)weight, sum);
    }
    __global uchar *to = out + out_offset + head_offset(&p.out, unit / p.heads, unit % p.heads) + row * p.out.row;
    store_of_row(to, column, value_head_dim, DTYPE0, sum);
    if (column == 0) *((__global T *)(logsumexp + logsumexp_offset) + task) = total == 0 ? INFINITY : top + log(total);
  }
}
