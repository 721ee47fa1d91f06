// GEMM for GPUs: C = alpha * A B + beta * bias.
//
// A work-group of SIDE * SIDE items computes a square of SIDE * ITEM rows and columns of C. For STEP values of k at a
// time it copies the needed blocks of A and B into local memory, so that neighbouring items read neighbours. Then each
// item multiplies ITEM rows by ITEM columns of them in registers.
//
// An element of an operand has an *outer* index (row of A, column of B) and an *inner* one (k). Each index contributes
// a `Position`, and the two add up: an offset, and for the im2col matrix of a convolution also an input position;
// outside the input, the element is zero. An item copies the same outer indices in every step, so it keeps their
// `Position`s in registers; those of a step's inner indices are found once for all items.
//
// The most common case needs no `Position`: if DENSE is 1, both operands, the result and `bias` are matrices with
// one stride for rows and one for columns, and each operand is dense along the index that its items walk.

#ifndef SIDE
#define SIDE 16
#endif
// A multiple of 4: an item takes groups of 4 rows and columns, 4 * SIDE apart, so that a row of items reads local
// memory without a gap.
#ifndef ITEM
#define ITEM 4
#endif
// Values of k copied at a time: a multiple of SIDE / 4 and a divisor of ITEMS, so that every item makes LOADS copies.
#ifndef STEP
#define STEP (SIDE / 4)
#endif
#define ITEMS (SIDE * SIDE)
#define SQUARE (SIDE * ITEM)
// The padding puts neighbours along k in different banks, and keeps groups of 4 aligned.
#define PITCH (SQUARE + 4)

// 1 if neighbouring items take neighbours along k, 0 if they take neighbours along the outer index.
#ifndef A_ALONG_K
#define A_ALONG_K 1
#endif
#ifndef B_ALONG_K
#define B_ALONG_K 0
#endif

#ifndef DENSE
#define DENSE 0
#endif

// With 32 bits an offset takes half the registers, and a division a fraction of the instructions.
#if SMALL_OFFSETS
typedef int Offset;
typedef uint Index;
#else
typedef long Offset;
typedef ulong Index;
#endif

#if DENSE
#define OFFSET_ALONG(axis, i) ((i) * (axis)->strides[0])

// A block is copied by vectors of VEC elements, which neighbouring items take.
#define LOADS (SQUARE * STEP / ITEMS / VEC)
#define RUN VEC

// Loads a vector of a block with `outers` outer indices and `inners` values of k; elements beyond these are zero.
INLINE TV fetch(__global const uchar *block, int dt, int along_k, long stride, int outer, int inner, int outers,
                int inners) {
  const int left = along_k ? (outer < outers ? inners - inner : 0) : (inner < inners ? outers - outer : 0);
  const long at = along_k ? outer * stride + inner : inner * stride + outer;
  if (left >= VEC) return load_vector(block, at, dt);
  Lanes v;
  UNROLL for (int l = 0; l < VEC; ++l) v.lanes[l] = l < left ? load(block, at + l, dt) : FROM_REAL(0);
  return v.vector;
}

INLINE void put(__local T *to, int along_k, TV vector) {
  Lanes v;
  v.vector = vector;
  if (along_k) {
    UNROLL for (int l = 0; l < VEC; ++l) to[l * PITCH] = v.lanes[l];
  } else {
    *(__local TV *)to = vector;
  }
}

#define FETCH(to, from, dt, along_k, stride, outers, inners) \
  UNROLL for (int l = 0; l < LOADS; ++l) to[l] =             \
      fetch(from, dt, along_k, stride, OUTER_OF(l, along_k), INNER_OF(l, along_k), outers, inners);
#define KEEP(block, along_k, from)       \
  UNROLL for (int l = 0; l < LOADS; ++l) \
      put(block + INNER_OF(l, along_k) * PITCH + OUTER_OF(l, along_k), along_k, from[l]);
#else
// Returns the offset of index i, like axis_offset, as an Offset.
INLINE Offset offset_along(const Axis *axis, Index i) {
  Offset offset = 0;
  UNROLL for (int level = 0; level < AXIS_LEVELS - 1; ++level) {
    const Index size = (Index)axis->sizes[level], rest = i < size ? 0 : i / size;
    offset += (Offset)(i - rest * size) * (Offset)axis->strides[level];
    i = rest;
  }
  return offset + (Offset)i * (Offset)axis->strides[AXIS_LEVELS - 1];
}
#define OFFSET_ALONG(axis, i) offset_along(axis, (Index)(i))

// The input position of a k that does not exist. For a matrix only the first number counts: 0 if k exists.
#define OUTSIDE (-(1 << 30))

typedef struct {
  Offset offset;
  int at[SPATIAL];
} Position;

// Members are assigned one by one: for an initialiser Intel's compiler uses scratch memory. Oclgrind does not know what
// clang makes of an INLINE function that returns a struct.
static inline Position matrix_position(const Axis *axis, Index i) {
  Position position;
  position.offset = offset_along(axis, i);
  position.at[0] = 0;
  return position;
}

#if HAS_IM2COL
static inline Position im2col_row_position(const Im2colLayout *im2col, Index i) {
  Position position;
  position.offset = 0;
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    const Index size = (Index)im2col->out_sizes[d], rest = i / size;
    position.at[d] = (int)(i - rest * size) * (int)im2col->stride[d] + (int)im2col->origin[d];
    position.offset += position.at[d] * (Offset)im2col->in_strides[d];
    i = rest;
  }
  position.offset += (Offset)i * (Offset)im2col->image_stride;
  return position;
}

static inline Position im2col_column_position(const Im2colLayout *im2col, Index i) {
  const Index in_channel = i / (Index)im2col->channel_step % (Index)im2col->channels;
  Position position;
  position.offset = (Offset)in_channel * (Offset)im2col->channel_stride;
  Index element = i / (Index)im2col->kernel_step;
  UNROLL for (int d = 0; d < SPATIAL; ++d) {
    const Index size = (Index)im2col->kernel_size[d], rest = element / size;
    position.at[d] = (int)(element - rest * size) * (int)im2col->dilation[d];
    position.offset += position.at[d] * (Offset)im2col->in_strides[d];
    element = rest;
  }
  return position;
}
#else
#define im2col_row_position(im2col, i) matrix_position(0, i)
#define im2col_column_position(im2col, i) matrix_position(0, i)
#endif

// The `Position` of index i.
#define POSITION_OF(kind, row_kind, axis, i)     \
  ((kind) == FROM_MATRIX ? matrix_position(axis, i) \
   : (kind) == (row_kind) ? im2col_row_position(&im2col, i) : im2col_column_position(&im2col, i))

INLINE T load_meeting(__global const uchar *input, int dt, int kind, const Im2colLayout *im2col, Position outer,
                      Position inner) {
  bool exists = kind != FROM_MATRIX || inner.at[0] == 0;
#if HAS_IM2COL
  if (kind != FROM_MATRIX) {
    UNROLL for (int d = 0; d < SPATIAL; ++d)
        exists = exists && (uint)(outer.at[d] + inner.at[d]) < (uint)im2col->in_sizes[d];
  }
#endif
  return exists ? load_one(input, outer.offset + inner.offset, dt) : FROM_REAL(0);
}

#define LOADS (SQUARE * STEP / ITEMS)
#define RUN 1
// The outer `Position`s of an item: along the outer index its elements share one.
#define OUTERS(along_k) ((along_k) ? LOADS : 1)
#define FETCH(to, from, dt, kind, along_k, outer, inner)                                                         \
  UNROLL for (int l = 0; l < LOADS; ++l) to[l] = load_meeting(from, dt, kind, &im2col, outer[(along_k) ? l : 0], \
                                                              inner[INNER_OF(l, along_k)]);
#define KEEP(block, along_k, from)       \
  UNROLL for (int l = 0; l < LOADS; ++l) block[INNER_OF(l, along_k) * PITCH + OUTER_OF(l, along_k)] = from[l];
#endif

// Outer index and k of copy `l` of an item, of RUN elements along one of the two. The group copies a whole number of
// rows of a block at a time, so an item's copies differ by constants.
#define OUTER_OF(l, along_k) ((along_k) ? item * RUN / STEP + (l) * (ITEMS * RUN / STEP) : item * RUN % SQUARE)
#define INNER_OF(l, along_k) ((along_k) ? item * RUN % STEP : item * RUN / SQUARE + (l) * (ITEMS * RUN / SQUARE))

// The row or column of the square that is index i of an item.
#define TILE_INDEX(item, i) ((i) / 4 * 4 * SIDE + (item) * 4 + (i) % 4)

#ifdef IS_COMPLEX
#define LOAD_FOUR(to, from) \
  for (int n = 0; n < 4; ++n) (to)[n] = (from)[n]
#else
typedef PASTE(T_NAME, 4) Four;
#define LOAD_FOUR(to, from)                          \
  {                                                  \
    const Four four = *(__local const Four *)(from); \
    (to)[0] = four.s0;                               \
    (to)[1] = four.s1;                               \
    (to)[2] = four.s2;                               \
    (to)[3] = four.s3;                               \
  }
#endif

#if !DENSE
// Returns true if VEC elements are contiguous in memory.
INLINE bool is_run(const Offset *offsets) {
  bool is = true;
  UNROLL for (int l = 1; l < VEC; ++l) is = is && offsets[l] == offsets[0] + l;
  return is;
}
#endif

// Global size: squares * batches * splits groups of ITEMS, in one dimension, as some devices limit the others.
__kernel GROUPS_OF(ITEMS) void gemm_local(
    __global const uchar *a, ulong a_offset, __global const uchar *b, ulong b_offset, int input_dtype, Matrix a_layout,
    Matrix b_layout, Im2colLayout im2col, Extent extent, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  // Two blocks of each operand: while one is multiplied the next is written, so a step has one barrier.
  __local T a_blocks[2][STEP * PITCH] __attribute__((aligned(32)));
  __local T b_blocks[2][STEP * PITCH] __attribute__((aligned(32)));
#if !DENSE
  __local Position a_inner[2][STEP], b_inner[2][STEP];
#endif

  const uint item = get_local_id(0), across = item % SIDE, down = item / SIDE;
  // There are fewer than 2^32 groups: 32-bit indices take half the registers, and their divisions are short.
  const uint squares_down = (uint)((extent.rows + SQUARE - 1) / SQUARE);
  const uint squares_across = (uint)((extent.columns + SQUARE - 1) / SQUARE), squares = squares_down * squares_across;
  const uint part = (uint)get_group_id(0) / squares, splits = (uint)extent.splits;
  const uint batch = part / splits, split = part - batch * splits;
  uint square_down, square_across;
  find_block((uint)get_group_id(0) - part * squares, squares_down, squares_across, &square_down, &square_across);
  const long row = (long)square_down * SQUARE, column = (long)square_across * SQUARE;
  // Whole steps, so that vectors of every part are aligned.
  const long per_split = splits == 1 ? extent.k : ((extent.k - 1) / extent.splits / STEP + 1) * STEP;
  const Offset first_k = (Offset)min(split * per_split, extent.k);
  const Offset last_k = (Offset)min(first_k + per_split, extent.k);
  a += a_offset + batch * a_layout.batch_stride * dtype_size(INPUT_DTYPE);
  b += b_offset + batch * b_layout.batch_stride * dtype_size(INPUT_DTYPE);

#if DENSE
  const long a_stride = (A_ALONG_K ? &a_layout.rows : &a_layout.columns)->strides[0];
  const long b_stride = (B_ALONG_K ? &b_layout.columns : &b_layout.rows)->strides[0];
  const int a_rows = (int)min(extent.rows - row, (long)SQUARE);
  const int b_columns = (int)min(extent.columns - column, (long)SQUARE);
  a += (row * (A_ALONG_K ? a_stride : 1) + first_k * (A_ALONG_K ? 1 : a_stride)) * dtype_size(INPUT_DTYPE);
  b += (column * (B_ALONG_K ? b_stride : 1) + first_k * (B_ALONG_K ? 1 : b_stride)) * dtype_size(INPUT_DTYPE);
  TV a_next[LOADS], b_next[LOADS];
#else
  Position a_outer[OUTERS(A_ALONG_K)], b_outer[OUTERS(B_ALONG_K)];
// Rows and columns after the last are copies of the last: their results are not stored.
#define FIND_OUTERS(found, kind, along_k, axis, first, limit)                     \
  UNROLL for (int l = 0; l < OUTERS(along_k); ++l) {                              \
    const Index at = (Index)min(first + OUTER_OF(l, along_k), (limit) - 1);       \
    found[l] = POSITION_OF(kind, FROM_IM2COL, axis, at);                          \
  }
  FIND_OUTERS(a_outer, A_KIND, A_ALONG_K, &a_layout.rows, row, extent.rows)
  FIND_OUTERS(b_outer, B_KIND, B_ALONG_K, &b_layout.columns, column, extent.columns)
#define FIND_INNER_OF(found, kind, axis, k)                        \
  if ((k) < last_k) {                                              \
    found = POSITION_OF(kind, FROM_IM2COL_TRANSPOSED, axis, (k));  \
  } else {                                                         \
    found.offset = 0;                                              \
    found.at[0] = OUTSIDE;                                         \
  }
#define FIND_INNER(to, k)                                                                         \
  if (item < STEP) {                                                                              \
    FIND_INNER_OF(a_inner[to][item], A_KIND, &a_layout.columns, (k) + (Offset)item)               \
    FIND_INNER_OF(b_inner[to][item], B_KIND, &b_layout.rows, (k) + (Offset)item)                  \
  }
  FIND_INNER(0, first_k)
  barrier(CLK_LOCAL_MEM_FENCE);

  T a_next[LOADS], b_next[LOADS];
#endif
  T sums[ITEM][ITEM];
  UNROLL for (int r = 0; r < ITEM; ++r)
      UNROLL for (int c = 0; c < ITEM; ++c) sums[r][c] = FROM_REAL(0);
  // The next step's blocks are loaded from global memory while this step is multiplied; before the first step there is
  // nothing to multiply, and after the last nothing to load.
  int next = 0;
  for (Offset k = first_k - STEP; k < last_k; k += STEP, next ^= 1) {
    __local T *const a_block = a_blocks[next ^ 1], *const b_block = b_blocks[next ^ 1];
#if DENSE
    const int inners = (int)min(last_k - (k + STEP), (Offset)STEP);
    FETCH(a_next, a, INPUT_DTYPE, A_ALONG_K, a_stride, a_rows, inners)
    FETCH(b_next, b, INPUT_DTYPE, B_ALONG_K, b_stride, b_columns, inners)
    a += STEP * (A_ALONG_K ? 1 : a_stride) * dtype_size(INPUT_DTYPE);
    b += STEP * (B_ALONG_K ? 1 : b_stride) * dtype_size(INPUT_DTYPE);
#else
    FETCH(a_next, a, INPUT_DTYPE, A_KIND, A_ALONG_K, a_outer, a_inner[next])
    FETCH(b_next, b, INPUT_DTYPE, B_KIND, B_ALONG_K, b_outer, b_inner[next])
#endif
    // Unrolled further, operands of later steps would take the registers that a second group needs.
    _Pragma("unroll 2") for (int s = 0; k >= first_k && s < STEP; ++s) {
      T left[ITEM], right[ITEM];
      UNROLL for (int i = 0; i < ITEM; i += 4) {
        LOAD_FOUR(left + i, a_block + s * PITCH + TILE_INDEX(down, i));
        LOAD_FOUR(right + i, b_block + s * PITCH + TILE_INDEX(across, i));
      }
      UNROLL for (int r = 0; r < ITEM; ++r)
          UNROLL for (int c = 0; c < ITEM; ++c) sums[r][c] = MULTIPLY_ADD(left[r], right[c], sums[r][c]);
    }
    KEEP(a_blocks[next], A_ALONG_K, a_next)
    KEEP(b_blocks[next], B_ALONG_K, b_next)
#if !DENSE
    FIND_INNER(next ^ 1, k + 2 * STEP)
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const Epilogue e = EPILOGUE(batch, split, extent.split_stride);
#if DENSE
#define COLUMN_OFFSET(layout, c) ((column + TILE_INDEX(across, c)) * layout.columns.strides[0])
#define IS_RUN(layout, c) (layout.columns.strides[0] == 1)
#else
  Offset out_layout_columns[ITEM], bias_layout_columns[ITEM];
  UNROLL for (int c = 0; c < ITEM; ++c) {
    const long at = min(column + TILE_INDEX(across, c), extent.columns - 1);
    out_layout_columns[c] = OFFSET_ALONG(&out_layout.columns, at);
    bias_layout_columns[c] = has_bias ? OFFSET_ALONG(&bias_layout.columns, at) : 0;
  }
#define COLUMN_OFFSET(layout, c) layout##_columns[c]
#define IS_RUN(layout, c) is_run(layout##_columns + c)
#endif
#ifdef FUSED
  // ITEM copies of the fused code, one per result of a row, instead of ITEM * ITEM.
#define RESULT(c) row_sums[c]
  T row_sums[ITEM];
  _Pragma("unroll 1") for (int r = 0; r < ITEM; ++r) {
    UNROLL for (int taken = 0; taken < ITEM; ++taken)
      if (taken == r) UNROLL for (int c = 0; c < ITEM; ++c) row_sums[c] = sums[taken][c];
#else
#define RESULT(c) sums[r][c]
  UNROLL for (int r = 0; r < ITEM; ++r) {
#endif
    const long at = row + TILE_INDEX(down, r);
    if (at >= extent.rows) continue;
    const long out_row = OFFSET_ALONG(&out_layout.rows, at);
    const long bias_row = has_bias ? OFFSET_ALONG(&bias_layout.rows, at) : 0;
    UNROLL for (int c = 0; c < ITEM; c += VEC) {
      const long left = extent.columns - (column + TILE_INDEX(across, c));
      STORE_RUN(c, left, RESULT)
    }
  }
}

// The dot product of a row and a column. Each group of ITEMS sums a part of k.
__kernel GROUPS_OF(ITEMS) void gemm_local_dot(__global const uchar *a, ulong a_offset, __global const uchar *b,
                                              ulong b_offset, int input_dtype, long a_stride, long b_stride,
                                              Extent extent, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  __local T sums[ITEMS];
  const int item = get_local_id(0);
  const long split = get_group_id(0), per_split = (extent.k + extent.splits - 1) / extent.splits;
  const long last = min((split + 1) * per_split, extent.k);
  T sum = FROM_REAL(0);
  for (long k = split * per_split + item; k < last; k += ITEMS)
    sum = MULTIPLY_ADD(load_one(a + a_offset, k * a_stride, INPUT_DTYPE),
                       load_one(b + b_offset, k * b_stride, INPUT_DTYPE), sum);
  sums[item] = sum;
  for (int left = ITEMS; left > 1; left = (left + 1) / 2) {
    const int other = item + (left + 1) / 2;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (other < left) sums[item] += sums[other];
  }
  const Epilogue e = EPILOGUE(0, split, extent.split_stride);
  if (item == 0) store(e.out, 0, OUT_DTYPE, ACTIVATE(scale(e.alpha, sums[0])));
}

// Adds the sums of `extent.splits` parts of k, each dense [batches, rows, columns]. One item for each element.
__kernel void gemm_local_finish(__global const uchar *partial, ulong partial_offset, Extent extent,
                                EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  const long i = get_global_id(0);
  if (i >= extent.split_stride) return;
  __global const T *sums = (__global const T *)(partial + partial_offset) + i;
  T sum = sums[0];
  for (long split = 1; split < extent.splits; ++split) sum += sums[split * extent.split_stride];
  const long column = i % extent.columns, row = i / extent.columns % extent.rows;
  const Epilogue e = EPILOGUE(i / extent.columns / extent.rows, 0, 0);
  T value = scale(e.alpha, sum);
  if (has_bias) {
    const long at = axis_offset(&bias_layout.rows, row) + axis_offset(&bias_layout.columns, column);
    value += scale(e.beta, load(e.bias, at, BIAS_DTYPE));
  }
  store_result(&e, axis_offset(&out_layout.rows, row) + axis_offset(&out_layout.columns, column), ACTIVATE(value));
}
