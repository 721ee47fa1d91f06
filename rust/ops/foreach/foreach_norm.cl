// Norms of the tensors of a list, with one group for each: (sum |x|^p)^(1/p) for p of 1 and 2, and the largest |x|
// (CLASS_F and CLASS_D). Comes after multi_tensor.cl in the source. The operands are the result and the tensor; a chunk
// is a whole tensor.

#define NORM_MAX 0  // norm.rs has the same values
#define NORM_SUM 1
#define NORM_EUCLID 2

__kernel GROUPS_OF(LSIZE) void foreach_norm(int order, int dtype0, MULTI_TENSOR_ARGUMENTS) {
  GROUP_SHARED(shared);
  TENSOR_CHUNK(table, s, n, start, end);
  __global const uchar *tensor = TENSOR_START(table, s, 1);
  // The square of a single value may overflow or underflow where its magnitude does not.
  const int norm = order == NORM_EUCLID && n == 1 ? NORM_SUM : order;
  TV sums = 0, tops = 0;
  for (long i = start + get_local_id(0) * VEC; i < end; i += LSIZE * VEC) {
    const TV value = fabs(load_part(tensor, i, n, DTYPE0, 0));
    if (norm == NORM_MAX) {
      // A NaN stays, as nothing compares greater.
      tops = value > tops || value != value ? value : tops;
    } else {
      sums += norm == NORM_SUM ? value : value * value;
    }
  }
  const T sum = group_sum(lanes_sum(sums), shared), top = group_max(lanes_max(tops), shared);
  if (get_local_id(0) == 0) {
    store(TENSOR_START(table, s, 0), 0, DTYPE0, norm == NORM_MAX ? top : norm == NORM_SUM ? sum : sqrt(sum));
  }
}
