// Gradients of samples by parameters of their distribution (CLASS_F and CLASS_D): implicit reparameterisation, minus
// the derivative of the cumulative distribution function by the parameter, over the density. The ranges of the
// approximations, and the coefficients of the rational ones, are those of PyTorch (ATen/native/Distributions.h), by M.
// Jankowiak and F. Obermeyer, "Pathwise derivatives beyond the reparameterization trick" (2018). Terms that would
// cancel in single precision are rearranged.

// Derivative of log gamma for x > 0: recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5,
// 6.3.18).
INLINE T psi(T x) {
  T sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const T z = 1 / (x * x);
  const T tail =
      z *
      (LIT(0.08333333333333333) -
       z * (LIT(0.008333333333333333) -
            z * (LIT(0.003968253968253968) -
                 z * (LIT(0.004166666666666667) - z * (LIT(0.007575757575757576) - z * LIT(0.021092796092796094))))));
  return sum + log(x) - LIT(0.5) / x - tail;
}

// The gradient by alpha of a sample x of the gamma distribution.
INLINE T gamma_grad(T alpha, T x) {
  if (x < LIT(0.8)) {
    // The Taylor series in x of the function and of its derivative, without their first terms, whose sum is in closed
    // form.
    T term = 1, series = 0, slopes = 0;
    for (int i = 1; i <= 5; i++) {
      term *= -x / i;
      series += term / (alpha + i);
      slopes += term / ((alpha + i) * (alpha + i));
    }
    const T logs = log(x) - psi(alpha + 1);
    const T result = x * exp(x) * (slopes - series / alpha - logs * (1 / alpha + series));
    return isnan(result) ? (T)0 : result;
  }
  if (alpha > 8) {
    const T gap = (x - alpha) / alpha;
    if (LIT(0.9) * alpha <= x && x <= LIT(1.1) * alpha) {
      // Rice's saddle point expansion, as x is near the mean; powers of alpha are divided out.
      const T r = 1 / alpha, y = x * r;
      const T first = 24 * (12 + r) + r * r;
      const T second = 1440 + y * (6 * (53 * r - 120 * y)) - 65 * y * y * r + 107 * r + 3600 * y;
      return first * second / 1244160;
    }
    const T denominator = sqrt(8 * alpha);
    const T term3 = pow(alpha * (gap - log1p(gap)), -LIT(1.5)), term2 = -denominator / (alpha * gap);
    const T term23 = gap < 0 ? term2 - term3 : term2 + term3;
    const T term1 = log1p(gap) * term23 - sqrt(2 / alpha) * (2 + gap) / (alpha * gap * gap);
    const T stirling = 1 + 1 / (12 * alpha) * (1 + 1 / (24 * alpha));
    return -stirling * x * term1 / denominator;
  }
  const T u = log(x / alpha), v = log(alpha);
  const T p0 = LIT(0.16009398) + u * (LIT(0.53487893) + u * LIT(0.040121004));
  const T p1 = -LIT(0.094634809) + u * (LIT(0.1298071) - u * LIT(0.0065914022));
  const T p2 = LIT(0.025146376) + u * (LIT(0.065735949) - u * LIT(0.0026286047));
  const T p3 = -LIT(0.0030648343) + u * (-LIT(0.0015649758) - u * LIT(0.0013441777));
  const T q0 = 1 + u * (LIT(0.16639465) + u * LIT(0.017050642));
  const T q1 = LIT(0.32668115) + u * (LIT(0.020070113) - u * LIT(0.0021309326));
  const T q2 = LIT(0.10406089) + u * (-LIT(0.0035938915) + u * LIT(0.00085092367));
  const T q3 = LIT(0.0014179084) + u * (-LIT(0.00058392623) - u * LIT(1.5247877e-07));
  return exp((p0 + v * (p1 + v * (p2 + v * p3))) / (q0 + v * (q1 + v * (q2 + v * q3))));
}

// The gradients by alpha and by beta of a sample x of the beta distribution near 0: Taylor series.
INLINE T beta_grad_alpha_small(T x, T alpha, T beta) {
  const T factor = psi(alpha) - psi(alpha + beta) - log(x);
  // In the first term, psi(alpha) + 1 / alpha would cancel.
  T term = 1, series = (psi(alpha + 1) - psi(alpha + beta) - log(x)) / alpha;
  for (int i = 1; i <= 10; i++) {
    term *= (i - beta) * x / i;
    series += term / (alpha + i) * (factor + 1 / (alpha + i));
  }
  const T result = x * pow(1 - x, -beta) * series;
  return isnan(result) ? (T)0 : result;
}

INLINE T beta_grad_beta_small(T x, T alpha, T beta) {
  const T factor = psi(alpha + beta) - psi(beta);
  T term = 1, betas = 1, slopes = 0, series = factor / alpha;
  for (int i = 1; i <= 8; i++) {
    term *= -x / i;
    slopes = slopes * (beta - i) + betas;
    betas *= beta - i;
    series += term / (alpha + i) * (slopes + factor * betas);
  }
  const T result = -pow(1 - x, 1 - beta) * series;
  return isnan(result) ? (T)0 : result;
}

// For large alpha and beta: Rice's saddle point expansion.
INLINE T beta_grad_alpha_mid(T x, T alpha, T beta) {
  const T total = alpha + beta, mean = alpha / total;
  const T std = sqrt(alpha * beta / (total + 1)) / total;
  // alpha (x - 1) + beta x, and the distance from the mean relative to it and to its complement.
  const T difference = total * (x - mean);
  if (fabs(x - mean) <= LIT(0.1) * std) {
    // Both are divided by powers of alpha and beta, which may overflow a float.
    const T r = 1 / beta, q = alpha / beta;
    const T poly =
        47 * x * r + q * ((43 * r + 20 * (16 * r + 27) * x) +
                          q * (3 * (59 * r + 180 - 90 * x * r) +
                               q * ((453 * r + 1620 * (1 - x) - 455 * x * r) + q * (8 * (1 - x) * (135 - 11 * r)))));
    const T share = beta / total;
    const T numerator = (1 / alpha + 12) * (r + 12) * share * share * poly;
    return numerator / ((1 - x) * 12960 * q * q * (1 + 12 * total));
  }
  const T prefactor = -x / sqrt(2 * alpha * beta / total);
  const T stirling = (1 + 1 / (12 * alpha) + 1 / (288 * alpha * alpha)) *
                     (1 + 1 / (12 * beta) + 1 / (288 * beta * beta)) /
                     (1 + 1 / (12 * total) + 1 / (288 * total * total));
  const T term1 = (2 * alpha * alpha * (x - 1) + alpha * beta * (x - 1) - x * beta * beta) /
                  (sqrt(2 * alpha / beta) * total * sqrt(total) * difference * difference);
  const T below = (x - mean) / mean, above = (mean - x) / (1 - mean);
  const T term2 = -LIT(0.5) * log1p(below);
  const T term3 = sqrt(8 * alpha * beta / total) / difference;
  // beta log(beta / (total (1 - x))) + alpha log(alpha / (total x)), whose first-order terms cancel.
  const T base = beta * (above - log1p(above)) + alpha * (below - log1p(below));
  const T term4 = pow(base, -LIT(1.5));
  return stirling * prefactor * (term1 + term2 * (term3 + (x < mean ? term4 : -term4)));
}

__constant T DIRICHLET_P[9][4] = {
    {LIT(1.003668233), -LIT(0.01061107488), -LIT(0.0657888334), LIT(0.01201642863)},
    {LIT(0.6336835991), -LIT(0.3557432599), LIT(0.05486251648), -LIT(0.001465281033)},
    {-LIT(0.03276231906), LIT(0.004474107445), LIT(0.002429354597), -LIT(0.0001557569013)},
    {LIT(0.221950385), -LIT(0.3187676331), LIT(0.01799915743), LIT(0.01074823814)},
    {-LIT(0.2951249643), LIT(0.06219954479), LIT(0.01535556598), LIT(0.001550077057)},
    {LIT(0.02155310298), LIT(0.004170831599), LIT(0.001292462449), LIT(6.976601077e-05)},
    {-LIT(0.05980841433), LIT(0.008441916499), LIT(0.01085618172), LIT(0.002319392565)},
    {LIT(0.02911413504), LIT(0.01400243777), -LIT(0.002721828457), LIT(0.000751041181)},
    {LIT(0.005900514878), -LIT(0.001936558688), -LIT(9.495446725e-06), LIT(5.385558597e-05)}};
__constant T DIRICHLET_Q[9][4] = {
    {LIT(1.0), -LIT(0.02924021934), -LIT(0.04438342661), LIT(0.007285809825)},
    {LIT(0.6357567472), -LIT(0.3473456711), LIT(0.05454656494), -LIT(0.002407477521)},
    {-LIT(0.03301322327), LIT(0.004845219414), LIT(0.00231480583), -LIT(0.0002307248149)},
    {LIT(0.5925320577), -LIT(0.1757678135), LIT(0.01505928619), LIT(0.000564515273)},
    {LIT(0.1014815858), -LIT(0.06589186703), LIT(0.01272886114), -LIT(0.0007316646956)},
    {-LIT(0.007258481865), LIT(0.001096195486), LIT(0.0003934994223), -LIT(4.12701925e-05)},
    {LIT(0.06469649321), -LIT(0.0236701437), LIT(0.002902096474), -LIT(5.896963079e-05)},
    {LIT(0.001925008108), -LIT(0.002869809258), LIT(0.0008000589141), -LIT(6.063713228e-05)},
    {-LIT(0.0003477407336), LIT(6.959756487e-05), LIT(1.097287507e-05), -LIT(1.650964693e-06)}};

// The gradient of a component x of a Dirichlet sample by its concentration alpha, over 1 - x. Concentrations add up to
// `total`.
INLINE T dirichlet_grad(T x, T alpha, T total) {
  const T beta = total - alpha, boundary = total * x * (1 - x);
  if (x <= LIT(0.5) && boundary < LIT(2.5)) return beta_grad_alpha_small(x, alpha, beta);
  if (x >= LIT(0.5) && boundary < LIT(0.75)) return -beta_grad_beta_small(1 - x, beta, alpha);
  if (alpha > 6 && beta > 6) return beta_grad_alpha_mid(x, alpha, beta);
  const T u = log(x), a = log(alpha) - u, b = log(total) - a;
  T p = 0, q = 0, power_u = 1;
  for (int i = 0; i < 3; i++, power_u *= u) {
    T power = power_u;
    for (int j = 0; j < 3; j++, power *= a) {
      __constant const T *c = DIRICHLET_P[3 * i + j], *d = DIRICHLET_Q[3 * i + j];
      p += power * (c[0] + b * (c[1] + b * (c[2] + b * c[3])));
      q += power * (d[0] + b * (d[1] + b * (d[2] + b * d[3])));
    }
  }
  return p / q * x * (psi(total) - psi(alpha)) / beta;
}

#define GAMMA_GRAD 0
#define DIRICHLET_GRAD 1

// For each element of dense tensors; `c` is null for the gamma distribution.
__kernel void sample_grad(__global uchar *out, ulong out_offset, __global const uchar *a, ulong a_offset,
                          __global const uchar *b, ulong b_offset, __global const uchar *c, ulong c_offset, int op,
                          int dtype0, long n) {
  ITEM_TASKS(n, first, last);
  for (long i = first; i < last; i++) {
    const T x = load(a + a_offset, i, DTYPE0), y = load(b + b_offset, i, DTYPE0);
    store(out + out_offset, i, DTYPE0,
          OP == GAMMA_GRAD ? gamma_grad(x, y) : dirichlet_grad(x, y, load(c + c_offset, i, DTYPE0)));
  }
}
