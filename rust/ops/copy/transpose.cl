// Copies of batches of matrices whose rows are dense on one side and whose columns are on the other. They move bytes:
// elements are WIDTH bytes wide (1, 2, 4 or 8) and the dtype does not matter.
//
// Layout: dst, src; dst is dense along dimension 0 and src along dimension 1. Further dimensions are the batch.

#if WIDTH == 1
typedef uchar Element;
typedef uchar16 Line;
#define LINES 16
#elif WIDTH == 2
typedef ushort Element;
typedef uint16 Line;
#define LINES 16
#elif WIDTH == 4
typedef uint Element;
typedef uint16 Line;
#define LINES 16
#else
typedef ulong Element;
typedef ulong8 Line;
#define LINES 8
#endif

#ifdef IS_CPU
// Side of a block in elements: except for single bytes it fills a cache line, so that non-temporal stores write whole
// lines.
#define BLOCK ((int)(sizeof(Line) / sizeof(Element)))

typedef struct __attribute__((packed, aligned(WIDTH))) {
  Line line;
} UnalignedLine;

INLINE Line load_line(__global const uchar *p) { return ((__global const UnalignedLine *)p)->line; }

INLINE void store_line(__global uchar *p, Line line) {
  if (IS_NON_TEMPORAL(p, line)) {
    STORE_NON_TEMPORAL(p, Line, line);
  } else {
    ((__global UnalignedLine *)p)->line = line;
  }
}

// Transposes lines, the rows of a square: each stage rotates the bits of row and column by one. Inlined, and all loops
// unrolled: the square must stay in registers.
INLINE void transpose_lines(Line *lines) {
  for (int stage = 1; stage < LINES; stage *= 2) {
    Line next[LINES];
  UNROLL for (int i = 0; i < LINES / 2; i++) {
      next[2 * i].even = lines[i].lo;
      next[2 * i].odd = lines[i + LINES / 2].lo;
      next[2 * i + 1].even = lines[i].hi;
      next[2 * i + 1].odd = lines[i + LINES / 2].hi;
    }
    UNROLL for (int i = 0; i < LINES; i++) lines[i] = next[i];
  }
}

INLINE void transpose_block(__global uchar *to, long to_step, __global const uchar *from, long from_step) {
#if WIDTH == 2
  // Two rows make a row of pairs for each of their even and odd columns, and pairs are transposed like single elements.
  Line even[LINES], odd[LINES];
  UNROLL for (int i = 0; i < LINES; i++) {
    Line a = load_line(from + 2 * i * from_step), b = load_line(from + (2 * i + 1) * from_step);
    even[i] = (a & 0xffffu) | (b << 16);
    odd[i] = (a >> 16) | (b & 0xffff0000u);
  }
  transpose_lines(even);
  UNROLL for (int i = 0; i < LINES; i++) store_line(to + 2 * i * to_step, even[i]);
  transpose_lines(odd);
  UNROLL for (int i = 0; i < LINES; i++) store_line(to + (2 * i + 1) * to_step, odd[i]);
#else
  Line lines[LINES];
  UNROLL for (int i = 0; i < LINES; i++) lines[i] = load_line(from + i * from_step);
  transpose_lines(lines);
  UNROLL for (int i = 0; i < LINES; i++) store_line(to + i * to_step, lines[i]);
#endif
}

// For CPUs: a work-item takes a tile of `tile` x `tile` elements, block by block. Both sizes are at least BLOCK; the
// last block of a row or column overlaps the previous one. 4096 x 4096 floats take 3.8 ms, instead of 27 ms one by one
// (PoCL, 2 cores; `make bench CASES="'transpose f32'"`).
__kernel void transpose_blocks(__global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset,
                               const Layout layout, long tile) {
  const long height = layout.sizes[0], width = layout.sizes[1];
  const long down = (height + tile - 1) / tile, across = (width + tile - 1) / tile;
  const long item = get_global_id(0), batch = item / down / across;
  const long y_first = item % down * tile, x_first = item / down % across * tile;
  const long y_last = min(height, y_first + tile), x_last = min(width, x_first + tile);
  const long to_step = layout.strides[0][1], from_step = layout.strides[1][0];
  __global uchar *to = dst + dst_offset + offset_from(&layout, 0, 2, batch);
  __global const uchar *from = src + src_offset + offset_from(&layout, 1, 2, batch);
  for (long x = x_first; x < x_last; x += BLOCK) {
    for (long y = y_first; y < y_last; y += BLOCK) {
      const long column = min(x, width - BLOCK), row = min(y, height - BLOCK);
      transpose_block(to + column * to_step + row * WIDTH, to_step, from + row * from_step + column * WIDTH, from_step);
    }
  }
}
#else
// Neighbouring elements that an item moves, so that rows of a tile have at least 64 bytes, two sectors of memory.
#define COLUMNS_PER_ITEM (WIDTH < 4 ? 4 / WIDTH : 1)
#define SIDE 16
#define TILE (SIDE * COLUMNS_PER_ITEM)

// For GPUs: a tile goes through local memory so that both sides touch memory row by row. Work-groups are SIDE x SIDE;
// the global range is one item for COLUMNS_PER_ITEM columns of src, one for COLUMNS_PER_ITEM rows (in whole tiles), and
// the batch.
__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void transpose_tiles(
    __global uchar *dst, ulong dst_offset, __global const uchar *src, ulong src_offset, const Layout layout) {
  // One word of padding: a column then spreads over all banks of local memory.
  __local Element tile[TILE][TILE + COLUMNS_PER_ITEM];
  const int x = get_local_id(0) * COLUMNS_PER_ITEM, y = get_local_id(1);
  const long column0 = get_group_id(0) * TILE, row0 = get_group_id(1) * TILE, batch = get_global_id(2);
  const int rows = (int)min(layout.sizes[0] - row0, (long)TILE);
  const int columns = (int)min(layout.sizes[1] - column0, (long)TILE);
  const long from_step = layout.strides[1][0], to_step = layout.strides[0][1];
  __global const uchar *from =
      src + src_offset + offset_from(&layout, 1, 2, batch) + row0 * from_step + column0 * WIDTH;
  __global uchar *to = dst + dst_offset + offset_from(&layout, 0, 2, batch) + column0 * to_step + row0 * WIDTH;
  UNROLL for (int r = y; r < TILE; r += SIDE) UNROLL for (int c = x; c < x + COLUMNS_PER_ITEM; c++) {
    if (r < rows && c < columns) tile[r][c] = ((__global const Element *)(from + r * from_step))[c];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int c = y; c < TILE; c += SIDE) UNROLL for (int r = x; r < x + COLUMNS_PER_ITEM; r++) {
    if (c < columns && r < rows) ((__global Element *)(to + c * to_step))[r] = tile[r][c];
  }
}
#endif
