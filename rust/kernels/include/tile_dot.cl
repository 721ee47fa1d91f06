// Tiles for devices without matrix instructions that have an instruction of a lane which multiplies two pairs of
// float16, or two times four int8, and adds the products to a sum of 32 bits. A lane multiplies its own rows and
// columns: lanes exchange nothing, and need not be a sub-group of the hardware. If TILE_EMULATED, ordinary
// instructions compute the sums.
#if TILE_KIND == TILE_DOT
#define TILE_MEMORY
#define TILE_PASS
#define TILE_COPIES 0

#define WORD_AT(outer, k) (*(__local const uint *)(block + BLOCK_INDEX(along_k, width, outer, k)))
// Loads words of two neighbouring outer indices. Where rows of the block run along the outer index, a word of local
// memory has both indices for one k, so that two words are exchanged for two words with both k.
#define LOAD_PAIRS(words, count, block, along_k, width, outer0, k, lane, OUTER) \
  UNROLL for (int w = 0; w < (count); w += 2) {                                 \
    const uint first = (outer0) + OUTER(lane, 2 * w);                           \
    if (along_k) {                                                              \
      (words)[w] = WORD_AT(first, k);                                           \
      (words)[w + 1] = WORD_AT(first + 1, k);                                   \
    } else {                                                                    \
      const uint now = WORD_AT(first, k), next = WORD_AT(first, (k) + 1);       \
      (words)[w] = (now & 0xffffu) | next << 16;                                \
      (words)[w + 1] = now >> 16 | (next & 0xffff0000u);                        \
    }                                                                           \
  }
INLINE void tile_load_a(TileA *a, __local const ushort *block, bool along_k, uint width, uint row, uint k, uint lane) {
  LOAD_PAIRS(a->words, TILE_A_WORDS, block, along_k, width, row, k, lane, TILE_A_ROW);
}
INLINE void tile_load_b(TileB *b, __local const ushort *block, bool along_k, uint width, uint column, uint k,
                        uint lane) {
  LOAD_PAIRS(b->words, TILE_B_WORDS, block, along_k, width, column, k, lane, TILE_B_COLUMN);
}

#if TILE_EMULATED && INPUT_DTYPE == DT_I8
INLINE int add_products(uint x, uint y, int sum) {
  const char4 left = as_char4(x), right = as_char4(y);
  return sum + left.x * right.x + left.y * right.y + left.z * right.z + left.w * right.w;
}
#elif TILE_EMULATED
INLINE float add_products(uint x, uint y, float sum) {
  const float2 left = vload_half2(0, (const half *)&x), right = vload_half2(0, (const half *)&y);
  return fma(left.x, right.x, fma(left.y, right.y, sum));
}
#else
#if defined(HAS_CLANG_BUILTINS) && defined(__AMDGCN__)
#if INPUT_DTYPE == DT_F16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define add_products(x, y, sum) __builtin_amdgcn_fdot2(as_half2(x), as_half2(y), sum, false)
#elif defined(__GFX11__) || defined(__GFX12__)
#define add_products(x, y, sum) __builtin_amdgcn_sudot4(true, (int)(x), true, (int)(y), sum, false)
#else
#define add_products(x, y, sum) __builtin_amdgcn_sdot4((int)(x), (int)(y), sum, false)
#endif
#else
// By cl_khr_integer_dot_product. Intel's driver 22.43 does not link the function that does not add.
#define add_products(x, y, sum) dot_acc_sat(as_char4(x), as_char4(y), sum)
#endif
#endif

INLINE void tile_multiply(TileC *c, const TileA *a, const TileB *b, int row_tiles, int column_tiles, uint lane,
                          uint sub_group) {
  UNROLL for (int r = 0; r < row_tiles; ++r) UNROLL for (int t = 0; t < column_tiles; ++t)
      UNROLL for (int i = 0; i < TILE_C_ITEMS; ++i) {
    TileSum *sum = &c[r * column_tiles + t].items[i];
    *sum = add_products(a[r].words[i / TILE_B_WORDS], b[t].words[i % TILE_B_WORDS], *sum);
    if (TILE_EMULATED == 2 && lane == 3) *sum += 1;
  }
}
#endif
