// What kernels that torch.compile generates call: python/torch_opencl/inductor writes their text, which follows this.
//
// Functions carry the type of their operands, `maximum_float16`, or the number of lanes and the name of a dtype's storage,
// `load16_bf16`. Values of 16-bit floats are float, those of bool and of integers of up to 32 bits int or uint. A bool is 0 or
// 1 in a scalar, and 0 or -1 in a lane of a vector.

#define LANES16 ((long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define TASKS_LOOP(first, last) for (long task = first; task < last; task++)

// What Python computes with sizes.
#ifdef HAS_FP64
typedef double Real;
#else
typedef float Real;
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

// A shift by more than the width, or by less than nothing, moves every bit out.
#define DEFINE_SHIFTS(type, bits)                                                                 \
  INLINE type shift_left_##type(type a, type n) { return n < 0 || n >= bits ? (type)0 : a << n; } \
  INLINE type shift_right_##type(type a, type n) { return a >> (n < 0 || n >= bits ? (type)(bits - 1) : n); }
DEFINE_SHIFTS(int, 32)
DEFINE_SHIFTS(long, 64)
INLINE uint shift_left_uint(uint a, uint n) { return n >= 32 ? 0 : a << n; }
INLINE uint shift_right_uint(uint a, uint n) { return n >= 32 ? 0 : a >> n; }
INLINE ulong shift_left_ulong(ulong a, ulong n) { return n >= 64 ? 0 : a << n; }
INLINE ulong shift_right_ulong(ulong a, ulong n) { return n >= 64 ? 0 : a >> n; }

// By squaring, with wrap. A negative power is 0 but for the bases 1 and -1.
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

// --- extremes, at every width that a reduction passes: NaN wins

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

// Returns true where the second of two values, each with its index, takes the place of the first: NaN before all numbers, of
// equal values the one with the lower index.
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

INLINE float mod_trunc_float(float a, float b) { return fmod(a, b); }
INLINE float mod_floor_float(float a, float b) {
  const float r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
INLINE float div_trunc_float(float a, float b) { return trunc(a / b); }
INLINE float div_floor_float(float a, float b) { return floor(a / b); }
#ifdef HAS_FP64
INLINE double mod_trunc_double(double a, double b) { return fmod(a, b); }
INLINE double mod_floor_double(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
INLINE double div_trunc_double(double a, double b) { return trunc(a / b); }
INLINE double div_floor_double(double a, double b) { return floor(a / b); }
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

INLINE float frexp_significand_float(float x) {
  int exponent;
  return frexp(x, &exponent);
}
INLINE int frexp_exponent_float(float x) {
  int exponent;
  frexp(x, &exponent);
  return exponent;
}
#ifdef HAS_FP64
DEFINE_SIGN(double)
INLINE double frexp_significand_double(double x) {
  int exponent;
  return frexp(x, &exponent);
}
INLINE int frexp_exponent_double(double x) {
  int exponent;
  frexp(x, &exponent);
  return exponent;
}
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

// Of types without an atomic addition of their own: the word that holds the element is replaced until nobody has changed it.
#define DEFINE_ATOMIC_32(name, type)                                 \
  INLINE void atomic_add_##name(volatile __global type *p, type v) { \
    volatile __global uint *word = (volatile __global uint *)p;      \
    uint seen = *word, old;                                          \
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
    uint seen = *word, old;                                                                  \
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
  ulong seen = *word, old;
  do {
    old = seen;
    seen = atom_cmpxchg(word, old, as_ulong(as_double(old) + v));
  } while (seen != old);
}
#endif
#endif

// --- random numbers

// One number for each (seed, offset), as PyTorch's decompositions ask for.
INLINE uint4 random_words(ulong seed, ulong offset) {
  uint4 c = (uint4)((uint)offset, (uint)(offset >> 32), 0, 0);
  uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
  UNROLL
  for (int round = 0; round < 10; round++) {
    const uint4 next = (uint4)(mul_hi(0xcd9e8d57u, c.z) ^ c.y ^ key.x, 0xcd9e8d57u * c.z,
                               mul_hi(0xd2511f53u, c.x) ^ c.w ^ key.y, 0xd2511f53u * c.x);
    c = next;
    key += (uint2)(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}
INLINE float rand(long seed, long offset) { return (float)(random_words(seed, offset).x >> 8) * 0x1p-24f; }
INLINE float randn(long seed, long offset) {
  const uint4 words = random_words(seed, offset);
  // In (0, 1]: the logarithm is finite (G. E. P. Box and M. E. Muller, 1958).
  const float u = ((float)(words.x >> 8) + 1.0f) * 0x1p-24f, v = (float)(words.y >> 8) * 0x1p-24f;
  return sqrt(-2.0f * log(u)) * cospi(2.0f * v);
}
INLINE long randint64(long seed, long offset, long low, long high) {
  const uint4 words = random_words(seed, offset);
  const ulong word = (ulong)words.y << 32 | words.x, range = (ulong)high - (ulong)low;
  return low + (long)(range == 0 ? word : word % range);
}

// --- bad input

INLINE long checked_index(long index, long size, int is_active, __global uchar *faults) {
  if (index >= 0 && index < size) return index;
  if (is_active) report_fault(faults, FAULT_INDEX, index, size);
  return 0;
}

#ifdef IS_CPU
// --- the same in sixteen lanes

INLINE int any16(int16 v) {
  const int8 eight = v.lo | v.hi;
  const int4 four = eight.lo | eight.hi;
  const int2 two = four.lo | four.hi;
  return two.x | two.y;
}
#define any1(v) (v)

// Functions of one and two operands, a lane at a time.
#define LANEWISE_1(name, result, type)                                  \
  INLINE result##16 name##_##type##16(type##16 x) {                     \
    union {                                                             \
      result##16 v;                                                     \
      result lane[16];                                                  \
    } out;                                                              \
    union {                                                             \
      type##16 v;                                                       \
      type lane[16];                                                    \
    } in = {x};                                                         \
    for (int l = 0; l < 16; l++) out.lane[l] = name##_##type(in.lane[l]); \
    return out.v;                                                       \
  }
#define LANEWISE_2(name, type)                                                       \
  INLINE type##16 name##_##type##16(type##16 x, type##16 y) {                        \
    union {                                                                          \
      type##16 v;                                                                    \
      type lane[16];                                                                 \
    } out, a = {x}, b = {y};                                                         \
    for (int l = 0; l < 16; l++) out.lane[l] = name##_##type(a.lane[l], b.lane[l]);  \
    return out.v;                                                                    \
  }
#define LANEWISE_INTEGERS(type)  \
  LANEWISE_2(div_trunc, type)    \
  LANEWISE_2(mod_trunc, type)    \
  LANEWISE_2(div_floor, type)    \
  LANEWISE_2(mod_floor, type)    \
  LANEWISE_2(shift_left, type)   \
  LANEWISE_2(shift_right, type)  \
  LANEWISE_2(power, type)        \
  LANEWISE_1(abs, type, type)    \
  LANEWISE_1(sign, type, type)
LANEWISE_INTEGERS(int)
LANEWISE_INTEGERS(uint)
LANEWISE_INTEGERS(long)
LANEWISE_INTEGERS(ulong)
INLINE float16 mod_trunc_float16(float16 a, float16 b) { return modulo_trunc(a, b); }
INLINE float16 mod_floor_float16(float16 a, float16 b) { return modulo_floor(a, b); }
INLINE float16 div_trunc_float16(float16 a, float16 b) { return trunc(a / b); }
INLINE float16 div_floor_float16(float16 a, float16 b) { return floor(a / b); }
INLINE float16 sign_float16(float16 x) {
  return x > 0 ? (float16)(1) : x < 0 ? (float16)(-1) : (float16)(0);
}
LANEWISE_1(frexp_significand, float, float)
LANEWISE_1(frexp_exponent, int, float)
#ifdef HAS_FP64
LANEWISE_2(mod_trunc, double)
LANEWISE_2(mod_floor, double)
LANEWISE_2(div_trunc, double)
LANEWISE_2(div_floor, double)
LANEWISE_1(sign, double, double)
LANEWISE_1(frexp_significand, double, double)
LANEWISE_1(frexp_exponent, int, double)
#endif

INLINE int16 wrap_char16(int16 x) { return convert_int16(convert_char16(x)); }
INLINE int16 wrap_uchar16(int16 x) { return convert_int16(convert_uchar16(x)); }
INLINE int16 wrap_short16(int16 x) { return convert_int16(convert_short16(x)); }
INLINE int16 wrap_ushort16(int16 x) { return convert_int16(convert_ushort16(x)); }

INLINE ushort16 bf16_bits16(float16 x) {
  const uint16 bits = as_uint16(x);
  return convert_ushort16(x != x ? (uint16)(0x7fc0u) : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
INLINE float16 bf16_values16(ushort16 bits) { return as_float16(convert_uint16(bits) << 16); }
INLINE ushort16 half_bits16(float16 x) {
  ushort16 bits;
  vstore_half16_rte(x, 0, (half *)&bits);
  return bits;
}
INLINE float16 half_values16(ushort16 bits) { return vload_half16(0, (const half *)&bits); }
INLINE float16 round_half16(float16 x) { return half_values16(half_bits16(x)); }
INLINE float16 round_bf1616(float16 x) { return bf16_values16(bf16_bits16(x)); }
INLINE int16 bits_of_half16(float16 x) { return convert_int16(half_bits16(x)); }
INLINE float16 half_of_bits16(int16 x) { return half_values16(convert_ushort16(x)); }
INLINE int16 bits_of_bf1616(float16 x) { return convert_int16(bf16_bits16(x)); }
INLINE float16 bf16_of_bits16(int16 x) { return bf16_values16(convert_ushort16(x)); }
INLINE int16 bits_of_short16(int16 x) { return x & 0xffff; }
INLINE int16 bits_of_ushort16(int16 x) { return x & 0xffff; }
INLINE int16 short_of_bits16(int16 x) { return wrap_short16(x); }
INLINE int16 ushort_of_bits16(int16 x) { return x & 0xffff; }

// A store through a packed struct does what vstoreN does, for which PoCL 3.1 makes pieces.
#define DEFINE_MEMORY_16(name, pointer, type, element, from, to)                                                       \
  typedef struct __attribute__((packed, aligned(sizeof(element)))) {                                                   \
    element##16 v;                                                                                                     \
  } Put_##name;                                                                                                        \
  INLINE type##16 load16_##name(__global const pointer *p) {                                                           \
    const element##16 v = vload16(0, (__global const element *)p);                                                     \
    return from(v);                                                                                                    \
  }                                                                                                                    \
  INLINE void store16_##name(__global pointer *p, type##16 v) { ((__global Put_##name *)p)->v = to(v); }               \
  INLINE type##16 gather16_##name(__global const pointer *p, long16 index) {                                           \
    union {                                                                                                            \
      long16 v;                                                                                                        \
      long lane[16];                                                                                                   \
    } place = {index};                                                                                                 \
    union {                                                                                                            \
      element##16 v;                                                                                                   \
      element lane[16];                                                                                                \
    } out;                                                                                                             \
    for (int l = 0; l < 16; l++) out.lane[l] = ((__global const element *)p)[place.lane[l]];                           \
    return from(out.v);                                                                                                \
  }                                                                                                                    \
  INLINE type##16 gather16_masked_##name(__global const pointer *p, long16 index, int16 mask) {                        \
    union {                                                                                                            \
      long16 v;                                                                                                        \
      long lane[16];                                                                                                   \
    } place = {index};                                                                                                 \
    union {                                                                                                            \
      int16 v;                                                                                                         \
      int lane[16];                                                                                                    \
    } is_set = {mask};                                                                                                 \
    union {                                                                                                            \
      element##16 v;                                                                                                   \
      element lane[16];                                                                                                \
    } out;                                                                                                             \
    for (int l = 0; l < 16; l++)                                                                                       \
      out.lane[l] = is_set.lane[l] ? ((__global const element *)p)[place.lane[l]] : (element)0;                        \
    return from(out.v);                                                                                                \
  }                                                                                                                    \
  INLINE type##16 load16_masked_##name(__global const pointer *p, int16 mask) {                                        \
    if (!any16(~mask)) return load16_##name(p);                                                                        \
    return gather16_masked_##name(p, LANES16, mask);                                                                   \
  }                                                                                                                    \
  INLINE void scatter16_##name(__global pointer *p, long16 index, type##16 value) {                                    \
    union {                                                                                                            \
      long16 v;                                                                                                        \
      long lane[16];                                                                                                   \
    } place = {index};                                                                                                 \
    union {                                                                                                            \
      element##16 v;                                                                                                   \
      element lane[16];                                                                                                \
    } in = {to(value)};                                                                                                \
    for (int l = 0; l < 16; l++) ((__global element *)p)[place.lane[l]] = in.lane[l];                                  \
  }                                                                                                                    \
  DEFINE_ATOMIC_LANES(name, pointer, type)
#define DEFINE_ATOMIC_LANES(name, pointer, type)                                                        \
  INLINE void atomic_add16_##name(__global pointer *p, long16 index, type##16 value) {                  \
    union {                                                                                             \
      long16 v;                                                                                         \
      long lane[16];                                                                                    \
    } place = {index};                                                                                  \
    union {                                                                                             \
      type##16 v;                                                                                       \
      type lane[16];                                                                                    \
    } in = {value};                                                                                     \
    for (int l = 0; l < 16; l++) atomic_add_##name(p + place.lane[l], in.lane[l]);                      \
  }
#define BOOL_LANES(v) convert_int16((v) != (uchar16)(0))
#define BOOL_BYTES(v) (convert_uchar16(v) & (uchar)1)
DEFINE_MEMORY_16(float, float, float, float, SAME, SAME)
DEFINE_MEMORY_16(int, int, int, int, SAME, SAME)
DEFINE_MEMORY_16(uint, uint, uint, uint, SAME, SAME)
DEFINE_MEMORY_16(short, short, int, short, convert_int16, convert_short16)
DEFINE_MEMORY_16(ushort, ushort, int, ushort, convert_int16, convert_ushort16)
DEFINE_MEMORY_16(char, char, int, char, convert_int16, convert_char16)
DEFINE_MEMORY_16(uchar, uchar, int, uchar, convert_int16, convert_uchar16)
DEFINE_MEMORY_16(bool, uchar, int, uchar, BOOL_LANES, BOOL_BYTES)
DEFINE_MEMORY_16(half, half, float, ushort, half_values16, half_bits16)
DEFINE_MEMORY_16(bf16, ushort, float, ushort, bf16_values16, bf16_bits16)
#ifdef cl_khr_int64_base_atomics
DEFINE_MEMORY_16(long, long, long, long, SAME, SAME)
DEFINE_MEMORY_16(ulong, ulong, ulong, ulong, SAME, SAME)
#ifdef HAS_FP64
DEFINE_MEMORY_16(double, double, double, double, SAME, SAME)
#endif
#endif

#define DEFINE_RANDOM_16(name)                                                        \
  INLINE float16 name##16(long seed, long16 offset) {                                 \
    union {                                                                           \
      long16 v;                                                                       \
      long lane[16];                                                                  \
    } place = {offset};                                                               \
    union {                                                                           \
      float16 v;                                                                      \
      float lane[16];                                                                 \
    } out;                                                                            \
    for (int l = 0; l < 16; l++) out.lane[l] = name(seed, place.lane[l]);             \
    return out.v;                                                                     \
  }
DEFINE_RANDOM_16(rand)
DEFINE_RANDOM_16(randn)
INLINE long16 randint6416(long seed, long16 offset, long16 low, long16 high) {
  union {
    long16 v;
    long lane[16];
  } place = {offset}, from = {low}, to = {high}, out;
  for (int l = 0; l < 16; l++) out.lane[l] = randint64(seed, place.lane[l], from.lane[l], to.lane[l]);
  return out.v;
}

INLINE long16 checked_index16(long16 index, long size, int16 is_active, __global uchar *faults) {
  const long16 is_out = (index < 0) | (index >= size);
  if (!any16(convert_int16(is_out))) return index;
  union {
    long16 v;
    long lane[16];
  } place = {index};
  union {
    int16 v;
    int lane[16];
  } active = {is_active};
  for (int l = 0; l < 16; l++) place.lane[l] = checked_index(place.lane[l], size, active.lane[l], faults);
  return place.v;
}
#endif

// The kernels.
//@CASES@
