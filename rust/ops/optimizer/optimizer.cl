// One step of an optimizer on a list of parameters, in one pass over all that the step reads and writes (CLASS_F and
// CLASS_D). Each element is read once and written once: for Adam in float32 28 bytes, while the separate operations of
// the same step move over 100. Comes after multi_tensor.cl.
//
// The tensors of a parameter are dense and have the same layout. The step count, the learning rate, the gradients'
// scale and the flag of infinite gradients are scalars in device memory, so that the host need not wait for them; the
// last three are shared by all parameters, and the flag is null if absent.

#ifdef SPEC_DTYPE0
#define DTYPE_OF(operand) SPEC_DTYPE0
#else
#define DTYPE_OF(operand) step.dtypes[operand]
#endif

// The lists, and after them the tensors that all parameters share.
#define PARAMETER 0
#define GRADIENT 1
#define STATE0 2
#define STATE1 3
#define STATE2 4
#define COUNT 5
#define LR 6
#define GRAD_SCALE 7
#define FOUND_INF 8
#define STEP_OPERANDS 9

// mod.rs writes the same struct.
typedef struct {
  T lr;  // if no tensor holds it
  T sign;  // -1 to maximise
  T weight_decay;
  T eps;
  T momentum;  // Adam's beta1
  T beta2;
  T weight1;  // of the gradient in the first state, 1 - dampening or 1 - beta1: the host loses no digits
  T weight2;  // of its square in the second state, 1 - beta2
  T log_beta1;  // logarithms of the two betas, which lose no digits if the betas are nearly 1
  T log_beta2;
  T lr_decay;
  int dtypes[STEP_OPERANDS];
  int present;  // a bit for each operand that is present
  int is_first_step;  // the first state is not initialised
  int nesterov;
} Step;

#define STEP_ARGUMENTS Step step, __global const uchar *found_inf, ulong found_inf_offset, MULTI_TENSOR_ARGUMENTS

#define HAS(operand) (step.present & (1 << (operand)))
#define LIST(operand) (HAS(operand) ? TENSOR_START(table, s, operand) : 0)
#define SHARED_SCALAR(operand) load_at(SHARED_START(table, (operand) - LR), step.dtypes[operand])

// Returns if gradients are infinite, unless a state must be initialised first. Defines this group's tensors,
// `learning_rate`, and `factor`, which multiplies gradients.
#define BEGIN_STEP                                                                                         \
  TENSOR_CHUNK(table, s, n, start, end);                                                                   \
  const bool is_skipped = found_inf && load_at(found_inf + found_inf_offset, step.dtypes[FOUND_INF]) != 0; \
  if (is_skipped && !step.is_first_step) return;                                                           \
  __global uchar *const parameter = LIST(PARAMETER), *const gradient = LIST(GRADIENT);                     \
  __global uchar *const state0 = LIST(STATE0), *const state1 = LIST(STATE1), *const state2 = LIST(STATE2); \
  __global const uchar *const count = LIST(COUNT);                                                         \
  const T learning_rate = HAS(LR) ? SHARED_SCALAR(LR) : step.lr;                                           \
  T factor = step.sign;                                                                                    \
  if (HAS(GRAD_SCALE)) factor /= SHARED_SCALAR(GRAD_SCALE);                                                \
  const T steps = count ? load_at(count, step.dtypes[COUNT]) : 1;
#define FOR_EACH_VECTOR(i) for (long i = start + get_local_id(0) * VEC; i < end; i += LSIZE * VEC)

#define LOAD(buffer, operand) load_part(buffer, i, n, DTYPE_OF(operand), 0)
#define STORE(buffer, operand, value) store_part(buffer, i, n, DTYPE_OF(operand), value)

// Stores unscaled gradients, as the caller may read them.
#define LOAD_GRADIENT(g)                    \
  TV g = LOAD(gradient, GRADIENT) * factor; \
  if (HAS(GRAD_SCALE)) STORE(gradient, GRADIENT, g *step.sign);

// Sutskever, Martens, Dahl and Hinton 2013.
__kernel GROUPS_OF(LSIZE) void sgd_step(STEP_ARGUMENTS) {
  BEGIN_STEP
  FOR_EACH_VECTOR(i) {
    if (is_skipped) {
      if (state0) STORE(state0, STATE0, 0);
      continue;
    }
    LOAD_GRADIENT(g)
    TV p = LOAD(parameter, PARAMETER);
    g += step.weight_decay * p;
    if (state0) {
      TV momentum_buffer = g;
      if (!step.is_first_step) momentum_buffer = step.momentum * LOAD(state0, STATE0) + step.weight1 * g;
      STORE(state0, STATE0, momentum_buffer);
      g = step.nesterov ? g + step.momentum * momentum_buffer : momentum_buffer;
    }
    STORE(parameter, PARAMETER, p - learning_rate * g);
  }
}

// Shared by both forms of Adam, after weight decay. Kingma and Ba 2015; the maximum of Reddi, Kale and Kumar 2018.
#define BEGIN_ADAM                                                                                              \
  const T bias_correction1 = -expm1(steps * step.log_beta1), bias_correction2 = -expm1(steps * step.log_beta2); \
  const T step_size = learning_rate / bias_correction1, rsqrt_correction2 = 1 / sqrt(bias_correction2);
#define ADAM(p, g)                                                      \
  TV exp_avg = LOAD(state0, STATE0), exp_avg_sq = LOAD(state1, STATE1); \
  exp_avg += step.weight1 * (g - exp_avg);                              \
  exp_avg_sq = step.beta2 * exp_avg_sq + step.weight2 * g * g;          \
  STORE(state0, STATE0, exp_avg);                                       \
  STORE(state1, STATE1, exp_avg_sq);                                    \
  if (state2) {                                                         \
    exp_avg_sq = fmax(LOAD(state2, STATE2), exp_avg_sq);                \
    STORE(state2, STATE2, exp_avg_sq);                                  \
  }                                                                     \
  STORE(parameter, PARAMETER, p - step_size * exp_avg / (sqrt(exp_avg_sq) * rsqrt_correction2 + step.eps));

__kernel GROUPS_OF(LSIZE) void adam_step(STEP_ARGUMENTS) {
  BEGIN_STEP
  BEGIN_ADAM
  FOR_EACH_VECTOR(i) {
    LOAD_GRADIENT(g)
    TV p = LOAD(parameter, PARAMETER);
    g += step.weight_decay * p;
    ADAM(p, g)
  }
}

// Loshchilov and Hutter 2019.
__kernel GROUPS_OF(LSIZE) void adamw_step(STEP_ARGUMENTS) {
  BEGIN_STEP
  BEGIN_ADAM
  FOR_EACH_VECTOR(i) {
    LOAD_GRADIENT(g)
    TV p = LOAD(parameter, PARAMETER);
    p -= learning_rate * step.weight_decay * p;
    ADAM(p, g)
  }
}

// Duchi, Hazan and Singer 2011.
__kernel GROUPS_OF(LSIZE) void adagrad_step(STEP_ARGUMENTS) {
  BEGIN_STEP
  const T step_size = learning_rate / (1 + (steps - 1) * step.lr_decay);
  FOR_EACH_VECTOR(i) {
    LOAD_GRADIENT(g)
    TV p = LOAD(parameter, PARAMETER);
    g += step.weight_decay * p;
    const TV sum = LOAD(state0, STATE0) + g * g;
    STORE(state0, STATE0, sum);
    STORE(parameter, PARAMETER, p - step_size * g / (sqrt(sum) + step.eps));
  }
}
