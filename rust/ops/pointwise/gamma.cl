// The derivatives of log gamma and Hurwitz' zeta function, for rows with `part: gamma`. The polynomial is by
// scripts/polynomials.py.

#ifdef IS_FLOAT
// digamma(x) over its zero, x from 1 to 2
#ifdef CLASS_D
__constant T DIGAMMA_NEAR[] = {
    -8.5055076601326102e-11, 2.4786953456068389e-10, -2.7580994814376998e-10, 8.6575336728126126e-10,
    -3.7083753242807276e-9,  1.1039363482759935e-8,  -3.1629111474084542e-8,  9.5006590343005033e-8,
    -2.8631611668831930e-7,  8.5913431761142102e-7,  -2.5780939540457722e-6,  7.7411560492738052e-6,
    -2.3258242519113285e-5,  6.9950205063848487e-5,  -0.00021074841138175561, 0.00063688802828499160,
    -0.0019350666648613070,  0.0059367952784364786,  -0.018550615381735008,   0.060135621060193475,
    -0.21181371064073030,    0.95105587603183289};
#else
__constant T DIGAMMA_NEAR[] = {1.09696048e-5f,  -3.20073902e-5f, 6.60514348e-5f, -0.000201397990f,
                               0.000638982508f, -0.00193929571f, 0.00593629377f, -0.0185498449f,
                               0.0601356647f,   -0.211813750f,   0.951055875f};
#endif

#ifdef CLASS_D
#define DIGAMMA_ZERO 1.4616321449683622
#define DIGAMMA_ZERO_LOW 9.549995429965697e-17
#else
#define DIGAMMA_ZERO 1.4616321f
#define DIGAMMA_ZERO_LOW 1.243815e-08f
#endif
#define PI LIT(3.141592653589793)

// From 3 on: recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5 and 6.3.18).
static inline TV digamma_far(TV x) {
  TV sum = 0;
  for (int i = 0; i < 7; i++) {
    sum -= SEL(x < 10, 1 / x, 0);
    x += B(x < 10);
  }
  const TV z = 1 / (x * x);
  const TV tail = z * (LIT(0.08333333333333333) -
                       z * (LIT(0.008333333333333333) -
                            z * (LIT(0.003968253968253968) -
                                 z * (LIT(0.004166666666666667) -
                                      z * (LIT(0.007575757575757576) -
                                           z * (LIT(0.021092796092796094) - z * LIT(0.08333333333333333)))))));
  return sum + m_log(x) - LIT(0.5) / x - tail;
}

// Derivative of log gamma: a series between 1 and 2, which the recurrence carries down to 0 and up to 3, and reflection
// below 0 (Abramowitz and Stegun 6.3.7). 6 ulp; below 0, where each unit interval has a zero, 6 ulp of 16.
static inline TV digamma(TV a) {
  const TV x = SEL(a < 0, 1 - a, a);
  const TV y = SEL(x < 1, x + 1, SEL(x > 2, x - 1, x));
  const TV step = SEL(x < 1, -1 / x, SEL(x > 2, 1 / y, 0));
  TV value = (y - DIGAMMA_ZERO - DIGAMMA_ZERO_LOW) * POLYNOMIAL(DIGAMMA_NEAR, 2 * y - 3) + step;
  if (ANY(x > 3)) value = SEL(x > 3, digamma_far(x), value);
  if (ANY(a < 0)) {
    const TV fraction = a - rint(a);
    value -= SEL(a < 0, PI / m_tan(PI * fraction), 0);
    value = SEL(a < 0 && !(fraction != 0), NAN, value);
  }
  return SEL(a == 0, copysign(C(INFINITY), -a), value);
}

// Derivative of digamma, by the same methods (6.4.7, 6.4.6 and 6.4.12). 6 ulp.
static inline TV trigamma(TV a) {
  TV x = SEL(a < 0, 1 - a, a);
  TV sum = 0;
  for (int i = 0; i < 10; i++) {
    sum += SEL(x < 10, 1 / (x * x), 0);
    x += B(x < 10);
  }
  const TV y = 1 / x, z = y * y;
  TV tail = fma(z, C(LIT(1.1666666666666667)), C(-LIT(0.2531135531135531)));
  tail = fma(tail, z, C(LIT(0.07575757575757576)));
  tail = fma(tail, z, C(-LIT(0.03333333333333333)));
  tail = fma(tail, z, C(LIT(0.023809523809523808)));
  tail = fma(tail, z, C(-LIT(0.03333333333333333)));
  tail = fma(tail, z, C(LIT(0.16666666666666666)));
  const TV value = sum + y + LIT(0.5) * z + z * y * tail;
  if (!ANY(a < 0)) return value;
  const TV sine = m_sin(PI * (a - rint(a)));
  return SEL(a < 0, (PI / sine) * (PI / sine) - value, value);
}

// Bernoulli numbers over (2k)!, the coefficients of the Euler-Maclaurin formula. Float needs six of them.
__constant T EULER_MACLAURIN[] = {
    LIT(8.3333333333333333e-2),   -LIT(1.3888888888888889e-3),  LIT(3.3068783068783069e-5),
    -LIT(8.2671957671957672e-7),  LIT(2.0876756987868099e-8),   -LIT(5.2841901386874932e-10),
    LIT(1.3382536530684679e-11),  -LIT(3.3896802963225829e-13), LIT(8.5860620562778446e-15),
    -LIT(2.1748686985580619e-16), LIT(5.5090028283602295e-18),  -LIT(1.3954464685812523e-19)};
#ifdef CLASS_D
#define EULER_TERMS 12
#else
#define EULER_TERMS 6
#endif

// (q + k)^-s, corrected for the rounding error of the sum, which the power multiplies by s.
OUTLINED TV zeta_term(TV s, TV q, int k) {
  const TV base = q + k, part = base - q, low = (q - (base - part)) + (k - part);
  return m_pow(base, -s) * (1 - SEL(low == 0, 0, s * low / base));
}

// Sum of (q + k)^-s over all k >= 0, for q > 0 and s > 1: nine terms, then the Euler-Maclaurin formula (DLMF 25.11.5).
// 4 ulp.
OUTLINED TV zeta_right(TV s, TV q) {
  // The power is s - 1, as (q + 9)^-s may underflow if the sum does not.
  const TV next = zeta_term(s - 1, q, 9), inverse = 1 / (q + 9);
  TV sum = next / (s - 1) + LIT(0.5) * inverse * next;
  TV factor = s * inverse * (inverse * next);
  for (int k = 0; k < EULER_TERMS; k++) {
    sum += factor * EULER_MACLAURIN[k];
    // If s is much larger than q, `factor` is 0, and must not become 0 times infinity.
    factor *= fmin((s + (2 * k + 1)) * inverse, C(1000)) * fmin((s + (2 * k + 2)) * inverse, C(1000));
  }
  for (int k = 8; k >= 0; k--) sum += zeta_term(s, q, k);
  return sum;
}

// The sum for all q: for q < 0, the positive terms and, reflected, the negative ones.
static inline TV zeta(TV s, TV q) {
  TV result = zeta_right(s, SEL(q > 0, q, q - floor(q)));
  if (ANY(q < 0)) {
    const TV left = zeta_right(s, ceil(q) - q) - zeta_right(s, 1 - q);
    const TV is_odd = s - 2 * floor(LIT(0.5) * s);
    const TV signed_left = SEL(is_odd != 0, -left, left);
    // If both sums are infinite, the nearer pole decides.
    const TV nearer = SEL(ceil(q) - q < q - floor(q), signed_left, result);
    const TV sum = SEL(left == INFINITY && result == INFINITY, nearer, result + signed_left);
    const TV whole = SEL(s == floor(s), sum, NAN);
    result = SEL(q < 0, whole, result);
  }
  result = SEL(q <= 0 && q == floor(q), INFINITY, result);
  // As in ATen, whose sum above 1 ends in 0 times infinity.
  result = SEL(s == INFINITY, SEL(q < 1, INFINITY, SEL(q == 1, 1, NAN)), result);
  return SEL(s > 1, result, SEL(s == 1, INFINITY, NAN));
}

// Derivative n of digamma, with one n for all lanes. 6 ulp for orders up to 4 from x = 0 on.
static inline TV polygamma(TV x, T n) {
  if (n == 0) return digamma(x);
  if (n == 1) return trigamma(x);
  TV result = zeta(C(n + 1), x);
  // n!, in factors that are exact.
  T factor = 1;
  for (T k = 2; k <= n && factor < INFINITY; k++) {
    if (factor * k > LIT(16777216.0)) {
      result *= factor;
      factor = 1;
    }
    factor *= k;
  }
  return result * (n - 2 * floor(n / 2) == 1 ? factor : -factor);
}
#endif  // IS_FLOAT
