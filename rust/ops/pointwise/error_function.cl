// The error function's relatives, and entropy, for rows with `part: error_function`. The polynomials are by
// scripts/polynomials.py. Errors: erfcx and log_ndtr 6 ulp, erfinv and ndtri 4 ulp, entr 2 ulp.

#ifdef IS_FLOAT
// -x log x; 0 at 0, and -inf below 0.
static inline TV entropy(TV x) { return SEL(x == 0, 0, SEL(x < 0, -INFINITY, -x * m_log(x))); }

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
  // erfc keeps the residual's digits if |y| is near 1.
  for (int i = 0; i < 2; i++) {
    TV tail = 1 - fabs(y) - erfc(fabs(x));
    TV residual = SEL(fabs(x) < LIT(0.5), m_erf(x) - y, SEL(x < 0, -tail, tail));
    x -= residual * LIT(0.8862269254527580) * exp(x * x);
  }
#endif
  return SEL(fabs(y) == 1, copysign(C(INFINITY), y), SEL(y == 0, y, x));
}

// (1 + 2 x) exp(x^2) erfc(x) by (x - 3.75) / (x + 3.75)
#ifdef CLASS_D
__constant T ERFCX[] = {3.1114333809799252e-10,  -2.6231073471334758e-9, -3.7442100809620186e-9, 3.1979266716668043e-8,
                        2.3263508708859124e-8,   -2.4857126248016743e-7, -5.7218230603224088e-8, 1.7419821586224816e-6,
                        -9.7355989673677493e-7,  -1.1438048033346894e-5, 2.2384239155082230e-5,  5.1646529741774161e-5,
                        -0.00029015408054084171, 0.00029371437804495803, 0.0017556258528952954,  -0.0097465796832652622,
                        0.028362277418956404,    -0.058693398576649338,  0.092304321160377478,   -0.10880393014244461,
                        0.082276738490145208,    0.0035854154854790256,  -0.14024059858554696,   1.2375126308378275};
#else
__constant T ERFCX[] = {2.20467189e-5f, -0.000224116747f, 0.000330167456f, 0.00167591222f, -0.00977008718f,
                        0.0284092524f,  -0.0586854405f,   0.0922907696f,   -0.108805228f,  0.0822784200f,
                        0.00358549531f, -0.140240658f,    1.23751263f};
#endif

// the quantile of 1/2 + y over y, y^2 up to 0.1331
#ifdef CLASS_D
__constant T NDTRI_CENTRE[] = {1.0210132587606998e-10, 2.8732193197672183e-10, 3.0045512342796129e-10,
                               9.3175381561351257e-10, 3.9631741423441618e-9,  1.1601477414966179e-8,
                               3.2891783971042028e-8,  9.8315333202765976e-8,  2.9654919720202094e-7,
                               8.9732502593669025e-7,  2.7387415238416883e-6,  8.4494307128312122e-6,
                               2.6407561697250461e-5,  8.3887661294610120e-5,  0.00027216226521494319,
                               0.00090841621446228044, 0.0031565305773383706,  0.011662209735442162,
                               0.047853636555836917,   0.24469521772561344,    2.7126756543511151};
#else
__constant T NDTRI_CENTRE[] = {1.14907661e-5f, 3.46964088e-5f, 8.06379513e-5f, 0.000264454032f, 0.000909885932f,
                               0.00315936883f, 0.0116619420f,  0.0478532752f,  0.244695231f,    2.71267566f};
#endif

// z (z - log(z) / z - quantile) by 1 / z, from 1/8 to 1/2
#ifdef CLASS_D
__constant T NDTRI_TAIL[] = {
    -1.2854087364083779e-9,  2.1644331265861645e-9,  4.3712180767798883e-9,   -6.7554594742350365e-9,
    -1.1696873466755490e-8,  1.8187565899098869e-8,  6.6122403313805573e-9,   -6.1166573517805184e-9,
    -3.3668511066773328e-8,  5.9411314223253998e-8,  -8.4188999266096145e-8,  1.7368075016281918e-7,
    -3.7052320950765571e-7,  7.6530628311493163e-7,  -1.6188769043962248e-6,  3.5393857685781520e-6,
    -7.9452462370154295e-6,  1.8059332610174422e-5,  -4.0482728634864095e-5,  8.6031303281883009e-5,
    -0.00016373687752483673, 0.00025195620727696752, -0.00017135217902496641, -0.0024406346167584298,
    0.072812479369965592,    1.0334667518700494};
#else
__constant T NDTRI_TAIL[] = {7.46788554e-6f,  -1.51506835e-5f,  1.28800573e-5f,  -3.21600448e-5f,
                             8.89403991e-5f,  -0.000167652854f, 0.000251240171f, -0.000170621039f,
                             -0.00244057116f, 0.0728124417f,    1.03346675f};
#endif

// the same from 1/40 to 1/8
#ifdef CLASS_D
__constant T NDTRI_FAR[] = {
    1.8975221410994607e-9, -2.7868953386562895e-9, -8.2208905820892042e-9, 1.1315881118144732e-8,
    1.9887701701685764e-8, -2.6485828978631322e-8, -2.3982068223236629e-8, 2.8764331194342532e-8,
    3.0381105411273701e-8, -3.9570024608666842e-8, 6.7395128835171952e-9,  -2.2848843912114768e-8,
    7.7487646899104165e-8, -1.3914869493142148e-7, 2.5072977596797138e-7,  -4.8900949348768889e-7,
    9.7871585834334046e-7, -2.0139761388388027e-6, 4.3118588338192209e-6,  -9.7106628371173572e-6,
    2.3365673946009568e-5, -6.1266754208732053e-5, 0.00017624160772164177, -0.00052779766661717293,
    0.0012379807655819263, 0.018417889159071556,   0.93970020240641374};
#else
__constant T NDTRI_FAR[] = {-4.46834560e-6f, 8.44617177e-6f,   -6.78657069e-6f, 1.91331780e-5f, -6.26647050e-5f,
                            0.000177878647f, -0.000527534019f, 0.00123776584f,  0.0184178755f,  0.939700207f};
#endif

// exp(x^2) erfc(x) for x >= 0, in the variable of M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of
// (1 + 2x) exp(x^2) erfc(x) in 0 <= x < inf" (Math. Comp. 36, 1981).
static inline TV erfcx_positive(TV x) {
  const TV bounded = SEL(x > LIT(1e30), LIT(1e30), x);
  return POLYNOMIAL(ERFCX, (bounded - LIT(3.75)) / (bounded + LIT(3.75))) * (LIT(0.5) / (x + LIT(0.5)));
}

// exp(scale x^2), corrected for the rounding error of the product.
static inline TV exp_square(TV x, T scale) {
  const TV y = scale * x, product = y * x, low = fma(y, x, -product);
  return m_exp(product) * (1 + SEL(fabs(product) < 800, low, 0));
}

static inline TV erfcx(TV a) {
  const TV right = erfcx_positive(fabs(a));
  return ANY(a < 0) ? SEL(a < 0, 2 * exp_square(a, 1) - right, right) : right;
}

// log of the normal distribution's CDF: on the left from its scaled form, which does not underflow.
static inline TV log_ndtr(TV x) {
  const TV scaled = LIT(0.5) * erfcx_positive(fabs(x) * LIT(0.7071067811865476));
  return SEL(x < 0, m_log(scaled) - LIT(0.5) * x * x, m_log1p(-scaled * exp_square(x, -LIT(0.5))));
}

// Quantiles of the normal distribution: odd in p - 1/2, and near 0 and 1 in z = sqrt(-2 log p), with the terms that
// Cephes (ndtri.c) subtracts.
static inline TV ndtri(TV p) {
  const TV tail = SEL(p > LIT(0.8646647167633873), 1 - p, p), centred = p - LIT(0.5);
  const TV centre = centred * POLYNOMIAL(NDTRI_CENTRE, centred * centred * LIT(15.026296018031555) - 1);
  const TM is_central = tail > LIT(0.1353352832366127);
  if (!ANY(!is_central)) return centre;
  const TV z = sqrt(-2 * m_log(tail)), s = 1 / z;
  const TV near = POLYNOMIAL(NDTRI_TAIL, (s - LIT(0.3125)) * LIT(5.333333333333333));
  const TV rest = ANY(z > 8) ? SEL(z > 8, POLYNOMIAL(NDTRI_FAR, (s - LIT(0.075)) * 20), near) : near;
  const TV quantile = z - (m_log(z) + rest) * s;
  const TV result = SEL(is_central, centre, SEL(p < LIT(0.5), -quantile, quantile));
  return SEL(p == 0, -INFINITY, SEL(p == 1, INFINITY, result));
}
#endif  // IS_FLOAT
