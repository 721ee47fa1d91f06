// Tiles by PTX, for NVIDIA's GPUs from compute capability 8.0 on.
#if !TILE_EMULATED && TILE_KIND == TILE_MMA
#define TILE_MEMORY
#define TILE_PASS

// An address in local memory: an offset of 32 bits in the window of shared memory.
#define SHARED_ADDRESS(p) ((uint)(size_t)(p))

#define LOAD_MATRICES(TRANS, words, p)                                                     \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"((words)[0]), "=r"((words)[1]), "=r"((words)[2]), "=r"((words)[3])    \
               : "r"(SHARED_ADDRESS(p))                                                    \
               : "memory")
// mma.sync would cut off the lower bits of a float32.
#if INPUT_DTYPE == DT_F32
#define ROUND_WORDS(words) \
  UNROLL for (int w = 0; w < 4; ++w) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"((words)[w]) : "r"((words)[w]));
#else
#define ROUND_WORDS(words)
#endif
INLINE void tile_load_a(TileA *a, __local const ushort *block, bool along_k, uint width, uint row, uint k, uint lane) {
  if (!HAS_MATRIX_LOADS(along_k)) load_words_a(a, block, width, row, k, lane);
  else if (along_k) LOAD_MATRICES("", a->words, block + matrix_row_a(1, width, row, k, lane));
  else LOAD_MATRICES(".trans", a->words, block + matrix_row_a(0, width, row, k, lane));
  ROUND_WORDS(a->words)
}
INLINE void tile_load_b(TileB *b, __local const ushort *block, bool along_k, uint width, uint column, uint k,
                        uint lane) {
  if (!HAS_MATRIX_LOADS(along_k)) load_words_b(b, block, width, column, k, lane);
  else if (along_k) LOAD_MATRICES("", b->words, block + matrix_row_b(1, width, column, k, lane));
  else LOAD_MATRICES(".trans", b->words, block + matrix_row_b(0, width, column, k, lane));
  ROUND_WORDS(b->words)
}

#if INPUT_DTYPE == DT_BF16
#define MMA_TYPES "m16n8k16.row.col.f32.bf16.bf16.f32"
#elif INPUT_DTYPE == DT_F32
#define MMA_TYPES "m16n8k8.row.col.f32.tf32.tf32.f32"
#elif INPUT_DTYPE == DT_I8
#define MMA_TYPES "m16n8k32.row.col.s32.s8.s8.s32"
#else
#define MMA_TYPES "m16n8k16.row.col.f32.f16.f16.f32"
#endif
#if INPUT_DTYPE == DT_I8
#define SUM_REGISTER "+r"
#else
#define SUM_REGISTER "+f"
#endif
// Columns 8 j to 8 j + 7 of a tile. Not volatile: a product depends on its operands alone.
#define MULTIPLY_HALF(j, c, a, b)                                                                      \
  asm("mma.sync.aligned." MMA_TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : SUM_REGISTER((c)[4 * j]), SUM_REGISTER((c)[4 * j + 1]), SUM_REGISTER((c)[4 * j + 2]),          \
        SUM_REGISTER((c)[4 * j + 3])                                                                   \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[2 * j]), "r"((b)[2 * j + 1]))
INLINE void tile_multiply(TileC *c, const TileA *a, const TileB *b, int row_tiles, int column_tiles, uint lane,
                          uint sub_group) {
  UNROLL for (int r = 0; r < row_tiles; ++r) UNROLL for (int step = 0; step < column_tiles; ++step) {
    // Forward and backward in turns, so that neighbouring instructions share an operand.
    const int t = r % 2 ? column_tiles - 1 - step : step;
    MULTIPLY_HALF(0, c[r * column_tiles + t].items, a[r].words, b[t].words);
    MULTIPLY_HALF(1, c[r * column_tiles + t].items, a[r].words, b[t].words);
  }
}

INLINE float tile_shuffle(float value, uint mask, uint lane, uint sub_group) {
  float other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(other) : "f"(value), "r"(mask));
  return other;
}
INLINE float tile_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#if INPUT_DTYPE == DT_BF16
#define PACK_TYPES "bf16x2.f32"
#else
#define PACK_TYPES "f16x2.f32"
#endif
INLINE uint tile_pack(float low, float high) {
  uint bits;
  asm("cvt.rn." PACK_TYPES " %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

#define TILE_COPIES 1
typedef int Copies;
#define START_COPIES(copies) Copies copies = 0;
// Bytes after the first `bytes` of 16 become zeros, and are not read: their addresses may lie outside of the operand.
INLINE void copy_chunk(Copies *copies, __local uint4 *to, __global const uchar *from, bool is_whole, int bytes) {
  if (is_whole)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(SHARED_ADDRESS(to)), "l"(from) : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(SHARED_ADDRESS(to)), "l"(from), "r"(bytes)
                 : "memory");
}
INLINE void close_copies(Copies *copies) { asm volatile("cp.async.commit_group;" : : : "memory"); }
#define wait_for_copies(copies, open) asm volatile("cp.async.wait_group %0;" : : "n"(open) : "memory")
#endif
