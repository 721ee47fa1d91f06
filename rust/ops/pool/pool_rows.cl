// Pooling along the rows of dense planes on CPUs, several rows of outputs per item; arguments and operands are those of
// the kernels in pool.cl.
//
// If channels are not contiguous, the lanes of pool.cl read VEC planes at once, element by element. Here lanes are VEC
// neighbouring outputs of a row, whose elements are contiguous or evenly spaced. This works for the inner outputs,
// whose windows no border cuts short; the others are computed one by one. The order within a window is the same.

// VEC elements of a row from i on, `step` apart.
INLINE TV load_spaced(__global const uchar *row, long i, int step, int dtype0) {
  if (step == 1) return load_vector(row, i, DTYPE0);
#if VEC > 1
  if (step == 2) {
    // Two vectors that overlap by one element: nothing after the last element is read.
    TV low = load_vector(row, i, DTYPE0), high = load_vector(row, i + VEC - 1, DTYPE0), spaced;
    spaced.lo = low.even;
    spaced.hi = high.odd;
    return spaced;
  }
#endif
  const long size = dtype_size(DTYPE0);
  return load_lanes(row + i * size, step * size, VEC, DTYPE0);
}

// A row of outputs: its plane, its position there, and the rows of its windows.
typedef struct {
  long plane;
  int at[3];
  WindowRange range;
} OutputRow;

INLINE OutputRow output_row(const Layout *layout, const PoolWindow *w, long index) {
  OutputRow row;
  row.at[0] = 0;
  row.at[1] = (int)(index % layout->sizes[1]);
  row.at[2] = (int)(index / layout->sizes[1] % layout->sizes[2]);
  row.plane = index / layout->sizes[1] / layout->sizes[2];
  row.range = window_range(w, 0, row.at);
  return row;
}

INLINE bool has_no_rows(const WindowRange *r) { return r->begin[1] >= r->end[1] || r->begin[2] >= r->end[2]; }

// Position of the first output of a row in its plane, in elements.
INLINE long first_output(const PoolWindow *w, const OutputRow *row) {
  return ((long)row->at[2] * w->output[1] + row->at[1]) * w->output[0];
}

// Outputs `first` to `last + VEC - 1` of a row have windows within the rows of the input: mod.rs ensures that there are
// at least VEC of them.
typedef struct {
  int first, last;
} InnerOutputs;

INLINE InnerOutputs inner_outputs(const PoolWindow *w) {
  InnerOutputs inner;
  inner.first = (w->padding[0] + w->stride[0] - 1) / w->stride[0];
  int last_begin = w->input[0] - 1 - (w->kernel_size[0] - 1) * w->dilation[0];
  inner.last = min((last_begin + w->padding[0]) / w->stride[0] + 1, w->output[0]) - VEC;
  return inner;
}

INLINE bool is_inner(const InnerOutputs *inner, int x) { return x >= inner->first && x < inner->last + VEC; }

#define FOR_OUTPUT_ROWS(layout)                                                                   \
  ITEM_TASKS(layout.sizes[1] * layout.sizes[2] * layout.sizes[3] * layout.sizes[4], first, last); \
  for (long index = first; index < last; index++)

__kernel void max_pool_rows(__global uchar *output, ulong output_offset, __global uchar *indices, ulong indices_offset,
                            __global const uchar *input, ulong input_offset, int dtype0, Layout layout, PoolWindow w,
                            int adaptive) {
  PlaneIndices steps;
  for (int l = 0; l < VEC; l++) steps.lanes[l] = l * w.stride[0];
  const InnerOutputs inner = inner_outputs(&w);
  FOR_OUTPUT_ROWS(layout) {
    const OutputRow row = output_row(&layout, &w, index);
    WindowRange r = row.range;
    __global const uchar *x_plane = input + input_offset + plane_offset(&layout, 2, row.plane);
    __global uchar *y_plane = output + output_offset + plane_offset(&layout, 0, row.plane);
    __global long *chosen = (__global long *)(indices + indices_offset + plane_offset(&layout, 1, row.plane));
    const long outputs = first_output(&w, &row);
    for (int x = 0; x < w.output[0];) {
      if (is_inner(&inner, x) && !has_no_rows(&r)) {
        // The last vector may overlap the previous one.
        x = min(x, inner.last);
        const int begin = x * w.stride[0] - w.padding[0];
        const long start = row_start(&w, r.begin[1], r.begin[2]) + begin;
        TV best = load_spaced(x_plane, start, w.stride[0], dtype0);
        PlaneIndices where;
        where.vector = (TM)(TI)start;
        FOR_ROWS(r, y, z) {
          const long at = row_start(&w, y, z) + begin;
          for (int k = 0; k < w.kernel_size[0]; k++) {
            const long in_index = at + k * w.dilation[0];
            const TV v = load_spaced(x_plane, in_index, w.stride[0], dtype0);
            const TM better = (v > best) | IS_NAN(v);
            best = better ? v : best;
            where.vector = better ? (TM)(TI)in_index : where.vector;
          }
        }
        where.vector += steps.vector;
        store_vector(y_plane, outputs + x, DTYPE0, best);
        store_indices((__global uchar *)(chosen + outputs + x), sizeof(long), VEC, where);
        x += VEC;
      } else {
        r.begin[0] = window_begin(&w, 0, 0, x);
        r.end[0] = window_end(&w, 0, 0, x);
        long top = row_start(&w, r.begin[1], r.begin[2]) + r.begin[0];
        T best = is_empty(&r) ? (T)lowest(DTYPE0) : load(x_plane, top, DTYPE0);
        FOR_RANGE(r, i, y, z) {
          const long in_index = row_start(&w, y, z) + i;
          const T v = load(x_plane, in_index, DTYPE0);
          const bool better = v > best || IS_NAN(v);
          best = better ? v : best;
          top = better ? in_index : top;
        }
        store(y_plane, outputs + x, DTYPE0, best);
        chosen[outputs + x++] = top;
      }
    }
  }
}

__kernel void avg_pool_rows(__global uchar *output, ulong output_offset, __global const uchar *input,
                            ulong input_offset, int dtype0, Layout layout, PoolWindow w, int adaptive,
                            AverageDivisor divided_by) {
  const InnerOutputs inner = inner_outputs(&w);
  FOR_OUTPUT_ROWS(layout) {
    const OutputRow row = output_row(&layout, &w, index);
    WindowRange r = row.range;
    __global const uchar *x_plane = input + input_offset + plane_offset(&layout, 1, row.plane);
    __global uchar *y_plane = output + output_offset + plane_offset(&layout, 0, row.plane);
    const long outputs = first_output(&w, &row);
    // The divisor of all inner outputs of the row.
    const T inner_divisor = (T)average_divisor(&w, 0, &divided_by, inner.first, row.at[1], row.at[2]);
    for (int x = 0; x < w.output[0];) {
      if (is_inner(&inner, x) && !has_no_rows(&r)) {
        // The last vector may overlap the previous one.
        x = min(x, inner.last);
        const int begin = x * w.stride[0] - w.padding[0];
        TV sum = (TV)0;
        FOR_ROWS(r, y, z) {
          const long at = row_start(&w, y, z) + begin;
          for (int k = 0; k < w.kernel_size[0]; k++) sum += load_spaced(x_plane, at + k, w.stride[0], dtype0);
        }
        store_vector(y_plane, outputs + x, DTYPE0, sum / inner_divisor);
        x += VEC;
      } else {
        r.begin[0] = window_begin(&w, 0, 0, x);
        r.end[0] = window_end(&w, 0, 0, x);
        T sum = 0;
        FOR_RANGE(r, i, y, z) sum += load(x_plane, row_start(&w, y, z) + i, DTYPE0);
        // An empty window gives 0, whatever the divisor.
        if (!is_empty(&r)) sum /= (T)average_divisor(&w, 0, &divided_by, x, row.at[1], row.at[2]);
        store(y_plane, outputs + x++, DTYPE0, sum);
      }
    }
  }
}
