// Blocks of 16-bit elements in local memory, from which tiles are loaded: rows of `width` elements in the order of
// global memory, either along k or along the *outer* index (the row of A, the column of B).
//
// The chunks of a row, of 8 elements or 16 bytes, are permuted by the row's number (xor), so that the 8 chunks below
// one another that a matrix load reads lie in 8 different groups of 4 banks, without padding. Rows of 64 bytes (32
// elements) share the 32 banks by two, and are permuted by half of their number. Lanes read two neighbouring chunks of
// each of 4 rows of float32 along the outer index at a time: these are permuted by twice the row's number.
#define CHUNK 8
#define PERMUTED_CHUNKS(width) ((width) / CHUNK < 8 ? (width) / CHUNK : 8)
#define PERMUTATION(width, row)                           \
  (INPUT_DTYPE == DT_F32 && (width) >= 64 ? (row) * 2 % 8 \
                                          : (row) / (8 / PERMUTED_CHUNKS(width)) % PERMUTED_CHUNKS(width))
#define INDEX_IN_ROWS(width, row, column) \
  ((row) * (width) + (((column) / CHUNK) ^ PERMUTATION(width, row)) * CHUNK + (column) % CHUNK)
// 16-bit elements of a value, which lie side by side.
#define VALUE_ELEMENTS (INPUT_DTYPE == DT_F32 ? 2 : 1)
// Index of a 16-bit value in its block. `along_k` and `width` are constants; width is 16, 32 or a multiple of 64.
#define BLOCK_INDEX(along_k, width, outer, k) \
  ((along_k) ? INDEX_IN_ROWS(width, outer, k) : INDEX_IN_ROWS(width, k, outer))

// Loads the words of a tile by two elements at a time, for layouts without an instruction that loads them.
#define GATHER_WORDS(words, count, block, along_k, width, outer0, k0, lane, OUTER, K)                              \
  UNROLL for (int w = 0; w < (count); ++w) {                                                                       \
    const uint first = BLOCK_INDEX(along_k, width, (outer0) + OUTER(lane, 2 * w), (k0) + K(lane, 2 * w));          \
    if ((along_k) && OUTER(0, 0) == OUTER(0, 1)) {                                                                 \
      (words)[w] = *(__local const uint *)((block) + first);                                                       \
    } else {                                                                                                       \
      const uint next = BLOCK_INDEX(along_k, width, (outer0) + OUTER(lane, 2 * w + 1), (k0) + K(lane, 2 * w + 1)); \
      (words)[w] = (uint)(block)[first] | (uint)(block)[next] << 16;                                               \
    }                                                                                                              \
  }
INLINE void gather_a(TileA *a, __local const ushort *block, bool along_k, uint width, uint row, uint k, uint lane) {
  GATHER_WORDS(a->words, TILE_A_WORDS, block, along_k, width, row, k, lane, TILE_A_ROW, TILE_A_K);
}
INLINE void gather_b(TileB *b, __local const ushort *block, bool along_k, uint width, uint column, uint k, uint lane) {
  GATHER_WORDS(b->words, TILE_B_WORDS, block, along_k, width, column, k, lane, TILE_B_COLUMN, TILE_B_K);
}

#if TILE_KIND == TILE_MMA
// ldmatrix loads four matrices of 8 x 8 elements; lanes 8 j to 8 j + 7 give the addresses of the rows of matrix j.
// These are the indices that a lane gives, for matrices in the order of a tile's words. If the rows of a block run
// along the outer index, ldmatrix transposes the matrices. It cannot transpose values of 32 bits: lanes load these one
// by one.
#define HAS_MATRIX_LOADS(along_k) ((along_k) || VALUE_ELEMENTS == 1)
INLINE uint matrix_row_a(bool along_k, uint width, uint row, uint k, uint lane) {
  const uint j = lane / 8, r = lane % 8;
  return along_k ? INDEX_IN_ROWS(width, row + j % 2 * 8 + r, k + j / 2 * 8)
                 : INDEX_IN_ROWS(width, k + j / 2 * 8 + r, row + j % 2 * 8);
}
INLINE uint matrix_row_b(bool along_k, uint width, uint column, uint k, uint lane) {
  const uint j = lane / 8, r = lane % 8;
  return along_k ? INDEX_IN_ROWS(width, column + j / 2 * 8 + r, k + j % 2 * 8)
                 : INDEX_IN_ROWS(width, k + j % 2 * 8 + r, column + j / 2 * 8);
}

// The index of word w of a tile of float32 in a block whose rows run along the outer index. It is INDEX_IN_ROWS of the
// word's row and column, written as a sum of a constant and one of four numbers that all tiles of a lane share.
#define WORD_INDEX(width, outer0, k0, lane, w, OUTER, K)                                                     \
  ((lane) % 4 * (width) + (lane) / 4 * 2 + (((outer0) % 32 / 8 + OUTER(0, 2 * (w)) / 8) ^ (lane) % 4) * 16 + \
   ((k0) + K(0, 2 * (w))) / 2 * (width) + (outer0) / 32 * 64)
INLINE void load_words_a(TileA *a, __local const ushort *block, uint width, uint row, uint k, uint lane) {
  UNROLL for (int w = 0; w < TILE_A_WORDS; ++w) a->words[w] =
      *(__local const uint *)(block + WORD_INDEX(width, row, k, lane, w, TILE_A_ROW, TILE_A_K));
}
INLINE void load_words_b(TileB *b, __local const ushort *block, uint width, uint column, uint k, uint lane) {
  UNROLL for (int w = 0; w < TILE_B_WORDS; ++w) b->words[w] =
      *(__local const uint *)(block + WORD_INDEX(width, column, k, lane, w, TILE_B_COLUMN, TILE_B_K));
}
#endif
