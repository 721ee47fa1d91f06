// Factorisations and triangular solves of blocks: the base cases of the recursive algorithms in cpp/native/linalg.cpp,
// where matmuls do the rest.

// LU of a panel by elimination with partial pivoting (Golub and Van Loan, Matrix Computations, 3.4). Rows are swapped
// within the panel only. `pivots` are LAPACK's: for step j the row, counted from 1, that was swapped with row j.
// `first` is the index of the panel's first column in the whole matrix.
__kernel GROUPS_OF(LSIZE) void lu_panel(MATRIX_ARGUMENTS, __global uchar *pivots, ulong pivots_offset,
                                        long pivots_batch, INFO_ARGUMENTS, long rows, int columns, int first,
                                        int pivoting) {
  __local TR sizes[LSIZE];
  __local int candidates[LSIZE];
  __local T pivot_row[BLOCK];
  DECLARE_PANEL;
  const int item = get_local_id(0);
  const long matrix = get_group_id(0);
  __global T *memory = MATRIX_AT(a, matrix);
  __global int *pivot_of = INTS_AT(pivots) + matrix * pivots_batch;
  __global int *info = INTS_AT(infos) + matrix;
  LOAD_PANEL(rows, columns);
  const int steps = (int)min(rows, (long)columns);
  for (int j = 0; j < steps; j++) {
    // The first of equal values, and a NaN only if it is on the diagonal.
    TR largest = -1;
    int candidate = j;
    if (pivoting != 0) {
      for (long r = j + item; r < rows; r += LSIZE) {
        const TR size = SIZE_OF(PANEL(r, j));
        if (size > largest || (r == j && size != size)) {
          largest = size != size ? (TR)INFINITY : size;
          candidate = (int)r;
        }
      }
    }
    sizes[item] = largest;
    candidates[item] = candidate;
    for (int half_size = LSIZE / 2; half_size > 0; half_size /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_size) {
        const TR other = sizes[item + half_size];
        const int row = candidates[item + half_size];
        if (other > sizes[item] || (other == sizes[item] && row < candidates[item])) {
          sizes[item] = other;
          candidates[item] = row;
        }
      }
    }
    GROUP_BARRIER;
    const int chosen = candidates[0];
    for (int c = item; c < columns; c += LSIZE) {
      const T value = PANEL(chosen, c);
      pivot_row[c] = value;
      if (chosen != j) {
        PANEL(chosen, c) = PANEL(j, c);
        PANEL(j, c) = value;
      }
    }
    GROUP_BARRIER;
    const T divisor = pivot_row[j];
    const bool is_zero = SIZE_OF(divisor) == 0;
    if (item == 0) {
      pivot_of[j] = first + chosen + 1;
      if (is_zero && *info == 0) *info = first + j + 1;
    }
    for (long r = j + 1 + item; r < rows; r += LSIZE) {
      T factor = PANEL(r, j);
      if (!is_zero) factor = over(factor, divisor);
      PANEL(r, j) = factor;
      for (int c = j + 1; c < columns; c++) PANEL(r, c) -= times(factor, pivot_row[c]);
    }
    GROUP_BARRIER;
  }
  STORE_PANEL(rows, columns);
}

// Swaps rows as the steps of an LU did, or in reverse; one work-item for each column. Pivots that are not a row are
// skipped.
__kernel void swap_rows(MATRIX_ARGUMENTS, __global const uchar *pivots, ulong pivots_offset, long pivots_batch,
                        long rows, long columns, long items, int steps, int first, int is_reverse) {
  const long task = get_global_id(0);
  if (task >= items) return;
  const long matrix = task / columns;
  __global T *column = MATRIX_AT(a, matrix) + task % columns * a_column;
  __global const int *pivot_of = (__global const int *)(pivots + pivots_offset) + matrix * pivots_batch;
  for (int k = 0; k < steps; k++) {
    const int i = is_reverse != 0 ? steps - 1 - k : k;
    const long other = (long)pivot_of[i] - 1 - first;
    if (other == i || other < 0 || other >= rows) continue;
    const T value = column[i * a_row];
    column[i * a_row] = column[other * a_row];
    column[other * a_row] = value;
  }
}

// Turns identities into permutations by sequences of swaps; one work-item for each.
__kernel void unpack_pivots(__global uchar *order, ulong order_offset, __global const uchar *pivots,
                            ulong pivots_offset, __global uchar *faults, ulong faults_offset, long items, long rows,
                            long steps) {
  const long matrix = get_global_id(0);
  if (matrix >= items) return;
  __global long *row_of = (__global long *)(order + order_offset) + matrix * rows;
  __global const int *pivot_of = (__global const int *)(pivots + pivots_offset) + matrix * steps;
  for (long i = 0; i < steps; i++) {
    const long other = (long)pivot_of[i] - 1;
    if (other < 0 || other >= rows) {
      report_fault(faults + faults_offset, FAULT_PIVOT, other + 1, rows);
      continue;
    }
    const long row = row_of[i];
    row_of[i] = row_of[other];
    row_of[other] = row;
  }
}

// B = A^-1 B for triangular A of n <= BLOCK rows. A group takes LSIZE columns of B, one for each item. Programs with
// larger groups are for other kernels: that many columns would not fit local memory here.
#define SOLVE_COLUMNS (LSIZE < 32 ? LSIZE : 32)
__kernel GROUPS_OF(LSIZE) void solve_block(MATRIX_ARGUMENTS, RIGHT_ARGUMENTS, long columns, long strips, int n,
                                           int is_upper, int is_unit, int is_conjugate) {
  __local T factor[BLOCK * BLOCK];
  __local T solution[BLOCK * SOLVE_COLUMNS];
  const int item = get_local_id(0);
  const long matrix = get_group_id(0) / strips, first = get_group_id(0) % strips * LSIZE;
  const int width = (int)min(columns - first, (long)LSIZE);
  __global const T *from = MATRIX_AT(a, matrix);
  __global T *to = MATRIX_AT(b, matrix) + first * b_column;
  // An upper triangle with its rows and columns in reverse order is a lower triangle.
  const long last = is_upper != 0 ? n - 1 : 0;
  const long step = is_upper != 0 ? -1 : 1;
  for (int k = item; k < n * n; k += LSIZE) {
    const int i = k % n, j = k / n;
    const T value = from[(last + step * i) * a_row + (last + step * j) * a_column];
    factor[j * BLOCK + i] = is_conjugate != 0 ? conjugate(value) : value;
  }
  // Neighbouring items load neighbouring elements.
  const bool by_columns = b_row <= b_column;
  for (int k = item; k < n * width; k += LSIZE) {
    const int i = by_columns ? k % n : k / width, c = by_columns ? k / n : k % width;
    solution[i * SOLVE_COLUMNS + c] = to[(last + step * i) * b_row + c * b_column];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item < width) {
    for (int i = 0; i < n; i++) {
      T value = solution[i * SOLVE_COLUMNS + item];
      for (int j = 0; j < i; j++) value -= times(factor[j * BLOCK + i], solution[j * SOLVE_COLUMNS + item]);
      solution[i * SOLVE_COLUMNS + item] = is_unit != 0 ? value : over(value, factor[i * BLOCK + i]);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = item; k < n * width; k += LSIZE) {
    const int i = by_columns ? k % n : k / width, c = by_columns ? k / n : k % width;
    to[(last + step * i) * b_row + c * b_column] = solution[i * SOLVE_COLUMNS + c];
  }
}

// The lower Cholesky factor of n <= BLOCK rows, column by column. Elements above the diagonal are unchanged.
__kernel GROUPS_OF(LSIZE) void cholesky_block(MATRIX_ARGUMENTS, INFO_ARGUMENTS, int n, int first) {
  __local T factor[BLOCK * BLOCK];
  const int item = get_local_id(0);
  __global T *memory = MATRIX_AT(a, get_group_id(0));
  __global int *info = INTS_AT(infos) + get_group_id(0);
  for (int k = item; k < n * n; k += LSIZE) {
    const int r = k % n, c = k / n;
    if (r >= c) factor[c * BLOCK + r] = memory[r * a_row + c * a_column];
  }
  bool is_definite = true;
  for (int j = 0; j < n; j++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    const TR diagonal = REAL(factor[j * BLOCK + j]);
    if (is_definite && !(diagonal > 0)) {
      is_definite = false;
      if (item == 0 && *info == 0) *info = first + j + 1;
    }
    // Every item has to have read the diagonal before it changes.
    barrier(CLK_LOCAL_MEM_FENCE);
    const TR root = is_definite ? sqrt(diagonal) : (TR)1;
    for (int r = j + item; r < n; r += LSIZE) {
      factor[j * BLOCK + r] = r == j ? REAL_VALUE(root) : factor[j * BLOCK + r] / root;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int rest = n - j - 1;
    for (int k = item; k < rest * rest; k += LSIZE) {
      const int r = j + 1 + k % rest, c = j + 1 + k / rest;
      if (r >= c) factor[c * BLOCK + r] -= times(factor[j * BLOCK + r], conjugate(factor[j * BLOCK + c]));
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = item; k < n * n; k += LSIZE) {
    const int r = k % n, c = k / n;
    if (r >= c) memory[r * a_row + c * a_column] = factor[c * BLOCK + r];
  }
}
