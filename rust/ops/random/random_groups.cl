// The entry points of random.cl for GPUs: a work-item has a counter. A work-group exchanges its numbers in local
// memory, so that neighbouring items store neighbouring elements.

#if !defined(IS_CPU) && !defined(IS_COMPLEX)

// Items of a group: the ITEM_GROUP of rust/ops/core/target.rs. They make MADE elements.
#define RANDOM_ITEMS 64
#define MADE (RANDOM_ITEMS * VECTORS)

// Index of this item's random number k among the numbers of its work-group.
static inline int index_in_group(int k) {
  const int item = get_local_id(0);
  return item / COUNTERS_PER_GROUP * GROUP + k * COUNTERS_PER_GROUP + item % COUNTERS_PER_GROUP;
}

static inline void own_words(ulong seed, ulong offset, uint words[4]) {
  words_of(seed, offset + get_global_id(0), words);
}

// This item's elements of its work-group.
#define FOR_ELEMENTS(i, at, n)                                                                \
  for (long i = get_local_id(0), at = get_group_id(0) * (long)MADE + i; i < MADE && at < (n); \
       i += RANDOM_ITEMS, at += RANDOM_ITEMS)

#ifdef IS_INTEGER

// As random_integers of random_lanes.cl.
__kernel GROUPS_OF(RANDOM_ITEMS) void random_integers(__global uchar *out, ulong out_offset, int dtype0, long n,
                                                      ulong seed, ulong offset, ulong range, long base) {
  __local ulong made[MADE];
  uint words[4];
  own_words(seed, offset, words);
  UNROLL for (int k = 0; k < VECTORS; k++) {
    const ulong bits = long_words(words, k);
    made[index_in_group(k)] = range == 0 ? bits : mul_hi(bits, range);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  FOR_ELEMENTS(i, at, n) store(out + out_offset, at, DTYPE0, (long)made[i] + base);
}

#elif defined(IS_FLOAT)

// Writes the random numbers of a work-group, uniform in [0, 1), to `made`.
static inline void make_uniform(__local T *made, ulong seed, ulong offset) {
  uint words[4];
  own_words(seed, offset, words);
  UNROLL for (int k = 0; k < VECTORS; k++) made[index_in_group(k)] = uniform_vector(words, k);
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Rounds a value to a dtype.
static inline T rounded(T v, int dt) {
  switch (dt) {
    case DT_F16: {
      ushort bits;
      vstore_half_rte((float)v, 0, (half *)&bits);
      return vload_half(0, (const half *)&bits);
    }
    case DT_BF16: return bf16_to_float(float_to_bf16((float)v));
  }
  return v;
}

__kernel GROUPS_OF(RANDOM_ITEMS) void random_sample(__global uchar *out, ulong out_offset, int op, int dtype0, long n,
                                                    ulong seed, ulong offset, T a, T b) {
  __local T made[MADE];
  uint words[4];
  own_words(seed, offset, words);
  UNROLL for (int k = 0; k < VECTORS; k++) {
    T v = sample(OP, words, k, a, b);
    // Replaces a value that rounds up to b by a. The largest value below b that the dtype can hold is above a.
    if (OP == RANDOM_uniform_ && rounded(v, DTYPE0) >= b) v = a;
    made[index_in_group(k)] = v;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  FOR_ELEMENTS(i, at, n) store(out + out_offset, at, DTYPE0, made[i]);
}

// Bernoulli with a probability for each element; dtype1 is that of the probabilities.
__kernel GROUPS_OF(RANDOM_ITEMS) void random_bernoulli(__global uchar *out, ulong out_offset, __global const uchar *p,
                                                       ulong p_offset, int dtype0, int dtype1, long n, ulong seed,
                                                       ulong offset, __global uchar *faults, ulong faults_offset) {
  __local T made[MADE];
  make_uniform(made, seed, offset);
  bool is_good = true;
  FOR_ELEMENTS(i, at, n) {
    const T probability = load(p + p_offset, at, DTYPE1);
    is_good &= probability >= 0 && probability <= 1;
    store(out + out_offset, at, DTYPE0, made[i] < probability);
  }
  if (!is_good) report_fault(faults + faults_offset, FAULT_PROBABILITY, 0, 0);
}

// Dropout: keeps an element with probability `keep_prob` and scales it; the mask (bool) marks which. Other elements are
// multiplied by zero, so that infinities and NaN stay visible, as in PyTorch.
__kernel GROUPS_OF(RANDOM_ITEMS) void dropout(__global uchar *out, ulong out_offset, __global uchar *mask,
                                              ulong mask_offset, __global const uchar *input, ulong input_offset, int dtype0,
                                              long n, ulong seed, ulong offset, T keep_prob, T scale) {
  __local T made[MADE];
  make_uniform(made, seed, offset);
  FOR_ELEMENTS(i, at, n) {
    const bool kept = made[i] < keep_prob;
    mask[mask_offset + at] = kept;
    store(out + out_offset, at, DTYPE0, load(input + input_offset, at, DTYPE0) * (kept ? scale : (T)0));
  }
}

// One element per work-item.
__kernel void dropout_backward(__global uchar *grad_in, ulong grad_in_offset, __global const uchar *grad_out,
                               ulong grad_out_offset, __global const uchar *mask, ulong mask_offset, int dtype0,
                               long n, T scale) {
  const long at = get_global_id(0);
  if (at >= n) return;
  const T v = load(grad_out + grad_out_offset, at, DTYPE0);
  store(grad_in + grad_in_offset, at, DTYPE0, v * (mask[mask_offset + at] ? scale : (T)0));
}

#endif
#endif
