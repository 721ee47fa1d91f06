// Pooling of channels-last images, one item per output position; arguments and operands are those of the kernels in
// pool.cl.
//
// In pool.cl a task has VEC channels, and walks a window for them: it reads one vector of every input position, and the
// next task reads the next vector. These kernels read all channels of a position, so that memory is read in order.

// Vectors of channels that are processed at a time, in registers: 64 floats with vectors of 64 bytes.
#define STRIPS 4

#define FOR_POSITIONS(layout)                                                                     \
  ITEM_TASKS(layout.sizes[0] * layout.sizes[1] * layout.sizes[2] * layout.sizes[4], first, last); \
  Task task = position_at(&layout, first);                                                        \
  for (long position = first; position < last; position++, next_position(&layout, &task))

// Position `index` of the results; its channel is 0.
INLINE Task position_at(const Layout *layout, long index) {
  Task task;
  for (int d = 0; d < 3; d++) {
    task.at[d] = (int)(index % layout->sizes[d]);
    index /= layout->sizes[d];
  }
  task.channel_index = 0;
  task.sample = index;
  task.width = VEC;
  return task;
}

// Advances to the next index, like position_at but without its divisions.
INLINE void next_position(const Layout *layout, Task *task) {
  for (int d = 0; d < 3; d++) {
    if (++task->at[d] < layout->sizes[d]) return;
    task->at[d] = 0;
  }
  task->sample++;
}

INLINE long position_offset(const Layout *layout, int operand, const Task *task) {
  return plane_of(layout, operand, task) + spatial_offset(layout, operand, task->at[0], task->at[1], task->at[2]);
}

// LOAD and STORE take `s`, the index of a vector of channels.
#define LOAD_WHOLE(p) load_vector(p, channel_index + s * VEC, DTYPE0)
#define LOAD_LAST(p) load_part(p, channel_index + s * VEC, channels, DTYPE0, 0)
#define STORE_WHOLE(p, v) store_vector(p, channel_index + s * VEC, DTYPE0, v)
#define STORE_LAST(p, v) store_part(p, channel_index + s * VEC, channels, DTYPE0, v)
#define FOR_STRIPS(COUNT) UNROLL for (int s = 0; s < COUNT; s++)

// The largest of COUNT vectors of channels from `channel` on, and their indices.
#define MAX_OF(COUNT, LOAD, STORE)                                                                  \
  TV best[COUNT];                                                                                   \
  PlaneIndices where[COUNT];                                                                        \
  const bool empty = is_empty(&r);                                                                  \
  __global const uchar *start = p + spatial_offset(&layout, 2, r.begin[0], r.begin[1], r.begin[2]); \
  FOR_STRIPS(COUNT) {                                                                               \
    best[s] = (TV)lowest(DTYPE0);                                                                   \
    if (!empty) best[s] = LOAD(start);                                                              \
    where[s].vector = (TM)(TI)((r.begin[2] * w.input[1] + r.begin[1]) * w.input[0] + r.begin[0]);   \
  }                                                                                                 \
  FOR_RANGE(r, x, y, z) {                                                                           \
    __global const uchar *here = p + spatial_offset(&layout, 2, x, y, z);                           \
    TM index = (TM)(TI)((z * w.input[1] + y) * w.input[0] + x);                                     \
    FOR_STRIPS(COUNT) {                                                                             \
      TV v = LOAD(here);                                                                            \
      TM better = (v > best[s]) | IS_NAN(v);                                                        \
      best[s] = better ? v : best[s];                                                               \
      where[s].vector = better ? index : where[s].vector;                                           \
    }                                                                                               \
  }                                                                                                 \
  FOR_STRIPS(COUNT) {                                                                               \
    STORE(out, best[s]);                                                                            \
    const long at = channel_index + s * VEC;                                                        \
    for (int l = 0; l < VEC && at + l < channels; l++) chosen[at + l] = where[s].lanes[l];          \
  }

__kernel void max_pool_channels_last(__global uchar *output, ulong output_offset, __global uchar *indices,
                                     ulong indices_offset, __global const uchar *input, ulong input_offset, int dtype0,
                                     Layout layout, PoolWindow w, int adaptive) {
  const long channels = layout.sizes[3];
  FOR_POSITIONS(layout) {
    WindowRange r = window_range(&w, ADAPTIVE, task.at);
    __global const uchar *p = input + input_offset + plane_of(&layout, 2, &task);
    __global uchar *out = output + output_offset + position_offset(&layout, 0, &task);
    __global long *chosen = (__global long *)(indices + indices_offset + position_offset(&layout, 1, &task));
    long channel_index = 0;
    for (; channel_index + STRIPS * VEC <= channels; channel_index += STRIPS * VEC) {
      MAX_OF(STRIPS, LOAD_WHOLE, STORE_WHOLE)
    }
    for (; channel_index < channels; channel_index += VEC) {
      MAX_OF(1, LOAD_LAST, STORE_LAST)
    }
  }
}

// The averages of COUNT vectors of channels from `channel` on. Divides, which takes 16 cycles per vector: with the
// reciprocal, the mean of ones would not be one.
#define AVERAGE_OF(COUNT, LOAD, STORE)                                    \
  TV sums[COUNT];                                                         \
  FOR_STRIPS(COUNT) sums[s] = (TV)0;                                      \
  FOR_RANGE(r, x, y, z) {                                                 \
    __global const uchar *here = p + spatial_offset(&layout, 1, x, y, z); \
    FOR_STRIPS(COUNT) sums[s] += LOAD(here);                              \
  }                                                                       \
  FOR_STRIPS(COUNT) STORE(out, empty ? (TV)0 : sums[s] / divisor);

__kernel void avg_pool_channels_last(__global uchar *output, ulong output_offset, __global const uchar *input,
                                     ulong input_offset, int dtype0, Layout layout, PoolWindow w, int adaptive,
                                     AverageDivisor divided_by) {
  const long channels = layout.sizes[3];
  FOR_POSITIONS(layout) {
    WindowRange r = window_range(&w, ADAPTIVE, task.at);
    // With ceil_mode, a window may lie in the padding only, and is empty.
    const bool empty = is_empty(&r);
    T divisor = (T)average_divisor(&w, ADAPTIVE, &divided_by, task.at[0], task.at[1], task.at[2]);
    __global const uchar *p = input + input_offset + plane_of(&layout, 1, &task);
    __global uchar *out = output + output_offset + position_offset(&layout, 0, &task);
    long channel_index = 0;
    for (; channel_index + STRIPS * VEC <= channels; channel_index += STRIPS * VEC) {
      AVERAGE_OF(STRIPS, LOAD_WHOLE, STORE_WHOLE)
    }
    for (; channel_index < channels; channel_index += VEC) {
      AVERAGE_OF(1, LOAD_LAST, STORE_LAST)
    }
  }
}
