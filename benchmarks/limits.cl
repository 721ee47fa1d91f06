// Limits of the device for an OpenCL program: bytes to and from memory, and multiply-adds from registers.
//
// Each work-group has a slice of the vectors, which its items access in turns. On a CPU a group has one item, which
// walks through neighbouring addresses, as suits the prefetcher; a GPU's groups have many, whose accesses coalesce.

#define EACH(i, count)                                                            \
  const size_t slice = ((count) + get_num_groups(0) - 1) / get_num_groups(0);     \
  const size_t end = min(((size_t)get_group_id(0) + 1) * slice, (size_t)(count)); \
  for (size_t i = get_group_id(0) * slice + get_local_id(0); i < end; i += get_local_size(0))

// Bytes that an item moves at a time: a cache line on CPUs; on GPUs few enough that neighbouring items read neighbours.
#define ADD_LANES_2(v) (v.s0 + v.s1)
#define ADD_LANES_4(v) (ADD_LANES_2(v.lo) + ADD_LANES_2(v.hi))
#define ADD_LANES_8(v) (ADD_LANES_4(v.lo) + ADD_LANES_4(v.hi))
#define ADD_LANES_16(v) (ADD_LANES_8(v.lo) + ADD_LANES_8(v.hi))
#if VECTOR_BYTES == 64
#define FLOATS float16
#define DOUBLES double8
#define ADD_FLOATS ADD_LANES_16
#define ADD_DOUBLES ADD_LANES_8
#else
#define FLOATS float4
#define DOUBLES double2
#define ADD_FLOATS ADD_LANES_4
#define ADD_DOUBLES ADD_LANES_2
#endif

kernel void sum(global const FLOATS *a, global float *result, ulong count) {
  // Four sums at a time: with one, the additions would wait for each other. The four vectors are `quarter` apart, so
  // that items access neighbours.
  const ulong quarter = count / 4;
  FLOATS s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  EACH(i, quarter) {
    s0 += a[i];
    s1 += a[i + quarter];
    s2 += a[i + 2 * quarter];
    s3 += a[i + 3 * quarter];
  }
  s0 += s1 + s2 + s3;
  result[get_global_id(0)] = ADD_FLOATS(s0);
}

kernel void copy(global const FLOATS *a, global FLOATS *b, ulong count) {
  EACH(i, count) b[i] = a[i];
}

kernel void triad(global const FLOATS *a, global const FLOATS *b, global FLOATS *c, ulong count) {
  EACH(i, count) c[i] = a[i] + 1.5f * b[i];
}

// Twelve chains keep two units busy, each with a latency of four or five, and fit 32 vector registers.
#define DEFINE_FMA(name, T, V, add_lanes)                                                                             \
  kernel void name(global T *result, T factor, T term, uint rounds) {                                                 \
    const V f = factor, t = term;                                                                                     \
    V a = t, b = t + 1, c = t + 2, d = t + 3, e = t + 4, g = t + 5, h = t + 6, i = t + 7, j = t + 8, k = t + 9;       \
    V l = t + 10, m = t + 11;                                                                                         \
    for (uint round = 0; round < rounds; ++round) {                                                                   \
      a = fma(a, f, t), b = fma(b, f, t), c = fma(c, f, t), d = fma(d, f, t), e = fma(e, f, t), g = fma(g, f, t);     \
      h = fma(h, f, t), i = fma(i, f, t), j = fma(j, f, t), k = fma(k, f, t), l = fma(l, f, t), m = fma(m, f, t);     \
    }                                                                                                                 \
    a += b + c + d + e + g + h + i + j + k + l + m;                                                                   \
    result[get_global_id(0)] = add_lanes(a);                                                                          \
  }

DEFINE_FMA(fma_float, float, FLOATS, ADD_FLOATS)
#ifdef cl_khr_fp64
DEFINE_FMA(fma_double, double, DOUBLES, ADD_DOUBLES)
#endif
