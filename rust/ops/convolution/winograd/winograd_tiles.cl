// How winograd.cl reads the tiles of images, and writes them: a tile is a lane.

typedef PASTE(int, VEC) Mask;
#define MASKED(v, mask) PASTE(as_float, VEC)(PASTE(as_int, VEC)(v) & (mask))

// Input and output: each has either dense rows or dense channels in memory. Dimensions are innermost first (w, h).
typedef struct {
  long out_sizes[2];
  long in_sizes[2];  // of the input
  long origin[2];   // input position of kernel element 0 of output position 0
  long images;
  long channels;
  long in_strides[2];
  long in_channel_stride;
  long in_image_stride;
  long elements;  // from the first to the last of the input
  long out_channels;
  long out_strides[2];
  long out_channel_stride;
  long out_image_stride;
} Images;
SHARED(Images, 144);

static inline long tiles_across(const Images *images, int d) {
  return (images->out_sizes[d] + OUT_SIDE - 1) / OUT_SIDE;
}

static inline long tile_count(const Images *images) {
  return tiles_across(images, 0) * tiles_across(images, 1) * images->images;
}

// Offsets that the lanes of a vector, one tile each, read and write. Lanes past the last tile read zeros, and write
// nothing.
typedef struct {
  long rows[IN_SIDE][VEC];     // offset of each row, or of the nearest inside
  long columns[IN_SIDE][VEC];  // offset in a row; if channels are dense, of the nearest column inside
  Mask is_row[IN_SIDE], is_column[IN_SIDE];
  long lowest, highest;     // of the offsets of whole rows
  long out[VEC];
  int out_columns[VEC], out_rows[VEC];
} Tiles;

static inline Tiles find_tiles(const Images *images, long first) {
  Tiles tiles;
  const long across = tiles_across(images, 0), down = tiles_across(images, 1), all = tile_count(images);
  const bool dense_rows = images->in_channel_stride != 1;
  union {
    Mask vector;
    int lanes[VEC];
  } is_row[IN_SIDE], is_column[IN_SIDE];
  tiles.lowest = LONG_MAX;
  tiles.highest = LONG_MIN;
  for (int l = 0; l < VEC; ++l) {
    const long tile = min(first + l, all - 1);
    const long x = tile % across * OUT_SIDE, y = tile / across % down * OUT_SIDE, image = tile / (across * down);
    for (int i = 0; i < IN_SIDE; ++i) {
      const long column = x + images->origin[0] + i, row = y + images->origin[1] + i;
      const long near_column = clamp(column, 0L, images->in_sizes[0] - 1);
      const long near_row = clamp(row, 0L, images->in_sizes[1] - 1);
      is_column[i].lanes[l] = column == near_column && first + l < all ? -1 : 0;
      is_row[i].lanes[l] = row == near_row ? -1 : 0;
      tiles.columns[i][l] = (dense_rows ? column : near_column) * images->in_strides[0];
      tiles.rows[i][l] = image * images->in_image_stride + near_row * images->in_strides[1];
      tiles.lowest = min(tiles.lowest, tiles.rows[i][l] + tiles.columns[0][l]);
      tiles.highest = max(tiles.highest, tiles.rows[i][l] + tiles.columns[0][l]);
    }
    tiles.out[l] = image * images->out_image_stride + y * images->out_strides[1] + x * images->out_strides[0];
    tiles.out_columns[l] = first + l < all ? (int)min((long)OUT_SIDE, images->out_sizes[0] - x) : 0;
    tiles.out_rows[l] = (int)min((long)OUT_SIDE, images->out_sizes[1] - y);
  }
  for (int i = 0; i < IN_SIDE; ++i) {
    tiles.is_row[i] = is_row[i].vector;
    tiles.is_column[i] = is_column[i].vector;
  }
  return tiles;
}

// One read takes RUN columns of one row and channel, or BLOCK channels of one position.
#define RUN 8

// Loads BLOCK elements of every lane's tile into vectors of lanes.
ALWAYS_INLINE void read_lanes(__global const R *input, const long *rows, const long *columns, __local R *out) {
  for (int l = 0; l < VEC; l += BLOCK) {
    RB block[BLOCK];
  UNROLL for (int i = 0; i < BLOCK; ++i) block[i] =
        ((__global const UnalignedBlock *)(input + rows[l + i] + columns[l + i]))->vector;
    store_transposed(block, VEC, out + l);
  }
}

// Reads a channel's tiles as [IN_SIDE rows][RUN columns][lanes]. Values from outside the input do not matter.
static inline void read_rows(const Images *images, const Tiles *tiles, __global const R *input, long channel_index,
                             __local R *out) {
  const long at = channel_index * images->in_channel_stride;
  if (at + tiles->lowest >= 0 && at + tiles->highest + RUN <= images->elements) {
    for (int i = 0; i < IN_SIDE; ++i)
      for (int j = 0; j < RUN; j += BLOCK)
        read_lanes(input + at + j, tiles->rows[i], tiles->columns[0], out + (i * RUN + j) * VEC);
    return;
  }
  for (int i = 0; i < IN_SIDE; ++i) {
    for (int j = 0; j < IN_SIDE; ++j) {
      for (int l = 0; l < VEC; ++l) {
        const long element = at + tiles->rows[i][l] + tiles->columns[j][l];
        out[(i * RUN + j) * VEC + l] = element >= 0 && element < images->elements ? input[element] : 0;
      }
    }
  }
}

// Reads `count` channels' tiles as [IN_SIDE rows][IN_SIDE columns][BLOCK channels][lanes].
static inline void read_channels(const Tiles *tiles, __global const R *input, int count, __local R *out) {
  for (int i = 0; i < IN_SIDE; ++i) {
    for (int j = 0; j < IN_SIDE; ++j, out += BLOCK * VEC) {
      if (count == BLOCK) {
        read_lanes(input, tiles->rows[i], tiles->columns[j], out);
        continue;
      }
      for (int c = 0; c < count; ++c)
        for (int l = 0; l < VEC; ++l) out[c * VEC + l] = input[c + tiles->rows[i][l] + tiles->columns[j][l]];
    }
  }
}

static inline TV interleave_low(TV a, TV b) {
  TV both;
  both.even = a.lo;
  both.odd = b.lo;
  return both;
}

static inline TV interleave_high(TV a, TV b) {
  TV both;
  both.even = a.hi;
  both.odd = b.hi;
  return both;
}

// Writes the output positions of one channel, [OUT_SIDE rows][OUT_SIDE columns][lanes], to rows that are dense.
static inline void write_rows(const Images *images, const Tiles *tiles, __local R *outputs, __global R *out) {
  for (int i = 0; i < OUT_SIDE; ++i) {
    __local TV *row = (__local TV *)(outputs + i * OUT_SIDE * VEC);
    const TV even_low = interleave_low(row[0], row[2]), even_high = interleave_high(row[0], row[2]);
    const TV odd_low = interleave_low(row[1], row[3]), odd_high = interleave_high(row[1], row[3]);
    row[0] = interleave_low(even_low, odd_low);
    row[1] = interleave_high(even_low, odd_low);
    row[2] = interleave_low(even_high, odd_high);
    row[3] = interleave_high(even_high, odd_high);
  }
  for (int l = 0; l < VEC; ++l) {
    __local const R *from = outputs + l * OUT_SIDE;
    __global R *to = out + tiles->out[l];
    const int rows = tiles->out_rows[l], columns = tiles->out_columns[l];
    for (int i = 0; i < rows; ++i, from += OUT_SIDE * VEC, to += images->out_strides[1]) {
      if (columns == OUT_SIDE)
        vstore4(vload4(0, from), 0, to);
      else
        for (int j = 0; j < columns; ++j) to[j] = from[j];
    }
  }
}

// Writes the output positions of `count` channels, [OUT_SIDE rows][OUT_SIDE columns][TILE_ROWS channels][lanes], to
// channels that are dense.
static inline void write_channels(const Images *images, const Tiles *tiles, __local R *outputs, int count,
                                  __global R *out) {
  for (int l = 0; l < VEC; l += BLOCK) {
    for (int i = 0; i < OUT_SIDE; ++i) {
      for (int j = 0; j < OUT_SIDE; ++j) {
        __local R *from = outputs + (i * OUT_SIDE + j) * TILE_ROWS * VEC + l;
        RB block[BLOCK];
        UNROLL for (int r = 0; r < BLOCK; ++r) block[r] = *(__local const RB *)(from + r * VEC);
        store_transposed(block, VEC, from);
        const long at = i * images->out_strides[1] + j * images->out_strides[0];
        for (int b = 0; b < BLOCK; ++b, from += VEC) {
          if (i >= tiles->out_rows[l + b] || j >= tiles->out_columns[l + b]) continue;
          __global R *to = out + tiles->out[l + b] + at;
          if (count == BLOCK)
            ((__global UnalignedBlock *)to)->vector = *(__local const RB *)from;
          else
            for (int c = 0; c < count; ++c) to[c] = from[c];
        }
      }
    }
  }
}

