// Orthogonal polynomials of degree n at x, for rows with `part: polynomial`: by their recurrences in the degree (DLMF
// 18.9), and Chebyshev's, between -1 and 1, by sines and cosines (DLMF 18.5), which take no longer for a high degree.
// A degree is truncated to an integer, and polynomials of a negative degree are 0, as in PyTorch. Errors grow with the
// degree: 2^-20 (n + 1) of the greatest value.

#ifdef IS_FLOAT
// The degree, or -1 if n is not a valid one.
static inline TV degree(TV n) { return SEL(n > -1 && n < LIT(9223372036854775808.0), trunc(n) + 0, -1); }

static inline TV parity_sign(TV n) { return SEL(n == 2 * floor(LIT(0.5) * n), 1, -1); }

// The argument y of Chebyshev polynomials as 2 y, 1 - y and 1 + y, which are more exact than y if y is shifted.
typedef struct {
  TV twice, below, above, n;
  TM is_within;  // by sines and cosines
} ChebyshevArgument;

static inline ChebyshevArgument chebyshev_argument(TV twice, TV below, TV above, TV n) {
  ChebyshevArgument y = {twice, below, above, degree(n)};
  y.is_within = below > 0 && above > 0 && y.n > 6;
  return y;
}
static inline ChebyshevArgument plain(TV x, TV n) { return chebyshev_argument(2 * x, 1 - x, 1 + x, n); }
static inline ChebyshevArgument shifted(TV x, TV n) {
  return chebyshev_argument(2 * (2 * x - 1), 2 * (1 - x), 2 * x, n);
}

// The polynomial whose value for degree 1 is `first`. As on the CPU, it is NaN after an overflow.
static inline TV chebyshev_recurrence(ChebyshevArgument y, TV first) {
  const TV n = SEL(y.is_within || y.below == 0 || y.above == 0, 0, y.n);
  TV last = 1, value = SEL(n == 0, 1, first);
  for (long k = 2; ANY(C(k) <= n && value == value); k++) {
    const TV next = y.twice * value - last;
    last = SEL(C(k) <= n, value, last);
    value = SEL(C(k) <= n, next, value);
  }
  return value;
}

// The result. `at_one` is its value at y = 1, `at_minus_one` its value at y = -1, which odd degrees negate.
static inline TV chebyshev_result(ChebyshevArgument y, TV first, TV within, TV at_one, TV at_minus_one) {
  TV value = SEL(y.is_within, within, chebyshev_recurrence(y, first));
  value = SEL(y.above == 0, parity_sign(y.n) * at_minus_one, value);
  value = SEL(y.below == 0, at_one, value);
  return SEL(y.n < 0, 0, value);
}

// 0 if another result is used, as the cosine of NaN or of a large angle takes long.
static inline TV angle_of(ChebyshevArgument y) {
  const TV below = SEL(y.is_within, y.below, 0), above = SEL(y.is_within, y.above, 1);
  return 2 * atan2(sqrt(below), sqrt(above));
}

static inline TV chebyshev_t(ChebyshevArgument y) {
  return chebyshev_result(y, LIT(0.5) * y.twice, m_cos(y.n * angle_of(y)), C(1), C(1));
}
static inline TV chebyshev_u(ChebyshevArgument y) {
  const TV within = m_sin((y.n + 1) * angle_of(y)) / sqrt(y.below * y.above);
  return chebyshev_result(y, y.twice, within, y.n + 1, y.n + 1);
}
static inline TV chebyshev_v(ChebyshevArgument y) {
  const TV within = m_cos((y.n + LIT(0.5)) * angle_of(y)) / sqrt(LIT(0.5) * y.above);
  return chebyshev_result(y, y.twice - 1, within, C(1), 2 * y.n + 1);
}
static inline TV chebyshev_w(ChebyshevArgument y) {
  const TV within = m_sin((y.n + LIT(0.5)) * angle_of(y)) / sqrt(LIT(0.5) * y.below);
  return chebyshev_result(y, y.twice + 1, within, 2 * y.n + 1, C(1));
}

// A recurrence: `step` computes degree k + 1 from `last` and `value`, the values of degrees k - 1 and k.
#define RECURRENCE(NAME, first, limit, step)                   \
  static inline TV NAME(TV x, TV n) {                          \
    n = degree(n);                                             \
    const TV end = SEL(n > (limit), 0, n);                     \
    TV last = 1, value = SEL(end == 0, 1, first);              \
    for (long i = 1; ANY(C(i) < end && value == value); i++) { \
      const TV k = C(i), next = step;                          \
      last = SEL(k < end, value, last);                        \
      value = SEL(k < end, next, value);                       \
    }                                                          \
    return SEL(n < 0, 0, SEL(n > (limit), NAN, value));        \
  }

// The highest degrees of PyTorch's Hermite polynomials.
#ifdef CLASS_D
#define HERMITE_LIMIT 512
#else
#define HERMITE_LIMIT 128
#endif
RECURRENCE(hermite_h, 2 * x, HERMITE_LIMIT, 2 * (x * value - k * last))
RECURRENCE(hermite_he, x, HERMITE_LIMIT, x *value - k * last)
RECURRENCE(laguerre_l, 1 - x, INFINITY, ((2 * k + (1 - x)) * value - k * last) / (k + 1))
RECURRENCE(legendre_p, x, INFINITY, ((2 * k + 1) * x * value - k * last) / (k + 1))
#endif  // IS_FLOAT
