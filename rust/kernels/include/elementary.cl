// Exponentials, logarithms, sines and similar functions of float, for vectors with lanes of any magnitude.
//
// OpenCL's own functions are used if their vector forms are correct and fast: with PoCL 3.1 (SLEEF) atan, sinh, lgamma
// ... take 0.2 to 2 ns an element and a core. The functions with the prefix m_ replace the others: PoCL's sin, cos and
// tan are wrong in the small lanes of a vector that holds a large one, and all of the replacements take two to five
// times less. Errors are the worst of 2^26 bit patterns; tests/python/ops/test_accuracy.py checks them.
//
// The methods are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980): an argument
// is reduced in two or three parts, and a polynomial, fitted for the least relative error, approximates the function of
// the remainder.

#ifdef IS_FLOAT
#ifdef CLASS_D
#define m_exp exp
#define m_expm1 expm1
#define m_log log
#define m_log1p log1p
#define m_tanh tanh_to_one
#define m_sin sin
#define m_cos cos
#define m_tan tan
#define m_erf erf
#define m_rint rint

static inline TV m_normal_cdf(TV x) { return LIT(0.5) * (1 + erf(x * LIT(0.7071067811865476))); }

// PoCL's tanh stays an ulp below 1, which is visible in a gradient's 1 - tanh^2 when multiplied by a large x.
static inline TV tanh_to_one(TV x) { return SEL(fabs(x) > C(20), copysign(C(1), x), tanh(x)); }
#else

#define SIGN_BIT ((int)0x80000000)
// y with the sign of x. Must not be selected with SEL: PoCL 3.1 joins both into one masked instruction, with wrong
// results.
INLINE TV with_sign_of(TV x, TV y) { return AS_TV((AS_TM(y) & ~SIGN_BIT) | (AS_TM(x) & SIGN_BIT)); }

// x + WHOLE is rounded to an integer, which the low bits of the sum hold, and x + WHOLE - WHOLE is that integer: two
// operations, while PoCL's rint takes a dozen. |x| must be below 2^21.
#define WHOLE C(12582912.0f)
// WHOLE with 254 more in the low bits: twice the bias of an exponent.
#define WHOLE_AND_BIAS C(12583166.0f)
// WHOLE with 126 more: the resulting power of two is halved.
#define WHOLE_AND_LESS_BIAS C(12583038.0f)

INLINE TV m_rint(TV x) {
  const TV size = fabs(x);
  return with_sign_of(x, SEL(size < C(8388608), size + C(8388608) - C(8388608), size));
}

// x = n log(2) + r, |r| <= log(2) / 2, for |x| <= 104; returns r, and n + 254.
INLINE TV reduce_exponent(TV x, TM *biased) {
  const TV shifted = fma(x, C(1.44269504f), WHOLE_AND_BIAS);
  const TV n = shifted - WHOLE_AND_BIAS;
  *biased = AS_TM(shifted);
  return fma(n, C(-1.42860677e-06f), fma(n, C(-0.693145752f), x));
}

// 2^n for a normal result.
INLINE TV power_of_two(TM biased) { return AS_TV((biased - 127) << 23); }

// (1 + fraction) 2^n in two steps, so that overflow and subnormal results are correct.
INLINE TV scaled_up(TV fraction, TM biased) {
  const TM half_of_it = biased >> 1;
  const TV scale = AS_TV(half_of_it << 23);
  return fma(fraction, scale, scale) * AS_TV((biased - half_of_it) << 23);
}

// exp(r) - 1 for |r| <= log(2) / 2.
INLINE TV expm1_near(TV r) {
  TV p = fma(r, C(1.98756915e-04f), C(1.39819995e-03f));
  p = fma(p, r, C(8.33345191e-03f));
  p = fma(p, r, C(4.16657959e-02f));
  p = fma(p, r, C(1.66666655e-01f));
  p = fma(p, r, C(5.00000012e-01f));
  return fma(p, r * r, r);
}

// 1 ulp.
INLINE TV m_exp(TV x) {
  x = SEL(C(89) < x, 89, x);
  x = SEL(C(-104) > x, -104, x);
  TM biased;
  const TV r = reduce_exponent(x, &biased);
  return scaled_up(expm1_near(r), biased);
}

// 1.5 ulp.
INLINE TV m_expm1(TV x) {
  TV y = SEL(C(89) < x, 89, x);
  y = SEL(C(-18) > y, -18, y);
  TM biased;
  const TV fraction = expm1_near(reduce_exponent(y, &biased));
  // In two steps if the result is large: 2^128 is not a float, even if it is multiplied by less than 1.
  const TM is_great = C(64) < y;
  const TV scale = power_of_two(biased - (is_great & 1));
  const TV result = fma(scale, fraction, scale - 1) * SEL(is_great != 0, 2, 1);
  return SEL(x == 0, x, result);
}

// x = m 2^e, m from sqrt(1/2) to sqrt(2), for normal x > 0; returns e.
INLINE TM split_exponent(TV x, TV *m) {
  const TM bits = AS_TM(x);
  const TM e = (bits - 0x3f3504f3) >> 23;
  *m = AS_TV(bits - (e << 23));
  return e;
}

// log((1 + t) 2^e), sqrt(1/2) <= 1 + t <= sqrt(2).
INLINE TV log_of_parts(TV t, TV e) {
  TV p = fma(t, C(-0.076363951f), C(0.127621979f));
  p = fma(p, t, C(-0.131596133f));
  p = fma(p, t, C(0.142015815f));
  p = fma(p, t, C(-0.166234091f));
  p = fma(p, t, C(0.200012416f));
  p = fma(p, t, C(-0.250008196f));
  p = fma(p, t, C(0.333333313f));
  p = fma(p, t, C(-0.5f));
  return fma(e, C(0.693145752f), t + fma(e, C(1.42860677e-06f), p * t * t));
}

#define LEAST_NORMAL C(1.17549435e-38f)

// 0.9 ulp.
INLINE TV m_log(TV x) {
  TV m;
  const TM e = split_exponent(SEL(x < LEAST_NORMAL, x * 8388608, x), &m);
  TV result = log_of_parts(m - 1, FROM_TM(e) - SEL(x < LEAST_NORMAL, 23, 0));
  result = SEL(x < INFINITY, result, x);
  return SEL(x <= 0, SEL(x == 0, -INFINITY, NAN), result);
}

// 1.6 ulp. The rounding error of 1 + x is added to its significand: for a small x that is x itself.
INLINE TV m_log1p(TV x) {
  const TV sum = x + 1;
  TV m;
  const TM e = split_exponent(sum, &m);
  const TV lost = (x - (sum - 1)) * AS_TV((127 - min(e, (TM)126)) << 23);
  TV result = log_of_parts(m - 1 + lost, FROM_TM(e));
  result = SEL(x < INFINITY && x != 0, result, x);
  return SEL(x <= -1, SEL(x == -1, -INFINITY, NAN), result);
}

// exp(x) - 1 for |x| <= 43.
INLINE TV expm1_within(TV x) {
  TM biased;
  const TV fraction = expm1_near(reduce_exponent(x, &biased)), scale = power_of_two(biased);
  return fma(scale, fraction, scale - 1);
}

// 2.5 ulp.
INLINE TV m_tanh(TV x) {
  const TV size = fabs(x);
  const TV e = expm1_within(2 * SEL(C(10) < size, 10, size));
  return with_sign_of(x, e / (e + 2));
}

// x minus a multiple of pi/2, in three parts. Above 1e5 three are not enough. The low bits of `turns` are those of the
// multiple.
INLINE TV reduce_angle(TV x, TM *turns) {
  const TV shifted = fma(x, C(0.63661975f), WHOLE), q = shifted - WHOLE;
  const TV r = fma(q, C(-1.57079625f), x);
  *turns = AS_TM(shifted);
  return fma(q, C(-5.39030253e-15f), fma(q, C(-7.54978942e-08f), r));
}

INLINE TV sin_polynomial(TV r) {
  const TV z = r * r;
  const TV p = fma(fma(C(-0.000195164789f), z, C(0.00833217227f)), z, C(-0.166666549f));
  return fma(p * z, r, r);
}

INLINE TV cos_polynomial(TV r) {
  const TV z = r * r;
  const TV p = fma(fma(C(2.44375309e-05f), z, C(-0.00138873598f)), z, C(0.0416666467f));
  return fma(p * z, z, fma(C(-0.5f), z, C(1)));
}

// The lanes of x that are too large for reduce_angle, one by one. Never inlined: these are rare and would need
// registers.
#define IS_GREAT(x) (!(fabs(x) <= 1e5f))
#define DEFINE_MEND(NAME, f)                                       \
  OUTLINED TV NAME(TV x, TV result) {                              \
    Lanes from, to;                                                \
    from.vector = x;                                               \
    to.vector = result;                                            \
    for (int l = 0; l < VEC; l++)                                  \
      if (IS_GREAT(from.lanes[l])) to.lanes[l] = f(from.lanes[l]); \
    return to.vector;                                              \
  }
DEFINE_MEND(mend_sin, sin)
DEFINE_MEND(mend_cos, cos)
DEFINE_MEND(mend_tan, tan)

// m_sin and m_cos stay within 2.4 ulp, m_tan within 3.8.
INLINE TV m_sin(TV x) {
  TM turns;
  const TV r = reduce_angle(x, &turns);
  TV result = SEL(turns << 31 < 0, cos_polynomial(r), sin_polynomial(r));
  result = SEL(x == 0, x, AS_TV(AS_TM(result) ^ ((turns & 2) << 30)));
  return ANY(IS_GREAT(x)) ? mend_sin(x, result) : result;
}

INLINE TV m_cos(TV x) {
  TM turns;
  const TV r = reduce_angle(x, &turns);
  TV result = SEL(turns << 31 < 0, sin_polynomial(r), cos_polynomial(r));
  result = AS_TV(AS_TM(result) ^ (((turns + 1) & 2) << 30));
  return ANY(IS_GREAT(x)) ? mend_cos(x, result) : result;
}

INLINE TV m_tan(TV x) {
  TM turns;
  const TV r = reduce_angle(x, &turns);
  const TV s = sin_polynomial(r), c = cos_polynomial(r);
  const TV quotient = SEL(turns << 31 < 0, -c, s) / SEL(turns << 31 < 0, s, c);
  const TV result = SEL(x == 0, x, quotient);
  return ANY(IS_GREAT(x)) ? mend_tan(x, result) : result;
}

// 1 - exp(q), where q is x times a polynomial that is fitted to log(erfc(x)) / x. 2 ulp.
INLINE TV m_erf(TV x) {
  const TV size = fabs(x), t = SEL(C(4) < size, 4, size);
  TV p = fma(t, C(9.26422217e-06f), C(-0.000117713971f));
  p = fma(p, t, C(0.000633102027f));
  p = fma(p, t, C(-0.00166752306f));
  p = fma(p, t, C(0.00016090204f));
  p = fma(p, t, C(0.0191527866f));
  p = fma(p, t, C(-0.102777757f));
  p = fma(p, t, C(-0.636619389f));
  p = fma(p, t, C(5.41201537e-08f));
  return with_sign_of(x, expm1_within(fma(t, C(-1.12837923f), t * p)));
}

// The standard normal distribution: 2^(t g(t) - 1) for x = -t, and 1 minus that for x = t. The polynomial g is fitted
// for errors of 2^-26, and of 2^-6 of the distribution if that is less, down to x = -5.6; from -10.4 the result is 0. x
// times this is within 2.5 ulp for x > -1, where erf has 3 with more operations, and correct to bf16's last bit for x >
// -5.
INLINE TV m_normal_cdf(TV x) {
  const TV size = fabs(x), t = SEL(C(10.445712f) < size, 10.445712f, size), z = t * t;
  TV odd = fma(z, C(-1.99857209e-06f), C(-0.000150581662f));
  odd = fma(odd, z, C(0.0071413517f));
  odd = fma(odd, z, C(-0.459197521f));
  TV even = fma(z, C(3.06517613e-05f), C(-0.000209428996f));
  even = fma(even, z, C(-0.0525390878f));
  even = fma(even, z, C(-1.15110612f));
  const TV g = fma(odd, t, even);

  const TV shifted = fma(t, g, WHOLE_AND_LESS_BIAS), f = fma(t, g, WHOLE_AND_LESS_BIAS - shifted);
  TV p = fma(f, C(0.000152709021f), C(0.00133968145f));
  p = fma(p, f, C(0.00961872935f));
  p = fma(p, f, C(0.0555033945f));
  p = fma(p, f, C(0.240226462f));
  p = fma(p, f, C(0.693147182f));
  p = fma(p, f, C(1));
  const TV scale = AS_TV(AS_TM(shifted) << 23);
  return SEL(x < 0, p * scale, fma(-p, scale, C(1)));
}
#endif  // CLASS_F
#endif  // IS_FLOAT
