// Discrete Fourier transforms along one dimension. A work-group computes a few transforms at a time, a tile, with
// Stockham's algorithm (N. K. Govindaraju et al., "High performance discrete Fourier transforms on graphics
// processors", SC 2008): work-items transform `radix` values in registers, and exchange them through local memory. The
// first pass reads global memory, and the last one writes it. The passes between read elements length / radix apart,
// and write them in the order of the next pass, so that there is no reordering (bit reversal). Longer transforms are
// made of launches of this kernel (plan.rs, axis.rs).

// The side of a launch that reads, or that writes. Strides are in elements. An index is an element's position in the
// whole transform; one launch may compute a part of it.
typedef struct {
  long stride;  // between elements of one of the launch's transforms
  long index;  // difference between the indices of these elements
  long unit;  // stride between elements of consecutive indices
  long hermitian;  // length of the transform if only its lower half is stored (the rest is its conjugate), else 0
  long period;  // indices that differ by a multiple of this belong to one transform of the launch
  long factors;  // number of elements that exist, each multiplied by a factor of a table; 0: all exist, no factors
  int direction;  // of the factors: 1 for those of the table, -1 for their conjugates
  int is_transform_major;  // neighbouring work-items take neighbouring transforms, not elements of one
} End;
SHARED(End, 56);

#ifdef SPEC_LENGTH
#define LENGTH SPEC_LENGTH
#define RADICES SPEC_RADICES
#define TILE SPEC_TILE
#define EXCHANGES SPEC_EXCHANGES
// Each pass has its own radix: unrolling makes it and the indices of a work-item's values constants.
#define UNROLL_PASSES UNROLL
#define UNROLL_VALUES UNROLL
#else
#define LENGTH length
#define RADICES radices
#define TILE tile
#define EXCHANGES exchanges
// With values in registers PoCL takes a minute to compile a kernel for any radix.
#define UNROLL_PASSES
#define UNROLL_VALUES
#endif
#ifndef LSIZE
#define LSIZE 64
#endif

// Index in local memory of element i of a transform of the tile. Elements are permuted within blocks of BANKS, so that
// elements a power of two apart, and elements of neighbouring transforms, are in different banks.
#ifdef CLASS_Z
#define BANKS 8
#else
#define BANKS 16
#endif
static inline INLINED_ON_GPUS uint exchange_index(uint transform, uint i, uint length) {
  const uint pitch = (LENGTH + BANKS - 1) / BANKS * BANKS;
  return transform * pitch + (i ^ ((i / BANKS ^ transform * 4) % BANKS));
}

static inline INLINED_ON_GPUS T load_value(__global const uchar *p, long i, int dt) {
  switch (dt) {
#ifdef CLASS_Z
    case DT_F64: return (T)(((__global const double *)p)[i], 0);
#else
    case DT_F16: return (T)(vload_half(i, (__global const half *)p), 0);
    case DT_F32: return (T)(((__global const float *)p)[i], 0);
    case DT_C32: return vload_half2(i, (__global const half *)p);
#endif
  }
  return ((__global const T *)p)[i];
}

static inline INLINED_ON_GPUS void store_value(__global uchar *p, long i, int dt, T v) {
  switch (dt) {
#ifdef CLASS_Z
    case DT_F64: ((__global double *)p)[i] = v.x; return;
#else
    case DT_F16: vstore_half_rte(v.x, i, (__global half *)p); return;
    case DT_F32: ((__global float *)p)[i] = v.x; return;
    case DT_C32: vstore_half2_rte(v, i, (__global half *)p); return;
#endif
  }
  ((__global T *)p)[i] = v;
}

// A factor from a table, which has the factors of forward transforms.
static inline INLINED_ON_GPUS T factor_at(__global const T *table, long i, TR direction) {
  const T factor = table[i];
  return (T)(factor.x, direction * factor.y);
}

// A transform of the launch: the offsets of its elements and their indices, at both ends, and its column in the matrix
// view of a long transform.
typedef struct {
  long from, to, from_index, to_index, column;
} Position;

// Launches have fewer than 2^32 transforms: 32-bit divisions take a fifth of the instructions of 64-bit ones.
static inline INLINED_ON_GPUS Position position_of(const Layout *layout, uint transform) {
  Position p = {0, 0, 0, 0, 0};
  uint rest = transform;
  FOR_DIMS(d, 0, layout->ndim) {
    const uint size = (uint)layout->sizes[d], outer = d + 1 < layout->ndim ? rest / size : 0;
    const long i = rest - outer * size;
    p.from += i * layout->strides[0][d];
    p.to += i * layout->strides[1][d];
    p.from_index += i * layout->strides[2][d];
    p.to_index += i * layout->strides[3][d];
    p.column += i * layout->strides[4][d];
    rest = outer;
  }
  return p;
}

// The values of a work-item that are transformed together: values j + r * length / radix of a transform of the tile.
typedef struct {
  uint transform, j;
  bool is_some;
} Butterfly;

static inline INLINED_ON_GPUS Butterfly butterfly_of(uint item, uint radix, uint length, uint tile,
                                                     bool is_transform_major) {
  const uint step = LENGTH / radix;
  const uint transform = is_transform_major ? item % TILE : item / step;
  const uint j = is_transform_major ? item / TILE : item - transform * step;
  return (Butterfly){transform, j, is_transform_major ? j < step : transform < TILE};
}

// Visits the values v[e] of a work-item, the value r of its butterfly `b`; `begin` is a statement for each butterfly.
#define FOR_VALUES(e, r, b, radix, is_transform_major, begin)                                           \
  Butterfly b = {0, 0, false};                                                                          \
  UNROLL_VALUES for (uint e = 0, r = 0; e < VALUES; e++, r = r + 1 == (radix) ? 0 : r + 1) {            \
    if (r == 0) {                                                                                       \
      b = butterfly_of(get_local_id(0) + e / (radix) * LSIZE, radix, length, tile, is_transform_major); \
      b.is_some = b.is_some && e + (radix) <= VALUES;                                                   \
      if (b.is_some) begin;                                                                             \
    }                                                                                                   \
    if (b.is_some) {
#define END_VALUES \
  }                \
  }

static inline INLINED_ON_GPUS void write_local(__local T *exchange, const T *v, uint radix, uint span, uint length,
                                               uint tile, bool is_transform_major) {
  uint first = 0;
  FOR_VALUES(e, r, b, radix, is_transform_major, first = (b.j - b.j % span) * radix + b.j % span)
  exchange[exchange_index(b.transform, first + r * span, length)] = v[e];
  END_VALUES
}

// Loads values for a pass that combines transforms of `span` elements into transforms of span * radix.
static inline INLINED_ON_GPUS void read_local(__local const T *exchange, T *v, uint radix, uint span, uint length,
                                              uint tile, bool is_transform_major, __global const T *twiddles,
                                              TR direction) {
  const uint step = LENGTH / radix;
  uint k = 0;
  FOR_VALUES(e, r, b, radix, is_transform_major, k = b.j % span)
  v[e] = exchange[exchange_index(b.transform, b.j + r * step, length)];
  // The table has the factors of a pass after those of the previous pass.
  if (r > 0 && span > 1) v[e] = times(v[e], factor_at(twiddles, span - 1 + (r - 1) * span + k, direction));
  END_VALUES
}

// A power of the root of unity of a long transform. The table has the powers for the lower `bits` bits of the exponent,
// then for the upper bits.
static inline INLINED_ON_GPUS T root_of(__global const T *roots, int bits, long power, TR direction) {
  const long low = 1L << bits;
  return times(factor_at(roots, power & (low - 1), direction), factor_at(roots, low + (power >> bits), direction));
}

__kernel GROUPS_OF(LSIZE) void fft_block(__global const uchar *input, ulong input_offset, int dtype0,
                                         __global uchar *output, ulong output_offset, int dtype1,
                                         __global const uchar *twiddles, ulong twiddles_offset,
                                         __global const uchar *from_factors, ulong from_factors_offset,
                                         __global const uchar *to_factors, ulong to_factors_offset,
                                         __global const uchar *spectrum, ulong spectrum_offset,
                                         __global const uchar *roots, ulong roots_offset, Layout layout, End from,
                                         End to, long transforms, int length, int radices, int tile, int exchanges,
                                         int root_bits, int direction, TR scale, __local T *exchange) {
  input += input_offset;
  output += output_offset;
  __global const T *stages = (__global const T *)(twiddles + twiddles_offset);
  const long first = (long)get_group_id(0) * TILE;
  TR sign = direction;
  uint radix = RADICES & 15, span = 1;
  bool is_transform_major = from.is_transform_major;
  T v[VALUES];
  UNROLL for (int e = 0; e < VALUES; e++) v[e] = (T)(0, 0);

  {
    const uint step = LENGTH / radix;
    __global const T *factors = (__global const T *)(from_factors + from_factors_offset);
    Position p = {0, 0, 0, 0, 0};
    FOR_VALUES(e, r, b, radix, is_transform_major, p = position_of(&layout, (uint)min(first + b.transform, transforms - 1)))
    const long j = b.j + r * step, index = p.from_index + j * from.index;
    const bool is_mirrored = from.hermitian != 0 && 2 * index > from.hermitian;
    const long mirrored = is_mirrored ? (from.hermitian - 2 * index) * from.unit : 0;
    if (from.factors == 0 || index < from.factors) {
      v[e] = load_value(input, p.from + j * from.stride + mirrored, DTYPE0);
      if (is_mirrored) v[e].y = -v[e].y;
      if (from.factors != 0) v[e] = times(v[e], factor_at(factors, index, from.direction));
    }
    END_VALUES
  }

  // In a convolution (axis.rs) more exchanges follow the last pass: after the product with a table, and in the passes
  // of the inverse transform.
  uint rest = RADICES;
  UNROLL_PASSES for (int i = 0; i < EXCHANGES; i++) {
    transform(v, radix, sign);
    const bool is_turn = rest >> 4 == 0;
    if (is_turn) {
      __global const T *factors = (__global const T *)(spectrum + spectrum_offset);
      FOR_VALUES(e, r, b, radix, is_transform_major, )
      v[e] = times(v[e], factor_at(factors, b.j + r * span, sign));
      END_VALUES
    }
    write_local(exchange, v, radix, span, length, tile, is_transform_major);
    barrier(CLK_LOCAL_MEM_FENCE);
    span = is_turn ? 1 : span * radix;
    rest = is_turn ? (uint)RADICES : rest >> 4;
    radix = rest & 15;
    sign = is_turn ? -sign : sign;
    is_transform_major = i + 1 == EXCHANGES && to.is_transform_major;
    read_local(exchange, v, radix, span, length, tile, is_transform_major, stages, sign);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  transform(v, radix, sign);

  __global const T *factors = (__global const T *)(to_factors + to_factors_offset);
  __global const T *powers = (__global const T *)(roots + roots_offset);
  Position p = {0, 0, 0, 0, 0};
  T root = (T)(1, 0);
  bool is_there = false, mirrors = false;
  FOR_VALUES(e, r, b, radix, is_transform_major, {
    is_there = first + b.transform < transforms;
    p = position_of(&layout, (uint)min(first + b.transform, transforms - 1));
    if (root_bits != 0) root = root_of(powers, root_bits, b.j * p.column, sign);
    // This transform computes its elements' conjugates itself at phase 0 and at half the period. At other phases no
    // transform computes them, so they are stored here.
    const uint phase = (uint)p.to_index % (uint)to.period;
    mirrors = to.hermitian != 0 && phase != 0 && 2 * phase != (uint)to.period;
  })
  const long j = b.j + r * span, index = p.to_index + j * to.index;
  const bool is_mirrored = to.hermitian != 0 && 2 * index > to.hermitian;
  const bool is_stored = is_there && (to.factors == 0 || index < to.factors) && (!is_mirrored || mirrors);
  if (is_stored) {
    T value = v[e];
    if (root_bits != 0) value = times(value, root);
    if (root_bits != 0 && r > 0) value = times(value, root_of(powers, root_bits, r * span * p.column, sign));
    if (to.factors != 0) value = times(value, factor_at(factors, index, to.direction));
    if (is_mirrored) value.y = -value.y;
    const long mirrored = is_mirrored ? (to.hermitian - 2 * index) * to.unit : 0;
    store_value(output, p.to + j * to.stride + mirrored, DTYPE1, value * scale);
  }
  END_VALUES
}
