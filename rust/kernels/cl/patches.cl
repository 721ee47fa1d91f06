// Packs the patches of a convolution for `gemm`, straight from the tensor: nothing is unfolded in memory.
//
// The patch matrix has a row for each pixel of the result and a column for each feature, a channel under
// a tap of the kernel: feature = tap * channels + channel. Dimensions are innermost first (w, h, d), and
// missing ones have size 1, so that one kernel serves 1-D, 2-D and 3-D.

#define SPATIAL 3

// Along dimension d, tap t of pixel p lies at p * scale + origin + t * step; outside [0, extents) the value is zero. A
// convolution has scale = stride, origin = -padding, step = dilation. Its transpose (the gradient of the input, the
// forward of a transposed convolution) has scale = 1 and step = -dilation; with a stride above 1 the launcher cuts it
// into phases, the pixels of one remainder and the taps that meet them, which again have this form.
typedef struct {
  long pixels[SPATIAL];
  long taps[SPATIAL];
  long scale[SPATIAL];
  long origin[SPATIAL];
  long step[SPATIAL];
  long extents[SPATIAL];
  long strides[SPATIAL];
  long channels;
  long channel_stride;
  long image_stride;
  long group_stride;
} Patches;

// A pixel of a batch of images.
typedef struct {
  long at[SPATIAL];
  long image;
} Pixel;

inline Pixel find_pixel(const Patches *patches, long index) {
  Pixel pixel;
  for (int d = 0; d < SPATIAL; ++d) {
    pixel.at[d] = index % patches->pixels[d];
    index /= patches->pixels[d];
  }
  pixel.image = index;
  return pixel;
}

// The next pixel in index order.
inline void advance(const Patches *patches, Pixel *pixel) {
  for (int d = 0; d < SPATIAL; ++d) {
    if (++pixel->at[d] < patches->pixels[d]) return;
    pixel->at[d] = 0;
  }
  ++pixel->image;
}

typedef struct {
  long at[SPATIAL];
} Tap;

inline Tap find_tap(const Patches *patches, long index) {
  Tap tap;
  tap.at[0] = index % patches->taps[0];
  index /= patches->taps[0];
  tap.at[1] = index % patches->taps[1];
  tap.at[2] = index / patches->taps[1];
  return tap;
}

#define NOWHERE (-1)

// Position along dimension d, or NOWHERE.
inline long position(const Patches *patches, int d, long pixel, long tap) {
  const long at = pixel * patches->scale[d] + patches->origin[d] + tap * patches->step[d];
  return at >= 0 && at < patches->extents[d] ? at : NOWHERE;
}

// Element offset of channel 0 at the start of the row that a pixel's row reads under a tap, or NOWHERE.
inline long row_offset(const Patches *patches, const Pixel *pixel, const Tap *tap) {
  long offset = pixel->image * patches->image_stride;
  for (int d = 1; d < SPATIAL; ++d) {
    const long at = position(patches, d, pixel->at[d], tap->at[d]);
    if (at == NOWHERE) return NOWHERE;
    offset += at * patches->strides[d];
  }
  return offset;
}

// Element offset of channel 0 under a tap of a pixel, or NOWHERE.
inline long patch_offset(const Patches *patches, const Pixel *pixel, const Tap *tap) {
  const long row = row_offset(patches, pixel, tap);
  const long at = position(patches, 0, pixel->at[0], tap->at[0]);
  return row == NOWHERE || at == NOWHERE ? NOWHERE : row + at * patches->strides[0];
}

// Those of `count` neighbours from *pixel on, which moves past them.
inline void patch_offsets(const Patches *patches, Pixel *pixel, const Tap *tap, int count, long *offsets) {
  if (pixel->at[0] + count >= patches->pixels[0]) {
    for (int i = 0; i < count; ++i) {
      offsets[i] = patch_offset(patches, pixel, tap);
      advance(patches, pixel);
    }
    return;
  }
  const long row = row_offset(patches, pixel, tap);
  const long first = pixel->at[0] * patches->scale[0] + patches->origin[0] + tap->at[0] * patches->step[0];
  for (int i = 0; i < count; ++i) {
    const long at = first + i * patches->scale[0];
    const bool exists = row != NOWHERE && at >= 0 && at < patches->extents[0];
    offsets[i] = exists ? row + at * patches->strides[0] : NOWHERE;
  }
  pixel->at[0] += count;
}

// Whether pixels that neighbour along a row always read neighbours in memory.
inline bool rows_are_dense(const Patches *patches) {
  return patches->scale[0] == 1 && patches->strides[0] == 1;
}

// Whether `count` pixels of such a source lie in one row, and all of them, under the tap, inside the source.
inline bool is_run(const Patches *patches, const Pixel *pixels, int count, const Tap *tap) {
  const Pixel *last = pixels + count - 1;
  return last->at[0] - pixels->at[0] == count - 1 && position(patches, 0, last->at[0], tap->at[0]) != NOWHERE &&
         patch_offset(patches, pixels, tap) != NOWHERE;
}

// How many of `count` such pixels to move at once: VEC where that is aligned, BLOCK, or 0 where they are no run.
inline int run_length(const Patches *patches, const Pixel *pixels, bool aligned, int count, const Tap *tap) {
  if (aligned && count >= VEC && is_run(patches, pixels, VEC, tap)) return VEC;
  return count >= BLOCK && is_run(patches, pixels, BLOCK, tap) ? BLOCK : 0;
}

#ifndef IS_COMPLEX
// Packs channels [first, last) of VEC or BLOCK pixels that are neighbours in memory, a channel every `width` reals.
inline void pack_run(__global const uchar *source, int dt, long offset, int count, long first, long last, long stride,
                     long width, __global R *out) {
  offset += first * stride;
  if (count == BLOCK) {
    for (long c = first; c < last; ++c, offset += stride, out += width) vstore4(load4(source, offset, dt), 0, out);
  } else {
    for (long c = first; c < last; ++c, offset += stride, out += width)
      STORE_ALIGNED(load_dense(source, offset, dt), out);
  }
}
#endif

#ifndef IS_COMPLEX
// Without a branch: pixel 0, which always exists, is read for one that does not.
inline R real_or_zero(__global const R *source, long offset, long element) {
  const R value = source[max(offset, 0L) + element];
  return offset == NOWHERE ? 0 : value;
}
#endif

// Packs channels [first, last) of up to BLOCK pixels anywhere.
inline void pack_pixel_block(__global const uchar *source, int dt, const long *offsets, int count, long first,
                             long last, long stride, long width, __global R *out) {
  long c = first;
#ifndef IS_COMPLEX
  for (; count == BLOCK && stride == 1 && c + BLOCK <= last; c += BLOCK, out += BLOCK * width) {
    R4 block[BLOCK];
    for (int i = 0; i < BLOCK; ++i) block[i] = offsets[i] == NOWHERE ? (R4)(0) : load4(source, offsets[i] + c, dt);
    store_transposed(block, width, out);
  }
  if (count == BLOCK && dt == R_DTYPE) {
    __global const R *reals = (__global const R *)source;
    for (; c < last; ++c, out += width)
      vstore4((R4)(real_or_zero(reals, offsets[0], c * stride), real_or_zero(reals, offsets[1], c * stride),
                   real_or_zero(reals, offsets[2], c * stride), real_or_zero(reals, offsets[3], c * stride)), 0, out);
  }
#endif
  for (; c < last; ++c, out += width)
    for (int i = 0; i < count; ++i)
      ((__global T *)out)[i] = offsets[i] == NOWHERE ? FROM_REAL(0) : load_one(source, offsets[i] + c * stride, dt);
}

// Packs `present` pixels from index `first` on as one panel of `width` reals, for `depth` features.
inline void pack_pixels(__global const uchar *source, int dt, const Patches *patches, long first, long present,
                        long feature, long depth, int width, __global R *out) {
  const int count = width / PARTS;
  const bool dense = rows_are_dense(patches);
  Pixel pixels[TILE_LONGER];
  pixels[0] = find_pixel(patches, first);
  for (int i = 1; i < count; ++i) {
    pixels[i] = pixels[i - 1];
    advance(patches, &pixels[i]);
  }
  const long end = feature + depth;
  while (feature < end) {
    const Tap tap = find_tap(patches, feature / patches->channels);
    const long channel = feature % patches->channels;
    const long last = min(patches->channels, channel + end - feature);
    for (int i = 0; i < count;) {
#ifndef IS_COMPLEX
      const int left = (int)min((long)count, present) - i;
      const int run = dense ? run_length(patches, pixels + i, (width | i) % VEC == 0, left, &tap) : 0;
      if (run > 0) {
        pack_run(source, dt, patch_offset(patches, &pixels[i], &tap), run, channel, last, patches->channel_stride,
                 width, out + i);
        i += run;
        continue;
      }
#endif
      const int some = min(BLOCK, count - i);
      long offsets[BLOCK];
      Pixel pixel = pixels[i];
      patch_offsets(patches, &pixel, &tap, some, offsets);
      for (int r = max(0, (int)min((long)some, present - i)); r < some; ++r) offsets[r] = NOWHERE;
      pack_pixel_block(source, dt, offsets, some, channel, last, patches->channel_stride, width, out + i * PARTS);
      i += some;
    }
    feature += last - channel;
    out += (last - channel) * width;
  }
}

// Packs channels [first, last) under one tap of `count` pixels, a pixel every `width` reals.
inline void pack_block(__global const uchar *source, int dt, const long *offsets, int count, long first, long last,
                       long stride, long width, __global R *out) {
  long c = first;
#ifndef IS_COMPLEX
  bool dense = count == BLOCK && offsets[0] != NOWHERE;
  for (int i = 1; i < count; ++i) dense = dense && offsets[i] == offsets[0] + i;
  for (; (dense || stride == 1) && c + BLOCK <= last; c += BLOCK, out += BLOCK) {
    if (dense) {
      R4 block[BLOCK];
      for (int i = 0; i < BLOCK; ++i) block[i] = load4(source, offsets[0] + (c + i) * stride, dt);
      store_transposed(block, width, out);
    } else {
      for (int i = 0; i < count; ++i)
        vstore4(offsets[i] == NOWHERE ? (R4)(0) : load4(source, offsets[i] + c, dt), 0, out + i * width);
    }
  }
#endif
  for (; c < last; ++c, out += PARTS)
    for (int i = 0; i < count; ++i)
      *(__global T *)(out + i * width) =
          offsets[i] == NOWHERE ? FROM_REAL(0) : load_one(source, offsets[i] + c * stride, dt);
}

// Packs `present` features from `first` on as one panel of `width` reals, for `depth` pixels.
inline void pack_features(__global const uchar *source, int dt, const Patches *patches, long first, long present,
                          long pixel_index, long depth, int width, __global R *out) {
  for (long feature = first; feature < first + width / PARTS;) {
    const bool exists = feature < first + present;
    const long channel = feature % patches->channels;
    const long end = first + (exists ? present : width / PARTS);
    const long last = exists ? min(patches->channels, channel + end - feature) : channel + end - feature;
    const Tap tap = find_tap(patches, feature / patches->channels);
    Pixel pixel = find_pixel(patches, pixel_index);
    for (long k = 0; k < depth; k += BLOCK) {
      const int count = (int)min((long)BLOCK, depth - k);
      long offsets[BLOCK];
      if (exists) patch_offsets(patches, &pixel, &tap, count, offsets);
      for (int i = 0; !exists && i < count; ++i) offsets[i] = NOWHERE;
      pack_block(source, dt, offsets, count, channel, last, patches->channel_stride, width,
                 out + k * width + (feature - first) * PARTS);
    }
    feature += last - channel;
  }
}

// As pack_rows and pack_columns of gemm.cl: global size (panels, ceil(depth / step), groups).
__kernel void pack_pixel_rows(__global const uchar *source, ulong source_offset, int source_dtype, Patches patches,
                              long first, long limit, long k_first, long depth, long step, __global uchar *packed,
                              ulong packed_offset) {
  const long k = get_global_id(1) * step;
  const long from = first + get_global_id(0) * (TILE_ROWS / PARTS);
  source += source_offset + get_global_id(2) * patches.group_stride * dtype_size(SOURCE_DTYPE);
  pack_pixels(source, SOURCE_DTYPE, &patches, from, limit - from, k_first + k, min(step, depth - k), TILE_ROWS,
              panel_at(packed + packed_offset, depth, k, TILE_ROWS));
}

__kernel void pack_pixel_columns(__global const uchar *source, ulong source_offset, int source_dtype, Patches patches,
                                 long first, long limit, long k_first, long depth, long step, __global uchar *packed,
                                 ulong packed_offset) {
  const long k = get_global_id(1) * step;
  const long from = first + get_global_id(0) * (TILE_COLUMNS / PARTS);
  source += source_offset + get_global_id(2) * patches.group_stride * dtype_size(SOURCE_DTYPE);
  pack_pixels(source, SOURCE_DTYPE, &patches, from, limit - from, k_first + k, min(step, depth - k), TILE_COLUMNS,
              panel_at(packed + packed_offset, depth, k, TILE_COLUMNS));
}

__kernel void pack_feature_columns(__global const uchar *source, ulong source_offset, int source_dtype,
                                   Patches patches, long first, long limit, long k_first, long depth, long step,
                                   __global uchar *packed, ulong packed_offset) {
  const long k = get_global_id(1) * step;
  const long from = first + get_global_id(0) * (TILE_COLUMNS / PARTS);
  source += source_offset + get_global_id(2) * patches.group_stride * dtype_size(SOURCE_DTYPE);
  pack_features(source, SOURCE_DTYPE, &patches, from, min(limit - from, (long)(TILE_COLUMNS / PARTS)), k_first + k,
                min(step, depth - k), TILE_COLUMNS, panel_at(packed + packed_offset, depth, k, TILE_COLUMNS));
}
