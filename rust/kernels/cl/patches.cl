// Packs the patches of a convolution for `gemm`, straight from the tensor: nothing is unfolded in memory.
//
// The patch matrix has a row for each pixel of the result and a column for each feature, a channel under a tap of the
// kernel. Dimensions are innermost first (w, h, d), and missing ones have size 1, so that one kernel serves 1-D, 2-D
// and 3-D.

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
  long tap_stride;      // of a feature's index: features are counted along the tensor's memory
  long feature_stride;  // the same for channels
  long elements;        // from the first to the last of the images
} Patches;

inline long tap_count(const Patches *patches) { return patches->taps[0] * patches->taps[1] * patches->taps[2]; }

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

// Elements from where a pixel's tap 0 lies, or would lie, to where a tap does.
inline long tap_offset(const Patches *patches, const Tap *tap) {
  long offset = 0;
  for (int d = 0; d < SPATIAL; ++d) offset += tap->at[d] * patches->step[d] * patches->strides[d];
  return offset;
}

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

// Moves on by `count` pixels in index order.
inline void advance(const Patches *patches, Pixel *pixel, int count) {
  pixel->at[0] += count;
  if (pixel->at[0] < patches->pixels[0]) return;
  for (int d = 0; d < SPATIAL; ++d) {
    const long carry = pixel->at[d] / patches->pixels[d];
    pixel->at[d] -= carry * patches->pixels[d];
    if (d + 1 < SPATIAL)
      pixel->at[d + 1] += carry;
    else
      pixel->image += carry;
  }
}

// Element offset of channel 0 of a pixel under tap 0, were it inside the source.
inline long pixel_offset(const Patches *patches, const Pixel *pixel) {
  long offset = pixel->image * patches->image_stride;
  for (int d = 0; d < SPATIAL; ++d)
    offset += (pixel->at[d] * patches->scale[d] + patches->origin[d]) * patches->strides[d];
  return offset;
}

// --- blocks of pixels -----------------------------------------------------------------------------------------------

// One index a lane; as a mask, -1 and 0.
typedef union {
#ifndef IS_COMPLEX
  RM vector;
#endif
  R_INDEX lanes[BLOCK];
} Indices;

// BLOCK neighbouring pixels, of which `count` exist.
typedef struct {
  long offsets[BLOCK];  // pixel_offset of each
  Indices at[SPATIAL];  // where tap 0 of each lies
  int count;
  bool is_inside;  // whether every tap of every pixel lies inside the source
  int run;         // pixels before this one are evenly spaced in memory, and so are those from it on; 0 where not
} PixelBlock;

#define OUTSIDE (-(1 << 29))

// The block that starts at a pixel, `left` pixels before the end.
inline PixelBlock find_block(const Patches *patches, Pixel pixel, long left) {
  PixelBlock block;
  block.count = (int)min(left, (long)BLOCK);
  block.is_inside = left >= BLOCK;
  const long spacing = patches->scale[0] * patches->strides[0];
  int breaks = 0;
  block.run = BLOCK;
  for (int l = 0; l < BLOCK; ++l) {
    const bool exists = l < block.count;
    block.offsets[l] = exists || l == 0 ? pixel_offset(patches, &pixel) : block.offsets[l - 1] + spacing;
    if (l > 0 && block.offsets[l] != block.offsets[l - 1] + spacing) {
      block.run = l;
      ++breaks;
    }
    for (int d = 0; d < SPATIAL; ++d) {
      const long first = pixel.at[d] * patches->scale[d] + patches->origin[d];
      const long last = first + (patches->taps[d] - 1) * patches->step[d];
      block.at[d].lanes[l] = exists ? (R_INDEX)first : OUTSIDE;
      block.is_inside = block.is_inside && min(first, last) >= 0 && max(first, last) < patches->extents[d];
    }
    if (l + 1 < block.count) advance(patches, &pixel, 1);
  }
  if (breaks > 1) block.run = 0;
  return block;
}

// Whether pixel l lies inside the source under a tap.
inline bool is_inside(const Patches *patches, const PixelBlock *block, int l, const Tap *tap) {
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = block->at[d].lanes[l] + tap->at[d] * patches->step[d];
    if (at < 0 || at >= patches->extents[d]) return false;
  }
  return true;
}

#ifndef IS_COMPLEX
// The same for all pixels: -1 and 0.
inline RM inside_mask(const Patches *patches, const PixelBlock *block, const Tap *tap) {
  RM mask = (RM)(-1);
  for (int d = 0; d < SPATIAL; ++d) {
    const RM at = block->at[d].vector + (RM)((R_INDEX)(tap->at[d] * patches->step[d]));
    mask &= (at >= (RM)(0)) & (at < (RM)((R_INDEX)patches->extents[d]));
  }
  return mask;
}

// The pixels from `run` on.
inline RM second_run(int run) {
  Indices mask;
  for (int l = 0; l < BLOCK; ++l) mask.lanes[l] = l >= run ? -1 : 0;
  return mask.vector;
}

// Whether loads of whole vectors get a block's pixels `shift` elements on, for `channels` channels, without leaving
// the tensor.
inline bool is_loadable(const Patches *patches, const PixelBlock *block, long shift, long channels) {
  const long spacing = patches->scale[0] * patches->strides[0];
  if (block->run == 0 || spacing < 1 || spacing > 2) return false;
  const long first = block->offsets[0] + shift, second = block->offsets[BLOCK - 1] - (BLOCK - 1) * spacing + shift;
  const long reach = 2 * BLOCK * spacing + (channels - 1) * patches->channel_stride;
  return min(first, second) >= 0 && max(first, second) + reach <= patches->elements;
}

// BLOCK elements, 1 or 2 apart.
ALWAYS_INLINE RB load_spaced(__global const uchar *source, int dt, long offset, long spacing) {
  const RB low = load_block(source, offset, dt);
  if (spacing == 1) return low;
  return (RB)(low.even, load_block(source, offset + BLOCK, dt).even);
}

// Channels of a loadable block: `count` of them, one every `width` reals of `out`.
ALWAYS_INLINE void pack_channels(__global const uchar *source, int dt, const PixelBlock *block, long spacing,
                                 long shift, RM mask, long channel_stride, int count, long width, __local R *out) {
  const long first = block->offsets[0] + shift, second = block->offsets[BLOCK - 1] - (BLOCK - 1) * spacing + shift;
  const RM from_second = second_run(block->run);
  if (block->is_inside && block->run == BLOCK) {
    for (int c = 0; c < count; ++c)
      *(__local RB *)(out + c * width) = load_spaced(source, dt, first + c * channel_stride, spacing);
  } else if (block->run == BLOCK) {
    for (int c = 0; c < count; ++c)
      *(__local RB *)(out + c * width) =
          select((RB)(0), load_spaced(source, dt, first + c * channel_stride, spacing), mask);
  } else {
    for (int c = 0; c < count; ++c) {
      const RB both = select(load_spaced(source, dt, first + c * channel_stride, spacing),
                             load_spaced(source, dt, second + c * channel_stride, spacing), from_second);
      *(__local RB *)(out + c * width) = select((RB)(0), both, mask);
    }
  }
}

// The same where channels, not pixels, are dense in memory: BLOCK channels of BLOCK pixels at a time.
ALWAYS_INLINE int transpose_channels(__global const uchar *source, int dt, const PixelBlock *block, long shift,
                                     RM mask, int count, long width, __local R *out) {
  Indices inside;
  inside.vector = mask;
  int c = 0;
  for (; c + BLOCK <= count; c += BLOCK) {
    RB rows[BLOCK];
    _Pragma("unroll") for (int l = 0; l < BLOCK; ++l) rows[l] =
        inside.lanes[l] ? load_block(source, block->offsets[l] + shift + c, dt) : (RB)(0);
    store_transposed(rows, width, out + c * width);
  }
  return c;
}
#endif

// --- k over features ------------------------------------------------------------------------------------------------

// Channels [first, last) of features [k_first, k_last) under a tap.
inline long first_channel(const Patches *patches, long tap, long k) {
  return clamp((k - tap * patches->tap_stride + patches->feature_stride - 1) / patches->feature_stride, 0L,
               patches->channels);
}

// Packs one tap of a block: `count` channels from `channel` on, one every `width` reals.
inline void pack_tap(__global const uchar *source, int dt, const Patches *patches, const PixelBlock *block,
                     const Tap *tap, long channel, int count, long width, __local R *out) {
  const long stride = patches->channel_stride;
  const long shift = tap_offset(patches, tap) + channel * stride;
  int c = 0;
#ifndef IS_COMPLEX
  const RM mask = inside_mask(patches, block, tap);
  const long spacing = patches->scale[0] * patches->strides[0];
  if (stride == 1 && count >= BLOCK) {
    c = dt == R_DTYPE ? transpose_channels(source, R_DTYPE, block, shift, mask, count, width, out)
                      : transpose_channels(source, dt, block, shift, mask, count, width, out);
  } else if (is_loadable(patches, block, shift, count)) {
    if (dt == R_DTYPE && spacing == 1)
      pack_channels(source, R_DTYPE, block, 1, shift, mask, stride, count, width, out);
    else if (dt == R_DTYPE)
      pack_channels(source, R_DTYPE, block, 2, shift, mask, stride, count, width, out);
    else
      pack_channels(source, dt, block, spacing, shift, mask, stride, count, width, out);
    return;
  }
#endif
  if (c == count) return;
  for (int l = 0; l < BLOCK; ++l) {
    const bool exists = is_inside(patches, block, l, tap);
    for (int i = c; i < count; ++i)
      ((__local T *)(out + i * width))[l] =
          exists ? load_one(source, block->offsets[l] + shift + i * stride, dt) : FROM_REAL(0);
  }
}

// Packs pixels first .. last - 1 as panels of `width` reals, for `depth` features from k_first on. The last panel is
// filled up with zeros.
inline void pack_pixels(__global const uchar *source, int dt, const Patches *patches, long first, long last,
                        long k_first, int depth, int width, __local R *out) {
  const long taps = tap_count(patches);
  for (; first < last; first += width / PARTS, out += depth * width) {
    Pixel pixel = find_pixel(patches, first);
    for (int i = 0; i < width / PARTS; i += BLOCK) {
      const PixelBlock block = find_block(patches, pixel, max(last - first - i, 0L));
      for (long t = 0; t < taps; ++t) {
        const long from = first_channel(patches, t, k_first), to = first_channel(patches, t, k_first + depth);
        if (from >= to) continue;
        const Tap tap = find_tap(patches, t);
        const long k = t * patches->tap_stride + from * patches->feature_stride - k_first;
        pack_tap(source, dt, patches, &block, &tap, from, (int)(to - from), patches->feature_stride * width,
                 out + k * width + i * PARTS);
      }
      advance(patches, &pixel, BLOCK);
    }
  }
}

// --- k over pixels --------------------------------------------------------------------------------------------------

// A panel's features: where each lies from its pixel.
typedef struct {
  Tap taps[TILE_LONGER];
  long offsets[TILE_LONGER];
  bool are_dense[TILE_LONGER / BLOCK];  // whether BLOCK channels of one tap lie together in memory
  long lowest, highest;
  int count;
} Features;

inline Features find_features(const Patches *patches, long first, long last, int most) {
  Features features;
  const long taps = tap_count(patches);
  features.count = (int)min(last - first, (long)most);
  features.lowest = LONG_MAX;
  features.highest = LONG_MIN;
  for (int i = 0; i < features.count; ++i) {
    const long feature = first + i;
    const bool by_channel = patches->feature_stride > patches->tap_stride;
    const long tap = by_channel ? feature % taps : feature / patches->channels;
    const long channel = by_channel ? feature / taps : feature % patches->channels;
    features.taps[i] = find_tap(patches, tap);
    features.offsets[i] = tap_offset(patches, &features.taps[i]) + channel * patches->channel_stride;
    features.lowest = min(features.lowest, features.offsets[i]);
    features.highest = max(features.highest, features.offsets[i]);
    const bool is_same_tap = i % BLOCK > 0 && patches->channel_stride == 1 && channel > 0;
    features.are_dense[i / BLOCK] = i % BLOCK == 0 || (is_same_tap && features.are_dense[i / BLOCK]);
  }
  return features;
}

#ifndef IS_COMPLEX
// BLOCK pixels of BLOCK features from i on, which lie along memory for the pixels.
ALWAYS_INLINE void transpose_pixels(__global const uchar *source, int dt, const Patches *patches,
                                    const PixelBlock *block, const Features *features, int i, long spacing, long width,
                                    __local R *out) {
  const long second = block->offsets[BLOCK - 1] - (BLOCK - 1) * spacing;
  RB rows[BLOCK];
  if (block->is_inside && block->run == BLOCK) {
    _Pragma("unroll") for (int f = 0; f < BLOCK; ++f) rows[f] =
        load_spaced(source, dt, block->offsets[0] + features->offsets[i + f], spacing);
  } else {
    const RM from_second = second_run(block->run);
    _Pragma("unroll") for (int f = 0; f < BLOCK; ++f) {
      const long shift = features->offsets[i + f];
      const RB both = select(load_spaced(source, dt, block->offsets[0] + shift, spacing),
                             load_spaced(source, dt, second + shift, spacing), from_second);
      rows[f] = select((RB)(0), both, inside_mask(patches, block, &features->taps[i + f]));
    }
  }
  store_transposed(rows, width, out);
}
#endif

// Packs features first .. last - 1 as panels of `width` reals, for `depth` pixels from k_first on. The last panel is
// filled up with zeros.
inline void pack_features(__global const uchar *source, int dt, const Patches *patches, long first, long last,
                          long k_first, int depth, int width, __local R *out) {
  const int count = width / PARTS;
  const long spacing = patches->scale[0] * patches->strides[0];
  for (; first < last; first += count, out += depth * width) {
    const Features features = find_features(patches, first, last, count);
    Pixel pixel = find_pixel(patches, k_first);
    for (int k = 0; k < depth; k += BLOCK) {
      const PixelBlock block = find_block(patches, pixel, depth - k);
      __local R *to = out + k * width;
#ifndef IS_COMPLEX
      const bool loadable = block.count == BLOCK && is_loadable(patches, &block, features.lowest, 1) &&
                            is_loadable(patches, &block, features.highest, 1);
#endif
      for (int i = 0; i < count; i += BLOCK) {
        const int some = clamp(features.count - i, 0, BLOCK);
#ifndef IS_COMPLEX
        if (some == BLOCK && features.are_dense[i / BLOCK]) {
          for (int l = 0; l < block.count; ++l) {
            const bool exists = block.is_inside || is_inside(patches, &block, l, &features.taps[i]);
            *(__local RB *)(to + l * width + i) =
                exists ? load_block(source, block.offsets[l] + features.offsets[i], dt) : (RB)(0);
          }
          continue;
        }
        if (some == BLOCK && loadable) {
          if (dt == R_DTYPE && spacing == 1)
            transpose_pixels(source, R_DTYPE, patches, &block, &features, i, 1, width, to + i);
          else
            transpose_pixels(source, dt, patches, &block, &features, i, spacing, width, to + i);
          continue;
        }
#endif
        for (int l = 0; l < block.count; ++l) {
          for (int f = 0; f < min(BLOCK, count - i); ++f) {
            const bool exists = f < some && is_inside(patches, &block, l, &features.taps[i + f]);
            ((__local T *)(to + l * width))[i + f] =
                exists ? load_one(source, block.offsets[l] + features.offsets[i + f], dt) : FROM_REAL(0);
          }
        }
      }
      advance(patches, &pixel, BLOCK);
    }
  }
}
