// Packs the patch matrix with k over its output positions.

#if B_KIND == FROM_FEATURES
// A panel's features: the offset of each from its output position.
typedef struct {
  Tap taps[TILE_LONGER];
  long offsets[TILE_LONGER];
  bool are_dense[TILE_LONGER / BLOCK];  // true where BLOCK channels of one kernel element are contiguous
  long lowest, highest;
  int count;
} Features;

static inline Features find_features(const Patches *patches, long first, long last, int most) {
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
// BLOCK output positions of BLOCK features from i on, for positions that are contiguous in memory.
ALWAYS_INLINE void transpose_pixels(__global const uchar *source, int dt, const Patches *patches, const Run *run,
                                    const Features *features, int i, long spacing, long width, __local R *out) {
  RB rows[BLOCK];
  if (run->is_inside && run->second == BLOCK) {
  UNROLL for (int f = 0; f < BLOCK; ++f) rows[f] =
        load_block_spaced(source, dt, run->offsets[0] + features->offsets[i + f], spacing);
  } else {
    const RM second = second_part(run).block;
    UNROLL for (int f = 0; f < BLOCK; ++f) {
      const long shift = features->offsets[i + f];
      const RB both = select(load_block_spaced(source, dt, run->offsets[0] + shift, spacing),
                             load_block_spaced(source, dt, second_offset(run, spacing) + shift, spacing), second);
      rows[f] = select((RB)(0), both, block_inside(patches, run, &features->taps[i + f]));
    }
  }
  store_transposed(rows, width, out);
}
#endif

// Packs features first .. last - 1 as panels of `width` reals, for `depth` output positions from k_first on. The last
// panel is padded with zeros.
static inline void pack_features(__global const uchar *source, int dt, const Patches *patches, long first, long last,
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
#endif
