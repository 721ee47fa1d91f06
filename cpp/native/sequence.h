// One direction of one layer of a recurrent network over a whole sequence.
//
// All that does not depend on the state is one matmul over all steps: the input's part of the gates, and in the
// backward pass the gradients of input and weights. Each step does only the matmul of the state, and the cell.
#pragma once

#include <ATen/core/Tensor.h>
#include <array>

#include "rnn.h"

namespace torch_opencl::native {

// All tensors that gradients can be asked for, in the order in which gradients are returned. Tensors are floating and
// of one dtype and device.
struct SequenceInputs {
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

struct Sequence {
  Cell cell;
  bool reverse; // from the last step to the first
  SequenceInputs inputs;

  // Index of the n-th step.
  int64_t place(int64_t n) const {
    return reverse ? inputs.input.size(0) - 1 - n : n;
  }
};

// Results of the forward pass.
struct SequenceTrace {
  at::Tensor output; // [steps, batch, hidden]
  at::Tensor cells;  // content of an LSTM's cells, as `output`
  at::Tensor kept;   // of an LSTM's and a GRU's gates, for the backward pass
};

// Without a backward pass to come, `kept` has no use afterwards, and may be of one step only.
SequenceTrace run_sequence(const Sequence& sequence, bool has_backward);

// Gradients of the inputs that `needed` marks, from those of the output and of the last state and content, each of
// which may be undefined.
std::array<at::Tensor, SequenceInputs::kCount> run_sequence_backward(
    const Sequence& sequence,
    const SequenceTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, SequenceInputs::kCount>& needed);

} // namespace torch_opencl::native
