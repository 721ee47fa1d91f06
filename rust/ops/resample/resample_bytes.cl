// Interpolation of images of bytes along one dimension, in whole numbers.
//
// The image has `outer` parts of `coarse` positions of `inner` bytes, the result parts of `fine` positions. The table
// begins with the shift of sums, then has the first of the inputs of each position, then their weights, in units of
// 2^-shift: int shift, int firsts[fine], int weights[width][fine].

// Neighbouring bytes of an item.
#ifdef IS_CPU
#define RUN 16
#else
#define RUN 4
#endif
#define TO_SUMS PASTE(convert_int, RUN)
#define TO_BYTES PASTE(PASTE(convert_uchar, RUN), _sat)
typedef PASTE(int, RUN) Sums;

typedef struct {
  __global const int *weights;
  long inner;
  int fine, width, shift;
} Weights;

INLINE uchar interpolate_byte(const Weights *w, int position, __global const uchar *input) {
  int sum = 1 << (w->shift - 1);
  for (int k = 0; k < w->width; k++) sum += w->weights[(long)k * w->fine + position] * input[k * w->inner];
  return convert_uchar_sat(sum >> w->shift);
}

INLINE void interpolate_run(const Weights *w, int position, __global const uchar *input, __global uchar *output) {
  Sums sums = (Sums)(1 << (w->shift - 1));
  for (int k = 0; k < w->width; k++)
    sums += w->weights[(long)k * w->fine + position] * TO_SUMS(PASTE(vload, RUN)(0, input + k * w->inner));
  PASTE(vstore, RUN)(TO_BYTES(sums >> w->shift), 0, output);
}

__kernel void resample_bytes(__global uchar *output, ulong output_offset, __global const uchar *input,
                             ulong input_offset, __global const uchar *table, ulong table_offset, long outer,
                             long inner, int coarse, int fine, int width) {
  __global const int *shift = (__global const int *)(table + table_offset);
  __global const int *firsts = shift + 1;
  const Weights weights = {firsts + fine, inner, fine, width, shift[0]};
  output += output_offset;
  input += input_offset;
  const long positions = outer * fine;
  if (inner >= RUN) {
    const long runs = (inner + RUN - 1) / RUN;
    ITEM_TASKS(positions * runs, first, last);
    for (long task = first; task < last; task++) {
      const long row = task / runs, begin = task % runs * RUN;
      const int position = (int)(row % fine);
      __global const uchar *in = input + (row / fine * coarse + firsts[position]) * inner + begin;
      __global uchar *out = output + row * inner + begin;
      if (begin + RUN <= inner) {
        interpolate_run(&weights, position, in, out);
      } else {
        for (long l = 0; l < inner - begin; l++) out[l] = interpolate_byte(&weights, position, in + l);
      }
    }
  } else {
    const long bytes = positions * inner;
    ITEM_TASKS((bytes + RUN - 1) / RUN, first, last);
    for (long byte = first * RUN; byte < min(last * RUN, bytes); byte++) {
      const long row = byte / inner;
      const int position = (int)(row % fine);
      __global const uchar *in = input + (row / fine * coarse + firsts[position]) * inner + byte % inner;
      output[byte] = interpolate_byte(&weights, position, in);
    }
  }
}
