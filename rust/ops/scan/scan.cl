// Running totals along one dimension of contiguous tensors viewed as [outer, length, inner].
//
// A row (one outer, one inner position) is cut into `chunks` pieces of `chunk` elements when there are too few
// rows to fill the device: scan_totals reduces each piece, then scan_apply starts each piece from the totals
// before it. With one chunk per row, only scan_apply runs.

#ifndef LSIZE
#define LSIZE 1
#endif

#define SCAN_SUM 0
#define SCAN_PROD 1
#define SCAN_LOGSUMEXP 2

// Long rows are added one by one, so single precision totals are kept in double if the device has it.
#if defined(CLASS_F) && defined(HAS_FP64)
typedef double Total;
#elif defined(CLASS_C) && defined(HAS_FP64)
typedef double2 Total;
#else
typedef T Total;
#endif
#ifdef IS_COMPLEX
#if defined(HAS_FP64)
#define TO_TOTAL(v) ((Total)((v).x, (v).y))
#define FROM_TOTAL(v) ((T)((TR)(v).x, (TR)(v).y))
#else
#define TO_TOTAL(v) (v)
#define FROM_TOTAL(v) (v)
#endif
#else
#define TO_TOTAL(v) ((Total)(v))
#define FROM_TOTAL(v) ((T)(v))
#endif

static inline Total identity(int op) {
#ifdef IS_FLOAT
  if (op == SCAN_LOGSUMEXP) return (Total)-INFINITY;
#endif
#ifdef IS_COMPLEX
  if (op == SCAN_LOGSUMEXP) return (Total)(-INFINITY, 0);
  return (Total)(op == SCAN_PROD, 0);
#else
  return (Total)(op == SCAN_PROD);
#endif
}

#ifdef IS_COMPLEX
// 0 if the real part is -inf, even if the phase is not finite; real if the phase is 0, even if it overflows.
static inline Total complex_exp(Total z) {
  if (z.x == -INFINITY) return (Total)(0, 0);
  return (Total)(exp(z.x) * cos(z.y), z.y == 0 ? 0 : exp(z.x) * sin(z.y));
}

// log(exp(a) + exp(b)), from the value with the larger real part; `a` is the accumulated one. exp(-inf) is 0 for any
// phase, and equal infinities would give inf - inf.
static inline Total log_sum_exp(Total a, Total b) {
  if (isnan(a.x) || isnan(a.y) || isnan(b.x) || isnan(b.y)) return (Total)(NAN, NAN);
  if (b.x == -INFINITY) return a;
  if (a.x == -INFINITY) return b;
  const Total low = a.x <= b.x ? a : b, high = a.x <= b.x ? b : a;
  if (isinf(low.x) && low.x == high.x) {
    const Total sum = complex_exp(a) + complex_exp(b);
    return (Total)(log(hypot(sum.x, sum.y)), atan2(sum.y, sum.x));
  }
  const Total z = complex_exp(low - high);
  // log(1 + z), without loss of digits if z is small.
  return high + (Total)(log1p(z.x * (2 + z.x) + z.y * z.y) / 2, atan2(z.y, 1 + z.x));
}
#endif

static inline Total accumulate(int op, Total a, Total b) {
#ifdef IS_COMPLEX
  if (op == SCAN_LOGSUMEXP) return log_sum_exp(a, b);
  if (op == SCAN_PROD) return (Total)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
#else
  if (op == SCAN_PROD) return a * b;
#endif
#ifdef IS_FLOAT
  if (op == SCAN_LOGSUMEXP) {
    Total low = a < b ? a : b, high = a < b ? b : a;
    // Equal infinities would give inf - inf; a NaN takes the other branch.
    return low == high && isinf(low) ? high : high + log1p(exp(low - high));
  }
#endif
  return a + b;
}

// Sums and products may be regrouped if totals are wider than elements, or wrap around: then not every operation must
// wait for the previous one.
#if defined(IS_CPU) && (defined(IS_INTEGER) || (defined(CLASS_F) && defined(HAS_FP64)))
#define REGROUPS
#endif

// Element i of a row, and the total up to it.
#define ELEMENT(i) TO_TOTAL(load(input + input_offset, start + (i) * inner, DTYPE0))
#define STORE_TOTAL(i, total) store(out + out_offset, start + (i) * inner, DTYPE0, FROM_TOTAL(total))

// First element of a row, in elements. Avoids 64-bit divisions, which would take as long as the totals of a short row.
static inline long row_start(long row, long length, long inner) {
  return inner == 1 ? row * length : row / inner * length * inner + row % inner;
}

static inline long row_of(long item, long chunks) { return chunks == 1 ? item : item / chunks; }

#define SCAN_ARGUMENTS int op, int dtype0, long length, long inner, long chunks, long chunk

// The total of the piece from `begin` to `end`.
static inline __attribute__((always_inline)) Total total_of(__global const uchar *input, ulong input_offset, long start,
                                                            long begin, long end, long inner, int op, int dtype0) {
  Total total = identity(OP);
  long i = begin;
#ifdef REGROUPS
  Total second = total, third = total, fourth = total;
  for (; OP != SCAN_LOGSUMEXP && i + 4 <= end; i += 4) {
    total = accumulate(OP, total, ELEMENT(i));
    second = accumulate(OP, second, ELEMENT(i + 1));
    third = accumulate(OP, third, ELEMENT(i + 2));
    fourth = accumulate(OP, fourth, ELEMENT(i + 3));
  }
  total = accumulate(OP, accumulate(OP, total, second), accumulate(OP, third, fourth));
#endif
  for (; i < end; i++) total = accumulate(OP, total, ELEMENT(i));
  return total;
}

// Stores the totals of the piece, which continue `total`.
static inline __attribute__((always_inline)) void apply(__global uchar *out, ulong out_offset,
                                                        __global const uchar *input, ulong input_offset, long start,
                                                        long begin, long end, long inner, Total total, int op,
                                                        int dtype0) {
  long i = begin;
#ifdef REGROUPS
  for (; OP != SCAN_LOGSUMEXP && i + 4 <= end; i += 4) {
    const Total one = ELEMENT(i), two = accumulate(OP, one, ELEMENT(i + 1));
    const Total last = ELEMENT(i + 2), three = accumulate(OP, two, last);
    const Total four = accumulate(OP, two, accumulate(OP, last, ELEMENT(i + 3)));
    STORE_TOTAL(i, accumulate(OP, total, one));
    STORE_TOTAL(i + 1, accumulate(OP, total, two));
    STORE_TOTAL(i + 2, accumulate(OP, total, three));
    total = accumulate(OP, total, four);
    STORE_TOTAL(i + 3, total);
  }
#endif
  for (; i < end; i++) {
    total = accumulate(OP, total, ELEMENT(i));
    STORE_TOTAL(i, total);
  }
}

// Generic programs for CPUs have code for rows of the most common dtype: checks for each element take four times as
// long as the sums (cumsum of [512, 512] of float, 1.0 ms, PoCL, 2 cores).
#if defined(IS_CPU) && defined(REGROUPS) && !defined(SPEC_DTYPE0)
#ifdef IS_INTEGER
#define USUAL_DTYPE DT_I64
#else
#define USUAL_DTYPE DT_F32
#endif
#define IS_USUAL(op) (op == SCAN_SUM && dtype0 == USUAL_DTYPE && inner == 1)
#endif

__kernel void scan_totals(__global const uchar *input, ulong input_offset, __global uchar *totals, ulong totals_offset,
                          SCAN_ARGUMENTS) {
  long item = get_global_id(0);
  const long row = row_of(item, chunks), piece = item - row * chunks;
  long start = row_start(row, length, inner);
  long begin = piece * chunk, end = min(begin + chunk, length);
  __global Total *const total = (__global Total *)(totals + totals_offset) + item;
#ifdef USUAL_DTYPE
  if (IS_USUAL(op)) {
    *total = total_of(input, input_offset, start, begin, end, 1, SCAN_SUM, USUAL_DTYPE);
    return;
  }
#endif
  *total = total_of(input, input_offset, start, begin, end, inner, OP, DTYPE0);
}

__kernel void scan_apply(__global uchar *out, ulong out_offset, __global const uchar *input, ulong input_offset,
                         __global const uchar *totals, ulong totals_offset, SCAN_ARGUMENTS) {
  long item = get_global_id(0);
  const long row = row_of(item, chunks), piece = item - row * chunks;
  long start = row_start(row, length, inner);
  long begin = piece * chunk, end = min(begin + chunk, length);
  Total total = identity(OP);
  for (long c = item - piece; c < item; c++)
    total = accumulate(OP, total, ((__global const Total *)(totals + totals_offset))[c]);
#ifdef USUAL_DTYPE
  if (IS_USUAL(op)) {
    apply(out, out_offset, input, input_offset, start, begin, end, 1, total, SCAN_SUM, USUAL_DTYPE);
    return;
  }
#endif
  apply(out, out_offset, input, input_offset, start, begin, end, inner, total, OP, DTYPE0);
}

#ifdef IS_CPU
// Scans rows without chunks: an item takes SCAN_COLUMNS neighbouring rows of an outer position, whose elements are
// adjacent.
#define SCAN_COLUMNS 16

__kernel void scan_columns(__global uchar *out, ulong out_offset, __global const uchar *input, ulong input_offset,
                           SCAN_ARGUMENTS) {
  const long strips = (inner + SCAN_COLUMNS - 1) / SCAN_COLUMNS, item = get_global_id(0);
  const long column = item % strips * SCAN_COLUMNS, first = item / strips * length * inner + column;
  const int width = (int)min((long)SCAN_COLUMNS, inner - column);
  Total totals[SCAN_COLUMNS];
  for (int c = 0; c < SCAN_COLUMNS; c++) totals[c] = identity(OP);
  for (long at = first; at < first + length * inner; at += inner) {
    if (width == SCAN_COLUMNS) {
      for (int c = 0; c < SCAN_COLUMNS; c++)
        totals[c] = accumulate(OP, totals[c], TO_TOTAL(load(input + input_offset, at + c, DTYPE0)));
      for (int c = 0; c < SCAN_COLUMNS; c++) store(out + out_offset, at + c, DTYPE0, FROM_TOTAL(totals[c]));
      continue;
    }
    for (int c = 0; c < width; c++) {
      totals[c] = accumulate(OP, totals[c], TO_TOTAL(load(input + input_offset, at + c, DTYPE0)));
      store(out + out_offset, at + c, DTYPE0, FROM_TOTAL(totals[c]));
    }
  }
}
#endif

#if LSIZE > 1
// Scans for GPUs and inner == 1: a group takes a piece, its items take neighbouring elements.

// Scans the values of all items; `shared` holds LSIZE values. Returns the total of the previous items, and stores the
// total of all items in *all.
static inline Total scan_items(int op, Total value, __local Total *shared, Total *all) {
  int item = get_local_id(0);
  shared[item] = value;
  for (int step = 1; step < LSIZE; step *= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= step) value = accumulate(op, shared[item - step], value);
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[item] = value;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  *all = shared[LSIZE - 1];
  Total before = item > 0 ? shared[item - 1] : identity(op);
  // The next use must not overwrite what another item has yet to read.
  barrier(CLK_LOCAL_MEM_FENCE);
  return before;
}

// Neighbouring elements of an item. A group copies the elements of all its items to local memory, with coalesced loads:
// a tile. One slot in 32 is padding, as otherwise every fourth item would have a bank conflict.
#define RUN 4
#define TILE (LSIZE * RUN)
#define SLOT(i) ((i) + ((i) >> 5))
#define TILE_SLOTS (SLOT(TILE - 1) + 1)

// Loads elements [first, first + count) into `tile`, and returns the total of an item's own elements.
static inline Total load_tile(__local T *tile, __global const uchar *input, long first, int count, int op, int dt) {
  for (int i = get_local_id(0); i < count; i += LSIZE) tile[SLOT(i)] = load(input, first + i, dt);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int own = get_local_id(0) * RUN;
  Total run = identity(op);
  UNROLL for (int i = own; i < own + RUN; i++)
    if (i < count) run = accumulate(op, run, TO_TOTAL(tile[SLOT(i)]));
  return run;
}

__kernel GROUPS_OF(LSIZE) void scan_group_totals(__global const uchar *input, ulong input_offset, __global uchar *totals,
                                                 ulong totals_offset, SCAN_ARGUMENTS) {
  __local Total shared[LSIZE];
  __local T tile[TILE_SLOTS];
  long group = get_group_id(0), start = group / chunks * length;
  long begin = group % chunks * chunk, end = min(begin + chunk, length);
  Total total = identity(OP), all;
  // Items keep the order of the elements, which a sum of neighbours would not.
  for (long block = begin; block < end; block += TILE) {
    const int count = (int)min((long)TILE, end - block);
    scan_items(OP, load_tile(tile, input + input_offset, start + block, count, OP, DTYPE0), shared, &all);
    total = accumulate(OP, total, all);
  }
  if (get_local_id(0) == 0) ((__global Total *)(totals + totals_offset))[group] = total;
}

__kernel GROUPS_OF(LSIZE) void scan_group_apply(__global uchar *out, ulong out_offset, __global const uchar *input,
                                                ulong input_offset, __global const uchar *totals, ulong totals_offset,
                                                SCAN_ARGUMENTS) {
  __local Total shared[LSIZE];
  __local T tile[TILE_SLOTS];
  long group = get_group_id(0), start = group / chunks * length;
  long begin = group % chunks * chunk, end = min(begin + chunk, length);
  Total total = identity(OP), all;
  __global const Total *before = (__global const Total *)(totals + totals_offset) + (group - group % chunks);
  for (long c = 0; c < group % chunks; c += LSIZE) {
    long at = c + get_local_id(0);
    scan_items(OP, at < group % chunks ? before[at] : identity(OP), shared, &all);
    total = accumulate(OP, total, all);
  }
  for (long block = begin; block < end; block += TILE) {
    const int count = (int)min((long)TILE, end - block), own = get_local_id(0) * RUN;
    Total run = load_tile(tile, input + input_offset, start + block, count, OP, DTYPE0);
    run = accumulate(OP, total, scan_items(OP, run, shared, &all));
    total = accumulate(OP, total, all);
    UNROLL for (int i = own; i < own + RUN; i++) {
      if (i >= count) continue;
      run = accumulate(OP, run, TO_TOTAL(tile[SLOT(i)]));
      tile[SLOT(i)] = FROM_TOTAL(run);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_local_id(0); i < count; i += LSIZE) store(out + out_offset, start + block + i, DTYPE0, tile[SLOT(i)]);
    // The next tile must not overwrite what another item has yet to store.
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#endif

#ifndef IS_COMPLEX
// Running maximum or minimum and its index: the last of equal elements; a NaN stays. One work-item per row.
__kernel void scan_extreme(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                           __global const uchar *input, ulong input_offset, int dtype0, long length, long inner,
                           int largest) {
  long start = row_start(get_global_id(0), length, inner);
  T best = load(input + input_offset, start, DTYPE0);
  long where = 0;
  for (long i = 0; i < length; i++) {
    long at = start + i * inner;
    T v = load(input + input_offset, at, DTYPE0);
    if (IS_NAN(v) || (!IS_NAN(best) && (largest ? v >= best : v <= best))) {
      best = v;
      where = i;
    }
    store(values + values_offset, at, DTYPE0, best);
    ((__global long *)(indices + indices_offset))[at] = where;
  }
}

#if LSIZE > 1
// Returns true if the extreme b of later elements replaces the extreme a of earlier ones; index -1 means no elements.
static inline bool takes_over(T a, long a_index, T b, long b_index, int largest) {
  return b_index >= 0 && (a_index < 0 || IS_NAN(b) || (!IS_NAN(a) && (largest ? b >= a : b <= a)));
}

// Computes scan_extreme for contiguous rows: a group takes a row, its items take neighbouring elements.
__kernel GROUPS_OF(LSIZE) void scan_group_extreme(__global uchar *values, ulong values_offset, __global uchar *indices,
                                                  ulong indices_offset, __global const uchar *input, ulong input_offset,
                                                  int dtype0, long length, long inner, int largest) {
  __local T best_of[LSIZE];
  __local long index_of[LSIZE];
  int item = get_local_id(0);
  long start = get_group_id(0) * length;
  T before = 0;
  long before_index = -1;
  for (long block = 0; block < length; block += LSIZE) {
    long i = block + item;
    T best = i < length ? load(input + input_offset, start + i, DTYPE0) : (T)0;
    long index = i < length ? i : -1;
    for (int step = 1; step < LSIZE; step *= 2) {
      best_of[item] = best;
      index_of[item] = index;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item >= step && !takes_over(best_of[item - step], index_of[item - step], best, index, largest)) {
        best = best_of[item - step];
        index = index_of[item - step];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (!takes_over(before, before_index, best, index, largest)) {
      best = before;
      index = before_index;
    }
    best_of[item] = best;
    index_of[item] = index;
    barrier(CLK_LOCAL_MEM_FENCE);
    before = best_of[LSIZE - 1];
    before_index = index_of[LSIZE - 1];
    // The next block must not overwrite them before every item has read them.
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < length) {
      store(values + values_offset, start + i, DTYPE0, best);
      ((__global long *)(indices + indices_offset))[start + i] = index;
    }
  }
}
#endif
#endif
