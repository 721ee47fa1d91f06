// Convolutions with so few channels in a group that packing would cost more than the arithmetic, such as depthwise
// ones.
//
// A work-group copies the box of input positions that a box of output positions reads to local memory, padding
// included, and computes from there without bounds checks and dtype conversions. On CPUs local memory is the core's L1,
// and a group is one item. Dimensions are innermost first (w, h, d), as in im2col.cl.

#ifndef ITEMS
#define ITEMS 1
#endif
// Vectors of output positions that an item computes at once: 8 keep the sums in registers and hide the latency of a
// multiply-add.
#define OUTPUT_VECTORS (ITEMS == 1 ? 8 : 1)

// All tensors of a convolution have one dtype.
#ifdef SPEC_DTYPE0
#define DTYPE_OF(argument) SPEC_DTYPE0
#else
#define DTYPE_OF(argument) argument
#endif

#define SPATIAL 3

// Kernel element t of output position p reads position p * stride + origin + t * dilation. Element i of the input lies
// at position i * in_dilation; all other positions are zero. A convolution has in_dilation = 1; its transpose has
// stride = 1 and in_dilation = the stride of the convolution.
typedef struct {
  long out_sizes[SPATIAL];
  long kernel_size[SPATIAL];
  long stride[SPATIAL];
  long origin[SPATIAL];
  long dilation[SPATIAL];
  long in_dilation[SPATIAL];
  long in_sizes[SPATIAL];
  long in_strides[SPATIAL];
  long channel_stride;
  long image_stride;
  long channels;  // in a group
  long box_out_sizes[SPATIAL];  // output positions of a work-group
  long box_in_sizes[SPATIAL];  // input positions that they read
  long pitch;  // whole vectors that hold every `stride`th position of a row
} ConvLayout;
SHARED(ConvLayout, 272);

// Strides of a tensor with a value for each output position.
typedef struct {
  long strides[SPATIAL];
  long channel_stride;
  long image_stride;
} OutputStrides;
SHARED(OutputStrides, 40);

// Strides of the weight.
typedef struct {
  long strides[SPATIAL];
  long out_stride;
  long in_stride;
  long group_stride;
} WeightLayout;
SHARED(WeightLayout, 48);

static inline long count_elements(const ConvLayout *conv) {
  return conv->kernel_size[0] * conv->kernel_size[1] * conv->kernel_size[2];
}

// Elements of a row, and of a channel, of a box in local memory. Position x of a row is at x % stride * pitch +
// x / stride, so that neighbouring output positions are neighbours at every kernel element.
static inline int row_length(const ConvLayout *conv) { return (int)(conv->stride[0] * conv->pitch); }
static inline int box_length(const ConvLayout *conv) {
  return (int)(conv->box_in_sizes[1] * conv->box_in_sizes[2]) * row_length(conv);
}
static inline int index_in_row(const ConvLayout *conv, int x) {
  const int stride = (int)conv->stride[0];
  return stride == 1 ? x : x % stride * (int)conv->pitch + x / stride;
}

// The output positions of a box.
typedef struct {
  long first[SPATIAL];
  int count[SPATIAL];
  int vectors;  // of a row
} Box;

static inline Box find_box(const ConvLayout *conv, long index) {
  Box box;
  for (int d = 0; d < SPATIAL; ++d) {
    const long boxes = (conv->out_sizes[d] + conv->box_out_sizes[d] - 1) / conv->box_out_sizes[d];
    box.first[d] = index % boxes * conv->box_out_sizes[d];
    box.count[d] = (int)min(conv->box_out_sizes[d], conv->out_sizes[d] - box.first[d]);
    index /= boxes;
  }
  box.vectors = (box.count[0] + VEC - 1) / VEC;
  return box;
}

static inline long box_count(const ConvLayout *conv) {
  long count = 1;
  for (int d = 0; d < SPATIAL; ++d) count *= (conv->out_sizes[d] + conv->box_out_sizes[d] - 1) / conv->box_out_sizes[d];
  return count;
}

// The first input position that a box reads.
static inline long first_position(const ConvLayout *conv, const Box *box, int d) {
  return box->first[d] * conv->stride[d] + conv->origin[d] + min((conv->kernel_size[d] - 1) * conv->dilation[d], 0L);
}

// A kernel element.
typedef struct {
  int at[SPATIAL];
} Element;

static inline Element element_at(const ConvLayout *conv, int index) {
  const int width = (int)conv->kernel_size[0], height = (int)conv->kernel_size[1];
  const Element element = {{index % width, index / width % height, index / (width * height)}};
  return element;
}

// Returns the kernel element at `index`; `element` is the one at `index - ITEMS`. A single item steps from one to the
// next, as divisions would take longer than small boxes.
static inline Element next_element(const ConvLayout *conv, Element element, int index) {
  if (ITEMS > 1) return element_at(conv, index % (int)count_elements(conv));
  for (int d = 0; d < SPATIAL; ++d) {
    if (++element.at[d] < conv->kernel_size[d]) break;
    element.at[d] = 0;
  }
  return element;
}

// Offset of each kernel element of each channel in a box, from that of its output position.
static inline void find_offsets(const ConvLayout *conv, __local int *offsets) {
  const int kernel_numel = (int)count_elements(conv), all = kernel_numel * (int)conv->channels;
  int dilation[SPATIAL], origin[SPATIAL];
  for (int d = 0; d < SPATIAL; ++d) {
    dilation[d] = (int)conv->dilation[d];
    origin[d] = -min(((int)conv->kernel_size[d] - 1) * dilation[d], 0);
  }
  int k = get_local_id(0);
  Element element = element_at(conv, k % kernel_numel);
  for (; k < all; k += ITEMS, element = next_element(conv, element, k)) {
    int at[SPATIAL];
    for (int d = 0; d < SPATIAL; ++d) at[d] = element.at[d] * dilation[d] + origin[d];
    offsets[k] = k / kernel_numel * box_length(conv) + (at[2] * (int)conv->box_in_sizes[1] + at[1]) * row_length(conv) +
                 index_in_row(conv, at[0]);
  }
}

// Vectors of local memory at the address of any element. GPUs load a packed struct byte by byte; PoCL splits vload and
// vstore.
#if VEC == 1
#define LOAD_ANYWHERE(p) (*(p))
#define STORE_ANYWHERE(v, p) (*(p) = (v))
#elif defined(IS_CPU)
typedef struct __attribute__((packed)) {
  TV vector;
} AnyVector;
#define LOAD_ANYWHERE(p) (((__local const AnyVector *)(p))->vector)
#define STORE_ANYWHERE(v, p) (((__local AnyVector *)(p))->vector = (v))
#else
#define LOAD_ANYWHERE(p) VLOAD(0, p)
#define STORE_ANYWHERE(v, p) VSTORE(v, 0, p)
#endif
#if VEC == 16
#define STORE_HALF vstore8
#elif VEC == 8
#define STORE_HALF vstore4
#elif VEC == 4
#define STORE_HALF vstore2
#endif

// Copies elements from `first` on of a row of the input to positions `x`, x + in_dilation, ... of a row of a box.
static inline void copy_row(const ConvLayout *conv, __global const uchar *input, int dt, long first, int x, int count,
                            __local T *row) {
  const int stride = (int)conv->stride[0], in_dilation = (int)conv->in_dilation[0];
  int i = 0;
#ifndef IS_COMPLEX
  // The last vector may overlap the one before.
  if (conv->in_strides[0] == 1 && in_dilation == 1 && stride == 1 && count >= VEC) {
    for (; i < count; i += VEC) {
      const int at = min(i, count - VEC);
      STORE_ANYWHERE(load_dense(input, first + at, dt), row + x + at);
    }
    return;
  }
  if (conv->in_strides[0] == 1 && in_dilation == 1 && stride == 2 && count >= VEC) {
    __local T *even = row + index_in_row(conv, x), *odd = row + index_in_row(conv, x + 1);
    for (; i + 1 < count; i += VEC) {
      const int at = min(i, (count - VEC) & ~1);
      const TV values = load_dense(input, first + at, dt);
      STORE_HALF(values.even, 0, even + at / 2);
      STORE_HALF(values.odd, 0, odd + at / 2);
    }
    i = count & ~1;
  }
  // Every `stride`th element goes to neighbouring positions: a gather.
  if (in_dilation == 1 && i == 0 && count >= VEC * stride) {
    const long step = stride * conv->in_strides[0] * dtype_size(dt);
    for (int remainder = 0; remainder < stride; ++remainder) {
      const int run = (count - remainder + stride - 1) / stride;
      __local T *to = row + index_in_row(conv, x + remainder);
      __global const uchar *from = input + (first + remainder) * conv->in_strides[0] * dtype_size(dt);
      for (int at = 0; at < run; at += VEC) {
        const int start = min(at, run - VEC);
        STORE_ANYWHERE(load_lanes(from + start * step, step, VEC, dt), to + start);
      }
    }
    return;
  }
#endif
  int remainder = (x + i * in_dilation) % stride, index = (x + i * in_dilation) / stride;
  for (; i < count; ++i) {
    row[remainder * (int)conv->pitch + index] = load_one(input, (first + i) * conv->in_strides[0], dt);
    for (remainder += in_dilation; remainder >= stride; remainder -= stride) ++index;
  }
}

// Copies the positions that a box reads from one channel, which starts at `input`.
static inline void copy_box(const ConvLayout *conv, const Box *box, __global const uchar *input, int dt,
                            __local T *out) {
  long first[SPATIAL];
  for (int d = 0; d < SPATIAL; ++d) first[d] = first_position(conv, box, d);
  const int rows = (int)(conv->box_in_sizes[1] * conv->box_in_sizes[2]), length = row_length(conv);
  const long from = max((first[0] + conv->in_dilation[0] - 1) / conv->in_dilation[0], 0L);
  const int x = (int)(from * conv->in_dilation[0] - first[0]);
  const long left =
      min(conv->in_sizes[0] - from, (conv->box_in_sizes[0] - x + conv->in_dilation[0] - 1) / conv->in_dilation[0]);
  for (int i = get_local_id(0); i < rows; i += ITEMS) {
    __local T *row = out + i * length;
    for (int at = 0; at < length; at += VEC) *(__local TV *)(row + at) = (TV)(0);
    const long y = first[1] + i % (int)conv->box_in_sizes[1], z = first[2] + i / (int)conv->box_in_sizes[1];
    if (left <= 0 || y < 0 || z < 0 || y % conv->in_dilation[1] != 0 || z % conv->in_dilation[2] != 0) continue;
    if (y / conv->in_dilation[1] >= conv->in_sizes[1] || z / conv->in_dilation[2] >= conv->in_sizes[2]) continue;
    const long at = y / conv->in_dilation[1] * conv->in_strides[1] + z / conv->in_dilation[2] * conv->in_strides[2];
    copy_row(conv, input + at * dtype_size(dt), dt, from, x, (int)left, row);
  }
}

// Walks through the vectors of output positions of a box.
typedef struct {
  int vector, y, z;
} Cursor;

static inline Cursor cursor_at(const Box *box, int index) {
  const int rows = index / box->vectors;
  const Cursor cursor = {index % box->vectors, rows % box->count[1], rows / box->count[1]};
  return cursor;
}

static inline void move_on(const Box *box, Cursor *cursor) {
  if (++cursor->vector < box->vectors) return;
  cursor->vector = 0;
  if (++cursor->y < box->count[1]) return;
  cursor->y = 0;
  ++cursor->z;
}

static inline int cursor_offset(const ConvLayout *conv, const Cursor *cursor) {
  return (cursor->z * (int)(conv->stride[2] * conv->box_in_sizes[1]) + cursor->y * (int)conv->stride[1]) *
         row_length(conv);
}

// Copies the weights of a group, as [output channels][input channels][kernel].
static inline void copy_weights(const ConvLayout *conv, __global const uchar *weight, int dt,
                                const WeightLayout *strides, int out_channels, __local T *local_weight) {
  const int kernel_numel = (int)count_elements(conv), channels = (int)conv->channels;
  int i = get_local_id(0);
  Element element = element_at(conv, i % kernel_numel);
  for (; i < out_channels * channels * kernel_numel; i += ITEMS, element = next_element(conv, element, i)) {
    const int row = i / kernel_numel;
    long at = row % channels * strides->in_stride + row / channels * strides->out_stride;
    for (int d = 0; d < SPATIAL; ++d) at += element.at[d] * strides->strides[d];
    local_weight[i] = load_one(weight, at, dt);
  }
}

// Computes the output positions of a box in one output channel, which starts at `out`.
static inline void convolve_box(const ConvLayout *conv, const Box *box, __local const T *planes,
                                __local const int *offsets, __local const T *local_weight, T bias,
                                const OutputStrides *strides, __global uchar *out, int dt) {
  const int k_count = (int)(conv->channels * count_elements(conv));
  const int all = box->vectors * box->count[1] * box->count[2], share = (all + ITEMS - 1) / ITEMS;
  const int last = min(all, ((int)get_local_id(0) + 1) * share);
  const int element = dtype_size(dt), count = min(box->count[0], VEC);
  int index = get_local_id(0) * share;
  Cursor cursor = cursor_at(box, index);
  for (; index < last; index += OUTPUT_VECTORS) {
    __local const T *from[OUTPUT_VECTORS];
    long to[OUTPUT_VECTORS];
    TV sums[OUTPUT_VECTORS];
    for (int v = 0; v < OUTPUT_VECTORS; ++v) {
      // The last vector of a row overlaps the one before; vectors past the last repeat it.
      const int x = min(cursor.vector * VEC, max(box->count[0] - VEC, 0));
      from[v] = planes + cursor_offset(conv, &cursor) + x;
      to[v] = (box->first[0] + x) * strides->strides[0] + (box->first[1] + cursor.y) * strides->strides[1] +
              (box->first[2] + cursor.z) * strides->strides[2];
      sums[v] = (TV)(bias);
      if (index + v + 1 < last) move_on(box, &cursor);
    }
    for (int k = 0; k < k_count; ++k) {
      const TV weight_value = (TV)(local_weight[k]);
      const int offset = offsets[k];
  UNROLL for (int v = 0; v < OUTPUT_VECTORS; ++v) sums[v] =
          MULTIPLY_ADD(weight_value, LOAD_ANYWHERE(from[v] + offset), sums[v]);
    }
    for (int v = 0; v < min(OUTPUT_VECTORS, last - index); ++v)
      store_lanes(out + to[v] * element, strides->strides[0] * element, count, dt, sums[v]);
  }
}

// Global size (groups * ITEMS, boxes, images) in groups of ITEMS. `bias` is null if there is none. Local memory for
// vectors is declared as vectors: NVIDIA's driver aligns it only for the declared type.
__kernel GROUPS_OF(ITEMS) void conv_direct(__global const uchar *input, ulong input_offset, int input_dtype,
                                           __global const uchar *weight, ulong weight_offset, int weight_dtype,
                                           __global const uchar *bias, ulong bias_offset, int bias_dtype,
                                           long bias_stride, __global uchar *out, ulong out_offset, int out_dtype,
                                           ConvLayout conv, WeightLayout weight_layout, OutputStrides output,
                                           long out_channels, __local TV *planes, __local T *local_weight,
                                           __local int *offsets) {
  const long group = get_group_id(0), image = get_global_id(2);
  const Box box = find_box(&conv, get_global_id(1));
  find_offsets(&conv, offsets);
  copy_weights(&conv, weight + weight_offset + group * weight_layout.group_stride * dtype_size(DTYPE_OF(weight_dtype)),
               DTYPE_OF(weight_dtype), &weight_layout, (int)out_channels, local_weight);
  for (int c = 0; c < conv.channels; ++c) {
    const long at = image * conv.image_stride + (group * conv.channels + c) * conv.channel_stride;
    copy_box(&conv, &box, input + input_offset + at * dtype_size(DTYPE_OF(input_dtype)), DTYPE_OF(input_dtype),
             (__local T *)planes + c * box_length(&conv));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long r = 0; r < out_channels; ++r) {
    const long channel_index = group * out_channels + r;
    const long at = image * output.image_stride + channel_index * output.channel_stride;
    const T bias_value =
        bias ? load_one(bias + bias_offset, channel_index * bias_stride, DTYPE_OF(bias_dtype)) : FROM_REAL(0);
    __local const T *channel_weight = local_weight + r * conv.channels * count_elements(&conv);
    convolve_box(&conv, &box, (__local T *)planes, offsets, channel_weight, bias_value,
                 &output, out + out_offset + at * dtype_size(DTYPE_OF(out_dtype)), DTYPE_OF(out_dtype));
  }
}
