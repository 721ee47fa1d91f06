// Convolutions with so few channels a group that packing would cost more than the arithmetic, such as depthwise ones.
//
// `pad_planes` first copies source, weight and gradient into dense planes of T with their padding in them, so that the
// kernels after it need no bounds and no dtypes. Dimensions are innermost first (w, h, d), as in patches.cl.

#define SPATIAL 3

// A tensor of (images, channels, d, h, w) and the planes it goes to: `before` zeros precede it in each dimension.
typedef struct {
  long extents[SPATIAL];
  long strides[SPATIAL];
  long channel_stride;
  long image_stride;
  long before[SPATIAL];
  long sizes[SPATIAL];
} Plane;

// Global size (channels, rows of a plane, images): one work-item, one row. Neighbours share a row's cache lines where
// channels lie innermost.
__kernel void pad_planes(__global const uchar *source, ulong source_offset, int source_dtype, Plane plane,
                         __global uchar *planes, ulong planes_offset) {
  const long channel = get_global_id(0);
  const long image = get_global_id(2);
  const long y = get_global_id(1) % plane.sizes[1] - plane.before[1];
  const long z = get_global_id(1) / plane.sizes[1] - plane.before[2];
  const long row = (image * get_global_size(0) + channel) * get_global_size(1) + get_global_id(1);
  __global T *out = (__global T *)(planes + planes_offset) + row * plane.sizes[0];
  const bool exists = y >= 0 && y < plane.extents[1] && z >= 0 && z < plane.extents[2];
  const long count = exists ? min(plane.extents[0], plane.sizes[0] - plane.before[0]) : 0;
  const long first = exists ? plane.before[0] : 0;
  const long at =
      image * plane.image_stride + channel * plane.channel_stride + y * plane.strides[1] + z * plane.strides[2];
  source += source_offset;
  for (long x = 0; x < first; ++x) out[x] = FROM_REAL(0);
  for (long x = first + count; x < plane.sizes[0]; ++x) out[x] = FROM_REAL(0);
  out += first;
  long x = 0;
#ifndef IS_COMPLEX
  if (plane.strides[0] == 1)
    for (; x + VEC <= count; x += VEC) VSTORE(load_dense(source, at + x, SOURCE_DTYPE), 0, out + x);
#endif
  for (; x < count; ++x) out[x] = load_one(source, at + x * plane.strides[0], SOURCE_DTYPE);
}

// A convolution of planes. Tap t of pixel p lies at p * scale + start + t * step, always inside its plane, also for the
// pixels that fill up the last vector of a row.
typedef struct {
  long pixels[SPATIAL];
  long taps[SPATIAL];
  long scale[SPATIAL];
  long start[SPATIAL];
  long step[SPATIAL];
  long sizes[SPATIAL];
  long channels;        // of the source, in a group
  long image_channels;  // of the source, in all groups
  long weight_group_stride;
  long weight_out_stride;
  long weight_in_stride;
} Planes;

inline long plane_row(const Planes *p, long y, long z, long tap_y, long tap_z) {
  const long row_y = y * p->scale[1] + p->start[1] + tap_y * p->step[1];
  const long row_z = z * p->scale[2] + p->start[2] + tap_z * p->step[2];
  return (row_z * p->sizes[1] + row_y) * p->sizes[0] + p->start[0];
}

// VEC pixels `scale` apart.
inline TV load_apart(__global const T *source, long scale) {
#ifndef IS_COMPLEX
  if (scale == 1) return VLOAD(0, source);
  if (scale == 2) return (TV)(VLOAD(0, source).even, VLOAD(0, source + VEC).even);
#endif
  Lanes lanes;
  for (int l = 0; l < VEC; ++l) lanes.lanes[l] = source[l * scale];
  return lanes.vector;
}

// VECTORS * VEC pixels of one row of the result, from the planes of a group and the weights of one channel.
#define DEFINE_STRIP(VECTORS)                                                                                      \
  inline void PASTE(convolve_strip_, VECTORS)(const Planes *p, __global const T *source, __global const T *weight, \
                                              long x, long y, long z, T *values) {                                 \
    const long plane = p->sizes[0] * p->sizes[1] * p->sizes[2];                                                    \
    TV sums[VECTORS];                                                                                              \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) sums[v] = (TV)(0);                                         \
    for (long c = 0; c < p->channels; ++c) {                                                                       \
      __global const T *factors = weight + c * p->weight_in_stride;                                                \
      for (long tap_z = 0; tap_z < p->taps[2]; ++tap_z) {                                                          \
        for (long tap_y = 0; tap_y < p->taps[1]; ++tap_y) {                                                        \
          __global const T *row = source + c * plane + plane_row(p, y, z, tap_y, tap_z) + x * p->scale[0];        \
          for (long tap_x = 0; tap_x < p->taps[0]; ++tap_x) {                                                      \
            const TV factor = (TV)(*factors++);                                                                    \
            _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) sums[v] =                                          \
                MULTIPLY_ADD(factor, load_apart(row + v * VEC * p->scale[0], p->scale[0]), sums[v]);               \
            row += p->step[0];                                                                                     \
          }                                                                                                        \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
    _Pragma("unroll") for (int v = 0; v < VECTORS; ++v) STORE_VALUES(sums[v], values + v * VEC);                   \
  }

#define STRIP 4
DEFINE_STRIP(1)
DEFINE_STRIP(4)

// Global size (result channels, ceil(rows of a plane of the result / block), images): one work-item, `block` rows of
// one channel. The epilogue's matrix has result channels as rows and pixels as columns, as for `gemm`.
__kernel void conv_direct(__global const uchar *source, ulong source_offset, __global const uchar *weight,
                          ulong weight_offset, Planes planes, long group_channels, long block, EPILOGUE_ARGUMENTS) {
  const long image = get_global_id(2);
  const long group = get_global_id(0) / group_channels;
  const long channel = get_global_id(0) % group_channels;
  const long rows = planes.pixels[1] * planes.pixels[2];
  const long plane = planes.sizes[0] * planes.sizes[1] * planes.sizes[2];
  __global const T *from = (__global const T *)(source + source_offset) +
                           (image * planes.image_channels + group * planes.channels) * plane;
  __global const T *factors = (__global const T *)(weight + weight_offset) + group * planes.weight_group_stride +
                              channel * planes.weight_out_stride;
  const Epilogue epilogue = EPILOGUE(group, 0, 0);

  const long last = min(rows, (long)(get_global_id(1) + 1) * block);
  for (long row = get_global_id(1) * block; row < last; ++row) {
    const long y = row % planes.pixels[1];
    const long z = row / planes.pixels[1];
    for (long x = 0; x < planes.pixels[0];) {
      const long left = planes.pixels[0] - x;
      T values[STRIP * VEC];
      const int count = (int)min(left, (long)(left > (STRIP - 1) * VEC ? STRIP * VEC : VEC));
      if (left > (STRIP - 1) * VEC)
        convolve_strip_4(&planes, from, factors, x, y, z, values);
      else
        convolve_strip_1(&planes, from, factors, x, y, z, values);
      store_product(&epilogue, values, STRIP * VEC, channel, (image * rows + row) * planes.pixels[0] + x, 1, count);
      x += count;
    }
  }
}

// The gradient of the weight: global size (features, result channels, groups), one weight a work-item. `gradient` is
// planes of pixels whose rows are filled up to whole vectors with zeros. The epilogue's matrix has result channels as
// rows and features, as in the patch matrix, as columns.
__kernel void conv_direct_weight(__global const uchar *source, ulong source_offset, __global const uchar *gradient,
                                 ulong gradient_offset, Planes planes, long images, EPILOGUE_ARGUMENTS) {
  const long group = get_global_id(2);
  const long channel = get_global_id(1);
  const long feature = get_global_id(0);
  const long tap = feature / planes.channels;
  const long tap_x = tap % planes.taps[0];
  const long tap_y = tap / planes.taps[0] % planes.taps[1];
  const long tap_z = tap / (planes.taps[0] * planes.taps[1]);
  const long plane = planes.sizes[0] * planes.sizes[1] * planes.sizes[2];
  const long width = (planes.pixels[0] + VEC - 1) / VEC * VEC;
  const long rows = planes.pixels[1] * planes.pixels[2];
  const long channels = get_global_size(1) * get_global_size(2);
  TV sum = (TV)(0);
  for (long image = 0; image < images; ++image) {
    __global const T *values =
        (__global const T *)(source + source_offset) +
        (image * planes.image_channels + group * planes.channels + feature % planes.channels) * plane;
    __global const T *factors = (__global const T *)(gradient + gradient_offset) +
                                (image * channels + group * get_global_size(1) + channel) * rows * width;
    for (long row = 0; row < rows; ++row, factors += width) {
      const long y = row % planes.pixels[1];
      const long z = row / planes.pixels[1];
      __global const T *from = values + plane_row(&planes, y, z, tap_y, tap_z) + tap_x * planes.step[0];
      for (long x = 0; x < width; x += VEC)
        sum = MULTIPLY_ADD(load_apart(factors + x, 1), load_apart(from + x * planes.scale[0], planes.scale[0]), sum);
    }
  }
  T total = lane_sum(sum);
  const Epilogue epilogue = EPILOGUE(group, 0, 0);
  store_product(&epilogue, &total, 1, channel, feature, 1, 1);
}
