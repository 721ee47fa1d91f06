// Interpolation at the positions of a grid (CLASS_F and CLASS_D), and both gradients.
//
// In every mode the weight of an element is a product of one weight for each dimension, so a position reads at most
// four elements along each of three dimensions. An index outside the input is stored as -1, and its element is ignored.
//
// Layouts list the dimensions [W, H, D, C, N] of the output; the grid has its coordinates, x first, in the
// dimension of channels.

// Values of at::native::GridSamplerInterpolation and GridSamplerPadding.
#define MODE_LINEAR 0
#define MODE_NEAREST 1
#define MODE_CUBIC 2
#define PADDING_ZEROS 0
#define PADDING_BORDER 1
#define PADDING_REFLECTION 2

// Parameters of grid sampling.
typedef struct {
  long sizes[3];  // of the input: W, H, D
  int mode;
  int padding;
  int edge;  // 1 if -1 and 1 are the outer edges of the corner elements, 0 if they are the centres
  int dims;
} Sampler;
SHARED(Sampler, 40);

#define SAMPLING_ARGUMENTS int dtype0, Layout layout, Sampler sampler

// Elements read along one dimension. `slope` is the derivative of a weight with respect to the grid's coordinate.
typedef struct {
  int count;
  long index[4];
  T weight[4], slope[4];
} KernelElements;

// Mirrors x at low / 2 and high / 2 until it lies between them; `sign` changes with every mirror.
static inline INLINED_ON_GPUS T reflected(T x, long low, long high, T *sign) {
  if (low == high) {
    *sign = 0;
    return 0;
  }
  T bottom = (T)low / 2, span = (T)(high - low) / 2;
  T distance = x - bottom;
  if (distance < 0) {
    distance = -distance;
    *sign = -*sign;
  }
  T rest = fmod(distance, span);
  if (fmod(floor(distance / span), (T)2) == 0) return rest + bottom;
  *sign = -*sign;
  return span - rest + bottom;
}

// Applies the padding mode to a coordinate; `slope` is multiplied by the derivative.
static inline INLINED_ON_GPUS T padded(T x, const Sampler *s, long size, T *slope) {
  if (s->padding == PADDING_ZEROS) return x;
  if (s->padding == PADDING_REFLECTION) x = reflected(x, -s->edge, 2 * (size - 1) + s->edge, slope);
  // NaN becomes 0.
  if (!(x > 0) || x >= size - 1) *slope = 0;
  return fmin(fmax(x, (T)0), (T)(size - 1));
}

static inline long index_within(T x, long size) { return x >= 0 && x <= size - 1 ? (long)x : -1; }

// Keys' cubic convolution with the parameter -0.75 that PyTorch uses, and its derivative.
static inline T cubic_near(T x) { return (LIT(1.25) * x - LIT(2.25)) * x * x + 1; }
static inline T cubic_far(T x) { return ((-LIT(0.75) * x + LIT(3.75)) * x - 6) * x + 3; }
static inline T cubic_near_slope(T x) { return (LIT(3.75) * x - LIT(4.5)) * x; }
static inline T cubic_far_slope(T x) { return (-LIT(2.25) * x + LIT(7.5)) * x - 6; }

// A loop over the dimensions; on GPUs each index is a constant.
#ifdef IS_CPU
#define EACH_DIM(d) for (int d = 0; d < 3; d++)
#else
#define EACH_DIM(d) UNROLL for (int d = 0; d < 3; d++)
#endif

// Sets four values of an array to `value`, which depends on k. On GPUs the code of `value` is not repeated, and each
// index is a constant.
#ifdef IS_CPU
#define SET_FOUR(k, values, value) \
  for (int k = 0; k < 4; k++) (values)[k] = value
#else
#define SET_FOUR(k, values, value)                                                      \
  _Pragma("unroll 1") for (int k = 0; k < 4; k++) {                                     \
    const long found = value;                                                           \
    UNROLL for (int at = 0; at < 4; at++)(values)[at] = at == k ? found : (values)[at]; \
  }
#endif

// `coordinate` runs from -1 to 1 over the input.
static inline INLINED_ON_GPUS void find_elements(const Sampler *s, int dim, T coordinate, KernelElements *t) {
  if (dim >= s->dims) {
    t->count = 1;
    t->index[0] = 0;
    t->weight[0] = 1;
    t->slope[0] = 0;
    return;
  }
  long size = s->sizes[dim];
  long span = size - 1 + s->edge;
  T slope = (T)span / 2;
  T x = ((coordinate + 1) * span - s->edge) / 2;
  if (s->mode == MODE_CUBIC) {
    T low = floor(x), f = x - low, ignored = 1;
    t->count = 4;
    SET_FOUR(k, t->index, index_within(padded(low + (k - 1), s, size, &ignored), size));
    t->weight[0] = cubic_far(f + 1);
    t->weight[1] = cubic_near(f);
    t->weight[2] = cubic_near(1 - f);
    t->weight[3] = cubic_far(2 - f);
    t->slope[0] = slope * cubic_far_slope(f + 1);
    t->slope[1] = slope * cubic_near_slope(f);
    t->slope[2] = -slope * cubic_near_slope(1 - f);
    t->slope[3] = -slope * cubic_far_slope(2 - f);
    return;
  }
  x = padded(x, s, size, &slope);
  if (s->mode == MODE_NEAREST) {
    t->count = 1;
    t->index[0] = index_within(rint(x), size);
    t->weight[0] = 1;
    t->slope[0] = 0;
    return;
  }
  T low = floor(x);
  t->count = 2;
  t->index[0] = index_within(low, size);
  t->index[1] = index_within(low + 1, size);
  t->weight[0] = low + 1 - x;
  t->weight[1] = x - low;
  t->slope[0] = -slope;
  t->slope[1] = slope;
}

// A position of the output [W, H, D] and its sample.
typedef struct {
  long at[3], sample;
} OutputPosition;

// Structs are passed by pointer: when a compiler inlines a function that returns one, it leaves markers that Oclgrind
// does not know.
static inline INLINED_ON_GPUS void find_position(const Layout *layout, long index, OutputPosition *p) {
  EACH_DIM(d) {
    p->at[d] = index % layout->sizes[d];
    index /= layout->sizes[d];
  }
  p->sample = index;
}

static inline INLINED_ON_GPUS long position_offset(const Layout *layout, int operand, const OutputPosition *p) {
  return p->at[0] * layout->strides[operand][0] + p->at[1] * layout->strides[operand][1] +
         p->at[2] * layout->strides[operand][2] + p->sample * layout->strides[operand][4];
}

// The elements that a position reads along all dimensions; `grid` is operand `operand`.
static inline INLINED_ON_GPUS void elements_of(const Sampler *s, const Layout *layout, int operand,
                                               __global const uchar *grid, const OutputPosition *p, int dtype0,
                                               KernelElements elements[3]) {
  __global const uchar *coordinates = grid + position_offset(layout, operand, p);
  EACH_DIM(d)
    find_elements(s, d, d < s->dims ? load_at(coordinates + d * layout->strides[operand][3], DTYPE0) : (T)0,
                  &elements[d]);
}

// Element i of a dimension, and a loop over all of them. GPU compilers keep an array with a variable index in private
// memory, not in registers.
#ifdef IS_CPU
#define ELEMENT(values, i) (values)[i]
#define EACH_ELEMENT(i, count) for (int i = 0; i < (count); i++)
#else
#define ELEMENT(values, i) ((i) == 0 ? (values)[0] : (i) == 1 ? (values)[1] : (i) == 2 ? (values)[2] : (values)[3])
#define EACH_ELEMENT(i, count) UNROLL for (int i = 0; i < 4 && i < (count); i++)
#endif

// Loops over the elements within the input; the first channel of an element is at `offset`.
#define FOR_ELEMENTS(elements, strides, i, j, k, offset)                                             \
  for (int k = 0; k < elements[2].count; k++)                                                        \
    for (int j = 0; j < elements[1].count; j++)                                                      \
      for (int i = 0; i < elements[0].count; i++)                                                    \
        for (long offset = ELEMENT(elements[0].index, i) < 0 || ELEMENT(elements[1].index, j) < 0 || \
                                   ELEMENT(elements[2].index, k) < 0                                 \
                               ? -1                                                                  \
                               : ELEMENT(elements[0].index, i) * strides[0] +                        \
                                     ELEMENT(elements[1].index, j) * strides[1] +                    \
                                     ELEMENT(elements[2].index, k) * strides[2];                     \
             offset >= 0; offset = -1)
#define ELEMENT_WEIGHT(elements, i, j, k) \
  (ELEMENT(elements[0].weight, i) * ELEMENT(elements[1].weight, j) * ELEMENT(elements[2].weight, k))

// Contribution of elements outside the input: in two dimensions PyTorch multiplies them by zero, which gives NaN if a
// weight is not finite; in three it skips them. x and y are sums over the elements of a dimension.
static inline INLINED_ON_GPUS T outside(const Sampler *s, T x, T y) { return s->dims == 2 ? 0 * x * y : 0; }

static inline INLINED_ON_GPUS T element_sum(const T *values, int count) {
  T sum = 0;
  EACH_ELEMENT(k, count) sum += values[k];
  return sum;
}

// Operands: output, input, grid. A task is a position with all its channels.
__kernel void grid_sample(__global uchar *output, ulong output_offset, __global const uchar *input, ulong input_offset,
                          __global const uchar *grid, ulong grid_offset, SAMPLING_ARGUMENTS) {
  long channels = layout.sizes[3];
  ITEM_TASKS(layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4], first, last);
  for (long task = first; task < last; task++) {
    OutputPosition p;
    find_position(&layout, task, &p);
    KernelElements elements[3];
    elements_of(&sampler, &layout, 2, grid + grid_offset, &p, dtype0, elements);
    __global const uchar *in = input + input_offset + p.sample * layout.strides[1][4];
    __global uchar *out = output + output_offset + position_offset(&layout, 0, &p);
    T start = outside(&sampler, element_sum(elements[0].weight, elements[0].count),
                      element_sum(elements[1].weight, elements[1].count));
    for (long c = 0; c < channels; c += VEC) {
      int n = (int)min(channels - c, (long)VEC);
      TV sum = (TV)start;
      FOR_ELEMENTS(elements, layout.strides[1], i, j, k, offset) {
        T weight = ELEMENT_WEIGHT(elements, i, j, k);
        sum += weight * load_lanes(in + offset + c * layout.strides[1][3], layout.strides[1][3], n, DTYPE0);
      }
      store_lanes(out + c * layout.strides[0][3], layout.strides[0][3], n, DTYPE0, sum);
    }
  }
}

// Operands: the output's gradient, input, grid, and the grid's gradient, which is written. Tasks as in grid_sample.
__kernel void grid_sample_grid_gradient(__global uchar *grad_grid, ulong grad_grid_offset, __global const uchar *grad,
                                        ulong grad_offset, __global const uchar *input, ulong input_offset,
                                        __global const uchar *grid, ulong grid_offset, SAMPLING_ARGUMENTS) {
  long channels = layout.sizes[3];
  ITEM_TASKS(layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4], first, last);
  for (long task = first; task < last; task++) {
    OutputPosition p;
    find_position(&layout, task, &p);
    KernelElements elements[3];
    elements_of(&sampler, &layout, 2, grid + grid_offset, &p, dtype0, elements);
    __global const uchar *in = input + input_offset + p.sample * layout.strides[1][4];
    __global const uchar *g = grad + grad_offset + position_offset(&layout, 0, &p);
    T x_sum = element_sum(elements[0].weight, elements[0].count),
      y_sum = element_sum(elements[1].weight, elements[1].count);
    T slopes[3] = {outside(&sampler, element_sum(elements[0].slope, elements[0].count), y_sum),
                   outside(&sampler, x_sum, element_sum(elements[1].slope, elements[1].count)), 0};
    FOR_ELEMENTS(elements, layout.strides[1], i, j, k, offset) {
      TV sum = (TV)0;
      for (long c = 0; c < channels; c += VEC) {
        int n = (int)min(channels - c, (long)VEC);
        sum += load_lanes(in + offset + c * layout.strides[1][3], layout.strides[1][3], n, DTYPE0) *
               load_lanes(g + c * layout.strides[0][3], layout.strides[0][3], n, DTYPE0);
      }
      T value = lanes_sum(sum);
      T x = ELEMENT(elements[0].weight, i), y = ELEMENT(elements[1].weight, j), z = ELEMENT(elements[2].weight, k);
      slopes[0] += value * ELEMENT(elements[0].slope, i) * y * z;
      slopes[1] += value * x * ELEMENT(elements[1].slope, j) * z;
      slopes[2] += value * x * y * ELEMENT(elements[2].slope, k);
    }
    __global uchar *out = grad_grid + grad_grid_offset + position_offset(&layout, 3, &p);
    EACH_DIM(d)
      if (d < sampler.dims) store_at(out + d * layout.strides[3][3], DTYPE0, slopes[d]);
  }
}

// Operands: the output's gradient, the input's, grid. `sums` is [N, D, H, W, C rounded up to VEC] of the compute type,
// all zero. A task is a vector of channels of one sample. No other task writes these sums, so the kernel needs no
// atomics and sums in a fixed order, but there are few tasks.
__kernel void grid_sample_input_gradient(__global uchar *sums, ulong sums_offset, __global const uchar *grad,
                                         ulong grad_offset, __global const uchar *grid, ulong grid_offset,
                                         SAMPLING_ARGUMENTS) {
  long channels = layout.sizes[3], strips = (channels + VEC - 1) / VEC;
  long plane = layout.sizes[0] * layout.sizes[1] * layout.sizes[2];
  long steps[3] = {strips * VEC, strips * VEC * sampler.sizes[0], strips * VEC * sampler.sizes[0] * sampler.sizes[1]};
  ITEM_TASKS(strips * layout.sizes[4], first, last);
  for (long task = first; task < last; task++) {
    long c = task % strips * VEC, sample = task / strips;
    int n = (int)min(channels - c, (long)VEC);
    __global T *to = (__global T *)(sums + sums_offset) + sample * steps[2] * sampler.sizes[2] + c;
    for (long index = 0; index < plane; index++) {
      OutputPosition p;
      find_position(&layout, sample * plane + index, &p);
      KernelElements elements[3];
      elements_of(&sampler, &layout, 1, grid + grid_offset, &p, dtype0, elements);
      TV g = load_lanes(grad + grad_offset + position_offset(&layout, 0, &p) + c * layout.strides[0][3],
                        layout.strides[0][3], n, DTYPE0);
      FOR_ELEMENTS(elements, steps, i, j, k, offset) {
        TV sum = VLOAD(0, to + offset) + ELEMENT_WEIGHT(elements, i, j, k) * g;
        VSTORE(sum, 0, to + offset);
      }
    }
  }
}

#if !defined(IS_CPU) && (defined(CLASS_F) || defined(cl_khr_int64_base_atomics))
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef CLASS_F
typedef uint Word;
#define WORD_OF as_uint
#define VALUE_OF as_float
#define SWAP atomic_cmpxchg
#else
typedef ulong Word;
#define WORD_OF as_ulong
#define VALUE_OF as_double
#define SWAP atom_cmpxchg
#endif
static inline void add_atomic(__global T *p, T value) {
  volatile __global Word *word = (volatile __global Word *)p;
  Word seen = *word, expected;
  do {
    expected = seen;
    seen = SWAP(word, expected, WORD_OF(VALUE_OF(expected) + value));
  } while (seen != expected);
}

// grid_sample_input_gradient for GPUs: sums in any order. Operands of the layout: the output's gradient, grid, and
// `sums` of the compute type, all zero. Task t takes position t % positions, so that neighbouring items have
// neighbouring positions, and its channels t / positions, t / positions + parts, and so on.
__kernel void grid_sample_input_gradient_atomic(__global uchar *sums, ulong sums_offset, __global const uchar *grad,
                                                ulong grad_offset, __global const uchar *grid, ulong grid_offset,
                                                SAMPLING_ARGUMENTS, long parts) {
  const long positions = layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4];
  ITEM_TASKS(positions * parts, first, last);
  for (long task = first; task < last; task++) {
    OutputPosition p;
    find_position(&layout, task % positions, &p);
    KernelElements elements[3];
    elements_of(&sampler, &layout, 1, grid + grid_offset, &p, dtype0, elements);
    __global uchar *to = sums + sums_offset + p.sample * layout.strides[2][4];
    __global const uchar *g = grad + grad_offset + position_offset(&layout, 0, &p);
    for (long c = task / positions; c < layout.sizes[3]; c += parts) {
      const T value = load_at(g + c * layout.strides[0][3], DTYPE0);
      FOR_ELEMENTS(elements, layout.strides[2], i, j, k, offset)
        add_atomic((__global T *)(to + c * layout.strides[2][3] + offset), ELEMENT_WEIGHT(elements, i, j, k) * value);
    }
  }
}
#endif
