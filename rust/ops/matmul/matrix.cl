// Matrices over tensors of any layout, and the vector access that the matrix families share.
//
// A matrix index runs over a nest of up to four tensor dimensions. So the positions of a batch of images, or the
// elements of a convolution's kernel, are one index without a copy.

// The dtypes of a matmul: of A and B, of the result, and of the bias.
#ifdef SPEC_DTYPE0
#define INPUT_DTYPE SPEC_DTYPE0
#else
#define INPUT_DTYPE input_dtype
#endif
#ifdef SPEC_DTYPE1
#define OUT_DTYPE SPEC_DTYPE1
#else
#define OUT_DTYPE out_dtype
#endif
#ifdef SPEC_DTYPE2
#define BIAS_DTYPE SPEC_DTYPE2
#else
#define BIAS_DTYPE bias_dtype
#endif

#define AXIS_LEVELS 4

// Innermost level first; unused levels have size 1. Strides are in elements.
typedef struct {
  long sizes[AXIS_LEVELS];
  long strides[AXIS_LEVELS];
} Axis;
SHARED(Axis, 64);

// Layout of a batch of matrices.
typedef struct {
  Axis rows;
  Axis columns;
  long batch_stride;
} Matrix;
SHARED(Matrix, 136);

OUTLINED long outer_offset(const Axis *axis, long i) {
  long offset = 0;
  for (int level = 0; level < AXIS_LEVELS - 1; ++level) {
    const long size = axis->sizes[level];
    if (i < size) return offset + i * axis->strides[level];
    offset += (i % size) * axis->strides[level];
    i /= size;
  }
  return offset + i * axis->strides[AXIS_LEVELS - 1];
}

// Element offset of index i.
static inline long axis_offset(const Axis *axis, long i) {
  return i < axis->sizes[0] ? i * axis->strides[0] : outer_offset(axis, i);
}

// A walk along an axis that divides only where the innermost level wraps.
typedef struct {
  long index;
  long offset;
  long left;
} Walk;

OUTLINED Walk walk_from(const Axis *axis, long i) {
  const long size = axis->sizes[0];
  const Walk walk = {i, axis_offset(axis, i), size - (i < size ? i : i % size)};
  return walk;
}

static inline void walk_on(const Axis *axis, Walk *walk, long count) {
  if (walk->left <= count) {
    *walk = walk_from(axis, walk->index + count);
  } else {
    walk->index += count;
    walk->offset += count * axis->strides[0];
    walk->left -= count;
  }
}

// Returns true if indices i .. i + count - 1 are contiguous in memory.
static inline bool axis_is_dense(const Axis *axis, long i, long count) {
  const long size = axis->sizes[0];
  return axis->strides[0] == 1 && (i < size ? i : i % size) + count <= size;
}

// Returns true if all indices refer to one element, as along the constant index of a bias vector.
static inline bool axis_is_constant(const Axis *axis) {
  bool fixed = true;
  for (int level = 0; level < AXIS_LEVELS; ++level)
    fixed = fixed && (axis->strides[level] == 0 || axis->sizes[level] == 1);
  return fixed;
}

// R is the real type that a tile is computed in; a complex number is PARTS = 2 neighbouring reals.
#if defined(CLASS_D) || defined(CLASS_Z)
typedef double R;
#define R_NAME double
#define R_DTYPE DT_F64
#elif defined(CLASS_I)
typedef long R;
#define R_NAME long
#define R_DTYPE DT_I64
#else
typedef float R;
#define R_NAME float
#define R_DTYPE DT_F32
#endif

#ifdef IS_COMPLEX
#define PARTS 2
#else
#define PARTS 1
#endif

// The dtype that needs no conversion. This common case gets a branch, as a switch would dominate the cost.
#if defined(CLASS_C)
#define T_DTYPE DT_C64
#elif defined(CLASS_Z)
#define T_DTYPE DT_C128
#else
#define T_DTYPE R_DTYPE
#endif

#ifdef IS_COMPLEX
static inline T multiply(T a, T b) { return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
#define MULTIPLY_ADD(a, b, c) (multiply(a, b) + (c))
#elif defined(IS_INTEGER)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
#define MULTIPLY_ADD(a, b, c) FMA_OR_MAD(a, b, c)
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#ifndef IS_COMPLEX
// PoCL splits vload16 and vstore16 into four quarters; a vector in a packed struct is one access, at any address.
typedef struct __attribute__((packed)) {
  TV vector;
} UnalignedVector;
#define LOAD_UNALIGNED(p) (((__global const UnalignedVector *)(p))->vector)
#define STORE_UNALIGNED(v, p) (((__global UnalignedVector *)(p))->vector = (v))
#define LOAD_PRIVATE(p) (((const UnalignedVector *)(p))->vector)
#define STORE_PRIVATE(v, p) (((UnalignedVector *)(p))->vector = (v))
#else
#define LOAD_PRIVATE(p) (*(p))
#define STORE_PRIVATE(v, p) (*(p) = (v))
#endif

// load and load_vector with a branch for the common dtype.
static inline T load_one(__global const uchar *p, long i, int dt) {
  return dt == T_DTYPE ? ((__global const T *)p)[i] : load(p, i, dt);
}

static inline TV load_dense(__global const uchar *p, long i, int dt) {
#ifndef IS_COMPLEX
  if (dt == R_DTYPE) return LOAD_UNALIGNED((__global const R *)p + i);
#endif
  return load_vector(p, i, dt);
}

#if VEC == 1
#define STORE_VALUES(v, p) (*(p) = (v))
#else
#define STORE_VALUES(v, p) VSTORE(v, 0, p)
#endif

// Adds all lanes, one after the other; lanes_sum adds pairs.
static inline T sequential_sum(TV v) {
  Lanes lanes;
  lanes.vector = v;
  T sum = lanes.lanes[0];
  for (int l = 1; l < VEC; ++l) sum += lanes.lanes[l];
  return sum;
}
