// Samples of distributions whose parameters differ between elements (CLASS_F and CLASS_D). Most are drawn by rejection.
//
// Each element has a counter of the generator's stream, by its position. The third word of that counter counts the
// draws of its loop, so results depend neither on the launch nor on the draws of other elements.

#define POISSON 0
#define BINOMIAL 1
#define GAMMA 2
#define LOG_GAMMA 3

// The random numbers that an element has drawn.
typedef struct {
  ulong seed;
  ulong counter;
  uint count;
} Draws;

// Two independent random numbers, uniform in (0, 1).
typedef struct {
  T a;
  T b;
} Pair;

INLINE Pair draw(Draws *draws) {
  uint words[4] = {(uint)draws->counter, (uint)(draws->counter >> 32), ++draws->count, 0};
  philox(words, draws->seed);
#ifdef CLASS_F
  // All 32 bits near 0, for long tails.
  return (Pair){fmin(words[0] * 0x1p-32f + 0x1p-33f, 0x1.fffffep-1f),
                fmin(words[1] * 0x1p-32f + 0x1p-33f, 0x1.fffffep-1f)};
#else
  const ulong first = (ulong)words[0] << 32 | words[1], second = (ulong)words[2] << 32 | words[3];
  return (Pair){(first >> 11) * LIT(0x1p-53) + LIT(0x1p-54), (second >> 11) * LIT(0x1p-53) + LIT(0x1p-54)};
#endif
}

// Logarithms of probabilities by C. Loader, "Fast and accurate computation of binomial probabilities" (2000): terms as
// large as the parameters would cancel, and a float would lose all digits.

// log(k!) - (k log k - k): by Stirling's series if k is large.
INLINE T factorial_tail(T k) {
  if (k < 16) return k <= 0 ? (T)0 : lgamma(k + 1) - (k * log(k) - k);
  const T square = 1 / (k * k);
  const T series =
      (LIT(0.08333333333333333) -
       (LIT(0.002777777777777778) - (LIT(0.0007936507936507937) - LIT(0.0005952380952380953) * square) * square) *
           square) /
      k;
  return series + LIT(0.5) * log(LIT(6.283185307179586) * k);
}

// k log(k / mean) + mean - k.
INLINE T deviance(T k, T mean) {
  if (k <= 0) return mean;
  const T difference = k - mean;
  if (fabs(difference) >= LIT(0.1) * (k + mean)) return k * log(k / mean) - difference;
  const T ratio = difference / (k + mean), square = ratio * ratio;
  T sum = difference * ratio, term = 2 * k * ratio;
  for (int i = 3; i < 200; i += 2) {
    term *= square;
    const T next = sum + term / i;
    if (next == sum) break;
    sum = next;
  }
  return sum;
}

INLINE T log_poisson(T k, T rate) { return -deviance(k, rate) - factorial_tail(k); }

INLINE T log_binomial(T k, T count, T p) {
  return factorial_tail(count) - factorial_tail(k) - factorial_tail(count - k) - deviance(k, count * p) -
         deviance(count - k, count * (1 - p));
}

// By transformed rejection (PTRS) from a rate of 10 on, W. Hoermann, "The transformed rejection method for generating
// Poisson random variables" (1993); below it by the product of uniform numbers.
INLINE T sample_poisson(T rate, Draws *draws) {
  if (rate == 0 || isinf(rate)) return rate;
  if (rate < 10) {
    const T limit = exp(-rate);
    T product = 1;
    for (T k = 0;; k += 2) {
      const Pair pair = draw(draws);
      product *= pair.a;
      if (product <= limit) return k;
      product *= pair.b;
      if (product <= limit) return k + 1;
    }
  }
  const T b = LIT(0.931) + LIT(2.53) * sqrt(rate), a = LIT(0.02483) * b - LIT(0.059);
  const T inverse_alpha = LIT(1.1239) + LIT(1.1328) / (b - LIT(3.4)), box = LIT(0.9277) - LIT(3.6224) / (b - 2);
  for (;;) {
    const Pair pair = draw(draws);
    const T u = pair.a - LIT(0.5), rest = LIT(0.5) - fabs(u);
    const T k = floor((2 * a / rest + b) * u + rate + LIT(0.43));
    if (rest >= LIT(0.07) && pair.b <= box) return k;
    if (k < 0 || (rest < LIT(0.013) && pair.b > rest)) continue;
    if (log(pair.b * inverse_alpha / (a / (rest * rest) + b)) <= log_poisson(k, rate)) return k;
  }
}

// For a probability of at most a half. By transformed rejection (BTRS) if 10 or more successes are expected, W.
// Hoermann, "The generation of binomial random variates" (1993); else by the gaps between successes.
INLINE T sample_rare(T count, T p, Draws *draws) {
  if (count * p < 10) {
    const T log_failure = log1p(-p);
    T position = 0;
    for (T k = 0;; k += 2) {
      const Pair pair = draw(draws);
      position += ceil(log(pair.a) / log_failure);
      if (!(position <= count)) return k;
      position += ceil(log(pair.b) / log_failure);
      if (!(position <= count)) return k + 1;
    }
  }
  const T std = sqrt(count * p * (1 - p));
  const T b = LIT(1.15) + LIT(2.53) * std, a = LIT(0.0248) * b - LIT(0.0873) + LIT(0.01) * p;
  const T alpha = (LIT(2.83) + LIT(5.1) / b) * std, box = LIT(0.92) - LIT(4.2) / b;
  const T top = log_binomial(floor((count + 1) * p), count, p);
  for (;;) {
    const Pair pair = draw(draws);
    const T u = pair.a - LIT(0.5), rest = LIT(0.5) - fabs(u);
    const T k = floor((2 * a / rest + b) * u + count * p + LIT(0.5));
    if (k < 0 || k > count) continue;
    if (rest >= LIT(0.07) && pair.b <= box) return k;
    if (log(pair.b * alpha / (a / (rest * rest) + b)) <= log_binomial(k, count, p) - top) return k;
  }
}

INLINE T sample_binomial(T count, T p, Draws *draws) {
  if (isnan(count) || isnan(p)) return NAN;
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1 || isinf(count)) return count;
  return p <= LIT(0.5) ? sample_rare(count, p, draws) : count - sample_rare(count, 1 - p, draws);
}

// By rejection from a cube of a normal number, G. Marsaglia and W. W. Tsang, "A simple method for generating gamma
// variables" (2000). For a concentration below 1, the sample is that of concentration + 1 times a power of a uniform
// number, whose logarithm is `boost`: the product may underflow the dtype.
INLINE T sample_gamma(T concentration, T *boost, Draws *draws) {
  *boost = 0;
  if (isinf(concentration) || !(concentration >= 0)) return concentration >= 0 ? concentration : (T)NAN;
  if (concentration < 1) {
    *boost = log(draw(draws).a) / concentration;
    concentration += 1;
  }
  const T d = concentration - LIT(0.3333333333333333), c = rsqrt(9 * d);
  for (;;) {
    const Pair polar = draw(draws);
    const T x = sqrt(-2 * log(polar.a)) * cospi(2 * polar.b), t = c * x, y = 1 + t;
    if (y <= 0) continue;
    const T v = y * y * y, u = draw(draws).a;
    if (u < 1 - LIT(0.0331) * x * x * x * x) return d * v;
    // 1 - v + log(v), where v is (1 + t)^3.
    if (log(u) < LIT(0.5) * x * x + d * (3 * (log1p(t) - t) - t * t * (3 + t))) return d * v;
  }
}

// A sample for each element of dense tensors: `a` is a rate, a count or a concentration, `b` a probability or null.
// Samples of the gamma distribution are `least` or more.
__kernel void sample_each(__global uchar *out, ulong out_offset, __global const uchar *a, ulong a_offset,
                          __global const uchar *b, ulong b_offset, int op, int dtype0, int dtype1, long n, ulong seed,
                          ulong offset, T least, __global uchar *faults, ulong faults_offset) {
  ITEM_TASKS(n, first, last);
  for (long i = first; i < last; i++) {
    Draws draws = {seed, offset + i, 0};
    const T parameter = load(a + a_offset, i, DTYPE1);
    T sample = 0, boost = 0;
    switch (OP) {
      case POISSON:
        if (parameter >= 0) sample = sample_poisson(parameter, &draws);
        else report_fault(faults + faults_offset, FAULT_POISSON_RATE, 0, 0);
        break;
      case BINOMIAL: sample = sample_binomial(parameter, load(b + b_offset, i, DTYPE1), &draws); break;
      default:
        sample = sample_gamma(parameter, &boost, &draws);
        if (OP == LOG_GAMMA) sample = fmax(log(sample) + boost, -LIT(1e37));
        else if (!isnan(sample)) sample = fmax(sample * exp(boost), least);
    }
    store(out + out_offset, i, DTYPE0, sample);
  }
}
