// Operands of a GEMM, on CPUs and GPUs alike: their kinds, and how the kernel elements of a convolution map to its
// source.

// A strided matrix, or the patch matrix of a convolution with k over its features or its output positions. Constants of
// a program, so that only what it needs is compiled.
#define FROM_MATRIX 0
#define FROM_PIXELS 1
#define FROM_FEATURES 2
#ifndef A_KIND
#define A_KIND FROM_MATRIX
#endif
#ifndef B_KIND
#define B_KIND FROM_MATRIX
#endif
#define HAS_PATCHES (A_KIND != FROM_MATRIX || B_KIND != FROM_MATRIX)

#define SPATIAL 3

// Along dimension d, kernel element t of output position p reads p * scale + origin + t * step; outside [0, extents)
// the value is zero. A convolution has scale = stride, origin = -padding, step = dilation. Its transpose (the gradient
// of the input, the forward of a transposed convolution) has scale = 1 and step = -dilation; with a stride above 1 the
// launcher splits it into phases, the output positions of one remainder and the kernel elements that meet them, which
// again have this form.
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
  long tap_stride;  // of a feature's index: features are counted along the tensor's memory
  long feature_stride;  // the same for channels
  long elements;  // from the first to the last of the images
} Patches;
SHARED(Patches, 216);
