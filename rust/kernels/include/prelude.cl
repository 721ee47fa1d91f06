// Types, element access and selection shared by every kernel family.
//
// A program is built for one *compute class*: the type in which arithmetic is done. Storage types are converted on load
// and on store, so one kernel serves every combination of dtypes.
//
//   CLASS_F  float    for float8 to f32           CLASS_D  double   for f64
//   CLASS_I  long     for bool and all integers   CLASS_C  float2   for complex32, complex64
//   CLASS_U  ulong    for uint64                  CLASS_Z  double2  for complex128
// HAS_FP64 is defined if the device computes in double, HAS_CLANG_BUILTINS if the driver compiles the builtins of clang
// that `__has_builtin` reports; translators to SPIR-V crash on them. dtype codes are those of c10::ScalarType.

// Compilers call a large function instead of inlining it. In a specialised program it is small, as the switch over the
// dtype is removed, and must not be called for every vector: otherwise a sum over 16 M floats takes a third longer.
#ifdef SPEC_DTYPE0
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

// INLINED_ON_GPUS is for functions that take the address of a struct argument: if a GPU's compiler calls one, it copies
// the struct to memory of every work-item. Also for functions that call another function in a kernel with barriers:
// Mesa's llvmpipe does not inline functions with branches, and then computes wrong results or crashes (25.0.7).
// OUTLINED is for long functions that are rarely needed, which are not inlined. On CPUs PoCL compiles the body of a
// kernel three times, but a function that it calls once.
// GROUPS_OF is the attribute of kernels for groups of exactly `items` work-items: else a GPU's compiler may assign so
// many registers to each item that only smaller groups can start.
#ifdef IS_CPU
#define INLINED_ON_GPUS
#define OUTLINED static __attribute__((noinline))
#define GROUPS_OF(items)
#else
#define INLINED_ON_GPUS __attribute__((always_inline))
#define OUTLINED static inline
#define GROUPS_OF(items) __attribute__((reqd_work_group_size(items, 1, 1)))
#endif

// Loops call these functions, and each has a switch over the dtype. In a generic program Intel's compiler for CPUs would
// inline them and copy the loops for each dtype: `reduce_columns` then takes ten times as long to compile. PoCL calls
// such functions anyway. Mesa's llvmpipe computes wrong results for some calls in kernels with barriers.
#if defined(HAS_CLANG_BUILTINS) && !defined(SPEC_DTYPE0) && !defined(CLASS_C) && !defined(CLASS_Z)
#define INLINED_IF_SPECIALISED OUTLINED
#else
#define INLINED_IF_SPECIALISED INLINE
#endif

// Unrolls the loop that follows. Can be used in macros.
#define UNROLL _Pragma("unroll")

// For sums that need not be exact, and the exponentials of softmax and attention (rust/kernels/fma_or_mad.rs).
#ifndef FMA_OR_MAD
#define FMA_OR_MAD fma
#endif

#ifdef HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define DT_U8 0
#define DT_I8 1
#define DT_I16 2
#define DT_I32 3
#define DT_I64 4
#define DT_F16 5
#define DT_F32 6
#define DT_F64 7
#define DT_C64 9
#define DT_C128 10
#define DT_BOOL 11
#define DT_BF16 15

// Conversions of these are only in programs that need them, which define RARE_DTYPES.
#define DT_C32 8
#define DT_F8E5M2 23
#define DT_F8E4M3FN 24
#define DT_F8E5M2FNUZ 25
#define DT_F8E4M3FNUZ 26
#define DT_U16 27
#define DT_U32 28
#define DT_U64 29
#define DT_F8E8M0FNU 44

#if defined(CLASS_F)
typedef float T;
typedef int TI;
#elif defined(CLASS_D)
typedef double T;
typedef long TI;
#elif defined(CLASS_I) && defined(SPEC_INT)
typedef int T, TI;  // no operand has more bits, and the op computes in no more
#elif defined(CLASS_I)
typedef long T, TI;
#elif defined(CLASS_U)
typedef ulong T;
typedef long TI;
#elif defined(CLASS_C)
typedef float2 T;
typedef float TR;
#elif defined(CLASS_Z)
typedef double2 T;
typedef double TR;
#endif

// Scalars of the compute class among the packed arguments of a kernel (rust/codegen/packed.rs), as their bits.
#if defined(CLASS_F)
#define UNPACK_T(bits) as_float((uint)(bits)[0])
#elif defined(CLASS_D)
#define UNPACK_T(bits) as_double((bits)[0])
#elif defined(CLASS_I) || defined(CLASS_U)
#define UNPACK_T(bits) ((T)(bits)[0])
#elif defined(CLASS_C)
#define UNPACK_T(bits) ((float2)(as_float((uint)(bits)[0]), as_float((uint)((bits)[0] >> 32))))
#define UNPACK_TR(bits) as_float((uint)(bits)[0])
#elif defined(CLASS_Z)
#define UNPACK_T(bits) ((double2)(as_double((bits)[0]), as_double((bits)[1])))
#define UNPACK_TR(bits) as_double((bits)[0])
#endif
#ifndef UNPACK_TR
#define UNPACK_TR(bits) UNPACK_T(bits)
#endif

#if defined(CLASS_C) || defined(CLASS_Z)
#define IS_COMPLEX 1
#elif defined(CLASS_I) || defined(CLASS_U)
#define IS_INTEGER 1
#else
#define IS_FLOAT 1
#endif

// A floating literal with the precision of the compute class: LIT(0.5) is 0.5f in single precision. A literal without
// LIT is a double, and promotes the other operand; in expressions of the op table it is added automatically.
#if defined(CLASS_D) || defined(CLASS_Z)
#define LIT(x) x
#else
#define LIT(x) x##f
#endif

// Bytes of one element.
INLINE int dtype_size(int dt) {
  switch (dt) {
    case DT_I16:
    case DT_F16:
    case DT_BF16: return 2;
    case DT_I32:
    case DT_F32: return 4;
    case DT_I64:
    case DT_F64:
    case DT_C64: return 8;
    case DT_C128: return 16;
#ifdef RARE_DTYPES
    case DT_U16: return 2;
    case DT_U32:
    case DT_C32: return 4;
    case DT_U64: return 8;
#endif
    default: return 1;
  }
}

// Rounds to nearest even; NaN stays quiet.
INLINE ushort float_to_bf16(float x) {
  uint u = as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (ushort)0x7fc0;
  return (ushort)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

INLINE float bf16_to_float(ushort x) { return as_float((uint)x << 16); }

// Conversions from one loaded component to the compute type.
#ifdef IS_COMPLEX
#define FROM_REAL(x) ((T)((TR)(x), (TR)0))
#define REAL(v) ((v).x)
#define FROM_PAIR(x, y) ((T)((TR)(x), (TR)(y)))
// With `!=`, PoCL 6 crashes ("Instruction Combining did not reach a fixpoint").
#define IS_NONZERO(v) (isnotequal((v).x, (TR)0) || isnotequal((v).y, (TR)0))
#define PAIR_X(v) ((v).x)
#define PAIR_Y(v) ((v).y)
#else
#define FROM_REAL(x) ((T)(x))
#define REAL(v) (v)
#define FROM_PAIR(x, y) ((T)(x))
#define IS_NONZERO(v) ((v) != 0)
#define PAIR_X(v) (v)
#define PAIR_Y(v) 0
#endif

// Integers are never NaN, and compilers warn if a value is compared with itself.
#ifdef IS_INTEGER
#define IS_NAN(v) 0
#else
#define IS_NAN(v) isnan(v)
#endif

// Out-of-range float to integer is converted through long, with the same result as PyTorch's x86 kernels.
#ifdef IS_INTEGER
#define TO_LONG(v) (v)
#else
#define TO_LONG(v) ((long)REAL(v))
#endif

#ifdef RARE_DTYPES
// The float8 dtypes except e8m0fnu: a sign, an exponent and `fraction` bits of a significand. Codes from `top`, without
// the sign, are infinite or NaN; `nan` is the code of a NaN, and `most` that of values too large.
typedef struct {
  int fraction, bias;
  uint top, most, nan;
} Float8;

INLINE Float8 float8_format(int dt) {
  switch (dt) {
    case DT_F8E5M2: return (Float8){2, 15, 0x7c, 0x7c, 0x7f};
    case DT_F8E4M3FN: return (Float8){3, 7, 0x7f, 0x7e, 0x7f};
    case DT_F8E5M2FNUZ: return (Float8){2, 16, 0x80, 0x80, 0x80};
    default: return (Float8){3, 8, 0x80, 0x80, 0x80};
  }
}

INLINE bool is_fnuz(int dt) { return dt == DT_F8E5M2FNUZ || dt == DT_F8E4M3FNUZ; }

OUTLINED float float8_to_float(uchar code, int dt) {
  if (dt == DT_F8E8M0FNU) return as_float(code == 0xff ? 0x7fc00000u : code == 0 ? 0x00400000u : (uint)code << 23);
  // There is only one zero, without a sign: the code of -0 is a NaN.
  if (is_fnuz(dt) && code == 0x80) return as_float(0x7fc00000u);
  const Float8 format = float8_format(dt);
  const uint sign = (uint)(code & 0x80) << 24, magnitude = code & 0x7f;
  const uint exponent = magnitude >> format.fraction, fraction = magnitude & ((1u << format.fraction) - 1);
  if (magnitude >= format.top) return as_float(sign | (magnitude == format.most ? 0x7f800000u : 0x7fc00000u));
  const uint biased = exponent + 127 - format.bias;
  const float unit = as_float((uint)(128 - format.bias - format.fraction) << 23);
  const uint bits =
      exponent == 0 ? as_uint((float)fraction * unit) : (biased << 23 | fraction << (23 - format.fraction));
  return as_float(sign | bits);
}

// Rounds to nearest even.
OUTLINED uchar float_to_float8(float x, int dt) {
  const uint sign = as_uint(x) >> 31 << 7, magnitude = as_uint(x) & 0x7fffffffu;
  if (dt == DT_F8E8M0FNU) {
    const uint exponent = magnitude >> 23, fraction = magnitude & 0x7fffffu;
    if (exponent == 255) return 255;
    return (uchar)(exponent + (fraction > 0x400000u || (fraction == 0x400000u && exponent > 0)));
  }
  const Float8 format = float8_format(dt);
  if (magnitude > 0x7f800000u) return (uchar)(is_fnuz(dt) ? format.nan : sign | format.nan);
  uint code;
  if (magnitude < (uint)(128 - format.bias) << 23) {
    // Below the least normal number all values have the same unit.
    code = (uint)rint(as_float(magnitude) * as_float((uint)(126 + format.bias + format.fraction) << 23));
  } else {
    const int dropped = 23 - format.fraction;
    const uint rebased = magnitude - ((uint)(127 - format.bias) << 23);
    code = (rebased + (1u << (dropped - 1)) - 1 + ((rebased >> dropped) & 1u)) >> dropped;
  }
  code = min(code, format.most);
  return (uchar)(code == 0 && is_fnuz(dt) ? 0 : sign | code);
}

// The conversion of in-range values in C on x86: from 2^63, through the signed number that is 2^63 less.
INLINE ulong to_ulong(T v) {
#ifdef IS_INTEGER
  return (ulong)v;
#else
  return REAL(v) >= 9223372036854775808.0f ? (ulong)(long)(REAL(v) - 9223372036854775808.0f) ^ 0x8000000000000000UL
                                           : (ulong)(long)REAL(v);
#endif
}

OUTLINED T load_rare(__global const uchar *p, int dt) {
  switch (dt) {
    case DT_U16: return FROM_REAL(*(__global const ushort *)p);
    case DT_U32: return FROM_REAL(*(__global const uint *)p);
    case DT_U64: return FROM_REAL(*(__global const ulong *)p);
    case DT_C32: return FROM_PAIR(vload_half(0, (__global const half *)p), vload_half(1, (__global const half *)p));
  }
  return FROM_REAL(float8_to_float(*p, dt));
}

OUTLINED void store_rare(__global uchar *p, int dt, T v) {
  switch (dt) {
    case DT_U16: *(__global ushort *)p = (ushort)TO_LONG(v); break;
    case DT_U32: *(__global uint *)p = (uint)TO_LONG(v); break;
    case DT_U64: *(__global ulong *)p = to_ulong(v); break;
    case DT_C32:
      vstore_half_rte((float)PAIR_X(v), 0, (__global half *)p);
      vstore_half_rte((float)PAIR_Y(v), 1, (__global half *)p);
      break;
    default: *p = float_to_float8((float)REAL(v), dt);
  }
}
#define LOAD_RARE(p, dt) load_rare(p, dt)
#define STORE_RARE(p, dt, v) store_rare(p, dt, v)
#else
#define LOAD_RARE(p, dt) FROM_REAL(0)
#define STORE_RARE(p, dt, v)
#endif

// Element stored as dt at byte address p.
INLINE T load_at(__global const uchar *p, int dt) {
  switch (dt) {
    case DT_U8: return FROM_REAL(*p);
    case DT_I8: return FROM_REAL(*(__global const char *)p);
    case DT_I16: return FROM_REAL(*(__global const short *)p);
    case DT_I32: return FROM_REAL(*(__global const int *)p);
    case DT_I64: return FROM_REAL(*(__global const long *)p);
    case DT_F16: return FROM_REAL(vload_half(0, (__global const half *)p));
    case DT_F32: return FROM_REAL(*(__global const float *)p);
    case DT_BF16: return FROM_REAL(bf16_to_float(*(__global const ushort *)p));
    case DT_BOOL: return FROM_REAL(*p != 0);
    // Complex numbers are aligned to their size: neighbouring items load all of a line at once.
    case DT_C64: {
      const float2 pair = *(__global const float2 *)p;
      return FROM_PAIR(pair.x, pair.y);
    }
#ifdef HAS_FP64
    case DT_F64: return FROM_REAL(*(__global const double *)p);
    case DT_C128: {
      const double2 pair = *(__global const double2 *)p;
      return FROM_PAIR(pair.x, pair.y);
    }
#endif
  }
  return LOAD_RARE(p, dt);
}

INLINE void store_at(__global uchar *p, int dt, T v) {
  switch (dt) {
    case DT_U8: *p = (uchar)TO_LONG(v); break;
    case DT_I8: *(__global char *)p = (char)TO_LONG(v); break;
    case DT_I16: *(__global short *)p = (short)TO_LONG(v); break;
    case DT_I32: *(__global int *)p = (int)TO_LONG(v); break;
    case DT_I64: *(__global long *)p = TO_LONG(v); break;
    case DT_F16: vstore_half_rte((float)REAL(v), 0, (__global half *)p); break;
    case DT_F32: *(__global float *)p = (float)REAL(v); break;
    case DT_BF16: *(__global ushort *)p = float_to_bf16((float)REAL(v)); break;
    case DT_BOOL: *p = IS_NONZERO(v); break;
    case DT_C64: *(__global float2 *)p = (float2)((float)PAIR_X(v), (float)PAIR_Y(v)); break;
#ifdef HAS_FP64
    case DT_F64: *(__global double *)p = (double)REAL(v); break;
    case DT_C128: *(__global double2 *)p = (double2)((double)PAIR_X(v), (double)PAIR_Y(v)); break;
#endif
    default: STORE_RARE(p, dt, v);
  }
}

// Element i of a tensor that starts at p.
INLINE T load(__global const uchar *p, long i, int dt) { return load_at(p + i * dtype_size(dt), dt); }
INLINE void store(__global uchar *p, long i, int dt, T v) { store_at(p + i * dtype_size(dt), dt, v); }

// Element i of an index tensor, in any compute class.
INLINE long load_index(__global const uchar *p, long i, int dt) {
  return dt == DT_I64 ? ((__global const long *)p)[i] : (long)((__global const int *)p)[i];
}

// Non-temporal stores of vectors to an address that is a multiple of their size, if the host sets SPEC_NON_TEMPORAL:
// the output is larger than a CPU's caches, and its lines need not be read before they are overwritten. A copy of 64 MB
// takes half as long (PoCL, 2 cores). A locked instruction, which such stores do not pass, ends each command.
#if defined(SPEC_NON_TEMPORAL) && defined(HAS_CLANG_BUILTINS)
#if __has_builtin(__builtin_nontemporal_store)
#define IS_NON_TEMPORAL(p, v) (((uintptr_t)(p) & (sizeof(v) - 1)) == 0)
#define STORE_NON_TEMPORAL(p, type, v) __builtin_nontemporal_store(v, (__global type *)(p))
#endif
#endif
#ifndef IS_NON_TEMPORAL
#define IS_NON_TEMPORAL(p, v) false
#define STORE_NON_TEMPORAL(p, type, v)
#endif

// Follows a struct that launchers pass by value, with its size. rust/codegen/structs.rs makes the Rust struct from it.
#define SHARED(name, bytes) typedef char name##_is_shared[sizeof(name) == (bytes) ? 1 : -1]

// Sizes, and strides in bytes, of up to MAX_DIMS dimensions and MAX_OPERANDS operands, innermost dimension first.
#define MAX_DIMS 8
#define MAX_OPERANDS 5
typedef struct {
  long sizes[MAX_DIMS];
  long strides[MAX_OPERANDS][MAX_DIMS];
  int ndim;
  int pad;
} Layout;
SHARED(Layout, 392);

// Loops over dimensions of a layout. A GPU's compiler copies a struct argument, 400 bytes, to memory of every work-item
// if an index into it is not a constant: after unrolling, each index is a constant.
#ifdef IS_CPU
#define FOR_DIMS(d, first, end) for (int d = (first); d < (end); d++)
#else
#define FOR_DIMS(d, first, end) UNROLL for (int d = (first); d < MAX_DIMS && d < (end); d++)
#endif

// Byte offset of one operand at position `index` of the dimensions from `first`.
INLINE INLINED_ON_GPUS long offset_from(const Layout *layout, int operand, int first, long index) {
  const int last = layout->ndim - 1;
  long offset = 0;
  FOR_DIMS(d, first, layout->ndim) {
    // The last dimension takes the remainder, without a division.
    const long size = layout->sizes[d], rest = d < last ? index / size : 0;
    offset += (index - rest * size) * layout->strides[operand][d];
    index = rest;
  }
  return offset;
}
