// Special functions, which only programs of rows with `part: special` have: they take long to compile, and few models call
// them.

#ifdef IS_FLOAT
// -x log x, continued by 0 at 0 and by -inf below it.
static inline TV entropy(TV x) { return SEL(x == 0, 0, SEL(x < 0, -INFINITY, -x * m_log(x))); }

// Derivative of log gamma: reflection below 0, recurrence up to 10, then the asymptotic series
// (Abramowitz and Stegun 6.3.7, 6.3.5 and 6.3.18).
static inline TV digamma(TV a) {
  TV x = SEL(a < 0, 1 - a, a);
  TV sum = 0;
  for (int i = 0; i < 10; i++) {
    sum -= SEL(x < 10, 1 / x, 0);
    x += B(x < 10);
  }
  TV z = 1 / (x * x);
  TV tail = z * (LIT(0.08333333333333333) -
                 z * (LIT(0.008333333333333333) -
                      z * (LIT(0.003968253968253968) -
                           z * (LIT(0.004166666666666667) -
                                z * (LIT(0.007575757575757576) -
                                     z * (LIT(0.021092796092796094) - z * LIT(0.08333333333333333)))))));
  TV value = sum + m_log(x) - LIT(0.5) / x - tail;
  TV fraction = a - rint(a);
  value -= SEL(a < 0, LIT(3.141592653589793) / m_tan(LIT(3.141592653589793) * fraction), 0);
  value = SEL(a < 0 && fraction == 0, NAN, value);
  return SEL(a == 0, copysign(C(INFINITY), -a), value);
}

// Inverse of erf: the approximation of W. J. Giles, "Approximating the erfinv function" (GPU Computing
// Gems, 2011), then Newton steps, which double its 7 digits.
static inline TV erf_inverse(TV y) {
  TV w = -m_log((1 - y) * (1 + y));
  TV near = w - LIT(2.5);
  TV p = LIT(2.81022636e-08);
  p = p * near + LIT(3.43273939e-07);
  p = p * near - LIT(3.5233877e-06);
  p = p * near - LIT(4.39150654e-06);
  p = p * near + LIT(0.00021858087);
  p = p * near - LIT(0.00125372503);
  p = p * near - LIT(0.00417768164);
  p = p * near + LIT(0.246640727);
  p = p * near + LIT(1.50140941);
  TV far = sqrt(w) - 3;
  TV q = -LIT(0.000200214257);
  q = q * far + LIT(0.000100950558);
  q = q * far + LIT(0.00134934322);
  q = q * far - LIT(0.00367342844);
  q = q * far + LIT(0.00573950773);
  q = q * far - LIT(0.0076224613);
  q = q * far + LIT(0.00943887047);
  q = q * far + LIT(1.00167406);
  q = q * far + LIT(2.83297682);
  TV x = y * SEL(w < 5, p, q);
#ifdef CLASS_D
  // erfc keeps the residual's digits where |y| is near 1.
  for (int i = 0; i < 2; i++) {
    TV tail = 1 - fabs(y) - erfc(fabs(x));
    TV residual = SEL(fabs(x) < LIT(0.5), m_erf(x) - y, SEL(x < 0, -tail, tail));
    x -= residual * LIT(0.8862269254527580) * exp(x * x);
  }
#endif
  return SEL(fabs(y) == 1, copysign(C(INFINITY), y), SEL(y == 0, y, x));
}
#endif  // IS_FLOAT
