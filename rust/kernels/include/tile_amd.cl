// Tiles by clang's builtins for AMD's GPUs.
#if !TILE_EMULATED && (TILE_KIND == TILE_WMMA || TILE_KIND == TILE_WMMA12 || TILE_KIND == TILE_MFMA)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define TILE_MEMORY
#define TILE_PASS
#define TILE_COPIES 0

// A lane's elements are neighbours along k: if the block's rows run along k too, it loads 16 or 8 bytes at a time.
#if TILE_KIND == TILE_MFMA
#define PART_WORDS 2
typedef uint2 Part;
#else
#define PART_WORDS 4
typedef uint4 Part;
#endif
#define LOAD_PARTS(tile, WORDS, block, outer, k, OUTER, K)                                   \
  UNROLL for (int w = 0; w < WORDS; w += PART_WORDS) {                                       \
    const uint first = INDEX_IN_ROWS(width, outer + OUTER(lane, 2 * w), k + K(lane, 2 * w)); \
    *(Part *)((tile)->words + w) = *(__local const Part *)(block + first);                   \
  }
INLINE void tile_load_a(TileA *a, __local const ushort *block, bool along_k, uint width, uint row, uint k, uint lane) {
  if (along_k) {
    LOAD_PARTS(a, TILE_A_WORDS, block, row, k, TILE_A_ROW, TILE_A_K);
  } else {
    gather_a(a, block, along_k, width, row, k, lane);
  }
}
INLINE void tile_load_b(TileB *b, __local const ushort *block, bool along_k, uint width, uint column, uint k,
                        uint lane) {
  if (along_k) {
    LOAD_PARTS(b, TILE_B_WORDS, block, column, k, TILE_B_COLUMN, TILE_B_K);
  } else {
    gather_b(b, block, along_k, width, column, k, lane);
  }
}

#ifdef HAS_CLANG_BUILTINS
#if TILE_KIND == TILE_WMMA && INPUT_DTYPE == DT_BF16
typedef short16 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#elif TILE_KIND == TILE_WMMA
typedef half16 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#elif TILE_KIND == TILE_WMMA12 && INPUT_DTYPE == DT_BF16
typedef short8 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c)
#elif TILE_KIND == TILE_WMMA12
typedef half8 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#elif INPUT_DTYPE == DT_BF16
typedef short4 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#else
typedef half4 Operand;
#define MULTIPLY_TILES(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#endif
#endif
#if TILE_KIND == TILE_MFMA
typedef float4 Sums;
#else
typedef float8 Sums;
#endif
INLINE void tile_multiply(TileC *c, const TileA *a, const TileB *b, int row_tiles, int column_tiles, uint lane,
                          uint sub_group) {
  UNROLL for (int r = 0; r < row_tiles; ++r) UNROLL for (int t = 0; t < column_tiles; ++t) {
    Sums *sums = (Sums *)c[r * column_tiles + t].items;
    *sums = MULTIPLY_TILES(*(const Operand *)a[r].words, *(const Operand *)b[t].words, *sums);
  }
}

#ifdef HAS_CLANG_BUILTINS
INLINE float tile_shuffle(float value, uint mask, uint lane, uint sub_group) {
  return as_float(__builtin_amdgcn_ds_bpermute((int)((lane ^ mask) * 4), as_int(value)));
}
#endif
#define tile_exp2 native_exp2
INLINE uint tile_pack(float low, float high) {
#if INPUT_DTYPE == DT_BF16
  return PACK_BFLOAT16(low, high);
#else
  return as_uint((half2)((half)low, (half)high));
#endif
}
#endif
