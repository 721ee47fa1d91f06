// Functions and macros for users' kernels, whose source follows. docs/kernels.md describes them.
//
// For a type parameter T of torch.opencl.compile_kernel, T, work_T, load_T and store_T are defined as the types and
// functions of its dtype here.

#ifdef HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define KERNEL kernel
#define GLOBAL __global
#define LOCAL __local
#define CONSTANT __constant

// --- work-items

#define ELEMENT ((long)get_global_id(0))
#define GLOBAL_ID(dim) ((long)get_global_id(dim))
#define GLOBAL_SIZE(dim) ((long)get_global_size(dim))
#define GROUP_ID(dim) ((long)get_group_id(dim))
#define GROUPS(dim) ((long)get_num_groups(dim))
#define LOCAL_ID(dim) ((int)get_local_id(dim))
#define LOCAL_SIZE(dim) ((int)get_local_size(dim))
#define LOCAL_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define GLOBAL_BARRIER() barrier(CLK_GLOBAL_MEM_FENCE)

// --- elements of tensors

typedef uchar bool_t;
// A struct, so that kernels cannot compute with its bits.
typedef struct {
  ushort bits;
} bfloat16_t;

static inline bfloat16_t bfloat16_of(float x) {
  bfloat16_t rounded;
  const uint u = as_uint(x);
  rounded.bits = (ushort)(x != x ? 0x7fc0u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  return rounded;
}
static inline float float_of(bfloat16_t x) { return as_float((uint)x.bits << 16); }

// The element with index i of a tensor that starts at p, in the compute type; rounded when it is stored.
#define DEFINE_ELEMENT(dtype, storage, work, read, write)                             \
  static inline work load_##dtype(__global const storage *p, long i) { return read; } \
  static inline void store_##dtype(__global storage *p, long i, work v) { write; }
DEFINE_ELEMENT(bool, bool_t, int, p[i] != 0, p[i] = v != 0)
DEFINE_ELEMENT(uint8, uchar, int, p[i], p[i] = (uchar)v)
DEFINE_ELEMENT(int8, char, int, p[i], p[i] = (char)v)
DEFINE_ELEMENT(uint16, ushort, int, p[i], p[i] = (ushort)v)
DEFINE_ELEMENT(int16, short, int, p[i], p[i] = (short)v)
DEFINE_ELEMENT(uint32, uint, uint, p[i], p[i] = v)
DEFINE_ELEMENT(int32, int, int, p[i], p[i] = v)
DEFINE_ELEMENT(uint64, ulong, ulong, p[i], p[i] = v)
DEFINE_ELEMENT(int64, long, long, p[i], p[i] = v)
DEFINE_ELEMENT(float16, half, float, vload_half(i, p), vstore_half_rte(v, i, p))
DEFINE_ELEMENT(bfloat16, bfloat16_t, float, float_of(p[i]), p[i] = bfloat16_of(v))
DEFINE_ELEMENT(float32, float, float, p[i], p[i] = v)
DEFINE_ELEMENT(complex64, float2, float2, p[i], p[i] = v)
#ifdef HAS_FP64
DEFINE_ELEMENT(float64, double, double, p[i], p[i] = v)
DEFINE_ELEMENT(complex128, double2, double2, p[i], p[i] = v)
#endif

// --- work-groups

// Reduces a value of each work-item of a group; all items must call it. `scratch` has an element for each item, and may
// be used again afterwards. All items get the result.
#define DEFINE_GROUP_JOIN(name, joined)                                                              \
  static inline __attribute__((always_inline)) float name(float value, __local float *scratch) {     \
    const int rows = (int)(get_local_id(1) + get_local_size(1) * get_local_id(2));                   \
    const int item = (int)get_local_id(0) + (int)get_local_size(0) * rows;                           \
    scratch[item] = value;                                                                           \
    for (int count = (int)(get_local_size(0) * get_local_size(1) * get_local_size(2)); count > 1;) { \
      const int kept = (count + 1) / 2;                                                              \
      barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
      if (item < count / 2) {                                                                        \
        const float a = scratch[item], b = scratch[item + kept];                                     \
        scratch[item] = joined;                                                                      \
      }                                                                                              \
      count = kept;                                                                                  \
    }                                                                                                \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
    const float result = scratch[0];                                                                 \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
    return result;                                                                                   \
  }
DEFINE_GROUP_JOIN(group_sum, a + b)
DEFINE_GROUP_JOIN(group_max, a > b || a != a ? a : b)
DEFINE_GROUP_JOIN(group_min, a < b || a != a ? a : b)

//@CASES@
