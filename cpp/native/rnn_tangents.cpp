// Forward-mode derivatives of LSTM and GRU cells: ATen's fused functions have none, but the functions that it composes
// for CPU tensors do. Calls without tangents continue to ATen's kernel for autograd.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "native/rnn_cell.h"

namespace torch_opencl::native {
namespace {

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}
bool has_tangent(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && has_tangent(*tensor);
}

template <class... T>
bool is_dual(const T&... tensors) {
  return (has_tangent(tensors) || ...);
}

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// Keys of ATen's kernel for autograd, which it has for all backends: ours is registered in its place.
c10::DispatchKeySet of_aten(c10::DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(c10::DispatchKey::AutogradOther);
}

// hy, cy, and nothing for a backward pass, which the composition has by itself.
Tensors3 lstm_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (!is_dual(input_gates, hidden_gates, cx, input_bias, hidden_bias)) {
    return at::_ops::_thnn_fused_lstm_cell::redispatch(
        of_aten(keys), input_gates, hidden_gates, cx, input_bias, hidden_bias);
  }
  const at::Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const std::vector<at::Tensor> parts = gates.unsafe_chunk(4, 1);
  const at::Tensor cy = parts[1].sigmoid() * cx + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * cy.tanh(), cy, at::empty({0}, cx.options())};
}

Tensors2 gru_cell(
    c10::DispatchKeySet keys,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  if (!is_dual(input_gates, hidden_gates, hx, input_bias, hidden_bias)) {
    return at::_ops::_thnn_fused_gru_cell::redispatch(
        of_aten(keys), input_gates, hidden_gates, hx, input_bias, hidden_bias);
  }
  const std::vector<at::Tensor> from_input = with_bias(input_gates, input_bias).unsafe_chunk(3, 1),
                                from_state = with_bias(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const at::Tensor reset = (from_input[0] + from_state[0]).sigmoid(),
                   update = (from_input[1] + from_state[1]).sigmoid();
  const at::Tensor candidate = (from_input[2] + reset * from_state[2]).tanh();
  return {(hx - candidate) * update + candidate, at::empty({0}, hx.options())};
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
}

} // namespace
} // namespace torch_opencl::native
