// Modified Bessel functions of orders 0 and 1, for rows with `part: modified_bessel`, in the scheme of S. L. Moshier's
// Cephes Mathematical Library (i0.c, i1.c, k0.c, k1.c), with polynomials by scripts/polynomials.py: in x^2 up to 4 (K),
// and in 1 / x from 8 (I) or 2 on (K). Errors: I 5 ulp, K1 6 ulp, K0 8 ulp.

#ifdef IS_FLOAT
// exp(-x) sqrt(x) I0(x) from 8 on
#ifdef CLASS_D
__constant T I0_FAR[] = {
    9.3650868928181908e-11, 3.6293552297187330e-11, -6.6332871125470835e-10, -2.8033819978869997e-10,
    2.1968921378829005e-9,  1.1050558794424346e-9,  -4.5755534245349736e-9,  -3.1346276429240789e-9,
    6.5601387469170572e-9,  7.3359687108161539e-9,  -5.0381064879032841e-9,  -1.3326094405766387e-8,
    -6.8493381882867697e-9, 7.5343558438033422e-9,  2.1566251453104355e-8,   3.9328893751146338e-8,
    8.8720343833141437e-8,  2.9735960465627117e-7,  1.4838476651250266e-6,   1.1143033800708979e-5,
    0.00013621607438984735, 0.0033605519836677505,  0.40217650944500808};
#else
__constant T I0_FAR[] = {3.62667038e-7f, 1.63913487e-6f, 1.11121483e-5f, 0.000136156032f, 0.00336055570f, 0.402176513f};
#endif

// exp(-x) sqrt(x) I1(x) from 8 on
#ifdef CLASS_D
__constant T I1_FAR[] = {
    -9.7523972041381948e-11, -3.3654318531801765e-11, 6.9170892941938070e-10, 2.6340771095136485e-10,
    -2.2970041618852009e-9,  -1.0594544160443166e-9,  4.8105974050899440e-9,  3.0868867367227253e-9,
    -6.9838396248958659e-9,  -7.4444414771972701e-9,  5.5933701017906101e-9,  1.3958551001385954e-8,
    6.8401389977069582e-9,   -8.4091820404429181e-9,  -2.3392503748018582e-8, -4.3131964899777332e-8,
    -1.0001095659636540e-7,  -3.4838534380376332e-7,  -1.8349102358955385e-6, -1.5038547209501858e-5,
    -0.00021923576383172430, -0.0097495771932356347,  0.38939845902587232};
#else
__constant T I1_FAR[] = {-4.21035016e-7f,  -2.00978899e-6f, -1.50039655e-5f,
                         -0.000219168089f, -0.00974958137f, 0.389398455f};
#endif

// K0(x) + log(x / 2) I0(x), x^2 up to 4
#ifdef CLASS_D
__constant T K0_NEAR[] = {1.8282990225962873e-16, 3.5186315158547223e-14, 5.4521075880169366e-12,
                          6.6230132727944524e-10, 6.0933619341661550e-8,  4.0545066199498910e-6,
                          0.00018280555827901257, 0.0050533926431960922,  0.071777010342405114,
                          0.34049732101338059,    -0.30362077291575547};
#else
__constant T K0_NEAR[] = {6.09445241e-8f, 4.05566573e-6f, 0.000182805551f, 0.00505339206f,
                          0.0717770103f,  0.340497321f,   -0.303620773f};
#endif

// exp(x) sqrt(x) K0(x) from 2 on
#ifdef CLASS_D
__constant T K0_FAR[] = {
    1.0926983537268735e-10, -1.7597528809195707e-10, -3.1199361296821050e-10, 4.3927260002107632e-10,
    8.1339132054641146e-10, -1.2366923277096288e-9,  4.7575447057763741e-11,  -6.6438786318432343e-10,
    3.8083998599190429e-9,  -8.0252056049044760e-9,  1.7047535884249696e-8,   -4.1056738724915364e-8,
    1.0295431759391200e-7,  -2.6897598655395838e-7,  7.4278012321900959e-7,   -2.1911673837417865e-6,
    7.0022456457556510e-6,  -2.4735205428489720e-5,  9.9560547420294190e-5,   -0.00047976905673288439,
    0.0030328918102753206,  -0.031071461824889897,   1.2185953385133905};
#else
__constant T K0_FAR[] = {-2.98271353e-6f,  8.85380365e-6f, -2.40883397e-5f, 9.83178043e-5f,
                         -0.000479956747f, 0.00303314953f, -0.0310714474f,  1.21859533f};
#endif

// x (K1(x) - log(x / 2) I1(x)), x^2 up to 4
#ifdef CLASS_D
__constant T K1_NEAR[] = {-6.2142716173295768e-13, -8.5336341685751411e-11, -9.0321275017406785e-9,
                          -7.0811336915174077e-7,  -3.8918690643716332e-5,  -0.0013831688466181161,
                          -0.027854235219771843,   -0.24383852886774330,    -0.33224095524031308,
                          0.88508828772958935};
#else
__constant T K1_NEAR[] = {-7.08284042e-7f, -3.89344983e-5f, -0.00138316874f, -0.0278542273f,
                          -0.243838529f,   -0.332240956f,   0.885088288f};
#endif

// exp(x) sqrt(x) K1(x) from 2 on
#ifdef CLASS_D
__constant T K1_FAR[] = {
    -1.1931668393112158e-10, 1.9273808087540516e-10, 3.3867804167808004e-10,  -4.7744112178509500e-10,
    -8.9085967109239057e-10, 1.3615859404460647e-9,  -8.3362271959914565e-11, 7.9662427985040942e-10,
    -4.3319399856586292e-9,  9.2138940202895326e-9,  -1.9817577141591115e-8,  4.8154346790854778e-8,
    -1.2203186351938404e-7,  3.2305671988539342e-7,  -9.0670876333713933e-7,  2.7300301043527216e-6,
    -8.9612073877500252e-6,  3.2843866502355956e-5,  -0.00013959021956272224, 0.00073572415487183855,
    -0.0055667298800745882,  0.10334973775386564,    1.3631518903713420};
#else
__constant T K1_FAR[] = {3.67429384e-6f,  -1.12062739e-5f, 3.20737449e-5f, -0.000138086427f,
                         0.000735947382f, -0.00556704141f, 0.103349721f,   1.36315190f};
#endif

#ifdef CLASS_D
#define BESSEL_I_TERMS 26
#else
#define BESSEL_I_TERMS 17
#endif

// Sums of (x^2 / 4)^k / (k! (k + order)!), for x up to 8 (DLMF 10.25.2).
static inline TV bessel_i_series(TV x, int order) {
  const TV z = LIT(0.25) * x * x;
  TV sum = 1;
  UNROLL for (int k = BESSEL_I_TERMS; k > 0; k--) sum = fma(z * (LIT(1.0) / (k * (k + order))), sum, C(1));
  return sum;
}
static inline TV bessel_i0_near(TV x) { return bessel_i_series(x, 0); }
static inline TV bessel_i1_near(TV x) { return LIT(0.5) * x * bessel_i_series(x, 1); }

// exp(-|a|) I0(a).
static inline TV bessel_i0e(TV a) {
  const TV x = fabs(a);
  const TV near = bessel_i0_near(x) * m_exp(-x);
  if (!ANY(!(x <= 8))) return near;
  return SEL(x <= 8, near, POLYNOMIAL(I0_FAR, 16 / x - 1) / sqrt(x));
}

// exp(-|a|) I1(a).
static inline TV bessel_i1e(TV a) {
  const TV x = fabs(a);
  const TV near = bessel_i1_near(a) * m_exp(-x);
  if (!ANY(!(x <= 8))) return near;
  const TV far = POLYNOMIAL(I1_FAR, 16 / x - 1) / sqrt(x);
  return SEL(x <= 8, near, SEL(a < 0, -far, far));
}

// value * exp(x), even if exp(x) overflows and the product does not.
static inline TV times_exp(TV value, TV x) {
  const TV growth = m_exp(SEL(x < 80, x, LIT(0.5) * x));
  return value * growth * SEL(x < 80, 1, growth);
}

static inline TV bessel_i0(TV a) {
  const TV near = bessel_i0_near(a);
  return ANY(!(fabs(a) <= 8)) ? SEL(fabs(a) <= 8, near, times_exp(bessel_i0e(a), fabs(a))) : near;
}
static inline TV bessel_i1(TV a) {
  const TV near = bessel_i1_near(a);
  return ANY(!(fabs(a) <= 8)) ? SEL(fabs(a) <= 8, near, times_exp(bessel_i1e(a), fabs(a))) : near;
}

// K0(x) and K1(x) for x up to 2.
static inline TV bessel_k0_near(TV x) {
  return POLYNOMIAL(K0_NEAR, LIT(0.5) * x * x - 1) - m_log(LIT(0.5) * x) * bessel_i0_near(x);
}
static inline TV bessel_k1_near(TV x) {
  return SEL(x == 0, INFINITY, POLYNOMIAL(K1_NEAR, LIT(0.5) * x * x - 1) / x + m_log(LIT(0.5) * x) * bessel_i1_near(x));
}

// exp(x) K0(x) and exp(x) K1(x) from 2 on.
static inline TV bessel_k0e_far(TV x) { return POLYNOMIAL(K0_FAR, 4 / x - 1) / sqrt(x); }
static inline TV bessel_k1e_far(TV x) { return POLYNOMIAL(K1_FAR, 4 / x - 1) / sqrt(x); }

static inline TV bessel_k0(TV x) { return SEL(x > 2, bessel_k0e_far(x) * m_exp(-x), bessel_k0_near(x)); }
static inline TV bessel_k1(TV x) { return SEL(x > 2, bessel_k1e_far(x) * m_exp(-x), bessel_k1_near(x)); }
static inline TV bessel_k0e(TV x) { return SEL(x > 2, bessel_k0e_far(x), bessel_k0_near(x) * m_exp(x)); }
static inline TV bessel_k1e(TV x) { return SEL(x > 2, bessel_k1e_far(x), bessel_k1_near(x) * m_exp(x)); }
#endif  // IS_FLOAT
