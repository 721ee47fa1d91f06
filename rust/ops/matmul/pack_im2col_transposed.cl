// Packs the im2col matrix with k over its output positions.

#if B_KIND == FROM_IM2COL_TRANSPOSED
// Columns of the im2col matrix in a panel: the offset of each from its output position.
typedef struct {
  KernelElement elements[TILE_LONGER];
  long offsets[TILE_LONGER];
  bool are_dense[TILE_LONGER / BLOCK];  // true where BLOCK channels of one kernel element are contiguous
  long lowest, highest;
  int count;
} Im2colColumns;

static inline Im2colColumns find_columns(const Im2colLayout *im2col, long first, long last, int most) {
  Im2colColumns columns;
  const long kernel_numel = count_elements(im2col);
  columns.count = (int)min(last - first, (long)most);
  columns.lowest = LONG_MAX;
  columns.highest = LONG_MIN;
  for (int i = 0; i < columns.count; ++i) {
    const long column = first + i;
    const bool by_channel = im2col->channel_step > im2col->kernel_step;
    const long element = by_channel ? column % kernel_numel : column / im2col->channels;
    const long channel_index = by_channel ? column / kernel_numel : column % im2col->channels;
    columns.elements[i] = find_element(im2col, element);
    columns.offsets[i] = element_offset(im2col, &columns.elements[i]) + channel_index * im2col->channel_stride;
    columns.lowest = min(columns.lowest, columns.offsets[i]);
    columns.highest = max(columns.highest, columns.offsets[i]);
    const bool is_same_element = i % BLOCK > 0 && im2col->channel_stride == 1 && channel_index > 0;
    columns.are_dense[i / BLOCK] = i % BLOCK == 0 || (is_same_element && columns.are_dense[i / BLOCK]);
  }
  return columns;
}

#ifndef IS_COMPLEX
// Packs BLOCK output positions of BLOCK columns from i on, for positions that are contiguous in memory.
ALWAYS_INLINE void transpose_positions(__global const uchar *input, int dt, const Im2colLayout *im2col, const Run *run,
                                       const Im2colColumns *columns, int i, long spacing, long width, __local R *out) {
  RB rows[BLOCK];
  if (run->is_inside && run->second == BLOCK) {
  UNROLL for (int f = 0; f < BLOCK; ++f) rows[f] =
        load_block_spaced(input, dt, run->offsets[0] + columns->offsets[i + f], spacing);
  } else {
    const RM second = second_part(run).block;
    UNROLL for (int f = 0; f < BLOCK; ++f) {
      const long shift = columns->offsets[i + f];
      const RB both = select(load_block_spaced(input, dt, run->offsets[0] + shift, spacing),
                             load_block_spaced(input, dt, second_offset(run, spacing) + shift, spacing), second);
      rows[f] = select((RB)(0), both, block_inside(im2col, run, &columns->elements[i + f]));
    }
  }
  store_transposed(rows, width, out);
}
#endif

// Packs columns first .. last - 1 as panels of `width` reals, for `k_count` output positions from k_first on. The last
// panel is padded with zeros.
static inline void pack_im2col_transposed(__global const uchar *input, int dt, const Im2colLayout *im2col, long first,
                                          long last, long k_first, int k_count, int width, __local R *out) {
  const int count = width / PARTS;
  const long spacing = im2col->stride[0] * im2col->in_strides[0];
  for (; first < last; first += count, out += k_count * width) {
    const Im2colColumns columns = find_columns(im2col, first, last, count);
    OutPosition position = find_position(im2col, k_first);
    for (int k = 0; k < k_count; k += BLOCK) {
      const Run run = find_run(im2col, position, BLOCK, k_count - k);
      __local R *to = out + k * width;
#ifndef IS_COMPLEX
      const bool loadable = run.count == BLOCK && is_loadable(im2col, &run, columns.lowest, columns.highest);
#endif
      for (int i = 0; i < count; i += BLOCK) {
        const int some = clamp(columns.count - i, 0, BLOCK);
#ifndef IS_COMPLEX
        if (some == BLOCK && columns.are_dense[i / BLOCK]) {
          for (int l = 0; l < run.count; ++l) {
            const bool exists = run.is_inside || is_inside(im2col, &run, l, &columns.elements[i]);
            *(__local RB *)(to + l * width + i) =
                exists ? load_block(input, run.offsets[l] + columns.offsets[i], dt) : (RB)(0);
          }
          continue;
        }
        if (some == BLOCK && loadable) {
          if (dt == R_DTYPE && spacing == 1)
            transpose_positions(input, R_DTYPE, im2col, &run, &columns, i, 1, width, to + i);
          else
            transpose_positions(input, dt, im2col, &run, &columns, i, spacing, width, to + i);
          continue;
        }
#endif
        for (int l = 0; l < run.count; ++l) {
          for (int f = 0; f < min(BLOCK, count - i); ++f) {
            const bool exists = f < some && is_inside(im2col, &run, l, &columns.elements[i + f]);
            ((__local T *)(to + l * width))[i + f] =
                exists ? load_one(input, run.offsets[l] + columns.offsets[i + f], dt) : FROM_REAL(0);
          }
        }
      }
      advance(im2col, &position, BLOCK);
    }
  }
}
#endif
