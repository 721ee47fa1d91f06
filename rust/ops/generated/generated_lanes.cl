// The functions of generated.cl in sixteen lanes, for CPUs; the kernels follow. Matmuls whose epilogue is generated
// have the width of their tiles, which is 8 without AVX-512: they call the functions of one lane.

#define any1(v) (v)

#if defined(IS_CPU) && VEC == 16

INLINE int any16(int16 v) {
  const int8 eight = v.lo | v.hi;
  const int4 four = eight.lo | eight.hi;
  const int2 two = four.lo | four.hi;
  return two.x | two.y;
}

// exp(x) for x <= 0; results below exp(-87), about the smallest normal number, become 0.
INLINE float16 exp_below16(float16 x) {
  int16 biased;
  const float16 fraction = expm1_near(reduce_exponent(x, &biased)), scale = power_of_two(biased);
  return x < -87 ? (float16)0 : fma(fraction, scale, scale);
}

// Lanes of vectors by their index.
typedef union {
  long16 v;
  long lane[16];
} LongLanes;
typedef union {
  int16 v;
  int lane[16];
} IntLanes;

// Functions of one and two operands, a lane at a time.
#define LANEWISE_1(name, result, type)                                    \
  INLINE result##16 name##_##type##16(type##16 x) {                       \
    union {                                                               \
      result##16 v;                                                       \
      result lane[16];                                                    \
    } out;                                                                \
    union {                                                               \
      type##16 v;                                                         \
      type lane[16];                                                      \
    } in = {x};                                                           \
    for (int l = 0; l < 16; l++) out.lane[l] = name##_##type(in.lane[l]); \
    return out.v;                                                         \
  }
#define LANEWISE_2(name, type)                                                      \
  INLINE type##16 name##_##type##16(type##16 x, type##16 y) {                       \
    union {                                                                         \
      type##16 v;                                                                   \
      type lane[16];                                                                \
    } out, a = {x}, b = {y};                                                        \
    for (int l = 0; l < 16; l++) out.lane[l] = name##_##type(a.lane[l], b.lane[l]); \
    return out.v;                                                                   \
  }
#define LANEWISE_INTEGERS(type) \
  LANEWISE_2(div_trunc, type)   \
  LANEWISE_2(mod_trunc, type)   \
  LANEWISE_2(div_floor, type)   \
  LANEWISE_2(mod_floor, type)   \
  LANEWISE_2(shift_left, type)  \
  LANEWISE_2(shift_right, type) \
  LANEWISE_2(power, type)       \
  LANEWISE_1(abs, type, type)   \
  LANEWISE_1(sign, type, type)
LANEWISE_INTEGERS(int)
LANEWISE_INTEGERS(uint)
LANEWISE_INTEGERS(long)
LANEWISE_INTEGERS(ulong)
INLINE float16 mod_trunc_float16(float16 a, float16 b) { return modulo_trunc(a, b); }
INLINE float16 mod_floor_float16(float16 a, float16 b) { return modulo_floor(a, b); }
INLINE float16 div_trunc_float16(float16 a, float16 b) { return trunc(a / b); }
INLINE float16 div_floor_float16(float16 a, float16 b) { return floor(a / b); }
INLINE float16 sign_float16(float16 x) { return x > 0 ? (float16)(1) : x < 0 ? (float16)(-1) : (float16)(0); }
LANEWISE_1(frexp_significand, float, float)
LANEWISE_1(frexp_exponent, int, float)
#ifdef HAS_FP64
LANEWISE_2(mod_trunc, double)
LANEWISE_2(mod_floor, double)
LANEWISE_2(div_trunc, double)
LANEWISE_2(div_floor, double)
// PoCL's powers of vectors are wrong in single lanes, see power.cl.
LANEWISE_2(power, double)
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

// A store through a packed struct does the same as vstoreN, which PoCL 3.1 splits. Streams bypass the caches.
#define DEFINE_MEMORY_16(name, pointer, type, element, from, to)                                         \
  typedef struct __attribute__((packed, aligned(sizeof(element)))) {                                     \
    element##16 v;                                                                                       \
  } Put_##name;                                                                                          \
  INLINE type##16 load16_##name(__global const pointer *p) {                                             \
    const element##16 v = vload16(0, (__global const element *)p);                                       \
    return from(v);                                                                                      \
  }                                                                                                      \
  INLINE void store16_##name(__global pointer *p, type##16 v) { ((__global Put_##name *)p)->v = to(v); } \
  INLINE void stream16_##name(__global pointer *p, type##16 v) {                                         \
    const element##16 stored = to(v);                                                                    \
    if (IS_NON_TEMPORAL(p, stored)) {                                                                    \
      STORE_NON_TEMPORAL(p, element##16, stored);                                                        \
    } else {                                                                                             \
      ((__global Put_##name *)p)->v = stored;                                                            \
    }                                                                                                    \
  }                                                                                                      \
  INLINE type##16 gather16_##name(__global const pointer *p, long16 index) {                             \
    LongLanes position = {index};                                                                        \
    union {                                                                                              \
      element##16 v;                                                                                     \
      element lane[16];                                                                                  \
    } out;                                                                                               \
    for (int l = 0; l < 16; l++) out.lane[l] = ((__global const element *)p)[position.lane[l]];          \
    return from(out.v);                                                                                  \
  }                                                                                                      \
  INLINE type##16 gather16_masked_##name(__global const pointer *p, long16 index, int16 mask) {          \
    LongLanes position = {index};                                                                        \
    IntLanes is_set = {mask};                                                                            \
    union {                                                                                              \
      element##16 v;                                                                                     \
      element lane[16];                                                                                  \
    } out;                                                                                               \
    for (int l = 0; l < 16; l++)                                                                         \
      out.lane[l] = is_set.lane[l] ? ((__global const element *)p)[position.lane[l]] : (element)0;       \
    return from(out.v);                                                                                  \
  }                                                                                                      \
  INLINE type##16 load16_masked_##name(__global const pointer *p, int16 mask) {                          \
    if (!any16(~mask)) return load16_##name(p);                                                          \
    if (!any16(mask)) return (type##16)(0);                                                              \
    return gather16_masked_##name(p, LANES16, mask);                                                     \
  }                                                                                                      \
  INLINE void scatter16_##name(__global pointer *p, long16 index, type##16 value) {                      \
    LongLanes position = {index};                                                                        \
    union {                                                                                              \
      element##16 v;                                                                                     \
      element lane[16];                                                                                  \
    } in = {to(value)};                                                                                  \
    for (int l = 0; l < 16; l++) ((__global element *)p)[position.lane[l]] = in.lane[l];                 \
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

// A vector in private memory that starts at any element.
#define KEPT(type, p) (((Kept_##type *)(p))->v)
// Transposes a square of lanes, row by row: each stage rotates the bits of row and column by one.
#define DEFINE_SQUARE_16(type)                                    \
  typedef struct __attribute__((packed, aligned(sizeof(type)))) { \
    type##16 v;                                                   \
  } Kept_##type##16;                                              \
  INLINE void turn16_##type(type##16 * rows) {                    \
    type##16 lines[16];                                           \
    UNROLL for (int i = 0; i < 16; i++) lines[i] = rows[i];       \
    UNROLL for (int stage = 0; stage < 4; stage++) {              \
      type##16 next[16];                                          \
      UNROLL for (int i = 0; i < 8; i++) {                        \
        next[2 * i].even = lines[i].lo;                           \
        next[2 * i].odd = lines[i + 8].lo;                        \
        next[2 * i + 1].even = lines[i].hi;                       \
        next[2 * i + 1].odd = lines[i + 8].hi;                    \
      }                                                           \
      UNROLL for (int i = 0; i < 16; i++) lines[i] = next[i];     \
    }                                                             \
    UNROLL for (int i = 0; i < 16; i++) rows[i] = lines[i];       \
  }
DEFINE_SQUARE_16(float)
DEFINE_SQUARE_16(int)
DEFINE_SQUARE_16(uint)
DEFINE_SQUARE_16(long)
DEFINE_SQUARE_16(ulong)
#ifdef HAS_FP64
DEFINE_SQUARE_16(double)
#endif

// The words of a group of counters, which serve several vectors of neighbouring offsets.
DEFINE_PHILOX(16, uint16, ulong16)
typedef struct {
  long group;
  uint16 words[4];
} RandomGroup;
#define NO_RANDOM_GROUP {-1}

INLINE int is_run16(long16 offset) {
  return (offset.s0 & 15) == 0 && !any16(convert_int16(offset != offset.s0 + LANES16));
}

// The random words of a vector of offsets: for each offset one of four words, or one of two pairs.
INLINE void random_words16(RandomGroup *random, long seed, long16 offset, int per_counter, uint16 words[4]) {
  const int shift = per_counter == 4 ? 6 : 5;
  if (is_run16(offset)) {
    const long group = offset.s0 >> shift;
    if (group != random->group) {
      words_of_16((ulong)seed, convert_ulong16((group << 4) + LANES16), random->words);
      random->group = group;
    }
    const int which = (int)(offset.s0 >> 4) & (per_counter - 1), count = 4 / per_counter;
    for (int i = 0; i < count; i++) words[i] = random->words[which * count + i];
    return;
  }
  uint16 all[4];
  words_of_16((ulong)seed, convert_ulong16(offset >> shift << 4 | (offset & 15)), all);
  const int16 bits = convert_int16(offset >> 4);
  const int16 is_odd = (bits & 1) != 0;
  if (per_counter == 4) {
    words[0] = (bits & 2) != 0 ? (is_odd ? all[3] : all[2]) : (is_odd ? all[1] : all[0]);
  } else {
    words[0] = is_odd ? all[2] : all[0];
    words[1] = is_odd ? all[3] : all[1];
  }
}

INLINE float16 unit_floats16(uint16 words) { return convert_float16(as_int16(words >> 8)); }
INLINE float16 rand16(RandomGroup *random, long seed, long16 offset) {
  uint16 words[4];
  random_words16(random, seed, offset, 4, words);
  return unit_floats16(words[0]) * 0x1p-24f;
}
INLINE float16 randn16(RandomGroup *random, long seed, long16 offset) {
  uint16 words[4];
  random_words16(random, seed, offset, 2, words);
  const float16 u = (unit_floats16(words[0]) + 1.0f) * 0x1p-24f, v = unit_floats16(words[1]) * 0x1p-24f;
  return sqrt(-2.0f * m_log(u)) * m_cos(6.28318531f * v);
}
INLINE long16 randint6416(RandomGroup *random, long seed, long16 offset, long16 low, long16 high) {
  uint16 words[4];
  random_words16(random, seed, offset, 2, words);
  union {
    uint16 v;
    uint lane[16];
  } first = {words[0]}, second = {words[1]};
  LongLanes from = {low}, to = {high}, out;
  for (int l = 0; l < 16; l++)
    out.lane[l] = random_integer((uint2)(first.lane[l], second.lane[l]), from.lane[l], to.lane[l]);
  return out.v;
}

INLINE long16 checked_index16(long16 index, long size, int is_wrapped, int16 is_active, __global uchar *faults) {
  const long16 is_out = (index < 0) | (index >= size);
  if (!any16(convert_int16(is_out))) return index;
  LongLanes indices = {index};
  IntLanes active = {is_active};
  for (int l = 0; l < 16; l++)
    indices.lane[l] = checked_index(indices.lane[l], size, is_wrapped, active.lane[l], faults);
  return indices.v;
}
#endif

// The kernels.
//@CASES@
