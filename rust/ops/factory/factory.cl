// Tensors made from a rule: arange and linspace. One work-item an element, dense output.
//
// The compute class need not be that of the output: where the device has fp64, float outputs are computed in
// double (as PyTorch's CPU does), since start + i * step in float drifts from the exact value as i grows.

__kernel void arange(__global uchar *out, ulong out_offset, int dtype0, T start, T step) {
  long i = get_global_id(0);
  store(out + out_offset, i, DTYPE0, start + FROM_REAL(i) * REAL(step));
}

// Counts from the nearer end, so that both ends come out exact.
__kernel void linspace(__global uchar *out, ulong out_offset, int dtype0, long n, T start, T end, T step) {
  long i = get_global_id(0);
#ifdef IS_COMPLEX
  T v = i < n / 2 ? start + step * (TR)i : end - step * (TR)(n - 1 - i);
#else
  T v = i < n / 2 ? start + step * (T)i : end - step * (T)(n - 1 - i);
#endif
  store(out + out_offset, i, DTYPE0, v);
}
