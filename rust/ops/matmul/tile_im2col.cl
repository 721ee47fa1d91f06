// The im2col matrix of a convolution as an operand of gemm_tile.cl: of a tensor whose channels are innermost and a
// multiple of CHUNK, so that a chunk is of one input position, or of zeros.
//
// These instructions take time between the matrix instructions, so they are few: offsets count chunks and fit 32 bits, a
// position has a bit for each kernel element inside the input, and divisions are multiplications.

#if A_KIND != FROM_MATRIX || B_KIND != FROM_MATRIX
#define CHUNKS(elements) (int)((elements) >> 3)
#define CHUNK_AT(input, offset) ((input) + (long)(offset) * CHUNK)

// Splits the index of an output position: returns its part along dimension d, and leaves those of later dimensions in
// `rest`. Dimensions are taken in order.
INLINE int take_dimension(const Im2colLayout *im2col, int d, uint *rest) {
  const uint next = mul_hi(2 * *rest, im2col->multipliers[d]) >> im2col->shifts[d];
  const int at = (int)(*rest - next * (uint)im2col->out_sizes[d]);
  *rest = next;
  return at;
}

// A channel at a kernel element: a column of the im2col matrix.
typedef struct {
  int channel_index;
  int at[SPATIAL];
  int offset;  // from an output position's channel 0 of kernel element 0
  uint bits;  // its bit along each dimension, as in Corner
} KernelElement;
INLINE void find_offset(const Im2colLayout *im2col, KernelElement *kernel_element) {
  uint first = 0;
  kernel_element->offset = CHUNKS(kernel_element->channel_index);
  kernel_element->bits = 0;
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    kernel_element->offset += kernel_element->at[d] * (int)im2col->dilation[d] * CHUNKS(im2col->in_strides[d]);
    kernel_element->bits |= 1u << (first + kernel_element->at[d]);
    first += (uint)im2col->kernel_size[d];
  }
}
INLINE KernelElement kernel_element_of(const Im2colLayout *im2col, uint column) {
  KernelElement kernel_element;
  const uint channels = (uint)im2col->channels;
  uint rest = column / channels;
  kernel_element.channel_index = (int)(column - rest * channels);
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    const uint size = (uint)im2col->kernel_size[d];
    kernel_element.at[d] = (int)(rest % size);
    rest /= size;
  }
  find_offset(im2col, &kernel_element);
  return kernel_element;
}
// The kernel element `columns` columns later.
INLINE void move_kernel_element(const Im2colLayout *im2col, KernelElement *kernel_element, int columns) {
  kernel_element->channel_index += columns;
  kernel_element->offset += CHUNKS(columns);
  if (kernel_element->channel_index >= (int)im2col->channels) {
    do {
      kernel_element->channel_index -= (int)im2col->channels;
      bool carries = true;
      UNROLL for (int d = 0; d < SPATIAL; ++d) {
        kernel_element->at[d] += carries;
        carries = kernel_element->at[d] == (int)im2col->kernel_size[d];
        kernel_element->at[d] *= !carries;
      }
    } while (kernel_element->channel_index >= (int)im2col->channels);
    find_offset(im2col, kernel_element);
  }
}

// An output position.
typedef struct {
  int offset;  // of kernel element 0, inside the input or not
  uint inside;  // a bit for each kernel element along each dimension, one dimension after the other
} Corner;
// Finds the output positions of an item's chunks, which are `step` apart. One loop over kernel elements serves all
// positions: with a loop for each, PoCL's compiler takes exponentially longer.
#define POSITION_CHUNKS (A_KIND == FROM_IM2COL ? A_CHUNKS : B_CHUNKS)
INLINE void find_corners(const Im2colLayout *im2col, uint position, uint step, uint positions, Corner *corners) {
  uint rest[POSITION_CHUNKS], first = 0;
  UNROLL for (uint l = 0; l < POSITION_CHUNKS; ++l) {
    rest[l] = position + l * step;
    corners[l].offset = 0;
    corners[l].inside = 0;
  }
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    int at[POSITION_CHUNKS];
    UNROLL for (uint l = 0; l < POSITION_CHUNKS; ++l) {
      at[l] = take_dimension(im2col, d, &rest[l]) * (int)im2col->stride[d] + (int)im2col->origin[d];
      corners[l].offset += at[l] * CHUNKS(im2col->in_strides[d]);
    }
    const int dilation = (int)im2col->dilation[d];
    for (int t = 0; t < (int)im2col->kernel_size[d]; ++t) UNROLL for (uint l = 0; l < POSITION_CHUNKS; ++l)
      corners[l].inside |= (uint)((uint)(at[l] + t * dilation) < (uint)im2col->in_sizes[d]) << (first + t);
    first += (uint)im2col->kernel_size[d];
  }
  UNROLL for (uint l = 0; l < POSITION_CHUNKS; ++l) {
    corners[l].offset += (int)rest[l] * CHUNKS(im2col->image_stride);
    corners[l].inside *= position + l * step < positions;
  }
}

// EACH_CHUNK for output positions as outer index and kernel elements along k: a kernel element for an item, a corner
// for a chunk.
#define EACH_CHUNK_OF_ELEMENTS(chunks, k_left, CHUNK_CODE)                                                      \
  {                                                                                                             \
    const bool is_whole = false;                                                                                \
    const uint k = FIRST_COLUMN(BLOCK_K), bits = (int)k < (k_left) ? kernel_element.bits : 1u << 31;            \
    UNROLL for (uint l = 0; l < (chunks); ++l) {                                                                \
      const uint index = INDEX_IN_ROWS(BLOCK_K, FIRST_ROW(BLOCK_K) + l * ROW_STEP(BLOCK_K), k) / CHUNK;         \
      const int count = (corners[l].inside & bits) == bits ? CHUNK : 0;                                         \
      __global const ushort *at = CHUNK_AT(input, corners[l].offset + kernel_element.offset);                   \
      CHUNK_CODE;                                                                                               \
    }                                                                                                           \
  }

// EACH_CHUNK for kernel elements as outer index and output positions along k: all chunks of an item have one
// channel and kernel element: `first_channel`, in chunks, and `first_at`, the input position for output position 0. The
// item's first chunk is of output position `position`.
#define EACH_CHUNK_OF_POSITIONS(chunks, width, outers_left, last_position, CHUNK_CODE)                  \
  {                                                                                                     \
    const bool is_whole = false;                                                                        \
    UNROLL for (uint l = 0; l < (chunks); ++l) {                                                        \
      const uint row = FIRST_ROW(width) + l * ROW_STEP(width), at_position = position + l * ROW_STEP(width); \
      const uint index = INDEX_IN_ROWS(width, row, FIRST_COLUMN(width)) / CHUNK;                        \
      bool exists = (int)FIRST_COLUMN(width) < (outers_left) && at_position < (last_position);          \
      const int offset = offset_of(&im2col, first_at, at_position, &exists);                               \
      const int count = exists ? CHUNK : 0;                                                             \
      __global const ushort *at = CHUNK_AT(input, first_channel + offset);                              \
      CHUNK_CODE;                                                                                       \
    }                                                                                                   \
  }
INLINE int offset_of(const Im2colLayout *im2col, const int *first_at, uint position, bool *exists) {
  uint rest = position;
  int offset = 0;
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    const int at = take_dimension(im2col, d, &rest) * (int)im2col->stride[d] + first_at[d];
    *exists = *exists && (uint)at < (uint)im2col->in_sizes[d];
    offset += at * CHUNKS(im2col->in_strides[d]);
  }
  return offset + (int)rest * CHUNKS(im2col->image_stride);
}
#endif
