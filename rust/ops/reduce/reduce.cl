// Reductions to one value: map every element, fold the results, finish the total.
//
//   sum = (copy, add, none)      mean = (copy, add, divide)     norm 2 = (square, add, root 2)
//   any = (nonzero, max, none)   all = (nonzero, min, none)     count_nonzero = (nonzero, add, none)
//
// `kept` is the layout of the results (operand 0 output, operand 1 input), `reduced` that of the elements of each
// (operand 0 input). If there are few results, their elements are cut into `splits`, which are then the last dimension
// of `kept`. Each split writes a partial total with finish none; the launcher folds these with the same kernels.
//
//   reduce_rows     elements of one result are neighbours: lanes and items share a result
//   reduce_short_rows  the same for rows of a few vectors: an item takes VEC rows at a time
//   reduce_columns  results are neighbours: each lane owns one

// Vectors folded into one block total, and blocks folded into one part, before it joins the result: rounding errors
// then grow with CASCADE + CASCADE + n / CASCADE^2 instead of n, as in PyTorch's cascade sum.
#define CASCADE 128

// Independent totals in the inner loops, so that an addition need not wait for the previous one. A generic program for
// GPUs has the code of every operator for each total, which takes registers that other groups need. Four of the
// longer vectors of narrow dtypes do not fit the registers of Intel's GPUs.
#if defined(SPEC_VEC)
#define CHAINS 3
#elif defined(IS_CPU) || defined(SPEC_DTYPE0)
#define CHAINS 4
#else
#define CHAINS 1
#endif
#ifdef IS_CPU
#define EACH_CHAIN(c) for (int c = 0; c < CHAINS; c++)
#else
#define EACH_CHAIN(c) UNROLL for (int c = 0; c < CHAINS; c++)
#endif

// Neighbouring vectors of columns that an item takes, and rows that it takes at a time. On GPUs its neighbours take the
// adjacent columns, and an item has a vector of each row in flight from memory.
#if LSIZE == 1
#define STRIP CHAINS
#else
#define STRIP 1
#endif
#define ROWS_AT_ONCE (CHAINS / STRIP)
// The vectors of `width` columns. The constant bound lets compilers keep arrays of vectors in registers.
#define EACH_VECTOR(s, width) for (int s = 0; s < STRIP && s * VEC < (width); s++)

// Folds a run of n elements, `stride` bytes apart: its vectors item, item + items, ... into *sum, and likewise the
// remaining elements into *rest.
INLINE INLINED_ON_GPUS void fold_run(__global const uchar *p, long stride, long n, int item, int items, int dtype,
                                     int map, int fold, TR power, TV *sum, T *rest) {
  long vectors = n / VEC;
  if (vectors < CHAINS || stride != dtype_size(dtype)) {
    // Short runs are common (a row of class scores, a small image) and need none of the code below.
    for (long v = item; v < vectors; v += items)
      *sum = fold_vector(fold, *sum, map_vector(map, load_lanes(p + v * VEC * stride, stride, VEC, dtype), power));
  } else {
    TV part = identity_vector(fold);
    int blocks = 0;
    for (long v = item; v < vectors;) {
      long end = fold == FOLD_ADD ? min(v + (long)CASCADE * items, vectors) : vectors;
      TV block[CHAINS];
      EACH_CHAIN(c) block[c] = identity_vector(fold);
      for (; v + (CHAINS - 1) * items < end; v += CHAINS * items)
        EACH_CHAIN(c)
          block[c] = fold_vector(fold, block[c], map_vector(map, load_vector(p, (v + c * items) * VEC, dtype), power));
      for (; v < end; v += items)
        block[0] = fold_vector(fold, block[0], map_vector(map, load_vector(p, v * VEC, dtype), power));
      EACH_CHAIN(c) part = fold_vector(fold, part, block[c]);
      if (++blocks == CASCADE) {
        *sum = fold_vector(fold, *sum, part);
        part = identity_vector(fold);
        blocks = 0;
      }
    }
    *sum = fold_vector(fold, *sum, part);
  }
  for (long i = vectors * VEC + item; i < n; i += items)
    *rest = fold_one(fold, *rest, map_one(map, load_at(p + i * stride, dtype), power));
}

// `count` elements make a result, over all passes.
#define REDUCTION_ARGUMENTS                                                                                 \
  __global const uchar *input, ulong input_offset, int dtype0, __global uchar *output, ulong output_offset, \
      int output_dtype, long outputs, long length, int map, int fold, int finish, TR power, long count

// A group reduces whole tasks (result, split). `run_items` of its items share a run of the innermost reduced
// dimension, the others take the next runs.
__kernel GROUPS_OF(LSIZE) void reduce_rows(REDUCTION_ARGUMENTS, Layout kept, Layout reduced, long splits,
                                           int run_items) {
  input += input_offset;
  output += output_offset;
  long run = reduced.sizes[0], stride = reduced.strides[0][0];
  int item = get_local_id(0);
#if LSIZE > 1
  __local T totals[LSIZE];
#endif
  GROUP_TASKS(outputs * splits, first, last);
  for (long task = first; task < last; task++) {
    long begin = 0, end = length;
    if (splits > 1) {
      begin = split_begin(length, task / outputs, splits);
      end = split_begin(length, task / outputs + 1, splits);
    }
    __global const uchar *base = input + layout_offset(&kept, 1, task);
    TV sum = identity_vector(FOLD);
    T total = identity(FOLD);
    for (long r = (splits > 1 ? begin / run : 0) + item / run_items; r * run < end; r += LSIZE / run_items) {
      long from = max(begin - r * run, 0L), to = min(end - r * run, run);
      fold_run(base + layout_run_offset(&reduced, 0, r) + from * stride, stride, to - from, item % run_items, run_items,
               DTYPE0, MAP, FOLD, power, &sum, &total);
    }
    if (run >= VEC) {
      Lanes lanes;
      lanes.vector = sum;
      // As a tree: each level folds all its pairs at once.
      for (int half_vector = VEC / 2; half_vector > 0; half_vector /= 2)
        for (int l = 0; l < half_vector; l++)
          lanes.lanes[l] = fold_one(FOLD, lanes.lanes[l], lanes.lanes[l + half_vector]);
      total = fold_one(FOLD, total, lanes.lanes[0]);
    }
#if LSIZE > 1
    totals[item] = total;
    for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_size) totals[item] = fold_one(FOLD, totals[item], totals[item + half_size]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    total = totals[0];
    // The next task must not overwrite totals[0] before every item has read it.
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (item == 0)
      store_at(output + layout_offset(&kept, 0, task), output_dtype, finish_one(finish, total, count, power));
  }
}

#ifndef IS_COMPLEX
// Folds neighbouring lanes of two vectors: the lower half of the result has those of a, the upper half those of b.
INLINE TV fold_pairs(int fold, TV a, TV b) {
#if VEC == 1
  return a;
#else
  return fold_vector(fold, (TV)(a.even, b.even), (TV)(a.odd, b.odd));
#endif
}

// Reduces `outputs` rows of `length` neighbours; rows are row_stride bytes apart. Folding a row's last vector to one
// value takes log2(VEC) dependent steps; for VEC rows together it takes VEC - 1 steps that are nearly independent. Rows
// shorter than a vector take a lane each.
__kernel void reduce_short_rows(REDUCTION_ARGUMENTS, long row_stride, long output_stride) {
  ITEM_TASKS((outputs + VEC - 1) / VEC, first, last);
  for (long task = first; task < last; task++) {
    int width = (int)min(outputs - task * VEC, (long)VEC);
    __global const uchar *rows = input + input_offset + task * VEC * row_stride;
    Lanes results;
    if (length < VEC) {
      const int size = dtype_size(DTYPE0);
      TV total = identity_vector(FOLD);
      for (long i = 0; i < length; i++)
        total =
            fold_vector(FOLD, total, map_vector(MAP, load_lanes(rows + i * size, row_stride, width, DTYPE0), power));
      results.vector = total;
    } else {
      TV totals[VEC];
  UNROLL for (int r = 0; r < VEC; r++) {
        // Rows past the last repeat the last one.
        __global const uchar *row = rows + min(r, width - 1) * row_stride;
        TV total = identity_vector(FOLD);
        long i = 0;
        for (; i + VEC <= length; i += VEC)
          total = fold_vector(FOLD, total, map_vector(MAP, load_vector(row, i, DTYPE0), power));
        if (i < length) {
          Lanes lanes;
          lanes.vector = total;
          FIRST_LANES(l, length - i)
            lanes.lanes[l] = fold_one(FOLD, lanes.lanes[l], map_one(MAP, load(row, i + l, DTYPE0), power));
          total = lanes.vector;
        }
        totals[r] = total;
      }
      for (int n = VEC / 2; n > 0; n /= 2)
        for (int r = 0; r < n; r++) totals[r] = fold_pairs(FOLD, totals[2 * r], totals[2 * r + 1]);
      results.vector = totals[0];
    }
    if (finish != FINISH_NONE)
      for (int l = 0; l < VEC; l++) results.lanes[l] = finish_one(finish, results.lanes[l], count, power);
    store_lanes(output + output_offset + task * VEC * output_stride, output_stride, width, output_dtype,
                results.vector);
  }
}
#endif

// Folds rows begin + part, begin + part + parts, ... of `width` neighbouring columns that start at `base`, into STRIP
// vectors of totals. Parts share a run of the innermost reduced dimension from its beginning.
INLINE INLINED_ON_GPUS void fold_columns(__global const uchar *base, const Layout *reduced, long begin, long end,
                                         int part, int parts, int width, long column_stride, int dtype, int map,
                                         int fold, TR power, TV *total) {
  const long run = reduced->sizes[0], stride = reduced->strides[0][0];
  TV block[CHAINS], sums[STRIP];
  int blocks = 0;
  for (int s = 0; s < STRIP; s++) total[s] = sums[s] = identity_vector(fold);
  for (long i = begin; i < end;) {
    // A block ends with its run of the innermost reduced dimension, or after CASCADE rows per part.
    long from = i % run, to = min(min(run, from + end - i), from + (long)CASCADE * parts);
    __global const uchar *p = base + layout_run_offset(reduced, 0, i / run);
    EACH_CHAIN(c) block[c] = identity_vector(fold);
    if (width == STRIP * VEC && column_stride == dtype_size(dtype)) {
      long j = from + part;
#if ROWS_AT_ONCE > 1
      for (; j + (ROWS_AT_ONCE - 1) * parts < to; j += ROWS_AT_ONCE * parts)
        EACH_CHAIN(c)
          block[c] = fold_vector(fold, block[c], map_vector(map, load_vector(p + (j + c * parts) * stride, 0, dtype), power));
      UNROLL for (int c = 1; c < ROWS_AT_ONCE; c++) block[0] = fold_vector(fold, block[0], block[c]);
#endif
      for (; j < to; j += parts)
        for (int s = 0; s < STRIP; s++)
          block[s] = fold_vector(fold, block[s], map_vector(map, load_vector(p + j * stride, s * VEC, dtype), power));
    } else {
      for (long j = from + part; j < to; j += parts) EACH_VECTOR(s, width)
      block[s] = fold_vector(fold, block[s],
                             map_vector(map,
                                        load_lanes(p + j * stride + s * VEC * column_stride, column_stride,
                                                   min(VEC, width - s * VEC), dtype),
                                        power));
    }
    for (int s = 0; s < STRIP; s++) sums[s] = fold_vector(fold, sums[s], block[s]);
    if (++blocks == CASCADE) {
      for (int s = 0; s < STRIP; s++) {
        total[s] = fold_vector(fold, total[s], sums[s]);
        sums[s] = identity_vector(fold);
      }
      blocks = 0;
    }
    i += to - from;
  }
  for (int s = 0; s < STRIP; s++) total[s] = fold_vector(fold, total[s], sums[s]);
}

// Items reduce tasks (STRIP * VEC neighbouring results, split), as in columns.cl.
__kernel GROUPS_OF(LSIZE) void reduce_columns(REDUCTION_ARGUMENTS, Layout kept, Layout reduced, long splits,
                                              int parts) {
  input += input_offset;
  output += output_offset;
  long columns = kept.sizes[0], in_stride = kept.strides[1][0], out_stride = kept.strides[0][0];
  long strips = (columns + STRIP * VEC - 1) / (STRIP * VEC);
  long rows = outputs / columns, tasks = rows * strips * splits;
#if LSIZE > 1
  __local TV totals[LSIZE];
#endif
  COLUMN_TASKS(tasks, parts, reduced.strides[0][0] < in_stride, first, last);
  for (long task = first; task < last; task++) {
    long column = task % strips * STRIP * VEC, row = task / strips, split = row / rows;
    long begin = split_begin(length, split, splits), end = split_begin(length, split + 1, splits);
    int width = IS_TASK(task, tasks) ? (int)min(columns - column, (long)STRIP * VEC) : 0;
    TV total[STRIP];
    fold_columns(input + layout_run_offset(&kept, 1, row) + column * in_stride, &reduced, begin, end, PART, PARTS,
                 width, in_stride, DTYPE0, MAP, FOLD, power, total);
#if LSIZE > 1
    totals[item] = total[0];
    FOLD_PARTS(totals[item] = fold_vector(FOLD, totals[item], totals[other]));
    total[0] = totals[item - part * apart];
    if (part > 0) continue;
#endif
    __global uchar *out = output + layout_run_offset(&kept, 0, row) + column * out_stride;
    EACH_VECTOR(s, width) {
      Lanes lanes;
      lanes.vector = total[s];
      FIRST_LANES(l, VEC) lanes.lanes[l] = finish_one(finish, lanes.lanes[l], count, power);
      store_lanes(out + s * VEC * out_stride, out_stride, min(VEC, width - s * VEC), output_dtype, lanes.vector);
    }
  }
}
