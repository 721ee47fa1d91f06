// Max pooling of windows at random positions (CLASS_F and CLASS_D): B. Graham, "Fractional max-pooling" (2014), with
// pseudorandom sequences. Planes are contiguous [depth, height, width]; images have depth 1.

// Sizes of the input, of the output and of a window, outermost dimension first.
typedef struct {
  long input[3];
  long output[3];
  long kernel_size[3];
} Fractional;
SHARED(Fractional, 72);

// Start of window `index` along a dimension: the last window ends at the border, and steps between the others differ
// by 1.
INLINE long window_start(T sample, long index, long input, long output, long kernel_size) {
  if (index == output - 1) return input - kernel_size;
  const T alpha = (T)(input - kernel_size) / (T)(output - 1);
  return (long)((index + sample) * alpha) - (long)(sample * alpha);
}

// The largest element of each window, and its position in the plane; the last NaN, if there is one. `samples` has
// `spatial` values in [0, 1) per plane: in the order of dimensions for volumes, and with the width first for images.
__kernel void fractional_max_pool(__global uchar *out, ulong out_offset, __global uchar *indices, ulong indices_offset,
                                  __global const uchar *input, ulong input_offset, __global const uchar *samples,
                                  ulong samples_offset, int dtype0, Fractional p, long n, int spatial) {
  const long volume = p.input[0] * p.input[1] * p.input[2];
  ITEM_TASKS(n, first, last);
  for (long i = first; i < last; i++) {
    const long x = i % p.output[2], rows = i / p.output[2], y = rows % p.output[1], slices = rows / p.output[1];
    const long z = slices % p.output[0], plane = slices / p.output[0];
    const bool is_image = spatial == 2;
    const T sample_x = load(samples + samples_offset, plane * spatial + (is_image ? 0 : 2), DTYPE0);
    const T sample_y = load(samples + samples_offset, plane * spatial + 1, DTYPE0);
    const T sample_z = is_image ? (T)0 : load(samples + samples_offset, plane * spatial, DTYPE0);
    const long x0 = window_start(sample_x, x, p.input[2], p.output[2], p.kernel_size[2]);
    const long y0 = window_start(sample_y, y, p.input[1], p.output[1], p.kernel_size[1]);
    const long z0 = window_start(sample_z, z, p.input[0], p.output[0], p.kernel_size[0]);
    T top = -INFINITY;
    long index = (z0 * p.input[1] + y0) * p.input[2] + x0;
    for (long dz = z0; dz < z0 + p.kernel_size[0]; dz++) {
      for (long dy = y0; dy < y0 + p.kernel_size[1]; dy++) {
        const long row = (dz * p.input[1] + dy) * p.input[2];
        for (long at = row + x0; at < row + x0 + p.kernel_size[2]; at++) {
          const T v = load(input + input_offset, plane * volume + at, DTYPE0);
          if (v > top || isnan(v)) {
            top = v;
            index = at;
          }
        }
      }
    }
    store(out + out_offset, i, DTYPE0, top);
    ((__global long *)(indices + indices_offset))[i] = index;
  }
}
