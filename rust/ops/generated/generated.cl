// Functions for kernels that torch.compile generates: python/torch_opencl/inductor writes the kernels' source, which
// follows this source.
//
// Names of functions have the type of their operands, `maximum_float16`, or the number of lanes and the name of a
// dtype's storage, `load16_bf16`. Values of 16-bit floats are float; values of bool and of integers of up to 32 bits
// are int or uint. A bool is 0 or 1 in a scalar, and 0 or -1 in a lane of a vector.

#define LANES16 ((long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define TASKS_LOOP(first, last) for (long task = first; task < last; task++)

// The type of Python floats, in which sizes are computed, and the type of kernel arguments that hold their bits.
#ifdef HAS_FP64
typedef double Real, RealArgument;
#define REAL_OF(argument) (argument)
#else
typedef float Real;
typedef long RealArgument;
// The float nearest to a double, given by its bits; subnormal doubles become 0.
INLINE float float_of_double(long bits) {
  const int exponent = (int)(bits >> 52) & 0x7ff;
  const long fraction = bits & 0xfffffffffffffL;
  float magnitude = 0.0f;
  if (exponent == 0x7ff) magnitude = fraction == 0 ? INFINITY : NAN;
  else if (exponent > 0) magnitude = ldexp((float)(fraction | 0x10000000000000L), exponent - 1075);
  return bits < 0 ? -magnitude : magnitude;
}
#define REAL_OF(argument) float_of_double(argument)
#endif

// --- integers

INLINE long floor_div(long x, long y) { return y == 0 ? 0 : x / y - (x % y != 0 && (x < 0) != (y < 0)); }
INLINE long floor_mod(long x, long y) { return y == 0 ? 0 : x - floor_div(x, y) * y; }

// Division by zero gives 0, and the one quotient that does not fit wraps; both would trap on a CPU.
#define DEFINE_DIVISION(type, is_least)                                                             \
  INLINE type div_trunc_##type(type a, type b) { return b == 0 ? 0 : is_least(b) ? 0 - a : a / b; } \
  INLINE type mod_trunc_##type(type a, type b) { return b == 0 || is_least(b) ? 0 : a % b; }        \
  INLINE type div_floor_##type(type a, type b) {                                                    \
    const type q = div_trunc_##type(a, b), r = mod_trunc_##type(a, b);                              \
    return q - (r != 0 && (r < 0) != (b < 0));                                                      \
  }                                                                                                 \
  INLINE type mod_floor_##type(type a, type b) {                                                    \
    const type r = mod_trunc_##type(a, b);                                                          \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                \
  }
#define IS_MINUS_ONE(b) ((b) == -1)
#define IS_NEVER(b) 0
DEFINE_DIVISION(int, IS_MINUS_ONE)
DEFINE_DIVISION(long, IS_MINUS_ONE)
DEFINE_DIVISION(uint, IS_NEVER)
DEFINE_DIVISION(ulong, IS_NEVER)

// A shift by the width or more, or by a negative count, moves every bit out.
#define DEFINE_SHIFTS(type, bits)                                                                 \
  INLINE type shift_left_##type(type a, type n) { return n < 0 || n >= bits ? (type)0 : a << n; } \
  INLINE type shift_right_##type(type a, type n) { return a >> (n < 0 || n >= bits ? (type)(bits - 1) : n); }
DEFINE_SHIFTS(int, 32)
DEFINE_SHIFTS(long, 64)
INLINE uint shift_left_uint(uint a, uint n) { return n >= 32 ? 0 : a << n; }
INLINE uint shift_right_uint(uint a, uint n) { return n >= 32 ? 0 : a >> n; }
INLINE ulong shift_left_ulong(ulong a, ulong n) { return n >= 64 ? 0 : a << n; }
INLINE ulong shift_right_ulong(ulong a, ulong n) { return n >= 64 ? 0 : a >> n; }

// Integer power by squaring, with wraparound. A negative power is 0, except for the bases 1 and -1.
#define DEFINE_INTEGER_POWER(type)                                     \
  INLINE type power_##type(type a, type n) {                           \
    if (n < 0) return a == 1 ? 1 : a + 1 == 0 ? ((n & 1) ? a : 1) : 0; \
    type result = 1;                                                   \
    for (; n > 0; n >>= 1) {                                           \
      if (n & 1) result *= a;                                          \
      a *= a;                                                          \
    }                                                                  \
    return result;                                                     \
  }
DEFINE_INTEGER_POWER(int)
DEFINE_INTEGER_POWER(long)
DEFINE_INTEGER_POWER(uint)
DEFINE_INTEGER_POWER(ulong)
INLINE float power_float(float a, float b) { return pow(a, b); }
#ifdef HAS_FP64
INLINE double power_double(double a, double b) { return pow(a, b); }
#endif

// --- maximum and minimum, for every width that a reduction uses; they propagate NaN

#define DEFINE_FLOAT_EXTREMES(type)                                                 \
  INLINE type maximum_##type(type a, type b) { return (a > b) | (a != a) ? a : b; } \
  INLINE type minimum_##type(type a, type b) { return (a < b) | (a != a) ? a : b; }
#define DEFINE_INTEGER_EXTREMES(type)                              \
  INLINE type maximum_##type(type a, type b) { return max(a, b); } \
  INLINE type minimum_##type(type a, type b) { return min(a, b); }
#define FOR_WIDTHS(define, type) define(type) define(type##2) define(type##4) define(type##8) define(type##16)
FOR_WIDTHS(DEFINE_FLOAT_EXTREMES, float)
FOR_WIDTHS(DEFINE_INTEGER_EXTREMES, int)
FOR_WIDTHS(DEFINE_INTEGER_EXTREMES, uint)
FOR_WIDTHS(DEFINE_INTEGER_EXTREMES, long)
FOR_WIDTHS(DEFINE_INTEGER_EXTREMES, ulong)
#ifdef HAS_FP64
FOR_WIDTHS(DEFINE_FLOAT_EXTREMES, double)
#endif

// Returns true if the second of two values, each with its index, replaces the first. NaN replaces all numbers; of equal
// values the one with the lower index is kept.
#define DEFINE_ARG(type, mask, index, to_mask)                                  \
  typedef mask MASK_##type;                                                     \
  INLINE mask arg_max_##type(type a, index ai, type b, index bi) {              \
    const mask earlier = to_mask(bi < ai), both_nan = (a != a) & (b != b);      \
    return (b > a) | ((b != b) & (a == a)) | (((a == b) | both_nan) & earlier); \
  }                                                                             \
  INLINE mask arg_min_##type(type a, index ai, type b, index bi) {              \
    const mask earlier = to_mask(bi < ai), both_nan = (a != a) & (b != b);      \
    return (b < a) | ((b != b) & (a == a)) | (((a == b) | both_nan) & earlier); \
  }
#define SAME(x) (x)
#define DEFINE_ARGS_32(type)                     \
  DEFINE_ARG(type, int, long, SAME)              \
  DEFINE_ARG(type##2, int2, long2, convert_int2) \
  DEFINE_ARG(type##4, int4, long4, convert_int4) \
  DEFINE_ARG(type##8, int8, long8, convert_int8) \
  DEFINE_ARG(type##16, int16, long16, convert_int16)
#define DEFINE_ARGS_64(type)              \
  DEFINE_ARG(type, int, long, SAME)       \
  DEFINE_ARG(type##2, long2, long2, SAME) \
  DEFINE_ARG(type##4, long4, long4, SAME) \
  DEFINE_ARG(type##8, long8, long8, SAME) \
  DEFINE_ARG(type##16, long16, long16, SAME)
DEFINE_ARGS_32(float)
DEFINE_ARGS_32(int)
DEFINE_ARGS_32(uint)
DEFINE_ARGS_64(long)
DEFINE_ARGS_64(ulong)
#define INDEX_MASK_float(m) (m)
#define INDEX_MASK_float2(m) convert_long2(m)
#define INDEX_MASK_float4(m) convert_long4(m)
#define INDEX_MASK_float8(m) convert_long8(m)
#define INDEX_MASK_float16(m) convert_long16(m)
#define INDEX_MASK_int INDEX_MASK_float
#define INDEX_MASK_int2 INDEX_MASK_float2
#define INDEX_MASK_int4 INDEX_MASK_float4
#define INDEX_MASK_int8 INDEX_MASK_float8
#define INDEX_MASK_int16 INDEX_MASK_float16
#define INDEX_MASK_uint INDEX_MASK_float
#define INDEX_MASK_uint2 INDEX_MASK_float2
#define INDEX_MASK_uint4 INDEX_MASK_float4
#define INDEX_MASK_uint8 INDEX_MASK_float8
#define INDEX_MASK_uint16 INDEX_MASK_float16
#define INDEX_MASK_long(m) (m)
#define INDEX_MASK_long2(m) (m)
#define INDEX_MASK_long4(m) (m)
#define INDEX_MASK_long8(m) (m)
#define INDEX_MASK_long16(m) (m)
#define INDEX_MASK_ulong(m) (m)
#define INDEX_MASK_ulong2(m) (m)
#define INDEX_MASK_ulong4(m) (m)
#define INDEX_MASK_ulong8(m) (m)
#define INDEX_MASK_ulong16(m) (m)
#ifdef HAS_FP64
DEFINE_ARGS_64(double)
#define INDEX_MASK_double(m) (m)
#define INDEX_MASK_double2(m) (m)
#define INDEX_MASK_double4(m) (m)
#define INDEX_MASK_double8(m) (m)
#define INDEX_MASK_double16(m) (m)
#endif

// --- floats

#define DEFINE_FLOAT_DIVISION(type)                                     \
  INLINE type mod_trunc_##type(type a, type b) { return fmod(a, b); }   \
  INLINE type mod_floor_##type(type a, type b) {                        \
    const type r = fmod(a, b);                                          \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                    \
  }                                                                     \
  INLINE type div_trunc_##type(type a, type b) { return trunc(a / b); } \
  INLINE type div_floor_##type(type a, type b) { return floor(a / b); }
DEFINE_FLOAT_DIVISION(float)
#ifdef HAS_FP64
DEFINE_FLOAT_DIVISION(double)
#endif

#define DEFINE_SIGN(type) \
  INLINE type sign_##type(type x) { return x > 0 ? (type)1 : x < 0 ? (type)(-1) : (type)0; }
DEFINE_SIGN(float)
DEFINE_SIGN(int)
DEFINE_SIGN(long)
INLINE uint sign_uint(uint x) { return x != 0; }
INLINE ulong sign_ulong(ulong x) { return x != 0; }
INLINE int abs_int(int x) { return x < 0 ? 0 - x : x; }
INLINE long abs_long(long x) { return x < 0 ? 0 - x : x; }
INLINE uint abs_uint(uint x) { return x; }
INLINE ulong abs_ulong(ulong x) { return x; }
INLINE int not_int(int x) { return !x; }
INLINE int16 not_int16(int16 x) { return ~x; }

#define DEFINE_FREXP(type)                       \
  INLINE type frexp_significand_##type(type x) { \
    int exponent;                                \
    return frexp(x, &exponent);                  \
  }                                              \
  INLINE int frexp_exponent_##type(type x) {     \
    int exponent;                                \
    frexp(x, &exponent);                         \
    return exponent;                             \
  }
DEFINE_FREXP(float)
#ifdef HAS_FP64
DEFINE_SIGN(double)
DEFINE_FREXP(double)
#endif

// --- bits

INLINE int wrap_char(int x) { return (char)x; }
INLINE int wrap_uchar(int x) { return (uchar)x; }
INLINE int wrap_short(int x) { return (short)x; }
INLINE int wrap_ushort(int x) { return (ushort)x; }
INLINE float round_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return vload_half(0, (const half *)&bits);
}
INLINE float round_bf16(float x) { return bf16_to_float(float_to_bf16(x)); }
INLINE int bits_of_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half *)&bits);
  return bits;
}
INLINE float half_of_bits(int x) {
  const ushort bits = (ushort)x;
  return vload_half(0, (const half *)&bits);
}
INLINE int bits_of_bf16(float x) { return float_to_bf16(x); }
INLINE float bf16_of_bits(int x) { return bf16_to_float((ushort)x); }
INLINE int bits_of_short(int x) { return x & 0xffff; }
INLINE int bits_of_ushort(int x) { return x & 0xffff; }
INLINE int short_of_bits(int x) { return (short)x; }
INLINE int ushort_of_bits(int x) { return (ushort)x; }

// --- memory

#define DEFINE_LOAD(name, pointer, type, read, write)                 \
  INLINE type load_##name(__global const pointer *p) { return read; } \
  INLINE void store_##name(__global pointer *p, type v) { write; }
DEFINE_LOAD(float, float, float, *p, *p = v)
DEFINE_LOAD(long, long, long, *p, *p = v)
DEFINE_LOAD(ulong, ulong, ulong, *p, *p = v)
DEFINE_LOAD(int, int, int, *p, *p = v)
DEFINE_LOAD(uint, uint, uint, *p, *p = v)
DEFINE_LOAD(short, short, int, *p, *p = (short)v)
DEFINE_LOAD(ushort, ushort, int, *p, *p = (ushort)v)
DEFINE_LOAD(char, char, int, *p, *p = (char)v)
DEFINE_LOAD(uchar, uchar, int, *p, *p = (uchar)v)
DEFINE_LOAD(bool, uchar, int, *p != 0, *p = v != 0)
DEFINE_LOAD(half, half, float, vload_half(0, p), vstore_half_rte(v, 0, p))
DEFINE_LOAD(bf16, ushort, float, bf16_to_float(*p), *p = float_to_bf16(v))
#ifdef HAS_FP64
DEFINE_LOAD(double, double, double, *p, *p = v)
#endif

// For types without a native atomic addition: compare and exchange the word that holds the element, until no other
// work-item has changed it. The first exchange guesses that the word is 0, and returns its value: a plain load would
// race with other items' exchanges.
#define DEFINE_ATOMIC_32(name, type)                                 \
  INLINE void atomic_add_##name(volatile __global type *p, type v) { \
    volatile __global uint *word = (volatile __global uint *)p;      \
    uint seen = 0, old;                                              \
    do {                                                             \
      old = seen;                                                    \
      seen = atomic_cmpxchg(word, old, as_uint(as_##type(old) + v)); \
    } while (seen != old);                                           \
  }
DEFINE_ATOMIC_32(float, float)
INLINE void atomic_add_int(volatile __global int *p, int v) { atomic_add(p, v); }
INLINE void atomic_add_uint(volatile __global uint *p, uint v) { atomic_add(p, v); }

#define DEFINE_ATOMIC_PART(name, pointer, type, bits, from, to)                              \
  INLINE void atomic_add_##name(volatile __global pointer *p, type v) {                      \
    volatile __global uint *word = (volatile __global uint *)((uintptr_t)p & ~(uintptr_t)3); \
    const uint shift = ((uint)(uintptr_t)p & 3u) * 8, field = ((1u << bits) - 1u) << shift;  \
    uint seen = 0, old;                                                                      \
    do {                                                                                     \
      old = seen;                                                                            \
      const uint part = (old & field) >> shift;                                              \
      const uint sum = (uint)(to(from(part) + v)) & ((1u << bits) - 1u);                     \
      seen = atomic_cmpxchg(word, old, (old & ~field) | sum << shift);                       \
    } while (seen != old);                                                                   \
  }
DEFINE_ATOMIC_PART(half, half, float, 16, half_of_bits, bits_of_half)
DEFINE_ATOMIC_PART(bf16, ushort, float, 16, bf16_of_bits, bits_of_bf16)
DEFINE_ATOMIC_PART(short, short, int, 16, SAME, SAME)
DEFINE_ATOMIC_PART(ushort, ushort, int, 16, SAME, SAME)
DEFINE_ATOMIC_PART(char, char, int, 8, SAME, SAME)
DEFINE_ATOMIC_PART(uchar, uchar, int, 8, SAME, SAME)
DEFINE_ATOMIC_PART(bool, uchar, int, 8, SAME, 0 !=)

#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
INLINE void atomic_add_long(volatile __global long *p, long v) { atom_add(p, v); }
INLINE void atomic_add_ulong(volatile __global ulong *p, ulong v) { atom_add(p, v); }
#ifdef HAS_FP64
INLINE void atomic_add_double(volatile __global double *p, double v) {
  volatile __global ulong *word = (volatile __global ulong *)p;
  ulong seen = 0, old;
  do {
    old = seen;
    seen = atom_cmpxchg(word, old, as_ulong(as_double(old) + v));
  } while (seen != old);
}
#endif
#endif

// --- random numbers

// One number for each (seed, offset), as PyTorch's decompositions require, independent of the vector width. Groups of
// 16 counters have 64 words: the first words of all counters, then the second ones and so on, so that vectors of
// neighbouring offsets use them without a shuffle. Functions that need two words take the first and second, or third
// and fourth.
DEFINE_PHILOX(1, uint, ulong)

INLINE uint random_word(long seed, long offset) {
  uint w[4];
  words_of_1((ulong)seed, (ulong)(offset >> 6 << 4 | (offset & 15)), w);
  const uint which = (uint)offset >> 4 & 3;
  return which < 2 ? (which == 0 ? w[0] : w[1]) : (which == 2 ? w[2] : w[3]);
}
INLINE uint2 random_pair(long seed, long offset) {
  uint w[4];
  words_of_1((ulong)seed, (ulong)(offset >> 5 << 4 | (offset & 15)), w);
  return (offset & 16) == 0 ? (uint2)(w[0], w[1]) : (uint2)(w[2], w[3]);
}

INLINE float rand(long seed, long offset) { return (float)(random_word(seed, offset) >> 8) * 0x1p-24f; }
INLINE float randn(long seed, long offset) {
  const uint2 words = random_pair(seed, offset);
  // In (0, 1]: the logarithm is finite (G. E. P. Box and M. E. Muller, 1958).
  const float u = ((float)(words.x >> 8) + 1.0f) * 0x1p-24f, v = (float)(words.y >> 8) * 0x1p-24f;
  return sqrt(-2.0f * log(u)) * cospi(2.0f * v);
}
INLINE long random_integer(uint2 words, long low, long high) {
  const ulong word = (ulong)words.y << 32 | words.x, range = (ulong)high - (ulong)low;
  return low + (long)(range == 0 ? word : word % range);
}
INLINE long randint64(long seed, long offset, long low, long high) {
  return random_integer(random_pair(seed, offset), low, high);
}

// --- bad input

// A report names the index as given, before the size was added to a negative index.
INLINE long checked_index(long index, long size, int is_wrapped, int is_active, __global uchar *faults) {
  if (index >= 0 && index < size) return index;
  if (is_active) report_fault(faults, FAULT_INDEX, is_wrapped && index < 0 ? index - size : index, size);
  return 0;
}
