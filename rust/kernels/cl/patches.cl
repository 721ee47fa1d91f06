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

// --- runs of pixels -------------------------------------------------------------------------------------------------

// One index a pixel; as a mask, -1 and 0.
typedef union {
#ifndef IS_COMPLEX
  TM vector;
  RM block;
#endif
  R_INDEX lanes[TILE_LANES];
} Indices;

// Up to TILE_LANES neighbouring pixels.
typedef struct {
  long offsets[TILE_LANES];  // pixel_offset of each
  Indices at[SPATIAL];       // where tap 0 of each lies
  int size;
  int count;       // of those that exist
  int second;      // pixels before this one are evenly spaced in memory, as are those from it on; 0 where that is not so
  bool is_inside;  // whether every tap of every pixel lies inside the source
} Run;

#define OUTSIDE (-(1 << 29))

// The `size` pixels from `pixel` on, which is `left` before the end.
inline Run find_run(const Patches *patches, Pixel pixel, int size, long left) {
  Run run;
  run.size = size;
  run.count = (int)clamp(left, 0L, (long)size);
  run.second = size;
  const long spacing = patches->scale[0] * patches->strides[0];
  long offset = pixel_offset(patches, &pixel);
  long at[SPATIAL], least[SPATIAL], most[SPATIAL];
  for (int d = 0; d < SPATIAL; ++d) least[d] = most[d] = at[d] = pixel.at[d] * patches->scale[d] + patches->origin[d];
  int breaks = 0;
  for (int l = 0; l < size; ++l) {
    run.offsets[l] = offset;
    for (int d = 0; d < SPATIAL; ++d) run.at[d].lanes[l] = l < run.count ? (R_INDEX)at[d] : OUTSIDE;
    most[0] = max(most[0], at[0]);
    offset += spacing;
    at[0] += patches->scale[0];
    if (++pixel.at[0] < patches->pixels[0] || l + 1 >= run.count) continue;
    // The next row, of this image or another.
    advance(patches, &pixel, 0);
    const long next = pixel_offset(patches, &pixel);
    if (next != offset) {
      run.second = l + 1;
      ++breaks;
      offset = next;
    }
    for (int d = 0; d < SPATIAL; ++d) {
      at[d] = pixel.at[d] * patches->scale[d] + patches->origin[d];
      least[d] = min(least[d], at[d]);
      most[d] = max(most[d], at[d]);
    }
  }
  if (breaks > 1) run.second = 0;
  run.is_inside = run.count == size;
  for (int d = 0; d < SPATIAL; ++d) {
    const long reach = (patches->taps[d] - 1) * patches->step[d];
    run.is_inside = run.is_inside && least[d] + min(reach, 0L) >= 0 && most[d] + max(reach, 0L) < patches->extents[d];
  }
  return run;
}

// Whether pixel l lies inside the source under a tap.
inline bool is_inside(const Patches *patches, const Run *run, int l, const Tap *tap) {
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = run->at[d].lanes[l] + tap->at[d] * patches->step[d];
    if (at < 0 || at >= patches->extents[d]) return false;
  }
  return true;
}

#ifndef IS_COMPLEX
// The same for all pixels.
inline RM block_inside(const Patches *patches, const Run *run, const Tap *tap) {
  RM inside = (RM)(-1);
  for (int d = 0; d < SPATIAL; ++d) {
    const RM at = run->at[d].block + (RM)((R_INDEX)(tap->at[d] * patches->step[d]));
    inside &= (at >= (RM)(0)) & (at < (RM)((R_INDEX)patches->extents[d]));
  }
  return inside;
}

// The pixels of a run's second part.
inline Indices second_part(const Run *run) {
  Indices part;
  for (int l = 0; l < run->size; ++l) part.lanes[l] = l >= run->second ? -1 : 0;
  return part;
}

// Where pixel 0 would lie, were all of a run as its second part is.
inline long second_offset(const Run *run, long spacing) {
  return run->offsets[run->size - 1] - (run->size - 1) * spacing;
}

// Whether loads of whole vectors get the pixels of a run from `lowest` to `highest` elements on, without leaving the
// tensor.
inline bool is_loadable(const Patches *patches, const Run *run, long lowest, long highest) {
  const long spacing = patches->scale[0] * patches->strides[0];
  if (run->second == 0 || spacing < 1 || spacing > 2) return false;
  const long first = run->offsets[0], second = second_offset(run, spacing);
  return min(first, second) + lowest >= 0 &&
         max(first, second) + highest + 2 * run->size <= patches->elements;
}

// VEC, or BLOCK, elements that are 1 or 2 apart.
ALWAYS_INLINE TV load_vector_spaced(__global const uchar *source, int dt, long offset, long spacing) {
  const TV low = load_dense(source, offset, dt);
  if (spacing == 1) return low;
  return (TV)(low.even, load_dense(source, offset + VEC, dt).even);
}

ALWAYS_INLINE RB load_block_spaced(__global const uchar *source, int dt, long offset, long spacing) {
  const RB low = load_block(source, offset, dt);
  if (spacing == 1) return low;
  return (RB)(low.even, load_block(source, offset + BLOCK, dt).even);
}
#endif

// --- k over features ------------------------------------------------------------------------------------------------

// The features of a stretch of k under one tap: some channels, of which one goes to every `width` reals of a panel.
typedef struct {
  Tap tap;
  long shift;  // from a pixel's offset to the first channel
  long k;
  int channels;
  long width;
} TapChannels;

// The first channel whose feature under a tap is `k` or later.
inline long first_channel(const Patches *patches, long tap, long k) {
  return clamp((k - tap * patches->tap_stride + patches->feature_stride - 1) / patches->feature_stride, 0L,
               patches->channels);
}

inline TapChannels find_channels(const Patches *patches, long tap, long k, int depth, int width) {
  const long from = first_channel(patches, tap, k), to = first_channel(patches, tap, k + depth);
  TapChannels what;
  what.tap = find_tap(patches, tap);
  what.shift = tap_offset(patches, &what.tap) + from * patches->channel_stride;
  what.k = tap * patches->tap_stride + from * patches->feature_stride - k;
  what.channels = (int)(to - from);
  what.width = patches->feature_stride * width;
  return what;
}

#ifndef IS_COMPLEX
// BLOCK pixels whose channels are dense in memory. Returns how many channels it packed: a multiple of BLOCK.
ALWAYS_INLINE int transpose_channels(__global const uchar *source, int dt, const Patches *patches, const Run *run,
                                     const TapChannels *what, __local R *out) {
  Indices inside;
  inside.block = block_inside(patches, run, &what->tap);
  int c = 0;
  for (; c + BLOCK <= what->channels; c += BLOCK) {
    RB rows[BLOCK];
    _Pragma("unroll") for (int l = 0; l < BLOCK; ++l) rows[l] =
        inside.lanes[l] ? load_block(source, run->offsets[l] + what->shift + c, dt) : (RB)(0);
    store_transposed(rows, what->width, out + c * what->width);
  }
  return c;
}
#endif

// Packs a run for `depth` features from k on, a tap after the other.
inline void pack_run(__global const uchar *source, int dt, const Patches *patches, const Run *run, long k, int depth,
                     int width, __local R *out) {
  const long taps = tap_count(patches);
  for (long tap = 0; tap < taps; ++tap) {
    const TapChannels what = find_channels(patches, tap, k, depth, width);
    __local R *to = out + what.k * width;
    int first = 0;
#ifndef IS_COMPLEX
    if (patches->channel_stride == 1 && run->size == BLOCK)
      first = dt == R_DTYPE ? transpose_channels(source, R_DTYPE, patches, run, &what, to)
                            : transpose_channels(source, dt, patches, run, &what, to);
#endif
    for (int l = 0; l < run->size; ++l) {
      const bool exists = first < what.channels && is_inside(patches, run, l, &what.tap);
      for (int c = first; c < what.channels; ++c)
        ((__local T *)(to + c * what.width))[l] =
            exists ? load_one(source, run->offsets[l] + what.shift + c * patches->channel_stride, dt) : FROM_REAL(0);
    }
  }
}

#if !defined(IS_COMPLEX) && GROUP_SIDE == 1
// Runs of vectors that are packed together, a feature after the other: the longer the stretch of a source row that is
// read at a time, the better hardware prefetches it.
#define WIDE_RUNS 36
#define WIDE_MASKS 512
typedef PASTE(char, VEC) TapMask;

typedef struct {
  int count;
  int taps;
  long first[WIDE_RUNS];   // where a run's lane 0 lies under tap 0,
  long second[WIDE_RUNS];  // and would lie, were all lanes as those of the second part are
  TM is_second[WIDE_RUNS];
  int to[WIDE_RUNS];  // where it goes in the panels
  bool has_second;
  long shifts[WIDE_MASKS];
  TapMask inside[WIDE_MASKS];  // of every run under every tap
} WideRuns;

// Whether the pixels of a run lie inside the source in dimension d, under tap t of that dimension.
inline TM vector_inside(const Patches *patches, const Run *run, int d, long t) {
  const TM at = run->at[d].vector + (TM)((R_INDEX)(t * patches->step[d]));
  return (at >= (TM)(0)) & (at < (TM)((R_INDEX)patches->extents[d]));
}

inline void add_run(const Patches *patches, WideRuns *wide, const Run *run, int to) {
  const int i = wide->count++;
  wide->first[i] = run->offsets[0];
  wide->second[i] = second_offset(run, patches->scale[0] * patches->strides[0]);
  wide->is_second[i] = second_part(run).vector;
  wide->has_second = wide->has_second || run->second < VEC;
  wide->to[i] = to;
  TapMask *inside = wide->inside + i * wide->taps;
  for (long z = 0; z < patches->taps[2]; ++z) {
    const TM in_depth = vector_inside(patches, run, 2, z);
    for (long y = 0; y < patches->taps[1]; ++y) {
      const TM in_plane = in_depth & vector_inside(patches, run, 1, y);
      for (long x = 0; x < patches->taps[0]; ++x) *inside++ = TO(char)(in_plane & vector_inside(patches, run, 0, x));
    }
  }
}

ALWAYS_INLINE void pack_wide(__global const uchar *source, int dt, const Patches *patches, const WideRuns *wide,
                             long spacing, long k_first, int depth, int width, __local R *out) {
  int tap = (int)(k_first % wide->taps);
  long channel = k_first / wide->taps * patches->channel_stride;
  for (int k = 0; k < depth; ++k, out += width) {
    const long shift = channel + wide->shifts[tap];
    for (int i = 0; i < wide->count; ++i) {
      TV values = load_vector_spaced(source, dt, wide->first[i] + shift, spacing);
      if (wide->has_second)
        values = select(values, load_vector_spaced(source, dt, wide->second[i] + shift, spacing), wide->is_second[i]);
      const TM inside = TO(TM_NAME)(wide->inside[i * wide->taps + tap]);
      *(__local TV *)(out + wide->to[i]) = select((TV)(0), values, inside);
    }
    if (++tap == wide->taps) {
      tap = 0;
      channel += patches->channel_stride;
    }
  }
}
#endif

// Packs pixels first .. last - 1 as panels of `width` reals, for `depth` features from k_first on. The last panel is
// filled up with zeros.
inline void pack_pixels(__global const uchar *source, int dt, const Patches *patches, long first, long last,
                        long k_first, int depth, int width, __local R *out) {
  const int count = width / PARTS;
  const int panels = (int)((last - first + count - 1) / count);
  Pixel pixel = find_pixel(patches, first);
#if !defined(IS_COMPLEX) && GROUP_SIDE == 1
  // Where pixels, not channels, lie along memory.
  const long taps = tap_count(patches), spacing = patches->scale[0] * patches->strides[0];
  if (patches->channel_stride != 1 && count % VEC == 0 && taps <= WIDE_MASKS) {
    WideRuns wide;
    wide.taps = (int)taps;
    long lowest = LONG_MAX, highest = LONG_MIN;
    for (int t = 0; t < wide.taps; ++t) {
      const Tap tap = find_tap(patches, t);
      wide.shifts[t] = tap_offset(patches, &tap);
      lowest = min(lowest, wide.shifts[t]);
      highest = max(highest, wide.shifts[t]);
    }
    lowest += k_first / taps * patches->channel_stride;
    highest += (k_first + max(depth, 1) - 1) / taps * patches->channel_stride;
    const int most = (int)min((long)WIDE_RUNS, WIDE_MASKS / taps);
    const int runs = panels * (count / VEC);
    for (int i = 0; i < runs;) {
      wide.count = 0;
      wide.has_second = false;
      for (; i < runs && wide.count < most; ++i) {
        const Run run = find_run(patches, pixel, VEC, last - first - (long)i * VEC);
        const int to = i / (count / VEC) * depth * width + i % (count / VEC) * VEC;
        if (is_loadable(patches, &run, lowest, highest))
          add_run(patches, &wide, &run, to);
        else
          pack_run(source, dt, patches, &run, k_first, depth, width, out + to);
        advance(patches, &pixel, VEC);
      }
      if (dt == R_DTYPE && spacing == 1)
        pack_wide(source, R_DTYPE, patches, &wide, 1, k_first, depth, width, out);
      else if (dt == R_DTYPE)
        pack_wide(source, R_DTYPE, patches, &wide, 2, k_first, depth, width, out);
      else
        pack_wide(source, dt, patches, &wide, spacing, k_first, depth, width, out);
    }
    return;
  }
#endif
  for (int panel = 0; panel < panels; ++panel, out += depth * width) {
    for (int i = 0; i < count; i += BLOCK) {
      const Run run = find_run(patches, pixel, BLOCK, last - first - (long)panel * count - i);
      pack_run(source, dt, patches, &run, k_first, depth, width, out + i * PARTS);
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
ALWAYS_INLINE void transpose_pixels(__global const uchar *source, int dt, const Patches *patches, const Run *run,
                                    const Features *features, int i, long spacing, long width, __local R *out) {
  RB rows[BLOCK];
  if (run->is_inside && run->second == BLOCK) {
    _Pragma("unroll") for (int f = 0; f < BLOCK; ++f) rows[f] =
        load_block_spaced(source, dt, run->offsets[0] + features->offsets[i + f], spacing);
  } else {
    const RM second = second_part(run).block;
    _Pragma("unroll") for (int f = 0; f < BLOCK; ++f) {
      const long shift = features->offsets[i + f];
      const RB both = select(load_block_spaced(source, dt, run->offsets[0] + shift, spacing),
                             load_block_spaced(source, dt, second_offset(run, spacing) + shift, spacing), second);
      rows[f] = select((RB)(0), both, block_inside(patches, run, &features->taps[i + f]));
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
      const Run run = find_run(patches, pixel, BLOCK, depth - k);
      __local R *to = out + k * width;
#ifndef IS_COMPLEX
      const bool loadable = run.count == BLOCK && is_loadable(patches, &run, features.lowest, features.highest);
#endif
      for (int i = 0; i < count; i += BLOCK) {
        const int some = clamp(features.count - i, 0, BLOCK);
#ifndef IS_COMPLEX
        if (some == BLOCK && features.are_dense[i / BLOCK]) {
          for (int l = 0; l < run.count; ++l) {
            const bool exists = run.is_inside || is_inside(patches, &run, l, &features.taps[i]);
            *(__local RB *)(to + l * width + i) =
                exists ? load_block(source, run.offsets[l] + features.offsets[i], dt) : (RB)(0);
          }
          continue;
        }
        if (some == BLOCK && loadable) {
          if (dt == R_DTYPE && spacing == 1)
            transpose_pixels(source, R_DTYPE, patches, &run, &features, i, 1, width, to + i);
          else
            transpose_pixels(source, dt, patches, &run, &features, i, spacing, width, to + i);
          continue;
        }
#endif
        for (int l = 0; l < run.count; ++l) {
          for (int f = 0; f < min(BLOCK, count - i); ++f) {
            const bool exists = f < some && is_inside(patches, &run, l, &features.taps[i + f]);
            ((__local T *)(to + l * width))[i + f] =
                exists ? load_one(source, run.offsets[l] + features.offsets[i + f], dt) : FROM_REAL(0);
          }
        }
      }
      advance(patches, &pixel, BLOCK);
    }
  }
}
