// Reductions of runs of rows (CLASS_F and CLASS_D). `data` is contiguous [outer, size, inner]; the output is
// [outer, segments, inner], and each segment of each outer index has its first row and its length, 64-bit integers.
// A work-item reduces one column of one segment.

// Values of at::native::ReductionType.
#define SEGMENT_MAX 0
#define SEGMENT_MEAN 1
#define SEGMENT_MIN 2
#define SEGMENT_SUM 3
#define SEGMENT_PROD 4

// `has_initial`: the caller gave the value that reductions begin with.
#define SEGMENTS_ARGUMENTS                                                                                       \
  __global const uchar *data, ulong data_offset, __global const uchar *starts, ulong starts_offset,              \
      __global const uchar *lengths, ulong lengths_offset, int dtype0, int op, long n, long size, long segments, \
      long inner, T initial, int has_initial

// The rows of the segment of output element i, and its first element; rows that do not exist are excluded.
typedef struct {
  long first;
  long length;
  long base;
} Segment;

INLINE Segment segment_of(long i, __global const uchar *starts, __global const uchar *lengths, long size, long segments,
                          long inner) {
  const long segment = i / inner;
  const long begin = clamp(((__global const long *)starts)[segment], 0l, size);
  const long length = clamp(((__global const long *)lengths)[segment], 0l, size - begin);
  return (Segment){begin, length, (segment / segments * size + begin) * inner + i % inner};
}
#define SEGMENT_OF(i) segment_of(i, starts + starts_offset, lengths + lengths_offset, size, segments, inner)

__kernel void segment_reduce(SEGMENTS_ARGUMENTS, __global uchar *out, ulong out_offset) {
  ITEM_TASKS(n, first, last);
  for (long i = first; i < last; i++) {
    const Segment segment = SEGMENT_OF(i);
    T value = initial;
    for (long row = 0; row < segment.length; row++) {
      const T v = load(data + data_offset, segment.base + row * inner, DTYPE0);
      switch (OP) {
        // A NaN stays.
        case SEGMENT_MAX: value = isnan(v) || v > value ? v : value; break;
        case SEGMENT_MIN: value = isnan(v) || v < value ? v : value; break;
        case SEGMENT_PROD: value *= v; break;
        default: value += v;
      }
    }
    if (OP == SEGMENT_MEAN && segment.length > 0) value /= (T)segment.length;
    if (OP == SEGMENT_MEAN && segment.length == 0 && !has_initial) value = NAN;
    store(out + out_offset, i, DTYPE0, value);
  }
}

// Writes the gradient of each element of a segment; elements of no segment are zero already.
__kernel void segment_reduce_backward(SEGMENTS_ARGUMENTS, __global const uchar *grad, ulong grad_offset,
                                      __global const uchar *output, ulong output_offset, __global uchar *grad_input,
                                      ulong grad_input_offset) {
  data += data_offset;
  grad_input += grad_input_offset;
  ITEM_TASKS(n, first, last);
  for (long i = first; i < last; i++) {
    const Segment segment = SEGMENT_OF(i);
    const T g = load(grad + grad_offset, i, DTYPE0), result = load(output + output_offset, i, DTYPE0);
    long ties = 0;
    for (long row = 0; (OP == SEGMENT_MAX || OP == SEGMENT_MIN) && row < segment.length; row++) {
      const T v = load(data, segment.base + row * inner, DTYPE0);
      ties += isnan(v) || v == result;
    }
    for (long row = 0; row < segment.length; row++) {
      const long at = segment.base + row * inner;
      const T v = load(data, at, DTYPE0);
      T slope = g;
      if (OP == SEGMENT_MEAN) slope = g / (T)segment.length;
      if (OP == SEGMENT_MAX || OP == SEGMENT_MIN) {
        // PyTorch shares a gradient between equal elements if it is positive.
        slope = isnan(v) || v == result ? (g > 0 ? g / (T)ties : g) : (T)0;
      }
      if (OP == SEGMENT_PROD) {
        slope = g * result / v;
        if (isnan(v) || v == 0) {
          slope = g * initial;
          for (long other = 0; other < segment.length; other++) {
            if (other != row) slope *= load(data, segment.base + other * inner, DTYPE0);
          }
        }
      }
      store(grad_input, at, DTYPE0, slope);
    }
  }
}
