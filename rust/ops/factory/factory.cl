// Tensors made from a rule: arange and linspace. Dense output.
//
// The compute class may differ from the output's: if the device has fp64, float outputs are computed in double (as
// PyTorch's CPU does), since start + i * step in float drifts from the exact value as i grows.

// The index of element at + l, as a TR. Processors convert 64-bit integers to double one by one, so only `at` is
// converted; the sum in double is exact.
#ifdef CLASS_D
#define NUMBER(at, l) ((TR)(at) + (l))
#else
#define NUMBER(at, l) ((TR)((at) + (l)))
#endif

// Stores VALUE(i) to each of n elements.
#define FILL(n, VALUE)                                                          \
  ITEM_TASKS(((n) + VEC - 1) / VEC, first, last);                               \
  for (long at = first * VEC; at < last * VEC; at += VEC) {                     \
    Lanes v;                                                                    \
    for (int l = 0; l < VEC; l++) v.lanes[l] = VALUE(NUMBER(at, l));            \
    const int size = dtype_size(DTYPE0), width = (int)min((n) - at, (long)VEC); \
    store_lanes(out + out_offset + at * size, size, width, DTYPE0, v.vector);   \
  }

__kernel void arange(__global uchar *out, ulong out_offset, int dtype0, long n, T start, T step) {
#define STEPS(i) (start + FROM_REAL(i) * REAL(step))
  FILL(n, STEPS);
}

// Counts from the nearer end, so that both ends are exact.
__kernel void linspace(__global uchar *out, ulong out_offset, int dtype0, long n, T start, T end, T step) {
  const TR middle = n / 2, last_number = n - 1;
#define BETWEEN(i) ((i) < middle ? start + step * (i) : end - step * (last_number - (i)))
  FILL(n, BETWEEN);
}
