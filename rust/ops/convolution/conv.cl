// Convolutions with so few channels a group that packing would cost more than the arithmetic, such as depthwise ones.
//
// A work-group copies the box of source positions that a box of output positions reads to local memory, with its
// padding in it, and computes from there: no bounds, no dtypes. On CPUs local memory is the core's L1, and a group one
// item. Dimensions are innermost first (w, h, d), as in patches.cl.

#ifndef ITEMS
#define ITEMS 1
#endif
// Vectors of output positions that an item computes at once, and kernel elements whose gradients it does. 8 and 5 keep
// the sums in registers and hide the latency of a multiply-add; 5 wastes least for 9, 25 and 49 kernel elements.
#define PIXEL_VECTORS (ITEMS == 1 ? 8 : 1)
#define TAPS_AT_ONCE (ITEMS == 1 ? 5 : 1)

// All tensors of a convolution have one dtype.
#ifdef SPEC_DTYPE0
#define DTYPE_OF(argument) SPEC_DTYPE0
#else
#define DTYPE_OF(argument) argument
#endif

#define SPATIAL 3

// Kernel element t of output position p reads position p * scale + origin + t * step. Element i of the source lies at
// position i * stuffing; all other positions are zero. A convolution has scale = stride, its transpose
// stuffing = stride.
typedef struct {
  long pixels[SPATIAL];
  long taps[SPATIAL];
  long scale[SPATIAL];
  long origin[SPATIAL];
  long step[SPATIAL];
  long stuffing[SPATIAL];
  long extents[SPATIAL];
  long strides[SPATIAL];
  long channel_stride;
  long image_stride;
  long channels;  // in a group
  long box_sizes[SPATIAL];  // output positions of a work-group
  long sizes[SPATIAL];  // source positions that those read
  long pitch;  // whole vectors that hold every `scale`th position of a row
} Source;
SHARED(Source, 272);

// Strides of a tensor with a value for each output position.
typedef struct {
  long strides[SPATIAL];
  long channel_stride;
  long image_stride;
} PixelStrides;
SHARED(PixelStrides, 40);

// Strides of the weight.
typedef struct {
  long strides[SPATIAL];
  long out_stride;
  long source_stride;
  long group_stride;
} TapStrides;
SHARED(TapStrides, 48);

static inline long tap_count(const Source *s) { return s->taps[0] * s->taps[1] * s->taps[2]; }

// Elements of a row, and of a channel, of a box in local memory. Position x of a row is at x % scale * pitch +
// x / scale, so that neighbouring output positions are neighbours at every kernel element.
static inline int row_length(const Source *s) { return (int)(s->scale[0] * s->pitch); }
static inline int box_length(const Source *s) { return (int)(s->sizes[1] * s->sizes[2]) * row_length(s); }
static inline int place_in_row(const Source *s, int x) {
  const int scale = (int)s->scale[0];
  return scale == 1 ? x : x % scale * (int)s->pitch + x / scale;
}

// The output positions of a box.
typedef struct {
  long first[SPATIAL];
  int count[SPATIAL];
  int vectors;  // of a row
} Box;

static inline Box find_box(const Source *s, long index) {
  Box box;
  for (int d = 0; d < SPATIAL; ++d) {
    const long boxes = (s->pixels[d] + s->box_sizes[d] - 1) / s->box_sizes[d];
    box.first[d] = index % boxes * s->box_sizes[d];
    box.count[d] = (int)min(s->box_sizes[d], s->pixels[d] - box.first[d]);
    index /= boxes;
  }
  box.vectors = (box.count[0] + VEC - 1) / VEC;
  return box;
}

static inline long box_count(const Source *s) {
  long count = 1;
  for (int d = 0; d < SPATIAL; ++d) count *= (s->pixels[d] + s->box_sizes[d] - 1) / s->box_sizes[d];
  return count;
}

// The first source position that a box reads.
static inline long first_position(const Source *s, const Box *box, int d) {
  return box->first[d] * s->scale[d] + s->origin[d] + min((s->taps[d] - 1) * s->step[d], 0L);
}

// Offset of each kernel element of each channel in a box, from that of its output position.
static inline void find_places(const Source *s, __local int *places) {
  const int taps = (int)tap_count(s), all = taps * (int)s->channels;
  for (int k = get_local_id(0); k < all; k += ITEMS) {
    int tap = k % taps;
    int at[SPATIAL];
    for (int d = 0; d < SPATIAL; ++d) {
      const long t = tap % s->taps[d];
      at[d] = (int)(t * s->step[d] - min((s->taps[d] - 1) * s->step[d], 0L));
      tap /= (int)s->taps[d];
    }
    places[k] = k / taps * box_length(s) + (at[2] * (int)s->sizes[1] + at[1]) * row_length(s) + place_in_row(s, at[0]);
  }
}

typedef struct __attribute__((packed)) {
  TV vector;
} AnyVector;
#if VEC == 16
#define STORE_HALF vstore8
#elif VEC == 8
#define STORE_HALF vstore4
#elif VEC == 4
#define STORE_HALF vstore2
#endif

// Copies elements `first` and on of a row of the source to positions `x`, x + stuffing, ... of a row of a box.
static inline void copy_row(const Source *s, __global const uchar *source, int dt, long first, int x, int count,
                            __local T *row) {
  const int scale = (int)s->scale[0], stuffing = (int)s->stuffing[0];
  int i = 0;
#ifndef IS_COMPLEX
  // The last vector may overlap the one before.
  if (s->strides[0] == 1 && stuffing == 1 && scale == 1 && count >= VEC) {
    for (; i < count; i += VEC) {
      const int at = min(i, count - VEC);
      ((__local AnyVector *)(row + x + at))->vector = load_dense(source, first + at, dt);
    }
    return;
  }
  if (s->strides[0] == 1 && stuffing == 1 && scale == 2 && count >= VEC) {
    __local T *even = row + place_in_row(s, x), *odd = row + place_in_row(s, x + 1);
    for (; i + 1 < count; i += VEC) {
      const int at = min(i, (count - VEC) & ~1);
      const TV values = load_dense(source, first + at, dt);
      STORE_HALF(values.even, 0, even + at / 2);
      STORE_HALF(values.odd, 0, odd + at / 2);
    }
    i = count & ~1;
  }
  // Every `scale`th element goes to neighbouring positions: a gather.
  if (stuffing == 1 && i == 0 && count >= VEC * scale) {
    const long step = scale * s->strides[0] * dtype_size(dt);
    for (int phase = 0; phase < scale; ++phase) {
      const int run = (count - phase + scale - 1) / scale;
      __local T *to = row + place_in_row(s, x + phase);
      __global const uchar *from = source + (first + phase) * s->strides[0] * dtype_size(dt);
      for (int at = 0; at < run; at += VEC) {
        const int start = min(at, run - VEC);
        ((__local AnyVector *)(to + start))->vector = load_lanes(from + start * step, step, VEC, dt);
      }
    }
    return;
  }
#endif
  int phase = (x + i * stuffing) % scale, index = (x + i * stuffing) / scale;
  for (; i < count; ++i) {
    row[phase * (int)s->pitch + index] = load_one(source, (first + i) * s->strides[0], dt);
    for (phase += stuffing; phase >= scale; phase -= scale) ++index;
  }
}

// Copies the positions of one channel, which starts at `source`, that a box reads.
static inline void copy_box(const Source *s, const Box *box, __global const uchar *source, int dt, __local T *out) {
  long first[SPATIAL];
  for (int d = 0; d < SPATIAL; ++d) first[d] = first_position(s, box, d);
  const int rows = (int)(s->sizes[1] * s->sizes[2]), length = row_length(s);
  const long from = max((first[0] + s->stuffing[0] - 1) / s->stuffing[0], 0L);
  const int x = (int)(from * s->stuffing[0] - first[0]);
  const long left = min(s->extents[0] - from, (s->sizes[0] - x + s->stuffing[0] - 1) / s->stuffing[0]);
  for (int i = get_local_id(0); i < rows; i += ITEMS) {
    __local T *row = out + i * length;
    for (int at = 0; at < length; at += VEC) *(__local TV *)(row + at) = (TV)(0);
    const long y = first[1] + i % (int)s->sizes[1], z = first[2] + i / (int)s->sizes[1];
    if (left <= 0 || y < 0 || z < 0 || y % s->stuffing[1] != 0 || z % s->stuffing[2] != 0) continue;
    if (y / s->stuffing[1] >= s->extents[1] || z / s->stuffing[2] >= s->extents[2]) continue;
    const long at = y / s->stuffing[1] * s->strides[1] + z / s->stuffing[2] * s->strides[2];
    copy_row(s, source + at * dtype_size(dt), dt, from, x, (int)left, row);
  }
}

// Walks through the vectors of output positions of a box.
typedef struct {
  int vector, y, z;
} Cursor;

static inline Cursor cursor_at(const Box *box, int index) {
  const int rows = index / box->vectors;
  const Cursor cursor = {index % box->vectors, rows % box->count[1], rows / box->count[1]};
  return cursor;
}

static inline void move_on(const Box *box, Cursor *cursor) {
  if (++cursor->vector < box->vectors) return;
  cursor->vector = 0;
  if (++cursor->y < box->count[1]) return;
  cursor->y = 0;
  ++cursor->z;
}

static inline int cursor_place(const Source *s, const Cursor *cursor) {
  return (cursor->z * (int)(s->scale[2] * s->sizes[1]) + cursor->y * (int)s->scale[1]) * row_length(s);
}

// --- a value for each output position -------------------------------------------------------------------------------

// The weights of a group, as [result channels][source channels][kernel].
static inline void copy_weights(const Source *s, __global const uchar *weight, int dt, const TapStrides *strides,
                                int out_channels, __local T *factors) {
  const int taps = (int)tap_count(s), channels = (int)s->channels;
  for (int i = get_local_id(0); i < out_channels * channels * taps; i += ITEMS) {
    int tap = i % taps;
    long at = i / taps % channels * strides->source_stride + i / (taps * channels) * strides->out_stride;
    for (int d = 0; d < SPATIAL; ++d) {
      at += tap % (int)s->taps[d] * strides->strides[d];
      tap /= (int)s->taps[d];
    }
    factors[i] = load_one(weight, at, dt);
  }
}

// The output positions of a box in one result channel, which starts at `out`.
static inline void convolve_box(const Source *s, const Box *box, __local const T *planes, __local const int *places,
                                __local const T *factors, T bias, const PixelStrides *strides, __global uchar *out,
                                int dt) {
  const int depth = (int)(s->channels * tap_count(s));
  const int all = box->vectors * box->count[1] * box->count[2], share = (all + ITEMS - 1) / ITEMS;
  const int last = min(all, ((int)get_local_id(0) + 1) * share);
  const int element = dtype_size(dt), count = min(box->count[0], VEC);
  int index = get_local_id(0) * share;
  Cursor cursor = cursor_at(box, index);
  for (; index < last; index += PIXEL_VECTORS) {
    __local const T *from[PIXEL_VECTORS];
    long to[PIXEL_VECTORS];
    TV sums[PIXEL_VECTORS];
    for (int v = 0; v < PIXEL_VECTORS; ++v) {
      // The last vector of a row overlaps the one before; vectors past the last repeat it.
      const int x = min(cursor.vector * VEC, max(box->count[0] - VEC, 0));
      from[v] = planes + cursor_place(s, &cursor) + x;
      to[v] = (box->first[0] + x) * strides->strides[0] + (box->first[1] + cursor.y) * strides->strides[1] +
              (box->first[2] + cursor.z) * strides->strides[2];
      sums[v] = (TV)(bias);
      if (index + v + 1 < last) move_on(box, &cursor);
    }
    for (int k = 0; k < depth; ++k) {
      const TV factor = (TV)(factors[k]);
      const int place = places[k];
  UNROLL for (int v = 0; v < PIXEL_VECTORS; ++v) sums[v] =
          MULTIPLY_ADD(factor, ((__local const AnyVector *)(from[v] + place))->vector, sums[v]);
    }
    for (int v = 0; v < min(PIXEL_VECTORS, last - index); ++v)
      store_lanes(out + to[v] * element, strides->strides[0] * element, count, dt, sums[v]);
  }
}

// Global size (groups * ITEMS, boxes, images) in groups of ITEMS. `bias` is null where there is none.
__kernel GROUPS_OF(ITEMS) void conv_direct(__global const uchar *source, ulong source_offset, int source_dtype,
                                           __global const uchar *weight, ulong weight_offset, int weight_dtype,
                                           __global const uchar *bias, ulong bias_offset, int bias_dtype,
                                           long bias_stride, __global uchar *out, ulong out_offset, int out_dtype,
                                           Source from, TapStrides taps, PixelStrides pixels, long out_channels,
                                           __local T *planes, __local T *factors, __local int *places) {
  const long group = get_group_id(0), image = get_global_id(2);
  const Box box = find_box(&from, get_global_id(1));
  find_places(&from, places);
  copy_weights(&from, weight + weight_offset + group * taps.group_stride * dtype_size(DTYPE_OF(weight_dtype)),
               DTYPE_OF(weight_dtype), &taps, (int)out_channels, factors);
  for (int c = 0; c < from.channels; ++c) {
    const long at = image * from.image_stride + (group * from.channels + c) * from.channel_stride;
    copy_box(&from, &box, source + source_offset + at * dtype_size(DTYPE_OF(source_dtype)), DTYPE_OF(source_dtype),
             planes + c * box_length(&from));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long r = 0; r < out_channels; ++r) {
    const long channel = group * out_channels + r;
    const long at = image * pixels.image_stride + channel * pixels.channel_stride;
    const T addend = bias ? load_one(bias + bias_offset, channel * bias_stride, DTYPE_OF(bias_dtype)) : FROM_REAL(0);
    convolve_box(&from, &box, planes, places, factors + r * from.channels * tap_count(&from), addend, &pixels,
                 out + out_offset + at * dtype_size(DTYPE_OF(out_dtype)), DTYPE_OF(out_dtype));
  }
}

// --- the gradient of the weight -------------------------------------------------------------------------------------

// The gradient of a box's output positions in one channel, rows padded to whole vectors with zeros.
static inline void copy_gradient(const Box *box, __global const uchar *gradient, int dt, const PixelStrides *strides,
                                 __local T *out) {
  const int all = box->vectors * box->count[1] * box->count[2], element = dtype_size(dt);
  for (int index = get_local_id(0); index < all; index += ITEMS) {
    const Cursor cursor = cursor_at(box, index);
    const long x = box->first[0] + cursor.vector * VEC, y = box->first[1] + cursor.y, z = box->first[2] + cursor.z;
    const long at = x * strides->strides[0] + y * strides->strides[1] + z * strides->strides[2];
    *(__local TV *)(out + index * VEC) = load_lanes(gradient + at * element, strides->strides[0] * element,
                                                    min(VEC, box->count[0] - cursor.vector * VEC), dt);
  }
}

// Adds a box's contributions to the weights [k, k + TAPS_AT_ONCE) of one result channel.
static inline void add_weights(const Source *s, const Box *box, __local const T *planes, __local const int *places,
                               __local const T *gradient, int k, __local T *out) {
  const int depth = (int)(s->channels * tap_count(s)), all = box->vectors * box->count[1] * box->count[2];
  __local const T *from[TAPS_AT_ONCE];
  TV sums[TAPS_AT_ONCE];
  for (int t = 0; t < TAPS_AT_ONCE; ++t) {
    from[t] = planes + places[min(k + t, depth - 1)];
    sums[t] = (TV)(0);
  }
  Cursor cursor = {0, 0, 0};
  for (int index = 0; index < all; ++index) {
    const TV factor = *(__local const TV *)(gradient + index * VEC);
    const int place = cursor_place(s, &cursor) + cursor.vector * VEC;
    UNROLL for (int t = 0; t < TAPS_AT_ONCE; ++t) sums[t] =
        MULTIPLY_ADD(factor, ((__local const AnyVector *)(from[t] + place))->vector, sums[t]);
    move_on(box, &cursor);
  }
  for (int t = 0; t < min(TAPS_AT_ONCE, depth - k); ++t) out[k + t] += lane_sum(sums[t]);
}

// Global size (groups * ITEMS, splits of the images) in groups of ITEMS: sums [splits][groups][result channels][source
// channels][kernel].
__kernel GROUPS_OF(ITEMS) void conv_direct_weight(__global const uchar *source, ulong source_offset, int source_dtype,
                                                  __global const uchar *gradient, ulong gradient_offset,
                                                  int gradient_dtype, __global uchar *out, ulong out_offset,
                                                  Source from, PixelStrides pixels, long out_channels, long images,
                                                  __local T *planes, __local T *gradients, __local T *sums,
                                                  __local int *places) {
  const long group = get_group_id(0);
  SHARE_TASKS(images, get_global_id(1), get_global_size(1), first, last);
  const int depth = (int)(from.channels * tap_count(&from)), all = depth * (int)out_channels;
  const int blocks = (depth + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
  find_places(&from, places);
  for (int i = get_local_id(0); i < all; i += ITEMS) sums[i] = FROM_REAL(0);
  // One loop over the boxes of all images: PoCL 3.1 fails on a barrier within two.
  const long boxes = box_count(&from);
  for (long step = first * boxes; step < last * boxes; ++step) {
    const long image = step / boxes;
    const Box box = find_box(&from, step % boxes);
    const int pixel_count = box.vectors * box.count[1] * box.count[2] * VEC;
    for (int c = 0; c < from.channels; ++c) {
      const long at = image * from.image_stride + (group * from.channels + c) * from.channel_stride;
      copy_box(&from, &box, source + source_offset + at * dtype_size(DTYPE_OF(source_dtype)), DTYPE_OF(source_dtype),
               planes + c * box_length(&from));
    }
    for (int r = 0; r < out_channels; ++r) {
      const long at = image * pixels.image_stride + (group * out_channels + r) * pixels.channel_stride;
      copy_gradient(&box, gradient + gradient_offset + at * dtype_size(DTYPE_OF(gradient_dtype)),
                    DTYPE_OF(gradient_dtype), &pixels, gradients + r * pixel_count);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int task = get_local_id(0); task < blocks * out_channels; task += ITEMS) {
      const int r = task / blocks;
      add_weights(&from, &box, planes, places, gradients + r * pixel_count, task % blocks * TAPS_AT_ONCE,
                  sums + r * depth);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  __global T *to = (__global T *)(out + out_offset) + (get_global_id(1) * get_num_groups(0) + group) * all;
  for (int i = get_local_id(0); i < all; i += ITEMS) to[i] = sums[i];
}
