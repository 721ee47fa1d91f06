// Activation of a matmul's results: a constant of its program, so that most programs contain none.

#define ACTIVATION_NONE 0
#define ACTIVATION_RELU 1
#define ACTIVATION_GELU 2
#ifndef ACTIVATION
#define ACTIVATION ACTIVATION_NONE
#endif

// For one value, a vector of them and a block of panel.cl. NaN stays NaN.
#if ACTIVATION == ACTIVATION_RELU
#define ACTIVATE(v) ((v) < 0 ? 0 : (v))
#define ACTIVATE_VECTOR(v) ((v) < (TV)(0) ? (TV)(0) : (v))
#define ACTIVATE_BLOCK(v) ((v) < (RB)(0) ? (RB)(0) : (v))
#elif ACTIVATION == ACTIVATION_GELU
// With erfc, as 1 + erf(x) would lose digits where x is far below 0.
#define ACTIVATE(v) ((v) * (LIT(0.5) * erfc((v) * -LIT(0.7071067811865476))))
#ifdef IS_CPU
#define ACTIVATE_VECTOR(v) ((v) * m_normal_cdf(v))
#define ACTIVATE_BLOCK(v) gelu_block(v)
// By vectors, which may be wider or narrower than a block.
static inline RB gelu_block(RB x) {
  union {
    RB block;
    R lanes[BLOCK];
  } values;
  values.block = x;
  for (int first = 0; first < BLOCK; first += VEC) {
    Lanes part;
    part.vector = (TV)(0);
    for (int l = 0; l < VEC && first + l < BLOCK; ++l) part.lanes[l] = values.lanes[first + l];
    part.vector = ACTIVATE_VECTOR(part.vector);
    for (int l = 0; l < VEC && first + l < BLOCK; ++l) values.lanes[first + l] = part.lanes[l];
  }
  return values.block;
}
#else
#define ACTIVATE_VECTOR(v) ACTIVATE(v)
#define ACTIVATE_BLOCK(v) ACTIVATE(v)
#endif
#else
#define ACTIVATE(v) (v)
#define ACTIVATE_VECTOR(v) (v)
#define ACTIVATE_BLOCK(v) (v)
#endif
