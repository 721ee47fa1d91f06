// Winograd convolutions of 3x3 kernels. winograd_transforms.cl describes the algorithm.

#define LOCAL_VECTOR(p) (*(__local TV *)(p))
#define GLOBAL_VECTOR(p) (*(__global TV *)(p))

// --- tiles at their points ------------------------------------------------------------------------------------------

// B' s B of a channel of tiles, or A r A' for a gradient, as POINTS vectors `point_step` apart.
static inline void transform_tile(const Tiles *tiles, bool is_grad_output, __local const R *read, int row_step,
                                  int column_step, __local R *out, long point_step) {
#define IN_VECTOR \
  MASKED(LOCAL_VECTOR(read + (i * row_step + j * column_step) * VEC), tiles->is_row[i] & tiles->is_column[j])
  if (is_grad_output)
    TRANSFORM(transform_grad_output, OUT_SIDE, IN_SIDE, IN_VECTOR, LOCAL_VECTOR(out + (i * IN_SIDE + j) * point_step))
  else TRANSFORM(transform_input, IN_SIDE, IN_SIDE, IN_VECTOR, LOCAL_VECTOR(out + (i * IN_SIDE + j) * point_step))
}

// Transforms channels [first, last) of a vector of tiles, as [POINTS][channels][width].
static inline void transform_tiles(const Images *images, const Tiles *tiles, bool is_grad_output,
                                   __global const R *input, long first, long last, __local R *scratch, __local R *out,
                                   int width) {
  const long point_step = (last - first) * width;
  if (images->in_channel_stride != 1) {
    for (long c = first; c < last; ++c, out += width) {
      read_rows(images, tiles, input, c, scratch);
      transform_tile(tiles, is_grad_output, scratch, RUN, 1, out, point_step);
    }
    return;
  }
  for (; first < last; first += BLOCK) {
    const int count = (int)min((long)BLOCK, last - first);
    read_channels(tiles, input + first, count, scratch);
    for (int c = 0; c < count; ++c, out += width)
      transform_tile(tiles, is_grad_output, scratch + c * VEC, IN_SIDE * BLOCK, BLOCK, out, point_step);
  }
}

// --- weights --------------------------------------------------------------------------------------------------------

// Layout of a weight: its output channels, input channels and kernel elements (w, h).
typedef struct {
  long out_channels;
  long channels;
  long out_stride;
  long channel_stride;
  long strides[2];
} Weight;
SHARED(Weight, 48);

// Input channels in a vector, which holds a panel's output channels for each of them.
#define LANE_CHANNELS (VEC / TILE_ROWS)

static inline long padded_channels(long channels) {
  return (channels + LANE_CHANNELS - 1) / LANE_CHANNELS * LANE_CHANNELS;
}

// G w G' as panels of output channels: [panels][POINTS][padded channels][TILE_ROWS], padded with zeros. Global size
// (parts of the channels, panels).
__kernel void winograd_weight(__global const uchar *weight, ulong weight_offset, Weight layout, __global uchar *out,
                              ulong out_offset) {
  const long padded = padded_channels(layout.channels), row = get_global_id(1) * TILE_ROWS;
  SHARE_TASKS(padded / LANE_CHANNELS, get_global_id(0), get_global_size(0), first, last);
  const int count = (int)min((long)TILE_ROWS, layout.out_channels - row);
  __global const R *from = (__global const R *)(weight + weight_offset) + row * layout.out_stride;
  __global R *to = (__global R *)(out + out_offset) + get_global_id(1) * POINTS * padded * TILE_ROWS;
  for (long c = first * LANE_CHANNELS; c < last * LANE_CHANNELS; c += LANE_CHANNELS) {
    const int channels = (int)min((long)LANE_CHANNELS, layout.channels - c);
    TV weights[KERNEL_SIDE][KERNEL_SIDE];
    for (int i = 0; i < KERNEL_SIDE; ++i) {
      for (int j = 0; j < KERNEL_SIDE; ++j) {
        __global const R *element = from + c * layout.channel_stride + i * layout.strides[1] + j * layout.strides[0];
        Lanes lanes;
        for (int l = 0; l < VEC; ++l) {
          const int r = l % TILE_ROWS, channel_index = l / TILE_ROWS;
          const bool exists = r < count && channel_index < channels;
          lanes.lanes[l] = exists ? element[r * layout.out_stride + channel_index * layout.channel_stride] : 0;
        }
        weights[i][j] = lanes.vector;
      }
    }
    TRANSFORM(transform_weight, KERNEL_SIDE, IN_SIDE, weights[i][j],
              GLOBAL_VECTOR(to + ((i * IN_SIDE + j) * padded + c) * TILE_ROWS))
  }
}

// --- a value for each output position -------------------------------------------------------------------------------

DEFINE_TILES(multiply_points, __global, 1, TILE_ROWS, NARROW_PANEL, __local)

// A' m A of one output channel, whose POINTS vectors lie `point_step` apart: OUT_SIDE x OUT_SIDE vectors, `step` apart.
static inline void transform_output_tile(__local const R *gemm_results, int point_step, R bias, __local R *out,
                                         int step) {
  TV outputs[OUT_SIDE][OUT_SIDE];
  TRANSFORM(transform_output, IN_SIDE, OUT_SIDE, LOCAL_VECTOR(gemm_results + (i * IN_SIDE + j) * point_step),
            outputs[i][j])
  UNROLL for (int i = 0; i < OUT_SIDE; ++i) UNROLL for (int j = 0; j < OUT_SIDE; ++j)
      LOCAL_VECTOR(out + (i * OUT_SIDE + j) * step) = outputs[i][j] + bias;
}

// Multiplies a panel of weights, of `count` output channels, with `vectors` vectors of tiles at their points, and
// writes the results to the image. `to` and `bias`, if not null, are at the first channel.
static inline void write_panel(const Images *images, const Tiles *tiles, int vectors, __global const R *weight,
                               int count, __global const R *bias, long bias_stride, __global R *to, __local R *points,
                               __local R *gemm_results, __local R *scratch) {
  const int width = vectors * VEC, point_step = TILE_ROWS * width;
  const long channels = images->channels, padded = padded_channels(channels);
  for (int point = 0; point < POINTS; ++point)
    multiply_points(weight + point * padded * TILE_ROWS, 1, points + point * channels * width, (int)channels, width,
                    true, (__local TileVector *)(gemm_results + point * point_step), 0);
  for (int v = 0; v < vectors; ++v) {
    for (int r = 0; r < count; ++r) {
      const R bias_value = bias ? bias[r * bias_stride] : 0;
      __local const R *from = gemm_results + r * width + v * VEC;
      if (images->out_channel_stride == 1) {
        transform_output_tile(from, point_step, bias_value, scratch + r * VEC, TILE_ROWS * VEC);
      } else {
        transform_output_tile(from, point_step, bias_value, scratch, VEC);
        write_rows(images, &tiles[v], scratch, to + r * images->out_channel_stride);
      }
    }
    if (images->out_channel_stride == 1) write_channels(images, &tiles[v], scratch, count, to);
  }
}

// Global size (parts of the vectors of tiles, parts of the output channels). A part has TILE_VECTORS vectors at most,
// and its tiles stay in L2, at all points, while the weights are streamed.
__kernel void winograd(__global const uchar *input, ulong input_offset, __global const uchar *weight,
                       ulong weight_offset, __global const uchar *bias, ulong bias_offset, long bias_stride,
                       __global uchar *out, ulong out_offset, Images images, __local R *points, __local R *gemm_results,
                       __local R *scratch) {
  SHARE_TASKS((tile_count(&images) + VEC - 1) / VEC, get_global_id(0), get_global_size(0), first, last);
  SHARE_TASKS((images.out_channels + TILE_ROWS - 1) / TILE_ROWS, get_global_id(1), get_global_size(1), first_panel,
              last_panel);
  Tiles tiles[TILE_VECTORS];
  for (long v = first; v < last; ++v) {
    tiles[v - first] = find_tiles(&images, v * VEC);
    transform_tiles(&images, &tiles[v - first], false, (__global const R *)(input + input_offset), 0, images.channels,
                    scratch, points + (v - first) * VEC, (int)(last - first) * VEC);
  }
  const long panel_step = POINTS * padded_channels(images.channels) * TILE_ROWS;
  for (long panel = first_panel; panel < last_panel; ++panel) {
    const long row = panel * TILE_ROWS;
    write_panel(&images, tiles, (int)(last - first), (__global const R *)(weight + weight_offset) + panel * panel_step,
                (int)min((long)TILE_ROWS, images.out_channels - row),
                bias ? (__global const R *)(bias + bias_offset) + row * bias_stride : 0, bias_stride,
                (__global R *)(out + out_offset) + row * images.out_channel_stride, points, gemm_results, scratch);
  }
}

// --- the gradient of the weight -------------------------------------------------------------------------------------

// Tiles at their points in global memory: [POINTS][channels][whole vectors of tiles].
// Global size (parts of the vectors of tiles, blocks of `block` channels).
__kernel void winograd_tiles(__global const uchar *input, ulong input_offset, Images images, int is_grad_output,
                             long block, __global uchar *out, ulong out_offset, __local R *points,
                             __local R *scratch) {
  const long all = (tile_count(&images) + VEC - 1) / VEC;
  SHARE_TASKS(all, get_global_id(0), get_global_size(0), first, last);
  const long first_channel = get_global_id(1) * block, last_channel = min(first_channel + block, images.channels);
  const int width = (int)(last - first) * VEC;
  for (int v = 0; v < last - first; ++v) {
    const Tiles tiles = find_tiles(&images, (first + v) * VEC);
    transform_tiles(&images, &tiles, is_grad_output != 0, (__global const R *)(input + input_offset), first_channel,
                    last_channel, scratch, points + v * VEC, width);
  }
  __global R *to = (__global R *)(out + out_offset) + (first_channel * all + first) * VEC;
  for (int point = 0; point < POINTS; ++point, to += images.channels * all * VEC)
    for (long c = 0; c < last_channel - first_channel; ++c, points += width)
      for (int at = 0; at < width; at += VEC) GLOBAL_VECTOR(to + c * all * VEC + at) = LOCAL_VECTOR(points + at);
}

// G' m G of the GEMMs' results [POINTS][output channels][pitch]. Global size (vectors of input channels, output
// channels).
__kernel void winograd_finish(__global const uchar *gemm_results, ulong gemm_results_offset, long pitch,
                              __global uchar *weight, ulong weight_offset, Weight layout) {
  const long c = get_global_id(0) * VEC, row = get_global_id(1);
  __global const R *from = (__global const R *)(gemm_results + gemm_results_offset) + row * pitch + c;
  __global R *to = (__global R *)(weight + weight_offset) + row * layout.out_stride + c * layout.channel_stride;
  Lanes weights[KERNEL_SIDE][KERNEL_SIDE];
  TRANSFORM(transform_grad_weight, IN_SIDE, KERNEL_SIDE,
            GLOBAL_VECTOR(from + (i * IN_SIDE + j) * layout.out_channels * pitch),
            weights[i][j].vector)
  const int count = (int)min((long)VEC, layout.channels - c);
  for (int l = 0; l < count; ++l, to += layout.channel_stride)
    for (int i = 0; i < KERNEL_SIDE; ++i)
      for (int j = 0; j < KERNEL_SIDE; ++j) to[i * layout.strides[1] + j * layout.strides[0]] = weights[i][j].lanes[l];
}
