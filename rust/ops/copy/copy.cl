// Partial copies. They move bytes: elements are `width` bytes wide (1, 2, 4, 8 or 16) and the dtype does not matter.
// Whole tensors are copied by the pointwise family or transpose.cl.

// Upper or lower triangle of a batch of matrices, zeros elsewhere; `diagonal` counts from the main one, upwards.
// Layout: dst, src with dimension 0 the columns and 1 the rows. `shares` neighbouring work-items share the elements of
// a row, interleaved.
__kernel void triangle(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                       const Layout layout, int width, long diagonal, int upper, int shares) {
  long rest = get_global_id(0) / shares, columns = layout.sizes[0];
  long row = rest % layout.sizes[1];
  __global uchar *to = dst + dst_offset;
  __global const uchar *from = src + src_offset;
  FOR_DIMS(d, 1, layout.ndim) {
    long i = rest % layout.sizes[d];
    to += i * layout.strides[0][d];
    from += i * layout.strides[1][d];
    rest /= layout.sizes[d];
  }
  long edge = clamp(row + diagonal + (upper ? 0 : 1), 0l, columns);
  long begin = upper ? edge : 0, end = upper ? columns : edge;
  const int share = get_global_id(0) % shares;
  long to_step = layout.strides[0][0], from_step = layout.strides[1][0];
#define TRIANGLE_ROW(TYPE)                       \
  for (long i = share; i < columns; i += shares) \
    *(__global TYPE *)(to + i * to_step) =       \
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
