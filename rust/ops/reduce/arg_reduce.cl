// Reductions that return indices: argmax, argmin, and max and min along a dimension.
//
// The first of equal elements wins, and NaN wins over everything, as in PyTorch. `kept` is the layout of the results
// (operand 0 values, 1 indices, 2 input); one dimension of `length` elements, `stride` bytes apart, is reduced. A long
// one is cut into `splits`, which are then the last dimension of `kept`; arg_merge compares their winners.
//
//   arg_rows     elements of one result are neighbours    arg_columns  results are neighbours
//
// If no values are wanted, their pointer is null.

#ifdef SPEC_LARGEST
#define LARGEST SPEC_LARGEST
#else
#define LARGEST largest
#endif

// Vectors searched at a time by one item: on CPUs a block is scanned for its extreme value first, and for the index of
// that value only when it beats the best so far. On GPUs the items of a group take neighbouring vectors, and search
// their registers for indices.
#if LSIZE > 1
#define BLOCK 1
#else
#define BLOCK 64
#endif

// True if b beats a, whatever their indices.
#define BEATS(largest, a, b) ((((largest) ? ((b) > (a)) : ((b) < (a)))) | (((b) != (b)) & ((a) == (a))))

// Returns true if (b, ib) comes before (a, ia).
INLINE bool precedes(int largest, T a, long ia, T b, long ib) {
  return BEATS(largest, a, b) || (!BEATS(largest, b, a) && ib < ia);
}

INLINE void store_winner(__global uchar *values, int values_dtype, __global uchar *indices, const Layout *kept,
                         long result, T best, long index) {
  if (values) store_at(values + layout_offset(kept, 0, result), values_dtype, best);
  *(__global long *)(indices + layout_offset(kept, 1, result)) = index;
}

// Replaces the winner of `item` by that of item `other` if it comes before.
#if LSIZE > 1
INLINE void join_winner(int largest, __local T *best, __local long *index, int item, int other) {
  if (precedes(largest, best[item], index[item], best[other], index[other])) {
    best[item] = best[other];
    index[item] = index[other];
  }
}
#endif

#define EXTREMES_ARGUMENTS                                                                                     \
  __global const uchar *input, ulong input_offset, int dtype0, __global uchar *values, ulong values_offset,    \
      int values_dtype, __global uchar *indices, ulong indices_offset, Layout kept, long outputs, long length, \
      long stride, long splits, int largest

// A group finds the winners of whole tasks (result, split).
__kernel GROUPS_OF(LSIZE) void arg_rows(EXTREMES_ARGUMENTS) {
  input += input_offset;
  values = values ? values + values_offset : values;
  indices += indices_offset;
  int item = get_local_id(0);
  bool dense = stride == dtype_size(DTYPE0);
#if LSIZE > 1
  __local T best_of[LSIZE];
  __local long index_of[LSIZE];
#endif
  GROUP_TASKS(outputs * splits, first, last);
  for (long task = first; task < last; task++) {
    long result = task % outputs, split = task / outputs;
    // A split without elements has the first element of the next as its winner.
    long begin = split_begin(length, split, splits), end = split_begin(length, split + 1, splits);
    __global const uchar *p = input + layout_offset(&kept, 2, result);
    T best = load_at(p + begin * stride, DTYPE0);
    long index = begin, i = begin;
    if (dense) {
      long step = (long)BLOCK * VEC;
      for (i += item * step; i + VEC <= end; i += LSIZE * step) {
        // Rows, and the last block, may be shorter than a block.
        const int vectors = BLOCK == 1 ? 1 : (int)min((long)BLOCK, (end - i) / VEC);
        TV block = load_vector(p, i, DTYPE0);
        for (int b = 1; b < vectors; b++) {
          TV x = load_vector(p, i + b * VEC, DTYPE0);
          block = BEATS(LARGEST, block, x) ? x : block;
        }
        Lanes lanes;
        lanes.vector = block;
#if LSIZE > 1
        for (int l = 0; l < VEC; l++) {
          bool better = BEATS(LARGEST, best, lanes.lanes[l]);
          best = better ? lanes.lanes[l] : best;
          index = better ? i + l : index;
        }
#else
        T winner = lanes.lanes[0];
        for (int l = 1; l < VEC; l++) winner = BEATS(LARGEST, winner, lanes.lanes[l]) ? lanes.lanes[l] : winner;
        if (BEATS(LARGEST, best, winner)) {
          best = winner;
          index = i;
#if VEC > 1
          while (all(BEATS(LARGEST, load_vector(p, index, DTYPE0), (TV)best))) index += VEC;
#endif
          for (T x = load(p, index, DTYPE0); BEATS(LARGEST, x, best); x = load(p, index, DTYPE0)) index++;
        }
#endif
      }
      // Every item continues with the elements that do not fill a vector.
      i = begin + (end - begin) / VEC * VEC;
    }
    for (i += item; i < end; i += LSIZE) {
      T x = load_at(p + i * stride, DTYPE0);
      if (BEATS(LARGEST, best, x)) {
        best = x;
        index = i;
      }
    }
#if LSIZE > 1
    best_of[item] = best;
    index_of[item] = index;
    for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_size) join_winner(LARGEST, best_of, index_of, item, item + half_size);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    best = best_of[0];
    index = index_of[0];
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (item == 0) store_winner(values, values_dtype, indices, &kept, task, best, index);
  }
}

// Items find the winners of tasks (VEC neighbouring results, split), as in columns.cl. Indices are kept in lanes as
// wide as T, so `length` must fit one.
__kernel GROUPS_OF(LSIZE) void arg_columns(EXTREMES_ARGUMENTS, int parts) {
  input += input_offset;
  values = values ? values + values_offset : values;
  indices += indices_offset;
  long columns = kept.sizes[0], column_stride = kept.strides[2][0];
  long strips = (columns + VEC - 1) / VEC, rows = outputs / columns;
  long tasks = rows * strips * splits;
#if LSIZE > 1
  __local T best_of[LSIZE * VEC];
  __local long index_of[LSIZE * VEC];
#endif
  COLUMN_TASKS(tasks, parts, stride < column_stride, first, last);
  for (long task = first; task < last; task++) {
    long column = task % strips * VEC, row = task / strips % rows, split = task / strips / rows;
    long begin = length * split / splits, end = length * (split + 1) / splits;
    int width = IS_TASK(task, tasks) ? (int)min(columns - column, (long)VEC) : 0;
    __global const uchar *p = input + layout_run_offset(&kept, 2, row) + column * column_stride;
    Lanes best;
    union {
      TM vector;
      TI lanes[VEC];
    } index;
    long start = min(begin + PART, end - 1);
    best.vector = load_lanes(p + start * stride, column_stride, width, DTYPE0);
    index.vector = (TM)(TI)start;
    for (long i = begin + PART + PARTS; i < end; i += PARTS) {
      TV x = load_lanes(p + i * stride, column_stride, width, DTYPE0);
      TM better = BEATS(LARGEST, best.vector, x);
      best.vector = better ? x : best.vector;
      index.vector = better ? (TM)(TI)i : index.vector;
    }
#if LSIZE > 1
    for (int l = 0; l < VEC; l++) {
      best_of[item * VEC + l] = best.lanes[l];
      index_of[item * VEC + l] = index.lanes[l];
    }
    FOLD_PARTS(for (int l = 0; l < VEC; l++) join_winner(LARGEST, best_of, index_of, item * VEC + l, other * VEC + l));
    if (part > 0) continue;
    for (int l = 0; l < VEC; l++) {
      best.lanes[l] = best_of[item * VEC + l];
      index.lanes[l] = index_of[item * VEC + l];
    }
#endif
    long result = row * columns + column + split * outputs;
    FIRST_LANES(l, width) store_winner(values, values_dtype, indices, &kept, result + l, best.lanes[l], index.lanes[l]);
  }
}

// Finds the first of the splits' winners. Items share the splits of a result as in columns.cl. Operand 2 of `kept` is
// not used.
__kernel GROUPS_OF(LSIZE) void arg_merge(__global const uchar *best, ulong best_offset, int best_dtype,
                                         __global const uchar *best_indices, ulong best_indices_offset,
                                         __global uchar *values, ulong values_offset, int values_dtype,
                                         __global uchar *indices, ulong indices_offset, Layout kept, long outputs,
                                         long splits, int largest, int parts) {
  best += best_offset;
  best_indices += best_indices_offset;
  values = values ? values + values_offset : values;
  indices += indices_offset;
#if LSIZE > 1
  __local T best_of[LSIZE];
  __local long index_of[LSIZE];
#endif
  COLUMN_TASKS(outputs, parts, false, first, last);
  for (long task = first; task < last; task++) {
    // There are at least as many splits as parts. Past the end, the last result is computed again.
    long result = min(task, outputs - 1), mine = PART * outputs + result;
    T winner = load(best, mine, best_dtype);
    long index = load_index(best_indices, mine, DT_I64);
    for (long split = PART + PARTS; split < splits; split += PARTS) {
      T x = load(best, split * outputs + result, best_dtype);
      long at = load_index(best_indices, split * outputs + result, DT_I64);
      if (precedes(LARGEST, winner, index, x, at)) {
        winner = x;
        index = at;
      }
    }
#if LSIZE > 1
    best_of[item] = winner;
    index_of[item] = index;
    FOLD_PARTS(join_winner(LARGEST, best_of, index_of, item, other));
    if (part > 0 || !IS_TASK(task, outputs)) continue;
    winner = best_of[item];
    index = index_of[item];
#endif
    store_winner(values, values_dtype, indices, &kept, result, winner, index);
  }
}
