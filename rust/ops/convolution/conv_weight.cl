// The gradient of a convolution's weight on CPUs, for few input channels and many output channels, as in the first
// layer of a network: a vector holds neighbouring output channels.
//
// Each output position adds its gradient, times a value of the input, to the gradient of the weight of every channel
// and kernel element. The input is in local memory as padded boxes (conv.cl) and is read from there as scalars. No
// im2col matrix is packed: a GEMM would use it only `out_channels` times.

#ifndef IS_COMPLEX
// Weights of an output channel whose sums are in registers at a time, for up to 4 vectors of output channels: 24 of
// AVX-512's 32 registers.
#define WEIGHTS_AT_ONCE 6

// Transposes VEC by VEC values: first pairs are joined, then fours and so on.
ALWAYS_INLINE void transpose_vectors(TV *rows) {
#if VEC > 1
  UNROLL for (int bit = 1; bit < VEC; bit *= 2) {
    UNROLL for (int i = 0; i < VEC; ++i) {
      if (i & bit) continue;
      const TV a = rows[i], b = rows[i + bit];
      rows[i] = (TV)(a.even, b.even);
      rows[i + bit] = (TV)(a.odd, b.odd);
    }
  }
#endif
}

// Copies the gradient of a row of `width` output positions as [positions][pitch], with output channels padded by zeros.
ALWAYS_INLINE void copy_gradient_row(__global const uchar *grad_output, int dt, const OutputStrides *strides, int width,
                                     int out_channels, int pitch, __local T *out) {
  const int element = dtype_size(dt);
  const long position_step = strides->strides[0] * element, channel_step = strides->channel_stride * element;
  for (int c = 0; c < out_channels; c += VEC) {
    const int channels = min(VEC, out_channels - c);
    __global const uchar *from = grad_output + c * channel_step;
    if (channel_step == element) {
      for (int x = 0; x < width; ++x)
        *(__local TV *)(out + x * pitch + c) = load_lanes(from + x * position_step, channel_step, channels, dt);
      continue;
    }
    for (int x = 0; x < width; x += VEC) {
      const int positions = min(VEC, width - x);
      TV rows[VEC];
      // The loop is not unrolled: a load with any stride is too much code to repeat.
      for (int r = 0; r < VEC; ++r) rows[r] =
          r < channels ? load_lanes(from + r * channel_step + x * position_step, position_step, positions, dt)
                       : (TV)(0);
      transpose_vectors(rows);
      UNROLL for (int l = 0; l < VEC; ++l) {
        if (l < positions) *(__local TV *)(out + (x + l) * pitch + c) = rows[l];
      }
    }
  }
}

// Adds the contributions of a box's output positions to WEIGHTS_AT_ONCE sums of VECTORS vectors of output channels.
#define DEFINE_ADD_OUTPUTS(VECTORS)                                                                                    \
  static inline void PASTE(add_outputs_, VECTORS)(const ConvLayout *conv, const Box *box, __local const T *planes,     \
                                                  __local const int *offsets, __local const T *grad_output, int pitch, \
                                                  __local T *sums) {                                                   \
    TV tile[WEIGHTS_AT_ONCE][VECTORS];                                                                                 \
    UNROLL for (int f = 0; f < WEIGHTS_AT_ONCE; ++f)                                                                   \
        UNROLL for (int v = 0; v < VECTORS; ++v) tile[f][v] =                                                          \
            *(__local const TV *)(sums + f * pitch + v * VEC);                                                         \
    for (int row = 0; row < box->count[1] * box->count[2]; ++row) {                                                    \
      const Cursor cursor = {0, row % box->count[1], row / box->count[1]};                                             \
      __local const T *from = planes + cursor_offset(conv, &cursor);                                                   \
      for (int x = 0; x < box->count[0]; ++x, ++from, grad_output += pitch) {                                          \
        TV out_grads[VECTORS];                                                                                         \
        UNROLL for (int v = 0; v < VECTORS; ++v) out_grads[v] = *(__local const TV *)(grad_output + v * VEC);          \
        UNROLL for (int f = 0; f < WEIGHTS_AT_ONCE; ++f) {                                                             \
          const TV value = (TV)(from[offsets[f]]);                                                                     \
          UNROLL for (int v = 0; v < VECTORS; ++v) tile[f][v] =                                                        \
              MULTIPLY_ADD(value, out_grads[v], tile[f][v]);                                                           \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    UNROLL for (int f = 0; f < WEIGHTS_AT_ONCE; ++f)                                                                   \
        UNROLL for (int v = 0; v < VECTORS; ++v) *(__local TV *)(sums + f * pitch + v * VEC) =                         \
            tile[f][v];                                                                                                \
  }

DEFINE_ADD_OUTPUTS(1)
DEFINE_ADD_OUTPUTS(2)
DEFINE_ADD_OUTPUTS(4)

// Global size (groups, splits of the boxes of all images): sums [splits][groups][input channels][kernel][output
// channels]. `sums` and `offsets` have room for whole multiples of WEIGHTS_AT_ONCE.
__kernel void conv_weight(__global const uchar *input, ulong input_offset, int input_dtype,
                          __global const uchar *grad_output, ulong grad_output_offset, int grad_output_dtype,
                          __global uchar *out, ulong out_offset, ConvLayout conv, OutputStrides output,
                          long out_channels, long images, __local TV *planes, __local TV *grad_outputs, __local T *sums,
                          __local int *offsets) {
  const long group = get_global_id(0), boxes = box_count(&conv);
  SHARE_TASKS(images * boxes, get_global_id(1), get_global_size(1), first, last);
  const int k_count = (int)(conv.channels * count_elements(&conv)), channels = (int)out_channels;
  const int padded = (k_count + WEIGHTS_AT_ONCE - 1) / WEIGHTS_AT_ONCE * WEIGHTS_AT_ONCE;
  const int pitch = (channels + VEC - 1) / VEC * VEC;
  __local T *box_planes = (__local T *)planes, *gradients = (__local T *)grad_outputs;
  find_offsets(&conv, offsets);
  for (int k = k_count; k < padded; ++k) offsets[k] = offsets[k_count - 1];
  for (int i = 0; i < padded * pitch; i += VEC) *(__local TV *)(sums + i) = (TV)(0);
  for (long step = first; step < last; ++step) {
    const long image = step / boxes;
    const Box box = find_box(&conv, step % boxes);
    for (int c = 0; c < conv.channels; ++c) {
      const long at = image * conv.image_stride + (group * conv.channels + c) * conv.channel_stride;
      copy_box(&conv, &box, input + input_offset + at * dtype_size(DTYPE_OF(input_dtype)), DTYPE_OF(input_dtype),
               box_planes + c * box_length(&conv));
    }
    for (int row = 0; row < box.count[1] * box.count[2]; ++row) {
      const long at = image * output.image_stride + group * out_channels * output.channel_stride +
                      box.first[0] * output.strides[0] + (box.first[1] + row % box.count[1]) * output.strides[1] +
                      (box.first[2] + row / box.count[1]) * output.strides[2];
      copy_gradient_row(grad_output + grad_output_offset + at * dtype_size(DTYPE_OF(grad_output_dtype)),
                        DTYPE_OF(grad_output_dtype), &output, box.count[0], channels, pitch,
                        gradients + row * box.count[0] * pitch);
    }
    for (int k = 0; k < k_count; k += WEIGHTS_AT_ONCE) {
      for (int c = 0; c < pitch;) {
        __local T *to = sums + k * pitch + c;
        const int vectors = (pitch - c) / VEC;
        if (vectors >= 4)
          add_outputs_4(&conv, &box, box_planes, offsets + k, gradients + c, pitch, to);
        else if (vectors >= 2)
          add_outputs_2(&conv, &box, box_planes, offsets + k, gradients + c, pitch, to);
        else
          add_outputs_1(&conv, &box, box_planes, offsets + k, gradients + c, pitch, to);
        c += (vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1) * VEC;
      }
    }
  }
  __global T *to = (__global T *)(out + out_offset) +
                   (get_global_id(1) * get_global_size(0) + group) * k_count * channels;
  for (int k = 0; k < k_count; ++k, to += channels)
    for (int c = 0; c < channels; c += VEC)
      store_part((__global uchar *)to, c, channels, T_DTYPE, *(__local const TV *)(sums + k * pitch + c));
}
#endif
