// Batch normalisation with coefficient tables, from the statistics of var_mean.cl and norm.cl (CLASS_F and CLASS_D).

// One item per channel. Writes mean, rstd, weight * rstd and bias to `coefficients`, T [4][channels]. Stores mean and
// rstd for the backward pass, and updates the running statistics with `momentum`, if these tensors are given.
__kernel void batch_norm_prepare(__global const uchar *mean, ulong mean_offset, __global const uchar *variance,
                                 ulong variance_offset, int stat_dtype, __global const uchar *weight,
                                 ulong weight_offset, __global const uchar *bias, ulong bias_offset, int dtype1,
                                 __global uchar *running_mean, ulong running_mean_offset, __global uchar *running_var,
                                 ulong running_var_offset, int running_dtype, __global uchar *save_mean,
                                 ulong save_mean_offset, __global uchar *save_rstd, ulong save_rstd_offset,
                                 int save_dtype, __global uchar *coefficients, ulong coefficients_offset, long channels,
                                 long count, TR momentum, TR eps) {
  long channel_index = get_global_id(0);
  if (channel_index >= channels) return;
  T center = load(mean + mean_offset, channel_index, stat_dtype),
    var = load(variance + variance_offset, channel_index, stat_dtype);
  T scale = 1 / sqrt(var + eps);
  if (save_mean) store(save_mean + save_mean_offset, channel_index, save_dtype, center);
  if (save_rstd) store(save_rstd + save_rstd_offset, channel_index, save_dtype, scale);
  if (running_mean) {
    T old = load(running_mean + running_mean_offset, channel_index, running_dtype);
    store(running_mean + running_mean_offset, channel_index, running_dtype, (1 - momentum) * old + momentum * center);
  }
  if (running_var) {
    T old = load(running_var + running_var_offset, channel_index, running_dtype);
    T unbiased = var * (T)count / (T)(count - 1);
    store(running_var + running_var_offset, channel_index, running_dtype, (1 - momentum) * old + momentum * unbiased);
  }
  __global T *out = (__global T *)(coefficients + coefficients_offset) + channel_index;
  out[0] = center;
  out[channels] = scale;
  out[2 * channels] = weight ? scale * load(weight + weight_offset, channel_index, DTYPE1) : scale;
  out[3 * channels] = bias ? load(bias + bias_offset, channel_index, DTYPE1) : 0;
}

// Coefficient k of the neighbouring channels i to i + VEC - 1, and of channel c.
#define COEFFICIENTS(k) load_part(table + (k) * channels * sizeof(T), i, channels, DT_T, 0)
#define COEFFICIENT(k, c) ((__global const T *)table)[(k) * channels + (c)]

// Stores an item's results of a run of `inner` elements: VALUE(load_vector) of the vector at element i, VALUE(load) of
// element i. In small planes the tail is short, and faster element by element.
#define APPLY_TO_RUN(out, VALUE)                                      \
  for (long i = get_local_id(0) * VEC; i < inner; i += LSIZE * VEC) { \
    if (i + VEC <= inner) {                                           \
      store_vector(out, i, DTYPE0, VALUE(load_vector));               \
      continue;                                                       \
    }                                                                 \
    for (; i < inner; i++) store(out, i, DTYPE0, VALUE(load));        \
  }

// y = (x - mean) * (weight * rstd) + bias; a group takes whole runs of `inner` elements, of all channels if inner is 1.
__kernel GROUPS_OF(LSIZE) void batch_norm_apply(__global const uchar *input, ulong input_offset, int dtype0,
                                                __global const uchar *coefficients, ulong coefficients_offset,
                                                __global uchar *output, ulong output_offset, long outer, long channels,
                                                long inner) {
  __global const uchar *table = coefficients + coefficients_offset;
  long span = inner == 1 ? channels : inner;
  int size = dtype_size(DTYPE0);
  GROUP_TASKS(outer * channels * inner / span, first, last);
  for (long run = first; run < last; run++) {
    __global const uchar *x = input + input_offset + run * span * size;
    __global uchar *y = output + output_offset + run * span * size;
    if (inner == 1) {
      for (long i = get_local_id(0) * VEC; i < channels; i += LSIZE * VEC)
        store_part(y, i, channels, DTYPE0,
                   (load_part(x, i, channels, DTYPE0, 0) - COEFFICIENTS(0)) * COEFFICIENTS(2) + COEFFICIENTS(3));
      continue;
    }
    T center = COEFFICIENT(0, run % channels), factor = COEFFICIENT(2, run % channels);
    T shift = COEFFICIENT(3, run % channels);
#define NORMALISED(LOAD) (LOAD(x, i, DTYPE0) - center) * factor + shift
    APPLY_TO_RUN(y, NORMALISED)
  }
}

// dx = a * dy + b * (x - c) + d, with the coefficients of norm_sums_finish. In evaluation b is 0, and dx does not
// depend on x, even if x is not finite.
__kernel GROUPS_OF(LSIZE) void batch_norm_apply_backward(__global const uchar *grad, ulong grad_offset,
                                                         __global const uchar *input, ulong input_offset, int dtype0,
                                                         __global const uchar *coefficients, ulong coefficients_offset,
                                                         __global uchar *grad_input, ulong grad_input_offset,
                                                         long outer, long channels, long inner) {
  __global const uchar *table = coefficients + coefficients_offset;
  long span = inner == 1 ? channels : inner;
  int size = dtype_size(DTYPE0);
  GROUP_TASKS(outer * channels * inner / span, first, last);
  for (long run = first; run < last; run++) {
    __global const uchar *dy = grad + grad_offset + run * span * size;
    __global const uchar *x = input + input_offset + run * span * size;
    __global uchar *dx = grad_input + grad_input_offset + run * span * size;
    if (inner == 1) {
      for (long i = get_local_id(0) * VEC; i < channels; i += LSIZE * VEC) {
        TV slope = COEFFICIENTS(1), by_input = slope * (load_part(x, i, channels, DTYPE0, 0) - COEFFICIENTS(2));
        by_input = slope == (TV)0 ? (TV)0 : by_input;
        store_part(dx, i, channels, DTYPE0,
                   COEFFICIENTS(0) * load_part(dy, i, channels, DTYPE0, 0) + by_input + COEFFICIENTS(3));
      }
      continue;
    }
    T a = COEFFICIENT(0, run % channels), b = COEFFICIENT(1, run % channels);
    T c = COEFFICIENT(2, run % channels), d = COEFFICIENT(3, run % channels);
#define INPUT_GRADIENT(LOAD) a *LOAD(dy, i, DTYPE0) + b *(LOAD(x, i, DTYPE0) - c) + d
#define SCALED_GRADIENT(LOAD) a *LOAD(dy, i, DTYPE0) + d
    if (b == 0) {
      APPLY_TO_RUN(dx, SCALED_GRADIENT)
    } else {
      APPLY_TO_RUN(dx, INPUT_GRADIENT)
    }
  }
}
