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
// For GPUs: a group takes a tile of ROWS x COLUMNS elements of src through local memory, 64 bytes for each item, so that
// both sides touch memory row by row. With ALIGNED every row and every column of the matrices begins at a multiple of
// 16 bytes and has whole chunks of 16 bytes: items move chunks, else elements. It is a constant because compilers merge
// a choice between both at run time into accesses of elements. No GPU has run this form yet.
#define CHUNK 16
#define LANES (CHUNK / WIDTH)
#define LOADS 4
#define ITEMS (ROWS * COLUMNS / (LOADS * LANES))

// Index of an element in the tile: columns of src are rows there. Rows are permuted, so that neither neighbours along a
// row nor along a column are in the same bank, of 4 bytes: whole chunks change places, or else words.
#if ALIGNED
#define INDEX(row, column) ((column) * ROWS + ((row) ^ ((column) & -LANES)))
#else
#define WORD (WIDTH < 4 ? 4 / WIDTH : 1)
#define INDEX(row, column) ((column) * ROWS + ((row) ^ ((column) * WORD & (ROWS - 1))))
#endif

#if ALIGNED
typedef uint4 Chunk;

// Elements of a column that are stored at once: those that an item loads, at most a chunk. Vectors by their components:
// Intel's compiler keeps unions in memory.
#if WIDTH == 1
#define PART 4
#define SPLIT(chunk, to) vstore16(as_uchar16(chunk), 0, to)
#define PART_OF(rows, l) ((uchar4)((rows)[0][l], (rows)[1][l], (rows)[2][l], (rows)[3][l]))
typedef uchar4 Part;
#elif WIDTH == 2
#define PART 4
#define SPLIT(chunk, to) vstore8(as_ushort8(chunk), 0, to)
#define PART_OF(rows, l) ((ushort4)((rows)[0][l], (rows)[1][l], (rows)[2][l], (rows)[3][l]))
typedef ushort4 Part;
#elif WIDTH == 4
#define PART 4
#define SPLIT(chunk, to) vstore4(chunk, 0, to)
#define PART_OF(rows, l) ((uint4)((rows)[0][l], (rows)[1][l], (rows)[2][l], (rows)[3][l]))
typedef uint4 Part;
#else
#define PART 2
#define SPLIT(chunk, to) vstore2(as_ulong2(chunk), 0, to)
#define PART_OF(rows, l) ((ulong2)((rows)[0][l], (rows)[1][l]))
typedef ulong2 Part;
#endif

// An item takes a chunk of LOADS neighbouring rows. Rows after the last repeat it, so that no load is conditional.
INLINE INLINED_ON_GPUS void load_tile(__local Element *tile, __global const uchar *from, long step, int rows,
                                      int columns) {
  const int item = get_local_id(0), row = item / (COLUMNS / LANES) * LOADS, column = item % (COLUMNS / LANES) * LANES;
  if (row < rows && column < columns) {
    Chunk chunks[LOADS];
    Element loaded[LOADS][LANES];
  UNROLL for (int i = 0; i < LOADS; i++) {
      chunks[i] = *(__global const Chunk *)(from + min(row + i, rows - 1) * step + column * WIDTH);
    }
    UNROLL for (int i = 0; i < LOADS; i++) SPLIT(chunks[i], loaded[i]);
    UNROLL for (int l = 0; l < LANES; l++) UNROLL for (int first = 0; first < LOADS; first += PART) {
      *(__local Part *)(tile + INDEX(row + first, column + l)) = PART_OF(loaded + first, l);
    }
  }
}

INLINE INLINED_ON_GPUS void store_tile(__global uchar *to, long step, __local const Element *tile, int rows,
                                       int columns) {
  const int item = get_local_id(0), row = item % (ROWS / LANES) * LANES, column = item / (ROWS / LANES);
  UNROLL for (int i = 0; i < LOADS; i++) {
    const int c = column + i * (COLUMNS / LOADS);
    // Loaded just before: clang splits a store to memory of a vector that was loaded outside this condition.
    if (row < rows && c < columns) {
      *(__global Chunk *)(to + c * step + row * WIDTH) = *(__local const Chunk *)(tile + INDEX(row, c));
    }
  }
}
#else
// Elements of an item that are in flight.
#define BATCH (WIDTH < 4 ? 16 : 64 / WIDTH)

// Rows after the last repeat it, so that no load is conditional.
INLINE INLINED_ON_GPUS void load_tile(__local Element *tile, __global const uchar *from, long step, int rows,
                                      int columns) {
  const int item = get_local_id(0), column = item % COLUMNS, apart = ITEMS / COLUMNS;
  if (column < columns) {
    for (int row = item / COLUMNS; row < rows; row += BATCH * apart) {
      Element elements[BATCH];
  UNROLL for (int i = 0; i < BATCH; i++) {
        elements[i] = *(__global const Element *)(from + min(row + i * apart, rows - 1) * step + column * WIDTH);
      }
      UNROLL for (int i = 0; i < BATCH; i++) tile[INDEX(row + i * apart, column)] = elements[i];
    }
  }
}

INLINE INLINED_ON_GPUS void store_tile(__global uchar *to, long step, __local const Element *tile, int rows,
                                       int columns) {
  const int item = get_local_id(0), row = item % ROWS, apart = ITEMS / ROWS;
  if (row < rows) {
    for (int column = item / ROWS; column < columns; column += BATCH * apart) {
      Element elements[BATCH];
      UNROLL for (int i = 0; i < BATCH; i++) elements[i] = tile[INDEX(row, column + i * apart)];
      UNROLL for (int i = 0; i < BATCH; i++) {
        const int c = column + i * apart;
        if (c < columns) *(__global Element *)(to + c * step + row * WIDTH) = elements[i];
      }
    }
  }
}
#endif

// The global range is ITEMS for COLUMNS columns of src, one for ROWS rows, and the batch.
__kernel GROUPS_OF(ITEMS) void transpose_tiles(__global uchar *dst, ulong dst_offset, __global const uchar *src,
                                               ulong src_offset, const Layout layout) {
  __local Element tile[ROWS * COLUMNS] __attribute__((aligned(CHUNK)));
  const long column0 = get_group_id(0) * COLUMNS, row0 = get_group_id(1) * ROWS, batch = get_global_id(2);
  const int rows = (int)min(layout.sizes[0] - row0, (long)ROWS);
  const int columns = (int)min(layout.sizes[1] - column0, (long)COLUMNS);
  const long from_step = layout.strides[1][0], to_step = layout.strides[0][1];
  __global const uchar *from =
      src + src_offset + offset_from(&layout, 1, 2, batch) + row0 * from_step + column0 * WIDTH;
  __global uchar *to = dst + dst_offset + offset_from(&layout, 0, 2, batch) + column0 * to_step + row0 * WIDTH;
  load_tile(tile, from, from_step, rows, columns);
  barrier(CLK_LOCAL_MEM_FENCE);
  store_tile(to, to_step, tile, rows, columns);
}
#endif
