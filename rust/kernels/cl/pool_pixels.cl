// Pooling of channels-last images, one item a pixel of the result; arguments and operands are those of the kernels in
// pool.cl.
//
// There a task is VEC channels, and goes through a window for each of them: of every pixel it reads one vector, and the
// next task the next. These kernels read pixels whole, so that memory is gone through in order.

// Vectors of channels that are taken at a time.
#define STRIPS 16

#define FOR_PIXELS(layout)                                                                            \
  ITEM_TASKS(layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4], first, last);     \
  for (long pixel = first; pixel < last; pixel++)

// Pixel `index` of the results; its channel is 0.
INLINE Task pixel_at(const Layout *layout, long index) {
  Task task;
  for (int d = 0; d < 3; d++) {
    task.at[d] = (int)(index % layout->sizes[d]);
    index /= layout->sizes[d];
  }
  task.channel = 0;
  task.sample = index;
  task.width = VEC;
  return task;
}

INLINE long pixel_offset(const Layout *layout, int operand, const Task *task) {
  return plane_of(layout, operand, task) + position(layout, operand, task->at[0], task->at[1], task->at[2]);
}

// How many vectors hold the channels from one on: up to STRIPS.
INLINE int strips_from(long channel, long channels) {
  return (int)min((channels - channel + VEC - 1) / VEC, (long)STRIPS);
}

__kernel void max_pool_pixels(__global uchar *output, ulong output_offset, __global uchar *indices,
                              ulong indices_offset, __global const uchar *input, ulong input_offset, int dtype0,
                              Layout layout, Window w, int adaptive) {
  const long channels = layout.sizes[3];
  FOR_PIXELS(layout) {
    Task task = pixel_at(&layout, pixel);
    Range r = window_range(&w, ADAPTIVE, task.at);
    __global const uchar *p = input + input_offset + plane_of(&layout, 2, &task);
    __global uchar *out = output + output_offset + pixel_offset(&layout, 0, &task);
    __global long *chosen = (__global long *)(indices + indices_offset + pixel_offset(&layout, 1, &task));
    for (long channel = 0; channel < channels; channel += STRIPS * VEC) {
      int strips = strips_from(channel, channels);
      TV best[STRIPS];
      Places where[STRIPS];
      __global const uchar *start = p + position(&layout, 2, r.begin[0], r.begin[1], r.begin[2]);
      for (int s = 0; s < strips; s++) {
        best[s] = load_part(start, channel + s * VEC, channels, DTYPE0, 0);
        where[s].vector = (TM)(TI)((r.begin[2] * w.input[1] + r.begin[1]) * w.input[0] + r.begin[0]);
      }
      FOR_RANGE(r, x, y, z) {
        __global const uchar *here = p + position(&layout, 2, x, y, z);
        TM place = (TM)(TI)((z * w.input[1] + y) * w.input[0] + x);
        for (int s = 0; s < strips; s++) {
          TV v = load_part(here, channel + s * VEC, channels, DTYPE0, 0);
          TM better = (v > best[s]) | IS_NAN(v);
          best[s] = better ? v : best[s];
          where[s].vector = better ? place : where[s].vector;
        }
      }
      for (int s = 0; s < strips; s++) {
        long at = channel + s * VEC;
        store_part(out, at, channels, DTYPE0, best[s]);
        for (int l = 0; l < VEC && at + l < channels; l++) chosen[at + l] = where[s].lanes[l];
      }
    }
  }
}

__kernel void avg_pool_pixels(__global uchar *output, ulong output_offset, __global const uchar *input,
                              ulong input_offset, int dtype0, Layout layout, Window w, int adaptive, int count_padding,
                              long divisor) {
  const long channels = layout.sizes[3];
  FOR_PIXELS(layout) {
    Task task = pixel_at(&layout, pixel);
    Range r = window_range(&w, ADAPTIVE, task.at);
    // A window that lies in the padding alone, which ceil_mode can make, has nothing to average.
    bool empty = r.begin[0] >= r.end[0] || r.begin[1] >= r.end[1] || r.begin[2] >= r.end[2];
    T share = (T)average_share(&w, ADAPTIVE, count_padding, divisor, task.at[0], task.at[1], task.at[2]);
    __global const uchar *p = input + input_offset + plane_of(&layout, 1, &task);
    __global uchar *out = output + output_offset + pixel_offset(&layout, 0, &task);
    for (long channel = 0; channel < channels; channel += STRIPS * VEC) {
      int strips = strips_from(channel, channels);
      TV sums[STRIPS];
      for (int s = 0; s < strips; s++) sums[s] = (TV)0;
      FOR_RANGE(r, x, y, z) {
        __global const uchar *here = p + position(&layout, 1, x, y, z);
        for (int s = 0; s < strips; s++) sums[s] += load_part(here, channel + s * VEC, channels, DTYPE0, 0);
      }
      for (int s = 0; s < strips; s++)
        store_part(out, channel + s * VEC, channels, DTYPE0, empty ? (TV)0 : sums[s] / share);
    }
  }
}
