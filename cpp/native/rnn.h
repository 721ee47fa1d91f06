// Steps of LSTM and GRU cells; PyTorch's recurrent layers call these for devices other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

#include "norm.h"

namespace torch_opencl::native {

enum class Cell : int64_t { Lstm, Gru, Tanh, Relu };

// How many gates a cell has.
constexpr int64_t gates_of(Cell cell) {
  switch (cell) {
    case Cell::Lstm:
      return 4;
    case Cell::Gru:
      return 3;
    default:
      return 1;
  }
}

// How many numbers a state's element of a GRU leaves for the backward pass.
constexpr int64_t kGruSaved = 5;

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// hy, cy, and the activated gates for the backward pass.
Tensors3 lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
// Gradients of the gates, of cx, and of each bias.
Tensors3 lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias);

// hy, and what the backward pass needs.
Tensors2 gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias);
// Gradients of input_gates, hidden_gates, hx, input_bias and hidden_bias.
Tensors5 gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias);

} // namespace torch_opencl::native
