// Copies that a strided loop does badly or cannot do. They move bytes: elements are `width` bytes wide (1, 2, 4,
// 8 or 16) and the dtype does not matter. Casts and other strided copies are the pointwise family's.

#define TILE 16

// dst[b][c][r] = src[b][r][c]: a tile goes through local memory so that both sides touch memory row by row.
// Work-groups are TILE x TILE; the global range is columns, rows (both rounded up to TILE) and the batch.
// Steps are in elements between the rows of each side and between the matrices of a batch.
#define DEFINE_TRANSPOSE(NAME, TYPE)                                                                                  \
  __kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void NAME(                                            \
      __global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset, long rows, long columns,    \
      long dst_step, long src_step, long dst_batch_step, long src_batch_step) {                                       \
    /* One more column than needed: a column then spreads over all banks of local memory. */                          \
    __local TYPE tile[TILE][TILE + 1];                                                                                \
    int x = get_local_id(0), y = get_local_id(1);                                                                     \
    long column0 = get_group_id(0) * TILE, row0 = get_group_id(1) * TILE, batch = get_global_id(2);                   \
    __global const TYPE *from = (__global const TYPE *)(src + src_offset) + batch * src_batch_step;                   \
    __global TYPE *to = (__global TYPE *)(dst + dst_offset) + batch * dst_batch_step;                                 \
    if (row0 + y < rows && column0 + x < columns) tile[y][x] = from[(row0 + y) * src_step + column0 + x];             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                     \
    if (column0 + y < columns && row0 + x < rows) to[(column0 + y) * dst_step + row0 + x] = tile[x][y];               \
  }

DEFINE_TRANSPOSE(transpose_1, uchar)
DEFINE_TRANSPOSE(transpose_2, ushort)
DEFINE_TRANSPOSE(transpose_4, uint)
DEFINE_TRANSPOSE(transpose_8, ulong)
DEFINE_TRANSPOSE(transpose_16, ulong2)

// Upper or lower triangle of a batch of matrices, zeros elsewhere; `diagonal` counts from the main one, upwards.
// Layout: dst, src with dimension 0 the columns and 1 the rows. One work-item a row.
__kernel void triangle(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                       const Layout layout, int width, long diagonal, int upper) {
  long rest = get_global_id(0), columns = layout.sizes[0];
  long row = rest % layout.sizes[1];
  __global uchar *to = dst + dst_offset;
  __global const uchar *from = src + src_offset;
  for (int d = 1; d < layout.ndim; d++) {
    long i = rest % layout.sizes[d];
    to += i * layout.strides[0][d];
    from += i * layout.strides[1][d];
    rest /= layout.sizes[d];
  }
  long edge = clamp(row + diagonal + (upper ? 0 : 1), 0l, columns);
  long begin = upper ? edge : 0, end = upper ? columns : edge;
  long to_step = layout.strides[0][0], from_step = layout.strides[1][0];
#define TRIANGLE_ROW(TYPE)                                                                    \
  for (long i = 0; i < columns; i++)                                                          \
    *(__global TYPE *)(to + i * to_step) =                                                    \
        i >= begin && i < end ? *(__global const TYPE *)(from + i * from_step) : (TYPE)0;
  switch (width) {
    case 1: TRIANGLE_ROW(uchar) break;
    case 2: TRIANGLE_ROW(ushort) break;
    case 4: TRIANGLE_ROW(uint) break;
    case 8: TRIANGLE_ROW(ulong) break;
    case 16: TRIANGLE_ROW(ulong2) break;
  }
#undef TRIANGLE_ROW
}
