// Panels: how packed matrices lie in memory, shared by what packs them and by `gemm`.
//
// A panel holds TILE_ROWS rows or TILE_COLUMNS columns of a matrix as reals, one step of k after the other; a
// complex row or column counts as two.

// Rows and columns of a tile in reals. The accumulators of a tile, TILE_ROWS * TILE_VECTORS vectors, with
// the operands of one step, must fit the vector registers: 12 x 2 for 32 registers, 4 x 3 for 16.
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
typedef PASTE(R_NAME, TILE_LANES) TileVector;
#define STORE_TILE_VECTOR PASTE(vstore, TILE_LANES)

// Panels of columns keep vectors aligned, so they go through a pointer: PoCL's vstore16 makes four stores.
#define STORE_ALIGNED(v, p) (*(__global TV *)(p) = (v))
#ifdef IS_INTEGER
#define REAL_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
#define REAL_MULTIPLY_ADD(a, b, c) fma(a, b, c)
#endif
#define TILE_LONGER (TILE_ROWS > TILE_COLUMNS ? TILE_ROWS : TILE_COLUMNS)

// Where this work-item writes its part, from `k` on, of its panel of `width` reals: panels lie one after the
// other by (batch, panel), each with `depth` steps of k.
inline __global R *panel_at(__global uchar *packed, long depth, long k, int width) {
  const long panel = get_global_id(2) * get_global_size(0) + get_global_id(0);
  return (__global R *)packed + (panel * depth + k) * width;
}

// Packing moves blocks of four panel indices by four k where one of the two is dense in memory.
#define BLOCK 4

#ifndef IS_COMPLEX
inline void store_transposed(const R4 *rows, long width, __global R *out) {
  const R4 a = rows[0], b = rows[1], c = rows[2], d = rows[3];
  vstore4((R4)(a.s0, b.s0, c.s0, d.s0), 0, out);
  vstore4((R4)(a.s1, b.s1, c.s1, d.s1), 0, out + width);
  vstore4((R4)(a.s2, b.s2, c.s2, d.s2), 0, out + 2 * width);
  vstore4((R4)(a.s3, b.s3, c.s3, d.s3), 0, out + 3 * width);
}

// Four neighbouring elements that start at element i.
inline R4 load4(__global const uchar *p, long i, int dt) {
  switch (dt) {
#if defined(CLASS_F)
    case DT_F32: return vload4(0, (__global const float *)p + i);
    case DT_F16: return vload_half4(0, (__global const half *)p + i);
    case DT_BF16: return as_float4(convert_uint4(vload4(0, (__global const ushort *)p + i)) << 16);
#elif defined(CLASS_D)
    case DT_F64: return vload4(0, (__global const double *)p + i);
#else
    case DT_I32: return convert_long4(vload4(0, (__global const int *)p + i));
    case DT_I64: return vload4(0, (__global const long *)p + i);
#endif
  }
  return (R4)(load(p, i, dt), load(p, i + 1, dt), load(p, i + 2, dt), load(p, i + 3, dt));
}
#endif
