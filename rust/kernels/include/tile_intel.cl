// Tiles by cl_intel_subgroup_matrix_multiply_accumulate.
#if !TILE_EMULATED && (TILE_KIND == TILE_DPAS16 || TILE_KIND == TILE_DPAS8)
#define TILE_MEMORY
#define TILE_PASS
#define TILE_COPIES 0
#define tile_load_a gather_a
#define tile_load_b gather_b
#if INPUT_DTYPE == DT_I8
typedef int8 Sums;
#define DPAS intel_sub_group_i8_i8_matrix_mad_k32
#elif INPUT_DTYPE == DT_BF16
typedef float8 Sums;
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#else
typedef float8 Sums;
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#endif
INLINE void tile_multiply(TileC *c, const TileA *a, const TileB *b, int row_tiles, int column_tiles, uint lane,
                          uint sub_group) {
  UNROLL for (int r = 0; r < row_tiles; ++r) UNROLL for (int t = 0; t < column_tiles; ++t) {
    Sums *sums = (Sums *)c[r * column_tiles + t].items;
#if TILE_KIND == TILE_DPAS16
    const int8 right = *(const int8 *)b[t].words;
    sums[0] = DPAS(((const short8 *)a[r].words)[0], right, sums[0]);
    sums[1] = DPAS(((const short8 *)a[r].words)[1], right, sums[1]);
#else
    const int8 *left = (const int8 *)a[r].words, *right = (const int8 *)b[t].words;
    sums[0] = DPAS(left[0], right[0], sums[0]);
    sums[1] = DPAS(left[0], right[1], sums[1]);
    sums[2] = DPAS(left[1], right[0], sums[2]);
    sums[3] = DPAS(left[1], right[1], sums[3]);
#endif
  }
}

#define tile_shuffle(value, mask, lane, sub_group) intel_sub_group_shuffle_xor(value, mask)
#define tile_exp2 native_exp2
INLINE uint tile_pack(float low, float high) {
#if INPUT_DTYPE == DT_BF16
  return PACK_BFLOAT16(low, high);
#else
  return (uint)as_ushort(convert_half_rte(low)) | (uint)as_ushort(convert_half_rte(high)) << 16;
#endif
}
#endif
