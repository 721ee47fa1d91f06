// Margin losses (CLASS_F and CLASS_D) of contiguous rows [count, classes]: PyTorch's multi_margin_loss, with one target
// class per row, and multilabel_margin_loss, with several.

// Arguments of both losses.
#define SCORES_ARGUMENTS                                                                                            \
  __global const uchar *input, ulong input_offset, __global const uchar *targets, ulong targets_offset, int dtype0, \
      long count, long classes, __global uchar *faults, ulong faults_offset

// The missing margin to the power of p, which is 1 or 2.
#define PENALTY(z, p) ((z) > 0 ? ((p) == 1 ? (z) : (z) * (z)) : (T)0)

// One target per row; `weight` has one value per class, or is null. A group computes whole rows.
#define MULTI_MARGIN_ARGUMENTS __global const uchar *weight, ulong weight_offset, T margin, int p

// Reports a target that is out of range as a fault, and returns -1 for it.
INLINE INLINED_ON_GPUS long target_of(__global const uchar *targets, long row, long classes, __global uchar *faults) {
  const long target = ((__global const long *)targets)[row];
  if (target >= 0 && target < classes) return target;
  report_fault(faults, FAULT_MARGIN_TARGET, target, classes);
  return -1;
}

__kernel GROUPS_OF(LSIZE) void multi_margin_loss(SCORES_ARGUMENTS, MULTI_MARGIN_ARGUMENTS, __global uchar *output,
                                                 ulong output_offset) {
  GROUP_SHARED(shared);
  GROUP_TASKS(count, first, last);
  for (long row = first; row < last; row++) {
    const long target = target_of(targets + targets_offset, row, classes, faults + faults_offset);
    T sum = 0;
    if (target >= 0) {
      const T base = margin - load(input + input_offset, row * classes + target, DTYPE0);
      for (long d = get_local_id(0); d < classes; d += LSIZE) {
        const T z = base + load(input + input_offset, row * classes + d, DTYPE0);
        sum += d == target ? (T)0 : PENALTY(z, p);
      }
    }
    sum = group_sum(sum, shared);
    if (get_local_id(0) != 0) continue;
    if (weight && target >= 0) sum *= load(weight + weight_offset, target, DTYPE0);
    store(output + output_offset, row, DTYPE0, target < 0 ? (T)NAN : sum / (T)classes);
  }
}

// `grad` has one value, or one per row if grad_step is 1; `scale` is 1 over the divisor of the losses.
__kernel GROUPS_OF(LSIZE) void multi_margin_loss_backward(SCORES_ARGUMENTS, MULTI_MARGIN_ARGUMENTS,
                                                          __global const uchar *grad, ulong grad_offset, long grad_step,
                                                          T scale, __global uchar *grad_input,
                                                          ulong grad_input_offset) {
  GROUP_SHARED(shared);
  GROUP_TASKS(count, first, last);
  for (long row = first; row < last; row++) {
    const long target = target_of(targets + targets_offset, row, classes, faults + faults_offset);
    if (target < 0) continue;
    const T base = margin - load(input + input_offset, row * classes + target, DTYPE0);
    T g = load(grad + grad_offset, row * grad_step, DTYPE0) * scale;
    if (weight) g *= load(weight + weight_offset, target, DTYPE0);
    T sum = 0;
    for (long d = get_local_id(0); d < classes; d += LSIZE) {
      if (d == target) continue;
      const T z = base + load(input + input_offset, row * classes + d, DTYPE0);
      const T slope = z > 0 ? (p == 1 ? g : 2 * g * z) : (T)0;
      sum += slope;
      store(grad_input + grad_input_offset, row * classes + d, DTYPE0, slope);
    }
    sum = group_sum(sum, shared);
    if (get_local_id(0) == 0) store(grad_input + grad_input_offset, row * classes + target, DTYPE0, -sum);
  }
}

// Sets `is_target` to 1 for each class that is a target of its row, else to 0. A negative target ends a row's targets.
__kernel void multilabel_margin_targets(SCORES_ARGUMENTS, __global uchar *is_target, ulong is_target_offset) {
  ITEM_TASKS(count * classes, first, last);
  for (long i = first; i < last; i++) {
    const long label = i % classes;
    __global const long *row = (__global const long *)(targets + targets_offset) + (i - label);
    bool found = false;
    for (long k = 0; k < classes && row[k] >= 0 && !found; k++) found = row[k] == label;
    store(is_target + is_target_offset, i, DTYPE0, found);
  }
}

// Sums, over all pairs of a target and another class, what is missing to a margin of 1 between them.
__kernel GROUPS_OF(LSIZE) void multilabel_margin_loss(SCORES_ARGUMENTS, __global const uchar *is_target,
                                                      ulong is_target_offset, __global uchar *output,
                                                      ulong output_offset) {
  GROUP_SHARED(shared);
  GROUP_TASKS(count, first, last);
  for (long row = first; row < last; row++) {
    __global const long *labels = (__global const long *)(targets + targets_offset) + row * classes;
    T sum = 0;
    for (long k = 0; k < classes && labels[k] >= 0; k++) {
      const T base = 1 - load(input + input_offset, row * classes + labels[k], DTYPE0);
      T part = 0;  // adding all pairs to one sum would lose digits
      for (long d = get_local_id(0); d < classes; d += LSIZE) {
        const T z = base + load(input + input_offset, row * classes + d, DTYPE0);
        if (z > 0 && load(is_target + is_target_offset, row * classes + d, DTYPE0) == 0) part += z;
      }
      sum += part;
    }
    sum = group_sum(sum, shared);
    if (get_local_id(0) == 0) store(output + output_offset, row, DTYPE0, sum / (T)classes);
  }
}

// For each target whose margin is too small, the gradient of the class increases, and that of the target decreases by
// the same amount. A target that is listed several times counts each time.
__kernel void multilabel_margin_loss_backward(SCORES_ARGUMENTS, __global const uchar *is_target, ulong is_target_offset,
                                              __global const uchar *grad, ulong grad_offset, long grad_step, T scale,
                                              __global uchar *grad_input, ulong grad_input_offset) {
  input += input_offset;
  is_target += is_target_offset;
  ITEM_TASKS(count * classes, first, last);
  for (long i = first; i < last; i++) {
    const long row = i / classes, label = i - row * classes, start = row * classes;
    __global const long *labels = (__global const long *)(targets + targets_offset) + start;
    const T own = load(input, i, DTYPE0);
    const bool loses = load(is_target, i, DTYPE0) != 0;
    long times = 0, missing = 0;
    for (long k = 0; k < classes && labels[k] >= 0; k++) {
      if (loses) times += labels[k] == label;
      else missing += 1 - load(input, start + labels[k], DTYPE0) + own > 0;
    }
    for (long d = 0; loses && d < classes; d++) {
      missing += load(is_target, start + d, DTYPE0) == 0 && 1 - own + load(input, start + d, DTYPE0) > 0;
    }
    const T g = load(grad + grad_offset, row * grad_step, DTYPE0) * scale;
    store(grad_input + grad_input_offset, i, DTYPE0, g * (T)(loses ? -times * missing : missing));
  }
}
