// Negative log likelihood and binary cross entropy (CLASS_F and CLASS_D).
//
// Likelihoods are contiguous and viewed as [samples, classes, inner], targets as [samples, inner]. A target equal to
// `ignored` is skipped; one out of range gives NaN and a fault. Optional tensors are null if absent.

#define REDUCE_NONE 0
#define REDUCE_MEAN 1
#define REDUCE_SUM 2

static inline long load_target(__global const uchar *targets, long i, int dtype) {
  return dtype == DT_U8 ? (long)targets[i] : load_index(targets, i, dtype);
}

// Defines the unweighted loss and the weight of target i, which is not ignored.
#define FIND_LOSS(i, target, loss, class_weight)                                     \
  T loss = NAN, class_weight = 1;                                                    \
  if (target >= 0 && target < classes) {                                             \
    loss = -load(input, (i / inner * classes + target) * inner + i % inner, DTYPE0); \
    if (weight) class_weight = load(weight, target, DTYPE0);                         \
  } else if (target != ignored) {                                                    \
    report_fault(faults + faults_offset, FAULT_TARGET, target, classes);             \
  }

// Arguments that select a likelihood for each target.
#define LIKELIHOOD_ARGUMENTS                                                                           \
  __global const uchar *targets, ulong targets_offset, int target_dtype, __global const uchar *weight, \
      ulong weight_offset, long count, long classes, long inner, long ignored, __global uchar *faults, \
      ulong faults_offset

// Reduction none: one loss per target.
__kernel void nll_loss_each(__global const uchar *input, ulong input_offset, int dtype0, LIKELIHOOD_ARGUMENTS,
                            __global uchar *output, ulong output_offset) {
  input += input_offset;
  targets += targets_offset;
  weight = weight ? weight + weight_offset : weight;
  ITEM_TASKS(count, first, last);
  for (long i = first; i < last; i++) {
    long target = load_target(targets, i, target_dtype);
    FIND_LOSS(i, target, loss, class_weight)
    store(output + output_offset, i, DTYPE0, target == ignored ? (T)0 : loss * class_weight);
  }
}

// Each group writes the sums of its losses and of their weights to `parts`, T [groups][2].
__kernel GROUPS_OF(LSIZE) void nll_loss_parts(__global const uchar *input, ulong input_offset, int dtype0,
                                              LIKELIHOOD_ARGUMENTS, __global uchar *parts, ulong parts_offset) {
  input += input_offset;
  targets += targets_offset;
  weight = weight ? weight + weight_offset : weight;
  GROUP_SHARED(shared);
  T losses = 0, weights = 0;
  GROUP_TASKS(count, first, last);
  for (long i = first + get_local_id(0); i < last; i += LSIZE) {
    long target = load_target(targets, i, target_dtype);
    if (target == ignored) continue;
    FIND_LOSS(i, target, loss, class_weight)
    losses += loss * class_weight;
    weights += class_weight;
  }
  losses = group_sum(losses, shared);
  weights = group_sum(weights, shared);
  if (get_local_id(0) == 0) {
    __global T *out = (__global T *)(parts + parts_offset) + 2 * get_group_id(0);
    out[0] = losses;
    out[1] = weights;
  }
}

// One item: adds up the groups' parts.
__kernel void nll_loss_finish(__global const uchar *parts, ulong parts_offset, __global uchar *output,
                              ulong output_offset, __global uchar *total_weight, ulong total_weight_offset, int dtype0,
                              long groups, int reduction) {
  __global const T *in = (__global const T *)(parts + parts_offset);
  T losses = 0, weights = 0;
  for (long g = 0; g < groups; g++) {
    losses += in[2 * g];
    weights += in[2 * g + 1];
  }
  // A total weight of 0 gives 0 / 0, NaN, as in PyTorch.
  store(output + output_offset, 0, DTYPE0, reduction == REDUCE_MEAN ? losses / weights : losses);
  store(total_weight + total_weight_offset, 0, DTYPE0, weights);
}

// Stores the gradient of every target's likelihood; the other gradients are zero already.
__kernel void nll_loss_backward(__global const uchar *grad, ulong grad_offset, LIKELIHOOD_ARGUMENTS,
                                __global const uchar *total_weight, ulong total_weight_offset,
                                __global uchar *grad_input, ulong grad_input_offset, int dtype0, int reduction) {
  weight = weight ? weight + weight_offset : weight;
  T total = reduction == REDUCE_MEAN ? load(total_weight + total_weight_offset, 0, DTYPE0) : 1;
  ITEM_TASKS(count, first, last);
  for (long i = first; i < last; i++) {
    long target = load_target(targets + targets_offset, i, target_dtype);
    if (target == ignored) continue;
    if (target < 0 || target >= classes) {
      report_fault(faults + faults_offset, FAULT_TARGET, target, classes);
      continue;
    }
    T g = load(grad + grad_offset, reduction == REDUCE_NONE ? i : 0, DTYPE0) / total;
    if (weight) g *= load(weight, target, DTYPE0);
    store(grad_input + grad_input_offset, (i / inner * classes + target) * inner + i % inner, DTYPE0, -g);
  }
}

// Returns true if all lanes are between 0 and 1; false for NaN.
static inline bool are_probabilities(TV v) { return all((v >= (TV)0) & (v <= (TV)1)); }

// Elementwise on contiguous tensors. Logarithms are clamped to at least -100, as PyTorch defines this loss.
__kernel void binary_cross_entropy(__global const uchar *input, ulong input_offset, __global const uchar *target,
                                   ulong target_offset, __global const uchar *weight, ulong weight_offset,
                                   __global uchar *output, ulong output_offset, int dtype0, long count,
                                   __global uchar *faults, ulong faults_offset) {
  weight = weight ? weight + weight_offset : weight;
  ITEM_TASKS((count + VEC - 1) / VEC, first, last);
  for (long i = first * VEC; i < min(last * VEC, count); i += VEC) {
    TV x = load_part(input + input_offset, i, count, DTYPE0, 0),
       y = load_part(target + target_offset, i, count, DTYPE0, 0);
    if (!are_probabilities(x)) report_fault(faults + faults_offset, FAULT_INPUT_PROBABILITY, 0, 0);
    if (!are_probabilities(y)) report_fault(faults + faults_offset, FAULT_TARGET_PROBABILITY, 0, 0);
    TV loss = (y - 1) * max(log1p(-x), (TV)-100) - y * max(log(x), (TV)-100);
    if (weight) loss *= load_part(weight, i, count, DTYPE0, 0);
    store_part(output + output_offset, i, count, DTYPE0, loss);
  }
}

// `grad` has one value for all elements if grad_step is 0, one for each if it is 1; `scale` is 1 / count for the mean.
__kernel void binary_cross_entropy_backward(__global const uchar *grad, ulong grad_offset, long grad_step,
                                            __global const uchar *input, ulong input_offset,
                                            __global const uchar *target, ulong target_offset,
                                            __global const uchar *weight, ulong weight_offset,
                                            __global uchar *grad_input, ulong grad_input_offset, int dtype0, long count,
                                            TR scale) {
  weight = weight ? weight + weight_offset : weight;
  ITEM_TASKS((count + VEC - 1) / VEC, first, last);
  for (long i = first * VEC; i < min(last * VEC, count); i += VEC) {
    TV x = load_part(input + input_offset, i, count, DTYPE0, 0),
       y = load_part(target + target_offset, i, count, DTYPE0, 0);
    TV g = grad_step ? load_part(grad + grad_offset, i, count, DTYPE0, 0) : (TV)load(grad + grad_offset, 0, DTYPE0);
    // PyTorch's epsilon keeps the slope at 0 and 1 finite.
    TV slope = (x - y) / max((1 - x) * x, (TV)LIT(1e-12));
    if (weight) slope *= load_part(weight, i, count, DTYPE0, 0);
    store_part(grad_input + grad_input_offset, i, count, DTYPE0, slope * g * scale);
  }
}
