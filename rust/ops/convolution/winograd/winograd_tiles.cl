// How winograd.cl reads the tiles of images, and writes them: a tile is a lane.

typedef PASTE(int, VEC) Mask;
#define MASKED(v, mask) PASTE(as_float, VEC)(PASTE(as_int, VEC)(v) & (mask))

// Source and result, of which either rows or channels are dense in memory. Dimensions are innermost first (w, h).
typedef struct {
  long pixels[2];
  long extents[2];  // of the source
  long origin[2];   // source position of kernel element 0 of output position 0
  long images;
  long channels;
  long source_strides[2];
  long source_channel_stride;
  long source_image_stride;
  long elements;  // from the first to the last of the source
  long out_channels;
  long out_strides[2];
  long out_channel_stride;
  long out_image_stride;
} Images;
SHARED(Images, 144);

static inline long tiles_across(const Images *images, int d) { return (images->pixels[d] + GIVEN - 1) / GIVEN; }

static inline long tile_count(const Images *images) {
  return tiles_across(images, 0) * tiles_across(images, 1) * images->images;
}

// Offsets that a vector's lanes, a tile each, read and write. Lanes past the last tile read zeros, and write nothing.
typedef struct {
  long rows[READ][VEC];     // offset of each row, or of the nearest inside
  long columns[READ][VEC];  // offset in a row: of the nearest column inside where channels are dense
  Mask is_row[READ], is_column[READ];
  long lowest, highest;     // of the offsets of whole rows
  long out[VEC];
  int out_columns[VEC], out_rows[VEC];
} Tiles;

static inline Tiles find_tiles(const Images *images, long first) {
  Tiles tiles;
  const long across = tiles_across(images, 0), down = tiles_across(images, 1), all = tile_count(images);
  const bool dense_rows = images->source_channel_stride != 1;
  union {
    Mask vector;
    int lanes[VEC];
  } is_row[READ], is_column[READ];
  tiles.lowest = LONG_MAX;
  tiles.highest = LONG_MIN;
  for (int l = 0; l < VEC; ++l) {
    const long tile = min(first + l, all - 1);
    const long x = tile % across * GIVEN, y = tile / across % down * GIVEN, image = tile / (across * down);
    for (int i = 0; i < READ; ++i) {
      const long column = x + images->origin[0] + i, row = y + images->origin[1] + i;
      const long near_column = clamp(column, 0L, images->extents[0] - 1);
      const long near_row = clamp(row, 0L, images->extents[1] - 1);
      is_column[i].lanes[l] = column == near_column && first + l < all ? -1 : 0;
      is_row[i].lanes[l] = row == near_row ? -1 : 0;
      tiles.columns[i][l] = (dense_rows ? column : near_column) * images->source_strides[0];
      tiles.rows[i][l] = image * images->source_image_stride + near_row * images->source_strides[1];
      tiles.lowest = min(tiles.lowest, tiles.rows[i][l] + tiles.columns[0][l]);
      tiles.highest = max(tiles.highest, tiles.rows[i][l] + tiles.columns[0][l]);
    }
    tiles.out[l] = image * images->out_image_stride + y * images->out_strides[1] + x * images->out_strides[0];
    tiles.out_columns[l] = first + l < all ? (int)min((long)GIVEN, images->pixels[0] - x) : 0;
    tiles.out_rows[l] = (int)min((long)GIVEN, images->pixels[1] - y);
  }
  for (int i = 0; i < READ; ++i) {
    tiles.is_row[i] = is_row[i].vector;
    tiles.is_column[i] = is_column[i].vector;
  }
  return tiles;
}

// Read at a time: rows of RUN columns of one channel, or BLOCK channels of one position.
#define RUN 8

// Loads BLOCK elements of every lane's tile into vectors of lanes.
ALWAYS_INLINE void read_lanes(__global const R *source, const long *rows, const long *columns, __local R *out) {
  for (int l = 0; l < VEC; l += BLOCK) {
    RB block[BLOCK];
  UNROLL for (int i = 0; i < BLOCK; ++i) block[i] =
        ((__global const UnalignedBlock *)(source + rows[l + i] + columns[l + i]))->vector;
    store_transposed(block, VEC, out + l);
  }
}

// Reads a channel's tiles as [READ rows][RUN columns][lanes]. Values from outside the source do not matter.
static inline void read_rows(const Images *images, const Tiles *tiles, __global const R *source, long channel,
                             __local R *out) {
  const long at = channel * images->source_channel_stride;
  if (at + tiles->lowest >= 0 && at + tiles->highest + RUN <= images->elements) {
    for (int i = 0; i < READ; ++i)
      for (int j = 0; j < RUN; j += BLOCK)
        read_lanes(source + at + j, tiles->rows[i], tiles->columns[0], out + (i * RUN + j) * VEC);
    return;
  }
  for (int i = 0; i < READ; ++i) {
    for (int j = 0; j < READ; ++j) {
      for (int l = 0; l < VEC; ++l) {
        const long element = at + tiles->rows[i][l] + tiles->columns[j][l];
        out[(i * RUN + j) * VEC + l] = element >= 0 && element < images->elements ? source[element] : 0;
      }
    }
  }
}

// Reads `count` channels' tiles as [READ rows][READ columns][BLOCK channels][lanes].
static inline void read_channels(const Tiles *tiles, __global const R *source, int count, __local R *out) {
  for (int i = 0; i < READ; ++i) {
    for (int j = 0; j < READ; ++j, out += BLOCK * VEC) {
      if (count == BLOCK) {
        read_lanes(source, tiles->rows[i], tiles->columns[j], out);
        continue;
      }
      for (int c = 0; c < count; ++c)
        for (int l = 0; l < VEC; ++l) out[c * VEC + l] = source[c + tiles->rows[i][l] + tiles->columns[j][l]];
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

// Writes the output positions of one channel, [GIVEN rows][GIVEN columns][lanes], to rows that are dense.
static inline void write_rows(const Images *images, const Tiles *tiles, __local R *pixels, __global R *out) {
  for (int i = 0; i < GIVEN; ++i) {
    __local TV *row = (__local TV *)(pixels + i * GIVEN * VEC);
    const TV even_low = interleave_low(row[0], row[2]), even_high = interleave_high(row[0], row[2]);
    const TV odd_low = interleave_low(row[1], row[3]), odd_high = interleave_high(row[1], row[3]);
    row[0] = interleave_low(even_low, odd_low);
    row[1] = interleave_high(even_low, odd_low);
    row[2] = interleave_low(even_high, odd_high);
    row[3] = interleave_high(even_high, odd_high);
  }
  for (int l = 0; l < VEC; ++l) {
    __local const R *from = pixels + l * GIVEN;
    __global R *to = out + tiles->out[l];
    const int rows = tiles->out_rows[l], columns = tiles->out_columns[l];
    for (int i = 0; i < rows; ++i, from += GIVEN * VEC, to += images->out_strides[1]) {
      if (columns == GIVEN)
        vstore4(vload4(0, from), 0, to);
      else
        for (int j = 0; j < columns; ++j) to[j] = from[j];
    }
  }
}

// Writes the output positions of `count` channels, [GIVEN rows][GIVEN columns][TILE_ROWS channels][lanes], to channels
// that are dense.
static inline void write_channels(const Images *images, const Tiles *tiles, __local R *pixels, int count,
                                  __global R *out) {
  for (int l = 0; l < VEC; l += BLOCK) {
    for (int i = 0; i < GIVEN; ++i) {
      for (int j = 0; j < GIVEN; ++j) {
        __local R *from = pixels + (i * GIVEN + j) * TILE_ROWS * VEC + l;
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

