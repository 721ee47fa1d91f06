// The regularised incomplete gamma functions P(a, x) and Q(a, x), for rows with `part: incomplete_gamma`: the series of
// P, the continued fraction of Q, or the uniform expansion if a is large and near x, as in A. Gil, J. Segura and N.
// M. Temme, "Efficient and accurate algorithms for the computation and inversion of the incomplete gamma function
// ratios" (SIAM J. Sci. Comput. 34, 2012). Errors in float: 2^-21, and 0.1 % of values down to 1e-30.

#ifdef IS_FLOAT
// log gamma(1 + a) / (a (a - 1)), a up to 1
#ifdef CLASS_D
__constant T LGAMMA_NEAR[] = {1.1586115295157278e-11,  -3.5364743381188197e-11, 5.0258222095609346e-11,
                              -1.6381596734648425e-10, 6.5664038192631117e-10,  -2.0735267758524894e-9,
                              6.4302607276369656e-9,   -2.0577345254471982e-8,  6.6238780772653007e-8,
                              -2.1388452890262907e-7,  6.9484280641863119e-7,   -2.2742409034140544e-6,
                              7.5113918556418829e-6,   -2.5094329864078195e-5,  8.5100903734994313e-5,
                              -0.00029455070139898495, 0.0010498186644547402,   -0.0039135609376317689,
                              0.015727850268641095,    -0.072979947957152967,   0.48312895054098089};
#else
__constant T LGAMMA_NEAR[] = {-2.97940396e-6f, 9.56350441e-6f,  -2.43471764e-5f, 8.32068467e-5f, -0.000294887181f,
                              0.00105051344f,  -0.00391349979f, 0.0157277620f,   -0.0729799511f, 0.483128952f};
#endif

// Taylor coefficients of eta / (lambda - 1) by eta, where eta^2 / 2 = lambda - 1 - log(lambda).
__constant T UNIFORM[] = {LIT(1.0),
                          -LIT(0.33333333333333333333),
                          LIT(0.083333333333333333333),
                          -LIT(0.014814814814814814815),
                          LIT(0.0011574074074074074074),
                          LIT(0.00035273368606701940035),
                          -LIT(0.0001787551440329218107),
                          LIT(0.000039192631785224377817),
                          -LIT(2.1854485106799921615e-6),
                          -LIT(1.8540622107151599607e-6),
                          LIT(8.296711340953086005e-7),
                          -LIT(1.7665952736826079304e-7),
                          LIT(6.7078535434014985804e-9),
                          LIT(1.0261809784240308043e-8),
                          -LIT(4.3820360184533531866e-9),
                          LIT(9.1476995822367902342e-10),
                          -LIT(2.5514193994946249767e-11),
                          -LIT(5.8307721325504250675e-11),
                          LIT(2.4361948020667416244e-11),
                          -LIT(5.0276692801141755891e-12),
                          LIT(1.1004392031956134771e-13),
                          LIT(3.3717632624009853788e-13),
                          -LIT(1.3923887224181620659e-13),
                          LIT(2.8534893807047443204e-14),
                          -LIT(5.139111834242572619e-16),
                          -LIT(1.9752288294349442835e-15)};

#ifdef CLASS_D
#define UNIFORM_TERMS 26
#define PHI_TERMS 17
#define SERIES_TOLERANCE 1e-17
#define FRACTION_TOLERANCE 4e-16
#else
#define UNIFORM_TERMS 10
#define PHI_TERMS 8
#define SERIES_TOLERANCE 1e-9f
#define FRACTION_TOLERANCE 2e-7f
#endif
// Limit for the terms of the series and of the continued fraction, which is never reached.
#define MAX_TERMS 500

// mu - log(1 + mu), for mu > -1: near 0 by the series of log in mu / (2 + mu).
static inline TV phi(TV mu) {
  const TV s = mu / (2 + mu), z = s * s;
  TV sum = 0;
  for (int k = PHI_TERMS; k > 0; k--) sum = sum * z + LIT(1.0) / (2 * k + 1);
  return SEL(fabs(mu) < LIT(0.5), s * (mu - 2 * z * sum), mu - m_log1p(mu));
}

// log gamma(1 + a), 0 <= a <= 1.
static inline TV lgamma_near(TV a) { return POLYNOMIAL(LGAMMA_NEAR, 2 * a - 1) * a * (a - 1); }

// x^a exp(-x) / gamma(a + 1): from 8 on by Stirling's series (DLMF 5.11.1), below by recurrence.
static inline TV gamma_density(TV a, TV x) {
  TV factor = 1, rest = SEL(a < 8, a, 0);
  for (int i = 0; i < 7; i++) {
    factor *= SEL(rest > 1, rest, 1);
    rest -= B(rest > 1);
  }
  // For larger x only exp(-x) counts, and the power may overflow.
  const TV bounded = SEL(x > 800, 800, x);
  TV result = m_pow(bounded, a) * m_exp(-x) * m_exp(-lgamma_near(rest)) / factor;
  if (!ANY(a >= 8)) return result;
  const TV y = 1 / a, z = y * y;
  TV tail = fma(z, C(LIT(0.00641025641025641)), C(-LIT(0.0019175269175269176)));
  tail = fma(tail, z, C(LIT(0.0008417508417508417)));
  tail = fma(tail, z, C(-LIT(0.0005952380952380953)));
  tail = fma(tail, z, C(LIT(0.0007936507936507937)));
  tail = fma(tail, z, C(-LIT(0.002777777777777778)));
  tail = fma(tail, z, C(LIT(0.08333333333333333)));
  const TV mu = (x - a) * y;
  const TV large = LIT(0.3989422804014327) * m_exp(-a * phi(mu) - tail * y) / sqrt(a);
  return SEL(a >= 8, large, result);
}

// P over the density, for x up to about a.
static inline TV lower_series(TV a, TV x) {
  TV term = 1, sum = 1, n = a;
  for (int i = 0; i < MAX_TERMS && ANY(term > SERIES_TOLERANCE * sum); i++) {
    n += 1;
    term *= x / n;
    sum += term;
  }
  return sum;
}

// Q over a times the density, for x from about a on: Lentz's algorithm for DLMF 8.9.2.
static inline TV upper_fraction(TV a, TV x) {
  const TV tiny = LIT(1e-30);
  TV b = x + 1 - a, c = 1 / tiny, d = 1 / b, result = d, change = 0;
  for (int i = 1; i < MAX_TERMS && ANY(fabs(change - 1) > FRACTION_TOLERANCE); i++) {
    const TV numerator = i * (a - i);
    b += 2;
    d = fma(numerator, d, b);
    d = 1 / SEL(fabs(d) < tiny, tiny, d);
    c = b + numerator / c;
    c = SEL(fabs(c) < tiny, tiny, c);
    change = c * d;
    result *= change;
  }
  return result;
}

// Q for a < 1 and small x, as 1 - P would lose all digits of a small a (DLMF 8.7.3).
static inline TV upper_series(TV a, TV x) {
  TV term = 1, sum = 0;
  for (int i = 1; i < 30; i++) {
    term *= -x / i;
    sum += term / (a + i);
  }
  const TV logarithm = a * m_log(x) - lgamma_near(a);
  return -m_expm1(logarithm) - a * m_exp(logarithm) * sum;
}

// Q, or P if is_lower, for a from 20 on and x within 30 % of it.
static inline TV uniform_expansion(TV a, TV x, bool is_lower) {
  const TV mu = (x - a) / a, half_square = phi(mu), size = sqrt(2 * half_square);
  const TV eta = SEL(mu < 0, -size, size), inverse = 1 / a;
  TV sum = 0, next = 0, after = 0;
  for (int n = UNIFORM_TERMS - 2; n >= 0; n--) {
    const TV coefficient = (n + 2) * after * inverse + UNIFORM[n + 1];
    sum = sum * eta + coefficient;
    after = next;
    next = coefficient;
  }
  const TV rest = LIT(0.3989422804014327) * m_exp(-a * half_square) / sqrt(a) * sum / (1 + after * inverse);
  const TV bound = eta * sqrt(LIT(0.5) * a);
  return is_lower ? LIT(0.5) * erfc(-bound) - rest : LIT(0.5) * erfc(bound) + rest;
}

// P(a, x) if is_lower, else Q(a, x).
static inline TV incomplete_gamma(TV a, TV x, bool is_lower) {
  const TM is_uniform = a >= 20 && fabs(x - a) < LIT(0.3) * a;
  const TM is_far = x > LIT(1.1) && x >= a && !is_uniform;
  const TV density = gamma_density(a, x);
  const TV lower = density * lower_series(a, SEL(is_far || is_uniform, 0, x));
  TV result = is_lower ? lower : 1 - lower;
  if (ANY(is_far)) {
    const TV upper = a * density * upper_fraction(SEL(is_far, a, 1), SEL(is_far, x, 50));
    result = SEL(is_far, is_lower ? 1 - upper : upper, result);
  }
  if (!is_lower) {
    const TM is_small = a < 1 && x <= LIT(1.1) && a < SEL(x <= LIT(0.5), -LIT(0.4) / m_log(x), LIT(1.1) * x);
    if (ANY(is_small)) result = SEL(is_small, upper_series(a, x), result);
  }
  if (ANY(is_uniform)) result = SEL(is_uniform, uniform_expansion(a, x, is_lower), result);
  const TV none = is_lower ? C(0) : C(1), all = 1 - none;
  result = SEL(x == 0 || a == INFINITY, none, result);
  result = SEL(a == 0 || x == INFINITY, all, result);
  return SEL(x < 0 || a < 0 || (a == 0 && !(x > 0)) || (a == INFINITY && x == INFINITY), NAN, result);
}
#endif  // IS_FLOAT
