"""The kernels of bitsandbytes' optimizers, in OpenCL C."""

from functools import cache

import torch

from torch_opencl.kernels import Kernel, compile_kernel

# Elements with a common scale, and the work-items of a group.
BLOCK = 256
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The rules of updates, which are macros of the source.
_RULES = ("ADAM", "ADEMAMIX", "MOMENTUM", "SQUARES", "LION")

_SOURCE = """
// A kernel is compiled for one rule: ADAM, ADEMAMIX, MOMENTUM, SQUARES or LION is 1.
#define HAS_SECOND (ADAM || ADEMAMIX)
#define STATES (1 + HAS_SECOND + ADEMAMIX)

// PoCL 3.1 shares a local array between groups if a function that it does not inline takes the array.
#define INLINE static inline __attribute__((always_inline))

typedef struct {
  float first, second, slow;
} State;

// Computes the new state, and returns what the learning rate multiplies. A mean is the last one times `beta` plus
// the new value times `fresh`.
INLINE float advance(State *s, float g, float beta1, float fresh1, float beta2, float fresh2, float beta3, float fresh3,
                     float alpha, float eps, float scale1, float scale2) {
#if HAS_SECOND
  s->first = s->first * beta1 + fresh1 * g;
  s->second = s->second * beta2 + fresh2 * g * g;
  float mean = s->first * scale1;
#if ADEMAMIX
  s->slow = s->slow * beta3 + fresh3 * g;
  mean += alpha * s->slow;
#endif
  return mean / (sqrt(s->second) * scale2 + eps);
#elif MOMENTUM
  s->first = s->first * beta1 + fresh1 * g;
  return s->first;
#elif SQUARES
  s->first = s->first * beta1 + fresh1 * g * g;
  return g / (sqrt(s->first) + eps);
#elif LION
  const float mean = s->first * beta1 + fresh1 * g;
  s->first = s->first * beta2 + fresh2 * g;
  return mean > 0 ? 1.0f : mean < 0 ? -1.0f : 0.0f;
#endif
}

INLINE State load_state(GLOBAL const float *state1, GLOBAL const float *state2, long i, long count) {
  State s;
  s.first = state1[i];
  s.second = HAS_SECOND ? state2[i] : 0;
  s.slow = ADEMAMIX ? state1[count + i] : 0;
  return s;
}

// An optimizer with one state passes it twice, and one whose updates have any norm passes a state as `norm`: neither is
// accessed.
KERNEL void update_32bit(GLOBAL T *p, GLOBAL const T *g, GLOBAL float *state1, GLOBAL float *state2,
                         GLOBAL const float *norm, const float limit, const float lr, const float kept,
                         const float coupled, const float g_scale, const float beta1, const float fresh1,
                         const float beta2, const float fresh2, const float beta3, const float fresh3,
                         const float alpha, const float eps, const float scale1, const float scale2,
                         const size_t count) {
  const long i = ELEMENT;
  const float raw = load_T(g, i), old = load_T(p, i);
  State s = load_state(state1, state2, i, count);
  float rate = lr;
#if HAS_LIMIT
  const float length = sqrt(norm[0]);
  if (length > limit) rate *= limit / length;
#endif
  const float update = advance(&s, raw * g_scale + coupled * old, beta1, fresh1, beta2, fresh2, beta3, fresh3, alpha,
                               eps, scale1, scale2);
  if (SKIPS_ZEROS && raw == 0) return;
  store_T(p, i, old * kept - rate * update);
  state1[i] = s.first;
#if HAS_SECOND
  state2[i] = s.second;
#endif
#if ADEMAMIX
  state1[count + i] = s.slow;
#endif
}

// The squares of the updates before their limit, a sum for each group.
KERNEL __attribute__((reqd_work_group_size(BLOCK, 1, 1))) void update_squares(
    GLOBAL const T *p, GLOBAL const T *g, GLOBAL const float *state1, GLOBAL const float *state2, GLOBAL float *sums,
    const float coupled, const float g_scale, const float beta1, const float fresh1, const float beta2,
    const float fresh2, const float beta3, const float fresh3, const float alpha, const float eps, const float scale1,
    const float scale2, const size_t count) {
  LOCAL float scratch[BLOCK];
  const long i = min(ELEMENT, (long)count - 1);
  const float raw = load_T(g, i);
  State s = load_state(state1, state2, i, count);
  const float update = advance(&s, raw * g_scale + coupled * load_T(p, i), beta1, fresh1, beta2, fresh2, beta3, fresh3,
                               alpha, eps, scale1, scale2);
  const bool counts = ELEMENT < (long)count && !(SKIPS_ZEROS && raw == 0);
  const float sum = group_sum(counts ? update * update : 0, scratch);
  if (LOCAL_ID(0) == 0) sums[GROUP_ID(0)] = sum;
}

// A work-item encodes several values on CPUs, as a vector.
#ifdef IS_CPU
#define LANES 8
typedef float8 Values;
typedef int8 Codes;
#define LOOKUP(t, i) ((float8)(t[i.s0], t[i.s1], t[i.s2], t[i.s3], t[i.s4], t[i.s5], t[i.s6], t[i.s7]))
#define LOAD(values, i) vload8(i, values)
#define STORE(codes, i, v) vstore8(convert_uchar8(v), i, codes)
#define MASK(comparison) (comparison)
#else
#define LANES 1
typedef float Values;
typedef int Codes;
#define LOOKUP(t, i) t[i]
#define LOAD(values, i) values[i]
#define STORE(codes, i, v) codes[i] = (uchar)v
#define MASK(comparison) (-(comparison))
#endif

// The codes of the nearest values; between two values it is the even code. `middles` has the middle of each two
// neighbours, and ends with an infinity.
INLINE Codes nearest(Values x, LOCAL const float *middles) {
  Codes code = 0;
  int step = BLOCK / 2;
#ifdef IS_CPU
  // Comparisons with a middle for all lanes are faster than lookups.
  step = 8;
#pragma unroll
  for (int i = 15; i < BLOCK - 1; i += 16) code -= middles[i] < x;
  code *= 16;
#endif
#pragma unroll
  for (; step > 0; step /= 2) {
    const Codes next = code + (step - 1);
    code += MASK(LOOKUP(middles, next) < x) & step;
  }
  return code + (MASK(LOOKUP(middles, code) == x) & code & 1);
}

// Returns the nearest codes of signed states. A code has the sign of its state.
INLINE Codes nearest_signed(Values x, LOCAL const float *middles, LOCAL const float *values) {
  const Codes code = nearest(x, middles);
  const Values value = LOOKUP(values, code);
  return code + (MASK(x > 0 && value < 0) & 1) - (MASK(x < 0 && value >= 0 && code > 0) & 1);
}

INLINE float largest(float16 v) {
  const float8 a = max(v.lo, v.hi);
  const float4 b = max(a.lo, a.hi);
  return max(max(b.s0, b.s1), max(b.s2, b.s3));
}

INLINE void load_codes(GLOBAL const float *codes, LOCAL float *values, LOCAL float *middles) {
  const int item = LOCAL_ID(0), next = min(item + 1, BLOCK - 1);
  values[item] = codes[item];
  middles[item] = item == next ? INFINITY : (codes[item] + codes[next]) * 0.5f;
}

// An optimizer with one state passes it, and what belongs to it, twice: the second is not accessed.
KERNEL __attribute__((reqd_work_group_size(BLOCK, 1, 1))) void update_8bit(
    GLOBAL T *p, GLOBAL const T *g, GLOBAL uchar *state1, GLOBAL float *absmax1, GLOBAL uchar *state2,
    GLOBAL float *absmax2, GLOBAL const float *codes1, GLOBAL const float *codes2, const float lr, const float kept,
    const float coupled, const float g_scale, const float beta1, const float fresh1, const float beta2,
    const float fresh2, const float beta3, const float fresh3, const float alpha, const float eps, const float scale1,
    const float scale2, const size_t count) {
  LOCAL float values1[BLOCK], middles1[BLOCK], values2[BLOCK], middles2[BLOCK];
  LOCAL float states[STATES * BLOCK], partial[STATES * 16], tops[STATES];
  LOCAL uchar codes[STATES * BLOCK];
  const long block = GROUP_ID(0), blocks = GROUPS(0);
  // Work-items after the end load the last element, and have the state 0.
  const long i = min(ELEMENT, (long)count - 1);
  const bool is_stored = ELEMENT < (long)count;
  const int item = LOCAL_ID(0);
  load_codes(codes1, values1, middles1);
#if HAS_SECOND
  load_codes(codes2, values2, middles2);
#endif
  LOCAL_BARRIER();
  const float raw = load_T(g, i), old = load_T(p, i);
  State s = {0, 0, 0};
  s.first = values1[state1[i]] * absmax1[block];
#if HAS_SECOND
  s.second = values2[state2[i]] * absmax2[block];
#endif
#if ADEMAMIX
  s.slow = values1[state1[count + i]] * absmax1[blocks + block];
#endif
  const State before = s;
  const float update = advance(&s, raw * g_scale + coupled * old, beta1, fresh1, beta2, fresh2, beta3, fresh3, alpha,
                               eps, scale1, scale2);
  float changed = old * kept - lr * update;
  if (SKIPS_ZEROS && raw == 0) {
    s = before;
    changed = old;
  }
  // With two states a gradient that is not finite resets them, and does not change the parameter.
  const bool is_reset = HAS_SECOND && !isfinite(raw);
  if (is_reset) changed = old;
  if (is_reset || !is_stored) s.first = s.second = s.slow = 0;
  if (is_stored) store_T(p, i, changed);
  states[item] = s.first;
#if HAS_SECOND
  states[BLOCK + item] = s.second;
#endif
#if ADEMAMIX
  states[2 * BLOCK + item] = s.slow;
#endif
  LOCAL_BARRIER();
  // The largest magnitudes, without NaNs, so that one does not spread to its block.
  if (item < STATES * 16) partial[item] = largest(fmax(fabs(vload16(item, states)), 0.0f));
  LOCAL_BARRIER();
  if (item < STATES) tops[item] = largest(vload16(item, partial));
  LOCAL_BARRIER();
  if (item < BLOCK / LANES) {
    const float top1 = tops[0] > 0 ? tops[0] : 1;
    STORE(codes, item, nearest_signed(LOAD(states, item) / top1, middles1, values1));
#if HAS_SECOND
    const float top2 = tops[1] > 0 ? tops[1] : 1;
    STORE((codes + BLOCK), item, nearest(LOAD((states + BLOCK), item) / top2, middles2));
#endif
#if ADEMAMIX
    const float top3 = tops[2] > 0 ? tops[2] : 1;
    STORE((codes + 2 * BLOCK), item, nearest_signed(LOAD((states + 2 * BLOCK), item) / top3, middles1, values1));
#endif
  }
  LOCAL_BARRIER();
  if (item == 0) {
    absmax1[block] = tops[0];
#if HAS_SECOND
    absmax2[block] = tops[1];
#endif
#if ADEMAMIX
    absmax1[blocks + block] = tops[2];
#endif
  }
  if (is_stored) {
    state1[i] = codes[item];
#if HAS_SECOND
    state2[i] = codes[BLOCK + item];
#endif
#if ADEMAMIX
    state1[count + i] = codes[2 * BLOCK + item];
#endif
  }
}
"""


@cache
def kernel(name: str, rule: str, skips_zeros: bool, has_limit: bool = False) -> Kernel:
    """Return a kernel of the source.

    Args:
        name: of the kernel.
        rule: one of the macros for rules.
        skips_zeros: leave elements as they are whose gradient is 0.
        has_limit: limit the norm of the update.

    Returns:
        The kernel, for parameters of the dtypes of ``DTYPES``.
    """
    constants = {other: other == rule for other in _RULES}
    constants |= {"SKIPS_ZEROS": skips_zeros, "HAS_LIMIT": has_limit}
    return compile_kernel(_SOURCE, name, types={"T": DTYPES}, constants={**constants, "BLOCK": BLOCK})
