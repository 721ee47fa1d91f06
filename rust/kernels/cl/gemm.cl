// Packed matrix product: C = alpha * A B + beta * D.
//
// `pack_rows` and `pack_columns` copy a chunk of A and of B, whatever their layout and dtype, into panels
// of TILE_ROWS rows or TILE_COLUMNS columns, one after the other along k; `gemm` multiplies panels and
// `gemm_finish` adds partial products. Panels hold reals: a complex row counts as two of a panel's rows.

// --- packing ----------------------------------------------------------------------------------------

#ifndef IS_COMPLEX
// Packs `width` elements that are dense in memory.
inline void pack_dense(__global const uchar *source, int dt, long offset, int width, __global R *out) {
  int i = 0;
  if (width % VEC == 0) {
    for (; i < width; i += VEC)
      STORE_ALIGNED(load_dense(source, offset + i, dt), out + i);
  }
  for (; i < width; i += BLOCK) vstore4(load4(source, offset + i, dt), 0, out + i);
}
#endif

// Packs indices first .. first + width / PARTS - 1 of `outer` for `depth` values of k from k_first on.
// Indices from `limit` on become zero.
inline void pack_panel(__global const uchar *source, int dt, const Axis *outer, const Axis *inner, long first,
                       long limit, long k_first, long depth, int width, __global R *out) {
  const int count = width / PARTS;
#ifndef IS_COMPLEX
  if (first + count <= limit && axis_is_dense(outer, first, count)) {
    const long origin = axis_offset(outer, first);
    Walk walk = walk_from(inner, k_first);
    for (long k = 0; k < depth; ++k, out += width) {
      pack_dense(source, dt, origin + walk.offset, width, out);
      walk_on(inner, &walk, 1);
    }
    return;
  }
#endif
  for (int i = 0; i < count; i += BLOCK) {
    const int wanted = min(BLOCK, count - i);
    const int present = (int)clamp(limit - first - i, 0L, (long)wanted);
    long origins[BLOCK];
    for (int r = 0; r < present; ++r) origins[r] = axis_offset(outer, first + i + r);
    Walk walk = walk_from(inner, k_first);
    for (long k = 0; k < depth;) {
      __global R *to = out + k * width + i * PARTS;
#ifndef IS_COMPLEX
      if (present == BLOCK && k + BLOCK <= depth && walk.left >= BLOCK && inner->strides[0] == 1) {
        R4 block[BLOCK];
        for (int r = 0; r < BLOCK; ++r) block[r] = load4(source, origins[r] + walk.offset, dt);
        store_transposed(block, width, to);
        walk_on(inner, &walk, BLOCK);
        k += BLOCK;
        continue;
      }
#endif
      for (int r = 0; r < wanted; ++r)
        ((__global T *)to)[r] = r < present ? load_one(source, origins[r] + walk.offset, dt) : FROM_REAL(0);
      walk_on(inner, &walk, 1);
      ++k;
    }
  }
}

// One work-item packs `step` values of k of one panel: global size (panels, ceil(depth / step), batches).
// `first` and `k_first` place the chunk in the matrix; `limit` is the end of its rows (or columns).
__kernel void pack_rows(__global const uchar *source, ulong source_offset, int source_dtype, Matrix layout, long first,
                        long limit, long k_first, long depth, long step, __global uchar *packed, ulong packed_offset) {
  const long k = get_global_id(1) * step;
  source += source_offset + get_global_id(2) * layout.batch_stride * dtype_size(SOURCE_DTYPE);
  pack_panel(source, SOURCE_DTYPE, &layout.rows, &layout.columns, first + get_global_id(0) * (TILE_ROWS / PARTS),
             limit, k_first + k, min(step, depth - k), TILE_ROWS,
             panel_at(packed + packed_offset, depth, k, TILE_ROWS));
}

__kernel void pack_columns(__global const uchar *source, ulong source_offset, int source_dtype, Matrix layout,
                           long first, long limit, long k_first, long depth, long step, __global uchar *packed,
                           ulong packed_offset) {
  const long k = get_global_id(1) * step;
  source += source_offset + get_global_id(2) * layout.batch_stride * dtype_size(SOURCE_DTYPE);
  pack_panel(source, SOURCE_DTYPE, &layout.columns, &layout.rows, first + get_global_id(0) * (TILE_COLUMNS / PARTS),
             limit, k_first + k, min(step, depth - k), TILE_COLUMNS,
             panel_at(packed + packed_offset, depth, k, TILE_COLUMNS));
}

// --- the tile ---------------------------------------------------------------------------------------

// One tile's product of `depth` steps, written to `tile`. ROWS is a constant, so that the accumulators
// stay in registers. A row of a matrix' last panel that does not exist is packed as zero, and skipped in
// steps of four rows.
#define DEFINE_TILE(ROWS)                                                                                             \
  inline void PASTE(multiply_tile_, ROWS)(__global const R *a, __global const R *b, long depth, R *tile) {            \
    TileVector sums[ROWS][TILE_VECTORS];                                                                              \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r)                                                                  \
        _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; ++v) sums[r][v] = (TileVector)(0);                        \
    for (long k = 0; k < depth; ++k) {                                                                                \
      TileVector columns[TILE_VECTORS];                                                                               \
      _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; ++v) columns[v] = ((__global const TileVector *)b)[v];      \
      _Pragma("unroll") for (int r = 0; r < ROWS; ++r)                                                                \
          _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; ++v) sums[r][v] =                                       \
              REAL_MULTIPLY_ADD((TileVector)(a[r]), columns[v], sums[r][v]);                                          \
      a += TILE_ROWS;                                                                                                 \
      b += TILE_COLUMNS;                                                                                              \
    }                                                                                                                 \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r)                                                                  \
        _Pragma("unroll") for (int v = 0; v < TILE_VECTORS; ++v)                                                      \
            STORE_TILE_VECTOR(sums[r][v], r * TILE_VECTORS + v, tile);                                                \
  }

DEFINE_TILE(4)
#if TILE_ROWS > 4
DEFINE_TILE(8)
#endif
#if TILE_ROWS > 8
DEFINE_TILE(12)
#endif

inline void multiply_tile(__global const R *a, __global const R *b, long depth, int rows, R *tile) {
#if TILE_ROWS > 8
  if (rows > 8) return multiply_tile_12(a, b, depth, tile);
#endif
#if TILE_ROWS > 4
  if (rows > 4) return multiply_tile_8(a, b, depth, tile);
#endif
  multiply_tile_4(a, b, depth, tile);
}

#ifdef IS_COMPLEX
// Rows come in pairs, a.re * b and a.im * b with b as neighbouring reals; joins them, in place, to complex values.
inline void join_parts(R *tile, int rows) {
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
#endif

// Multiplies a chunk of `rows` x `columns` whose first element is (first_row, first_column) of the result.
// Global size (column panels, row blocks, batches * splits). A work-item takes one panel of B, which stays
// in its core's cache, through `block` panels of A. With splits > 1, each sums a part of k and stores it
// `split_stride` elements after the one before.
__kernel void gemm(__global const uchar *packed_a, ulong packed_a_offset, __global const uchar *packed_b,
                   ulong packed_b_offset, long first_row, long first_column, long rows, long columns, long depth,
                   long block, long splits, long split_stride, EPILOGUE_ARGUMENTS) {
  const long column_panels = get_global_size(0);
  const long column_panel = get_global_id(0);
  const long batch = get_global_id(2) / splits;
  const long split = get_global_id(2) % splits;
  const long row_panels = (rows * PARTS + TILE_ROWS - 1) / TILE_ROWS;
  const long k_step = (depth + splits - 1) / splits;
  const long k_first = min(split * k_step, depth);
  const long k_count = min(k_step, depth - k_first);

  __global const R *a = (__global const R *)(packed_a + packed_a_offset) + batch * row_panels * depth * TILE_ROWS;
  __global const R *b = (__global const R *)(packed_b + packed_b_offset) +
                        ((batch * column_panels + column_panel) * depth + k_first) * TILE_COLUMNS;
  const Epilogue epilogue = EPILOGUE(batch, split, split_stride);

  const long column = column_panel * (TILE_COLUMNS / PARTS);
  const int tile_columns = (int)min((long)(TILE_COLUMNS / PARTS), columns - column);
  const long last = min(row_panels, (long)(get_global_id(1) + 1) * block);
  for (long panel = get_global_id(1) * block; panel < last; ++panel) {
    const long row = panel * (TILE_ROWS / PARTS);
    const int tile_rows = (int)min((long)(TILE_ROWS / PARTS), rows - row);
    T tile[TILE_ROWS * TILE_COLUMNS / PARTS];
    multiply_tile(a + (panel * depth + k_first) * TILE_ROWS, b, k_count, tile_rows * PARTS, (R *)tile);
#ifdef IS_COMPLEX
    join_parts((R *)tile, tile_rows);
#endif
    store_product(&epilogue, tile, TILE_COLUMNS, first_row + row, first_column + column, tile_rows, tile_columns);
  }
}

// Sums the `splits` partial products of a chunk, each rows x columns values a batch, densely one after the other.
// Global size (ceil(columns / VEC), rows, batches).
__kernel void gemm_finish(__global const uchar *partial, ulong partial_offset, long first_row, long first_column,
                          long columns, long splits, EPILOGUE_ARGUMENTS) {
  const long column = get_global_id(0) * VEC;
  const long row = get_global_id(1);
  const long batch = get_global_id(2);
  const int count = (int)min((long)VEC, columns - column);
  const long chunk = get_global_size(1) * columns;
  __global const T *sums = (__global const T *)(partial + partial_offset) + batch * chunk + row * columns + column;
  const Epilogue epilogue = EPILOGUE(batch, 0, 0);
  T values[VEC];
  for (int c = 0; c < count; ++c) values[c] = sums[c];
  for (long split = 1; split < splits; ++split) {
    sums += get_global_size(2) * chunk;
    for (int c = 0; c < count; ++c) values[c] += sums[c];
  }
  store_product(&epilogue, values, VEC, first_row + row, first_column + column, 1, count);
}
