// Interpolation and padding: each output is a weighted sum of inputs, and the weights of one dimension do not depend
// on the position along the others.
//
//   output[.., z, y, x] = sum over k, j, i of  Wz[z, k] Wy[y, j] Wx[x, i] input[.., k, j, i]
//
// W is a sparse matrix, one for each of the up to three spatial dimensions. `resample_tables` computes its non-zero
// elements, `resample` sums. The gradient uses the same kernels with the matrices transposed, so it gathers too: no
// atomics, and a fixed order of summation.
//
// The table of a dimension of n output positions, each with at most `width` elements, is stored for vectors of
// neighbouring positions, with a pitch of n rounded up to 16:
//   int counts[pitch]   int indices[width][pitch]   TR weights[width][pitch]

// Rules that find the input positions of an output position: values of `ResampleRule`.
#define RULE_REPLICATE 0
#define RULE_REFLECT 1
#define RULE_NEAREST 2
#define RULE_NEAREST_EXACT 3
#define RULE_LINEAR 4
#define RULE_CUBIC 5
#define RULE_SMOOTH_LINEAR 6
#define RULE_SMOOTH_CUBIC 7
#define RULE_SMOOTH_LANCZOS 8

// One dimension. `fine` counts the positions of the result of interpolation, `coarse` those of its input; `transposed`
// tables are for the gradient, whose output is that input.
typedef struct {
  int rule;
  int align_corners;
  int transposed;
  int width;
  long coarse;
  long fine;
  long shift;  // padding before the first element
  long start;  // of the table, in bytes
  ulong scale;  // coarse positions to a fine one, as the bits of a TF
} ResampleAxis;
SHARED(ResampleAxis, 56);

#define AXES_ARGUMENTS ResampleAxis x_axis, ResampleAxis y_axis, ResampleAxis z_axis

// Integers are interpolated by rules that give one element of weight 1; its position is computed in float.
#ifdef IS_INTEGER
typedef float TF;
#else
typedef TR TF;
#endif

static inline long positions(const ResampleAxis *axis) { return axis->transposed ? axis->coarse : axis->fine; }
static inline long pitch(long n) { return (n + 15) / 16 * 16; }

static inline __global int *table_counts(__global uchar *tables, const ResampleAxis *axis) {
  return (__global int *)(tables + axis->start);
}
static inline __global int *table_indices(__global uchar *tables, const ResampleAxis *axis) {
  return table_counts(tables, axis) + pitch(positions(axis));
}
static inline __global TR *table_weights(__global uchar *tables, const ResampleAxis *axis) {
  return (__global TR *)(table_indices(tables, axis) + axis->width * pitch(positions(axis)));
}

static inline TF scale_of(const ResampleAxis *axis) {
#if defined(CLASS_D) || defined(CLASS_Z)
  return as_double(axis->scale);
#else
  return as_float((uint)axis->scale);
#endif
}

// Keys' cubic convolution; its parameter is -0.75 for interpolation and -0.5 for smoothing, as in PyTorch.
static inline TF cubic_near(TF x, TF a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
static inline TF cubic_far(TF x, TF a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

static inline TF sinc_pi(TF x) { return x == 0 ? (TF)1 : sinpi(x) / (LIT(3.141592653589793) * x); }

// The kernel of a smoothing rule at distance x, and how far it reaches.
static inline TF smooth_kernel(int rule, TF x) {
  x = fabs(x);
  if (rule == RULE_SMOOTH_LINEAR) return x < 1 ? 1 - x : (TF)0;
  if (rule == RULE_SMOOTH_CUBIC) return x < 1 ? cubic_near(x, -LIT(0.5)) : x < 2 ? cubic_far(x, -LIT(0.5)) : (TF)0;
  return x < 3 ? sinc_pi(x) * sinc_pi(x / 3) : (TF)0;
}
static inline TF smooth_reach(int rule) { return rule == RULE_SMOOTH_LINEAR ? 1 : rule == RULE_SMOOTH_CUBIC ? 2 : 3; }

// Input of one fine position: `count` coarse positions from `first` on. Weights are in `near`, or for a smoothing
// rule the kernel around `center` divided by `total`.
typedef struct {
  long first;
  int count;
  TF near[4];
  TF center, slope, total;
} KernelElements;

static inline KernelElements smooth_elements(const ResampleAxis *axis, long o) {
  KernelElements t;
  TF scale = scale_of(axis);
  TF wide = fmax(scale, (TF)1);
  TF reach = smooth_reach(axis->rule) * wide;
  t.center = scale * ((TF)o + LIT(0.5));
  t.slope = 1 / wide;
  t.first = max((long)(t.center - reach + LIT(0.5)), 0l);
  t.count = (int)max(min((long)(t.center + reach + LIT(0.5)), axis->coarse) - t.first, 0l);
  TF total = 0;
  for (int k = 0; k < t.count; k++)
    total += smooth_kernel(axis->rule, ((TF)(t.first + k) - t.center + LIT(0.5)) * t.slope);
  t.total = total == 0 ? (TF)1 : total;
  return t;
}

static inline KernelElements find_elements(const ResampleAxis *axis, long o) {
  if (axis->rule >= RULE_SMOOTH_LINEAR) return smooth_elements(axis, o);
  KernelElements t;
  TF scale = scale_of(axis);
  t.count = 1;
  t.near[0] = 1;
  if (axis->rule == RULE_REPLICATE || axis->rule == RULE_REFLECT) {
    t.first = o - axis->shift;
  } else if (axis->rule == RULE_NEAREST) {
    // In float for all dtypes, as on other devices; the scale is a float too.
    t.first = (long)floor((float)o * (float)scale);
  } else if (axis->rule == RULE_NEAREST_EXACT) {
    t.first = (long)floor(((float)o + 0.5f) * (float)scale);
  } else if (axis->rule == RULE_LINEAR && axis->coarse == axis->fine) {
    t.first = o;
  } else {
    TF at = axis->align_corners ? scale * (TF)o : scale * ((TF)o + LIT(0.5)) - LIT(0.5);
    if (axis->rule == RULE_LINEAR) at = fmax(at, (TF)0);
    long low = min((long)floor(at), axis->coarse - 1);
    TF x = clamp(at - (TF)low, (TF)0, (TF)1);
    if (axis->rule == RULE_LINEAR) {
      t.first = low;
      t.count = 2;
      t.near[0] = 1 - x;
      t.near[1] = x;
    } else {
      TF a = -LIT(0.75);
      t.first = low - 1;
      t.count = 4;
      t.near[0] = cubic_far(x + 1, a);
      t.near[1] = cubic_near(x, a);
      t.near[2] = cubic_near(1 - x, a);
      t.near[3] = cubic_far(2 - x, a);
    }
  }
  return t;
}

// Coarse position of element k; positions outside are moved inside.
static inline long element_index(const ResampleAxis *axis, const KernelElements *t, int k) {
  long i = t->first + k, last = axis->coarse - 1;
  if (axis->rule == RULE_REFLECT) {
    if (i < 0) i = -i;
    if (i > last) i = 2 * last - i;
  }
  return clamp(i, 0l, last);
}

static inline TF element_weight(const ResampleAxis *axis, const KernelElements *t, int k) {
  if (axis->rule < RULE_SMOOTH_LINEAR) return t->near[k];
  return smooth_kernel(axis->rule, ((TF)(t->first + k) - t->center + LIT(0.5)) * t->slope) / t->total;
}

// Fine positions [begin, end) that may read coarse position i. At the ends there are more: positions outside are
// moved there.
static inline void candidates(const ResampleAxis *axis, long i, long *begin, long *end) {
  TF low, high;
  if (axis->rule == RULE_REPLICATE) {
    low = high = (TF)(i + axis->shift);
  } else {
    // Interpolation reaches at most two positions to each side, smoothing as far as its kernel.
    TF scale = scale_of(axis);
    TF reach = axis->rule < RULE_SMOOTH_LINEAR ? (TF)2 : smooth_reach(axis->rule) * fmax(scale, (TF)1);
    low = ((TF)i - reach - 1) / scale;
    high = ((TF)i + reach + 1) / scale;
  }
  // Clamped in floating point: a scale of 0 makes these infinite.
  TF most = (TF)axis->fine;
  *begin = i == 0 ? 0 : max((long)clamp(low, (TF)0, most) - 2, 0l);
  *end = i == axis->coarse - 1 ? axis->fine : min((long)clamp(high, (TF)0, most) + 3, axis->fine);
}

// Adds fine position o to the column of coarse position i, if o reads it.
static inline int append_reader(const ResampleAxis *axis, long i, long o, int count, __global int *indices,
                                __global TR *weights, long step) {
  KernelElements t = find_elements(axis, o);
  TF weight = 0;
  bool reads = false;
  for (int k = 0; k < t.count; k++) {
    if (element_index(axis, &t, k) != i) continue;
    weight += element_weight(axis, &t, k);
    reads = true;
  }
  // Positions before the first also read the second, with weight 0: there may be more of these than the table can hold.
  if (!reads || weight == 0 || count == axis->width) return count;
  indices[count * step] = (int)o;
  weights[count * step] = (TR)weight;
  return count + 1;
}

// One work-item per position of each dimension.
__kernel void resample_tables(__global uchar *tables, ulong tables_offset, AXES_ARGUMENTS) {
  tables += tables_offset;
  long p = get_global_id(0);
  ResampleAxis axis = x_axis;
  if (p >= positions(&axis)) {
    p -= positions(&axis);
    axis = y_axis;
    if (p >= positions(&axis)) {
      p -= positions(&axis);
      axis = z_axis;
      if (p >= positions(&axis)) return;
    }
  }
  long step = pitch(positions(&axis));
  __global int *indices = table_indices(tables, &axis) + p;
  __global TR *weights = table_weights(tables, &axis) + p;
  int count = 0;
  if (!axis.transposed) {
    KernelElements t = find_elements(&axis, p);
    for (; count < min(t.count, axis.width); count++) {
      indices[count * step] = (int)element_index(&axis, &t, count);
      weights[count * step] = (TR)element_weight(&axis, &t, count);
    }
  } else if (axis.rule == RULE_REFLECT) {
    // Read directly, and through the mirror images beyond either end.
    long images[3] = {p, -p, 2 * (axis.coarse - 1) - p};
    for (int image = 0; image < 3; image++) {
      long o = images[image] + axis.shift;
      bool seen = false;
      for (int k = 0; k < image; k++) seen |= images[k] == images[image];
      if (o >= 0 && o < axis.fine && !seen) count = append_reader(&axis, p, o, count, indices, weights, step);
    }
  } else {
    long begin, end;
    candidates(&axis, p, &begin, &end);
    for (long o = begin; o < end; o++) count = append_reader(&axis, p, o, count, indices, weights, step);
  }
  table_counts(tables, &axis)[p] = count;
  // resample_rows reads elements at these indices, and discards them.
  for (; count < axis.width; count++) indices[count * step] = 0;
}

// The elements of one position of a dimension.
typedef struct {
  int count;
  long step;
  __global const int *indices;
  __global const TR *weights;
} TableRow;

static inline TableRow table_row(__global uchar *tables, const ResampleAxis *axis, long p) {
  TableRow row;
  row.count = table_counts(tables, axis)[p];
  row.step = pitch(positions(axis));
  row.indices = table_indices(tables, axis) + p;
  row.weights = table_weights(tables, axis) + p;
  return row;
}

// Returns true if VEC neighbouring positions take equally many elements, as all but those at the borders do.
static inline bool count_alike(__global const int *counts) {
#if VEC == 1
  return true;
#else
  return !any(VLOAD(0, counts) != (PASTE(int, VEC))(counts[0]));
#endif
}

// Sums `n` <= VEC neighbouring output positions along x.
static inline TV sum_columns(__global uchar *tables, const ResampleAxis *x_axis, TableRow y, TableRow z, long x, int n,
                             __global const uchar *in, long x_step, long y_step, long z_step, int dtype0) {
  TableRow row = table_row(tables, x_axis, x);
  __global const int *counts = table_counts(tables, x_axis) + x;
  // With few elements the conditions cost less than comparing counts.
  bool alike = x_axis->width > 2 && n == VEC && count_alike(counts);
  int most = alike ? row.count : x_axis->width;
  TV sum = (TV)0;
  for (int k = 0; k < z.count; k++) {
    for (int j = 0; j < y.count; j++) {
      __global const uchar *line = in + z.indices[k * z.step] * z_step + y.indices[j * y.step] * y_step;
      TR outer = z.weights[k * z.step] * y.weights[j * y.step];
      for (int i = 0; i < most; i++) {
        __global const int *indices = row.indices + i * row.step;
        __global const TR *weights = row.weights + i * row.step;
        Lanes v;
        if (alike) {
          // Without the conditions below these become one gather.
          for (int l = 0; l < VEC; l++) v.lanes[l] = load_at(line + indices[l] * x_step, DTYPE0) * (outer * weights[l]);
        } else {
          for (int l = 0; l < VEC; l++)
            v.lanes[l] = l < n && i < counts[l] ? load_at(line + indices[l] * x_step, DTYPE0) * (outer * weights[l])
                                                : FROM_REAL(0);
        }
        sum += v.vector;
      }
    }
  }
  return sum;
}

// Sums neighbouring channels of one output position; `in` is the first of them.
static inline TV sum_channels(TableRow x, TableRow y, TableRow z, __global const uchar *in, long channel_step, int n,
                              long x_step, long y_step, long z_step, int dtype0) {
  TV sum = (TV)0;
  for (int k = 0; k < z.count; k++)
    for (int j = 0; j < y.count; j++) {
      __global const uchar *line = in + z.indices[k * z.step] * z_step + y.indices[j * y.step] * y_step;
      TR outer = z.weights[k * z.step] * y.weights[j * y.step];
      for (int i = 0; i < x.count; i++)
        sum += load_lanes(line + x.indices[i * x.step] * x_step, channel_step, n, DTYPE0) *
               (outer * x.weights[i * x.step]);
    }
  return sum;
}

// Layout: output, input over the output's positions [W, H, D, C, N]. A task is a vector along W, or along C if
// `by_channel` is set, as channels are neighbours then.
__kernel void resample(__global uchar *output, ulong output_offset, __global const uchar *input, ulong input_offset,
                       __global uchar *tables, ulong tables_offset, int dtype0, Layout layout, AXES_ARGUMENTS,
                       int by_channel) {
  tables += tables_offset;
  long width = layout.sizes[0], channels = layout.sizes[3];
  long lanes = by_channel ? channels : width, strips = (lanes + VEC - 1) / VEC;
  // Walks the tasks of a row in order, without a division for each.
  long of_row = by_channel ? strips * width : strips;
  long rows = (by_channel ? 1 : channels) * layout.sizes[1] * layout.sizes[2] * layout.sizes[4];
  ITEM_TASKS(rows * of_row, first, last);
  for (long task = first; task < last;) {
    long position = task % of_row, rest = task / of_row;
    long end = min(last, task + of_row - position);
    long x = by_channel ? position / strips : 0, strip = by_channel ? position % strips : position, channel_index = 0;
    long y = rest % layout.sizes[1];
    rest /= layout.sizes[1];
    long z = rest % layout.sizes[2];
    rest /= layout.sizes[2];
    if (!by_channel) {
      channel_index = rest % channels;
      rest /= channels;
    }
    TableRow y_row = table_row(tables, &y_axis, y), z_row = table_row(tables, &z_axis, z);
    __global const uchar *in =
        input + input_offset + channel_index * layout.strides[1][3] + rest * layout.strides[1][4];
    __global uchar *out = output + output_offset + y * layout.strides[0][1] + z * layout.strides[0][2] +
                          channel_index * layout.strides[0][3] + rest * layout.strides[0][4];
    TableRow x_row;
    if (by_channel) x_row = table_row(tables, &x_axis, x);
    for (; task < end; task++, strip++) {
      if (by_channel && strip == strips) {
        strip = 0;
        x_row = table_row(tables, &x_axis, ++x);
      }
      long at = strip * VEC;
      int n = (int)min(lanes - at, (long)VEC);
      if (by_channel) {
        long step = layout.strides[1][3];
        TV sum = sum_channels(x_row, y_row, z_row, in + at * step, step, n, layout.strides[1][0], layout.strides[1][1],
                              layout.strides[1][2], dtype0);
        store_lanes(out + x * layout.strides[0][0] + at * layout.strides[0][3], layout.strides[0][3], n, DTYPE0, sum);
      } else {
        TV sum = sum_columns(tables, &x_axis, y_row, z_row, at, n, in, layout.strides[1][0], layout.strides[1][1],
                             layout.strides[1][2], dtype0);
        store_lanes(out + at * layout.strides[0][0], layout.strides[0][0], n, DTYPE0, sum);
      }
    }
  }
}
