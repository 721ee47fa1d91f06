// Shared by the forward and backward kernels of attention: the exponential, masks and dropout.

#ifdef CLASS_D
#define T_DTYPE DT_F64
#else
#define T_DTYPE DT_F32
#endif

// Parts of the rows of a block in the reduction of a column, so that more items than columns take part.
#define SLICES (LSIZE > 1 ? 8 : 1)

#define LOG2_E LIT(1.4426950408889634)

// e^x for x <= 0, to 2 ulp of 2^(x log2 e); 0 below 2^-125. The argument is multiplied after the maximum was
// subtracted: a score near the limit of T, as from a mask of -FLT_MAX, would become infinite. Adding 1.5 * 2^23 + 127
// rounds to an integer n and leaves the exponent of 2^n in the low bits: PoCL's rint takes as many instructions as this
// whole function. The product with 2^n keeps a NaN; adding n to its bits would make a number of it.
#ifdef CLASS_F
INLINE TV exp_vector(TV difference) {
  const TV x = difference * (TV)LOG2_E;
  const TV shifted = x + 12583039.0f, f = x - (shifted - 12583039.0f);
  TV p = FMA_OR_MAD(f, (TV)0.00015345736755989492f, (TV)0.0013399909948930144f);
  p = FMA_OR_MAD(f, p, (TV)0.009618489071726799f);
  p = FMA_OR_MAD(f, p, (TV)0.05550329014658928f);
  p = FMA_OR_MAD(f, p, (TV)0.24022646248340607f);
  p = FMA_OR_MAD(f, p, (TV)0.6931471824645996f);
  p = FMA_OR_MAD(f, p, (TV)1.0f);
  return x < (TV)-125 ? (TV)0 : p * PASTE(as_float, VEC)(PASTE(as_int, VEC)(shifted) << 23);
}
#else
OUTLINED TV exp_vector(TV difference) { return exp(difference); }
#endif

INLINE TV lane_indices(void) {
  Lanes v;
  for (int l = 0; l < VEC; l++) v.lanes[l] = l;
  return v.vector;
}

// Does for a vector what load_mask does for a scalar.
INLINE TV as_mask(TV v, int dtype) {
  if (dtype != DT_F16) return v;
  return v == (TV)-65504 ? (TV)LIT(-3.4028234663852886e38) : v;
}
// Loads elements of the bias that are not contiguous.
OUTLINED TV load_apart(__global const uchar *p, long step, int n, int dtype) { return load_lanes(p, step, n, dtype); }

// Adds the bias to a block of scores. In the bias, the rows of the block are `row_step` bytes apart, and its columns
// `column_step`.
INLINE void add_bias(__local T *scores, int width, int rows, int columns, __global const uchar *bias, long row_step,
                     long column_step, int dtype) {
  const int parts = (columns + VEC - 1) / VEC;
  EACH(i, rows * parts) {
    POSITION(i, parts, row, column)
    const TV v =
        load_apart(bias + row * row_step + column * column_step, column_step, min(columns - column, VEC), dtype);
    __local T *at = scores + row * width + column;
    VECTOR_AT(at) += as_mask(v, dtype);
  }
}

DEFINE_PHILOX(8, uint8, ulong8)

// Multiplies the weights of a block by 0 or 1 / keep_prob, with the same draw for any size of blocks. The block holds
// `queries` x `keys` weights, whose neighbours by query and by key are `query_step` and `key_step` elements apart;
// `first_key` is even, and `unit` is the index of batch and head.
INLINE void apply_dropout(__local T *block, int query_step, int key_step, int queries, int keys, const Attention *p,
                          long unit, long first_query, long first_key, DROPOUT_ARGUMENTS) {
  const int start = (int)(first_query % DROPOUT_QUERIES);
  const int parts = (start + queries + DROPOUT_QUERIES - 1) / DROPOUT_QUERIES;
  const T scale = 1 / keep_prob;
  EACH(i, (keys + DROPOUT_KEYS - 1) / DROPOUT_KEYS * parts) {
    const int pair = i / parts, part = i % parts;
    const long group = (first_key / DROPOUT_KEYS + pair) * DROPOUT_ROW(*p) + first_query / DROPOUT_QUERIES + part;
    const ulong counter = offset + unit * DROPOUT_HEAD(*p) + group * DROPOUT_COUNTERS;
    uint8 words[4];
    words_of_8(seed, counter + (ulong8)(0, 1, 2, 3, 4, 5, 6, 7), words);
    for (int w = 0; w < 4; w++) {
      uint lanes[8];
      vstore8(words[w] >> 8u, 0, lanes);
      const int key = pair * DROPOUT_KEYS + w / 2;
      for (int l = 0; l < 8; l++) {
        const int query = part * DROPOUT_QUERIES + w % 2 * 8 + l - start;
        if (query < 0 || query >= queries || key >= keys) continue;
        block[query * query_step + key * key_step] *= (T)lanes[l] * LIT(0x1p-24) < keep_prob ? scale : (T)0;
      }
    }
  }
}
