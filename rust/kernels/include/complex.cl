// Functions of complex numbers, which OpenCL C lacks. A T is the pair of real and imaginary part; C(x) is x as a T.

#ifdef IS_COMPLEX
static inline T conjugate(T z) { return (T)(z.x, -z.y); }

// Each product is rounded before they are added, as on the CPU: with fused operations, z * conj(z) is not real, and an
// overflow of one product hides that of the other.
static inline T times(T a, T b) {
#pragma OPENCL FP_CONTRACT OFF
  return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static inline T times_i(T z) { return (T)(-z.y, z.x); }
static inline T over_i(T z) { return (T)(z.y, -z.x); }

// Large and small numbers, whose squares would overflow or vanish, are scaled by powers of two: hypot takes ten times
// as long with some drivers.
#ifdef CLASS_C
#define SQUARES_FROM LIT(0x1p-40)
#define SQUARES_TO LIT(0x1p60)
#define SQUARES_SCALE LIT(0x1p86)
#else
#define SQUARES_FROM LIT(0x1p-400)
#define SQUARES_TO LIT(0x1p500)
#define SQUARES_SCALE LIT(0x1p600)
#endif
static inline T magnitude(T z) {
  const TR greatest = fmax(fabs(z.x), fabs(z.y));
  if (isinf(greatest)) return (T)(INFINITY, 0);
  const TR up = greatest < SQUARES_FROM ? SQUARES_SCALE : greatest > SQUARES_TO ? 1 / SQUARES_SCALE : (TR)1;
  const TR down = greatest < SQUARES_FROM ? 1 / SQUARES_SCALE : greatest > SQUARES_TO ? SQUARES_SCALE : (TR)1;
  const T scaled = z * up;
  return (T)(sqrt(fma(scaled.x, scaled.x, scaled.y * scaled.y)) * down, 0);
}
static inline T phase(T z) { return (T)(atan2(z.y, z.x), 0); }

// Uses the ratio of the divisor's parts, so that no square overflows (R. L. Smith, 1962), and a reciprocal, for the
// same rounding as on the CPU.
static inline T over(T a, T b) {
  if (b.x == 0 && b.y == 0) return a / fabs(b.x);
  if (fabs(b.x) >= fabs(b.y)) {
    TR ratio = b.y / b.x;
    return (T)(a.x + a.y * ratio, a.y - a.x * ratio) * (1 / (b.x + b.y * ratio));
  }
  TR ratio = b.x / b.y;
  return (T)(a.x * ratio + a.y, a.y * ratio - a.x) * (1 / (b.x * ratio + b.y));
}

// Above this, exp is split into two factors: a small sine may make the product finite when exp alone overflows.
#ifdef CLASS_C
#define EXP_SPLIT 80
#define EXP_OF_SPLIT LIT(5.54062238439351e34)
#else
#define EXP_SPLIT 700
#define EXP_OF_SPLIT LIT(1.0142320547350045e304)
#endif
static inline T exp_times(TR x, T direction) {
  return x > EXP_SPLIT ? exp(x - EXP_SPLIT) * direction * EXP_OF_SPLIT : exp(x) * direction;
}

// If a part is infinite or zero, these have the values of C99 (annex G), as on the CPU.
static inline T complex_exp(T z) {
  if (z.y == 0) return (T)(exp(z.x), z.y);
  if (isinf(z.x) && !isfinite(z.y)) return z.x < 0 ? C(0) : (T)(INFINITY, NAN);
  return exp_times(z.x, (T)(cos(z.y), sin(z.y)));
}
// A quarter of a large number, whose absolute value does not overflow.
static inline TR log_magnitude(T z) {
  const bool is_great = fmax(fabs(z.x), fabs(z.y)) > EXP_OF_SPLIT;
  return is_great ? log(hypot(z.x / 4, z.y / 4)) + LIT(1.3862943611198906) : log(hypot(z.x, z.y));
}
static inline T complex_log(T z) { return (T)(log_magnitude(z), atan2(z.y, z.x)); }

static inline T complex_sqrt(T z) {
  // A quarter of a large number, so that its absolute value, and the sum with it, do not overflow.
  bool is_great = fmax(fabs(z.x), fabs(z.y)) > EXP_OF_SPLIT;
  TR x = is_great ? z.x / 4 : z.x, y = is_great ? z.y / 4 : z.y, size = is_great ? 2 : 1;
  TR r = hypot(x, y);
  TR s = sqrt(LIT(0.5) * (r + fabs(x)));
  if (r == 0) return (T)(0, z.y);
  if (isinf(z.y)) return (T)(INFINITY, z.y);
  return size * (z.x >= 0 ? (T)(s, LIT(0.5) * y / s) : (T)(LIT(0.5) * fabs(y) / s, copysign(s, y)));
}

static inline T complex_sinh(T z) {
  if (z.y == 0) return (T)(sinh(z.x), z.y);
  if (!isfinite(z.y) && (isinf(z.x) || z.x == 0)) return (T)(z.x, NAN);
  TR c = cos(z.y), s = sin(z.y);
  if (!(fabs(z.x) > EXP_SPLIT)) return (T)(sinh(z.x) * c, cosh(z.x) * s);
  return exp_times(fabs(z.x), (T)(copysign(LIT(0.5), z.x) * c, LIT(0.5) * s));
}
static inline T complex_cosh(T z) {
  if (z.y == 0) return (T)(cosh(z.x), signbit(z.x) ? -z.y : z.y);
  if (!isfinite(z.y) && isinf(z.x)) return (T)(INFINITY, NAN);
  if (!isfinite(z.y) && z.x == 0) return (T)(NAN, z.x);
  TR c = cos(z.y), s = sin(z.y);
  if (!(fabs(z.x) > EXP_SPLIT)) return (T)(cosh(z.x) * c, sinh(z.x) * s);
  return exp_times(fabs(z.x), (T)(LIT(0.5) * c, copysign(LIT(0.5), z.x) * s));
}
static inline T complex_tanh(T z) {
  // Above 20 tanh is 1 in every digit, and cosh would soon overflow.
  if (fabs(z.x) > 20) {
    if (isinf(z.x) && !isfinite(z.y)) return (T)(copysign((TR)1, z.x), 0);
    return (T)(isfinite(z.y) ? copysign((TR)1, z.x) : (TR)NAN, 4 * exp(-2 * fabs(z.x)) * cos(z.y) * sin(z.y));
  }
  if (z.y == 0) return (T)(tanh(z.x), z.y);
  if (z.x == 0) return (T)(z.x, tan(z.y));
  return over(complex_sinh(z), complex_cosh(z));
}
// sin(z) = sinh(iz) / i, and the same for tan; cos(z) = cosh(iz).
static inline T complex_sin(T z) { return over_i(complex_sinh(times_i(z))); }
static inline T complex_cos(T z) { return complex_cosh(times_i(z)); }
static inline T complex_tan(T z) { return over_i(complex_tanh(times_i(z))); }

static inline T sigmoid(T z) { return over(C(1), C(1) + complex_exp(-z)); }

// A large exponent or angle leaves few fractional digits, so it is computed in double if the device has it.
#ifdef HAS_FP64
typedef double TE;
#else
typedef TR TE;
#endif

static inline T power(T a, T b) {
  if (a.x == 0 && a.y == 0) return b.x > 0 && isfinite(b.y) ? C(0) : (T)(NAN, NAN);
  TE length = log(hypot((TE)a.x, (TE)a.y));
  TE angle = atan2((TE)a.y, (TE)a.x);
  TE exponent = b.x * length - b.y * angle, turn = b.x * angle + b.y * length;
  TE growth = exp(exponent);
  // As complex_exp returns in this case.
  if (turn == 0) return (T)((TR)growth, (TR)turn);
  if (isinf(exponent) && !isfinite(turn)) return exponent < 0 ? C(0) : (T)(INFINITY, NAN);
  return (T)((TR)(growth * cos(turn)), (TR)(growth * sin(turn)));
}

static inline T power_scalar(T a, T exponent) {
  if (exponent.y == 0) {
    if (exponent.x == 0) return C(1);
    if (exponent.x == 2) return times(a, a);
    if (exponent.x == 3) return times(times(a, a), a);
    if (exponent.x == LIT(0.5)) return complex_sqrt(a);
    if (exponent.x == -LIT(0.5)) return over(C(1), complex_sqrt(a));
    if (exponent.x == -1) return over(C(1), a);
    if (exponent.x == -2) return over(C(1), times(a, a));
  }
  return power(a, exponent);
}

static inline T complex_sign(T z) {
  TR r = hypot(z.x, z.y);
  return r == 0 ? C(0) : z / r;
}

// Keeps the digits that 1 + z and exp(z) - 1 lose for a small z.
static inline T complex_log1p(T z) {
  TR angle = atan2(z.y, 1 + z.x);
  if (!(fabs(z.x) + fabs(z.y) <= LIT(0.5))) return (T)(log_magnitude((T)(1 + z.x, z.y)), angle);
  return (T)(log1p(z.x * (2 + z.x) + z.y * z.y) / 2, angle);
}
// log(exp(x) + exp(y)), computed from the operand with the greater real part. The angle of exp(-inf) is unknown: equal
// operands with that real part are returned unchanged; for two infinite operands the sum itself decides.
static inline T complex_log_add_exp(T x, T y) {
  if (isnan(x.x) || isnan(x.y) || isnan(y.x) || isnan(y.y)) return (T)(NAN, NAN);
  T low = x.x < y.x ? x : y, high = x.x < y.x ? y : x;
  if (isinf(low.x) && low.x == high.x) return low.x < 0 ? low : complex_log(complex_exp(low) + complex_exp(high));
  return complex_log1p(complex_exp(low - high)) + high;
}
static inline T complex_expm1(T z) {
  TR half_sine = sin(z.y / 2);
  return (T)(expm1(z.x) * cos(z.y) - 2 * half_sine * half_sine, z.y == 0 ? z.y : exp(z.x) * sin(z.y));
}

// Inverse functions after W. Kahan, "Branch Cuts for Complex Elementary Functions" (1987): signs of zeros choose the
// side of a cut, so 1 - z and 1 + z are computed part by part. Large numbers, relative to which 1 is lost, and infinite
// ones use the limits, log(2 |z|) and the angle of z: they give the values of C99 (annex G).
#ifdef CLASS_C
#define LOSES_ONE LIT(0x1p24)
#else
#define LOSES_ONE LIT(0x1p53)
#endif
#define HALF_PI LIT(1.5707963267948966)
static inline bool is_large(T z) { return fmax(fabs(z.x), fabs(z.y)) > LOSES_ONE; }
static inline TR log_twice(T z) { return log_magnitude(z) + LIT(0.6931471805599453); }
static inline T one_minus(T z) { return (T)(1 - z.x, -z.y); }
static inline T one_plus(T z) { return (T)(1 + z.x, z.y); }
static inline T complex_asin(T z) {
  if (z.x == 0) return (T)(z.x, asinh(z.y));
  if (is_large(z)) return (T)(atan2(z.x, fabs(z.y)), copysign(log_twice(z), z.y));
  T minus = complex_sqrt(one_minus(z)), plus = complex_sqrt(one_plus(z));
  return (T)(atan2(z.x, times(minus, plus).x), asinh(times(conjugate(minus), plus).y));
}
static inline T complex_acos(T z) {
  if (z.x == 0) return (T)(HALF_PI, -asinh(z.y));
  if (is_large(z)) return (T)(atan2(fabs(z.y), z.x), -copysign(log_twice(z), z.y));
  T minus = complex_sqrt(one_minus(z)), plus = complex_sqrt(one_plus(z));
  return (T)(2 * atan2(minus.x, plus.x), asinh(times(conjugate(plus), minus).y));
}
static inline T complex_acosh(T z) {
  if (z.x == 0) return (T)(asinh(fabs(z.y)), copysign(HALF_PI, z.y));
  if (is_large(z)) return (T)(log_twice(z), atan2(z.y, z.x));
  T minus = complex_sqrt((T)(z.x - 1, z.y)), plus = complex_sqrt(one_plus(z));
  return (T)(asinh(times(conjugate(minus), plus).x), 2 * atan2(minus.y, plus.x));
}
static inline T complex_atanh(T z) {
  if (z.x == 0) return (T)(z.x, atan(z.y));
  if (isinf(z.x) || isinf(z.y)) return (T)(copysign((TR)0, z.x), isnan(z.y) ? z.y : copysign(HALF_PI, z.y));
  if (is_large(z) && !isnan(z.x) && !isnan(z.y)) return (T)(over(C(1), z).x, copysign(HALF_PI, z.y));
  TR gap = 1 - fabs(z.x), squares = z.y * z.y, apart = fmax(fabs(gap), fabs(z.y));
  // Close to the poles the squares vanish.
  TR size = apart < LIT(0x1p-30) ? LIT(0.34657359027997264) - log(hypot(gap, z.y)) / 2
                                 : log1p(4 * fabs(z.x) / (gap * gap + squares)) / 4;
  return (T)(copysign(size, z.x), atan2(2 * z.y, gap * (1 + fabs(z.x)) - squares) / 2);
}
// asinh(z) = asin(iz) / i, and the same for atan.
static inline T complex_asinh(T z) { return over_i(complex_asin(times_i(z))); }
static inline T complex_atan(T z) { return over_i(complex_atanh(times_i(z))); }

static inline T complex_sinc(T z) {
  T x = z * LIT(3.141592653589793);
  return IS_NONZERO(z) ? over(complex_sin(x), x) : C(1);
}
#endif  // IS_COMPLEX
