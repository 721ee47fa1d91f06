// QR of a block of columns by Householder reflections, as LAPACK's geqr2: R is on and above the diagonal, the
// reflectors are below it, without their ones on the diagonal.

// Items that share a column.
#define SHARERS (LSIZE / BLOCK)

// The sum or the largest of a value over the group, for all items.
#define GROUP_FOLD(result, value, FOLD)                                                \
  shared[item] = value;                                                                \
  for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {                     \
    barrier(CLK_LOCAL_MEM_FENCE);                                                      \
    if (item < half_size) shared[item] = FOLD(shared[item], shared[item + half_size]); \
  }                                                                                    \
  barrier(CLK_LOCAL_MEM_FENCE);                                                        \
  result = shared[0];                                                                  \
  barrier(CLK_LOCAL_MEM_FENCE)
#define PLUS(x, y) ((x) + (y))
// NaN wins.
#define GREATER(x, y) ((y) > (x) || (y) != (y) ? (y) : (x))

__kernel GROUPS_OF(LSIZE) void qr_panel(MATRIX_ARGUMENTS, __global uchar *taus, ulong taus_offset, long taus_batch,
                                        long rows, int columns) {
  __local TR shared[LSIZE];
  __local T partial[LSIZE];
  DECLARE_PANEL;
  const int item = get_local_id(0);
  __global T *memory = MATRIX_AT(a, get_group_id(0));
  __global T *tau_of = MATRIX_AT(taus, get_group_id(0));
  LOAD_PANEL(rows, columns);
  for (int j = 0; j < columns; j++) {
    // The norm below the diagonal; elements are divided by the largest, so that no square overflows.
    TR largest = 0, scale, norm = 0;
    for (long r = j + 1 + item; r < rows; r += LSIZE) largest = GREATER(largest, LARGEST_PART(PANEL(r, j)));
    GROUP_FOLD(scale, largest, GREATER);
    const bool is_scaled = scale > 0;
    for (long r = j + 1 + item; r < rows; r += LSIZE) {
      const T part = is_scaled ? PANEL(r, j) / scale : PANEL(r, j);
      norm += SQUARE_OF(part);
    }
    TR sum;
    GROUP_FOLD(sum, norm, PLUS);
    norm = is_scaled ? scale * sqrt(sum) : sqrt(sum);

    const T alpha = PANEL(j, j);
    T tau = REAL_VALUE(0);
    const bool reflects = norm != 0 || IMAGINARY(alpha) != 0;
    const TR beta = -copysign(hypot(hypot(REAL(alpha), IMAGINARY(alpha)), norm), REAL(alpha));
    if (reflects) {
      tau = over(REAL_VALUE(beta) - alpha, REAL_VALUE(beta));
      for (long r = j + 1 + item; r < rows; r += LSIZE) PANEL(r, j) = over(PANEL(r, j), alpha - REAL_VALUE(beta));
    }
    GROUP_BARRIER;
    if (item == 0) {
      tau_of[j] = tau;
      if (reflects) PANEL(j, j) = REAL_VALUE(beta);
    }

    // The following columns: subtract conj(tau) v (v^H column). All items of a column add the same partial sums.
    const int c = j + 1 + item / SHARERS, share = item % SHARERS;
    T dot = REAL_VALUE(0);
    if (c < columns) {
      if (share == 0) dot = PANEL(j, c);
      for (long r = j + 1 + share; r < rows; r += SHARERS) dot += times(conjugate(PANEL(r, j)), PANEL(r, c));
    }
    partial[item] = dot;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (c < columns) {
      dot = REAL_VALUE(0);
      for (int s = 0; s < SHARERS; s++) dot += partial[item - share + s];
      dot = times(conjugate(tau), dot);
      if (share == 0) PANEL(j, c) -= dot;
      for (long r = j + 1 + share; r < rows; r += SHARERS) PANEL(r, c) -= times(PANEL(r, j), dot);
    }
    GROUP_BARRIER;
  }
  STORE_PANEL(rows, columns);
}
