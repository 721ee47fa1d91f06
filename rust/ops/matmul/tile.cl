// The tile of a GEMM on CPUs: the part of C in vector registers, and the loop over k that fills it.

#define FOR_TILE(VECTORS) UNROLL for (int r = 0; r < TILE_ROWS; ++r) UNROLL for (int v = 0; v < VECTORS; ++v)

// Accumulates `k_count` steps of k. Rows of `a` are ROW_STEP apart, values of k K_STEP in `a` and B_STEP in `b`.
#define MULTIPLY_ADD_TILE(sums, VECTORS, a, ROW_STEP, K_STEP, b, B_STEP, k_count)                            \
  for (int k = 0; k < k_count; ++k, a += K_STEP, b += B_STEP) {                                              \
    TileVector columns[VECTORS];                                                                             \
    UNROLL for (int v = 0; v < VECTORS; ++v) columns[v] = ((__local const TileVector *)b)[v];                \
    FOR_TILE(VECTORS) sums[r][v] = REAL_MULTIPLY_ADD((TileVector)(a[r * ROW_STEP]), columns[v], sums[r][v]); \
  }

// Not inlined, as all code that multiplies would otherwise be compiled once for each kernel: gemm then takes a sixth
// longer to build (PoCL).
// A finished tile of C goes to `tile`; an unfinished one is kept in `partial` for more of k.
#define DEFINE_TILE(NAME, MEMORY, ROW_STEP, K_STEP, B_STEP, PARTIAL_MEMORY, VECTORS)                                   \
  OUTLINED void PASTE(NAME, VECTORS)(MEMORY const R *a, long row_step, __local const R *b, int k_count, bool is_first, \
                                     PARTIAL_MEMORY TileVector *partial, TileVector *tile) {                           \
    TileVector sums[TILE_ROWS][VECTORS];                                                                               \
    if (is_first) {                                                                                                    \
      FOR_TILE(VECTORS) sums[r][v] = (TileVector)(0);                                                                  \
    } else {                                                                                                           \
      FOR_TILE(VECTORS) sums[r][v] = partial[r * VECTORS + v];                                                         \
    }                                                                                                                  \
    MULTIPLY_ADD_TILE(sums, VECTORS, a, ROW_STEP, K_STEP, b, B_STEP(VECTORS), k_count)                                 \
    if (tile) {                                                                                                        \
      FOR_TILE(VECTORS) tile[r * TILE_VECTORS + v] = sums[r][v];                                                       \
    } else {                                                                                                           \
      FOR_TILE(VECTORS) partial[r * VECTORS + v] = sums[r][v];                                                         \
    }                                                                                                                  \
  }

// Panels of B that always have full width, and panels that hold only the tile's vectors.
#define FULL_PANEL(VECTORS) TILE_COLUMNS
#define NARROW_PANEL(VECTORS) (VECTORS * TILE_LANES)

// Skips the vectors past `columns` in a matrix's last panel.
#define DEFINE_TILES(NAME, MEMORY, ROW_STEP, K_STEP, B_STEP, PARTIAL_MEMORY)                              \
  DEFINE_TILE(NAME, MEMORY, ROW_STEP, K_STEP, B_STEP, PARTIAL_MEMORY, 1)                                  \
  DEFINE_TILE(NAME, MEMORY, ROW_STEP, K_STEP, B_STEP, PARTIAL_MEMORY, 2)                                  \
  DEFINE_TILE(NAME, MEMORY, ROW_STEP, K_STEP, B_STEP, PARTIAL_MEMORY, 3)                                  \
  static inline void NAME(MEMORY const R *a, long row_step, __local const R *b, int k_count, int columns, \
                          bool is_first, PARTIAL_MEMORY TileVector *partial, TileVector *tile) {          \
    if (columns > 2 * TILE_LANES) PASTE(NAME, 3)(a, row_step, b, k_count, is_first, partial, tile);       \
    else if (columns > TILE_LANES) PASTE(NAME, 2)(a, row_step, b, k_count, is_first, partial, tile);      \
    else PASTE(NAME, 1)(a, row_step, b, k_count, is_first, partial, tile);                                \
  }
