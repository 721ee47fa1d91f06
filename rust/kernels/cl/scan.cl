// Running totals along one dimension of contiguous tensors seen as [outer, length, inner].
//
// A row (one outer, one inner position) is cut into `chunks` pieces of `chunk` elements when there are too few
// rows to fill the device: scan_totals reduces each piece, then scan_apply starts each piece from the totals
// before it. With one chunk a row scan_apply is all that runs.

#define SCAN_SUM 0
#define SCAN_PROD 1
#define SCAN_LOGSUMEXP 2

// Long rows are added one by one, so single precision totals are kept in double where the device has it.
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

inline Total identity(int op) {
#ifdef IS_FLOAT
  if (op == SCAN_LOGSUMEXP) return (Total)-INFINITY;
#endif
#ifdef IS_COMPLEX
  return (Total)(op == SCAN_PROD, 0);
#else
  return (Total)(op == SCAN_PROD);
#endif
}

inline Total accumulate(int op, Total a, Total b) {
#ifdef IS_COMPLEX
  if (op == SCAN_PROD) return (Total)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
#else
  if (op == SCAN_PROD) return a * b;
#endif
#ifdef IS_FLOAT
  if (op == SCAN_LOGSUMEXP) {
    Total low = a < b ? a : b, high = a < b ? b : a;
    // Equal infinities would give inf - inf; a NaN takes the other way.
    return low == high && isinf(low) ? high : high + log1p(exp(low - high));
  }
#endif
  return a + b;
}

// First element of a row, in elements.
inline long row_start(long row, long length, long inner) { return row / inner * length * inner + row % inner; }

__kernel void scan_totals(__global const uchar *in, ulong in_offset, __global uchar *totals, ulong totals_offset,
                          int op, int dtype0, long length, long inner, long chunks, long chunk) {
  long item = get_global_id(0);
  long start = row_start(item / chunks, length, inner);
  long begin = item % chunks * chunk, end = min(begin + chunk, length);
  Total total = identity(OP);
  for (long i = begin; i < end; i++)
    total = accumulate(OP, total, TO_TOTAL(load(in + in_offset, start + i * inner, DTYPE0)));
  ((__global Total *)(totals + totals_offset))[item] = total;
}

__kernel void scan_apply(__global uchar *out, ulong out_offset, __global const uchar *in, ulong in_offset,
                         __global const uchar *totals, ulong totals_offset, int op, int dtype0, long length, long inner,
                         long chunks, long chunk) {
  long item = get_global_id(0);
  long start = row_start(item / chunks, length, inner);
  long begin = item % chunks * chunk, end = min(begin + chunk, length);
  Total total = identity(OP);
  for (long c = item - item % chunks; c < item; c++)
    total = accumulate(OP, total, ((__global const Total *)(totals + totals_offset))[c]);
  for (long i = begin; i < end; i++) {
    long at = start + i * inner;
    total = accumulate(OP, total, TO_TOTAL(load(in + in_offset, at, DTYPE0)));
    store(out + out_offset, at, DTYPE0, FROM_TOTAL(total));
  }
}

#ifndef IS_COMPLEX
// Running maximum or minimum and where it was met: the last place among equals; a NaN stays. One work-item a row.
__kernel void scan_extreme(__global uchar *values, ulong values_offset, __global uchar *indices, ulong indices_offset,
                           __global const uchar *in, ulong in_offset, int dtype0, long length, long inner,
                           int largest) {
  long start = row_start(get_global_id(0), length, inner);
  T best = load(in + in_offset, start, DTYPE0);
  long where = 0;
  for (long i = 0; i < length; i++) {
    long at = start + i * inner;
    T v = load(in + in_offset, at, DTYPE0);
    if (IS_NAN(v) || (!IS_NAN(best) && (largest ? v >= best : v <= best))) {
      best = v;
      where = i;
    }
    store(values + values_offset, at, DTYPE0, best);
    ((__global long *)(indices + indices_offset))[at] = where;
  }
}
#endif
