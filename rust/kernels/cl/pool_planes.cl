// Pooling of planes that lie dense, one item a plane; arguments and operands are those of the kernels in pool.cl.
//
// Where channels are not neighbours the lanes of pool.cl read sixteen planes at once, a kilobyte or more apart. These
// kernels go along the rows of one plane instead. An item owns its plane, so it may add to it: PyTorch's CPU back end
// adds in the same order, and rounds to the storage type as often.

#define FOR_PLANES(layout)                                       \
  ITEM_TASKS(layout.sizes[3] * layout.sizes[4], first, last);    \
  for (long plane = first; plane < last; plane++)

INLINE long plane_offset(const Layout *layout, int operand, long plane) {
  return plane % layout->sizes[3] * layout->strides[operand][3] + plane / layout->sizes[3] * layout->strides[operand][4];
}

INLINE long plane_size(const Layout *layout) { return layout->sizes[0] * layout->sizes[1] * layout->sizes[2]; }

INLINE void clear_plane(__global uchar *plane, long size, int dtype) {
  for (long i = 0; i < size; i += VEC) store_part(plane, i, size, dtype, (TV)0);
}

__kernel void max_pool_backward_planes(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                       ulong grad_offset, __global const uchar *indices, ulong indices_offset,
                                       int dtype0, Layout layout, Layout outputs, Window w, int adaptive) {
  long inputs = plane_size(&layout), results = plane_size(&outputs);
  FOR_PLANES(layout) {
    __global uchar *dx = grad_input + grad_input_offset + plane_offset(&layout, 0, plane);
    __global const uchar *g = grad + grad_offset + plane_offset(&outputs, 0, plane);
    __global const long *chosen = (__global const long *)(indices + indices_offset + plane_offset(&outputs, 1, plane));
    clear_plane(dx, inputs, DTYPE0);
    for (long o = 0; o < results; o++) {
      long place = chosen[o];
      // Indices may be anybody's.
      if (place >= 0 && place < inputs) store(dx, place, DTYPE0, load(dx, place, DTYPE0) + load(g, o, DTYPE0));
    }
  }
}

// The window of a place in the plane of results, and what its average divides by. Windows of averages are without
// dilation, and wide where these kernels serve: rust/ops/pool.rs sees to it.
INLINE Range window_at(const Window *w, int adaptive, int place, int count_padding, long divisor, long *share) {
  int at[3] = {place % w->output[0], place / w->output[0] % w->output[1], place / w->output[0] / w->output[1]};
  *share = average_share(w, adaptive, count_padding, divisor, at[0], at[1], at[2]);
  return window_range(w, adaptive, at);
}

__kernel void avg_pool_planes(__global uchar *output, ulong output_offset, __global const uchar *input,
                              ulong input_offset, int dtype0, Layout layout, Window w, int adaptive, int count_padding,
                              long divisor) {
  int results = w.output[0] * w.output[1] * w.output[2];
  FOR_PLANES(layout) {
    __global const uchar *x = input + input_offset + plane_offset(&layout, 1, plane);
    __global uchar *y_plane = output + output_offset + plane_offset(&layout, 0, plane);
    for (int place = 0; place < results; place++) {
      long share;
      Range r = window_at(&w, ADAPTIVE, place, count_padding, divisor, &share);
      TV sum = (TV)0;
      for (int z = r.begin[2]; z < r.end[2]; z++)
        for (int y = r.begin[1]; y < r.end[1]; y++) {
          __global const uchar *row = x + ((long)z * w.input[1] + y) * w.input[0] * dtype_size(DTYPE0);
          for (long i = r.begin[0]; i < r.end[0]; i += VEC) sum += load_part(row, i, r.end[0], DTYPE0, 0);
        }
      // A window that lies in the padding alone, which ceil_mode can make, has nothing to average.
      bool empty = r.begin[0] >= r.end[0] || r.begin[1] >= r.end[1] || r.begin[2] >= r.end[2];
      store(y_plane, place, DTYPE0, empty ? (T)0 : lanes_sum(sum) / (T)share);
    }
  }
}

__kernel void avg_pool_backward_planes(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                       ulong grad_offset, int dtype0, Layout layout, Layout outputs, Window w,
                                       int adaptive, int count_padding, long divisor) {
  int results = w.output[0] * w.output[1] * w.output[2];
  FOR_PLANES(layout) {
    __global uchar *dx = grad_input + grad_input_offset + plane_offset(&layout, 0, plane);
    __global const uchar *g = grad + grad_offset + plane_offset(&outputs, 0, plane);
    clear_plane(dx, plane_size(&layout), DTYPE0);
    for (int place = 0; place < results; place++) {
      long share;
      Range r = window_at(&w, ADAPTIVE, place, count_padding, divisor, &share);
      T part = load(g, place, DTYPE0) / (T)share;
      for (int z = r.begin[2]; z < r.end[2]; z++)
        for (int y = r.begin[1]; y < r.end[1]; y++) {
          __global uchar *row = dx + ((long)z * w.input[1] + y) * w.input[0] * dtype_size(DTYPE0);
          for (long i = r.begin[0]; i < r.end[0]; i += VEC)
            store_part(row, i, r.end[0], DTYPE0, load_part(row, i, r.end[0], DTYPE0, 0) + part);
        }
    }
  }
}
