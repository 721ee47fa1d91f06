// The entry points of random.cl for CPUs: a work-item makes the random numbers of a group.

#ifdef IS_CPU

// The words of a group; `offset` is the first counter of the launch.
static inline void group_words(ulong seed, ulong offset, ulong group, Words words[4]) {
  words_of(seed, offset + group * LANES + (ulong8)(0, 1, 2, 3, 4, 5, 6, 7), words);
}

#ifdef IS_INTEGER

// base + an integer below range; range 0 means all 64 bits. Each element is the high half of the product of two words
// with the range: the bias is below range / 2^64.
__kernel void random_integers(__global uchar *out, ulong out_offset, int dtype0, long n, ulong seed, ulong offset,
                              ulong range, long base) {
  long group = get_global_id(0);
  Words words[4];
  group_words(seed, offset, group, words);
  for (int half_group = 0; half_group < 2; half_group++) {
    ulong8 bits = long_words(words, half_group);
    ulong values[LANES];
    vstore8(range == 0 ? bits : mul_hi(bits, (ulong8)range), 0, values);
    long first = group * GROUP + half_group * LANES;
    int count = (int)min((long)LANES, n - first);
    for (int i = 0; i < count; i++) store(out + out_offset, first + i, DTYPE0, (long)values[i] + base);
  }
}

// A permutation of 0 to n - 1 by swaps (R. Durstenfeld, "Algorithm 235: random permutation", Communications of the ACM
// 7, 1964). `keys` has the random numbers, of 63 bits. One work-item, as each swap depends on the previous ones.
__kernel void permutation(__global uchar *out, ulong out_offset, __global const uchar *keys, ulong keys_offset,
                          long n) {
  __global long *order = (__global long *)(out + out_offset);
  __global const ulong *key = (__global const ulong *)(keys + keys_offset);
  for (long i = 0; i < n; i++) order[i] = i;
  for (long i = 0; i < n - 1; i++) {
    const long other = i + (long)mul_hi(key[i] << 1, (ulong)(n - i)), value = order[other];
    order[other] = order[i];
    order[i] = value;
  }
}

#elif defined(IS_FLOAT)

// Stores up to 8 elements from `first` on.
static inline void store_vector(__global uchar *out, long first, long n, int dt, TV v) {
  if (dt == NATURAL_DTYPE && first + LANES <= n) {
    vstore8(v, 0, (__global T *)out + first);
    return;
  }
#ifdef CLASS_F
  // PoCL 3.1 assumes that the address of vstore_half8 is aligned.
  if (dt == DT_F16 && first + LANES <= n && ((uintptr_t)((__global half *)out + first) & 15) == 0) {
    vstore_half8_rte(v, 0, (__global half *)out + first);
    return;
  }
#endif
  T values[LANES];
  vstore8(v, 0, values);
  int count = (int)min((long)LANES, n - first);
  for (int i = 0; i < count; i++) store(out, first + i, dt, values[i]);
}

// Replaces values that were rounded up to b by a. The largest value below b that dt can hold is above a.
static inline void exclude_upper_bound(__global uchar *out, long first, long n, int dt, T a, T b) {
  int count = (int)min((long)LANES, n - first);
  for (int i = 0; i < count; i++)
    if (load(out, first + i, dt) >= b) store(out, first + i, dt, a);
}

__kernel void random_sample(__global uchar *out, ulong out_offset, int op, int dtype0, long n, ulong seed, ulong offset,
                            T a, T b) {
  long group = get_global_id(0);
  Words words[4];
  group_words(seed, offset, group, words);
  for (int k = 0; k < VECTORS; k++) {
    long first = group * GROUP + k * LANES;
    if (first >= n) return;
    store_vector(out + out_offset, first, n, DTYPE0, sample(OP, words, k, a, b));
    if (OP == RANDOM_uniform_) exclude_upper_bound(out + out_offset, first, n, DTYPE0, a, b);
  }
}

// Bernoulli with a probability for each element; dtype1 is that of the probabilities.
__kernel void random_bernoulli(__global uchar *out, ulong out_offset, __global const uchar *p, ulong p_offset,
                               int dtype0, int dtype1, long n, ulong seed, ulong offset, __global uchar *faults,
                               ulong faults_offset) {
  long group = get_global_id(0);
  Words words[4];
  bool is_good = true;
  group_words(seed, offset, group, words);
  for (int k = 0; k < VECTORS; k++) {
    T u[LANES];
    vstore8(uniform_vector(words, k), 0, u);
    long first = group * GROUP + k * LANES;
    int count = (int)min((long)LANES, n - first);
    for (int i = 0; i < count; i++) {
      T probability = load(p + p_offset, first + i, DTYPE1);
      is_good &= probability >= 0 && probability <= 1;
      store(out + out_offset, first + i, DTYPE0, u[i] < probability);
    }
  }
  if (!is_good) report_fault(faults + faults_offset, FAULT_PROBABILITY, 0, 0);
}

// Loads eight elements from `first` on, all of which exist.
static inline TV load_vector(__global const uchar *input, long first, int dt) {
  switch (dt) {
    case NATURAL_DTYPE: return vload8(0, (__global const T *)input + first);
#ifdef CLASS_F
    case DT_F16: return vload_half8(0, (__global const half *)input + first);
    case DT_BF16: return as_float8(convert_uint8(vload8(0, (__global const ushort *)input + first)) << 16u);
#endif
  }
  T values[LANES];
  for (int i = 0; i < LANES; i++) values[i] = load(input, first + i, dt);
  return vload8(0, values);
}

// Dropout: keeps an element with probability `keep_prob` and scales it; the mask (bool) marks which.
__kernel void dropout(__global uchar *out, ulong out_offset, __global uchar *mask, ulong mask_offset,
                      __global const uchar *input, ulong input_offset, int dtype0, long n, ulong seed, ulong offset,
                      T keep_prob, T scale) {
  long group = get_global_id(0);
  Words words[4];
  group_words(seed, offset, group, words);
  for (int k = 0; k < VECTORS; k++) {
    const TV u = uniform_vector(words, k);
    long first = group * GROUP + k * LANES;
    if (first + LANES <= n) {
      const TV v = load_vector(input + input_offset, first, DTYPE0);
      vstore8(convert_uchar8(u < keep_prob) & (uchar8)1, 0, mask + mask_offset + first);
      store_vector(out + out_offset, first, n, DTYPE0, v * (u < keep_prob ? (TV)scale : (TV)0));
      continue;
    }
    T lanes[LANES];
    vstore8(u, 0, lanes);
    for (int i = 0; first + i < n; i++) {
      bool kept = lanes[i] < keep_prob;
      mask[mask_offset + first + i] = kept;
      store(out + out_offset, first + i, DTYPE0, load(input + input_offset, first + i, DTYPE0) * (kept ? scale : (T)0));
    }
  }
}

// Eight elements per work-item.
__kernel void dropout_backward(__global uchar *grad_in, ulong grad_in_offset, __global const uchar *grad_out,
                               ulong grad_out_offset, __global const uchar *mask, ulong mask_offset, int dtype0, long n,
                               T scale) {
  const long first = (long)get_global_id(0) * LANES;
  mask += mask_offset;
  if (first + LANES <= n) {
    const TV v = load_vector(grad_out + grad_out_offset, first, DTYPE0);
    const TV kept = TO_TV(vload8(0, mask + first));
    store_vector(grad_in + grad_in_offset, first, n, DTYPE0, v * (kept != (TV)0 ? (TV)scale : (TV)0));
    return;
  }
  for (long i = first; i < n; i++) {
    const T v = load(grad_out + grad_out_offset, i, DTYPE0);
    store(grad_in + grad_in_offset, i, DTYPE0, v * (mask[i] ? scale : (T)0));
  }
}

#endif
#endif
