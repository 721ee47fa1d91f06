// The im2col matrix of a convolution as an operand of gemm_tile.cl: of a tensor whose channels are innermost and a
// multiple of CHUNK, so that a chunk is of one input position, or of zeros.

#if A_KIND != FROM_MATRIX || B_KIND != FROM_MATRIX
// The input position of kernel element 0 of an output position, and its address.
typedef struct {
  int at[SPATIAL];
  __global const ushort *from;
} Corner;
INLINE Corner corner_of(const Im2colLayout *im2col, __global const ushort *input, uint position, uint positions) {
  Corner corner;
  uint rest = position;
  long offset = 0;
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    const uint size = (uint)im2col->out_sizes[d], next = rest / size;
    const int at = (int)(rest - next * size) * (int)im2col->stride[d] + (int)im2col->origin[d];
    // Positions after the last are outside of the input.
    corner.at[d] = position < positions ? at : -0x40000000;
    offset += at * im2col->in_strides[d];
    rest = next;
  }
  corner.from = input + offset + rest * im2col->image_stride;
  return corner;
}

// A channel at a kernel element: a column of the im2col matrix.
typedef struct {
  int channel_index;
  int at[SPATIAL];
} KernelElement;
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
  return kernel_element;
}
// The kernel element `columns` columns later.
INLINE void move_kernel_element(const Im2colLayout *im2col, KernelElement *kernel_element, int columns) {
  kernel_element->channel_index += columns;
  while (kernel_element->channel_index >= (int)im2col->channels) {
    kernel_element->channel_index -= (int)im2col->channels;
    bool carries = true;
    UNROLL for (int d = 0; d < SPATIAL; ++d) {
      kernel_element->at[d] += carries;
      carries = kernel_element->at[d] == (int)im2col->kernel_size[d];
      if (carries) kernel_element->at[d] = 0;
    }
  }
}
// Elements from a corner to a kernel element.
INLINE long kernel_element_offset(const Im2colLayout *im2col, const KernelElement *kernel_element) {
  long offset = kernel_element->channel_index;
  UNROLL for (int d = 0; d < SPATIAL; ++d)
      offset += kernel_element->at[d] * (int)im2col->dilation[d] * im2col->in_strides[d];
  return offset;
}
INLINE bool is_in_input(const Im2colLayout *im2col, const Corner *corner, const KernelElement *kernel_element) {
  bool is = true;
  UNROLL for (int d = 0; d < SPATIAL; ++d)
      is = is && (uint)(corner->at[d] + kernel_element->at[d] * (int)im2col->dilation[d]) < (uint)im2col->in_sizes[d];
  return is;
}

// EACH_CHUNK for output positions as outer index and kernel elements along k: a kernel element for an item, a corner for
// a chunk.
#define EACH_CHUNK_OF_ELEMENTS(chunks, k_left, CHUNK_CODE)                                               \
  {                                                                                                  \
    const bool is_whole = false;                                                                     \
    const long offset = kernel_element_offset(&im2col, &kernel_element);                                                   \
    const uint k = item % ROW_CHUNKS * CHUNK;                                                        \
    UNROLL for (uint l = 0; l < (chunks); ++l) {                                                     \
      const uint outer = item / ROW_CHUNKS + l * NEXT_CHUNK(1, 0);                                   \
      const uint index = BLOCK_INDEX(1, BLOCK_K, outer, k) / CHUNK;                                  \
      const int count = (int)k < (k_left) && is_in_input(&im2col, &corners[l], &kernel_element) ? CHUNK : 0;    \
      __global const ushort *at = corners[l].from + offset;                                          \
      CHUNK_CODE;                                                                                    \
    }                                                                                                \
  }
// EACH_CHUNK for kernel elements as outer index and output positions along k: all chunks of an item have one
// kernel element.
#define EACH_CHUNK_OF_POSITIONS(chunks, outers, outers_left, k_left, CHUNK_CODE)                     \
  {                                                                                                  \
    const bool is_whole = false;                                                                     \
    const long offset = kernel_element_offset(&im2col, &kernel_element);                                                   \
    const uint outer = FIRST_OUTER(0, outers);                                                       \
    UNROLL for (uint l = 0; l < (chunks); ++l) {                                                     \
      const uint k = FIRST_K(0, outers) + l * NEXT_CHUNK(0, outers);                                 \
      const uint index = BLOCK_INDEX(0, outers, outer, k) / CHUNK;                                   \
      const Corner corner = corner_of(&im2col, input, position + k, (uint)extent.k);                 \
      const bool exists = (int)outer < (outers_left) && (int)k < (k_left);                           \
      const int count = exists && is_in_input(&im2col, &corner, &kernel_element) ? CHUNK : 0;                   \
      __global const ushort *at = corner.from + offset;                                              \
      CHUNK_CODE;                                                                                    \
    }                                                                                                \
  }
#endif
