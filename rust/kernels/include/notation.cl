// Notation for the op table's expressions and for the functions in them, at any vector width.
//
//   C(x)   the constant x as a TV       B(cond)          1 if cond holds, else 0, as a TV
//   NZ(a)  a != 0, as a condition       SEL(cond, x, y)  x if cond holds, else y
//   ANY(cond)  true if cond holds in at least one lane
//
// A condition is the result of comparing two TV; `&&`, `||` and `!` combine conditions at every width.

#ifdef IS_COMPLEX
#define C(x) ((T)((TR)(x), (TR)0))
#define NZ(a) IS_NONZERO(a)
#else
#define C(x) ((TV)(x))
#define NZ(a) ((a) != 0)
#endif
#define B(cond) ((cond) ? C(1) : C(0))
#define SEL(cond, x, y) ((cond) ? (TV)(x) : (TV)(y))

#ifndef IS_COMPLEX
// OpenCL's any() takes 0.4 ns an element with PoCL 3.1, as long as exp; combining halves until two lanes remain takes
// almost no time.
static inline bool any_lane(TM cond) {
#if VEC == 1
  return cond;
#elif VEC == 2
  return (cond.x | cond.y) < 0;
#else
#if VEC == 16
  const PASTE(TM_NAME, 8) eight = cond.lo | cond.hi;
  const PASTE(TM_NAME, 4) four = eight.lo | eight.hi;
#elif VEC == 8
  const PASTE(TM_NAME, 4) four = cond.lo | cond.hi;
#else
  const PASTE(TM_NAME, 4) four = cond;
#endif
  const PASTE(TM_NAME, 2) two = four.lo | four.hi;
  return (two.x | two.y) < 0;
#endif
}
#define ANY(cond) any_lane(cond)
#endif

#ifdef IS_FLOAT
// The bit pattern of a TV as integers as wide as T, the TV of a bit pattern, and conversions to and from these
// integers.
#if VEC == 1
#define AS_TM(x) PASTE(as_, TM_NAME)(x)
#define AS_TV(bits) PASTE(as_, T_NAME)(bits)
#define TO_TM(x) PASTE(convert_, TM_NAME)(x)
#define FROM_TM(n) PASTE(convert_, T_NAME)(n)
#else
#define AS_TM(x) PASTE(as_, PASTE(TM_NAME, VEC))(x)
#define AS_TV(bits) PASTE(as_, PASTE(T_NAME, VEC))(bits)
#define TO_TM(x) PASTE(convert_, PASTE(TM_NAME, VEC))(x)
#define FROM_TM(n) PASTE(convert_, PASTE(T_NAME, VEC))(n)
#endif
#endif
