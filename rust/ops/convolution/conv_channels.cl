// Depthwise convolutions of channels-last tensors: a vector holds neighbouring channels.
//
// A lane computes one channel, so only the weights are copied: `conv_channel_weights` copies them to [kernel][channels,
// padded to whole vectors]. `ConvLayout`, `OutputStrides` and `WeightLayout` are those of conv.cl; boxes are not used
// here.

// Vectors of channels of an item: four hide the latency of a multiply-add. On GPUs, neighbouring items read
// neighbouring vectors.
#define CHANNEL_VECTORS (ITEMS == 1 ? 4 : 1)
#define ITEM_CHANNELS (CHANNEL_VECTORS * VEC)

// Position of this item in a space of these sizes. On GPUs items have one linear index, so that groups are full for any
// sizes. Items past the end return, so no barrier may follow.
#ifdef IS_CPU
#define ITEM_POSITION(x, y, z, width, height, depth) \
  const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2)
#else
#define ITEM_POSITION(x, y, z, width, height, depth)                                    \
  const long x = get_global_id(0) % (width), y = get_global_id(0) / (width) % (height); \
  const long z = get_global_id(0) / (width) / (height);                                 \
  if (z >= (depth)) return
#endif

// Global size (pitch, kernel elements): pitch is the channels, padded to whole vectors.
__kernel void conv_channel_weights(__global const uchar *weight, ulong weight_offset, int weight_dtype,
                                   __global uchar *out, ulong out_offset, ConvLayout conv, WeightLayout weight_layout,
                                   long channels, long pitch) {
  ITEM_POSITION(channel_index, position, none, pitch, count_elements(&conv), 1);
  long element = position, at = channel_index * weight_layout.group_stride;
  for (int d = 0; d < SPATIAL; ++d) {
    at += element % conv.kernel_size[d] * weight_layout.strides[d];
    element /= conv.kernel_size[d];
  }
  ((__global T *)(out + out_offset))[position * pitch + channel_index] =
      channel_index < channels ? load_one(weight + weight_offset, at, DTYPE_OF(weight_dtype)) : FROM_REAL(0);
}

// Element of the input that kernel element t of output position p reads in dimension d; negative if there is none.
static inline long element_of(const ConvLayout *conv, int d, long p, long t) {
  const long position = p * conv->stride[d] + conv->origin[d] + t * conv->dilation[d];
  if (position < 0 || (conv->in_dilation[d] > 1 && position % conv->in_dilation[d] != 0)) return -1;
  const long element = conv->in_dilation[d] > 1 ? position / conv->in_dilation[d] : position;
  return element < conv->in_sizes[d] ? element : -1;
}

// Loads VEC channels from `first` on, of the `count` channels that begin at `offset`; lanes past the last one are zero.
ALWAYS_INLINE TV load_channels(__global const uchar *image, long offset, long first, long count, int dt) {
  if (first + VEC <= count) return load_dense(image, offset + first, dt);
  return load_part(image + offset * dtype_size(dt), first, count, dt, FROM_REAL(0));
}

// One output position of VECTORS vectors of channels, `count` channels in all.
#define DEFINE_POSITION(VECTORS)                                                                                     \
  ALWAYS_INLINE void PASTE(convolve_position_, VECTORS)(const ConvLayout *conv, __global const uchar *image, int dt, \
                                                        const long *at, __global const T *weights, long pitch,       \
                                                        long count, TV *sums) {                                      \
    for (long z = 0; z < conv->kernel_size[2]; ++z) {                                                                \
      const long in_z = element_of(conv, 2, at[2], z);                                                               \
      if (in_z < 0) continue;                                                                                        \
      for (long y = 0; y < conv->kernel_size[1]; ++y) {                                                              \
        const long in_y = element_of(conv, 1, at[1], y);                                                             \
        if (in_y < 0) continue;                                                                                      \
        const long row = in_z * conv->in_strides[2] + in_y * conv->in_strides[1];                                    \
        __global const T *element_weights = weights + (z * conv->kernel_size[1] + y) * conv->kernel_size[0] * pitch; \
        for (long x = 0; x < conv->kernel_size[0]; ++x, element_weights += pitch) {                                  \
          const long in_x = element_of(conv, 0, at[0], x);                                                           \
          if (in_x < 0) continue;                                                                                    \
          const long offset = row + in_x * conv->in_strides[0];                                                      \
          UNROLL for (int v = 0; v < VECTORS; ++v) sums[v] =                                                         \
              MULTIPLY_ADD(load_dense((__global const uchar *)element_weights, v * VEC, T_DTYPE),                    \
                           load_channels(image, offset, v * VEC, count, dt), sums[v]);                               \
        }                                                                                                            \
      }                                                                                                              \
    }                                                                                                                \
  }

DEFINE_POSITION(1)
#if ITEMS == 1
DEFINE_POSITION(4)
#endif

// Global size (blocks of ITEM_CHANNELS channels, blocks of `block` rows of output positions, images).
__kernel void conv_channels(__global const uchar *input, ulong input_offset, int input_dtype,
                            __global const uchar *weight, ulong weight_offset, __global const uchar *bias,
                            ulong bias_offset, int bias_dtype, long bias_stride, __global uchar *out, ulong out_offset,
                            int out_dtype, ConvLayout conv, OutputStrides output, long channels, long images,
                            long pitch, long block) {
  const long rows = conv.out_sizes[1] * conv.out_sizes[2];
  ITEM_POSITION(part, down, image, (channels + ITEM_CHANNELS - 1) / ITEM_CHANNELS, (rows + block - 1) / block, images);
  const long first = part * ITEM_CHANNELS, count = min((long)ITEM_CHANNELS, channels - first);
  const long last = min(rows, (down + 1) * block), element = dtype_size(DTYPE_OF(out_dtype));
  input += input_offset + (image * conv.image_stride + first) * dtype_size(DTYPE_OF(input_dtype));
  out += out_offset + (image * output.image_stride + first) * element;
  __global const T *weights = (__global const T *)(weight + weight_offset) + first;
  TV start[CHANNEL_VECTORS];
  for (int v = 0; v < CHANNEL_VECTORS; ++v) {
    Lanes lanes;
    for (int l = 0; l < VEC; ++l) {
      const long channel_index = first + v * VEC + l;
      lanes.lanes[l] = bias && channel_index < channels
                           ? load_one(bias + bias_offset, channel_index * bias_stride, DTYPE_OF(bias_dtype))
                           : FROM_REAL(0);
    }
    start[v] = lanes.vector;
  }
  for (long row = down * block; row < last; ++row) {
    long at[SPATIAL] = {0, row % conv.out_sizes[1], row / conv.out_sizes[1]};
    for (; at[0] < conv.out_sizes[0]; ++at[0]) {
      const long to = at[0] * output.strides[0] + at[1] * output.strides[1] + at[2] * output.strides[2];
      TV sums[CHANNEL_VECTORS];
      for (int v = 0; v < CHANNEL_VECTORS; ++v) sums[v] = start[v];
#if ITEMS == 1
      if (count == ITEM_CHANNELS) {
        if (DTYPE_OF(input_dtype) == T_DTYPE)
          convolve_position_4(&conv, input, T_DTYPE, at, weights, pitch, ITEM_CHANNELS, sums);
        else convolve_position_4(&conv, input, DTYPE_OF(input_dtype), at, weights, pitch, ITEM_CHANNELS, sums);
        for (int v = 0; v < 4; ++v) store_vector(out, to + v * VEC, DTYPE_OF(out_dtype), sums[v]);
        continue;
      }
#endif
      for (int v = 0; v * VEC < count; ++v) {
        convolve_position_1(&conv, input + v * VEC * dtype_size(DTYPE_OF(input_dtype)), DTYPE_OF(input_dtype), at,
                            weights + v * VEC, pitch, count - v * VEC, sums + v);
        store_lanes(out + (to + v * VEC) * element, element, (int)min(count - v * VEC, (long)VEC), DTYPE_OF(out_dtype),
                    sums[v]);
      }
    }
  }
}

// Contribution of a row of output positions to kernel element t. Four sums, so that an addition does not wait for the
// previous one.
ALWAYS_INLINE TV row_gradient(const ConvLayout *conv, __global const uchar *input, int dt, long values,
                              __global const uchar *grad_output, int grad_output_dt, long grad_outputs, long step,
                              long t, long count) {
  TV sums[4] = {(TV)(0), (TV)(0), (TV)(0), (TV)(0)};
  // In the gradient of the weight the input is not dilated, so the positions inside it lie between two bounds.
  const long stride = conv->stride[0], origin = conv->origin[0] + t % conv->kernel_size[0] * conv->dilation[0];
  const long first = origin < 0 ? (-origin + stride - 1) / stride : 0;
  const long last = min(conv->out_sizes[0], (conv->in_sizes[0] - origin + stride - 1) / stride);
  input += (values + (first * stride + origin) * conv->in_strides[0]) * dtype_size(dt);
  for (long x = first; x < last; x += 4) {
  UNROLL for (int i = 0; i < 4; ++i) {
      if (x + i >= last) break;
      sums[i] = MULTIPLY_ADD(load_channels(grad_output, grad_outputs + (x + i) * step, 0, count, grad_output_dt),
                             load_channels(input, (x + i - first) * stride * conv->in_strides[0], 0, count, dt),
                             sums[i]);
    }
  }
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// Global size (vectors of channels, splits of the rows of all images): sums [splits][kernel][channels].
__kernel void conv_channels_weight(__global const uchar *input, ulong input_offset, int input_dtype,
                                   __global const uchar *grad_output, ulong grad_output_offset, int grad_output_dtype,
                                   __global uchar *out, ulong out_offset, ConvLayout conv, OutputStrides output,
                                   long channels, long images, long splits) {
  ITEM_POSITION(part, split, none, (channels + VEC - 1) / VEC, splits, 1);
  const long first_channel = part * VEC, count = min((long)VEC, channels - first_channel);
  const long kernel_numel = count_elements(&conv);
  const long plane_rows = conv.out_sizes[1] * conv.out_sizes[2];
  SHARE_TASKS(images * plane_rows, split, splits, first, last);
  out += out_offset + (split * kernel_numel * channels + first_channel) * sizeof(T);
  for (long t = 0; t < kernel_numel; ++t)
    store_lanes(out + t * channels * sizeof(T), sizeof(T), (int)count, T_DTYPE, (TV)(0));
  input += input_offset;
  grad_output += grad_output_offset;
  for (long row = first; row < last; ++row) {
    const long image = row / plane_rows;
    const long at_y = row % plane_rows % conv.out_sizes[1], at_z = row % plane_rows / conv.out_sizes[1];
    const long grad_outputs =
        image * output.image_stride + at_y * output.strides[1] + at_z * output.strides[2] + first_channel;
    for (long t = 0; t < kernel_numel; ++t) {
      const long z = element_of(&conv, 2, at_z, t / (conv.kernel_size[0] * conv.kernel_size[1]));
      const long y = element_of(&conv, 1, at_y, t / conv.kernel_size[0] % conv.kernel_size[1]);
      if (z < 0 || y < 0) continue;
      const long values = image * conv.image_stride + z * conv.in_strides[2] + y * conv.in_strides[1] + first_channel;
      const bool is_plain = (count == VEC) & (DTYPE_OF(input_dtype) == T_DTYPE) &
                            (DTYPE_OF(grad_output_dtype) == T_DTYPE);
      TV sum = load_channels(out, t * channels, 0, count, T_DTYPE);
      if (is_plain)
        sum += row_gradient(&conv, input, T_DTYPE, values, grad_output, T_DTYPE, grad_outputs, output.strides[0], t,
                            VEC);
      else
        sum += row_gradient(&conv, input, DTYPE_OF(input_dtype), values, grad_output, DTYPE_OF(grad_output_dtype),
                            grad_outputs, output.strides[0], t, count);
      store_lanes(out + t * channels * sizeof(T), sizeof(T), (int)count, T_DTYPE, sum);
    }
  }
}
