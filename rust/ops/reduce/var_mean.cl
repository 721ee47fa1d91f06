// Mean and variance (CLASS_F and CLASS_D).
//
// Blocks that fit L1 are read twice, for their mean and then for their squared deviations from it, and joined by Chan's
// formula: as accurate as Welford's recurrence without its division for every element.
//
// `kept` is the layout of the results (operand 0 variance, 1 mean, 2 input), `reduced` that of the elements of each
// (operand 0 input). If there are few results, their elements are cut into `splits`, which are then the last dimension
// of `kept`; var_mean_merge joins the splits' results. If no mean is wanted, its pointer is null.
//
//   var_mean_rows  elements of one result are neighbours    var_mean_columns  results are neighbours

// Kinds of results: the raw sum of squared deviations for a split, else the variance or its root.
#define FINISH_SQUARES 0
#define FINISH_VARIANCE 1
#define FINISH_STD 2

// Vectors of a block: 2 KiB of float16.
#define BLOCK 32

// Count, mean and sum of squared deviations: of one set of elements, and of one set for each lane.
typedef struct {
  T count, mean, squares;
} VarMean;
typedef struct {
  T count;
  TV mean, squares;
} LaneVarMean;

INLINE VarMean join(VarMean a, VarMean b) {
  if (b.count == 0) return a;
  T count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  a.mean += delta * share;
  // From the left: the square of a difference may overflow even if its weight is 0.
  a.squares += b.squares + a.count * share * delta * delta;
  a.count = count;
  return a;
}

INLINE void join_lanes(LaneVarMean *a, T count, TV mean, TV squares) {
  T total = a->count + count, share = count / total;
  TV delta = mean - a->mean;
  a->mean += delta * share;
  a->squares += squares + (a->count * share) * delta * delta;
  a->count = total;
}

#if LSIZE > 1
// Member by member: Intel's compiler copies a whole struct through scratch memory.
INLINE void put_lanes(__local LaneVarMean *to, const LaneVarMean *from) {
  to->count = from->count;
  to->mean = from->mean;
  to->squares = from->squares;
}

INLINE void fold_lanes(__local LaneVarMean *into, __local const LaneVarMean *other) {
  if (other->count == 0) return;
  LaneVarMean sum;
  sum.count = into->count;
  sum.mean = into->mean;
  sum.squares = into->squares;
  join_lanes(&sum, other->count, other->mean, other->squares);
  put_lanes(into, &sum);
}
#endif

INLINE T finish_variance(int finish, VarMean m, T correction) {
  if (finish == FINISH_SQUARES) return m.squares;
  // Infinite elements have no distance from the mean, which is NaN if others were joined after them. Without degrees of
  // freedom, the result is infinite or NaN, as the quotient is.
  T squares = isfinite(m.mean) ? m.squares : (T)NAN;
  T variance = squares / max(m.count - correction, (T)0);
  return finish == FINISH_STD ? sqrt(variance) : variance;
}

// Adds a run of n elements, `stride` bytes apart: its vectors item, item + items, ... to *lanes, and likewise the
// remaining elements to *rest.
INLINE void add_run(__global const uchar *p, long stride, long n, int item, int items, int dtype, LaneVarMean *lanes,
                    VarMean *rest) {
  long vectors = n / VEC;
  bool dense = stride == dtype_size(dtype);
  for (long begin = item; begin < vectors; begin += (long)BLOCK * items) {
    long end = min(begin + (long)BLOCK * items, vectors);
    int count = (int)((end - begin + items - 1) / items);
    TV sum = (TV)0, squares = (TV)0;
    if (dense) {
      for (long v = begin; v < end; v += items) sum += load_vector(p, v * VEC, dtype);
      TV mean = sum / (T)count;
      for (long v = begin; v < end; v += items) {
        TV d = load_vector(p, v * VEC, dtype) - mean;
        squares += d * d;
      }
    } else {
      for (long v = begin; v < end; v += items) sum += load_lanes(p + v * VEC * stride, stride, VEC, dtype);
      TV mean = sum / (T)count;
      for (long v = begin; v < end; v += items) {
        TV d = load_lanes(p + v * VEC * stride, stride, VEC, dtype) - mean;
        squares += d * d;
      }
    }
    join_lanes(lanes, count, sum / (T)count, squares);
  }
  for (long i = vectors * VEC + item; i < n; i += items) {
    VarMean one = {1, load_at(p + i * stride, dtype), 0};
    *rest = join(*rest, one);
  }
}

#define VAR_MEAN_ARGUMENTS                                                                                      \
  __global const uchar *input, ulong input_offset, int dtype0, __global uchar *variance, ulong variance_offset, \
      int variance_dtype, __global uchar *mean, ulong mean_offset, int mean_dtype, Layout kept, Layout reduced, \
      long outputs, long length, long splits, int finish, TR correction

// A group finds the mean and variance of whole tasks (result, split). `run_items` of its items share a run of the
// innermost reduced dimension, the others take the next runs.
__kernel GROUPS_OF(LSIZE) void var_mean_rows(VAR_MEAN_ARGUMENTS, int run_items) {
  input += input_offset;
  variance += variance_offset;
  mean = mean ? mean + mean_offset : mean;
  long run = reduced.sizes[0], stride = reduced.strides[0][0];
  int item = get_local_id(0);
#if LSIZE > 1
  __local VarMean shared[LSIZE];
#endif
  GROUP_TASKS(outputs * splits, first, last);
  for (long task = first; task < last; task++) {
    long split = task / outputs, begin = split_begin(length, split, splits),
         end = split_begin(length, split + 1, splits);
    __global const uchar *base = input + layout_offset(&kept, 2, task);
    LaneVarMean lanes = {0, (TV)0, (TV)0};
    VarMean total = {0, 0, 0};
    for (long r = begin / run + item / run_items; r * run < end; r += LSIZE / run_items) {
      long from = max(begin - r * run, 0L), to = min(end - r * run, run);
      add_run(base + layout_run_offset(&reduced, 0, r) + from * stride, stride, to - from, item % run_items, run_items,
              DTYPE0, &lanes, &total);
    }
    if (lanes.count > 0) {
      Lanes means, squares;
      means.vector = lanes.mean;
      squares.vector = lanes.squares;
      for (int l = 0; l < VEC; l++) {
        VarMean lane = {lanes.count, means.lanes[l], squares.lanes[l]};
        total = join(total, lane);
      }
    }
#if LSIZE > 1
    shared[item] = total;
    for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_size) shared[item] = join(shared[item], shared[item + half_size]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    total = shared[0];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (item == 0) {
      store_at(variance + layout_offset(&kept, 0, task), variance_dtype, finish_variance(finish, total, correction));
      if (mean) store_at(mean + layout_offset(&kept, 1, task), mean_dtype, total.mean);
    }
  }
}

// Items find the mean and variance of tasks (VEC neighbouring results, split), as in columns.cl.
__kernel GROUPS_OF(LSIZE) void var_mean_columns(VAR_MEAN_ARGUMENTS, int parts) {
  input += input_offset;
  variance += variance_offset;
  mean = mean ? mean + mean_offset : mean;
  long columns = kept.sizes[0], column_stride = kept.strides[2][0];
  long strips = (columns + VEC - 1) / VEC, rows = outputs / columns;
  long run = reduced.sizes[0], stride = reduced.strides[0][0];
  long tasks = rows * strips * splits;
#if LSIZE > 1
  __local LaneVarMean found[LSIZE];
#endif
  COLUMN_TASKS(tasks, parts, stride < column_stride, first, last);
  for (long task = first; task < last; task++) {
    long column = task % strips * VEC, row = task / strips, split = row / rows;
    long begin = split_begin(length, split, splits), end = split_begin(length, split + 1, splits);
    int width = IS_TASK(task, tasks) ? (int)min(columns - column, (long)VEC) : 0;
    __global const uchar *base = input + layout_run_offset(&kept, 2, row) + column * column_stride;
    LaneVarMean lanes = {0, (TV)0, (TV)0};
    for (long i = begin; i < end;) {
      long from = i % run, to = min(min(run, from + end - i), from + (long)BLOCK * PARTS);
      __global const uchar *p = base + layout_run_offset(&reduced, 0, i / run);
      TV sum = (TV)0, squares = (TV)0;
      // A part may have none of the last rows of a run.
      T count = (T)((to - from - PART + PARTS - 1) / PARTS);
      for (long j = from + PART; j < to; j += PARTS) sum += load_lanes(p + j * stride, column_stride, width, DTYPE0);
      TV block_mean = sum / count;
      for (long j = from + PART; j < to; j += PARTS) {
        TV d = load_lanes(p + j * stride, column_stride, width, DTYPE0) - block_mean;
        squares += d * d;
      }
      if (LSIZE == 1 || count > 0) join_lanes(&lanes, count, block_mean, squares);
      i += to - from;
    }
#if LSIZE > 1
    put_lanes(found + item, &lanes);
    FOLD_PARTS(fold_lanes(found + item, found + other));
    if (part > 0) continue;
    // Indices into local memory need not be constant: Intel's compiler does not unroll the loop.
    __local const LaneVarMean *joined = found + item;
    __local const T *means = (__local const T *)&joined->mean, *squares = (__local const T *)&joined->squares;
#else
    const LaneVarMean *joined = &lanes;
    const T *means = (const T *)&lanes.mean, *squares = (const T *)&lanes.squares;
#endif
    FIRST_LANES(l, width) {
      VarMean one = {joined->count, means[l], squares[l]};
      long result = row * columns + column + l;
      store_at(variance + layout_offset(&kept, 0, result), variance_dtype, finish_variance(finish, one, correction));
      if (mean) store_at(mean + layout_offset(&kept, 1, result), mean_dtype, one.mean);
    }
  }
}

// Joins the splits' sums of squares and means, both [splits][outputs] of T. Items share the splits of a result as in
// columns.cl.
__kernel GROUPS_OF(LSIZE) void var_mean_merge(__global const uchar *squares, ulong squares_offset,
                                              __global const uchar *means, ulong means_offset, __global uchar *variance,
                                              ulong variance_offset, int variance_dtype, __global uchar *mean,
                                              ulong mean_offset, int mean_dtype, Layout kept, long outputs, long length,
                                              long splits, int finish, TR correction, int parts) {
  __global const T *split_squares = (__global const T *)(squares + squares_offset);
  __global const T *split_means = (__global const T *)(means + means_offset);
#if LSIZE > 1
  __local VarMean found[LSIZE];
#endif
  COLUMN_TASKS(outputs, parts, false, first, last);
  for (long result = first; result < last; result++) {
    VarMean total = {0, 0, 0};
    for (long split = PART; split < splits && IS_TASK(result, outputs); split += PARTS) {
      long count = split_begin(length, split + 1, splits) - split_begin(length, split, splits);
      long at = split * outputs + result;
      VarMean one = {(T)count, split_means[at], split_squares[at]};
      total = join(total, one);
    }
#if LSIZE > 1
    found[item] = total;
    FOLD_PARTS(found[item] = join(found[item], found[other]));
    if (part > 0 || !IS_TASK(result, outputs)) continue;
    total = found[item];
#endif
    store_at(variance + variance_offset + layout_offset(&kept, 0, result), variance_dtype,
             finish_variance(finish, total, correction));
    if (mean) store_at(mean + mean_offset + layout_offset(&kept, 1, result), mean_dtype, total.mean);
  }
}
