// Max and average pooling in up to three dimensions, with fixed or adaptive windows, forward and backward.
//
// A task is one position of VEC channels of a sample: its window is computed once for all of them. For channels-last
// tensors the lanes are neighbours; for others each lane reads its own plane. The backward kernels gather: they add up
// all gradients of an input position, without atomics and in a fixed order.
//
// Layouts list the dimensions [W, H, D, C, N]; absent ones have size 1.

#ifdef SPEC_ADAPTIVE
#define ADAPTIVE SPEC_ADAPTIVE
#else
#define ADAPTIVE adaptive
#endif

// Indexed W, H, D. Adaptive windows do not use the first four.
typedef struct {
  int kernel_size[3];
  int stride[3];
  int padding[3];
  int dilation[3];
  int input[3];
  int output[3];
} PoolWindow;
SHARED(PoolWindow, 72);

// The divisor of a sum.
typedef struct {
  long divisor_override;  // in place of the count; 0 for none
  int count_include_pad;
  int pad;
} AverageDivisor;
SHARED(AverageDivisor, 16);

// Range that one output or input position covers along each dimension: begin, begin + step, ... < end.
typedef struct {
  int begin[3], end[3], step[3];
} WindowRange;

// Input positions of the window of output position o along dimension d.
INLINE int window_begin(const PoolWindow *w, int adaptive, int d, int o) {
  if (adaptive) return (int)((long)o * w->input[d] / w->output[d]);
  int begin = o * w->stride[d] - w->padding[d], dilation = w->dilation[d];
  return begin < 0 ? begin + (-begin + dilation - 1) / dilation * dilation : begin;
}
INLINE int window_end(const PoolWindow *w, int adaptive, int d, int o) {
  if (adaptive) return (int)(((o + 1L) * w->input[d] + w->output[d] - 1) / w->output[d]);
  return min(o * w->stride[d] - w->padding[d] + (w->kernel_size[d] - 1) * w->dilation[d] + 1, w->input[d]);
}

// Output positions whose windows may cover input position i along dimension d.
INLINE int cover_begin(const PoolWindow *w, int adaptive, int d, int i) {
  if (adaptive) return (int)((long)i * w->output[d] / w->input[d]);
  int low = i + w->padding[d] - (w->kernel_size[d] - 1) * w->dilation[d];
  return low <= 0 ? 0 : (low + w->stride[d] - 1) / w->stride[d];
}
INLINE int cover_end(const PoolWindow *w, int adaptive, int d, int i) {
  if (adaptive) return (int)(((i + 1L) * w->output[d] + w->input[d] - 1) / w->input[d]);
  return min((i + w->padding[d]) / w->stride[d] + 1, w->output[d]);
}

INLINE WindowRange window_range(const PoolWindow *w, int adaptive, const int *at) {
  WindowRange r;
  for (int d = 0; d < 3; d++) {
    r.begin[d] = window_begin(w, adaptive, d, at[d]);
    r.end[d] = window_end(w, adaptive, d, at[d]);
    r.step[d] = adaptive ? 1 : w->dilation[d];
  }
  return r;
}
INLINE WindowRange cover_range(const PoolWindow *w, int adaptive, const int *at) {
  WindowRange r;
  for (int d = 0; d < 3; d++) {
    r.begin[d] = cover_begin(w, adaptive, d, at[d]);
    r.end[d] = cover_end(w, adaptive, d, at[d]);
    r.step[d] = 1;
  }
  return r;
}

// Returns true if a window has no element: with ceil_mode a window may lie in the padding only, and with dilation all
// its elements may miss the input.
INLINE bool is_empty(const WindowRange *r) {
  return r->begin[0] >= r->end[0] || r->begin[1] >= r->end[1] || r->begin[2] >= r->end[2];
}

// The maximum of no elements.
INLINE T lowest(int dt) {
#ifdef IS_INTEGER
  return dt == DT_I8 ? CHAR_MIN : dt == DT_I16 ? SHRT_MIN : dt == DT_I32 ? INT_MIN : dt == DT_I64 ? LONG_MIN : 0;
#else
  return -INFINITY;
#endif
}

// Elements along dimension d that count in the divisor of the average over output position o.
INLINE int counted_elements(const PoolWindow *w, int adaptive, int count_include_pad, int d, int o) {
  if (adaptive || !count_include_pad) return window_end(w, adaptive, d, o) - window_begin(w, adaptive, d, o);
  int begin = o * w->stride[d] - w->padding[d];
  return min(begin + w->kernel_size[d], w->input[d] + w->padding[d]) - begin;
}

// Divisor of the average over output position (x, y, z).
INLINE long average_divisor(const PoolWindow *w, int adaptive, const AverageDivisor *by, int x, int y, int z) {
  if (by->divisor_override != 0) return by->divisor_override;
  return (long)counted_elements(w, adaptive, by->count_include_pad, 0, x) *
         counted_elements(w, adaptive, by->count_include_pad, 1, y) *
         counted_elements(w, adaptive, by->count_include_pad, 2, z);
}

// The position of a task: its index in the planes, its first channel, its number of channels, and its sample.
typedef struct {
  int at[3], width;
  long channel_index, sample;
} Task;

INLINE Task find_task(const Layout *layout, bool channels_last, long index) {
  Task task;
  long strips = (layout->sizes[3] + VEC - 1) / VEC;
  if (channels_last) {
    task.channel_index = index % strips * VEC;
    index /= strips;
  }
  for (int d = 0; d < 3; d++) {
    task.at[d] = (int)(index % layout->sizes[d]);
    index /= layout->sizes[d];
  }
  if (!channels_last) {
    task.channel_index = index % strips * VEC;
    index /= strips;
  }
  task.sample = index;
  task.width = (int)min(layout->sizes[3] - task.channel_index, (long)VEC);
  return task;
}

// Advances to the next channels. After the last, goes back to the first and returns false.
INLINE bool next_channels(const Layout *layout, Task *task) {
  task->channel_index += VEC;
  bool more = task->channel_index < layout->sizes[3];
  if (!more) task->channel_index = 0;
  task->width = (int)min(layout->sizes[3] - task->channel_index, (long)VEC);
  return more;
}

// Advances to the next index, like find_task but without its divisions.
INLINE void next_task(const Layout *layout, bool channels_last, Task *task) {
  if (channels_last && next_channels(layout, task)) return;
  for (int d = 0; d < 3; d++) {
    if (++task->at[d] < layout->sizes[d]) return;
    task->at[d] = 0;
  }
  if (!channels_last && next_channels(layout, task)) return;
  task->sample++;
}

// Byte offset of the first channel's plane of a task, and of a position in a plane.
INLINE long plane_of(const Layout *layout, int operand, const Task *task) {
  return task->channel_index * layout->strides[operand][3] + task->sample * layout->strides[operand][4];
}
INLINE long spatial_offset(const Layout *layout, int operand, int x, int y, int z) {
  return x * layout->strides[operand][0] + y * layout->strides[operand][1] + z * layout->strides[operand][2];
}

#define FOR_TASKS(layout, operand)                                                                                 \
  bool channels_last = layout.strides[operand][3] < layout.strides[operand][0];                                    \
  long tasks =                                                                                                     \
      layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4] * ((layout.sizes[3] + VEC - 1) / VEC); \
  ITEM_TASKS(tasks, first, last);                                                                                  \
  Task task = find_task(&layout, channels_last, first);                                                            \
  for (long index = first; index < last; index++, next_task(&layout, channels_last, &task))

// True if a task may have another position than the previous task: finding windows takes divisions.
#define MOVED (index == first || task.channel_index == 0 || !channels_last)

#define FOR_RANGE(r, x, y, z)                              \
  for (int z = r.begin[2]; z < r.end[2]; z += r.step[2])   \
    for (int y = r.begin[1]; y < r.end[1]; y += r.step[1]) \
      for (int x = r.begin[0]; x < r.end[0]; x += r.step[0])

// Indices in the [D, H, W] plane, one per lane. They are stored as long and held in lanes as wide as T.
typedef union {
  TM vector;
  TI lanes[VEC];
} PlaneIndices;

INLINE TM load_indices(__global const uchar *p, long stride, int n) {
#if VEC > 1
  if (n == VEC && stride == 8) return PASTE(convert_, PASTE(TM_NAME, VEC))(VLOAD(0, (__global const long *)p));
#endif
  PlaneIndices plane_indices;
  if (n == VEC) {
    for (int l = 0; l < VEC; l++) plane_indices.lanes[l] = (TI) * (__global const long *)(p + l * stride);
  } else {
    for (int l = 0; l < VEC; l++) plane_indices.lanes[l] = l < n ? (TI) * (__global const long *)(p + l * stride) : -1;
  }
  return plane_indices.vector;
}

INLINE void store_indices(__global uchar *p, long stride, int n, PlaneIndices plane_indices) {
#if VEC > 1 && !defined(IS_CPU)
  if (n == VEC && stride == 8) {
    put_long((__global long *)p, TO(long)(plane_indices.vector));
    return;
  }
#endif
  FIRST_LANES(l, n) *(__global long *)(p + l * stride) = plane_indices.lanes[l];
}

// The largest element of each window (the last NaN wins) and its index. Operands: output, indices, input.
__kernel void max_pool(__global uchar *output, ulong output_offset, __global uchar *indices, ulong indices_offset,
                       __global const uchar *input, ulong input_offset, int dtype0, Layout layout, PoolWindow w,
                       int adaptive) {
  long out_step = layout.strides[0][3], index_step = layout.strides[1][3], in_step = layout.strides[2][3];
  WindowRange r;
  FOR_TASKS(layout, 2) {
    if (MOVED) r = window_range(&w, ADAPTIVE, task.at);
    __global const uchar *p = input + input_offset + plane_of(&layout, 2, &task);
    TV best = (TV)lowest(DTYPE0);
    if (!is_empty(&r))
      best =
          load_lanes(p + spatial_offset(&layout, 2, r.begin[0], r.begin[1], r.begin[2]), in_step, task.width, DTYPE0);
    PlaneIndices where;
    where.vector = (TM)(TI)((r.begin[2] * w.input[1] + r.begin[1]) * w.input[0] + r.begin[0]);
    FOR_RANGE(r, x, y, z) {
      TV v = load_lanes(p + spatial_offset(&layout, 2, x, y, z), in_step, task.width, DTYPE0);
      TM better = (v > best) | IS_NAN(v);
      best = better ? v : best;
      where.vector = better ? (TM)(TI)((z * w.input[1] + y) * w.input[0] + x) : where.vector;
    }
    long out = spatial_offset(&layout, 0, task.at[0], task.at[1], task.at[2]) + plane_of(&layout, 0, &task);
    store_lanes(output + output_offset + out, out_step, task.width, DTYPE0, best);
    __global uchar *to_indices = indices + indices_offset + plane_of(&layout, 1, &task) +
                                 spatial_offset(&layout, 1, task.at[0], task.at[1], task.at[2]);
    store_indices(to_indices, index_step, task.width, where);
  }
}

// Adds up the gradients of the outputs that chose each input. Operand of `layout`, which has the positions of the
// input: grad_input; operands of `outputs`: grad_output, indices.
__kernel void max_pool_backward(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                ulong grad_offset, __global const uchar *indices, ulong indices_offset, int dtype0,
                                Layout layout, Layout outputs, PoolWindow w, int adaptive) {
  WindowRange r;
  FOR_TASKS(layout, 0) {
    if (MOVED) r = cover_range(&w, ADAPTIVE, task.at);
    __global const uchar *g = grad + grad_offset + plane_of(&outputs, 0, &task);
    __global const uchar *chosen = indices + indices_offset + plane_of(&outputs, 1, &task);
    TM here = (TM)(TI)((task.at[2] * w.input[1] + task.at[1]) * w.input[0] + task.at[0]);
    TV sum = (TV)0;
    FOR_RANGE(r, x, y, z) {
      TM hit = load_indices(chosen + spatial_offset(&outputs, 1, x, y, z), outputs.strides[1][3], task.width) == here;
      TV v = load_lanes(g + spatial_offset(&outputs, 0, x, y, z), outputs.strides[0][3], task.width, DTYPE0);
      sum += hit ? v : (TV)0;
    }
    long out = spatial_offset(&layout, 0, task.at[0], task.at[1], task.at[2]) + plane_of(&layout, 0, &task);
    store_lanes(grad_input + grad_input_offset + out, layout.strides[0][3], task.width, DTYPE0, sum);
  }
}

// The mean of each window, or its sum over the divisor that replaces the count. Operands: output, input.
__kernel void avg_pool(__global uchar *output, ulong output_offset, __global const uchar *input, ulong input_offset,
                       int dtype0, Layout layout, PoolWindow w, int adaptive, AverageDivisor divided_by) {
  WindowRange r;
  long divisor = 1;
  FOR_TASKS(layout, 1) {
    if (MOVED) {
      r = window_range(&w, ADAPTIVE, task.at);
      // An empty window gives 0, whatever the divisor.
      divisor = 1;
      if (!is_empty(&r)) divisor = average_divisor(&w, ADAPTIVE, &divided_by, task.at[0], task.at[1], task.at[2]);
    }
    __global const uchar *p = input + input_offset + plane_of(&layout, 1, &task);
    TV sum = (TV)0;
    FOR_RANGE(r, x, y, z)
      sum += load_lanes(p + spatial_offset(&layout, 1, x, y, z), layout.strides[1][3], task.width, DTYPE0);
    long out = spatial_offset(&layout, 0, task.at[0], task.at[1], task.at[2]) + plane_of(&layout, 0, &task);
    store_lanes(output + output_offset + out, layout.strides[0][3], task.width, DTYPE0, sum / (T)divisor);
  }
}

// Each input's share of the gradients of the outputs that averaged it. Operand of `layout`, which has the positions of
// the input: grad_input; operand of `outputs`: grad_output.
__kernel void avg_pool_backward(__global uchar *grad_input, ulong grad_input_offset, __global const uchar *grad,
                                ulong grad_offset, int dtype0, Layout layout, Layout outputs, PoolWindow w,
                                int adaptive, AverageDivisor divided_by) {
  WindowRange r;
  long divisor = 1;
  FOR_TASKS(layout, 0) {
    if (MOVED) {
      r = cover_range(&w, ADAPTIVE, task.at);
      divisor = average_divisor(&w, ADAPTIVE, &divided_by, r.begin[0], r.begin[1], r.begin[2]);
    }
    bool single = r.end[0] - r.begin[0] == 1 && r.end[1] - r.begin[1] == 1 && r.end[2] - r.begin[2] == 1;
    __global const uchar *g = grad + grad_offset + plane_of(&outputs, 0, &task);
    TV sum = (TV)0;
    FOR_RANGE(r, x, y, z) {
      if (!single) divisor = average_divisor(&w, ADAPTIVE, &divided_by, x, y, z);
      sum +=
          load_lanes(g + spatial_offset(&outputs, 0, x, y, z), outputs.strides[0][3], task.width, DTYPE0) / (T)divisor;
    }
    long out = spatial_offset(&layout, 0, task.at[0], task.at[1], task.at[2]) + plane_of(&layout, 0, &task);
    store_lanes(grad_input + grad_input_offset + out, layout.strides[0][3], task.width, DTYPE0, sum);
  }
}
