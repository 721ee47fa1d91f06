// Winograd convolution of 3x3 kernels, F(4x4, 3x3) (Lavin and Gray, 2016): a tile of 4x4 output positions takes
// 36 multiplications a channel instead of 144.
//
// result = A' [sum over channels of (G w G') * (B' s B)] A, where s are the 6x6 input positions that a tile reads. The
// sums are 36 GEMMs of output channels by tiles. The gradient of the weight is G' [sum over tiles of (A r A') * (B' s
// B)] G, where r is the output gradient of a tile. The matrices evaluate and interpolate polynomials at 0, +-P, +-Q and
// infinity. P = 3/4 and Q = 3/2 leave a quarter of the rounding errors of the usual 1 and 2: 1e-5 at most, and 1e-6 in
// the mean square, for 64 to 512 channels whose results have a variance of 1.

#define P 0.75f
#define Q 1.5f
#define P2 (P * P)
#define Q2 (Q * Q)
// Scales of a polynomial's values at the points.
#define ZERO_SCALE (1 / (P2 * Q2))
#define P_SCALE (1 / (2 * P2 * (P2 - Q2)))
#define Q_SCALE (1 / (2 * Q2 * (Q2 - P2)))

// Input positions that are read along a tile's side, and output positions computed from them.
#define IN_SIDE 6
#define OUT_SIDE 4
#define POINTS (IN_SIDE * IN_SIDE)
#define KERNEL_SIDE 3

// The input transform: one dimension of B' s B.
ALWAYS_INLINE void transform_input(const TV *s, TV *out) {
  const TV p_even = FMA_OR_MAD((TV)(-Q2), s[2], s[4]), p_odd = FMA_OR_MAD((TV)(-Q2), s[1], s[3]);
  const TV q_even = FMA_OR_MAD((TV)(-P2), s[2], s[4]), q_odd = FMA_OR_MAD((TV)(-P2), s[1], s[3]);
  out[0] = FMA_OR_MAD((TV)(-(P2 + Q2)), s[2], FMA_OR_MAD((TV)(P2 * Q2), s[0], s[4]));
  out[1] = FMA_OR_MAD((TV)(P), p_odd, p_even);
  out[2] = FMA_OR_MAD((TV)(-P), p_odd, p_even);
  out[3] = FMA_OR_MAD((TV)(Q), q_odd, q_even);
  out[4] = FMA_OR_MAD((TV)(-Q), q_odd, q_even);
  out[5] = FMA_OR_MAD((TV)(-(P2 + Q2)), s[3], FMA_OR_MAD((TV)(P2 * Q2), s[1], s[5]));
}

// The weight transform: one dimension of G w G'.
ALWAYS_INLINE void transform_weight(const TV *w, TV *out) {
  const TV p_even = P_SCALE * FMA_OR_MAD((TV)(P2), w[2], w[0]), p_odd = (P_SCALE * P) * w[1];
  const TV q_even = Q_SCALE * FMA_OR_MAD((TV)(Q2), w[2], w[0]), q_odd = (Q_SCALE * Q) * w[1];
  out[0] = ZERO_SCALE * w[0];
  out[1] = p_even + p_odd;
  out[2] = p_even - p_odd;
  out[3] = q_even + q_odd;
  out[4] = q_even - q_odd;
  out[5] = w[2];
}

// The output transform: one dimension of A' m A.
ALWAYS_INLINE void transform_output(const TV *m, TV *out) {
  const TV p_even = m[1] + m[2], p_odd = P * (m[1] - m[2]), q_even = m[3] + m[4], q_odd = Q * (m[3] - m[4]);
  out[0] = m[0] + (p_even + q_even);
  out[1] = p_odd + q_odd;
  out[2] = FMA_OR_MAD((TV)(P2), p_even, Q2 * q_even);
  out[3] = FMA_OR_MAD((TV)(P2), p_odd, FMA_OR_MAD((TV)(Q2), q_odd, m[5]));
}

// For the gradient of the weight: one dimension of A r A'.
ALWAYS_INLINE void transform_grad_output(const TV *r, TV *out) {
  const TV p_even = FMA_OR_MAD((TV)(P2), r[2], r[0]), p_odd = P * FMA_OR_MAD((TV)(P2), r[3], r[1]);
  const TV q_even = FMA_OR_MAD((TV)(Q2), r[2], r[0]), q_odd = Q * FMA_OR_MAD((TV)(Q2), r[3], r[1]);
  out[0] = r[0];
  out[1] = p_even + p_odd;
  out[2] = p_even - p_odd;
  out[3] = q_even + q_odd;
  out[4] = q_even - q_odd;
  out[5] = r[3];
}

// One dimension of G' m G.
ALWAYS_INLINE void transform_grad_weight(const TV *m, TV *out) {
  const TV p_even = P_SCALE * (m[1] + m[2]), p_odd = P_SCALE * (m[1] - m[2]);
  const TV q_even = Q_SCALE * (m[3] + m[4]), q_odd = Q_SCALE * (m[3] - m[4]);
  out[0] = FMA_OR_MAD((TV)(ZERO_SCALE), m[0], p_even + q_even);
  out[1] = FMA_OR_MAD((TV)(P), p_odd, Q * q_odd);
  out[2] = FMA_OR_MAD((TV)(P2), p_even, FMA_OR_MAD((TV)(Q2), q_even, m[5]));
}

// Both dimensions of a transform from FROM x FROM to TO x TO vectors. LOAD and STORE are expressions of row i and
// column j: a vector, and where one is stored.
#define TRANSFORM(FUNCTION, FROM, TO, LOAD, STORE)                       \
  {                                                                      \
    TV half_done[FROM][TO];                                              \
    UNROLL for (int i = 0; i < FROM; ++i) {                              \
      TV row[FROM];                                                      \
      UNROLL for (int j = 0; j < FROM; ++j) row[j] = LOAD;               \
      FUNCTION(row, half_done[i]);                                       \
    }                                                                    \
    UNROLL for (int j = 0; j < TO; ++j) {                                \
      TV column[FROM], done[TO];                                         \
      UNROLL for (int i = 0; i < FROM; ++i) column[i] = half_done[i][j]; \
      FUNCTION(column, done);                                            \
      UNROLL for (int i = 0; i < TO; ++i) STORE = done[i];               \
    }                                                                    \
  }
