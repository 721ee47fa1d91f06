// The patches of a convolution, as pack_pixels.cl and pack_features.cl pack them for `gemm`, straight from the tensor:
// nothing is unfolded in memory.
//
// The patch matrix (im2col) has a row for each output position and a column for each feature, a channel at an element
// of the kernel. Dimensions are innermost first (w, h, d), and missing ones have size 1, so that one kernel serves 1-D,
// 2-D and 3-D.

#if HAS_PATCHES
static inline long tap_count(const Patches *patches) { return patches->taps[0] * patches->taps[1] * patches->taps[2]; }

typedef struct {
  long at[SPATIAL];
} Tap;

static inline Tap find_tap(const Patches *patches, long index) {
  Tap tap;
  tap.at[0] = index % patches->taps[0];
  index /= patches->taps[0];
  tap.at[1] = index % patches->taps[1];
  tap.at[2] = index / patches->taps[1];
  return tap;
}

// Elements from an output position's kernel element 0, inside the source or not, to another kernel element.
static inline long tap_offset(const Patches *patches, const Tap *tap) {
  long offset = 0;
  for (int d = 0; d < SPATIAL; ++d) offset += tap->at[d] * patches->step[d] * patches->strides[d];
  return offset;
}

// An output position in a batch of images.
typedef struct {
  long at[SPATIAL];
  long image;
} Pixel;

static inline Pixel find_pixel(const Patches *patches, long index) {
  Pixel pixel;
  for (int d = 0; d < SPATIAL; ++d) {
    pixel.at[d] = index % patches->pixels[d];
    index /= patches->pixels[d];
  }
  pixel.image = index;
  return pixel;
}

// Advances by `count` output positions in index order.
static inline void advance(const Patches *patches, Pixel *pixel, int count) {
  pixel->at[0] += count;
  if (pixel->at[0] < patches->pixels[0]) return;
  for (int d = 0; d < SPATIAL; ++d) {
    const long carry = pixel->at[d] / patches->pixels[d];
    pixel->at[d] -= carry * patches->pixels[d];
    if (d + 1 < SPATIAL) pixel->at[d + 1] += carry;
    else pixel->image += carry;
  }
}

// Element offset of channel 0 of an output position at kernel element 0, were it inside the source.
static inline long pixel_offset(const Patches *patches, const Pixel *pixel) {
  long offset = pixel->image * patches->image_stride;
  for (int d = 0; d < SPATIAL; ++d)
    offset += (pixel->at[d] * patches->scale[d] + patches->origin[d]) * patches->strides[d];
  return offset;
}

// --- runs of output positions ---------------------------------------------------------------------------------------

// One index for each output position; as a mask, -1 and 0.
typedef union {
#ifndef IS_COMPLEX
  TM vector;
  RM block;
#endif
  R_INDEX lanes[TILE_LANES];
} Indices;

// Up to TILE_LANES neighbouring output positions.
typedef struct {
  long offsets[TILE_LANES];  // pixel_offset of each
  Indices at[SPATIAL];  // source position of kernel element 0 of each
  int size;
  int count;  // of those that exist
  int second;  // positions before this one are evenly spaced in memory, as are those from it on; else 0
  bool is_inside;  // true where every kernel element of every position is inside the source
} Run;

#define OUTSIDE (-(1 << 29))

// The `size` output positions from `pixel` on, which is `left` before the end.
static inline Run find_run(const Patches *patches, Pixel pixel, int size, long left) {
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

// Returns true if output position l reads inside the source at a kernel element.
static inline bool is_inside(const Patches *patches, const Run *run, int l, const Tap *tap) {
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = run->at[d].lanes[l] + tap->at[d] * patches->step[d];
    if (at < 0 || at >= patches->extents[d]) return false;
  }
  return true;
}

#ifndef IS_COMPLEX
// The same for all output positions, as a mask.
static inline RM block_inside(const Patches *patches, const Run *run, const Tap *tap) {
  RM inside = (RM)(-1);
  for (int d = 0; d < SPATIAL; ++d) {
    const RM at = run->at[d].block + (RM)((R_INDEX)(tap->at[d] * patches->step[d]));
    inside &= (at >= (RM)(0)) & (at < (RM)((R_INDEX)patches->extents[d]));
  }
  return inside;
}

// Mask of the output positions of a run's second part.
static inline Indices second_part(const Run *run) {
  Indices part;
  for (int l = 0; l < run->size; ++l) part.lanes[l] = l >= run->second ? -1 : 0;
  return part;
}

// Offset of output position 0, were all of a run spaced as its second part is.
static inline long second_offset(const Run *run, long spacing) {
  return run->offsets[run->size - 1] - (run->size - 1) * spacing;
}

// Returns true if loads of whole vectors get the output positions of a run from `lowest` to `highest` elements on
// without leaving the tensor.
static inline bool is_loadable(const Patches *patches, const Run *run, long lowest, long highest) {
  const long spacing = patches->scale[0] * patches->strides[0];
  if (run->second == 0 || spacing < 1 || spacing > 2) return false;
  const long first = run->offsets[0], second = second_offset(run, spacing);
  return min(first, second) + lowest >= 0 && max(first, second) + highest + 2 * run->size <= patches->elements;
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
#endif
