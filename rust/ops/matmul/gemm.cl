// Blocked GEMM: C = alpha * A B + beta * bias.
//
// For CPUs, where local memory is the core's cache: a work-item packs blocks of A and of B, whatever their layout and
// dtype, into panels in local memory, and multiplies them tile by tile for a part of C. `gemm_finish` adds the sums of
// parts of k. GPUs have gemm_local.cl.

// --- operands -------------------------------------------------------------------------------------------------------

typedef struct {
  Matrix a;  // only batch_stride counts for an im2col matrix
  Matrix b;
#if HAS_IM2COL
  Im2colLayout im2col;
#endif
} OperandLayouts;

// Packs rows first .. last - 1 of A.
static inline void pack_rows(__global const uchar *input, int dt, const OperandLayouts *layouts, long first, long last,
                             long k, int k_count, __local R *out) {
#if A_KIND == FROM_MATRIX
  pack_matrix(input, dt, &layouts->a.rows, &layouts->a.columns, first, last, k, k_count, TILE_ROWS, out);
#else
  pack_im2col(input, dt, &layouts->im2col, first, last, k, k_count, TILE_ROWS, out);
#endif
}

// Packs columns first .. last - 1 of B.
static inline void pack_columns(__global const uchar *input, int dt, const OperandLayouts *layouts, long first,
                                long last, long k, int k_count, __local R *out) {
#if B_KIND == FROM_MATRIX
  pack_matrix(input, dt, &layouts->b.columns, &layouts->b.rows, first, last, k, k_count, TILE_COLUMNS, out);
#elif B_KIND == FROM_IM2COL
  pack_im2col(input, dt, &layouts->im2col, first, last, k, k_count, TILE_COLUMNS, out);
#else
  pack_im2col_transposed(input, dt, &layouts->im2col, first, last, k, k_count, TILE_COLUMNS, out);
#endif
}

// --- the GEMM -------------------------------------------------------------------------------------------------------

#ifdef IS_COMPLEX
// Rows come in pairs, a.re * b and a.im * b with b as neighbouring reals; joins them, in place, to complex values.
static inline void join_parts(R *tile, int rows) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < TILE_COLUMNS; c += 2) {
      R *by_real = tile + 2 * r * TILE_COLUMNS + c;
      const R *by_imaginary = by_real + TILE_COLUMNS;
      const T joined = (T)(by_real[0] - by_imaginary[1], by_real[1] + by_imaginary[0]);
      by_real[0] = joined.x;
      by_real[1] = joined.y;
    }
  }
}
#else
static inline void join_parts(R *tile, int rows) {}
#endif

// Blocking of a GEMM; plan.rs explains the choice. Sizes of parts are whole numbers of panels.
typedef struct {
  long rows;
  long columns;
  long k;
  long part_rows;      // of C: computed by a work-item, or a work-group
  long part_columns;
  long strip_rows;     // of A: packed at a time
  long block_columns;  // of B: packed at a time
  long block_k;    // of both
  long keeps_rows;     // 1 if `a_panels` holds a part's rows for all of k
  long splits;         // of k, with separate sums that are `split_stride` elements apart
  long split_stride;
} Blocking;
SHARED(Blocking, 88);

// The rows, columns and k of a part of C.
typedef struct {
  long first_row, last_row;
  long first_column, last_column;
  long first_k, last_k;
} Part;

static inline Part find_part(const Blocking *blocking, long column, long row, long split) {
  const long step = (blocking->k + blocking->splits - 1) / blocking->splits;
  Part part;
  part.first_row = row * blocking->part_rows;
  part.last_row = min(blocking->rows, part.first_row + blocking->part_rows);
  part.first_column = column * blocking->part_columns;
  part.last_column = min(blocking->columns, part.first_column + blocking->part_columns);
  part.first_k = min(split * step, blocking->k);
  part.last_k = min(part.first_k + step, blocking->k);
  return part;
}

DEFINE_TILES(multiply_packed, __local, 1, TILE_ROWS, FULL_PANEL, __global)
// Rows of A that are dense along k are read in place, which saves packing them.
DEFINE_TILES(multiply_unpacked, __global, row_step, 1, FULL_PANEL, __global)

// Returns true if rows of A are read in place.
static inline bool rows_stay(const OperandLayouts *layouts, int dt) {
#if defined(IS_COMPLEX) || A_KIND != FROM_MATRIX
  return false;
#else
  const Matrix *a = &layouts->a;
  return dt == R_DTYPE && a->rows.sizes[1] == 1 && a->columns.sizes[1] == 1 && a->columns.strides[0] == 1;
#endif
}

// Rows [row, last_row) of A, packed or, if `unpacked` is not null, `row_step` apart.
typedef struct {
  long row, last_row;
  __local const R *packed;
  __global const R *unpacked;
  long row_step;
} Strip;

// Multiplies rows by packed columns [first_column, last_column). Returns where the next partial sums are.
static inline __global TileVector *multiply_strip(const Epilogue *epilogue, Strip strip, __local const R *b_panels,
                                                  long first_column, long last_column, int k_count, bool is_first,
                                                  bool is_last, __global TileVector *partial) {
  for (long row = strip.row; row < strip.last_row; row += PANEL_ROWS) {
    const int rows = (int)min((long)PANEL_ROWS, strip.last_row - row);
    __local const R *b_panel = b_panels;
    for (long column = first_column; column < last_column; column += PANEL_COLUMNS) {
      const int columns = (int)min((long)PANEL_COLUMNS, last_column - column);
      TileVector tile[TILE_ROWS * TILE_VECTORS];
      TileVector *done = is_last ? tile : 0;
      if (strip.unpacked)
        multiply_unpacked(strip.unpacked, strip.row_step, b_panel, k_count, columns * PARTS, is_first, partial, done);
      else multiply_packed(strip.packed, 1, b_panel, k_count, columns * PARTS, is_first, partial, done);
      b_panel += k_count * TILE_COLUMNS;
      partial += TILE_ROWS * TILE_VECTORS;
      if (is_last) {
        join_parts((R *)tile, rows);
        apply_epilogue(epilogue, (const T *)tile, TILE_COLUMNS, row, column, rows, columns);
      }
    }
    strip.packed += k_count * TILE_ROWS;
    if (strip.unpacked) strip.unpacked += PANEL_ROWS * strip.row_step;
  }
  return partial;
}

// Global size (column parts, row parts, batches * splits), in groups of one. For each block of B, which stays in L2, A
// is streamed in strips, which stay in L1 panel by panel.
__kernel void gemm(__global const uchar *a, ulong a_offset, __global const uchar *b, ulong b_offset, int input_dtype,
                   OperandLayouts layouts, Blocking blocking, __global uchar *partial, ulong partial_offset,
                   __local R *a_panels, __local R *b_panels, EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  const long batch = get_global_id(2) / blocking.splits;
  const long split = get_global_id(2) % blocking.splits;
  a += a_offset + batch * layouts.a.batch_stride * dtype_size(INPUT_DTYPE);
  b += b_offset + batch * layouts.b.batch_stride * dtype_size(INPUT_DTYPE);
  const Part part = find_part(&blocking, get_global_id(0), get_global_id(1), split);
  const Epilogue epilogue = EPILOGUE(batch, split, blocking.split_stride);
  const long item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  const long item_tiles =
      blocking.part_rows / PANEL_ROWS * ((blocking.block_columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS);
  __global TileVector *sums =
      (__global TileVector *)(partial + partial_offset) + item * item_tiles * TILE_ROWS * TILE_VECTORS;

  const bool stay = !blocking.keeps_rows && rows_stay(&layouts, INPUT_DTYPE);
  for (long column = part.first_column; column < part.last_column; column += blocking.block_columns) {
    const long last_column = min(part.last_column, column + blocking.block_columns);
    const bool packs_rows = !blocking.keeps_rows || column == part.first_column;
    long k = part.first_k;
    do {
      const int k_count = (int)min(blocking.block_k, part.last_k - k);
      const bool is_first = k == part.first_k, is_last = k + k_count == part.last_k;
      pack_columns(b, INPUT_DTYPE, &layouts, column, last_column, k, k_count, b_panels);
      __local R *packed = a_panels + (blocking.keeps_rows ? blocking.part_rows * PARTS * (k - part.first_k) : 0);
      __global TileVector *at = sums;
      for (long row = part.first_row; row < part.last_row; row += blocking.strip_rows) {
        Strip strip = {row, min(part.last_row, row + blocking.strip_rows), packed, 0, layouts.a.rows.strides[0]};
        // Rows in place need full panels: a tile always reads PANEL_ROWS rows.
        if (stay && (strip.last_row - row) % PANEL_ROWS == 0)
          strip.unpacked = (__global const R *)a + row * strip.row_step + k;
        else if (packs_rows) pack_rows(a, INPUT_DTYPE, &layouts, row, strip.last_row, k, k_count, packed);
        at = multiply_strip(&epilogue, strip, b_panels, column, last_column, k_count, is_first, is_last, at);
      }
      k += k_count;
    } while (k < part.last_k);
  }
}

// Sums the `splits` partial results of rows x columns values, each batch dense and one after the other.
// Global size (column parts of `step`, rows, batches).
__kernel void gemm_finish(__global const uchar *partial, ulong partial_offset, long columns, long step, long splits,
                          EPILOGUE_ARGUMENTS, FUSED_PARAMETERS) {
  const long row = get_global_id(1);
  const long batch = get_global_id(2);
  const long matrix = get_global_size(1) * columns;
  const long last = min(columns, (long)(get_global_id(0) + 1) * step);
  __global const uchar *sums = partial + partial_offset + (batch * matrix + row * columns) * sizeof(T);
  const T zero = FROM_REAL(0);
  const Epilogue epilogue = EPILOGUE(batch, 0, 0);
  for (long column = get_global_id(0) * step; column < last; column += VEC) {
    const int count = (int)min((long)VEC, last - column);
    Lanes values;
    values.vector = (TV)(0);
    for (long split = 0; split < splits; ++split)
      values.vector += load_part(sums + split * get_global_size(2) * matrix * sizeof(T), column, last, T_DTYPE, zero);
    apply_epilogue(&epilogue, values.lanes, VEC, row, column, 1, count);
  }
}
