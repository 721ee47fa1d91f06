// Arguments of the kernels of attention: tensor layouts, flags, and elements of the bias.

// Bias and dropout are flags known at build time, as loops are compiled once for each outcome of a condition.
#ifndef BIASED
#define BIASED 1
#endif
#ifndef DROPS
#define DROPS 1
#endif

// Row layout of a tensor [batch, heads, length, head_dim]: strides in bytes. Rows are dense.
typedef struct {
  long batch;
  long head;
  long row;
} RowStrides;
SHARED(RowStrides, 24);

// Sizes of a call, and the row layouts of its tensors.
typedef struct {
  long heads;  // query heads
  long group;  // query heads that share a key head
  long queries;
  long keys;
  long head_dim;  // of a query and a key
  long value_head_dim;
  long is_causal;  // query i sees keys 0 to i only
  RowStrides query;
  RowStrides key;
  RowStrides value;
  RowStrides out;
  RowStrides grad_query;
  RowStrides grad_key;
  RowStrides grad_value;
  RowStrides grad_out;
  RowStrides bias;  // added to the scores; may be expanded
  long bias_column;
} Attention;
SHARED(Attention, 280);

// Inputs of attention, and the scale of the scores.
#define ATTENTION_ARGUMENTS                                                                                       \
  Attention p, __global const uchar *query, ulong query_offset, __global const uchar *key, ulong key_offset,      \
      __global const uchar *value, ulong value_offset, int dtype0, __global const uchar *bias, ulong bias_offset, \
      int dtype1, T scale

// The part of the random stream that belongs to a call, and 1 - p: 1 without dropout.
#define DROPOUT_ARGUMENTS ulong seed, ulong offset, T keep_prob
// Eight counters decide on a block of 16 queries and two keys. Counter n decides on queries n and n + 8: its words 0
// and 1 on their weights for the first key, words 2 and 3 on those for the second.
#define DROPOUT_COUNTERS 8
#define DROPOUT_QUERIES 16
#define DROPOUT_KEYS 2
// The number of blocks of queries, and the number of counters of a head.
#define DROPOUT_ROW(p) (((p).queries + DROPOUT_QUERIES - 1) / DROPOUT_QUERIES)
#define DROPOUT_HEAD(p) (((p).keys + DROPOUT_KEYS - 1) / DROPOUT_KEYS * DROPOUT_ROW(p) * DROPOUT_COUNTERS)

static inline long head_offset(const RowStrides *rows, long batch, long head) {
  return batch * rows->batch + head * rows->head;
}

// Converts the lowest float16, which masks use to hide keys, to the lowest float32. A query whose keys are all hidden
// then gives them equal weights, as with the other dtypes and when scores are computed in float16. ATen's CPU kernel
// adds the mask in float32 and keeps the scores. -INFINITY is unchanged: it always hides a key.
INLINE T load_mask(__global const uchar *p, int dtype) {
  const T v = load_at(p, dtype);
  return dtype == DT_F16 && v == -65504 ? LIT(-3.4028234663852886e38) : v;
}
