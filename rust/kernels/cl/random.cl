// Random tensors from Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011).
//
// The stream is numbered in counters of four 32-bit words. A group is 8 consecutive counters, run in the lanes of
// vectors, and one work-item makes one group: GROUP output elements. Which counter and word an element gets
// depends on its position alone, so results do not depend on the launch, the work-group size or the device.
// The host moves the generator's offset on by 8 counters a group.
//
// Outputs are dense. All distributions share one entry point, `op` and two parameters.

#define RANDOM_UNIFORM 0
#define RANDOM_NORMAL 1
#define RANDOM_LOG_NORMAL 2
#define RANDOM_EXPONENTIAL 3
#define RANDOM_CAUCHY 4
#define RANDOM_GEOMETRIC 5
#define RANDOM_BERNOULLI 6

#define LANES 8

static inline uint8 high_product(uint8 a, uint b) { return convert_uint8(convert_ulong8(a) * (ulong)b >> 32ul); }

// Ten rounds over 8 counters, one in each lane; `c` goes from counter words to random words.
static inline void philox(uint8 c[4], ulong seed) {
  uint key0 = (uint)seed, key1 = (uint)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    uint8 high0 = high_product(c[0], 0xD2511F53u), low0 = c[0] * 0xD2511F53u;
    uint8 high1 = high_product(c[2], 0xCD9E8D57u), low1 = c[2] * 0xCD9E8D57u;
    c[0] = high1 ^ c[1] ^ key0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key1;
    c[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// The words of a group; `offset` is the first counter of the launch.
static inline void group_words(ulong seed, ulong offset, ulong group, uint8 words[4]) {
  ulong8 counter = offset + group * LANES + (ulong8)(0, 1, 2, 3, 4, 5, 6, 7);
  words[0] = convert_uint8(counter);
  words[1] = convert_uint8(counter >> 32ul);
  words[2] = 0;
  words[3] = 0;
  philox(words, seed);
}

#ifdef IS_INTEGER

// base + a whole number below range; range 0 means all 64 bits. Two words an element, their high product with the
// range: the bias is below range / 2^64.
#define GROUP 16

__kernel void random_integers(__global uchar *out, ulong out_offset, int dtype0, long n, ulong seed, ulong offset,
                              ulong range, long base) {
  long group = get_global_id(0);
  uint8 words[4];
  group_words(seed, offset, group, words);
  for (int half_group = 0; half_group < 2; half_group++) {
    ulong8 bits = convert_ulong8(words[2 * half_group]) << 32ul | convert_ulong8(words[2 * half_group + 1]);
    ulong values[LANES];
    vstore8(range == 0 ? bits : mul_hi(bits, (ulong8)range), 0, values);
    long first = group * GROUP + half_group * LANES;
    int count = (int)min((long)LANES, n - first);
    for (int i = 0; i < count; i++) store(out + out_offset, first + i, DTYPE0, (long)values[i] + base);
  }
}

#elif defined(IS_FLOAT)

#ifdef CLASS_F
#define GROUP 32
#define VECTORS 4
typedef float8 TV;
#define CONVERT_LANES convert_float8
#define NATURAL_DTYPE DT_F32
#else
#define GROUP 16
#define VECTORS 2
typedef double8 TV;
#define CONVERT_LANES convert_double8
#define NATURAL_DTYPE DT_F64
#endif

// Vector k of a group, uniform in [0, 1): as many bits as T holds, so that 1 is never reached.
static inline TV uniform_vector(const uint8 words[4], int k) {
#ifdef CLASS_F
  return convert_float8(words[k] >> 8u) * 0x1p-24f;
#else
  ulong8 bits = convert_ulong8(words[2 * k]) << 32ul | convert_ulong8(words[2 * k + 1]);
  return convert_double8(bits >> 11ul) * LIT(0x1p-53);
#endif
}

// Vector k of a group, uniform in (0, 1): never 0, for logarithms; float keeps 32 bits near 0, for long tails.
static inline TV open_uniform_vector(const uint8 words[4], int k) {
#ifdef CLASS_F
  return fmin(convert_float8(words[k]) * 0x1p-32f + 0x1p-33f, (TV)0x1.fffffep-1f);
#else
  return uniform_vector(words, k) + LIT(0x1p-54);
#endif
}

// Box-Muller: vectors 0 and 1 make two independent normal vectors, so do 2 and 3.
static inline TV normal_vector(const uint8 words[4], int k) {
  TV radius = sqrt((T)-2 * log(open_uniform_vector(words, k & ~1)));
  TV angle = (T)2 * uniform_vector(words, k | 1);
  return radius * (k & 1 ? sinpi(angle) : cospi(angle));
}

static inline TV sample(int op, const uint8 words[4], int k, T a, T b) {
  switch (op) {
    case RANDOM_UNIFORM: return a + (b - a) * uniform_vector(words, k);
    case RANDOM_NORMAL: return a + b * normal_vector(words, k);
    case RANDOM_LOG_NORMAL: return exp(a + b * normal_vector(words, k));
    case RANDOM_EXPONENTIAL: return -log(open_uniform_vector(words, k)) / a;
    case RANDOM_CAUCHY: return a + b * tanpi(open_uniform_vector(words, k) - LIT(0.5));
    // `a` is log(1 - p), from the host in double.
    case RANDOM_GEOMETRIC: return fmax(ceil(log(open_uniform_vector(words, k)) / a), (TV)1);
    case RANDOM_BERNOULLI: return select((TV)0, (TV)1, uniform_vector(words, k) < a);
  }
  return 0;
}

// Up to 8 elements from `first` on.
static inline void store_vector(__global uchar *out, long first, long n, int dt, TV v) {
  if (dt == NATURAL_DTYPE && first + LANES <= n) {
    vstore8(v, 0, (__global T *)out + first);
    return;
  }
#ifdef CLASS_F
  if (dt == DT_F16 && first + LANES <= n) {
    vstore_half8_rte(v, 0, (__global half *)out + first);
    return;
  }
#endif
  T values[LANES];
  vstore8(v, 0, values);
  int count = (int)min((long)LANES, n - first);
  for (int i = 0; i < count; i++) store(out, first + i, dt, values[i]);
}

// The largest value below b that dt holds lies above a: rounding up to b is undone by starting over at a.
static inline void exclude_upper_bound(__global uchar *out, long first, long n, int dt, T a, T b) {
  int count = (int)min((long)LANES, n - first);
  for (int i = 0; i < count; i++)
    if (load(out, first + i, dt) >= b) store(out, first + i, dt, a);
}

__kernel void random_sample(__global uchar *out, ulong out_offset, int op, int dtype0, long n, ulong seed, ulong offset,
                            T a, T b) {
  long group = get_global_id(0);
  uint8 words[4];
  group_words(seed, offset, group, words);
  for (int k = 0; k < VECTORS; k++) {
    long first = group * GROUP + k * LANES;
    if (first >= n) return;
    store_vector(out + out_offset, first, n, DTYPE0, sample(OP, words, k, a, b));
    if (OP == RANDOM_UNIFORM) exclude_upper_bound(out + out_offset, first, n, DTYPE0, a, b);
  }
}

// Bernoulli with a probability for each element; dtype1 is that of the probabilities.
__kernel void random_bernoulli(__global uchar *out, ulong out_offset, __global const uchar *p, ulong p_offset,
                               int dtype0, int dtype1, long n, ulong seed, ulong offset, __global uchar *faults,
                               ulong faults_offset) {
  long group = get_global_id(0);
  uint8 words[4];
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

// Eight elements from `first` on, of which there are at least so many.
static inline TV load_vector(__global const uchar *in, long first, int dt) {
  switch (dt) {
    case NATURAL_DTYPE: return vload8(0, (__global const T *)in + first);
#ifdef CLASS_F
    case DT_F16: return vload_half8(0, (__global const half *)in + first);
    case DT_BF16: return as_float8(convert_uint8(vload8(0, (__global const ushort *)in + first)) << 16u);
#endif
  }
  T values[LANES];
  for (int i = 0; i < LANES; i++) values[i] = load(in, first + i, dt);
  return vload8(0, values);
}

// Dropout: keeps an element with probability `keep` and scales it; the mask (bool) remembers which.
__kernel void dropout(__global uchar *out, ulong out_offset, __global uchar *mask, ulong mask_offset,
                      __global const uchar *in, ulong in_offset, int dtype0, long n, ulong seed, ulong offset, T keep,
                      T scale) {
  long group = get_global_id(0);
  uint8 words[4];
  group_words(seed, offset, group, words);
  for (int k = 0; k < VECTORS; k++) {
    const TV u = uniform_vector(words, k);
    long first = group * GROUP + k * LANES;
    if (first + LANES <= n) {
      const TV v = load_vector(in + in_offset, first, DTYPE0) * scale;
      vstore8(convert_uchar8(u < keep) & (uchar8)1, 0, mask + mask_offset + first);
      store_vector(out + out_offset, first, n, DTYPE0, u < keep ? v : (TV)0);
      continue;
    }
    T lanes[LANES];
    vstore8(u, 0, lanes);
    for (int i = 0; first + i < n; i++) {
      bool kept = lanes[i] < keep;
      mask[mask_offset + first + i] = kept;
      store(out + out_offset, first + i, DTYPE0, kept ? load(in + in_offset, first + i, DTYPE0) * scale : (T)0);
    }
  }
}

// One work-item eight elements.
__kernel void dropout_backward(__global uchar *grad_in, ulong grad_in_offset, __global const uchar *grad_out,
                               ulong grad_out_offset, __global const uchar *mask, ulong mask_offset, int dtype0,
                               long n, T scale) {
  const long first = (long)get_global_id(0) * LANES;
  mask += mask_offset;
  if (first + LANES <= n) {
    const TV v = load_vector(grad_out + grad_out_offset, first, DTYPE0) * scale;
    const TV kept = CONVERT_LANES(vload8(0, mask + first));
    store_vector(grad_in + grad_in_offset, first, n, DTYPE0, kept != (TV)0 ? v : (TV)0);
    return;
  }
  for (long i = first; i < n; i++) {
    T v = mask[i] ? load(grad_out + grad_out_offset, i, DTYPE0) * scale : (T)0;
    store(grad_in + grad_in_offset, i, DTYPE0, v);
  }
}

#endif
