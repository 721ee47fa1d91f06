// The steps of a reduction: map an element, fold two values, finish the total. reduce.cl lists the steps of operators.

#define MAP_COPY 0
#define MAP_NAN_TO_ZERO 1
#define MAP_NONZERO 2
#define MAP_ABS 3
#define MAP_SQUARE 4
#define MAP_POWER 5

#define FOLD_ADD 0
#define FOLD_MUL 1
#define FOLD_MIN 2
#define FOLD_MAX 3
#define FOLD_XOR 4  // of integers

#define FINISH_NONE 0
#define FINISH_DIVIDE 1
#define FINISH_SQRT 2
#define FINISH_ROOT 3

#ifdef SPEC_MAP
#define MAP SPEC_MAP
#else
#define MAP map
#endif
#ifdef SPEC_FOLD
#define FOLD SPEC_FOLD
#else
#define FOLD fold
#endif

#ifndef HAS_POWER
#define HAS_POWER 1
#endif

#ifdef IS_COMPLEX

INLINE T map_vector(int map, T x, TR power) {
  switch (map) {
    case MAP_NAN_TO_ZERO: return (x.x != x.x || x.y != x.y) ? FROM_REAL(0) : x;
    case MAP_NONZERO: return FROM_REAL(IS_NONZERO(x));
    case MAP_ABS: return FROM_REAL(hypot(x.x, x.y));
    case MAP_SQUARE: return FROM_REAL(x.x * x.x + x.y * x.y);
#if HAS_POWER
    case MAP_POWER: return FROM_REAL(pow(hypot(x.x, x.y), power));
#endif
  }
  return x;
}

INLINE T fold_vector(int fold, T a, T b) {
  if (fold == FOLD_MUL) return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
  // Only magnitudes reach min and max, as real values.
  if (fold == FOLD_MIN) return (b.x < a.x || b.x != b.x) ? b : a;
  if (fold == FOLD_MAX) return (b.x > a.x || b.x != b.x) ? b : a;
  return a + b;
}

#define map_one map_vector
#define fold_one fold_vector

#else

INLINE TV power_vector(TV x, TR power) {
#if defined(IS_FLOAT) && HAS_POWER
  return m_pow(fabs(x), (TV)power);
#else
  return x;
#endif
}

INLINE T power_one(T x, TR power) {
  Lanes v;
  v.vector = power_vector((TV)x, power);
  return v.lanes[0];
}

#ifdef IS_INTEGER
#define EXCLUSIVE_OR(a, b) ((a) ^ (b))
#else
#define EXCLUSIVE_OR(a, b) (a)
#endif

// x != x detects NaN. Min and max return it, as in PyTorch.
#define DEFINE_STEPS(MAP_NAME, FOLD_NAME, POWER, V)       \
  INLINE V MAP_NAME(int map, V x, TR power) {             \
    switch (map) {                                        \
      case MAP_NAN_TO_ZERO: return x != x ? (V)0 : x;     \
      case MAP_NONZERO: return x != (V)0 ? (V)1 : (V)0;   \
      case MAP_ABS: return x < (V)0 ? -x : x;             \
      case MAP_SQUARE: return x * x;                      \
      case MAP_POWER: return POWER(x, power);             \
    }                                                     \
    return x;                                             \
  }                                                       \
  INLINE V FOLD_NAME(int fold, V a, V b) {                \
    switch (fold) {                                       \
      case FOLD_MUL: return a * b;                        \
      case FOLD_MIN: return ((b < a) | (b != b)) ? b : a; \
      case FOLD_MAX: return ((b > a) | (b != b)) ? b : a; \
      case FOLD_XOR: return EXCLUSIVE_OR(a, b);           \
    }                                                     \
    return a + b;                                         \
  }

DEFINE_STEPS(map_one, fold_one, power_one, T)
#if VEC == 1
#define map_vector map_one
#define fold_vector fold_one
#else
DEFINE_STEPS(map_vector, fold_vector, power_vector, TV)
#endif

#endif

// The identity of a fold.
INLINE T identity(int fold) {
  switch (fold) {
    case FOLD_MUL: return FROM_REAL(1);
#ifdef IS_INTEGER
    case FOLD_MIN: return LONG_MAX;
    case FOLD_MAX: return LONG_MIN;
#else
    case FOLD_MIN: return FROM_REAL(INFINITY);
    case FOLD_MAX: return FROM_REAL(-INFINITY);
#endif
  }
  return FROM_REAL(0);
}

INLINE TV identity_vector(int fold) { return (TV)(identity(fold)); }

INLINE T finish_one(int finish, T total, long count, TR power) {
#ifndef IS_INTEGER
  switch (finish) {
    case FINISH_DIVIDE: return total / (TR)count;
    case FINISH_SQRT: return FROM_REAL(sqrt(REAL(total)));
#if HAS_POWER
    case FINISH_ROOT: return FROM_REAL(pow(REAL(total), (TR)1 / power));
#endif
  }
#endif
  return total;
}
