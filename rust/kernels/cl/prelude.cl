// Types, element access and selection shared by every kernel family.
//
// A program is built for one *compute class*: the type that arithmetic is done in. Storage types are
// converted on load and on store, so one kernel serves every mix of dtypes.
//
//   CLASS_F  float    for f16, bf16, f32          CLASS_D  double   for f64
//   CLASS_I  long     for bool and all integers   CLASS_C  float2   for complex64
//                                                 CLASS_Z  double2  for complex128
//
// HAS_FP64 is defined where the device computes in double; other devices never see a double here.
// dtype codes are those of c10::ScalarType.

// Compilers call a large function rather than copy it. In a specialised program what it holds is small, as the switch
// over the dtype falls away, and must not be called for every vector: a sum over 16 M floats takes a third longer so.
#ifdef SPEC_DTYPE0
#define INLINE inline __attribute__((always_inline))
#else
#define INLINE inline
#endif

// What is rarely needed and long is not copied to where it is used. On CPUs PoCL compiles the text of a kernel three times,
// and that of a function which it calls once.
#ifdef IS_CPU
#define OUTLINED __attribute__((noinline))
#else
#define OUTLINED inline
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

#if defined(CLASS_F)
typedef float T;
typedef int TI;
#elif defined(CLASS_D)
typedef double T;
typedef long TI;
#elif defined(CLASS_I)
typedef long T;
typedef long TI;
#elif defined(CLASS_C)
typedef float2 T;
typedef float TR;
#elif defined(CLASS_Z)
typedef double2 T;
typedef double TR;
#endif

#if defined(CLASS_C) || defined(CLASS_Z)
#define IS_COMPLEX 1
#elif defined(CLASS_I)
#define IS_INTEGER 1
#else
#define IS_FLOAT 1
#endif

// A floating literal of the precision that is computed in: LIT(0.5) is 0.5f where that is single. A literal without it is
// a double, which what it meets becomes, too; expressions of the op table get theirs by themselves.
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
    default: return 1;
  }
}

// Round to nearest even, NaN kept quiet.
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
#define IS_NONZERO(v) ((v).x != 0 || (v).y != 0)
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

// Integers are never NaN, and compilers warn of one that is compared with itself.
#ifdef IS_INTEGER
#define IS_NAN(v) 0
#else
#define IS_NAN(v) isnan(v)
#endif

// Out-of-range float to integer goes through long, as PyTorch's x86 kernels do in effect.
#ifdef IS_INTEGER
#define TO_LONG(v) (v)
#else
#define TO_LONG(v) ((long)REAL(v))
#endif

// Element at byte address p, stored as dt.
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
    case DT_C64: return FROM_PAIR(((__global const float *)p)[0], ((__global const float *)p)[1]);
#ifdef HAS_FP64
    case DT_F64: return FROM_REAL(*(__global const double *)p);
    case DT_C128: return FROM_PAIR(((__global const double *)p)[0], ((__global const double *)p)[1]);
#endif
  }
  return FROM_REAL(0);
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
    case DT_C64:
      ((__global float *)p)[0] = (float)PAIR_X(v);
      ((__global float *)p)[1] = (float)PAIR_Y(v);
      break;
#ifdef HAS_FP64
    case DT_F64: *(__global double *)p = (double)REAL(v); break;
    case DT_C128:
      ((__global double *)p)[0] = (double)PAIR_X(v);
      ((__global double *)p)[1] = (double)PAIR_Y(v);
      break;
#endif
  }
}

// Element i of a tensor that starts at p.
INLINE T load(__global const uchar *p, long i, int dt) { return load_at(p + i * dtype_size(dt), dt); }
INLINE void store(__global uchar *p, long i, int dt, T v) { store_at(p + i * dtype_size(dt), dt, v); }

// Index of 64-bit integers, used for index tensors in any compute class.
INLINE long load_index(__global const uchar *p, long i, int dt) {
  return dt == DT_I64 ? ((__global const long *)p)[i] : (long)((__global const int *)p)[i];
}

// Vectors that go past the caches to an address that is a multiple of their size, where the host sets SPEC_STREAM: the
// output is larger than what a CPU's cores keep near, and its lines need not be read before they are overwritten. A copy of
// 64 MB takes 2.0 to 2.7 ms instead of 4.0 to 4.8, and 4.2 to 4.6 instead of 5.5 to 6.6 with a sum over its result
// (PoCL, 2 cores). The builtin is clang's. Threads end a command with a locked instruction, which such stores do not pass.
#if defined(SPEC_STREAM) && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define STREAMS(p, v) (((uintptr_t)(p) & (sizeof(v) - 1)) == 0)
#define STREAM(p, type, v) __builtin_nontemporal_store(v, (__global type *)(p))
#endif
#endif
#ifndef STREAMS
#define STREAMS(p, v) false
#define STREAM(p, type, v)
#endif

// Strided layout of up to MAX_DIMS dimensions and MAX_OPERANDS operands, innermost dimension first.
// Strides are in bytes. Passed by value; rust/kernels/layout.rs holds the same struct.
#define MAX_DIMS 8
#define MAX_OPERANDS 5
typedef struct {
  long sizes[MAX_DIMS];
  long strides[MAX_OPERANDS][MAX_DIMS];
  int ndim;
  int pad;
} Layout;
