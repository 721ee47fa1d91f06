// Softmax and log-softmax, forward and backward (CLASS_F and CLASS_D).
//
// Tensors are contiguous and seen as [outer, length, inner], with the softmax along `length`.
//
//   *_rows     inner == 1: a group takes whole rows, its lanes and items share one
//   *_columns  inner > 1: an item takes VEC neighbouring columns, each lane owns one

#ifdef SPEC_LOG
#define IS_LOG SPEC_LOG
#else
#define IS_LOG is_log
#endif

// The larger by lane; NaN wins.
INLINE TV max_lanes(TV a, TV b) { return ((b > a) | (b != b)) ? b : a; }

__kernel void softmax_rows(__global const uchar *input, ulong input_offset, int dtype0, __global uchar *output,
                           ulong output_offset, int dtype1, long rows, long length, int is_log) {
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC;
  GROUP_SHARED(shared);
  GROUP_TASKS(rows, first, last);
  for (long row = first; row < last; row++) {
    __global const uchar *x = input + input_offset + row * length * dtype_size(DTYPE0);
    __global uchar *y = output + output_offset + row * length * dtype_size(DTYPE1);
    TV tops = (TV)-INFINITY;
    for (long i = first_part; i < length; i += step)
      tops = max_lanes(tops, load_part(x, i, length, DTYPE0, -INFINITY));
    T top = group_max(lanes_max(tops), shared);
    TV sums = (TV)0;
    for (long i = first_part; i < length; i += step) sums += exp(load_part(x, i, length, DTYPE0, -INFINITY) - top);
    T sum = group_sum(lanes_sum(sums), shared);
    if (IS_LOG) {
      // Two subtractions: top + log(sum) would round away log(sum) beside a large top.
      T log_sum = log(sum);
      for (long i = first_part; i < length; i += step)
        store_part(y, i, length, DTYPE1, load_part(x, i, length, DTYPE0, 0) - top - log_sum);
    } else {
      T scale = 1 / sum;
      for (long i = first_part; i < length; i += step)
        store_part(y, i, length, DTYPE1, exp(load_part(x, i, length, DTYPE0, 0) - top) * scale);
    }
  }
}

__kernel void softmax_columns(__global const uchar *input, ulong input_offset, int dtype0, __global uchar *output,
                              ulong output_offset, int dtype1, long outer, long length, long inner, int is_log) {
  long strips = (inner + VEC - 1) / VEC;
  ITEM_TASKS(outer * strips, first, last);
  for (long task = first; task < last; task++) {
    long column = task % strips * VEC, start = task / strips * length * inner + column;
    int width = (int)min(inner - column, (long)VEC), in_size = dtype_size(DTYPE0), out_size = dtype_size(DTYPE1);
    __global const uchar *x = input + input_offset + start * in_size;
    __global uchar *y = output + output_offset + start * out_size;
    long in_step = inner * in_size, out_step = inner * out_size;
    TV top = (TV)-INFINITY, sum = (TV)0;
    for (long i = 0; i < length; i++) top = max_lanes(top, load_lanes(x + i * in_step, in_size, width, DTYPE0));
    for (long i = 0; i < length; i++) sum += exp(load_lanes(x + i * in_step, in_size, width, DTYPE0) - top);
    TV scale = IS_LOG ? log(sum) : 1 / sum;
    for (long i = 0; i < length; i++) {
      TV d = load_lanes(x + i * in_step, in_size, width, DTYPE0) - top;
      store_lanes(y + i * out_step, out_size, width, DTYPE1, IS_LOG ? d - scale : exp(d) * scale);
    }
  }
}

// One term of the sum that every gradient of a row needs, and one gradient.
#define GRADIENT_TERM(g, y) (IS_LOG ? (g) : (g) * (y))
#define GRADIENT(g, y, sum) (IS_LOG ? (g) - exp(y) * (sum) : (y) * ((g) - (sum)))

__kernel void softmax_backward_rows(__global const uchar *grad, ulong grad_offset, int dtype0,
                                    __global const uchar *output, ulong output_offset, int dtype1,
                                    __global uchar *grad_input, ulong grad_input_offset, int dtype2, long rows,
                                    long length, int is_log) {
  int first_part = get_local_id(0) * VEC, step = LSIZE * VEC;
  GROUP_SHARED(shared);
  GROUP_TASKS(rows, first, last);
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

__kernel void softmax_backward_columns(__global const uchar *grad, ulong grad_offset, int dtype0,
                                       __global const uchar *output, ulong output_offset, int dtype1,
                                       __global uchar *grad_input, ulong grad_input_offset, int dtype2, long outer,
                                       long length, long inner, int is_log) {
  long strips = (inner + VEC - 1) / VEC;
  ITEM_TASKS(outer * strips, first, last);
  for (long task = first; task < last; task++) {
    long column = task % strips * VEC, start = task / strips * length * inner + column;
    int width = (int)min(inner - column, (long)VEC);
    int grad_size = dtype_size(DTYPE0), out_size = dtype_size(DTYPE1), size = dtype_size(DTYPE2);
    __global const uchar *g = grad + grad_offset + start * grad_size;
    __global const uchar *y = output + output_offset + start * out_size;
    __global uchar *dx = grad_input + grad_input_offset + start * size;
    TV sum = (TV)0;
    for (long i = 0; i < length; i++)
      sum += GRADIENT_TERM(load_lanes(g + i * inner * grad_size, grad_size, width, DTYPE0),
                           load_lanes(y + i * inner * out_size, out_size, width, DTYPE1));
    for (long i = 0; i < length; i++) {
      TV gv = load_lanes(g + i * inner * grad_size, grad_size, width, DTYPE0);
      TV yv = load_lanes(y + i * inner * out_size, out_size, width, DTYPE1);
      store_lanes(dx + i * inner * size, size, width, DTYPE2, GRADIENT(gv, yv, sum));
    }
  }
}
