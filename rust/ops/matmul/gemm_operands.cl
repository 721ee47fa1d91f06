// Operands of a GEMM, on CPUs and GPUs alike: their kinds, and the layout of the im2col matrix of a convolution.

// A strided matrix, or the im2col matrix of a convolution with k over its columns or, transposed, over its rows.
// The kinds are constants of a program, so that it compiles only what it needs.
#define FROM_MATRIX 0
#define FROM_IM2COL 1
#define FROM_IM2COL_TRANSPOSED 2
#ifndef A_KIND
#define A_KIND FROM_MATRIX
#endif
#ifndef B_KIND
#define B_KIND FROM_MATRIX
#endif
#define HAS_IM2COL (A_KIND != FROM_MATRIX || B_KIND != FROM_MATRIX)

#define SPATIAL 3

// Along dimension d, kernel element t of output position p reads p * stride + origin + t * dilation; outside [0,
// in_sizes) the value is zero. A convolution has origin = -padding. Its transpose (the gradient of the input, the
// forward of a transposed convolution) has a stride of 1 and a dilation below 0; if the convolution has a stride
// above 1, the launcher splits its transpose into sub-convolutions, the output positions of one remainder and the
// kernel elements that contribute to them. Sub-convolutions have this form too.
typedef struct {
  long out_sizes[SPATIAL];
  long stride[SPATIAL];
  long origin[SPATIAL];
  long in_sizes[SPATIAL];
  long in_strides[SPATIAL];
  long channels;
  long channel_stride;
  long image_stride;
  long kernel_step;  // column of the im2col matrix from one kernel element to the next: in the order of memory
  long channel_step;  // column from one channel to the next
  long elements;  // from the first to the last of the images
  // (2 i * multipliers[d] >> 32) >> shifts[d] is i / out_sizes[d], for i below 2^31.
  uint multipliers[SPATIAL];
  uint shifts[SPATIAL];
  int kernel_size[SPATIAL];
  int dilation[SPATIAL];
} Im2colLayout;
SHARED(Im2colLayout, 216);
