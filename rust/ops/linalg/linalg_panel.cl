// Arithmetic and arguments of the kernels for blocks of matrices. Each takes a batch of matrices with any strides, in
// elements.

#ifndef BLOCK
#define BLOCK 32
#endif
#ifndef LSIZE
#define LSIZE 64
#endif

#ifdef IS_COMPLEX
#define REAL_VALUE(x) ((T)((x), (TR)0))
#define IMAGINARY(z) ((z).y)
// The measure by which LAPACK chooses pivots: no square root, and no overflow.
#define SIZE_OF(z) (fabs((z).x) + fabs((z).y))
#define LARGEST_PART(z) fmax(fabs((z).x), fabs((z).y))
#define SQUARE_OF(z) ((z).x * (z).x + (z).y * (z).y)
static inline T conjugate(T z) { return (T)(z.x, -z.y); }
static inline T times(T a, T b) { return (T)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
// The divisor is scaled, so that no square overflows. Without a branch: see INLINED_ON_GPUS.
static inline T over(T a, T b) {
  const TR scale = 1 / LARGEST_PART(b);
  const T c = b * scale;
  const TR norm = c.x * c.x + c.y * c.y;
  return (T)(a.x * c.x + a.y * c.y, a.y * c.x - a.x * c.y) / norm * scale;
}
#else
typedef T TR;
#define REAL_VALUE(x) (x)
#define IMAGINARY(z) ((T)0)
#define SIZE_OF(z) fabs(z)
#define LARGEST_PART(z) fabs(z)
#define SQUARE_OF(z) ((z) * (z))
#define conjugate(z) (z)
#define times(a, b) ((a) * (b))
#define over(a, b) ((a) / (b))
#endif

#define GROUP_BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

// A batch of matrices: memory and its offset, and the strides of a matrix, a row and a column.
#define MATRIX_ARGUMENTS __global uchar *a, ulong a_offset, long a_batch, long a_row, long a_column
#define RIGHT_ARGUMENTS __global uchar *b, ulong b_offset, long b_batch, long b_row, long b_column
// LAPACK's `info`: for each matrix the first column, counted from 1, that could not be eliminated, or 0.
#define INFO_ARGUMENTS __global uchar *infos, ulong infos_offset

#define MATRIX_AT(name, matrix) ((__global T *)(name + name##_offset) + (matrix) * name##_batch)
#define INTS_AT(name) ((__global int *)(name + name##_offset))

// A block of columns: in local memory if IN_LOCAL is defined, as it fits there.
#ifdef IN_LOCAL
#define PANEL(r, c) panel[(c) * BLOCK + (r)]
#define LOAD_PANEL(rows, columns)                                     \
  for (int k = get_local_id(0); k < (rows) * (columns); k += LSIZE) { \
    const int r = k % (int)(rows), c = k / (int)(rows);               \
    panel[c * BLOCK + r] = memory[r * a_row + c * a_column];          \
  }                                                                   \
  GROUP_BARRIER
#define STORE_PANEL(rows, columns)                                    \
  GROUP_BARRIER;                                                      \
  for (int k = get_local_id(0); k < (rows) * (columns); k += LSIZE) { \
    const int r = k % (int)(rows), c = k / (int)(rows);               \
    memory[r * a_row + c * a_column] = panel[c * BLOCK + r];          \
  }
#define DECLARE_PANEL __local T panel[BLOCK * BLOCK]
#else
#define PANEL(r, c) memory[(r) * a_row + (c) * a_column]
#define LOAD_PANEL(rows, columns)
#define STORE_PANEL(rows, columns)
#define DECLARE_PANEL
#endif
