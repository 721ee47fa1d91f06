// The gradient of a convolution's weight where source channels are few and result channels many, as in the first layer
// of a network, on CPUs: a vector holds neighbouring result channels.
//
// Each output position adds its gradient, times a value of the source, to the sums of every feature (a channel at a
// kernel element). The source lies in local memory as boxes with padding in them (conv.cl), so it is read as scalars in
// place: no patches are packed, which a GEMM would use no more than `out_channels` times.

#ifndef IS_COMPLEX
// Features whose sums registers hold, with those of up to 4 vectors of result channels: 24 of AVX-512's 32 registers.
#define FEATURES 6

// Rows of VEC by VEC values become columns: VEC pairs, fours and so on come together.
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

// The gradient of a row of `width` output positions as [positions][pitch], result channels padded with zeros.
ALWAYS_INLINE void copy_gradient_row(__global const uchar *gradient, int dt, const PixelStrides *strides, int width,
                                     int out_channels, int pitch, __local T *out) {
  const int element = dtype_size(dt);
  const long pixel_step = strides->strides[0] * element, channel_step = strides->channel_stride * element;
  for (int c = 0; c < out_channels; c += VEC) {
    const int channels = min(VEC, out_channels - c);
    __global const uchar *from = gradient + c * channel_step;
    if (channel_step == element) {
      for (int x = 0; x < width; ++x)
        *(__local TV *)(out + x * pitch + c) = load_lanes(from + x * pixel_step, channel_step, channels, dt);
      continue;
    }
    for (int x = 0; x < width; x += VEC) {
      const int pixels = min(VEC, width - x);
      TV rows[VEC];
      // Not unrolled: a load of any stride is too much code for that.
      for (int r = 0; r < VEC; ++r) rows[r] =
          r < channels ? load_lanes(from + r * channel_step + x * pixel_step, pixel_step, pixels, dt) : (TV)(0);
      transpose_vectors(rows);
      UNROLL for (int l = 0; l < VEC; ++l) {
        if (l < pixels) *(__local TV *)(out + (x + l) * pitch + c) = rows[l];
      }
    }
  }
}

// Adds the contributions of a box's output positions to FEATURES sums of VECTORS vectors of result channels.
#define DEFINE_ADD_PIXELS(VECTORS)                                                                                 \
  static inline void PASTE(add_pixels_, VECTORS)(const Source *s, const Box *box, __local const T *planes,         \
                                                 __local const int *places, __local const T *gradient, int pitch,  \
                                                 __local T *sums) {                                                \
    TV tile[FEATURES][VECTORS];                                                                                    \
    UNROLL for (int f = 0; f < FEATURES; ++f)                                                           \
        UNROLL for (int v = 0; v < VECTORS; ++v) tile[f][v] =                                           \
            *(__local const TV *)(sums + f * pitch + v * VEC);                                                     \
    for (int row = 0; row < box->count[1] * box->count[2]; ++row) {                                                \
      const Cursor cursor = {0, row % box->count[1], row / box->count[1]};                                         \
      __local const T *from = planes + cursor_place(s, &cursor);                                                   \
      for (int x = 0; x < box->count[0]; ++x, ++from, gradient += pitch) {                                         \
        TV factors[VECTORS];                                                                                       \
        UNROLL for (int v = 0; v < VECTORS; ++v) factors[v] = *(__local const TV *)(gradient + v * VEC); \
        UNROLL for (int f = 0; f < FEATURES; ++f) {                                                     \
          const TV value = (TV)(from[places[f]]);                                                                  \
          UNROLL for (int v = 0; v < VECTORS; ++v) tile[f][v] =                                         \
              MULTIPLY_ADD(value, factors[v], tile[f][v]);                                                         \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
    UNROLL for (int f = 0; f < FEATURES; ++f)                                                           \
        UNROLL for (int v = 0; v < VECTORS; ++v) *(__local TV *)(sums + f * pitch + v * VEC) =          \
            tile[f][v];                                                                                            \
  }

DEFINE_ADD_PIXELS(1)
DEFINE_ADD_PIXELS(2)
DEFINE_ADD_PIXELS(4)

// Global size (groups, splits of the boxes of all images): sums [splits][groups][source channels][kernel][result
// channels]. `sums` and `places` have room for whole multiples of FEATURES.
__kernel void conv_weight(__global const uchar *source, ulong source_offset, int source_dtype,
                          __global const uchar *gradient, ulong gradient_offset, int gradient_dtype,
                          __global uchar *out, ulong out_offset, Source from, PixelStrides pixels, long out_channels,
                          long images, __local T *planes, __local T *gradients, __local T *sums,
                          __local int *places) {
  const long group = get_global_id(0), boxes = box_count(&from);
  SHARE_TASKS(images * boxes, get_global_id(1), get_global_size(1), first, last);
  const int depth = (int)(from.channels * tap_count(&from)), channels = (int)out_channels;
  const int padded = (depth + FEATURES - 1) / FEATURES * FEATURES, pitch = (channels + VEC - 1) / VEC * VEC;
  find_places(&from, places);
  for (int k = depth; k < padded; ++k) places[k] = places[depth - 1];
  for (int i = 0; i < padded * pitch; i += VEC) *(__local TV *)(sums + i) = (TV)(0);
  for (long step = first; step < last; ++step) {
    const long image = step / boxes;
    const Box box = find_box(&from, step % boxes);
    for (int c = 0; c < from.channels; ++c) {
      const long at = image * from.image_stride + (group * from.channels + c) * from.channel_stride;
      copy_box(&from, &box, source + source_offset + at * dtype_size(DTYPE_OF(source_dtype)), DTYPE_OF(source_dtype),
               planes + c * box_length(&from));
    }
    for (int row = 0; row < box.count[1] * box.count[2]; ++row) {
      const long at = image * pixels.image_stride + group * out_channels * pixels.channel_stride +
                      box.first[0] * pixels.strides[0] + (box.first[1] + row % box.count[1]) * pixels.strides[1] +
                      (box.first[2] + row / box.count[1]) * pixels.strides[2];
      copy_gradient_row(gradient + gradient_offset + at * dtype_size(DTYPE_OF(gradient_dtype)),
                        DTYPE_OF(gradient_dtype), &pixels, box.count[0], channels, pitch,
                        gradients + row * box.count[0] * pitch);
    }
    for (int k = 0; k < depth; k += FEATURES) {
      for (int c = 0; c < pitch;) {
        __local T *to = sums + k * pitch + c;
        const int vectors = (pitch - c) / VEC;
        if (vectors >= 4)
          add_pixels_4(&from, &box, planes, places + k, gradients + c, pitch, to);
        else if (vectors >= 2)
          add_pixels_2(&from, &box, planes, places + k, gradients + c, pitch, to);
        else
          add_pixels_1(&from, &box, planes, places + k, gradients + c, pitch, to);
        c += (vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1) * VEC;
      }
    }
  }
  __global T *to = (__global T *)(out + out_offset) + (get_global_id(1) * get_global_size(0) + group) * depth * channels;
  for (int k = 0; k < depth; ++k, to += channels)
    for (int c = 0; c < channels; c += VEC)
      store_part((__global uchar *)to, c, channels, T_DTYPE, *(__local const TV *)(sums + k * pitch + c));
}
#endif
