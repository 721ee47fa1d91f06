// The entry points of random.cl for GPUs: a work-item has a counter. A work-group exchanges its numbers in local
// memory, so that neighbouring items have neighbouring elements.

#if !defined(IS_CPU) && !defined(IS_COMPLEX)

// Items of a group: the ITEM_GROUP of rust/ops/core/target.rs. They make MADE elements.
#define RANDOM_ITEMS 64
#define MADE (RANDOM_ITEMS * VECTORS)

// Index of number k of this item among those of its work-group.
static inline int index_in_group(int k) {
  const int item = get_local_id(0);
  return item / BESIDE * GROUP + k * BESIDE + item % BESIDE;
}

static inline void own_words(ulong seed, ulong offset, uint words[4]) {
  words_of(seed, offset + get_global_id(0), words);
}

// Elements that this item has of those of its work-group.
#define FOR_ELEMENTS(i, at, n)                                                                \
  for (long i = get_local_id(0), at = get_group_id(0) * (long)MADE + i; i < MADE && at < (n); \
       i += RANDOM_ITEMS, at += RANDOM_ITEMS)

#ifdef IS_INTEGER

// As that of CPUs.
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

// Leaves the numbers of a work-group, uniform in [0, 1), in `made`.
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
    // The largest value below b that the dtype holds lies above a: rounding up to b is undone by starting over at a.
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

// Dropout: keeps an element with probability `keep_prob` and scales it; the mask (bool) remembers which.
__kernel GROUPS_OF(RANDOM_ITEMS) void dropout(__global uchar *out, ulong out_offset, __global uchar *mask,
                                              ulong mask_offset, __global const uchar *input, ulong input_offset, int dtype0,
                                              long n, ulong seed, ulong offset, T keep_prob, T scale) {
  __local T made[MADE];
  make_uniform(made, seed, offset);
  FOR_ELEMENTS(i, at, n) {
    const bool kept = made[i] < keep_prob;
    const T v = load(input + input_offset, at, DTYPE0) * scale;
    mask[mask_offset + at] = kept;
    store(out + out_offset, at, DTYPE0, kept ? v : (T)0);
  }
}

// One work-item an element.
__kernel void dropout_backward(__global uchar *grad_in, ulong grad_in_offset, __global const uchar *grad_out,
                               ulong grad_out_offset, __global const uchar *mask, ulong mask_offset, int dtype0,
                               long n, T scale) {
  const long at = get_global_id(0);
  if (at >= n) return;
  const T v = load(grad_out + grad_out_offset, at, DTYPE0) * scale;
  store(grad_in + grad_in_offset, at, DTYPE0, mask[mask_offset + at] ? v : (T)0);
}

#endif
#endif
