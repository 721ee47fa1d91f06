// Depthwise convolutions of tensors whose channels lie innermost: a vector holds neighbouring channels.
//
// A lane computes one channel, so nothing is copied but the weights, which `conv_channel_weights` copies to
// [kernel][channels, padded to whole vectors]. `Source`, `PixelStrides` and `TapStrides` are those of conv.cl; boxes
// do not matter here.

// Vectors of channels of an item: four hide the latency of a multiply-add. On GPUs, neighbouring items read
// neighbouring vectors.
#define CHANNEL_VECTORS (ITEMS == 1 ? 4 : 1)
#define ITEM_CHANNELS (CHANNEL_VECTORS * VEC)

// Position of this item in a space of these sizes. On GPUs items are numbered through, so that groups are full however
// small the sizes are, and an item beyond `depth` returns: no barrier may follow.
#ifdef IS_CPU
#define ITEM_PLACE(x, y, z, width, height, depth) \
  const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2)
#else
#define ITEM_PLACE(x, y, z, width, height, depth)                                       \
  const long x = get_global_id(0) % (width), y = get_global_id(0) / (width) % (height); \
  const long z = get_global_id(0) / (width) / (height);                                 \
  if (z >= (depth)) return
#endif

// Global size (pitch, kernel elements): pitch is the channels, padded to whole vectors.
__kernel void conv_channel_weights(__global const uchar *weight, ulong weight_offset, int weight_dtype,
                                   __global uchar *out, ulong out_offset, Source from, TapStrides taps, long channels,
                                   long pitch) {
  ITEM_PLACE(channel, position, none, pitch, tap_count(&from), 1);
  long tap = position, at = channel * taps.group_stride;
  for (int d = 0; d < SPATIAL; ++d) {
    at += tap % from.taps[d] * taps.strides[d];
    tap /= from.taps[d];
  }
  ((__global T *)(out + out_offset))[position * pitch + channel] =
      channel < channels ? load_one(weight + weight_offset, at, DTYPE_OF(weight_dtype)) : FROM_REAL(0);
}

// Source element that kernel element t of output position p reads in dimension d; negative where there is none.
static inline long element_of(const Source *s, int d, long p, long t) {
  const long position = p * s->scale[d] + s->origin[d] + t * s->step[d];
  if (position < 0 || (s->stuffing[d] > 1 && position % s->stuffing[d] != 0)) return -1;
  const long element = s->stuffing[d] > 1 ? position / s->stuffing[d] : position;
  return element < s->extents[d] ? element : -1;
}

// VEC channels from `first` on of those `count` that begin at `offset`; the lanes past the last are zero.
ALWAYS_INLINE TV load_channels(__global const uchar *image, long offset, long first, long count, int dt) {
  if (first + VEC <= count) return load_dense(image, offset + first, dt);
  return load_part(image + offset * dtype_size(dt), first, count, dt, FROM_REAL(0));
}

// One output position of VECTORS vectors of channels, `count` channels in all.
#define DEFINE_PIXEL(VECTORS)                                                                               \
  ALWAYS_INLINE void PASTE(convolve_pixel_, VECTORS)(const Source *s, __global const uchar *image, int dt,  \
                                                     const long *at, __global const T *factors, long pitch, \
                                                     long count, TV *sums) {                                \
    for (long z = 0; z < s->taps[2]; ++z) {                                                                 \
      const long source_z = element_of(s, 2, at[2], z);                                                     \
      if (source_z < 0) continue;                                                                           \
      for (long y = 0; y < s->taps[1]; ++y) {                                                               \
        const long source_y = element_of(s, 1, at[1], y);                                                   \
        if (source_y < 0) continue;                                                                         \
        const long row = source_z * s->strides[2] + source_y * s->strides[1];                               \
        __global const T *factor = factors + (z * s->taps[1] + y) * s->taps[0] * pitch;                     \
        for (long x = 0; x < s->taps[0]; ++x, factor += pitch) {                                            \
          const long source_x = element_of(s, 0, at[0], x);                                                 \
          if (source_x < 0) continue;                                                                       \
          const long offset = row + source_x * s->strides[0];                                               \
          UNROLL for (int v = 0; v < VECTORS; ++v) sums[v] =                                                \
              MULTIPLY_ADD(load_dense((__global const uchar *)factor, v * VEC, T_DTYPE),                    \
                           load_channels(image, offset, v * VEC, count, dt), sums[v]);                      \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  }

DEFINE_PIXEL(1)
#if ITEMS == 1
DEFINE_PIXEL(4)
#endif

// Global size (blocks of ITEM_CHANNELS channels, blocks of `block` rows of output positions, images).
__kernel void conv_channels(__global const uchar *source, ulong source_offset, int source_dtype,
                            __global const uchar *weight, ulong weight_offset, __global const uchar *bias,
                            ulong bias_offset, int bias_dtype, long bias_stride, __global uchar *out, ulong out_offset,
                            int out_dtype, Source from, PixelStrides pixels, long channels, long images, long pitch,
                            long block) {
  const long rows = from.pixels[1] * from.pixels[2];
  ITEM_PLACE(part, down, image, (channels + ITEM_CHANNELS - 1) / ITEM_CHANNELS, (rows + block - 1) / block, images);
  const long first = part * ITEM_CHANNELS, count = min((long)ITEM_CHANNELS, channels - first);
  const long last = min(rows, (down + 1) * block), element = dtype_size(DTYPE_OF(out_dtype));
  source += source_offset + (image * from.image_stride + first) * dtype_size(DTYPE_OF(source_dtype));
  out += out_offset + (image * pixels.image_stride + first) * element;
  __global const T *factors = (__global const T *)(weight + weight_offset) + first;
  TV start[CHANNEL_VECTORS];
  for (int v = 0; v < CHANNEL_VECTORS; ++v) {
    Lanes lanes;
    for (int l = 0; l < VEC; ++l) {
      const long channel = first + v * VEC + l;
      lanes.lanes[l] = bias && channel < channels
                           ? load_one(bias + bias_offset, channel * bias_stride, DTYPE_OF(bias_dtype))
                           : FROM_REAL(0);
    }
    start[v] = lanes.vector;
  }
  for (long row = down * block; row < last; ++row) {
    long at[SPATIAL] = {0, row % from.pixels[1], row / from.pixels[1]};
    for (; at[0] < from.pixels[0]; ++at[0]) {
      const long to = at[0] * pixels.strides[0] + at[1] * pixels.strides[1] + at[2] * pixels.strides[2];
      TV sums[CHANNEL_VECTORS];
      for (int v = 0; v < CHANNEL_VECTORS; ++v) sums[v] = start[v];
#if ITEMS == 1
      if (count == ITEM_CHANNELS) {
        if (DTYPE_OF(source_dtype) == T_DTYPE)
          convolve_pixel_4(&from, source, T_DTYPE, at, factors, pitch, ITEM_CHANNELS, sums);
        else convolve_pixel_4(&from, source, DTYPE_OF(source_dtype), at, factors, pitch, ITEM_CHANNELS, sums);
        for (int v = 0; v < 4; ++v) store_vector(out, to + v * VEC, DTYPE_OF(out_dtype), sums[v]);
        continue;
      }
#endif
      for (int v = 0; v * VEC < count; ++v) {
        convolve_pixel_1(&from, source + v * VEC * dtype_size(DTYPE_OF(source_dtype)), DTYPE_OF(source_dtype), at,
                         factors + v * VEC, pitch, count - v * VEC, sums + v);
        store_lanes(out + (to + v * VEC) * element, element, (int)min(count - v * VEC, (long)VEC), DTYPE_OF(out_dtype),
                    sums[v]);
      }
    }
  }
}

// Contribution of a row of output positions to kernel element t. Four sums, so that an addition need not wait for the
// one before.
ALWAYS_INLINE TV row_gradient(const Source *s, __global const uchar *source, int dt, long values,
                              __global const uchar *gradient, int gradient_dt, long gradients, long step, long t,
                              long count) {
  TV sums[4] = {(TV)(0), (TV)(0), (TV)(0), (TV)(0)};
  // A gradient's source has no stuffing: the positions inside lie between two bounds.
  const long scale = s->scale[0], origin = s->origin[0] + t % s->taps[0] * s->step[0];
  const long first = origin < 0 ? (-origin + scale - 1) / scale : 0;
  const long last = min(s->pixels[0], (s->extents[0] - origin + scale - 1) / scale);
  source += (values + (first * scale + origin) * s->strides[0]) * dtype_size(dt);
  for (long x = first; x < last; x += 4) {
  UNROLL for (int i = 0; i < 4; ++i) {
      if (x + i >= last) break;
      sums[i] = MULTIPLY_ADD(load_channels(gradient, gradients + (x + i) * step, 0, count, gradient_dt),
                             load_channels(source, (x + i - first) * scale * s->strides[0], 0, count, dt), sums[i]);
    }
  }
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// Global size (vectors of channels, splits of the rows of all images): sums [splits][kernel][channels].
__kernel void conv_channels_weight(__global const uchar *source, ulong source_offset, int source_dtype,
                                   __global const uchar *gradient, ulong gradient_offset, int gradient_dtype,
                                   __global uchar *out, ulong out_offset, Source from, PixelStrides pixels,
                                   long channels, long images, long splits) {
  ITEM_PLACE(part, split, none, (channels + VEC - 1) / VEC, splits, 1);
  const long first_channel = part * VEC, count = min((long)VEC, channels - first_channel);
  const long taps = tap_count(&from);
  const long plane_rows = from.pixels[1] * from.pixels[2];
  SHARE_TASKS(images * plane_rows, split, splits, first, last);
  out += out_offset + (split * taps * channels + first_channel) * sizeof(T);
  for (long t = 0; t < taps; ++t) store_lanes(out + t * channels * sizeof(T), sizeof(T), (int)count, T_DTYPE, (TV)(0));
  source += source_offset;
  gradient += gradient_offset;
  for (long row = first; row < last; ++row) {
    const long image = row / plane_rows;
    const long at_y = row % plane_rows % from.pixels[1], at_z = row % plane_rows / from.pixels[1];
    const long gradients =
        image * pixels.image_stride + at_y * pixels.strides[1] + at_z * pixels.strides[2] + first_channel;
    for (long t = 0; t < taps; ++t) {
      const long z = element_of(&from, 2, at_z, t / (from.taps[0] * from.taps[1]));
      const long y = element_of(&from, 1, at_y, t / from.taps[0] % from.taps[1]);
      if (z < 0 || y < 0) continue;
      const long values = image * from.image_stride + z * from.strides[2] + y * from.strides[1] + first_channel;
      const bool is_plain = (count == VEC) & (DTYPE_OF(source_dtype) == T_DTYPE) & (DTYPE_OF(gradient_dtype) == T_DTYPE);
      TV sum = load_channels(out, t * channels, 0, count, T_DTYPE);
      if (is_plain)
        sum += row_gradient(&from, source, T_DTYPE, values, gradient, T_DTYPE, gradients, pixels.strides[0], t, VEC);
      else
        sum += row_gradient(&from, source, DTYPE_OF(source_dtype), values, gradient, DTYPE_OF(gradient_dtype),
                            gradients, pixels.strides[0], t, count);
      store_lanes(out + t * channels * sizeof(T), sizeof(T), (int)count, T_DTYPE, sum);
    }
  }
}
