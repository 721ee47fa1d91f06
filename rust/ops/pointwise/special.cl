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

// The Chebyshev series of the modified Bessel function of order 0 in S. L. Moshier's Cephes Mathematical Library (i0.c):
// of exp(-x) I0(x) up to 8, and of exp(-x) sqrt(x) I0(x) above it; highest orders first.
__constant T BESSEL_I0_NEAR[] = {
    -LIT(4.41534164647933937950E-18), LIT(3.33079451882223809783E-17),  -LIT(2.43127984654795469359E-16),
    LIT(1.71539128555513303061E-15),  -LIT(1.16853328779934516808E-14), LIT(7.67618549860493561688E-14),
    -LIT(4.85644678311192946090E-13), LIT(2.95505266312963983461E-12),  -LIT(1.72682629144155570723E-11),
    LIT(9.67580903537323691224E-11),  -LIT(5.18979560163526290666E-10), LIT(2.65982372468238665035E-9),
    -LIT(1.30002500998624804212E-8),  LIT(6.04699502254191894932E-8),   -LIT(2.67079385394061173391E-7),
    LIT(1.11738753912010371815E-6),   -LIT(4.41673835845875056359E-6),  LIT(1.64484480707288970893E-5),
    -LIT(5.75419501008210370398E-5),  LIT(1.88502885095841655729E-4),   -LIT(5.76375574538582365885E-4),
    LIT(1.63947561694133579842E-3),   -LIT(4.32430999505057594430E-3),  LIT(1.05464603945949983183E-2),
    -LIT(2.37374148058994688156E-2),  LIT(4.93052842396707084878E-2),   -LIT(9.49010970480476444210E-2),
    LIT(1.71620901522208775349E-1),   -LIT(3.04682672343198398683E-1),  LIT(6.76795274409476084995E-1)};
__constant T BESSEL_I0_FAR[] = {
    -LIT(7.23318048787475395456E-18), -LIT(4.83050448594418207126E-18), LIT(4.46562142029675999901E-17),
    LIT(3.46122286769746109310E-17),  -LIT(2.82762398051658348494E-16), -LIT(3.42548561967721913462E-16),
    LIT(1.77256013305652638360E-15),  LIT(3.81168066935262242075E-15),  -LIT(9.55484669882830764870E-15),
    -LIT(4.15056934728722208663E-14), LIT(1.54008621752140982691E-14),  LIT(3.85277838274214270114E-13),
    LIT(7.18012445138366623367E-13),  -LIT(1.79417853150680611778E-12), -LIT(1.32158118404477131188E-11),
    -LIT(3.14991652796324136454E-11), LIT(1.18891471078464383424E-11),  LIT(4.94060238822496958910E-10),
    LIT(3.39623202570838634515E-9),   LIT(2.26666899049817806459E-8),   LIT(2.04891858946906374183E-7),
    LIT(2.89137052083475648297E-6),   LIT(6.88975834691682398426E-5),   LIT(3.36911647825569408990E-3),
    LIT(8.04490411014108831608E-1)};

// Where the series begins: float needs no higher orders (i0f.c).
#ifdef CLASS_D
#define BESSEL_I0_NEAR_FIRST 0
#define BESSEL_I0_FAR_FIRST 0
#else
#define BESSEL_I0_NEAR_FIRST 12
#define BESSEL_I0_FAR_FIRST 18
#endif

// Sum of a Chebyshev series at x / 2, the constant counting half, by Clenshaw's recurrence.
static inline TV chebyshev(__constant const T *coefficients, int count, TV x) {
  TV sum = C(coefficients[0]);
  TV next = 0;
  TV last = 0;
  for (int i = 1; i < count; i++) {
    last = next;
    next = sum;
    sum = x * next - last + C(coefficients[i]);
  }
  return LIT(0.5) * (sum - last);
}

static inline TV bessel_i0(TV a) {
  const TV x = fabs(a);
  TV scaled = chebyshev(BESSEL_I0_NEAR + BESSEL_I0_NEAR_FIRST, 30 - BESSEL_I0_NEAR_FIRST, LIT(0.5) * x - 2);
  if (ANY(!(x <= 8))) {
    const TV far = chebyshev(BESSEL_I0_FAR + BESSEL_I0_FAR_FIRST, 25 - BESSEL_I0_FAR_FIRST, 32 / x - 2) / sqrt(x);
    scaled = SEL(x <= 8, scaled, far);
  }
  // exp(x) overflows before the function does.
  const TV growth = m_exp(SEL(x < 80, x, LIT(0.5) * x));
  return scaled * growth * SEL(x < 80, 1, growth);
}
#endif  // IS_FLOAT
