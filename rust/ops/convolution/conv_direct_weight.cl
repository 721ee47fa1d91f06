// The gradient of the weight of convolutions with few channels in a group, from the boxes of conv.cl: a work-group sums
// the contributions of the boxes of its images to the weights of one group of channels.

// Kernel elements whose gradients an item sums at once: 5 hide the latency of a multiply-add, and waste least for 9, 25
// and 49 kernel elements.
#define ELEMENTS_AT_ONCE (ITEMS == 1 ? 5 : 1)

// Copies the gradient of a box's output positions in one channel, with rows padded to whole vectors by zeros.
static inline void copy_gradient(const Box *box, __global const uchar *grad_output, int dt,
                                 const OutputStrides *strides, __local T *out) {
  const int all = box->vectors * box->count[1] * box->count[2], element = dtype_size(dt);
  for (int index = get_local_id(0); index < all; index += ITEMS) {
    const Cursor cursor = cursor_at(box, index);
    const long x = box->first[0] + cursor.vector * VEC, y = box->first[1] + cursor.y, z = box->first[2] + cursor.z;
    const long at = x * strides->strides[0] + y * strides->strides[1] + z * strides->strides[2];
    *(__local TV *)(out + index * VEC) = load_lanes(grad_output + at * element, strides->strides[0] * element,
                                                    min(VEC, box->count[0] - cursor.vector * VEC), dt);
  }
}

// Zeros in place of the elements past the `n` first: the input there may be infinite, and times a gradient of 0 be NaN.
static inline TV first_elements(TV value, int n) {
  Lanes v;
  v.vector = value;
  for (int l = 0; l < VEC; ++l) v.lanes[l] = l < n ? v.lanes[l] : FROM_REAL(0);
  return v.vector;
}

// Adds a box's contributions to the weights [k, k + ELEMENTS_AT_ONCE) of one output channel.
static inline void add_weights(const ConvLayout *conv, const Box *box, __local const T *planes,
                               __local const int *offsets, __local const T *grad_output, int k, __local T *out) {
  const int k_count = (int)(conv->channels * count_elements(conv)), all = box->vectors * box->count[1] * box->count[2];
  __local const T *from[ELEMENTS_AT_ONCE];
  TV sums[ELEMENTS_AT_ONCE];
  for (int t = 0; t < ELEMENTS_AT_ONCE; ++t) {
    from[t] = planes + offsets[min(k + t, k_count - 1)];
    sums[t] = (TV)(0);
  }
  Cursor cursor = {0, 0, 0};
  for (int index = 0; index < all; ++index) {
    const TV grad_value = *(__local const TV *)(grad_output + index * VEC);
    const int offset = cursor_offset(conv, &cursor) + cursor.vector * VEC;
    const int valid = box->count[0] - cursor.vector * VEC;
    if (valid >= VEC) {
  UNROLL for (int t = 0; t < ELEMENTS_AT_ONCE; ++t) sums[t] =
          MULTIPLY_ADD(grad_value, LOAD_ANYWHERE(from[t] + offset), sums[t]);
    } else {
      for (int t = 0; t < ELEMENTS_AT_ONCE; ++t)
        sums[t] = MULTIPLY_ADD(grad_value, first_elements(LOAD_ANYWHERE(from[t] + offset), valid), sums[t]);
    }
    move_on(box, &cursor);
  }
  for (int t = 0; t < min(ELEMENTS_AT_ONCE, k_count - k); ++t) out[k + t] += sequential_sum(sums[t]);
}

// Global size (groups * ITEMS, splits of the images) in groups of ITEMS: sums [splits][groups][output channels][input
// channels][kernel].
__kernel GROUPS_OF(ITEMS) void conv_direct_weight(__global const uchar *input, ulong input_offset, int input_dtype,
                                                  __global const uchar *grad_output, ulong grad_output_offset,
                                                  int grad_output_dtype, __global uchar *out, ulong out_offset,
                                                  ConvLayout conv, OutputStrides output, long out_channels, long images,
                                                  __local TV *planes, __local TV *grad_outputs, __local T *sums,
                                                  __local int *offsets) {
  const long group = get_group_id(0);
  SHARE_TASKS(images, get_global_id(1), get_global_size(1), first, last);
  const int k_count = (int)(conv.channels * count_elements(&conv)), all = k_count * (int)out_channels;
  const int blocks = (k_count + ELEMENTS_AT_ONCE - 1) / ELEMENTS_AT_ONCE;
  find_offsets(&conv, offsets);
  for (int i = get_local_id(0); i < all; i += ITEMS) sums[i] = FROM_REAL(0);
  // One loop over the boxes of all images: PoCL 3.1 fails on a barrier within two.
  const long boxes = box_count(&conv);
  for (long step = first * boxes; step < last * boxes; ++step) {
    const long image = step / boxes;
    const Box box = find_box(&conv, step % boxes);
    const int output_count = box.vectors * box.count[1] * box.count[2] * VEC;
    for (int c = 0; c < conv.channels; ++c) {
      const long at = image * conv.image_stride + (group * conv.channels + c) * conv.channel_stride;
      copy_box(&conv, &box, input + input_offset + at * dtype_size(DTYPE_OF(input_dtype)), DTYPE_OF(input_dtype),
               (__local T *)planes + c * box_length(&conv));
    }
    for (int r = 0; r < out_channels; ++r) {
      const long at = image * output.image_stride + (group * out_channels + r) * output.channel_stride;
      copy_gradient(&box, grad_output + grad_output_offset + at * dtype_size(DTYPE_OF(grad_output_dtype)),
                    DTYPE_OF(grad_output_dtype), &output, (__local T *)grad_outputs + r * output_count);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int task = get_local_id(0); task < blocks * out_channels; task += ITEMS) {
      const int r = task / blocks;
      add_weights(&conv, &box, (__local T *)planes, offsets, (__local T *)grad_outputs + r * output_count,
                  task % blocks * ELEMENTS_AT_ONCE,
                  sums + r * k_count);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  __global T *to = (__global T *)(out + out_offset) + (get_global_id(1) * get_num_groups(0) + group) * all;
  for (int i = get_local_id(0); i < all; i += ITEMS) to[i] = sums[i];
}
