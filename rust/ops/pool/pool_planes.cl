// Pooling of dense planes, one item per plane; arguments and operands are those of the kernels in pool.cl.
//
// If channels are not contiguous, the lanes of pool.cl read sixteen planes at once, a kilobyte or more apart. These
// kernels read along the rows of one plane instead. An item owns its plane, so it may add to it: PyTorch's CPU backend
// adds in the same order, and rounds to the storage type as often.

#define FOR_PLANES(layout)                                    \
  ITEM_TASKS(layout.sizes[3] * layout.sizes[4], first, last); \
  for (long plane = first; plane < last; plane++)

INLINE long plane_offset(const Layout *layout, int operand, long plane) {
  return plane % layout->sizes[3] * layout->strides[operand][3] +
         plane / layout->sizes[3] * layout->strides[operand][4];
}

INLINE long plane_size(const Layout *layout) { return layout->sizes[0] * layout->sizes[1] * layout->sizes[2]; }

INLINE void clear_plane(__global uchar *plane, long size, int dtype) {
  for (long i = 0; i < size; i += VEC) store_part(plane, i, size, dtype, (TV)0);
}

__kernel void max_pool_backward_planes(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                       ulong grad_offset, __global const uchar *indices, ulong indices_offset,
                                       int dtype0, Layout layout, Layout outputs, PoolWindow w, int adaptive) {
  long inputs = plane_size(&layout), results = plane_size(&outputs);
  FOR_PLANES(layout) {
    __global uchar *dx = grad_input + grad_input_offset + plane_offset(&layout, 0, plane);
    __global const uchar *g = grad + grad_offset + plane_offset(&outputs, 0, plane);
    __global const long *chosen = (__global const long *)(indices + indices_offset + plane_offset(&outputs, 1, plane));
    clear_plane(dx, inputs, DTYPE0);
    for (long o = 0; o < results; o++) {
      long index = chosen[o];
      // Indices come from the caller and may be out of range.
      if (index >= 0 && index < inputs) store(dx, index, DTYPE0, load(dx, index, DTYPE0) + load(g, o, DTYPE0));
    }
  }
}

// Iterates over the windows of a plane. Finding the next one saves most of the divisions of window_range.
typedef struct {
  int at[3];
  WindowRange range;
} Cursor;

INLINE Cursor first_window(const PoolWindow *w, int adaptive) {
  Cursor c;
  for (int d = 0; d < 3; d++) c.at[d] = 0;
  c.range = window_range(w, adaptive, c.at);
  return c;
}

INLINE void next_window(const PoolWindow *w, int adaptive, Cursor *c) {
  for (int d = 0; d < 3; d++) {
    bool wraps = c->at[d] + 1 == w->output[d];
    c->at[d] = wraps ? 0 : c->at[d] + 1;
    c->range.begin[d] = window_begin(w, adaptive, d, c->at[d]);
    c->range.end[d] = window_end(w, adaptive, d, c->at[d]);
    if (!wraps) return;
  }
}

// Divisor of the average over a window, which has no dilation.
INLINE long cursor_divisor(const PoolWindow *w, int adaptive, const AverageDivisor *by, const Cursor *c) {
  const WindowRange *r = &c->range;
  if (by->divisor_override == 0 && (adaptive || !by->count_include_pad))
    return (long)(r->end[0] - r->begin[0]) * (r->end[1] - r->begin[1]) * (r->end[2] - r->begin[2]);
  return average_divisor(w, adaptive, by, c->at[0], c->at[1], c->at[2]);
}

#define FOR_WINDOWS(w, adaptive, c)                      \
  int windows = w.output[0] * w.output[1] * w.output[2]; \
  Cursor c = first_window(&w, adaptive);                 \
  for (int output_index = 0; output_index < windows; output_index++, next_window(&w, adaptive, &c))

// The rows of a window.
#define FOR_ROWS(r, y, z)                                \
  for (int z = r.begin[2]; z < r.end[2]; z += r.step[2]) \
    for (int y = r.begin[1]; y < r.end[1]; y += r.step[1])

// Start of row y of slice z of a plane, in elements.
INLINE long row_start(const PoolWindow *w, int y, int z) { return ((long)z * w->input[1] + y) * w->input[0]; }

// Rows of windows are at least VEC elements long and without dilation: mod.rs ensures it.
__kernel void max_pool_planes(__global uchar *output, ulong output_offset, __global uchar *indices,
                              ulong indices_offset, __global const uchar *input, ulong input_offset, int dtype0,
                              Layout layout, PoolWindow w, int adaptive) {
  PlaneIndices lane;
  for (int l = 0; l < VEC; l++) lane.lanes[l] = l;
  FOR_PLANES(layout) {
    __global const uchar *x_plane = input + input_offset + plane_offset(&layout, 2, plane);
    __global uchar *y_plane = output + output_offset + plane_offset(&layout, 0, plane);
    __global long *chosen = (__global long *)(indices + indices_offset + plane_offset(&layout, 1, plane));
    FOR_WINDOWS(w, ADAPTIVE, c) {
      WindowRange r = c.range;
      long begin = row_start(&w, r.begin[1], r.begin[2]) + r.begin[0];
      Lanes best;
      PlaneIndices where;
      best.vector = load_vector(x_plane, begin, DTYPE0);
      where.vector = (TM)(TI)begin + lane.vector;
      FOR_ROWS(r, y, z) {
        long row = row_start(&w, y, z);
        for (int i = r.begin[0]; i < r.end[0]; i += VEC) {
          // The last vector of a row may overlap the previous one.
          long first = row + min(i, r.end[0] - VEC);
          TV v = load_vector(x_plane, first, DTYPE0);
          TM better = (v > best.vector) | IS_NAN(v);
          best.vector = better ? v : best.vector;
          where.vector = better ? (TM)(TI)first + lane.vector : where.vector;
        }
      }
      // The first of equal elements wins, and the last NaN.
      T top = best.lanes[0];
      TI top_index = where.lanes[0];
      for (int l = 1; l < VEC; l++) {
        T v = best.lanes[l];
        TI at = where.lanes[l];
        bool better = IS_NAN(v) ? !IS_NAN(top) || at > top_index : v > top || (v == top && at < top_index);
        top = better ? v : top;
        top_index = better ? at : top_index;
      }
      store(y_plane, output_index, DTYPE0, top);
      chosen[output_index] = top_index;
    }
  }
}

// Rows of windows are long here: mod.rs ensures it.
__kernel void avg_pool_planes(__global uchar *output, ulong output_offset, __global const uchar *input,
                              ulong input_offset, int dtype0, Layout layout, PoolWindow w, int adaptive,
                              AverageDivisor divided_by) {
  FOR_PLANES(layout) {
    __global const uchar *x_plane = input + input_offset + plane_offset(&layout, 1, plane);
    __global uchar *y_plane = output + output_offset + plane_offset(&layout, 0, plane);
    FOR_WINDOWS(w, ADAPTIVE, c) {
      WindowRange r = c.range;
      TV sum = (TV)0;
      FOR_ROWS(r, y, z) {
        __global const uchar *row = x_plane + row_start(&w, y, z) * dtype_size(DTYPE0);
        for (long i = r.begin[0]; i < r.end[0]; i += VEC) sum += load_part(row, i, r.end[0], DTYPE0, 0);
      }
      // With ceil_mode, a window may lie in the padding only, and is empty.
      bool empty = r.begin[0] >= r.end[0] || r.begin[1] >= r.end[1] || r.begin[2] >= r.end[2];
      T divisor = (T)cursor_divisor(&w, ADAPTIVE, &divided_by, &c);
      store(y_plane, output_index, DTYPE0, empty ? (T)0 : lanes_sum(sum) / divisor);
    }
  }
}

__kernel void avg_pool_backward_planes(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                       ulong grad_offset, int dtype0, Layout layout, Layout outputs, PoolWindow w,
                                       int adaptive, AverageDivisor divided_by) {
  FOR_PLANES(layout) {
    __global uchar *dx = grad_input + grad_input_offset + plane_offset(&layout, 0, plane);
    __global const uchar *g = grad + grad_offset + plane_offset(&outputs, 0, plane);
    clear_plane(dx, plane_size(&layout), DTYPE0);
    FOR_WINDOWS(w, ADAPTIVE, c) {
      WindowRange r = c.range;
      T part = load(g, output_index, DTYPE0) / (T)cursor_divisor(&w, ADAPTIVE, &divided_by, &c);
      FOR_ROWS(r, y, z) {
        __global uchar *row = dx + row_start(&w, y, z) * dtype_size(DTYPE0);
        for (long i = r.begin[0]; i < r.end[0]; i += VEC)
          store_part(row, i, r.end[0], DTYPE0, load_part(row, i, r.end[0], DTYPE0, 0) + part);
      }
    }
  }
}
