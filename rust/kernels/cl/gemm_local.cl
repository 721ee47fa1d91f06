// Matrix product for devices with many small cores: C = alpha * A B + beta * D.
//
// A work-group of SIDE * SIDE items computes a square of SIDE * ITEM rows and columns of C. For STEP values of k at a
// time it copies what that takes of A and B into local memory, neighbouring items reading neighbours; then each item
// multiplies ITEM rows by ITEM columns of that in registers.
//
// An element of a factor is where its *outer* index (row of A, column of B) and its *inner* one (k) meet. Both
// indices contribute a Place, and places add up: for a strided matrix two offsets, and for the patches of a convolution
// also a position, outside of which the source is zero. Places of a square's outer indices are found once.

#ifndef SIDE
#define SIDE 16
#endif
// A multiple of 4: an item takes fours of rows and columns, 4 * SIDE apart, so that a row of items reads local memory
// without a gap.
#ifndef ITEM
#define ITEM 4
#endif
// k that is copied at a time, a multiple of SIDE / 4: every item copies LOADS elements of a block.
#ifndef STEP
#define STEP 4
#endif
#define ITEMS (SIDE * SIDE)
#define SQUARE (SIDE * ITEM)
// Neighbours along k are then in different banks, and fours stay aligned.
#define PITCH (SQUARE + 4)

// Whether neighbouring items take neighbours along k, or along the outer index.
#ifndef A_ALONG_K
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_K
#define B_ALONG_K 0
#endif

// Rows, columns and terms; k is cut into `splits` parts with sums of their own, `split_stride` elements apart.
typedef struct {
  long rows;
  long columns;
  long depth;
  long splits;
  long split_stride;
} Extent;

#define NOWHERE (-(1L << 62))

typedef struct {
  long offset;
#if HAS_PATCHES
  int at[SPATIAL];
#endif
} Place;

static inline Place matrix_place(const Axis *axis, long i) {
  Place place;
  place.offset = axis_offset(axis, i);
  return place;
}

#if HAS_PATCHES
static inline Place pixel_place(const Patches *grid, long i) {
  Place place;
  long offset = 0;
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = i % grid->pixels[d] * grid->scale[d] + grid->origin[d];
    place.at[d] = (int)at;
    offset += at * grid->strides[d];
    i /= grid->pixels[d];
  }
  place.offset = offset + i * grid->image_stride;
  return place;
}

static inline Place feature_place(const Patches *grid, long i) {
  Place place;
  const long taps = grid->taps[0] * grid->taps[1] * grid->taps[2];
  long offset = i / grid->feature_stride % grid->channels * grid->channel_stride;
  long tap = i / grid->tap_stride % taps;
  for (int d = 0; d < SPATIAL; ++d) {
    const long at = tap % grid->taps[d] * grid->step[d];
    place.at[d] = (int)at;
    offset += at * grid->strides[d];
    tap /= grid->taps[d];
  }
  place.offset = offset;
  return place;
}
#else
#define pixel_place(grid, i) matrix_place(0, i)
#define feature_place(grid, i) matrix_place(0, i)
#endif

// The place of index i, or nowhere from `limit` on.
#define FIND_PLACE(place, kind, pixels_kind, axis, i, limit)                                              \
  if ((i) < (limit))                                                                                      \
    place = (kind) == FROM_MATRIX ? matrix_place(axis, i)                                                 \
                                  : (kind) == (pixels_kind) ? pixel_place(&grid, i) : feature_place(&grid, i); \
  else                                                                                                    \
    place.offset = NOWHERE

static inline T load_meeting(__global const uchar *source, int dt, int kind, const Patches *grid,
                             __local const Place *outer, __local const Place *inner) {
  const long offset = outer->offset + inner->offset;
  bool exists = offset > NOWHERE / 2;
#if HAS_PATCHES
  if (kind != FROM_MATRIX) {
    for (int d = 0; d < SPATIAL; ++d) exists = exists && (uint)(outer->at[d] + inner->at[d]) < (uint)grid->extents[d];
  }
#endif
  return exists ? load_one(source, offset, dt) : FROM_REAL(0);
}

// Element number i of a square's block, as items take them.
#define OUTER_OF(i, along_k) ((along_k) ? (i) / STEP : (i) % SQUARE)
#define INNER_OF(i, along_k) ((along_k) ? (i) % STEP : (i) / SQUARE)
// Row or column number i of an item's ITEM.
#define SPREAD(item, i) ((i) / 4 * 4 * SIDE + (item) * 4 + (i) % 4)
#define LOADS (SQUARE * STEP / ITEMS)

#ifdef IS_COMPLEX
#define LOAD_FOUR(to, from) \
  for (int n = 0; n < 4; ++n) (to)[n] = (from)[n]
#else
typedef PASTE(T_NAME, 4) Four;
#define LOAD_FOUR(to, from)                        \
  {                                                \
    const Four four = *(__local const Four *)(from); \
    (to)[0] = four.s0;                             \
    (to)[1] = four.s1;                             \
    (to)[2] = four.s2;                             \
    (to)[3] = four.s3;                             \
  }
#endif

// A square of C by its number. Groups that run at the same time take squares of a few rows, which share what they
// read of B.
#ifndef BAND
#define BAND 8
#endif
static inline void find_square(const Extent *extent, long number, long *row, long *column) {
  const long row_squares = (extent->rows + SQUARE - 1) / SQUARE, column_squares = (extent->columns + SQUARE - 1) / SQUARE;
  const long band = number / (BAND * column_squares), in_band = number % (BAND * column_squares);
  const long height = min((long)BAND, row_squares - band * BAND);
  *row = (band * BAND + in_band % height) * SQUARE;
  *column = in_band / height * SQUARE;
}

// Global size: squares * batches * splits groups of ITEMS, in one dimension, as the others are limited on some devices.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_local(
    __global const uchar *a, ulong a_offset, __global const uchar *b, ulong b_offset, int source_dtype, Matrix a_layout,
    Matrix b_layout, Patches grid, Extent extent, EPILOGUE_ARGUMENTS) {
  __local T a_block[STEP * PITCH] __attribute__((aligned(32)));
  __local T b_block[STEP * PITCH] __attribute__((aligned(32)));
  __local Place a_outer[SQUARE], b_outer[SQUARE], a_inner[STEP], b_inner[STEP];

  const int item = get_local_id(0), across = item % SIDE, down = item / SIDE;
  const long squares =
      ((extent.rows + SQUARE - 1) / SQUARE) * ((extent.columns + SQUARE - 1) / SQUARE);
  const long part = get_group_id(0) / squares, batch = part / extent.splits, split = part % extent.splits;
  long row, column;
  find_square(&extent, get_group_id(0) % squares, &row, &column);
  const long per_split = (extent.depth + extent.splits - 1) / extent.splits;
  const long first_k = min(split * per_split, extent.depth), last_k = min(first_k + per_split, extent.depth);
  a += a_offset + batch * a_layout.batch_stride * dtype_size(SOURCE_DTYPE);
  b += b_offset + batch * b_layout.batch_stride * dtype_size(SOURCE_DTYPE);

  for (int i = item; i < SQUARE; i += ITEMS) {
    FIND_PLACE(a_outer[i], A_KIND, FROM_PIXELS, &a_layout.rows, row + i, extent.rows);
    FIND_PLACE(b_outer[i], B_KIND, FROM_PIXELS, &b_layout.columns, column + i, extent.columns);
  }
#define FIND_INNER(k)                                                                                 \
  if (item < STEP) {                                                                                  \
    FIND_PLACE(a_inner[item], A_KIND, FROM_FEATURES, &a_layout.columns, (k) + item, last_k);          \
    FIND_PLACE(b_inner[item], B_KIND, FROM_FEATURES, &b_layout.rows, (k) + item, last_k);             \
  }
  FIND_INNER(first_k)
  barrier(CLK_LOCAL_MEM_FENCE);

  T a_next[LOADS], b_next[LOADS], sums[ITEM][ITEM];
  _Pragma("unroll") for (int r = 0; r < ITEM; ++r)
      _Pragma("unroll") for (int c = 0; c < ITEM; ++c) sums[r][c] = FROM_REAL(0);
  // What the next step needs is on its way from global memory while this one is multiplied.
  for (long k = first_k - STEP; k < last_k; k += STEP) {
    _Pragma("unroll") for (int l = 0; l < LOADS; ++l) {
      const int i = item + l * ITEMS;
      a_next[l] = load_meeting(a, SOURCE_DTYPE, A_KIND, &grid, a_outer + OUTER_OF(i, A_ALONG_K),
                               a_inner + INNER_OF(i, A_ALONG_K));
      b_next[l] = load_meeting(b, SOURCE_DTYPE, B_KIND, &grid, b_outer + OUTER_OF(i, B_ALONG_K),
                               b_inner + INNER_OF(i, B_ALONG_K));
    }
    for (int s = 0; k >= first_k && s < STEP; ++s) {
      T left[ITEM], right[ITEM];
      _Pragma("unroll") for (int i = 0; i < ITEM; i += 4) {
        LOAD_FOUR(left + i, a_block + s * PITCH + SPREAD(down, i));
        LOAD_FOUR(right + i, b_block + s * PITCH + SPREAD(across, i));
      }
      _Pragma("unroll") for (int r = 0; r < ITEM; ++r)
          _Pragma("unroll") for (int c = 0; c < ITEM; ++c) sums[r][c] = MULTIPLY_ADD(left[r], right[c], sums[r][c]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (int l = 0; l < LOADS; ++l) {
      const int i = item + l * ITEMS;
      a_block[INNER_OF(i, A_ALONG_K) * PITCH + OUTER_OF(i, A_ALONG_K)] = a_next[l];
      b_block[INNER_OF(i, B_ALONG_K) * PITCH + OUTER_OF(i, B_ALONG_K)] = b_next[l];
    }
    FIND_INNER(k + 2 * STEP)
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const Epilogue e = EPILOGUE(batch, split, extent.split_stride);
  long out_columns[ITEM], addend_columns[ITEM];
  _Pragma("unroll") for (int c = 0; c < ITEM; ++c) {
    const long at = min(column + SPREAD(across, c), extent.columns - 1);
    out_columns[c] = axis_offset(&out_layout.columns, at);
    addend_columns[c] = has_addend ? axis_offset(&addend_layout.columns, at) : 0;
  }
  _Pragma("unroll") for (int r = 0; r < ITEM; ++r) {
    const long at = row + SPREAD(down, r);
    if (at >= extent.rows) continue;
    const long out_row = axis_offset(&out_layout.rows, at);
    const long addend_row = has_addend ? axis_offset(&addend_layout.rows, at) : 0;
    _Pragma("unroll") for (int c = 0; c < ITEM; ++c) {
      if (column + SPREAD(across, c) >= extent.columns) continue;
      T value = scale(e.alpha, sums[r][c]);
      if (has_addend) value += scale(e.beta, load(e.addend, addend_row + addend_columns[c], ADDEND_DTYPE));
      store(e.out, out_row + out_columns[c], OUT_DTYPE, ACTIVATE(value));
    }
  }
}

// Adds the sums of `extent.splits` parts of k, each dense [batches, rows, columns]. An item an element.
__kernel void gemm_local_finish(__global const uchar *partial, ulong partial_offset, Extent extent,
                                EPILOGUE_ARGUMENTS) {
  const long i = get_global_id(0);
  if (i >= extent.split_stride) return;
  __global const T *sums = (__global const T *)(partial + partial_offset) + i;
  T sum = sums[0];
  for (long split = 1; split < extent.splits; ++split) sum += sums[split * extent.split_stride];
  const long column = i % extent.columns, row = i / extent.columns % extent.rows;
  const Epilogue e = EPILOGUE(i / extent.columns / extent.rows, 0, 0);
  T value = scale(e.alpha, sum);
  if (has_addend) {
    const long at = axis_offset(&addend_layout.rows, row) + axis_offset(&addend_layout.columns, column);
    value += scale(e.beta, load(e.addend, at, ADDEND_DTYPE));
  }
  store(e.out, axis_offset(&out_layout.rows, row) + axis_offset(&out_layout.columns, column), OUT_DTYPE, ACTIVATE(value));
}
