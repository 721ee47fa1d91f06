// Panels: how packed matrices lie in local memory.
//
// A panel holds TILE_ROWS rows or TILE_COLUMNS columns of a matrix as reals, one step of k after the other; a
// complex row or column counts as two.

// Rows and columns of a tile in reals. The accumulators of a tile, TILE_ROWS * TILE_VECTORS vectors, with
// the operands of one step, must fit the vector registers: 8 x 3 for 32 registers, 4 x 3 for 16.
#ifndef TILE_ROWS
#define TILE_ROWS 4
#endif
#ifndef TILE_VECTORS
#define TILE_VECTORS 1
#endif
#ifndef TILE_LANES
#define TILE_LANES 4
#endif
#define TILE_COLUMNS (TILE_VECTORS * TILE_LANES)
// Equals TV, except for complex numbers, which have no vectors.
typedef PASTE(R_NAME, TILE_LANES) TileVector;

#ifdef IS_INTEGER
#define REAL_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
#define REAL_MULTIPLY_ADD(a, b, c) FMA_OR_MAD(a, b, c)
#endif
// Rows and columns of a panel, in elements.
#define PANEL_ROWS (TILE_ROWS / PARTS)
#define PANEL_COLUMNS (TILE_COLUMNS / PARTS)
#define TILE_LONGER (TILE_ROWS > TILE_COLUMNS ? TILE_ROWS : TILE_COLUMNS)

// Packing moves blocks of BLOCK panel indices by BLOCK values of k if one of the two is dense in memory.
#if defined(IS_COMPLEX)
#define BLOCK PANEL_ROWS
#elif TILE_ROWS % 8 == 0
#define BLOCK 8
#else
#define BLOCK 4
#endif
// Indices as wide as the reals.
#if defined(CLASS_F) || defined(CLASS_C)
#define R_INDEX int
#else
#define R_INDEX long
#endif

#ifndef IS_COMPLEX
typedef PASTE(R_NAME, BLOCK) RB;
typedef PASTE(R_INDEX, BLOCK) RM;
typedef struct __attribute__((packed)) {
  RB vector;
} UnalignedBlock;

#if BLOCK == 8
static inline RB even_pairs(RB a, RB b) { return (RB)(a.s0, b.s0, a.s1, b.s1, a.s4, b.s4, a.s5, b.s5); }
static inline RB odd_pairs(RB a, RB b) { return (RB)(a.s2, b.s2, a.s3, b.s3, a.s6, b.s6, a.s7, b.s7); }
static inline RB even_quads(RB a, RB b) { return (RB)(a.s01, b.s01, a.s45, b.s45); }
static inline RB odd_quads(RB a, RB b) { return (RB)(a.s23, b.s23, a.s67, b.s67); }

static inline void store_transposed(const RB *rows, long width, __local R *out) {
  RB quads[8];
  UNROLL for (int half_block = 0; half_block < 2; ++half_block) {
    const RB *r = rows + half_block * 4;
    const RB ab_even = even_pairs(r[0], r[1]), ab_odd = odd_pairs(r[0], r[1]);
    const RB cd_even = even_pairs(r[2], r[3]), cd_odd = odd_pairs(r[2], r[3]);
    quads[half_block * 4] = even_quads(ab_even, cd_even);
    quads[half_block * 4 + 1] = odd_quads(ab_even, cd_even);
    quads[half_block * 4 + 2] = even_quads(ab_odd, cd_odd);
    quads[half_block * 4 + 3] = odd_quads(ab_odd, cd_odd);
  }
  UNROLL for (int i = 0; i < 4; ++i) {
    *(__local RB *)(out + i * width) = (RB)(quads[i].lo, quads[i + 4].lo);
    *(__local RB *)(out + (i + 4) * width) = (RB)(quads[i].hi, quads[i + 4].hi);
  }
}
#else
static inline void store_transposed(const RB *rows, long width, __local R *out) {
  const RB a = rows[0], b = rows[1], c = rows[2], d = rows[3];
  *(__local RB *)out = (RB)(a.s0, b.s0, c.s0, d.s0);
  *(__local RB *)(out + width) = (RB)(a.s1, b.s1, c.s1, d.s1);
  *(__local RB *)(out + 2 * width) = (RB)(a.s2, b.s2, c.s2, d.s2);
  *(__local RB *)(out + 3 * width) = (RB)(a.s3, b.s3, c.s3, d.s3);
}
#endif

// BLOCK neighbouring elements that start at element i.
static inline RB load_block(__global const uchar *p, long i, int dt) {
  switch (dt) {
    case R_DTYPE: return ((__global const UnalignedBlock *)((__global const R *)p + i))->vector;
#if defined(CLASS_F)
    case DT_F16: return PASTE(vload_half, BLOCK)(0, (__global const half *)p + i);
    case DT_BF16: {
      const PASTE(ushort, BLOCK) high = PASTE(vload, BLOCK)(0, (__global const ushort *)p + i);
      return PASTE(as_float, BLOCK)(PASTE(convert_uint, BLOCK)(high) << 16);
    }
#elif defined(CLASS_I)
    case DT_I32: return PASTE(convert_long, BLOCK)(PASTE(vload, BLOCK)(0, (__global const int *)p + i));
#endif
  }
  union { RB vector; R lanes[BLOCK]; } block;
  for (int l = 0; l < BLOCK; ++l) block.lanes[l] = load(p, i + l, dt);
  return block.vector;
}

static inline void store_block(__global uchar *p, long i, int dt, RB values) {
  if (dt == R_DTYPE) {
    ((__global UnalignedBlock *)((__global R *)p + i))->vector = values;
    return;
  }
  union { RB vector; R lanes[BLOCK]; } block;
  block.vector = values;
  for (int l = 0; l < BLOCK; ++l) store(p, i + l, dt, block.lanes[l]);
}
#endif
