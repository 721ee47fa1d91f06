// Packs the patch matrix with k over its features.

#if A_KIND == FROM_PIXELS || B_KIND == FROM_PIXELS
// The features of a stretch of k at one kernel element: some channels, of which one goes to every `width` reals of a
// panel.
typedef struct {
  Tap tap;
  long shift;  // from an output position's offset to the first channel
  long k;
  int channels;
  long width;
} TapChannels;

// The first channel whose feature at a kernel element is `k` or later.
static inline long first_channel(const Patches *patches, long tap, long k) {
  return clamp((k - tap * patches->tap_stride + patches->feature_stride - 1) / patches->feature_stride, 0L,
               patches->channels);
}

static inline TapChannels find_channels(const Patches *patches, long tap, long k, int depth, int width) {
  const long from = first_channel(patches, tap, k), to = first_channel(patches, tap, k + depth);
  TapChannels what;
  what.tap = find_tap(patches, tap);
  what.shift = tap_offset(patches, &what.tap) + from * patches->channel_stride;
  what.k = tap * patches->tap_stride + from * patches->feature_stride - k;
  what.channels = (int)(to - from);
  what.width = patches->feature_stride * width;
  return what;
}

// The same patches, with the kernel elements of a row as channels of one element where those are contiguous in memory.
// Valid for output positions that read only inside the source.
static inline Patches join_taps(const Patches *patches) {
  Patches joined = *patches;
  if (patches->channel_stride == 1 && patches->step[0] * patches->strides[0] == patches->channels) {
    joined.taps[0] = 1;
    joined.channels *= patches->taps[0];
    joined.tap_stride *= patches->taps[0];
  }
  return joined;
}

#ifndef IS_COMPLEX
// BLOCK output positions whose channels are dense in memory. Returns how many channels it packed: a multiple of BLOCK.
ALWAYS_INLINE int transpose_channels(__global const uchar *source, int dt, const Patches *patches, const Run *run,
                                     const TapChannels *what, __local R *out) {
  Indices inside;
  inside.block = block_inside(patches, run, &what->tap);
  int c = 0;
  for (; c + BLOCK <= what->channels; c += BLOCK) {
    RB rows[BLOCK];
  UNROLL for (int l = 0; l < BLOCK; ++l) rows[l] =
        inside.lanes[l] ? load_block(source, run->offsets[l] + what->shift + c, dt) : (RB)(0);
    store_transposed(rows, what->width, out + c * what->width);
  }
  return c;
}
#endif

// Packs a run for `depth` features from k on, one kernel element after the other.
static inline void pack_run(__global const uchar *source, int dt, const Patches *patches, const Run *run, long k,
                            int depth, int width, __local R *out) {
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

#ifndef IS_COMPLEX
// Runs of vectors that are packed together, a feature after the other: the longer the stretch of a source row that is
// read at a time, the better hardware prefetches it.
#define WIDE_RUNS 36
#define WIDE_MASKS 512
typedef PASTE(char, VEC) TapMask;

typedef struct {
  int count;
  int taps;
  long first[WIDE_RUNS];   // offset of a run's lane 0 at kernel element 0,
  long second[WIDE_RUNS];  // and what it would be, were all lanes spaced as the second part's
  TM is_second[WIDE_RUNS];
  int to[WIDE_RUNS];  // its offset in the panels
  bool has_second;
  long shifts[WIDE_MASKS];
  TapMask inside[WIDE_MASKS];  // of every run at every kernel element
} WideRuns;

// Mask of a run's positions that are inside the source in dimension d, at kernel element t of that dimension.
static inline TM vector_inside(const Patches *patches, const Run *run, int d, long t) {
  const TM at = run->at[d].vector + (TM)((R_INDEX)(t * patches->step[d]));
  return (at >= (TM)(0)) & (at < (TM)((R_INDEX)patches->extents[d]));
}

static inline void add_run(const Patches *patches, WideRuns *wide, const Run *run, int to) {
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

// Packs output positions of a source whose positions, not channels, are contiguous. For fewer kernel elements than
// WIDE_MASKS, and panels of whole vectors.
static inline void pack_wide_pixels(__global const uchar *source, int dt, const Patches *patches, long first, long last,
                                    long k, int depth, int width, __local R *out) {
  const long spacing = patches->scale[0] * patches->strides[0];
  WideRuns wide;
  wide.taps = (int)tap_count(patches);
  long lowest = LONG_MAX, highest = LONG_MIN;
  for (int t = 0; t < wide.taps; ++t) {
    const Tap tap = find_tap(patches, t);
    wide.shifts[t] = tap_offset(patches, &tap);
    lowest = min(lowest, wide.shifts[t]);
    highest = max(highest, wide.shifts[t]);
  }
  lowest += k / wide.taps * patches->channel_stride;
  highest += (k + depth - 1) / wide.taps * patches->channel_stride;
  const int vectors = width / VEC;
  const int runs = (int)((last - first + width - 1) / width) * vectors;
  Pixel pixel = find_pixel(patches, first);
  for (int i = 0; i < runs;) {
    wide.count = 0;
    wide.has_second = false;
    for (; i < runs && wide.count < min(WIDE_RUNS, WIDE_MASKS / wide.taps); ++i) {
      const Run run = find_run(patches, pixel, VEC, last - first - (long)i * VEC);
      const int to = i / vectors * depth * width + i % vectors * VEC;
      if (is_loadable(patches, &run, lowest, highest))
        add_run(patches, &wide, &run, to);
      else
        pack_run(source, dt, patches, &run, k, depth, width, out + to);
      advance(patches, &pixel, VEC);
    }
    if (dt == R_DTYPE && spacing == 1)
      pack_wide(source, R_DTYPE, patches, &wide, 1, k, depth, width, out);
    else if (dt == R_DTYPE)
      pack_wide(source, R_DTYPE, patches, &wide, 2, k, depth, width, out);
    else
      pack_wide(source, dt, patches, &wide, spacing, k, depth, width, out);
  }
}
#endif

// Packs output positions first .. last - 1 as panels of `width` reals, for `depth` features from k on. The last panel
// is padded with zeros.
static inline void pack_pixels(__global const uchar *source, int dt, const Patches *patches, long first, long last,
                               long k, int depth, int width, __local R *out) {
  if (depth == 0) return;
#ifndef IS_COMPLEX
  if (patches->channel_stride != 1 && width % VEC == 0 && tap_count(patches) <= WIDE_MASKS) {
    pack_wide_pixels(source, dt, patches, first, last, k, depth, width, out);
    return;
  }
#endif
  const int count = width / PARTS;
  const Patches joined = join_taps(patches);
  Pixel pixel = find_pixel(patches, first);
  for (; first < last; first += count, out += depth * width) {
    for (int i = 0; i < count; i += BLOCK) {
      const Run run = find_run(patches, pixel, BLOCK, last - first - i);
      pack_run(source, dt, run.is_inside ? &joined : patches, &run, k, depth, width, out + i * PARTS);
      advance(patches, &pixel, BLOCK);
    }
  }
}
#endif
