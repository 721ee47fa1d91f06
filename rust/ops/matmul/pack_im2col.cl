// Packs the im2col matrix with k over its columns, channels at kernel elements.

#if A_KIND == FROM_IM2COL || B_KIND == FROM_IM2COL
// A stretch of k at one kernel element: some channels, `width` reals apart in a panel.
typedef struct {
  KernelElement element;
  long shift;  // from an output position's offset to the first channel
  long k;
  int channels;
  long width;
} ElementChannels;

// The first channel whose column at a kernel element is `k` or later.
static inline long first_channel(const Im2colLayout *im2col, long element, long k) {
  return clamp((k - element * im2col->kernel_step + im2col->channel_step - 1) / im2col->channel_step, 0L,
               im2col->channels);
}

static inline ElementChannels find_channels(const Im2colLayout *im2col, long element, long k, int k_count, int width) {
  const long from = first_channel(im2col, element, k), to = first_channel(im2col, element, k + k_count);
  ElementChannels stretch;
  stretch.element = find_element(im2col, element);
  stretch.shift = element_offset(im2col, &stretch.element) + from * im2col->channel_stride;
  stretch.k = element * im2col->kernel_step + from * im2col->channel_step - k;
  stretch.channels = (int)(to - from);
  stretch.width = im2col->channel_step * width;
  return stretch;
}

// Joins the kernel elements of a row to channels of one element if they are contiguous in memory.
// Valid for output positions that read only inside the input.
static inline Im2colLayout join_elements(const Im2colLayout *im2col) {
  Im2colLayout joined = *im2col;
  if (im2col->channel_stride == 1 && im2col->dilation[0] * im2col->in_strides[0] == im2col->channels) {
    joined.kernel_size[0] = 1;
    joined.channels *= im2col->kernel_size[0];
    joined.kernel_step *= im2col->kernel_size[0];
  }
  return joined;
}

#ifndef IS_COMPLEX
// Packs BLOCK output positions whose channels are dense in memory. Returns the number of packed channels, a multiple of
// BLOCK.
ALWAYS_INLINE int transpose_channels(__global const uchar *input, int dt, const Im2colLayout *im2col, const Run *run,
                                     const ElementChannels *stretch, __local R *out) {
  Indices inside;
  inside.block = block_inside(im2col, run, &stretch->element);
  int c = 0;
  for (; c + BLOCK <= stretch->channels; c += BLOCK) {
    RB rows[BLOCK];
  UNROLL for (int l = 0; l < BLOCK; ++l) rows[l] =
        inside.lanes[l] ? load_block(input, run->offsets[l] + stretch->shift + c, dt) : (RB)(0);
    store_transposed(rows, stretch->width, out + c * stretch->width);
  }
  return c;
}
#endif

// Packs a run for `k_count` values of k from k on, one kernel element after the other.
static inline void pack_run(__global const uchar *input, int dt, const Im2colLayout *im2col, const Run *run, long k,
                            int k_count, int width, __local R *out) {
  const long kernel_numel = count_elements(im2col);
  for (long element = 0; element < kernel_numel; ++element) {
    const ElementChannels stretch = find_channels(im2col, element, k, k_count, width);
    __local R *to = out + stretch.k * width;
    int first = 0;
#ifndef IS_COMPLEX
    if (im2col->channel_stride == 1 && run->size == BLOCK)
      first = dt == R_DTYPE ? transpose_channels(input, R_DTYPE, im2col, run, &stretch, to)
                            : transpose_channels(input, dt, im2col, run, &stretch, to);
#endif
    for (int l = 0; l < run->size; ++l) {
      const bool exists = first < stretch.channels && is_inside(im2col, run, l, &stretch.element);
      for (int c = first; c < stretch.channels; ++c)
        ((__local T *)(to + c * stretch.width))[l] =
            exists ? load_one(input, run->offsets[l] + stretch.shift + c * im2col->channel_stride, dt) : FROM_REAL(0);
    }
  }
}

#ifndef IS_COMPLEX
// Runs of vectors that are packed together, one value of k after the other: the longer the stretch of an input row that
// is read at a time, the better hardware prefetches it.
#define WIDE_RUNS 36
#define WIDE_MASKS 512
typedef PASTE(char, VEC) LaneMask;

typedef struct {
  int count;
  int kernel_numel;
  long first[WIDE_RUNS];   // offset of a run's lane 0 at kernel element 0,
  long second[WIDE_RUNS];  // and the same, extrapolated from the second part
  TM is_second[WIDE_RUNS];
  int to[WIDE_RUNS];  // its offset in the panels
  bool has_second;
  long shifts[WIDE_MASKS];
  LaneMask inside[WIDE_MASKS];  // of every run at every kernel element
} WideRuns;

// Mask of a run's positions that are inside the input in dimension d, at kernel element t of that dimension.
static inline TM vector_inside(const Im2colLayout *im2col, const Run *run, int d, long t) {
  const TM at = run->at[d].vector + (TM)((R_INDEX)(t * im2col->dilation[d]));
  return (at >= (TM)(0)) & (at < (TM)((R_INDEX)im2col->in_sizes[d]));
}

static inline void add_run(const Im2colLayout *im2col, WideRuns *wide, const Run *run, int to) {
  const int i = wide->count++;
  wide->first[i] = run->offsets[0];
  wide->second[i] = second_offset(run, im2col->stride[0] * im2col->in_strides[0]);
  wide->is_second[i] = second_part(run).vector;
  wide->has_second = wide->has_second || run->second < VEC;
  wide->to[i] = to;
  LaneMask *inside = wide->inside + i * wide->kernel_numel;
  for (long z = 0; z < im2col->kernel_size[2]; ++z) {
    const TM in_depth = vector_inside(im2col, run, 2, z);
    for (long y = 0; y < im2col->kernel_size[1]; ++y) {
      const TM in_plane = in_depth & vector_inside(im2col, run, 1, y);
      for (long x = 0; x < im2col->kernel_size[0]; ++x)
        *inside++ = TO(char)(in_plane & vector_inside(im2col, run, 0, x));
    }
  }
}

ALWAYS_INLINE void pack_wide(__global const uchar *input, int dt, const Im2colLayout *im2col, const WideRuns *wide,
                             long spacing, long k_first, int k_count, int width, __local R *out) {
  int element = (int)(k_first % wide->kernel_numel);
  long channel_index = k_first / wide->kernel_numel * im2col->channel_stride;
  for (int k = 0; k < k_count; ++k, out += width) {
    const long shift = channel_index + wide->shifts[element];
    for (int i = 0; i < wide->count; ++i) {
      TV values = load_vector_spaced(input, dt, wide->first[i] + shift, spacing);
      if (wide->has_second)
        values = select(values, load_vector_spaced(input, dt, wide->second[i] + shift, spacing), wide->is_second[i]);
      const TM inside = TO(TM_NAME)(wide->inside[i * wide->kernel_numel + element]);
      *(__local TV *)(out + wide->to[i]) = select((TV)(0), values, inside);
    }
    if (++element == wide->kernel_numel) {
      element = 0;
      channel_index += im2col->channel_stride;
    }
  }
}

// Packs output positions of an input whose positions, not channels, are contiguous. For at most
// WIDE_MASKS kernel elements, and panels of whole vectors.
static inline void pack_wide_im2col(__global const uchar *input, int dt, const Im2colLayout *im2col, long first,
                                    long last, long k, int k_count, int width, __local R *out) {
  const long spacing = im2col->stride[0] * im2col->in_strides[0];
  WideRuns wide;
  wide.kernel_numel = (int)count_elements(im2col);
  long lowest = LONG_MAX, highest = LONG_MIN;
  for (int t = 0; t < wide.kernel_numel; ++t) {
    const KernelElement element = find_element(im2col, t);
    wide.shifts[t] = element_offset(im2col, &element);
    lowest = min(lowest, wide.shifts[t]);
    highest = max(highest, wide.shifts[t]);
  }
  lowest += k / wide.kernel_numel * im2col->channel_stride;
  highest += (k + k_count - 1) / wide.kernel_numel * im2col->channel_stride;
  const int vectors = width / VEC;
  const int runs = (int)((last - first + width - 1) / width) * vectors;
  OutPosition position = find_position(im2col, first);
  for (int i = 0; i < runs;) {
    wide.count = 0;
    wide.has_second = false;
    for (; i < runs && wide.count < min(WIDE_RUNS, WIDE_MASKS / wide.kernel_numel); ++i) {
      const Run run = find_run(im2col, position, VEC, last - first - (long)i * VEC);
      const int to = i / vectors * k_count * width + i % vectors * VEC;
      if (is_loadable(im2col, &run, lowest, highest))
        add_run(im2col, &wide, &run, to);
      else
        pack_run(input, dt, im2col, &run, k, k_count, width, out + to);
      advance(im2col, &position, VEC);
    }
    if (dt == R_DTYPE && spacing == 1)
      pack_wide(input, R_DTYPE, im2col, &wide, 1, k, k_count, width, out);
    else if (dt == R_DTYPE)
      pack_wide(input, R_DTYPE, im2col, &wide, 2, k, k_count, width, out);
    else
      pack_wide(input, dt, im2col, &wide, spacing, k, k_count, width, out);
  }
}
#endif

// Packs output positions first .. last - 1 as panels of `width` reals, for `k_count` values of k from k on. The last
// panel is padded with zeros.
static inline void pack_im2col(__global const uchar *input, int dt, const Im2colLayout *im2col, long first, long last,
                               long k, int k_count, int width, __local R *out) {
  if (k_count == 0) return;
#ifndef IS_COMPLEX
  if (im2col->channel_stride != 1 && width % VEC == 0 && count_elements(im2col) <= WIDE_MASKS) {
    pack_wide_im2col(input, dt, im2col, first, last, k, k_count, width, out);
    return;
  }
#endif
  const int count = width / PARTS;
  const Im2colLayout joined = join_elements(im2col);
  OutPosition position = find_position(im2col, first);
  for (; first < last; first += count, out += k_count * width) {
    for (int i = 0; i < count; i += BLOCK) {
      const Run run = find_run(im2col, position, BLOCK, last - first - i);
      pack_run(input, dt, run.is_inside ? &joined : im2col, &run, k, k_count, width, out + i * PARTS);
      advance(im2col, &position, BLOCK);
    }
  }
}
#endif
