// Tiles without matrix instructions, on any device with work-groups: for tests of the kernels that use them
// (TORCH_OPENCL_MATRIX=emulated:mma). If TILE_EMULATED is 2, a lane's results are wrong. TILE_DOT: tile_dot.cl.
//
// Lanes exchange their words through local memory: each element is stored at the position that the layout documents,
// and each lane computes the elements of C that the layout gives to it. All items of a group call tile_multiply
// together.
#if TILE_EMULATED && TILE_KIND != TILE_DOT
// TILES: the most tiles of A and of B together in a call of tile_multiply.
#define EXCHANGE (TILES * TILE * TILE_K)
#define TILE_MEMORY __local ushort tile_exchange[SUB_GROUPS * EXCHANGE];
#define TILE_PASS , tile_exchange

#if TILE_KIND == TILE_MMA
// Word j of a lane, by PTX's definition of ldmatrix.x4: elements 2 (lane % 4) and the next of row lane / 4 of matrix
// j, or with .trans of its column lane / 4.
#define EMULATE_MATRICES(words, block, matrix_row, outer, k)                                   \
  UNROLL for (int j = 0; j < 4; ++j) {                                                         \
    if (along_k) {                                                                             \
      __local const ushort *from = (block) + matrix_row(1, width, outer, k, 8 * j + lane / 4); \
      (words)[j] = (uint)from[lane % 4 * 2] | (uint)from[lane % 4 * 2 + 1] << 16;              \
    } else {                                                                                   \
      const uint first = 8 * j + lane % 4 * 2;                                                 \
      __local const ushort *from = (block) + matrix_row(0, width, outer, k, first);            \
      __local const ushort *next = (block) + matrix_row(0, width, outer, k, first + 1);        \
      (words)[j] = (uint)from[lane / 4] | (uint)next[lane / 4] << 16;                          \
    }                                                                                          \
  }
INLINE void tile_load_a(TileA *a, __local const ushort *block, bool along_k, uint width, uint row, uint k, uint lane) {
  if (!HAS_MATRIX_LOADS(along_k)) load_words_a(a, block, width, row, k, lane);
  else EMULATE_MATRICES(a->words, block, matrix_row_a, row, k);
}
INLINE void tile_load_b(TileB *b, __local const ushort *block, bool along_k, uint width, uint column, uint k,
                        uint lane) {
  if (!HAS_MATRIX_LOADS(along_k)) load_words_b(b, block, width, column, k, lane);
  else EMULATE_MATRICES(b->words, block, matrix_row_b, column, k);
}
#else
#define tile_load_a gather_a
#define tile_load_b gather_b
#endif

INLINE float tile_value(__local const ushort *from) {
#if INPUT_DTYPE == DT_BF16
  return as_float((uint)from[0] << 16);
#elif INPUT_DTYPE == DT_F32
  // Rounded to 10 bits of the significand, ties away from zero.
  const uint bits = (uint)from[0] | (uint)from[1] << 16;
  return isnan(as_float(bits)) ? as_float(bits) : as_float((bits + 0x1000u) & ~0x1fffu);
#else
  return vload_half(0, (__local const half *)from);
#endif
}

// Adds the products of rows x and y, of TILE_K elements each.
INLINE TileSum add_products(TileSum sum, __local const ushort *x, __local const ushort *y) {
#if INPUT_DTYPE == DT_I8
  for (int k = 0; k < 2 * TILE_K; ++k) sum += ((__local const char *)x)[k] * ((__local const char *)y)[k];
#else
  const int step = INPUT_DTYPE == DT_F32 ? 2 : 1;
  for (int k = 0; k < TILE_K; k += step) sum = fma(tile_value(x + k), tile_value(y + k), sum);
#endif
  return sum;
}

#define HALF_OF(words, e) ((ushort)((words)[(e) / 2] >> ((e) % 2 * 16)))

INLINE void tile_multiply(TileC *c, const TileA *a, const TileB *b, int row_tiles, int column_tiles, uint lane,
                          uint sub_group, __local ushort *tile_exchange) {
  __local ushort *left = tile_exchange + sub_group * EXCHANGE, *right = left + row_tiles * TILE * TILE_K;
  for (int r = 0; r < row_tiles; ++r)
    for (int e = 0; e < 2 * TILE_A_WORDS; ++e)
      left[(r * TILE + TILE_A_ROW(lane, e)) * TILE_K + TILE_A_K(lane, e)] = HALF_OF(a[r].words, e);
  for (int t = 0; t < column_tiles; ++t)
    for (int e = 0; e < 2 * TILE_B_WORDS; ++e)
      right[(t * TILE + TILE_B_COLUMN(lane, e)) * TILE_K + TILE_B_K(lane, e)] = HALF_OF(b[t].words, e);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = 0; r < row_tiles; ++r)
    for (int t = 0; t < column_tiles; ++t)
      for (int i = 0; i < TILE_C_ITEMS; ++i) {
        __local const ushort *x = left + (r * TILE + TILE_C_ROW(lane, i)) * TILE_K;
        __local const ushort *y = right + (t * TILE + TILE_C_COLUMN(lane, i)) * TILE_K;
        TileSum *sum = &c[r * column_tiles + t].items[i];
        *sum = add_products(*sum, x, y) + (TILE_EMULATED == 2 && lane == 3);
      }
  barrier(CLK_LOCAL_MEM_FENCE);
}

INLINE float tile_shuffle(float value, uint mask, uint lane, uint sub_group, __local ushort *tile_exchange) {
  __local ushort *lanes = tile_exchange + sub_group * EXCHANGE;
  lanes[2 * lane] = (ushort)as_uint(value);
  lanes[2 * lane + 1] = (ushort)(as_uint(value) >> 16);
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint other = lane ^ mask, bits = (uint)lanes[2 * other] | (uint)lanes[2 * other + 1] << 16;
  barrier(CLK_LOCAL_MEM_FENCE);
  return as_float(bits);
}
#define tile_exp2 native_exp2
INLINE uint tile_pack(float low, float high) {
#if INPUT_DTYPE == DT_BF16
  return PACK_BFLOAT16(low, high);
#else
  ushort bits[2];
  vstore_half_rte(low, 0, (half *)bits);
  vstore_half_rte(high, 1, (half *)bits);
  return (uint)bits[0] | (uint)bits[1] << 16;
#endif
}

// Copies that are executed only when they are waited for, which is as late as the hardware may.
#define TILE_COPIES (TILE_KIND == TILE_MMA)
typedef struct {
  __local uint4 *to[COPIES * STAGES];
  __global const uchar *from[COPIES * STAGES];
  int bytes[COPIES * STAGES];
  int count, groups, sizes[STAGES + 1];
} Copies;
#define START_COPIES(copies) \
  Copies copies;             \
  copies.count = copies.groups = copies.sizes[0] = 0;
// Copies the first `bytes` of 16, and sets the others to zero.
INLINE void copy_chunk(Copies *copies, __local uint4 *to, __global const uchar *from, bool is_whole, int bytes) {
  const int i = copies->count++;
  copies->to[i] = to;
  copies->from[i] = from;
  copies->bytes[i] = bytes;
  ++copies->sizes[copies->groups];
}
INLINE void close_copies(Copies *copies) { copies->sizes[++copies->groups] = 0; }
// Returns when all closed groups but the last `open` are copied.
INLINE void wait_for_copies(Copies *copies, int open) {
  int done = 0;
  const int finished = max(copies->groups - open, 0);
  for (int g = 0; g < finished; ++g) done += copies->sizes[g];
  for (int i = 0; i < done; ++i) {
    // The hardware requires multiples of 16 bytes: anything else gives NaN here.
    const uint fault = (size_t)copies->from[i] % 16 && copies->bytes[i] > 0 ? 0x7fff7fffu : 0;
    uint words[4] = {fault, fault, fault, fault};
    for (int e = 0; 2 * e < copies->bytes[i]; ++e)
      words[e / 2] |= (uint)((__global const ushort *)copies->from[i])[e] << (e % 2 * 16);
    *copies->to[i] = (uint4)(words[0], words[1], words[2], words[3]);
  }
  for (int i = done; i < copies->count; ++i) {
    copies->to[i - done] = copies->to[i];
    copies->from[i - done] = copies->from[i];
    copies->bytes[i - done] = copies->bytes[i];
  }
  for (int g = finished; g <= copies->groups; ++g) copies->sizes[g - finished] = copies->sizes[g];
  copies->count -= done;
  copies->groups -= finished;
}
#endif
