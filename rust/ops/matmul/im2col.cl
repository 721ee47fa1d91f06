// Implicit GEMM: the im2col matrix of a convolution, which pack_im2col.cl and pack_im2col_transposed.cl pack for `gemm`
// directly from the tensor. It is never stored in memory.
//
// The im2col matrix has a row for each output position and a column for each channel at each kernel element. Dimensions
// are innermost first (w, h, d), and missing ones have size 1, so that one kernel serves 1-D, 2-D and 3-D.

#if HAS_IM2COL
static inline long count_elements(const Im2colLayout *im2col) {
  return (long)im2col->kernel_size[0] * im2col->kernel_size[1] * im2col->kernel_size[2];
}

typedef struct {
  long at[SPATIAL];
} KernelElement;

static inline KernelElement find_element(const Im2colLayout *im2col, long index) {
  KernelElement element;
  element.at[0] = index % im2col->kernel_size[0];
  index /= im2col->kernel_size[0];
  element.at[1] = index % im2col->kernel_size[1];
  element.at[2] = index / im2col->kernel_size[1];
  return element;
}

// Elements from an output position's kernel element 0, inside the input or not, to another kernel element.
static inline long element_offset(const Im2colLayout *im2col, const KernelElement *element) {
  long offset = 0;
  for (int d = 0; d < SPATIAL; ++d) offset += element->at[d] * im2col->dilation[d] * im2col->in_strides[d];
  return offset;
}

// An output position in a batch of images.
typedef struct {
  long at[SPATIAL];
  long image;
} OutPosition;

static inline OutPosition find_position(const Im2colLayout *im2col, long index) {
  OutPosition position;
  for (int d = 0; d < SPATIAL; ++d) {
    position.at[d] = index % im2col->out_sizes[d];
    index /= im2col->out_sizes[d];
  }
  position.image = index;
  return position;
}

// Advances by `count` output positions in index order.
static inline void advance(const Im2colLayout *im2col, OutPosition *position, int count) {
  position->at[0] += count;
  if (position->at[0] < im2col->out_sizes[0]) return;
  for (int d = 0; d < SPATIAL; ++d) {
    const long carry = position->at[d] / im2col->out_sizes[d];
    position->at[d] -= carry * im2col->out_sizes[d];
    if (d + 1 < SPATIAL) position->at[d + 1] += carry;
    else position->image += carry;
  }
}

// Element offset of channel 0 of an output position at kernel element 0, as if that were inside the input.
static inline long position_offset(const Im2colLayout *im2col, const OutPosition *position) {
  long offset = position->image * im2col->image_stride;
  for (int d = 0; d < SPATIAL; ++d)
    offset += (position->at[d] * im2col->stride[d] + im2col->origin[d]) * im2col->in_strides[d];
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
  long offsets[TILE_LANES];  // position_offset of each
  Indices at[SPATIAL];  // input position of kernel element 0 of each
  int size;
  int count;  // of the positions that exist
  int second;  // positions before this one are evenly spaced in memory, as are those from it on; else 0
  bool is_inside;  // true if every kernel element of every position is inside the input
} Run;

#define OUTSIDE (-(1 << 29))

// The `size` output positions from `position` on, which is `left` before the end.
static inline Run find_run(const Im2colLayout *im2col, OutPosition position, int size, long left) {
  Run run;
  run.size = size;
  run.count = (int)clamp(left, 0L, (long)size);
  run.second = size;
  const long spacing = im2col->stride[0] * im2col->in_strides[0];
  long offset = position_offset(im2col, &position);
  long at[SPATIAL], least[SPATIAL], most[SPATIAL];
  for (int d = 0; d < SPATIAL; ++d) least[d] = most[d] = at[d] = position.at[d] * im2col->stride[d] + im2col->origin[d];
  int breaks = 0;
  for (int l = 0; l < size; ++l) {
    run.offsets[l] = offset;
    for (int d = 0; d < SPATIAL; ++d) run.at[d].lanes[l] = l < run.count ? (R_INDEX)at[d] : OUTSIDE;
    most[0] = max(most[0], at[0]);
    offset += spacing;
    at[0] += im2col->stride[0];
    if (++position.at[0] < im2col->out_sizes[0] || l + 1 >= run.count) continue;
    // The next row, of this image or another.
    advance(im2col, &position, 0);
    const long next = position_offset(im2col, &position);
    if (next != offset) {
      run.second = l + 1;
      ++breaks;
      offset = next;
    }
    for (int d = 0; d < SPATIAL; ++d) {
      at[d] = position.at[d] * im2col->stride[d] + im2col->origin[d];
      least[d] = min(least[d], at[d]);
      most[d] = max(most[d], at[d]);
    }
  }
  if (breaks > 1) run.second = 0;
  run.is_inside = run.count == size;
  for (int d = 0; d < SPATIAL; ++d) {
    const long reach = (im2col->kernel_size[d] - 1L) * im2col->dilation[d];
    run.is_inside = run.is_inside && least[d] + min(reach, 0L) >= 0 && most[d] + max(reach, 0L) < im2col->in_sizes[d];
  }
  return run;
}

// Returns true if output position l reads inside the input at a kernel element.
static inline bool is_inside(const Im2colLayout *im2col, const Run *run, int l, const KernelElement *element) {
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = run->at[d].lanes[l] + element->at[d] * im2col->dilation[d];
    if (at < 0 || at >= im2col->in_sizes[d]) return false;
  }
  return true;
}

#ifndef IS_COMPLEX
// `is_inside` for all output positions, as a mask.
static inline RM block_inside(const Im2colLayout *im2col, const Run *run, const KernelElement *element) {
  RM inside = (RM)(-1);
  for (int d = 0; d < SPATIAL; ++d) {
    const RM at = run->at[d].block + (RM)((R_INDEX)(element->at[d] * im2col->dilation[d]));
    inside &= (at >= (RM)(0)) & (at < (RM)((R_INDEX)im2col->in_sizes[d]));
  }
  return inside;
}

// Mask of the output positions of a run's second part.
static inline Indices second_part(const Run *run) {
  Indices part;
  for (int l = 0; l < run->size; ++l) part.lanes[l] = l >= run->second ? -1 : 0;
  return part;
}

// Offset of output position 0, extrapolated from the run's second part.
static inline long second_offset(const Run *run, long spacing) {
  return run->offsets[run->size - 1] - (run->size - 1) * spacing;
}

// Returns true if loads of whole vectors stay inside the tensor for a run's output positions, shifted by `lowest` to
// `highest` elements.
static inline bool is_loadable(const Im2colLayout *im2col, const Run *run, long lowest, long highest) {
  const long spacing = im2col->stride[0] * im2col->in_strides[0];
  if (run->second == 0 || spacing < 1 || spacing > 2) return false;
  const long first = run->offsets[0], second = second_offset(run, spacing);
  return min(first, second) + lowest >= 0 && max(first, second) + highest + 2 * run->size <= im2col->elements;
}

// VEC, or BLOCK, elements that are 1 or 2 apart.
ALWAYS_INLINE TV load_vector_spaced(__global const uchar *input, int dt, long offset, long spacing) {
  const TV low = load_dense(input, offset, dt);
  if (spacing == 1) return low;
  return (TV)(low.even, load_dense(input, offset + VEC, dt).even);
}

ALWAYS_INLINE RB load_block_spaced(__global const uchar *input, int dt, long offset, long spacing) {
  const RB low = load_block(input, offset, dt);
  if (spacing == 1) return low;
  return (RB)(low.even, load_block(input, offset + BLOCK, dt).even);
}
#endif
#endif
