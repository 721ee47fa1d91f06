// One direction of one layer of a recurrent network over a whole sequence.
//
// One matmul over all steps computes everything that does not depend on the state: the input's part of the gates, and
// in the backward pass the gradients of input and weights. Each step does only the matmul of the state, and the cell.
#pragma once

#include <ATen/core/Tensor.h>
#include <array>

#include "native/rnn_cell.h"

namespace torch_opencl::native {

// All tensors that can require gradients, in the order in which gradients are returned. Tensors are floating and
// of one dtype and device.
struct RnnLayerInputs {
  at::Tensor input;                   // [steps, batch, features]
  at::Tensor hx, cx;                  // [batch, hidden]; cx is defined for an LSTM only
  at::Tensor input_weight;            // [gates * hidden, features]
  at::Tensor hidden_weight;           // [gates * hidden, hidden]
  at::Tensor input_bias, hidden_bias; // [gates * hidden]; both or neither

  static constexpr size_t kCount = 7;
  std::array<at::Tensor, kCount> all() const {
    return {input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias};
  }
};

struct RnnLayer {
  Cell cell;
  bool reverse; // from the last step to the first
  RnnLayerInputs inputs;

  // Index of the n-th step.
  int64_t step_index(int64_t n) const {
    return reverse ? inputs.input.size(0) - 1 - n : n;
  }
};

// Results of the forward pass.
struct RnnLayerTrace {
  at::Tensor output;      // [steps, batch, hidden]
  at::Tensor cells;       // cell states of an LSTM, as `output`
  at::Tensor saved_gates; // of an LSTM's and a GRU's gates, for the backward pass
};

// Without a backward pass to come, `saved_gates` has no use afterwards, and may be of one step only.
RnnLayerTrace rnn_layer_forward(const RnnLayer& layer, bool has_backward);

// Gradients of the inputs that `needed` marks, from those of the output and of the last state and cell state, each of
// which may be undefined.
std::array<at::Tensor, RnnLayerInputs::kCount> rnn_layer_backward(
    const RnnLayer& layer,
    const RnnLayerTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, RnnLayerInputs::kCount>& needed);

} // namespace torch_opencl::native
