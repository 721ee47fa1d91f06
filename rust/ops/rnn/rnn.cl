// Steps of recurrent cells after their two matmuls (CLASS_F and CLASS_D).
//
// Tensors are contiguous and have one dtype. A row of gates holds one gate after the other, each of `hidden` elements;
// input_gates and hidden_gates are the results of the matmuls of input and state. Absent biases and gradients are null.

#define LSTM_GATES 4
#define GRU_GATES 3
// Values that the forward pass of a GRU saves for the backward pass, each of `hidden` elements.
#define GRU_SAVED 5

#define CELL_ARGUMENTS int dtype0, long rows, long hidden

// Tasks of this item: VEC neighbours of a row each.
#define STATE_TASKS(first, last)                 \
  const long vectors = (hidden + VEC - 1) / VEC; \
  ITEM_TASKS(rows *vectors, first, last)

// Vector from `column` on of gate `gate`, in consecutive gates, or of row `gate` of a state.
static inline TV load_gate(__global const uchar *p, long gate, long column, long hidden, int dtype) {
  return load_part(p + gate * hidden * dtype_size(dtype), column, hidden, dtype, 0);
}

static inline void store_gate(__global uchar *p, long gate, long column, long hidden, int dtype, TV value) {
  store_part(p + gate * hidden * dtype_size(dtype), column, hidden, dtype, value);
}

// Gate `gate` of `gates` in a row, with its bias.
static inline TV biased(__global const uchar *p, __global const uchar *bias, long row, int gate, int gates, long column,
                        long hidden, int dtype) {
  TV value = load_gate(p, row * gates + gate, column, hidden, dtype);
  return bias ? value + load_gate(bias, gate, column, hidden, dtype) : value;
}

// The gates of a step in terms of its arguments. No arrays, as PoCL's stack may not be aligned for arrays of vectors.
#define FROM_INPUT(gate, gates) \
  biased(input_gates + input_gates_offset, input_bias, row, gate, gates, column, hidden, DTYPE0)
#define FROM_STATE(gate, gates) \
  biased(hidden_gates + hidden_gates_offset, hidden_bias, row, gate, gates, column, hidden, DTYPE0)
#define LSTM_GATE(gate) (FROM_INPUT(gate, LSTM_GATES) + FROM_STATE(gate, LSTM_GATES))
#define GRU_GATE(gate) (FROM_INPUT(gate, GRU_GATES) + FROM_STATE(gate, GRU_GATES))

// hy and cy are the new state; workspace [rows, 4, hidden] keeps the activated gates for the backward pass.
__kernel void lstm_cell(__global const uchar *input_gates, ulong input_gates_offset, __global const uchar *hidden_gates,
                        ulong hidden_gates_offset, __global const uchar *input_bias, ulong input_bias_offset,
                        __global const uchar *hidden_bias, ulong hidden_bias_offset, __global const uchar *cx,
                        ulong cx_offset, __global uchar *hy, ulong hy_offset, __global uchar *cy, ulong cy_offset,
                        __global uchar *workspace, ulong workspace_offset, CELL_ARGUMENTS) {
  input_bias = input_bias ? input_bias + input_bias_offset : input_bias;
  hidden_bias = hidden_bias ? hidden_bias + hidden_bias_offset : hidden_bias;
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    TV in = sigmoid(LSTM_GATE(0)), forget = sigmoid(LSTM_GATE(1));
    TV cell = m_tanh(LSTM_GATE(2)), out = sigmoid(LSTM_GATE(3));
    TV state = forget * load_gate(cx + cx_offset, row, column, hidden, DTYPE0) + in * cell;
    store_gate(cy + cy_offset, row, column, hidden, DTYPE0, state);
    store_gate(hy + hy_offset, row, column, hidden, DTYPE0, out * m_tanh(state));
    __global uchar *saved = workspace + workspace_offset;
    store_gate(saved, row * LSTM_GATES, column, hidden, DTYPE0, in);
    store_gate(saved, row * LSTM_GATES + 1, column, hidden, DTYPE0, forget);
    store_gate(saved, row * LSTM_GATES + 2, column, hidden, DTYPE0, cell);
    store_gate(saved, row * LSTM_GATES + 3, column, hidden, DTYPE0, out);
  }
}

// grad_gates is the gradient of both inputs' gates before their activation.
__kernel void lstm_cell_backward(__global const uchar *grad_hy, ulong grad_hy_offset, __global const uchar *grad_cy,
                                 ulong grad_cy_offset, __global const uchar *cx, ulong cx_offset,
                                 __global const uchar *cy, ulong cy_offset, __global const uchar *workspace,
                                 ulong workspace_offset, __global uchar *grad_gates, ulong grad_gates_offset,
                                 __global uchar *grad_cx, ulong grad_cx_offset, CELL_ARGUMENTS) {
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    __global const uchar *saved = workspace + workspace_offset;
    TV in = load_gate(saved, row * LSTM_GATES, column, hidden, DTYPE0);
    TV forget = load_gate(saved, row * LSTM_GATES + 1, column, hidden, DTYPE0);
    TV cell = load_gate(saved, row * LSTM_GATES + 2, column, hidden, DTYPE0);
    TV out = load_gate(saved, row * LSTM_GATES + 3, column, hidden, DTYPE0);
    TV shown = m_tanh(load_gate(cy + cy_offset, row, column, hidden, DTYPE0));
    TV old = load_gate(cx + cx_offset, row, column, hidden, DTYPE0);
    TV grad = grad_hy ? load_gate(grad_hy + grad_hy_offset, row, column, hidden, DTYPE0) : (TV)0;
    TV state = grad_cy ? load_gate(grad_cy + grad_cy_offset, row, column, hidden, DTYPE0) : (TV)0;
    state += grad * out * (1 - shown * shown);
    __global uchar *result = grad_gates + grad_gates_offset;
    store_gate(result, row * LSTM_GATES, column, hidden, DTYPE0, state * cell * in * (1 - in));
    store_gate(result, row * LSTM_GATES + 1, column, hidden, DTYPE0, state * old * forget * (1 - forget));
    store_gate(result, row * LSTM_GATES + 2, column, hidden, DTYPE0, state * in * (1 - cell * cell));
    store_gate(result, row * LSTM_GATES + 3, column, hidden, DTYPE0, grad * shown * out * (1 - out));
    store_gate(grad_cx + grad_cx_offset, row, column, hidden, DTYPE0, state * forget);
  }
}

// hy is the new state; workspace [rows, 5, hidden] keeps the reset, update and new gates, the old state, and the value
// that the reset gate scales.
__kernel void gru_cell(__global const uchar *input_gates, ulong input_gates_offset, __global const uchar *hidden_gates,
                       ulong hidden_gates_offset, __global const uchar *input_bias, ulong input_bias_offset,
                       __global const uchar *hidden_bias, ulong hidden_bias_offset, __global const uchar *hx,
                       ulong hx_offset, __global uchar *hy, ulong hy_offset, __global uchar *workspace,
                       ulong workspace_offset, CELL_ARGUMENTS) {
  input_bias = input_bias ? input_bias + input_bias_offset : input_bias;
  hidden_bias = hidden_bias ? hidden_bias + hidden_bias_offset : hidden_bias;
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    TV reset = sigmoid(GRU_GATE(0)), update = sigmoid(GRU_GATE(1)), scaled = FROM_STATE(2, GRU_GATES);
    TV fresh = m_tanh(FROM_INPUT(2, GRU_GATES) + reset * scaled);
    TV old = load_gate(hx + hx_offset, row, column, hidden, DTYPE0);
    store_gate(hy + hy_offset, row, column, hidden, DTYPE0, fresh + update * (old - fresh));
    __global uchar *saved = workspace + workspace_offset;
    store_gate(saved, row * GRU_SAVED, column, hidden, DTYPE0, reset);
    store_gate(saved, row * GRU_SAVED + 1, column, hidden, DTYPE0, update);
    store_gate(saved, row * GRU_SAVED + 2, column, hidden, DTYPE0, fresh);
    store_gate(saved, row * GRU_SAVED + 3, column, hidden, DTYPE0, old);
    store_gate(saved, row * GRU_SAVED + 4, column, hidden, DTYPE0, scaled);
  }
}

// The gradients of the two matmuls differ only in the new gate, whose state part the reset gate scales. grad_hx also
// gets grad_added, which may be the same memory.
__kernel void gru_cell_backward(__global const uchar *grad_hy, ulong grad_hy_offset, __global const uchar *workspace,
                                ulong workspace_offset, __global const uchar *grad_added, ulong grad_added_offset,
                                __global uchar *grad_input_gates, ulong grad_input_gates_offset,
                                __global uchar *grad_hidden_gates, ulong grad_hidden_gates_offset,
                                __global uchar *grad_hx, ulong grad_hx_offset, CELL_ARGUMENTS) {
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    __global const uchar *saved = workspace + workspace_offset;
    TV reset = load_gate(saved, row * GRU_SAVED, column, hidden, DTYPE0);
    TV update = load_gate(saved, row * GRU_SAVED + 1, column, hidden, DTYPE0);
    TV fresh = load_gate(saved, row * GRU_SAVED + 2, column, hidden, DTYPE0);
    TV old = load_gate(saved, row * GRU_SAVED + 3, column, hidden, DTYPE0);
    TV scaled = load_gate(saved, row * GRU_SAVED + 4, column, hidden, DTYPE0);
    TV grad = load_gate(grad_hy + grad_hy_offset, row, column, hidden, DTYPE0);
    TV grad_new = grad * (1 - update) * (1 - fresh * fresh);
    TV grad_update = grad * (old - fresh) * update * (1 - update);
    TV grad_reset = grad_new * scaled * reset * (1 - reset);
    __global uchar *to_input = grad_input_gates + grad_input_gates_offset;
    __global uchar *to_state = grad_hidden_gates + grad_hidden_gates_offset;
    store_gate(to_input, row * GRU_GATES, column, hidden, DTYPE0, grad_reset);
    store_gate(to_input, row * GRU_GATES + 1, column, hidden, DTYPE0, grad_update);
    store_gate(to_input, row * GRU_GATES + 2, column, hidden, DTYPE0, grad_new);
    store_gate(to_state, row * GRU_GATES, column, hidden, DTYPE0, grad_reset);
    store_gate(to_state, row * GRU_GATES + 1, column, hidden, DTYPE0, grad_update);
    store_gate(to_state, row * GRU_GATES + 2, column, hidden, DTYPE0, grad_new * reset);
    TV added = grad_added ? load_gate(grad_added + grad_added_offset, row, column, hidden, DTYPE0) : (TV)0;
    store_gate(grad_hx + grad_hx_offset, row, column, hidden, DTYPE0, grad * update + added);
  }
}

// A cell with one gate: hy holds the sum of the two matmuls, and gets the new state.
__kernel void plain_cell(__global uchar *hy, ulong hy_offset, long is_relu, CELL_ARGUMENTS) {
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    TV gate = load_gate(hy + hy_offset, row, column, hidden, DTYPE0);
    // A NaN stays.
    store_gate(hy + hy_offset, row, column, hidden, DTYPE0, is_relu ? (gate < (TV)0 ? (TV)0 : gate) : m_tanh(gate));
  }
}

__kernel void plain_cell_backward(__global const uchar *grad_hy, ulong grad_hy_offset, __global const uchar *hy,
                                  ulong hy_offset, __global uchar *grad_gates, ulong grad_gates_offset, long is_relu,
                                  CELL_ARGUMENTS) {
  STATE_TASKS(first, last);
  for (long task = first; task < last; task++) {
    const long row = task / vectors, column = task % vectors * VEC;
    TV grad = load_gate(grad_hy + grad_hy_offset, row, column, hidden, DTYPE0);
    TV state = load_gate(hy + hy_offset, row, column, hidden, DTYPE0);
    TV result = is_relu ? (state <= (TV)0 ? (TV)0 : grad) : grad * (1 - state * state);
    store_gate(grad_gates + grad_gates_offset, row, column, hidden, DTYPE0, result);
  }
}
