// Functions of the op table that OpenCL C lacks, in the notation of notation.cl.

#ifndef IS_COMPLEX
// Maximum and minimum; b if the operands are equal (as 0 and -0 are); NaN if either is NaN.
static inline TV maximum(TV a, TV b) { return SEL(a > b || a != a, a, b); }
static inline TV minimum(TV a, TV b) { return SEL(a < b || a != a, a, b); }
static inline TV clamped(TV a, TV low, TV high) { return minimum(high, maximum(low, a)); }
#endif

#ifdef IS_INTEGER
// Division by zero gives 0, and the one quotient that overflows wraps; both would trap on a CPU.
static inline TV divide_trunc(TV a, TV b) {
  TV quotient = a / SEL(b == 0 || b == -1, 1, b);
  return SEL(b == -1, 0 - a, SEL(b == 0, 0, quotient));
}

// Remainder with the sign of the dividend.
static inline TV modulo_trunc(TV a, TV b) { return a % SEL(b == 0 || b == -1, 1, b); }

// Remainder with the sign of the divisor.
static inline TV modulo_floor(TV a, TV b) {
  TV r = modulo_trunc(a, b);
  return SEL(r != 0 && (r ^ b) < 0, r + b, r);
}

static inline TV divide_floor(TV a, TV b, int dt) {
  return divide_trunc(a, b) - B(modulo_trunc(a, b) != 0 && (a ^ b) < 0);
}

// A shift by more than the width, or by a negative count, moves every bit out.
static inline TV shift_left(TV a, TV b) { return SEL(b < 0 || b > 63, 0, a << (b & 63)); }
static inline TV shift_right(TV a, TV b) { return a >> SEL(b < 0 || b > 63, 63, b); }

// The smallest value of a dtype is its own absolute value, because of wrapping.
static inline TV gcd(TV a, TV b, int dt) {
  a = rounded(SEL(a < 0, 0 - a, a), dt);
  b = rounded(SEL(b < 0, 0 - b, b), dt);
  while (ANY(b != 0)) {
    TV r = SEL(b != 0, modulo_trunc(a, b), b);
    a = SEL(b != 0, b, a);
    b = r;
  }
  return a;
}

// As in C, products of types narrower than int32 do not wrap before the absolute value is taken.
static inline TV lcm(TV a, TV b, int dt) {
  TV product = divide_trunc(a, gcd(a, b, dt)) * b;
  if (dt == DT_I32) product = rounded(product, dt);
  return SEL(product < 0, 0 - product, product);
}

// a to the power n by squaring, with wrap. A negative power is 0, except for the bases 1 and -1.
static inline TV power(TV a, TV n) {
  TV result = 1;
  TV base = a;
  TV left = SEL(n < 0, 0, n);
  while (ANY(left != 0)) {
    result *= SEL((left & 1) != 0, base, 1);
    base *= base;
    left >>= 1;
  }
  TV sign = SEL((n & 1) != 0, -1, 1);
  return SEL(n >= 0, result, SEL(a == 1, 1, SEL(a == -1, sign, 0)));
}
#endif  // IS_INTEGER

#ifdef IS_FLOAT
// a times 2^n, for integers n.
static inline TV scaled_by(TV a, TV n) {
  const TV bounded = clamp(n, C(-5000), C(5000));
#if VEC == 1
  return ldexp(a, convert_int(bounded));
#else
  return ldexp(a, PASTE(convert_int, VEC)(bounded));
#endif
}

// The next number of dtype dt after a towards b. 16-bit numbers are bit patterns of float with zeros at the end, or,
// below the least normal float16, multiples of 2^-24.
static inline TV next_after(TV a, TV b, int dt) {
#ifdef CLASS_F
  if (dt == DT_F16 || dt == DT_BF16) {
    // The next number after 65504 is 65536, which is stored as infinity.
    const TV from = SEL(dt == DT_F16 && isinf(a), copysign(C(65536), a), a);
    const int step = dt == DT_F16 ? 1 << 13 : 1 << 16;
    const TM is_up = b > a, is_positive = a > 0;
    TV result = AS_TV(AS_TM(from) + (is_up == is_positive ? (TM)(step) : (TM)(-step)));
    const TV moved = a + SEL(is_up, 5.9604645e-08f, -5.9604645e-08f);
    result = SEL(dt == DT_F16 && fabs(a) <= 6.1035156e-05f, SEL(moved == 0, copysign(C(0), a), moved), result);
    result = SEL(dt == DT_BF16 && a == 0, copysign(AS_TV((TM)(1 << 16)), b), result);
    return SEL(a != a || b != b, NAN, SEL(a == b, b, result));
  }
#endif
  return nextafter(a, b);
}

static inline TV sigmoid(TV x) { return 1 / (1 + m_exp(-x)); }
static inline TV softplus(TV x) { return m_log1p(m_exp(x)); }

// x modulo y, for non-negative operands, exact: x - trunc(x / s) * s is representable, so fma computes it exactly, if
// the quotient has fewer bits than a significand; s is y, times a power of two if the quotient would otherwise be
// longer.
#ifdef CLASS_D
#define QUOTIENT_BITS 50
#else
#define QUOTIENT_BITS 21
#endif
INLINE TV modulo_step(TV x, TV y, TV s) {
  const TV r = fma(-trunc(x / s), s, x);
  return SEL(x < y, x, SEL(r < 0, r + s, r));
}

OUTLINED TV modulo_of_great(TV a, TV b) {
  const TM valid = isfinite(a) && b != 0 && b == b;
  const TV y = SEL(valid && isfinite(b), fabs(b), INFINITY);
  TV x = SEL(valid, fabs(a), 0);
  while (ANY(x >= y)) x = modulo_step(x, y, ldexp(y, max(ilogb(fmax(x, y)) - ilogb(y) - QUOTIENT_BITS, 0)));
  return SEL(valid, copysign(x, a), NAN);
}

// Remainder with the sign of the dividend, exact. OpenCL's fmod is wrong for vectors of double in PoCL 3.1.
INLINE TV modulo_trunc(TV a, TV b) {
  const TV x = fabs(a), y = fabs(b);
  if (ANY(!(x / y < (T)(1l << QUOTIENT_BITS)))) return modulo_of_great(a, b);
  return copysign(modulo_step(x, y, y), a);
}

// Remainder with the sign of the divisor, as in Python.
static inline TV modulo_floor(TV a, TV b) {
  TV r = modulo_trunc(a, b);
  return SEL(r != 0 && (b < 0) != (r < 0), r + b, r);
}

// Python's floor division: the quotient q for which a == q * b + modulo_floor(a, b) holds most closely, from which
// floor(a / b) differs if a / b rounds up to an integer. ATen rounds intermediate results to dt.
static inline TV divide_floor(TV a, TV b, int dt) {
  TV r = modulo_trunc(a, b);
  TV quotient = rounded(rounded(a - r, dt) / b, dt) - B(r != 0 && (b < 0) != (r < 0));
  TV whole = floor(quotient);
  whole += B(quotient - whole > LIT(0.5));
  whole = SEL(quotient == 0, copysign(C(0), a / b), whole);
  return SEL(b == 0, a / b, whole);
}

// log(exp(a) + exp(b)); for equal infinities the result is that infinity.
static inline TV log_add_exp(TV a, TV b) {
  return SEL(a == b && isinf(a), a, maximum(a, b) + m_log1p(m_exp(-fabs(a - b))));
}
static inline TV log_add_exp2(TV a, TV b) {
  return SEL(a == b && isinf(a), a, maximum(a, b) + m_log1p(exp2(-fabs(a - b))) * LIT(1.4426950408889634));
}

static inline TV logit(TV x, T eps) {
  TV inner = eps < 0 ? x : SEL(x < eps, eps, SEL(x > 1 - eps, 1 - eps, x));
  return m_log(inner / (1 - inner));
}

static inline TV logit_gradient(TV grad, TV x, T eps) {
  TV gradient = grad / (x * (1 - x));
  if (eps < 0) return SEL(x >= 0 && x <= 1, gradient, NAN);
  return SEL(x >= eps && x <= 1 - eps, gradient, 0);
}

static inline TV normal_pdf(TV x) { return LIT(0.3989422804014327) * m_exp(-LIT(0.5) * x * x); }

// Argument of the tanh in the tanh form of GELU, and its derivative.
static inline TV gelu_inner(TV x) { return LIT(0.7978845608028654) * (x + LIT(0.044715) * x * x * x); }
static inline TV gelu_inner_slope(TV x) { return LIT(0.7978845608028654) * (1 + LIT(0.134145) * x * x); }

static inline TV gelu(TV x, int tanh_form) {
  return tanh_form ? LIT(0.5) * x * (1 + m_tanh(gelu_inner(x))) : x * m_normal_cdf(x);
}

static inline TV gelu_gradient(TV grad, TV x, int tanh_form) {
  if (!tanh_form) return grad * (m_normal_cdf(x) + x * normal_pdf(x));
  TV t = m_tanh(gelu_inner(x));
  return grad * LIT(0.5) * (1 + t + x * (1 - t * t) * gelu_inner_slope(x));
}

static inline TV silu_gradient(TV grad, TV x) {
  TV s = sigmoid(x);
  return grad * s * (1 + x * (1 - s));
}

static inline TV mish_gradient(TV grad, TV x) {
  TV t = m_tanh(softplus(x));
  return grad * (t + x * sigmoid(x) * (1 - t * t));
}

// The power of ten is computed by multiplication: exp10 may be one ulp off, and 10, 100 ... must be exact.
static inline TV round_decimals(TV a, T decimals) {
  T scale = 1;
  for (int i = 0; i < (int)fabs(decimals); i++) scale *= 10;
  return decimals < 0 ? m_rint(a / scale) * scale : m_rint(a * scale) / scale;
}

// A polynomial by Horner's rule; the highest power is first.
static inline TV polynomial(__constant const T *coefficients, int count, TV x) {
  TV sum = C(coefficients[0]);
  for (int i = 1; i < count; i++) sum = fma(sum, x, C(coefficients[i]));
  return sum;
}
#define POLYNOMIAL(coefficients, x) polynomial(coefficients, sizeof(coefficients) / sizeof(T), x)

static inline TV sinc(TV a) {
  TV x = a * LIT(3.141592653589793);
  return SEL(a == 0, 1, m_sin(x) / x);
}
#endif  // IS_FLOAT
