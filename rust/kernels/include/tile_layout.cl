// Tiles of matrix instructions: which elements each lane of a sub-group holds, as vendors document them. TILE_DOT has
// no matrix instructions: its sub-groups are any TILE_LANES items, and its layout is our choice.
//
// A tile computes C[16][16] += A[16][TILE_K] B[TILE_K][16], by the TILE_LANES items of a sub-group together. A lane has
// TILE_A_WORDS words of A and TILE_B_WORDS words of B, of two 16-bit elements each (the lower half first), and
// TILE_C_ITEMS sums of C. Element e, or item i, of a lane is at
//
//   A[TILE_A_ROW(lane, e)][TILE_A_K(lane, e)]        B[TILE_B_K(lane, e)][TILE_B_COLUMN(lane, e)]
//   C[TILE_C_ROW(lane, i)][TILE_C_COLUMN(lane, i)]
//
// For attention: a row of C is held by TILE_ROW_LANES neighbouring lanes, and a lane has parts of TILE_LANE_ROWS rows:
// item i is in its row TILE_LANE_ROW(i).
//
// A float32 is two such elements, and two int8 are one: the instructions for them have the same words, and compute
// half and twice as many values of k (TensorFloat-32: TILE_MMA; int8, with sums in int32: TILE_MMA, Intel's and
// TILE_DOT). The rows of a block of int8 run along k.
//
// Kernels and the emulation know a layout by these macros alone. The order of k does not matter if A and B share it, so
// it need not be the hardware's.
//
// A file for each vendor defines the same functions:
//
//   tile_load_a, tile_load_b (to, block, along_k, width, outer, k, lane): a tile from a block in local memory
//   tile_multiply (c, a, b, row_tiles, column_tiles, lane, sub_group TILE_PASS): c[r][t] += a[r] b[t]
//   tile_shuffle (value, mask, lane, sub_group TILE_PASS): the value of lane `lane ^ mask`
//   tile_exp2 (x), tile_pack (low, high): two floats rounded to 16 bits, the first in the lower half
//
// TILE_DOT has tile_load_a, tile_load_b and tile_multiply, which matmuls need. If TILE_COPIES is 1, there are copies
// from global to local memory that continue while the item computes: START_COPIES(copies), copy_chunk, close_copies
// and wait_for_copies.

// The values equal those of rust/ops/matmul/tile_kind.rs.
#define TILE_MMA 1  // NVIDIA from compute capability 8.0 on: two mma.sync.m16n8k16 side by side
#define TILE_WMMA 2  // AMD gfx11: v_wmma_f32_16x16x16, wave32; both halves of a wave hold the same A and B
#define TILE_WMMA12 3  // AMD gfx12: v_wmma_f32_16x16x16, wave32, which holds nothing twice
#define TILE_MFMA 4  // AMD gfx90a and gfx94x: v_mfma_f32_16x16x16, wave64
#define TILE_DPAS16 5  // Intel Xe-HPC and Xe2: two dpas 8 x 16 x 16, sub-groups of 16
#define TILE_DPAS8 6  // Intel Arc A (Xe-HPG): four dpas 8 x 8 x 16, sub-groups of 8
#define TILE_DOT 7  // an instruction of a lane that adds products of two pairs to a sum, such as v_dot2_f32_f16

#if TILE_KIND == TILE_MMA
#define TILE_LANES 32
#define TILE_A_WORDS 4
#define TILE_B_WORDS 4
#define TILE_C_ITEMS 8
#define TILE_A_ROW(lane, e) ((lane) / 4 + (e) / 2 % 2 * 8)
#define TILE_A_K(lane, e) ((lane) % 4 * 2 + (e) / 4 * 8 + (e) % 2)
#define TILE_B_COLUMN(lane, e) ((lane) / 4 + (e) / 4 * 8)
#define TILE_B_K(lane, e) ((lane) % 4 * 2 + (e) / 2 % 2 * 8 + (e) % 2)
#define TILE_C_ROW(lane, i) ((lane) / 4 + (i) % 4 / 2 * 8)
#define TILE_C_COLUMN(lane, i) ((lane) % 4 * 2 + (i) / 4 * 8 + (i) % 2)
#define TILE_ROW_LANES 4
#define TILE_LANE_ROWS 2
#define TILE_LANE_ROW(i) ((i) % 4 / 2)
#elif TILE_KIND == TILE_WMMA
#define TILE_LANES 32
#define TILE_A_WORDS 8
#define TILE_B_WORDS 8
#define TILE_C_ITEMS 8
#define TILE_A_ROW(lane, e) ((lane) % 16)
#define TILE_A_K(lane, e) (e)
#define TILE_B_COLUMN(lane, e) ((lane) % 16)
#define TILE_B_K(lane, e) (e)
#define TILE_C_ROW(lane, i) ((i) * 2 + (lane) / 16)
#define TILE_C_COLUMN(lane, i) ((lane) % 16)
#define TILE_ROW_LANES 16
#define TILE_LANE_ROWS 8
#define TILE_LANE_ROW(i) (i)
#elif TILE_KIND == TILE_WMMA12
#define TILE_LANES 32
#define TILE_A_WORDS 4
#define TILE_B_WORDS 4
#define TILE_C_ITEMS 8
#define TILE_A_ROW(lane, e) ((lane) % 16)
#define TILE_A_K(lane, e) ((lane) / 16 * 8 + (e))
#define TILE_B_COLUMN(lane, e) ((lane) % 16)
#define TILE_B_K(lane, e) ((lane) / 16 * 8 + (e))
#define TILE_C_ROW(lane, i) ((lane) / 16 * 8 + (i))
#define TILE_C_COLUMN(lane, i) ((lane) % 16)
#define TILE_ROW_LANES 16
#define TILE_LANE_ROWS 8
#define TILE_LANE_ROW(i) (i)
#elif TILE_KIND == TILE_MFMA
#define TILE_LANES 64
#define TILE_A_WORDS 2
#define TILE_B_WORDS 2
#define TILE_C_ITEMS 4
#define TILE_A_ROW(lane, e) ((lane) % 16)
#define TILE_A_K(lane, e) ((lane) / 16 * 4 + (e))
#define TILE_B_COLUMN(lane, e) ((lane) % 16)
#define TILE_B_K(lane, e) ((lane) / 16 * 4 + (e))
#define TILE_C_ROW(lane, i) ((lane) / 16 * 4 + (i))
#define TILE_C_COLUMN(lane, i) ((lane) % 16)
#define TILE_ROW_LANES 16
#define TILE_LANE_ROWS 4
#define TILE_LANE_ROW(i) (i)
#elif TILE_KIND == TILE_DPAS16
#define TILE_LANES 16
#define TILE_A_WORDS 8
#define TILE_B_WORDS 8
#define TILE_C_ITEMS 16
#define TILE_A_ROW(lane, e) (e)
#define TILE_A_K(lane, e) (lane)
#define TILE_B_COLUMN(lane, e) (lane)
#define TILE_B_K(lane, e) (e)
#define TILE_C_ROW(lane, i) (i)
#define TILE_C_COLUMN(lane, i) (lane)
#define TILE_ROW_LANES 16
#define TILE_LANE_ROWS 16
#define TILE_LANE_ROW(i) (i)
#elif TILE_KIND == TILE_DPAS8
#define TILE_LANES 8
#define TILE_A_WORDS 16
#define TILE_B_WORDS 16
#define TILE_C_ITEMS 32
#define TILE_A_ROW(lane, e) ((e) / 2)
#define TILE_A_K(lane, e) ((lane) * 2 + (e) % 2)
#define TILE_B_COLUMN(lane, e) ((lane) + (e) / 16 * 8)
#define TILE_B_K(lane, e) ((e) % 16)
#define TILE_C_ROW(lane, i) ((i) % 8 + (i) / 16 * 8)
#define TILE_C_COLUMN(lane, i) ((lane) + (i) / 8 % 2 * 8)
#define TILE_ROW_LANES 8
#define TILE_LANE_ROWS 16
#define TILE_LANE_ROW(i) ((i) % 8 + (i) / 16 * 8)
#elif TILE_KIND == TILE_DOT
// Two neighbouring rows, and two pairs of neighbouring columns.
#define TILE_LANES 32
#define TILE_A_WORDS 2
#define TILE_B_WORDS 4
#define TILE_C_ITEMS 8
#define TILE_A_ROW(lane, e) ((lane) / 4 * 2 + (e) / 2)
#define TILE_A_K(lane, e) ((e) % 2)
#define TILE_B_COLUMN(lane, e) ((lane) % 4 * 2 + (e) / 2 % 2 + (e) / 4 * 8)
#define TILE_B_K(lane, e) ((e) % 2)
#define TILE_C_ROW(lane, i) ((lane) / 4 * 2 + (i) / 4)
#define TILE_C_COLUMN(lane, i) ((lane) % 4 * 2 + (i) % 2 + (i) / 2 % 2 * 8)
#endif

// Two floats as 16-bit floats, the first in the lower half; for numbers that are not NaN.
#define ROUNDED_BITS(x) (as_uint(x) + 0x7fffu + (as_uint(x) >> 16 & 1u))
#define PACK_BFLOAT16(low, high) (ROUNDED_BITS(low) >> 16 | (ROUNDED_BITS(high) & 0xffff0000u))

// Intel's instructions need sub-groups of this size.
#if !TILE_EMULATED && (TILE_KIND == TILE_DPAS16 || TILE_KIND == TILE_DPAS8)
#define SUB_GROUP_SIZE __attribute__((intel_reqd_sub_group_size(TILE_LANES)))
#else
#define SUB_GROUP_SIZE
#endif

// Rows and columns of a tile, and values of k.
#define TILE 16
#define TILE_K (TILE_KIND == TILE_DOT ? 2 : 16)

// Aligned as the vectors that instructions take.
typedef struct {
  uint words[TILE_A_WORDS];
} __attribute__((aligned(4 * TILE_A_WORDS))) TileA;
typedef struct {
  uint words[TILE_B_WORDS];
} __attribute__((aligned(4 * TILE_B_WORDS))) TileB;
#if INPUT_DTYPE == DT_I8
typedef int TileSum;
#else
typedef float TileSum;
#endif
typedef struct {
  TileSum items[TILE_C_ITEMS];
} __attribute__((aligned(4 * TILE_C_ITEMS))) TileC;
