// Connectionist temporal classification (CLASS_F and CLASS_D): the forward-backward recursion of A. Graves, S.
// Fernandez, F. Gomez and J. Schmidhuber, "Connectionist temporal classification" (ICML 2006), on logarithms.
//
// A target of L labels becomes 2 L + 1 states: a blank before, between and after the labels. log_probs are contiguous
// [times, batch, classes], log_alpha and log_beta [batch, times, states], all of dtype T. A work-group has one sample
// of the batch: its items share the states of a time step, and synchronize after each time step.

// A sample is three longs: its length, the number of labels of its target, and the position of the first in `targets`.
#define SAMPLE_ARGUMENTS                                                                                       \
  __global const uchar *samples, ulong samples_offset, __global const uchar *targets, ulong targets_offset,    \
      int target_dtype, long target_step, __global const uchar *log_probs, ulong log_probs_offset, long batch, \
      long times, long classes, long states, long blank, __global uchar *faults, ulong faults_offset

typedef struct {
  long times;
  long states;
  long first;
} Sample;

static inline Sample sample_of(__global const uchar *samples, long sample) {
  __global const long *record = (__global const long *)samples + 3 * sample;
  return (Sample){record[0], 2 * record[1] + 1, record[2]};
}

// The class of a state. A label that is out of range is a fault, and counts as the blank.
#define CLASS_OF(sample, state)                                                                                      \
  ((state) % 2 == 0 ? blank                                                                                          \
                    : class_of(targets + targets_offset, ((sample).first + (state) / 2) * target_step, target_dtype, \
                               classes, blank, faults + faults_offset))
INLINE INLINED_ON_GPUS long class_of(__global const uchar *targets, long i, int dtype, long classes, long blank,
                                     __global uchar *faults) {
  const long label = load_index(targets, i, dtype);
  if (label >= 0 && label < classes) return label;
  report_fault(faults, FAULT_TARGET, label, classes);
  return blank;
}

// log(exp(a) + exp(b) + exp(c)); all three may be -inf.
INLINE INLINED_ON_GPUS T logsumexp3(T a, T b, T c) {
  // The largest term becomes exp(0) = 1; false comparisons propagate a NaN.
  const T larger = a > b ? a : b, least = a > b ? b : a;
  const T top = larger > c ? larger : c, other = larger > c ? c : larger;
  if (top == -INFINITY) return top;
  return top + log1p(exp(other - top) + exp(least - top));
}

// The log probability of all paths that reach a state at a time step. The loss is minus the log probability of the
// target.
__kernel GROUPS_OF(LSIZE) void ctc_alpha(SAMPLE_ARGUMENTS, __global uchar *log_alpha, ulong log_alpha_offset,
                                         __global uchar *losses, ulong losses_offset) {
  const long b = get_group_id(0), item = get_local_id(0);
  const Sample sample = sample_of(samples + samples_offset, b);
  __global const T *probs = (__global const T *)(log_probs + log_probs_offset) + b * classes;
  __global T *alpha = (__global T *)(log_alpha + log_alpha_offset) + b * times * states;
  const long step = batch * classes;
  for (long s = item; s < states; s += LSIZE) {
    const bool is_start = s < 2 && s < sample.states && sample.times > 0;
    if (times > 0) alpha[s] = is_start ? probs[CLASS_OF(sample, s)] : -INFINITY;
  }
  for (long t = 1; t < sample.times; t++) {
    barrier(CLK_GLOBAL_MEM_FENCE);
    __global const T *before = alpha + (t - 1) * states;
    for (long s = item; s < sample.states; s += LSIZE) {
      const long label = CLASS_OF(sample, s);
      // The blank between two labels is optional if the labels differ.
      const bool skips = s % 2 == 1 && s > 1 && CLASS_OF(sample, s - 2) != label;
      const T sum = logsumexp3(before[s], s > 0 ? before[s - 1] : -INFINITY, skips ? before[s - 2] : -INFINITY);
      alpha[t * states + s] = sum + probs[t * step + label];
    }
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  if (item != 0) return;
  T likelihood = sample.states == 1 ? (T)0 : -INFINITY;
  if (sample.times > 0) {
    __global const T *last = alpha + (sample.times - 1) * states + sample.states - 1;
    likelihood = logsumexp3(last[0], sample.states > 1 ? last[-1] : -INFINITY, -INFINITY);
  }
  ((__global T *)(losses + losses_offset))[b] = -likelihood;
}

// The log probability of all paths that continue from a state at a time step, including that step.
__kernel GROUPS_OF(LSIZE) void ctc_beta(SAMPLE_ARGUMENTS, __global uchar *log_beta, ulong log_beta_offset) {
  const long b = get_group_id(0), item = get_local_id(0);
  const Sample sample = sample_of(samples + samples_offset, b);
  __global const T *probs = (__global const T *)(log_probs + log_probs_offset) + b * classes;
  __global T *beta = (__global T *)(log_beta + log_beta_offset) + b * times * states;
  const long step = batch * classes, last = sample.times - 1;
  for (long s = item; s < sample.states && last >= 0; s += LSIZE) {
    const bool is_end = s >= sample.states - 2;
    beta[last * states + s] = is_end ? probs[last * step + CLASS_OF(sample, s)] : -INFINITY;
  }
  for (long t = last - 1; t >= 0; t--) {
    barrier(CLK_GLOBAL_MEM_FENCE);
    __global const T *after = beta + (t + 1) * states;
    for (long s = item; s < sample.states; s += LSIZE) {
      const long label = CLASS_OF(sample, s);
      const bool skips = s % 2 == 1 && s + 2 < sample.states && CLASS_OF(sample, s + 2) != label;
      const T sum =
          logsumexp3(after[s], s + 1 < sample.states ? after[s + 1] : -INFINITY, skips ? after[s + 2] : -INFINITY);
      beta[t * states + s] = sum + probs[t * step + label];
    }
  }
}

// The part of the gradient that does not depend on the states: exp(log_prob) * g, where g is the gradient of the loss.
// It is 0 after the end of a sample. For an infinite loss it is 0 with zero_infinity, else NaN.
__kernel void ctc_gradient(SAMPLE_ARGUMENTS, __global const uchar *grad, ulong grad_offset,
                           __global const uchar *losses, ulong losses_offset, __global uchar *grad_input,
                           ulong grad_input_offset, int zero_infinity) {
  __global const T *probs = (__global const T *)(log_probs + log_probs_offset);
  __global T *out = (__global T *)(grad_input + grad_input_offset);
  ITEM_TASKS(times * batch, first, last);
  for (long task = first; task < last; task++) {
    const long t = task / batch, b = task % batch;
    const Sample sample = sample_of(samples + samples_offset, b);
    const T loss = ((__global const T *)(losses + losses_offset))[b];
    const T g = ((__global const T *)(grad + grad_offset))[b];
    const bool is_zero = t >= sample.times || (loss == INFINITY && zero_infinity);
    for (long c = 0; c < classes; c++) {
      const T slope = loss == INFINITY ? (T)NAN : exp(probs[task * classes + c]) * g;
      out[task * classes + c] = is_zero ? (T)0 : slope;
    }
  }
}

// Subtracts the part that depends on the states: the probability of being in a state of the class, times g. A work-item
// has all states of a sample at a time step, as several may have the same class.
__kernel void ctc_gradient_states(SAMPLE_ARGUMENTS, __global const uchar *grad, ulong grad_offset,
                                  __global const uchar *losses, ulong losses_offset, __global const uchar *log_alpha,
                                  ulong log_alpha_offset, __global const uchar *log_beta, ulong log_beta_offset,
                                  __global uchar *grad_input, ulong grad_input_offset) {
  ITEM_TASKS(times * batch, first, last);
  for (long task = first; task < last; task++) {
    const long t = task / batch, b = task % batch;
    const Sample sample = sample_of(samples + samples_offset, b);
    const T loss = ((__global const T *)(losses + losses_offset))[b];
    const T g = ((__global const T *)(grad + grad_offset))[b];
    if (t >= sample.times || loss == INFINITY) continue;
    __global const T *probs = (__global const T *)(log_probs + log_probs_offset) + task * classes;
    __global const T *alpha = (__global const T *)(log_alpha + log_alpha_offset) + (b * times + t) * states;
    __global const T *beta = (__global const T *)(log_beta + log_beta_offset) + (b * times + t) * states;
    __global T *out = (__global T *)(grad_input + grad_input_offset) + task * classes;
    T blanks = 0;
    for (long s = 0; s < sample.states; s++) {
      const long label = CLASS_OF(sample, s);
      // Both alpha and beta include the probability of this state at this time step.
      const T share = alpha[s] + beta[s];
      const T slope = share == -INFINITY ? (T)0 : exp(share + loss - probs[label]) * g;
      if (s % 2 == 0) blanks += slope;
      else out[label] -= slope;
    }
    out[blank] -= blanks;
  }
}
