// Powers of floats: m_pow(a, b) with the special values of C99.

#ifdef IS_FLOAT
#ifdef CLASS_D
// If one lane of a vector is infinite or zero, PoCL 3.1 returns wrong values in all lanes, so lanes are computed one by
// one.
static inline TV m_pow(TV a, TV b) {
  Lanes x, y;
  x.vector = a;
  y.vector = b;
  for (int l = 0; l < VEC; l++) x.lanes[l] = pow(x.lanes[l], y.lanes[l]);
  return x.vector;
}
#else
// log2(x) of x >= 0 as the sum of the result and *low, with an error of 2^-34 of it.
//
// With x = m 2^e and s = (m - 1) / (m + 1), log2(m) is s w, where w = 2 / log(2) (1 + s^2 / 3 + s^4 / 5 ...): the
// scheme of fdlibm's e_pow.c. A power may be as large as 150, so that an error in its 8th digit would show in the
// result; so s, s^2 and w each have a second part, computed with fused multiply-adds (T. J. Dekker, "A floating-point
// technique for extending the available precision", 1971).
INLINE TV log2_in_parts(TV x, TV *low) {
  TV m;
  const TM exponent = split_exponent(SEL(x < LEAST_NORMAL, x * 8388608, x), &m);
  const TV e = FROM_TM(exponent) - SEL(x < LEAST_NORMAL, 23, 0);
  const TV above = m - 1, below = m + 1, inverse = 1 / below;
  const TV s = above * inverse;
  const TV s_low = inverse * fma(-s, m - (below - 1), fma(-s, below, above));
  const TV z = s * s;
  const TV z_low = fma(s, s, -z) + 2 * s * s_low;
  const TV tail = fma(fma(fma(z, C(0.337820828f), C(0.411849916f)), z, C(0.57708019f)), z * z, C(3.85192607e-08f));
  const TV w = fma(z, C(0.961796701f), C(2.88539004f));
  const TV w_rest = fma(z_low, C(0.961796701f), fma(z, C(-7.02846181e-09f), tail));
  const TV w_low = fma(z, C(0.961796701f), C(2.88539004f) - w) + w_rest;
  const TV result = fma(s, w, e);
  *low = fma(s, w, e - result) + fma(s, w_low, s_low * w);
  return SEL(x == 0, -INFINITY, SEL(x == INFINITY, INFINITY, result));
}

// 2^f - 1 for |f| <= 1/2.
INLINE TV exp2m1_near(TV f) {
  TV p = fma(f, C(0.000154620124f), C(0.00134000531f));
  p = fma(p, f, C(0.00961806439f));
  p = fma(p, f, C(0.0555032827f));
  p = fma(p, f, C(0.240226507f));
  p = fma(p, f, C(2.38237376e-08f));
  return fma(f, C(0.693147182f), f * p);
}

// 1 ulp.
INLINE TV m_pow(TV a, TV b) {
  TV low;
  const TV log_a = log2_in_parts(fabs(a), &low), power = b * log_a;
  const TV bounded = SEL(C(129) < power, 129, SEL(C(-151) > power, -151, power));
  const TV shifted = bounded + WHOLE_AND_BIAS;
  const TV fraction = fma(b, low, fma(b, log_a, WHOLE_AND_BIAS - shifted));
  TV result = scaled_up(exp2m1_near(fraction), AS_TM(shifted));
  result = SEL(power >= C(129), INFINITY, SEL(power <= C(-151), 0, result));

  // From 2^24 every float is an even integer.
  const TM whole = TO_TM(b);
  const TM is_even = fabs(b) >= C(16777216), is_whole = is_even || FROM_TM(whole) == b;
  const TM is_odd = is_whole && !is_even && (whole & 1) != 0;
  result = AS_TV(AS_TM(result) | (AS_TM(a) & is_odd << 31));
  const TM is_undefined = a < 0 && a != -INFINITY && !is_whole;
  result = SEL(a != a || b != b || is_undefined, NAN, result);
  return SEL(a == 1 || b == 0 || (a == -1 && fabs(b) == INFINITY), 1, result);
}
#endif

// One exponent for all lanes; common exponents need no logarithm.
static inline TV power_scalar(TV a, T exponent) {
  if (exponent == 2) return a * a;
  if (exponent == 3) return a * a * a;
  if (exponent == LIT(0.5)) return sqrt(a);
  if (exponent == 1) return a;
  if (exponent == -LIT(0.5)) return 1 / sqrt(a);
  if (exponent == -1) return 1 / a;
  if (exponent == -2) return 1 / (a * a);
  return m_pow(a, (TV)(exponent));
}
#endif  // IS_FLOAT
