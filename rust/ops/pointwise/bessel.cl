// Bessel functions of orders 0 and 1, for rows with `part: bessel`, by polynomials of scripts/polynomials.py: in x^2 up
// to 5, and above it the two factors of Hankel's expansions (DLMF 10.17), in 1 / x^2. Errors: 6 ulp, Y0 8 ulp, of the
// value or, if that is larger, of the amplitude sqrt(2 / (pi x)).

#ifdef IS_FLOAT
// J0(x) over its zeros, x^2 up to 25
#ifdef CLASS_D
__constant T J0_NEAR[] = {-3.5244911300872700e-16, 1.8688672744978886e-14,  -8.4041847193947774e-13,
                          3.1637239891962717e-11,  -9.7814389467263529e-10, 2.4286220380254231e-8,
                          -4.7062916645706100e-7,  6.8549548471993729e-6,   -7.1217052405758531e-5,
                          0.00048768271776558411,  -0.0019210870437164044,  0.0031873556303932385};
#else
__constant T J0_NEAR[] = {2.43495474e-8f,  -4.72342810e-7f, 6.85491526e-6f, -7.12161953e-5f,
                          0.000487682726f, -0.00192108715f, 0.00318735563f};
#endif

// J1(x) / x over its zeros, x^2 up to 25
#ifdef CLASS_D
__constant T J1_NEAR[] = {7.0508856123746136e-16,  -3.4284868294108667e-14, 1.4012939606655874e-12,
                          -4.7428743918403455e-11, 1.3002918729585578e-9,   -2.8111472544614122e-8,
                          4.6259792151649641e-7,   -5.5154944595993098e-6,  4.4218688071014801e-5,
                          -0.00020932672214860189, 0.00043236987341064740};
#else
__constant T J1_NEAR[] = {1.30309644e-9f, -2.81945500e-8f,  4.62596168e-7f, -5.51545291e-6f,
                          4.42186884e-5f, -0.000209326727f, 0.000432369873f};
#endif

// Y0(x) - 2 / pi log(x) J0(x), x^2 up to 25
#ifdef CLASS_D
__constant T Y0_NEAR[] = {-6.0499369472396503e-12, 2.6577889877100746e-10, -9.7209552080454007e-9,
                          2.9142159496351494e-7,   -6.9855043740770608e-6, 0.00012994629120518141,
                          -0.0018028096665503852,  0.017635345389255821,   -0.11151682184328655,
                          0.38851639956571979,     -0.47057636552972878,   -0.43265582228551289,
                          0.48372485781029950};
#else
__constant T Y0_NEAR[] = {-7.00983172e-6f, 0.000130602903f, -0.00180278837f, 0.0176348527f, -0.111516829f,
                          0.388516536f,    -0.470576365f,   -0.432655833f,   0.483724858f};
#endif

// (Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, x^2 up to 25
#ifdef CLASS_D
__constant T Y1_NEAR[] = {-2.3977823416691828e-13, 1.1462847037754036e-11, -4.6013010745475041e-10,
                          1.5288884446737510e-8,   -4.1137780795312437e-7, 8.7330983152761750e-6,
                          -0.00014141835794484213, 0.0016688031328605529,  -0.013433433740818166,
                          0.066346953547791451,    -0.16312020358118715,   0.091086508384484423,
                          0.13974939033568805};
#else
__constant T Y1_NEAR[] = {-4.12529122e-7f, 8.76753771e-6f, -0.000141417350f, 0.00166877729f, -0.0134334341f,
                          0.0663469607f,   -0.163120204f,  0.0910865078f,    0.139749390f};
#endif

// P of order 0, x from 5 on
#ifdef CLASS_D
__constant T P0[] = {3.6143863492486010e-12, -6.0851008658033121e-12, -3.7435929805120264e-12, 2.9884138002187617e-12,
                     2.4823644443773411e-11, -5.0824799392579059e-11, 9.7250551457765002e-11,  -2.7701504105952114e-10,
                     8.5622925918416940e-10, -2.8729929399972921e-9,  1.1058301818592054e-8,   -5.0863933418486718e-8,
                     2.9759010201737064e-7,  -2.4599633493181307e-6,  3.4917305810770850e-5,   -0.0013274931271998205,
                     0.99863476590919907};
#else
__constant T P0[] = {3.15906047e-7f, -2.52774685e-6f, 3.49102050e-5f, -0.00132747581f, 0.998634766f};
#endif

// x Q of order 0
#ifdef CLASS_D
__constant T Q0[] = {-6.0320287478650829e-12, 8.5611412045557588e-12, 1.7652067282348907e-11,  -2.1805674415621837e-11,
                     -3.7236674347799023e-11, 4.8879386069324274e-11, 6.9845644408032111e-12,  1.5124462364733127e-11,
                     -1.2217552880455315e-10, 2.5848780978301864e-10, -5.8070765417590172e-10, 1.5208164406105878e-9,
                     -4.2956720406289007e-9,  1.3297944779036059e-8,  -4.6397802228300444e-8,  1.8870283952552906e-7,
                     -9.4098753263037813e-7,  6.2391131760670245e-6,  -6.3387154425092269e-5,  0.0013142139729101604,
                     -0.12361496352611865};
#else
__constant T Q0[] = {-5.71224290e-8f, 2.16208524e-7f, -9.33779536e-7f, 6.22457663e-6f,
                     -6.33886506e-5f, 0.00131421584f, -0.123614963f};
#endif

// P of order 1
#ifdef CLASS_D
__constant T P1[] = {-3.8375164481595087e-12, 6.4755469047094092e-12, 3.9193568327846749e-12,  -3.0642934501236317e-12,
                     -2.6622329676450121e-11, 5.4809501894723731e-11, -1.0595089749231099e-10, 3.0312304895803646e-10,
                     -9.4221474949966744e-10, 3.1875529562097121e-9,  -1.2402701962004369e-8,  5.7916265549804923e-8,
                     -3.4667191513411592e-7,  2.9786211346350554e-6,  -4.5782806529390984e-5,  0.0022414632139165769,
                     1.0022906462560662};
#else
__constant T P1[] = {-3.67174819e-7f, 3.05567269e-6f, -4.57748629e-5f, 0.00224144354f, 1.00229065f};
#endif

// x Q of order 1
#ifdef CLASS_D
__constant T Q1[] = {-9.0246497225443251e-12, 1.3206143080854316e-11, 2.2920253872927313e-11,  -2.8238891623756562e-11,
                     -5.1615927430855686e-11, 7.2475348345613397e-11, -1.6919085465641949e-11, 7.4620882986580459e-11,
                     -2.7862990677601128e-10, 6.5450207987966939e-10, -1.6563207992528959e-9,  4.6974917069302993e-9,
                     -1.4665671158924866e-8,  5.1642445893394837e-8,  -2.1266726345215037e-7,  1.0798853142795982e-6,
                     -7.3699279545452634e-6,  7.8980941781854494e-5,  -0.0018648496218412208,  0.37304743317408019};
#else
__constant T Q1[] = {-2.42934378e-7f, 1.16705321e-6f, -7.35394338e-6f, 7.89469358e-5f, -0.00186485168f, 0.373047435f};
#endif

// The first two zeros of J0 and of J1, each as the sum of two values.
#ifdef CLASS_D
__constant T J0_ZEROS[] = {2.404825557695773, -1.176691651530894e-16, 5.520078110286311, 8.088597146146722e-17};
__constant T J1_ZEROS[] = {3.8317059702075125, -1.5269184090088067e-16, 7.015586669815619, -9.414165653410389e-17};
#else
__constant T J0_ZEROS[] = {2.4048254f, 1.08705905e-07f, 5.520078f, -7.1934146e-08f};
__constant T J1_ZEROS[] = {3.831706f, -7.685059e-08f, 7.015587f, -1.8321172e-07f};
#endif

// The polynomial with these zeros and their negatives, exact to the last bit next to a zero.
static inline TV over_zeros(TV x, __constant const T *zeros) {
  const TV first = (x - C(zeros[0]) - C(zeros[1])) * (x + C(zeros[0]));
  return first * (x - C(zeros[2]) - C(zeros[3])) * (x + C(zeros[2]));
}

static inline TV bessel_j0_near(TV x) { return POLYNOMIAL(J0_NEAR, x * x * LIT(0.08) - 1) * over_zeros(x, J0_ZEROS); }
static inline TV bessel_j1_near(TV x) {
  return POLYNOMIAL(J1_NEAR, x * x * LIT(0.08) - 1) * over_zeros(x, J1_ZEROS) * x;
}

// For x > 0. `sine` and `cosine` are those of x - pi / 4, times the square root of 2: sums of the sine and cosine of x,
// so that x - pi / 4 is not rounded.
#define HANKEL(x, p, q, series)                                                            \
  const TV s = m_sin(x), c = m_cos(x), w = LIT(7.0710678118654755) / x;                    \
  const TV p = POLYNOMIAL(P##series, w * w - 1), q = POLYNOMIAL(Q##series, w * w - 1) / x; \
  const TV sine = s - c, cosine = c + s, scale = LIT(0.5641895835477563) / sqrt(x)

static inline TV bessel_j0_far(TV x) {
  HANKEL(x, p, q, 0);
  return scale * (p * cosine - q * sine);
}
static inline TV bessel_y0_far(TV x) {
  HANKEL(x, p, q, 0);
  return scale * (p * sine + q * cosine);
}
static inline TV bessel_j1_far(TV x) {
  HANKEL(x, p, q, 1);
  return scale * (p * sine + q * cosine);
}
static inline TV bessel_y1_far(TV x) {
  HANKEL(x, p, q, 1);
  return scale * (q * sine - p * cosine);
}

#define TWO_OVER_PI LIT(0.6366197723675814)

static inline TV bessel_j0(TV a) {
  const TV x = fabs(a), near = bessel_j0_near(x);
  return ANY(!(x <= 5)) ? SEL(x <= 5, near, bessel_j0_far(x)) : near;
}
static inline TV bessel_j1(TV a) {
  const TV x = fabs(a), near = bessel_j1_near(x);
  const TV result = ANY(!(x <= 5)) ? SEL(x <= 5, near, bessel_j1_far(x)) : near;
  return SEL(a < 0, -result, result);
}
static inline TV bessel_y0(TV x) {
  const TV near = POLYNOMIAL(Y0_NEAR, x * x * LIT(0.08) - 1) + TWO_OVER_PI * m_log(x) * bessel_j0_near(x);
  return ANY(!(x <= 5)) ? SEL(x <= 5, near, bessel_y0_far(x)) : near;
}
static inline TV bessel_y1(TV x) {
  const TV rest = POLYNOMIAL(Y1_NEAR, x * x * LIT(0.08) - 1) * x;
  const TV near = SEL(x == 0, -INFINITY, rest + TWO_OVER_PI * (m_log(x) * bessel_j1_near(x)) - TWO_OVER_PI / x);
  return ANY(!(x <= 5)) ? SEL(x <= 5, near, bessel_y1_far(x)) : near;
}
static inline TV spherical_bessel_j0(TV x) { return SEL(x == 0, 1, SEL(isinf(x), 0, m_sin(x) / x)); }
#endif  // IS_FLOAT
