// Batch, layer, root-mean-square and group normalisation, forward and backward (CLASS_F and CLASS_D).
//
// Tensors are dense and viewed as [outer, channels, inner]; weight and bias have one value per channel.
//
//   batch norm  NCHW [N, C, HW] or channels-last [NHW, C, 1]; one mean per channel, found by var_mean.cl
//   layer norm  [rows, row, 1]; one mean per row. RMS norm: the same with 0 as the mean, whose pointer is null
//   group norm  [N, C, HW]; one mean for each of `groups` runs of channels of a sample
//
// In all of them xhat = (x - mean) * rstd and y = xhat * weight + bias. mean[o * stat_outer + c / stat_channels]
// belongs to sample o and channel c: (0, 1) for batch norm, (1, channels) for layer norm, (groups, channels / groups)
// for group norm. Optional tensors are null if absent.

#ifdef CLASS_D
#define DT_T DT_F64
#else
#define DT_T DT_F32
#endif

// Weights (or biases) of the elements i to i + VEC - 1 of a run. They share the weight of `channel`, or, with
// `by_element`, have one each, of the run's `n` weights from `channel` on.
INLINE TV load_weights(__global const uchar *weights, int dtype, long channel_index, long i, long n, bool by_element,
                       T absent) {
  if (!weights) return (TV)absent;
  if (!by_element) return (TV)load(weights, channel_index, dtype);
  return load_part(weights + channel_index * dtype_size(dtype), i, n, dtype, 0);
}

// Adds an item's elements of a row, run by run.
INLINE void sum_runs(__global const uchar *x, long length, long span, int dtype, BlockSum *sum) {
  for (long run = 0; run < length; run += span, x += span * dtype_size(dtype)) {
    FOR_BLOCKS(begin, end, span) {
      FOR_VECTORS(i, begin, end) sum->part += load_part(x, i, span, dtype, 0);
      count_chain(sum, end - begin);
    }
  }
}

// Sum of squares of x - center over the same elements. Four chains, as additions of one chain wait for each other, but
// no array of them, which PoCL would keep in memory.
INLINE T sum_squares(__global const uchar *x, long length, int dtype, T center) {
#define CENTERED_SQUARE(value) (((value) - center) * ((value) - center))
  const long step = LSIZE * VEC, block = 4 * CHAIN * step;
  BlockSum sum;
  empty_sum(&sum);
  for (long begin = 0; begin < length; begin += block) {
    TV a = (TV)0, b = (TV)0, c = (TV)0, d = (TV)0;
    long end = min(length, begin + block), i = begin + get_local_id(0) * VEC;
    for (; i + 3 * step + VEC <= end; i += 4 * step) {
      a += CENTERED_SQUARE(load_vector(x, i, dtype));
      b += CENTERED_SQUARE(load_vector(x, i + step, dtype));
      c += CENTERED_SQUARE(load_vector(x, i + 2 * step, dtype));
      d += CENTERED_SQUARE(load_vector(x, i + 3 * step, dtype));
    }
    // Lanes past the end hold the mean, so that their deviation is 0.
    for (; i < end; i += step) a += CENTERED_SQUARE(load_part(x, i, end, dtype, center));
    sum.part = (a + b) + (c + d);
    if (end < length) end_chain(&sum);
  }
  return finish_sum(&sum);
#undef CENTERED_SQUARE
}

// True if sums of the next row are computed ahead. On GPUs other groups run while one waits for memory, and such sums
// would take the registers that those groups need.
#ifdef IS_CPU
#define SUMS_AHEAD true
#else
#define SUMS_AHEAD false
#endif

// Layer and group norm: a group normalises whole rows of `length` elements, each with its own mean.
// Row r holds the channels from (r % groups) * (length / inner) on, with `inner` elements each.
__kernel GROUPS_OF(LSIZE) void norm_rows(__global const uchar *input, ulong input_offset, int dtype0,
                                         __global const uchar *weight, ulong weight_offset, __global const uchar *bias,
                                         ulong bias_offset, int dtype1, __global uchar *output, ulong output_offset,
                                         __global uchar *mean, ulong mean_offset, __global uchar *rstd,
                                         ulong rstd_offset, int stat_dtype, long rows, long length, long groups,
                                         long inner, TR eps) {
  weight = weight ? weight + weight_offset : weight;
  bias = bias ? bias + bias_offset : bias;
  bool by_element = inner == 1;
  long span = by_element ? length : inner, size = dtype_size(DTYPE0);
  GROUP_SHARED(shared);
  GROUP_TASKS(rows, first, last);
  // Each row is summed while the previous row is written, so that reads and writes of memory overlap. It is summed in
  // the order of sum_runs, so that its result does not depend on its position.
  BlockSum sums;
  empty_sum(&sums);
  if (SUMS_AHEAD && mean && first < last)
    sum_runs(input + input_offset + first * length * size, length, span, DTYPE0, &sums);
  for (long row = first; row < last; row++) {
    __global const uchar *x = input + input_offset + row * length * size;
    __global const uchar *next = row + 1 < last ? x + length * size : x;
    __global uchar *y = output + output_offset + row * length * size;
    T center = 0;
    if (!SUMS_AHEAD && mean) sum_runs(x, length, span, DTYPE0, &sums);
    if (mean) center = group_sum(finish_sum(&sums), shared) / (T)length;
    empty_sum(&sums);
    T squares = sum_squares(x, length, DTYPE0, center);
    T scale = 1 / sqrt(group_sum(squares, shared) / (T)length + eps);
    if (get_local_id(0) == 0) {
      if (mean) store(mean + mean_offset, row, stat_dtype, center);
      store(rstd + rstd_offset, row, stat_dtype, scale);
    }
    long channel_index = row % groups * (length / inner);
    for (long run = 0; run < length; run += span, channel_index++) {
      // Read once if the run has one: compilers must assume that stores change it.
      TV run_weight = by_element ? (TV)1 : load_weights(weight, DTYPE1, channel_index, 0, span, false, 1) * scale;
      TV run_bias = by_element ? (TV)0 : load_weights(bias, DTYPE1, channel_index, 0, span, false, 0);
      FOR_BLOCKS(begin, end, span) {
        FOR_VECTORS(i, begin, end) {
          TV w = by_element ? load_weights(weight, DTYPE1, channel_index, i, span, true, 1) * scale : run_weight;
          TV b = by_element ? load_weights(bias, DTYPE1, channel_index, i, span, true, 0) : run_bias;
          TV d = load_part(x + run * size, i, span, DTYPE0, 0) - center;
          if (SUMS_AHEAD && mean) sums.part += load_part(next + run * size, i, span, DTYPE0, 0);
          store_part(y + run * size, i, span, DTYPE0, d * w + b);
        }
        if (SUMS_AHEAD) count_chain(&sums, end - begin);
      }
    }
  }
}

// Gradient of the input of norm_rows: with g = dy * weight, dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), means
// over the row. If a group is one item, `sums` may be given, for what norm_sums_rows and norm_sums_columns compute,
// with a split per group: that saves reading dy and x again.
__kernel GROUPS_OF(LSIZE) void norm_rows_backward(
    __global const uchar *grad, ulong grad_offset, __global const uchar *input, ulong input_offset, int dtype0,
    __global const uchar *weight, ulong weight_offset, int dtype1, __global const uchar *mean, ulong mean_offset,
    __global const uchar *rstd, ulong rstd_offset, int stat_dtype, __global uchar *grad_input, ulong grad_input_offset,
    __global uchar *sums, ulong sums_offset, long rows, long length, long groups, long inner) {
  weight = weight ? weight + weight_offset : weight;
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC, size = dtype_size(DTYPE0);
  bool by_element = inner == 1;
  long span = by_element ? length : inner;
  long channels = groups * (length / inner), table_size = channels * sizeof(T);
  __global uchar *products_table = sums ? sums + sums_offset + get_group_id(0) * table_size : 0;
  __global uchar *totals_table = products_table + get_num_groups(0) * table_size;
  if (sums) {
    for (long i = first_part; i < channels; i += step) {
      store_part(products_table, i, channels, DT_T, (TV)0);
      store_part(totals_table, i, channels, DT_T, (TV)0);
    }
  }
  GROUP_SHARED(shared);
  GROUP_TASKS(rows, first, last);
  for (long row = first; row < last; row++) {
    __global const uchar *dy = grad + grad_offset + row * length * size;
    __global const uchar *x = input + input_offset + row * length * size;
    __global uchar *dx = grad_input + grad_input_offset + row * length * size;
    T center = mean ? load(mean + mean_offset, row, stat_dtype) : 0, scale = load(rstd + rstd_offset, row, stat_dtype);
    long channel_index = row % groups * (length / inner);
    TV totals = (TV)0, products = (TV)0;
    for (long run = 0, c = channel_index; run < length; run += span, c++) {
      TV run_weight = by_element ? (TV)1 : load_weights(weight, DTYPE1, c, 0, span, false, 1);
      TV run_sums = (TV)0, run_products = (TV)0;
      for (long i = first_part; i < span; i += step) {
        TV g = load_part(dy + run * size, i, span, DTYPE0, 0);
        if (by_element) g *= load_weights(weight, DTYPE1, c, i, span, true, 1);
        run_sums += g;
        run_products += g * (load_part(x + run * size, i, span, DTYPE0, 0) - center);
      }
      if (sums && !by_element) {
        ((__global T *)products_table)[c] += lanes_sum(run_products) * scale;
        ((__global T *)totals_table)[c] += lanes_sum(run_sums);
      }
      totals += run_sums * run_weight;
      products += run_products * run_weight;
    }
    T mean_g = mean ? group_sum(lanes_sum(totals), shared) / (T)length : 0;
    T mean_product = group_sum(lanes_sum(products), shared) * scale / (T)length;
    for (long run = 0, c = channel_index; run < length; run += span, c++) {
      TV run_weight = by_element ? (TV)1 : load_weights(weight, DTYPE1, c, 0, span, false, 1);
      for (long i = first_part; i < span; i += step) {
        TV g = load_part(dy + run * size, i, span, DTYPE0, 0);
        TV xhat = (load_part(x + run * size, i, span, DTYPE0, 0) - center) * scale;
        if (sums && by_element) {
          __global uchar *products_row = products_table + c * sizeof(T), *totals_row = totals_table + c * sizeof(T);
          store_part(products_row, i, span, DT_T, load_part(products_row, i, span, DT_T, 0) + g * xhat);
          store_part(totals_row, i, span, DT_T, load_part(totals_row, i, span, DT_T, 0) + g);
        }
        g *= by_element ? load_weights(weight, DTYPE1, c, i, span, true, 1) : run_weight;
        store_part(dx + run * size, i, span, DTYPE0, scale * (g - mean_g - xhat * mean_product));
      }
    }
  }
}

// Sums over samples and inner positions of dy * xhat and of dy: the gradients of weight and bias, as T
// [2][splits][channels]. A split takes a share of the samples.
#define SUMS_ARGUMENTS                                                                                              \
  __global const uchar *grad, ulong grad_offset, __global const uchar *input, ulong input_offset, int dtype0,       \
      __global const uchar *mean, ulong mean_offset, __global const uchar *rstd, ulong rstd_offset, int stat_dtype, \
      __global uchar *sums, ulong sums_offset, long outer, long channels, long inner, long stat_outer,              \
      long stat_channels, long splits

// A group sums one channel of a split.
__kernel GROUPS_OF(LSIZE) void norm_sums_rows(SUMS_ARGUMENTS) {
  __global T *results = (__global T *)(sums + sums_offset);
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC, size = dtype_size(DTYPE0);
  GROUP_SHARED(shared);
  GROUP_TASKS(channels * splits, first, last);
  for (long task = first; task < last; task++) {
    long channel_index = task % channels, split = task / channels;
    TV products = (TV)0, total = (TV)0;
    T last_products = 0, last_total = 0;
    for (long o = outer * split / splits; o < outer * (split + 1) / splits; o++) {
      long stat = o * stat_outer + channel_index / stat_channels, start = (o * channels + channel_index) * inner * size;
      __global const uchar *dy = grad + grad_offset + start, *x = input + input_offset + start;
      T center = load(mean + mean_offset, stat, stat_dtype), scale = load(rstd + rstd_offset, stat, stat_dtype);
      TV run_products = (TV)0;
      long i = first_part;
      for (; i + VEC <= inner; i += step) {
        TV g = load_vector(dy, i, DTYPE0);
        total += g;
        run_products += g * (load_vector(x, i, DTYPE0) - center);
      }
      products += run_products * scale;
      // In small planes the tail of a run is short, and faster element by element.
      for (; i < inner; i++) {
        T g = load(dy, i, DTYPE0);
        last_total += g;
        last_products += g * (load(x, i, DTYPE0) - center) * scale;
      }
    }
    T product_sum = group_sum(lanes_sum(products) + last_products, shared);
    T sum = group_sum(lanes_sum(total) + last_total, shared);
    if (get_local_id(0) == 0) {
      results[task] = product_sum;
      results[splits * channels + task] = sum;
    }
  }
}

// Vectors of channels that an item sums together: whole rows of most layers, which are then read in order. An item
// on a GPU takes one, as its neighbours take the next. mod.rs has the same values.
#if LSIZE == 1
#define STRIP 64
#else
#define STRIP 1
#endif

// Mean and scale of the channels from c on.
#define LOAD_STATISTICS(c) \
  (center = load_part(mean, c, channels, stat_dtype, 0), scale = load_part(rstd, c, channels, stat_dtype, 0))

// For inner == 1, and one mean per channel or per sample: items sum STRIP * VEC neighbouring channels of a split, with
// the columns of columns.cl.
__kernel GROUPS_OF(LSIZE) void norm_sums_columns(SUMS_ARGUMENTS, int parts) {
  mean = mean ? mean + mean_offset : mean;
  rstd += rstd_offset;
  int size = dtype_size(DTYPE0);
  long strips = (channels + STRIP * VEC - 1) / (STRIP * VEC), row_size = channels * size;
  Lanes products[STRIP], totals[STRIP];
#if LSIZE > 1
  __local TV products_of[LSIZE], totals_of[LSIZE];
#endif
  COLUMN_TASKS(strips * splits, parts, false, first, last);
  for (long task = first; task < last; task++) {
    long begin = task % strips * STRIP * VEC, end = min(begin + STRIP * VEC, channels), split = task / strips;
    long first_row = outer * split / splits, last_row = outer * (split + 1) / splits;
    if (!IS_TASK(task, strips * splits)) last_row = first_row;
    for (int s = 0; s < STRIP; s++) products[s].vector = totals[s].vector = (TV)0;
    TV center = (TV)0, scale = (TV)1;
    if (STRIP == 1 && stat_outer == 0) LOAD_STATISTICS(begin);
    for (long o = first_row + PART; o < last_row; o += PARTS) {
      __global const uchar *dy = grad + grad_offset + o * row_size, *x = input + input_offset + o * row_size;
      if (stat_outer != 0) {
        center = mean ? (TV)load(mean, o, stat_dtype) : (TV)0;
        scale = (TV)load(rstd, o, stat_dtype);
      }
      for (long c = begin, s = 0; c < end; c += VEC, s++) {
        if (STRIP > 1 && stat_outer == 0) LOAD_STATISTICS(c);
        TV g = load_part(dy, c, channels, DTYPE0, 0);
        totals[s].vector += g;
        products[s].vector += g * ((load_part(x, c, channels, DTYPE0, 0) - center) * scale);
      }
    }
#if LSIZE > 1
    products_of[item] = products[0].vector;
    totals_of[item] = totals[0].vector;
    FOLD_PARTS(products_of[item] += products_of[other]; totals_of[item] += totals_of[other]);
    if (part > 0 || !IS_TASK(task, strips * splits)) continue;
    products[0].vector = products_of[item];
    totals[0].vector = totals_of[item];
#endif
    __global uchar *results = sums + sums_offset + split * channels * sizeof(T);
    for (long c = begin, s = 0; c < end; c += VEC, s++) {
      store_part(results, c, channels, DT_T, products[s].vector);
      store_part(results + splits * channels * sizeof(T), c, channels, DT_T, totals[s].vector);
    }
  }
}

// Adds up the splits of norm_sums_*, with the channels as columns of columns.cl, and stores the gradients of weight and
// bias. For batch norm it also stores, as T [4][channels], the a, b, c and d of dx = a * dy + b * (x - c) + d.
__kernel GROUPS_OF(LSIZE) void norm_sums_finish(__global const uchar *sums, ulong sums_offset,
                                                __global uchar *grad_weight, ulong grad_weight_offset,
                                                __global uchar *grad_bias, ulong grad_bias_offset,
                                                __global const uchar *weight, ulong weight_offset, int dtype1,
                                                __global const uchar *mean, ulong mean_offset,
                                                __global const uchar *rstd, ulong rstd_offset, int stat_dtype,
                                                __global uchar *coefficients, ulong coefficients_offset, long channels,
                                                long splits, long count, int training, int parts) {
#if LSIZE > 1
  __local T products_of[LSIZE], totals_of[LSIZE];
#endif
  COLUMN_TASKS(channels, parts, false, first, last);
  for (long channel_index = first; channel_index < last; channel_index++) {
    __global const T *found = (__global const T *)(sums + sums_offset) + channel_index;
    T products = 0, total = 0;
    for (long split = PART; split < splits && IS_TASK(channel_index, channels); split += PARTS) {
      products += found[split * channels];
      total += found[(splits + split) * channels];
    }
#if LSIZE > 1
    products_of[item] = products;
    totals_of[item] = total;
    FOLD_PARTS(products_of[item] += products_of[other]; totals_of[item] += totals_of[other]);
    if (part > 0 || !IS_TASK(channel_index, channels)) continue;
    products = products_of[item];
    total = totals_of[item];
#endif
    if (grad_weight) store(grad_weight + grad_weight_offset, channel_index, DTYPE1, products);
    if (grad_bias) store(grad_bias + grad_bias_offset, channel_index, DTYPE1, total);
    if (coefficients) {
      __global T *out = (__global T *)(coefficients + coefficients_offset) + channel_index;
      T scale = load(rstd + rstd_offset, channel_index, stat_dtype);
      T a = weight ? load(weight + weight_offset, channel_index, DTYPE1) * scale : scale;
      out[0] = a;
      // In evaluation the statistics are constants, and pass no gradient.
      out[channels] = training ? -a * scale * products / (T)count : 0;
      out[2 * channels] = load(mean + mean_offset, channel_index, stat_dtype);
      out[3 * channels] = training ? -a * total / (T)count : 0;
    }
  }
}
