// The matmul of a sparse matrix in CSR and a dense one, for all classes.

// Row r has the elements starts[r] to starts[r + 1] - 1, each with a column in `indices` and a value; the matrix has
// `count` elements. The dense matrix has `inner` rows. Indices may be unchecked, so elements whose column is not
// below `inner` are skipped. Rows of `dense` are `step` elements apart, and out [rows, columns] is contiguous.
#define CSR_ARGUMENTS                                                                                                 \
  __global const uchar *starts, ulong starts_offset, __global const uchar *indices, ulong indices_offset,             \
      __global const uchar *values, ulong values_offset, __global const uchar *dense, ulong dense_offset, int dtype0, \
      int dtype1, __global uchar *out, ulong out_offset, long rows, long columns, long inner, long count, long step

#ifdef IS_COMPLEX
#define TIMES(a, b) ((T)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#else
#define TIMES(a, b) ((a) * (b))
#endif

#ifdef IS_CPU
// Vectors of neighbouring columns that an item sums in one loop, so that it reads each index once for all of them.
#define STRIPS 4

// The row of the dense matrix for element e, from column `first` on, or 0 if the element's column is out of range.
INLINE __global const uchar *element(__global const uchar *indices, __global const uchar *dense, long e, long first,
                                     int dtype0, int dtype1, long inner, long step) {
  const long index = load_index(indices, e, DTYPE1);
  return (ulong)index < (ulong)inner ? dense + (index * step + first) * dtype_size(DTYPE0) : 0;
}
#define ELEMENT(e, first) element(indices, dense, e, first, dtype0, dtype1, inner, step)

// An item computes whole rows.
__kernel void csr_matmul_rows(CSR_ARGUMENTS) {
  starts += starts_offset;
  indices += indices_offset;
  values += values_offset;
  dense += dense_offset;
  ITEM_TASKS(rows, first_row, last_row);
  for (long row = first_row; row < last_row; row++) {
    const long begin = max(load_index(starts, row, DTYPE1), 0l), end = min(load_index(starts, row + 1, DTYPE1), count);
    __global uchar *to = out + out_offset + row * columns * dtype_size(DTYPE0);
    long column = 0;
    for (; column + STRIPS * VEC <= columns; column += STRIPS * VEC) {
      TV sums[STRIPS];
      for (int s = 0; s < STRIPS; s++) sums[s] = (TV)0;
      for (long e = begin; e < end; e++) {
        __global const uchar *from = ELEMENT(e, column);
        if (!from) continue;
        const TV value = (TV)load(values, e, DTYPE0);
        for (int s = 0; s < STRIPS; s++) sums[s] += TIMES(value, load_vector(from, s * VEC, DTYPE0));
      }
      for (int s = 0; s < STRIPS; s++) store_vector(to, column + s * VEC, DTYPE0, sums[s]);
    }
    for (; column + VEC <= columns; column += VEC) {
      TV sum = (TV)0;
      for (long e = begin; e < end; e++) {
        __global const uchar *from = ELEMENT(e, column);
        if (from) sum += TIMES((TV)load(values, e, DTYPE0), load_vector(from, 0, DTYPE0));
      }
      store_vector(to, column, DTYPE0, sum);
    }
    // Two sums, so that not every addition waits for the previous one.
    for (; column < columns; column++) {
      T sums[2] = {(T)0, (T)0};
      for (long e = begin; e < end; e++) {
        __global const uchar *from = ELEMENT(e, column);
        if (from) sums[e & 1] += TIMES(load(values, e, DTYPE0), load(from, 0, DTYPE0));
      }
      store(to, column, DTYPE0, sums[0] + sums[1]);
    }
  }
}

// Adds an element to its row of `out`, if this item has that row.
#define ADD_ELEMENT(e, source)                                                       \
  {                                                                                  \
    const long row = load_index(targets, e, DTYPE1), from_row = source;              \
    if (row >= first_row && row < last_row && (ulong)from_row < (ulong)inner) {      \
      add_product(out + row * columns * size, dense + from_row * step * size,        \
                  values ? load(values, e, DTYPE0) : FROM_REAL(1), columns, dtype0); \
    }                                                                                \
  }

INLINE void add_product(__global uchar *to, __global const uchar *from, T value, long columns, int dtype0) {
  long i = 0;
  for (; i + VEC <= columns; i += VEC) {
    const TV sum = load_vector(to, i, DTYPE0) + TIMES((TV)value, load_vector(from, i, DTYPE0));
    store_vector(to, i, DTYPE0, sum);
  }
  for (; i < columns; i++) store(to, i, DTYPE0, load(to, i, DTYPE0) + TIMES(value, load(from, i, DTYPE0)));
}

// The matmul for elements in any order: each adds a row of `dense`, given by `sources`, to the row of `out` in
// `targets`. Without `values` all are 1. If `is_compressed` is set, `sources` has the first element of each row of
// `dense` instead. An item reads all indices, and computes some rows of `out`; no sorting is needed.
__kernel void scattered_matmul(__global const uchar *targets, ulong targets_offset, __global const uchar *sources,
                               ulong sources_offset, __global const uchar *values, ulong values_offset,
                               __global const uchar *dense, ulong dense_offset, int dtype0, int dtype1,
                               __global uchar *out, ulong out_offset, long rows, long columns, long inner, long count,
                               long step, int is_compressed) {
  targets += targets_offset;
  sources += sources_offset;
  if (values) values += values_offset;
  dense += dense_offset;
  out += out_offset;
  const long size = dtype_size(DTYPE0);
  ITEM_TASKS(rows, first_row, last_row);
  for (long i = first_row * columns; i < last_row * columns; i++) store(out, i, DTYPE0, (T)0);
  if (!is_compressed) {
    for (long e = 0; e < count; e++) ADD_ELEMENT(e, load_index(sources, e, DTYPE1))
    return;
  }
  for (long source = 0; source < inner; source++) {
    const long begin = max(load_index(sources, source, DTYPE1), 0l);
    const long end = min(load_index(sources, source + 1, DTYPE1), count);
    for (long e = begin; e < end; e++) ADD_ELEMENT(e, source)
  }
}
#else

// `across` neighbouring items share a row's columns, and `along` times as many share its elements and add their sums in
// local memory; both are powers of two. A group takes several such blocks of columns.
__kernel GROUPS_OF(LSIZE) void csr_matmul_group(CSR_ARGUMENTS, int across, int along) {
  __local T sums[LSIZE];
  const int item = get_local_id(0), lane = item % across, part = item / across % along, share = across * along;
  const long blocks = (columns + across - 1) / across, task = get_group_id(0) * (LSIZE / share) + item / share;
  const long row = task / blocks, column = task % blocks * across + lane;
  const bool exists = row < rows && column < columns;
  T sum = (T)0;
  if (exists) {
    const long begin = max(load_index(starts + starts_offset, row, DTYPE1), 0l);
    const long end = min(load_index(starts + starts_offset, row + 1, DTYPE1), count);
    for (long e = begin + part; e < end; e += along) {
      const long index = load_index(indices + indices_offset, e, DTYPE1);
      if ((ulong)index >= (ulong)inner) continue;
      const T value = load(values + values_offset, e, DTYPE0);
      const T other = load(dense + dense_offset, index * step + column, DTYPE0);
      sum += TIMES(value, other);
    }
  }
  sums[item] = sum;
  for (int half_size = along / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < half_size) sums[item] += sums[item + half_size * across];
  }
  if (exists && part == 0) store(out + out_offset, row * columns + column, DTYPE0, sums[item]);
}
#endif
