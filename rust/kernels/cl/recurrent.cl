// Cells of recurrent networks (CLASS_F and CLASS_D): what is elementwise in them. The two matrix products that make the
// gates have been done.
//
// Gates are contiguous [batch, gates, hidden], biases [gates, hidden] or null, states [batch, hidden].

#ifdef SPEC_DTYPE0
#define DTYPE0 SPEC_DTYPE0
#else
#define DTYPE0 dtype0
#endif

// The vectors of a [batch, hidden] tensor, row by row: `b` is the row, `h` where the vector begins in it.
#define FOR_CELLS(b, h)                                       \
  long strips = (hidden + VEC - 1) / VEC;                     \
  ITEM_TASKS(batch *strips, first, last);                     \
  for (long task = first, b = first / strips, h = first % strips * VEC; task < last; \
       task++, h += VEC, b += h >= hidden, h = h >= hidden ? 0 : h)

// Gate `gate` of a row of `gates` of them.
inline TV load_gate(__global const uchar *p, long row, int gates, int gate, long h, long hidden, int dtype0) {
  __global const uchar *start = p + ((row * gates + gate) * hidden) * dtype_size(DTYPE0);
  return load_part(start, h, hidden, DTYPE0, 0);
}
inline void store_gate(__global uchar *p, long row, int gates, int gate, long h, long hidden, int dtype0, TV value) {
  store_part(p + ((row * gates + gate) * hidden) * dtype_size(DTYPE0), h, hidden, DTYPE0, value);
}

// A half of a gate's input: the product, and its bias if there is one.
inline TV biased(__global const uchar *gates_in, __global const uchar *bias, long row, int gates, int gate, long h,
                 long hidden, int dtype0) {
  TV v = load_gate(gates_in, row, gates, gate, h, hidden, dtype0);
  return bias ? v + load_gate(bias, 0, gates, gate, h, hidden, dtype0) : v;
}

// Gates i, f, g, o; `saved` keeps them for the backward.
__kernel void lstm_cell(__global uchar *hy, ulong hy_offset, __global uchar *cy, ulong cy_offset, __global uchar *saved,
                        ulong saved_offset, __global const uchar *input, ulong input_offset,
                        __global const uchar *state, ulong state_offset, __global const uchar *input_bias,
                        ulong input_bias_offset, __global const uchar *state_bias, ulong state_bias_offset,
                        __global const uchar *cx, ulong cx_offset, int dtype0, long batch, long hidden) {
  input += input_offset;
  state += state_offset;
  input_bias = input_bias ? input_bias + input_bias_offset : input_bias;
  state_bias = state_bias ? state_bias + state_bias_offset : state_bias;
  FOR_CELLS(b, h) {
    TV gates[4];
    for (int k = 0; k < 4; k++) {
      TV sum = biased(input, input_bias, b, 4, k, h, hidden, dtype0) +
               biased(state, state_bias, b, 4, k, h, hidden, dtype0);
      gates[k] = k == 2 ? m_tanh(sum) : sigmoid(sum);
      store_gate(saved + saved_offset, b, 4, k, h, hidden, dtype0, gates[k]);
    }
    TV c = gates[1] * load_gate(cx + cx_offset, b, 1, 0, h, hidden, dtype0) + gates[0] * gates[2];
    store_gate(cy + cy_offset, b, 1, 0, h, hidden, dtype0, c);
    store_gate(hy + hy_offset, b, 1, 0, h, hidden, dtype0, gates[3] * m_tanh(c));
  }
}

// Either incoming gradient may be null.
__kernel void lstm_cell_backward(__global uchar *grad_gates, ulong grad_gates_offset, __global uchar *grad_cx,
                                 ulong grad_cx_offset, __global const uchar *grad_hy, ulong grad_hy_offset,
                                 __global const uchar *grad_cy, ulong grad_cy_offset, __global const uchar *cx,
                                 ulong cx_offset, __global const uchar *cy, ulong cy_offset,
                                 __global const uchar *saved, ulong saved_offset, int dtype0, long batch, long hidden) {
  saved += saved_offset;
  grad_gates += grad_gates_offset;
  FOR_CELLS(b, h) {
    TV i = load_gate(saved, b, 4, 0, h, hidden, dtype0), f = load_gate(saved, b, 4, 1, h, hidden, dtype0);
    TV g = load_gate(saved, b, 4, 2, h, hidden, dtype0), o = load_gate(saved, b, 4, 3, h, hidden, dtype0);
    TV gh = grad_hy ? load_gate(grad_hy + grad_hy_offset, b, 1, 0, h, hidden, dtype0) : (TV)0;
    TV gc = grad_cy ? load_gate(grad_cy + grad_cy_offset, b, 1, 0, h, hidden, dtype0) : (TV)0;
    TV t = m_tanh(load_gate(cy + cy_offset, b, 1, 0, h, hidden, dtype0));
    gc += gh * o * (1 - t * t);
    store_gate(grad_gates, b, 4, 0, h, hidden, dtype0, gc * g * (1 - i) * i);
    TV before = load_gate(cx + cx_offset, b, 1, 0, h, hidden, dtype0);
    store_gate(grad_gates, b, 4, 1, h, hidden, dtype0, gc * before * (1 - f) * f);
    store_gate(grad_gates, b, 4, 2, h, hidden, dtype0, gc * i * (1 - g * g));
    store_gate(grad_gates, b, 4, 3, h, hidden, dtype0, gh * t * (1 - o) * o);
    store_gate(grad_cx + grad_cx_offset, b, 1, 0, h, hidden, dtype0, gc * f);
  }
}

// Gates r, z, n; `saved` keeps them, the state and the state's half of n for the backward.
__kernel void gru_cell(__global uchar *hy, ulong hy_offset, __global uchar *saved, ulong saved_offset,
                       __global const uchar *input, ulong input_offset, __global const uchar *state, ulong state_offset,
                       __global const uchar *input_bias, ulong input_bias_offset, __global const uchar *state_bias,
                       ulong state_bias_offset, __global const uchar *hx, ulong hx_offset, int dtype0, long batch,
                       long hidden) {
  input += input_offset;
  state += state_offset;
  saved += saved_offset;
  input_bias = input_bias ? input_bias + input_bias_offset : input_bias;
  state_bias = state_bias ? state_bias + state_bias_offset : state_bias;
  FOR_CELLS(b, h) {
    TV gates[2];
    for (int k = 0; k < 2; k++) {
      gates[k] = sigmoid(biased(input, input_bias, b, 3, k, h, hidden, dtype0) +
                         biased(state, state_bias, b, 3, k, h, hidden, dtype0));
      store_gate(saved, b, 5, k, h, hidden, dtype0, gates[k]);
    }
    TV from_state = biased(state, state_bias, b, 3, 2, h, hidden, dtype0);
    TV n = m_tanh(biased(input, input_bias, b, 3, 2, h, hidden, dtype0) + gates[0] * from_state);
    TV before = load_gate(hx + hx_offset, b, 1, 0, h, hidden, dtype0);
    store_gate(saved, b, 5, 2, h, hidden, dtype0, n);
    store_gate(saved, b, 5, 3, h, hidden, dtype0, before);
    store_gate(saved, b, 5, 4, h, hidden, dtype0, from_state);
    store_gate(hy + hy_offset, b, 1, 0, h, hidden, dtype0, n + gates[1] * (before - n));
  }
}

__kernel void gru_cell_backward(__global uchar *grad_input, ulong grad_input_offset, __global uchar *grad_state,
                                ulong grad_state_offset, __global uchar *grad_hx, ulong grad_hx_offset,
                                __global const uchar *grad_hy, ulong grad_hy_offset, __global const uchar *saved,
                                ulong saved_offset, int dtype0, long batch, long hidden) {
  saved += saved_offset;
  grad_input += grad_input_offset;
  grad_state += grad_state_offset;
  FOR_CELLS(b, h) {
    TV r = load_gate(saved, b, 5, 0, h, hidden, dtype0), z = load_gate(saved, b, 5, 1, h, hidden, dtype0);
    TV n = load_gate(saved, b, 5, 2, h, hidden, dtype0), before = load_gate(saved, b, 5, 3, h, hidden, dtype0);
    TV from_state = load_gate(saved, b, 5, 4, h, hidden, dtype0);
    TV g = load_gate(grad_hy + grad_hy_offset, b, 1, 0, h, hidden, dtype0);
    TV gn = g * (1 - z) * (1 - n * n);
    TV gz = g * (before - n) * (1 - z) * z;
    TV gr = gn * from_state * (1 - r) * r;
    store_gate(grad_hx + grad_hx_offset, b, 1, 0, h, hidden, dtype0, g * z);
    store_gate(grad_input, b, 3, 0, h, hidden, dtype0, gr);
    store_gate(grad_input, b, 3, 1, h, hidden, dtype0, gz);
    store_gate(grad_input, b, 3, 2, h, hidden, dtype0, gn);
    store_gate(grad_state, b, 3, 0, h, hidden, dtype0, gr);
    store_gate(grad_state, b, 3, 1, h, hidden, dtype0, gz);
    store_gate(grad_state, b, 3, 2, h, hidden, dtype0, gn * r);
  }
}
