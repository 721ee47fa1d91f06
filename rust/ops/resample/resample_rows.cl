// Interpolation along whole rows, for CPUs. Comes after resample.cl, whose tables it uses.

// Output positions x to x + VEC - 1, all of which exist, from a row of inputs summed over the other dimensions.
INLINE TV sum_line(__global uchar *tables, const ResampleAxis *x_axis, long x, __local const T *line) {
  TableRow row = table_row(tables, x_axis, x);
  __global const int *counts = table_counts(tables, x_axis) + x;
  // With few elements the condition costs less than comparing counts.
  const bool alike = x_axis->width > 2 && count_alike(counts);
  const int most = alike ? row.count : x_axis->width;
  TV sum = (TV)0;
  for (int i = 0; i < most; i++) {
    __global const int *indices = row.indices + i * row.step;
    __global const TR *weights = row.weights + i * row.step;
    Lanes v;
#if VEC == 1
    v.vector = i < row.count ? line[indices[0]] * weights[0] : FROM_REAL(0);
#else
    // Unrolled, as it would go through memory otherwise.
  UNROLL for (int l = 0; l < VEC; l++) v.lanes[l] = line[indices[l]];
    v.vector *= VLOAD(0, weights);
    if (!alike) v.vector = TO(TM_NAME)(VLOAD(0, counts)) > (TM)i ? v.vector : (TV)0;
#endif
    sum += v.vector;
  }
  return sum;
}

// Computes `resample` along W on CPUs: a work-group of one item first writes the sum of inputs over the other
// dimensions to `line`, by vectors and as T, and gathers from there: fewer elements, without conversions.
__kernel void resample_rows(__global uchar *output, ulong output_offset, __global const uchar *input,
                            ulong input_offset, __global uchar *tables, ulong tables_offset, int dtype0, Layout layout,
                            AXES_ARGUMENTS, long length, __local T *line) {
  tables += tables_offset;
  const long width = layout.sizes[0], step = layout.strides[1][0], out_step = layout.strides[0][0];
  ITEM_TASKS(layout.sizes[1] * layout.sizes[2] * layout.sizes[3] * layout.sizes[4], first, last);
  for (long task = first; task < last; task++) {
    long at[4], rest = task;
    for (int d = 0; d < 4; d++) {
      at[d] = rest % layout.sizes[d + 1];
      rest /= layout.sizes[d + 1];
    }
    const TableRow y = table_row(tables, &y_axis, at[0]), z = table_row(tables, &z_axis, at[1]);
    __global const uchar *in = input + input_offset + at[2] * layout.strides[1][3] + at[3] * layout.strides[1][4];
    __global uchar *out = output + output_offset;
    for (int d = 0; d < 4; d++) out += at[d] * layout.strides[0][d + 1];
    for (long x = 0; x < length; x += VEC) {
      const int n = (int)min(length - x, (long)VEC);
      TV sum = (TV)0;
      for (int k = 0; k < z.count; k++)
        for (int j = 0; j < y.count; j++)
          sum += load_lanes(in + x * step + z.indices[k * z.step] * layout.strides[1][2] +
                                y.indices[j * y.step] * layout.strides[1][1],
                            step, n, DTYPE0) *
                 (z.weights[k * z.step] * y.weights[j * y.step]);
      *(__local TV *)(line + x) = sum;
    }
    for (long x = 0; x < width; x += VEC) {
      const int n = (int)min(width - x, (long)VEC);
      TV sum;
      if (n == VEC) {
        sum = sum_line(tables, &x_axis, x, line);
      } else {
        Lanes lanes;
        for (int l = 0; l < n; l++) {
          const TableRow row = table_row(tables, &x_axis, x + l);
          lanes.lanes[l] = FROM_REAL(0);
          for (int i = 0; i < row.count; i++)
            lanes.lanes[l] += line[row.indices[i * row.step]] * row.weights[i * row.step];
        }
        sum = lanes.vector;
      }
      store_lanes(out + x * out_step, out_step, n, DTYPE0, sum);
    }
  }
}
