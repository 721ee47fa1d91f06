// Softmax and log-softmax, forward and backward (CLASS_F and CLASS_D).
//
// Tensors are contiguous and viewed as [outer, length, inner], with the softmax along `length`.
//
//   *_rows     inner == 1: a group takes whole rows, its lanes and items share a row
//   *_columns  inner > 1: items take strips of neighbouring columns as in columns.cl, each lane owns a column

#ifdef SPEC_LOG
#define IS_LOG SPEC_LOG
#else
#define IS_LOG is_log
#endif

INLINE T largest(TV v) {
  Lanes lanes;
  lanes.vector = v;
  T top = lanes.lanes[0];
  for (int l = 1; l < VEC; l++) top = lanes.lanes[l] > top ? lanes.lanes[l] : top;
  return top;
}

// exp of x <= 0, 1.2 ulp with fma; results that are not normal numbers become 0. It takes a third of the time of PoCL's exp,
// which supports every x: 2^n times a polynomial, fitted to exp within log(2) / 2 of 0. Adding 1.5 * 2^23 + 127 rounds
// to n, and leaves the exponent of 2^n in the lowest bits of the sum: PoCL's rint takes a dozen instructions. The product
// with 2^n keeps a NaN; adding n to its bits would make a number of it.
#if defined(CLASS_F) && VEC > 1
INLINE TV exp_below(TV x) {
  TV shifted = FMA_OR_MAD(x, (TV)1.44269504f, (TV)12583039.0f);
  TV n = shifted - 12583039.0f;
  TV r = FMA_OR_MAD(n, (TV)-1.42860677e-06f, FMA_OR_MAD(n, (TV)-0.693145752f, x));
  TV p = FMA_OR_MAD(r, (TV)1.98756915e-04f, (TV)1.39819995e-03f);
  p = FMA_OR_MAD(p, r, (TV)8.33345191e-03f);
  p = FMA_OR_MAD(p, r, (TV)4.16657959e-02f);
  p = FMA_OR_MAD(p, r, (TV)1.66666655e-01f);
  p = FMA_OR_MAD(p, r, (TV)5.00000012e-01f);
  p = FMA_OR_MAD(p, r * r, r) + 1;
  TV power = PASTE(as_, PASTE(T_NAME, VEC))(PASTE(as_, PASTE(TM_NAME, VEC))(shifted) << 23);
  return x < -87.0f ? (TV)0 : p * power;
}
#else
#define exp_below exp
#endif

// Exponentials of a row that an item stores rather than computes twice: 16 KiB of L1. The items of a group would need
// local memory that other groups need.
#if LSIZE == 1
#define STORED_EXPONENTIALS 4096
#else
#define STORED_EXPONENTIALS 0
#endif
INLINE TV load_private(const T *values, long i) {
#if VEC == 1
  return values[i];
#else
  return VLOAD(0, values + i);
#endif
}
INLINE void store_private(T *values, long i, TV value) {
#if VEC == 1
  values[i] = value;
#else
  ((PASTE(Unaligned_, T_NAME) *)(values + i))->v = value;
#endif
}

// One term of the sum that every gradient of a row needs, and one gradient.
#define GRADIENT_TERM(g, y) (IS_LOG ? (g) : (g) * (y))
#define GRADIENT(g, y, sum) (IS_LOG ? (g) - exp(y) * (sum) : (y) * ((g) - (sum)))

// Rows no longer than a vector, on CPUs: VEC of them at a time, a lane each. A vector for each row would load and store
// its elements one by one, and leave lanes idle; VEC consecutive rows are `length` whole vectors, which are transposed
// in private memory.
#if defined(IS_CPU) && LSIZE == 1 && VEC > 1
#define HAS_SHORT_ROWS

// Elements i of `rows` rows as vector i.
INLINE void load_short_rows(__global const uchar *p, int rows, int length, int dtype, TV *columns) {
  T values[VEC * VEC];
  if (rows == VEC) {
    for (int i = 0; i < length; i++) store_private(values, i * VEC, load_vector(p, i * VEC, dtype));
  } else {
    for (int i = 0; i < VEC * length; i++) values[i] = i < rows * length ? load(p, i, dtype) : 0;
  }
  for (int i = 0; i < length; i++) {
    Lanes column;
    for (int l = 0; l < VEC; l++) column.lanes[l] = values[l * length + i];
    columns[i] = column.vector;
  }
}

INLINE void store_short_rows(__global uchar *p, int rows, int length, int dtype, const TV *columns) {
  T values[VEC * VEC];
  for (int i = 0; i < length; i++) {
    Lanes column;
    column.vector = columns[i];
    for (int l = 0; l < VEC; l++) values[l * length + i] = column.lanes[l];
  }
  if (rows == VEC) {
    for (int i = 0; i < length; i++) store_vector(p, i * VEC, dtype, load_private(values, i * VEC));
  } else {
    for (int i = 0; i < rows * length; i++) store(p, i, dtype, values[i]);
  }
}

INLINE void short_softmax(__global const uchar *x, int dtype0, __global uchar *y, int dtype1, int rows, int length,
                          int is_log) {
  TV columns[VEC], top = (TV)-INFINITY, sum = (TV)0;
  load_short_rows(x, rows, length, DTYPE0, columns);
  for (int i = 0; i < length; i++) top = larger(top, columns[i]);
  for (int i = 0; i < length; i++) {
    TV below = columns[i] - top, e = exp_below(below);
    columns[i] = IS_LOG ? below : e;
    sum += e;
  }
  TV scale = IS_LOG ? log(sum) : 1 / sum;
  for (int i = 0; i < length; i++) columns[i] = IS_LOG ? columns[i] - scale : columns[i] * scale;
  store_short_rows(y, rows, length, DTYPE1, columns);
}

INLINE void short_softmax_backward(__global const uchar *g, int dtype0, __global const uchar *y, int dtype1,
                                   __global uchar *dx, int dtype2, int rows, int length, int is_log) {
  TV grads[VEC], results[VEC], sum = (TV)0;
  load_short_rows(g, rows, length, DTYPE0, grads);
  load_short_rows(y, rows, length, DTYPE1, results);
  for (int i = 0; i < length; i++) sum += GRADIENT_TERM(grads[i], results[i]);
  for (int i = 0; i < length; i++) grads[i] = GRADIENT(grads[i], results[i], sum);
  store_short_rows(dx, rows, length, DTYPE2, grads);
}

// If rows are short, runs CODE for `rows` of them from `row` on, and returns from the kernel.
#define SHORT_ROWS(CODE)                                         \
  if (length <= VEC) {                                           \
    GROUP_TASKS((outer + VEC - 1) / VEC, first, last);           \
    for (long row = first * VEC; row < last * VEC; row += VEC) { \
      const int rows = (int)min(outer - row, (long)VEC);         \
      CODE;                                                      \
    }                                                            \
    return;                                                      \
  }
#else
#define SHORT_ROWS(CODE)
#endif

#define SOFTMAX_ARGUMENTS                                                                                   \
  __global const uchar *input, ulong input_offset, int dtype0, __global uchar *output, ulong output_offset, \
      int dtype1, long outer, long length, int is_log

__kernel GROUPS_OF(LSIZE) void softmax_rows(SOFTMAX_ARGUMENTS) {
  SHORT_ROWS(short_softmax(input + input_offset + row * length * dtype_size(DTYPE0), dtype0,
                           output + output_offset + row * length * dtype_size(DTYPE1), dtype1, rows, (int)length,
                           is_log))
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC;
  bool stores_exponentials = STORED_EXPONENTIALS > 0 && length <= STORED_EXPONENTIALS;
  T exponentials[STORED_EXPONENTIALS + VEC];
  GROUP_SHARED(shared);
  GROUP_TASKS(outer, first, last);
  for (long row = first; row < last; row++) {
    __global const uchar *x = input + input_offset + row * length * dtype_size(DTYPE0);
    __global uchar *y = output + output_offset + row * length * dtype_size(DTYPE1);
    TV tops = (TV)-INFINITY;
    for (long i = first_part; i < length; i += step) tops = larger(tops, load_part(x, i, length, DTYPE0, -INFINITY));
    T top = group_max(largest(tops), shared);
    TV sums = (TV)0;
    for (long i = first_part; i < length; i += step) {
      TV e = exp_below(load_part(x, i, length, DTYPE0, -INFINITY) - top);
      if (stores_exponentials && !IS_LOG) store_private(exponentials, i, e);
      sums += e;
    }
    T sum = group_sum(lanes_sum(sums), shared);
    if (IS_LOG) {
      // Two subtractions: top + log(sum) would round away log(sum) next to a large top.
      T log_denominator = log(sum);
      for (long i = first_part; i < length; i += step)
        store_part(y, i, length, DTYPE1, load_part(x, i, length, DTYPE0, 0) - top - log_denominator);
    } else {
      T scale = 1 / sum;
      for (long i = first_part; i < length; i += step) {
        TV e = stores_exponentials ? load_private(exponentials, i)
                                   : exp_below(load_part(x, i, length, DTYPE0, -INFINITY) - top);
        store_part(y, i, length, DTYPE1, e * scale);
      }
    }
  }
}

// STRIP is the most vectors of columns that an item takes along `length` together, `strip` how many it does take. A
// row's piece is then long enough for hardware prefetching: 1024 x 4096 takes half the time of single vectors.
// Rows of a block: their maximum is found before their exponentials are added up, with one rescaling for all of them.
#define BLOCK 8
// The index of vector v in the private arrays of a strip that begins at vector `begin`. Compilers keep an array in
// registers only if all its indices are constants.
#define STRIP_INDEX(v) (STRIP == 1 ? 0 : (int)((v) - begin) * VEC)

#if LSIZE > 1
// Joins two parts of columns: their maximum, and the sums of their exponentials relative to it.
INLINE void join_sums(__local TV *tops, __local TV *sums, int item, int other) {
  TV top = larger(tops[item], tops[other]), base = top == (TV)-INFINITY ? (TV)0 : top;
  sums[item] = sums[item] * exp_below(tops[item] - base) + sums[other] * exp_below(tops[other] - base);
  tops[item] = top;
}
#endif

__kernel GROUPS_OF(LSIZE) void softmax_columns(SOFTMAX_ARGUMENTS, long inner, long strip, int parts) {
  long vectors = (inner + VEC - 1) / VEC;
  long strips = (vectors + strip - 1) / strip;
  int in_size = dtype_size(DTYPE0), out_size = dtype_size(DTYPE1);
  long row_size = inner * PARTS * in_size;
  T tops[STRIP * VEC], sums[STRIP * VEC];
#if LSIZE > 1
  __local TV top_of[LSIZE], sum_of[LSIZE];
#endif
  COLUMN_TASKS(outer * strips, parts, inner == 1, first, last);
  for (long task = first; task < last; task++) {
    long begin = task % strips * strip, end = min(begin + strip, vectors), start = task / strips * length * inner;
    __global const uchar *x = input + input_offset + start * in_size;
    __global uchar *y = output + output_offset + start * out_size;
    if (!IS_TASK(task, outer * strips)) end = begin;
    for (long i = PART; i < length; i += BLOCK * PARTS) {
      long rows = min((long)BLOCK, (length - i + PARTS - 1) / PARTS);
      for (long v = begin; v < end; v++) {
        int width = (int)min(inner - v * VEC, (long)VEC), at = STRIP_INDEX(v);
        __global const uchar *p = x + (i * inner + v * VEC) * in_size;
        TV old = i == PART ? (TV)-INFINITY : load_private(tops, at), top = old;
        for (int r = 0; r < rows; r++) top = larger(top, load_lanes(p + r * row_size, in_size, width, DTYPE0));
        // If all are -inf so far, their sum is 0, and not exp(-inf + inf).
        TV base = top == (TV)-INFINITY ? (TV)0 : top;
        TV sum = i == PART ? (TV)0 : load_private(sums, at) * exp_below(old - base);
        for (int r = 0; r < rows; r++) sum += exp_below(load_lanes(p + r * row_size, in_size, width, DTYPE0) - base);
        store_private(tops, at, top);
        store_private(sums, at, sum);
      }
    }
#if LSIZE > 1
    const bool has_any = begin < end && part < length;
    top_of[item] = has_any ? load_private(tops, 0) : (TV)-INFINITY;
    sum_of[item] = has_any ? load_private(sums, 0) : (TV)0;
    FOLD_PARTS(join_sums(top_of, sum_of, item, other));
    store_private(tops, 0, top_of[item - part * apart]);
    store_private(sums, 0, sum_of[item - part * apart]);
#endif
    for (long v = begin; v < end; v++) {
      TV sum = load_private(sums, STRIP_INDEX(v));
      store_private(sums, STRIP_INDEX(v), IS_LOG ? log(sum) : 1 / sum);
    }
    for (long i = PART; i < length; i += PARTS)
      for (long v = begin; v < end; v++) {
        int width = (int)min(inner - v * VEC, (long)VEC), at = STRIP_INDEX(v);
        TV d = load_lanes(x + (i * inner + v * VEC) * in_size, in_size, width, DTYPE0) - load_private(tops, at);
        TV scale = load_private(sums, at);
        store_lanes(y + (i * inner + v * VEC) * out_size, out_size, width, DTYPE1,
                    IS_LOG ? d - scale : exp_below(d) * scale);
      }
  }
}

#define SOFTMAX_BACKWARD_ARGUMENTS                                                                              \
  __global const uchar *grad, ulong grad_offset, int dtype0, __global const uchar *output, ulong output_offset, \
      int dtype1, __global uchar *grad_input, ulong grad_input_offset, int dtype2, long outer, long length, int is_log

__kernel GROUPS_OF(LSIZE) void softmax_backward_rows(SOFTMAX_BACKWARD_ARGUMENTS) {
  SHORT_ROWS(short_softmax_backward(grad + grad_offset + row * length * dtype_size(DTYPE0), dtype0,
                                    output + output_offset + row * length * dtype_size(DTYPE1), dtype1,
                                    grad_input + grad_input_offset + row * length * dtype_size(DTYPE2), dtype2, rows,
                                    (int)length, is_log))
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC;
  GROUP_SHARED(shared);
  GROUP_TASKS(outer, first, last);
  for (long row = first; row < last; row++) {
    __global const uchar *g = grad + grad_offset + row * length * dtype_size(DTYPE0);
    __global const uchar *y = output + output_offset + row * length * dtype_size(DTYPE1);
    __global uchar *dx = grad_input + grad_input_offset + row * length * dtype_size(DTYPE2);
    TV sums = (TV)0;
    for (long i = first_part; i < length; i += step)
      sums += GRADIENT_TERM(load_part(g, i, length, DTYPE0, 0), load_part(y, i, length, DTYPE1, 0));
    T sum = group_sum(lanes_sum(sums), shared);
    for (long i = first_part; i < length; i += step) {
      TV gv = load_part(g, i, length, DTYPE0, 0), yv = load_part(y, i, length, DTYPE1, 0);
      store_part(dx, i, length, DTYPE2, GRADIENT(gv, yv, sum));
    }
  }
}

__kernel GROUPS_OF(LSIZE) void softmax_backward_columns(SOFTMAX_BACKWARD_ARGUMENTS, long inner, long strip, int parts) {
  long vectors = (inner + VEC - 1) / VEC;
  long strips = (vectors + strip - 1) / strip;
  int grad_size = dtype_size(DTYPE0), out_size = dtype_size(DTYPE1), size = dtype_size(DTYPE2);
  T sums[STRIP * VEC];
#if LSIZE > 1
  __local TV sum_of[LSIZE];
#endif
  COLUMN_TASKS(outer * strips, parts, inner == 1, first, last);
  for (long task = first; task < last; task++) {
    long begin = task % strips * strip, end = min(begin + strip, vectors), start = task / strips * length * inner;
    __global const uchar *g = grad + grad_offset + start * grad_size;
    __global const uchar *y = output + output_offset + start * out_size;
    __global uchar *dx = grad_input + grad_input_offset + start * size;
    if (!IS_TASK(task, outer * strips)) end = begin;
    for (long v = begin; v < end; v++) store_private(sums, STRIP_INDEX(v), (TV)0);
    for (long i = PART; i < length; i += PARTS)
      for (long v = begin; v < end; v++) {
        long offset = i * inner + v * VEC;
        int width = (int)min(inner - v * VEC, (long)VEC), at = STRIP_INDEX(v);
        TV gv = load_lanes(g + offset * grad_size, grad_size, width, DTYPE0);
        TV yv = load_lanes(y + offset * out_size, out_size, width, DTYPE1);
        store_private(sums, at, load_private(sums, at) + GRADIENT_TERM(gv, yv));
      }
#if LSIZE > 1
    sum_of[item] = begin < end ? load_private(sums, 0) : (TV)0;
    FOLD_PARTS(sum_of[item] += sum_of[other]);
    store_private(sums, 0, sum_of[item - part * apart]);
#endif
    for (long i = PART; i < length; i += PARTS)
      for (long v = begin; v < end; v++) {
        long offset = i * inner + v * VEC;
        int width = (int)min(inner - v * VEC, (long)VEC);
        TV gv = load_lanes(g + offset * grad_size, grad_size, width, DTYPE0);
        TV yv = load_lanes(y + offset * out_size, out_size, width, DTYPE1);
        TV sum = load_private(sums, STRIP_INDEX(v));
        store_lanes(dx + offset * size, size, width, DTYPE2, GRADIENT(gv, yv, sum));
      }
  }
}
