#include "recurrent.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "contiguous.h"

namespace torch_opencl::native {
namespace {

// The products that make the gates, and their biases.
struct Gates {
  Gates(
      const at::Tensor& input_gates,
      const at::Tensor& hidden_gates,
      const std::optional<at::Tensor>& input_bias,
      const std::optional<at::Tensor>& hidden_bias)
      : input(input_gates.contiguous()),
        state(hidden_gates.contiguous()),
        input_bias(contiguous(input_bias)),
        state_bias(contiguous(hidden_bias)) {}

  // `count` gates for each unit of the state.
  void check(const char* op, const at::Tensor& previous, int64_t count) const {
    TORCH_CHECK(
        previous.dim() == 2 && input.dim() == 2 && state.sizes() == input.sizes() &&
            input.size(0) == previous.size(0) && input.size(1) == count * previous.size(1),
        op, ": gates of sizes ", input.sizes(), " and ", state.sizes(), " do not fit a state of sizes ",
        previous.sizes());
    for (const at::Tensor& other : {state, input_bias, state_bias, previous}) {
      TORCH_CHECK(
          !other.defined() || other.scalar_type() == input.scalar_type(), op, ": expected all tensors to have dtype ",
          input.scalar_type(), ", but got ", other.scalar_type());
    }
    for (const at::Tensor& bias : {input_bias, state_bias}) {
      TORCH_CHECK(
          !bias.defined() || bias.numel() == input.size(1), op, ": bias of sizes ", bias.sizes(),
          " does not fit gates of sizes ", input.sizes());
    }
  }

  bridge::RecurrentGates args() const {
    return {arg(input), arg(state), arg(input_bias), arg(state_bias)};
  }

  at::Tensor input, state, input_bias, state_bias;
};

at::Tensor bias_gradient(const at::Tensor& grad_gates, bool has_bias) {
  return has_bias ? grad_gates.sum(0) : at::Tensor();
}

} // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const Gates gates(input_gates, hidden_gates, input_bias, hidden_bias);
  gates.check("lstm_cell", cx, 4);
  const at::Tensor before = cx.contiguous();
  at::Tensor hy = at::empty_like(before), cy = at::empty_like(before), workspace = at::empty_like(gates.input);
  checked([&] { bridge::lstm_cell(arg(hy), arg(cy), arg(workspace), gates.args(), arg(before)); });
  return {std::move(hy), std::move(cy), std::move(workspace)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const at::Tensor from_state = contiguous(grad_hy), from_cell = contiguous(grad_cy);
  if (!from_state.defined() && !from_cell.defined()) return {};
  const at::Tensor before = cx.contiguous(), after = cy.contiguous(), saved = workspace.contiguous();
  at::Tensor grad_gates = at::empty_like(saved), grad_cx = at::empty_like(before);
  checked([&] {
    bridge::lstm_cell_backward(
        arg(grad_gates), arg(grad_cx), arg(from_state), arg(from_cell), arg(before), arg(after), arg(saved));
  });
  return {grad_gates, std::move(grad_cx), bias_gradient(grad_gates, has_bias)};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias,
    const std::optional<at::Tensor>& hidden_bias) {
  const Gates gates(input_gates, hidden_gates, input_bias, hidden_bias);
  gates.check("gru_cell", hx, 3);
  const at::Tensor before = hx.contiguous();
  at::Tensor hy = at::empty_like(before), workspace = at::empty({hx.size(0), 5 * hx.size(1)}, hx.options());
  checked([&] { bridge::gru_cell(arg(hy), arg(workspace), gates.args(), arg(before)); });
  return {std::move(hy), std::move(workspace)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const at::Tensor grad = grad_hy.contiguous(), saved = workspace.contiguous();
  at::Tensor grad_input = at::empty({grad.size(0), 3 * grad.size(1)}, grad.options()),
             grad_state = at::empty_like(grad_input), grad_hx = at::empty_like(grad);
  checked([&] { bridge::gru_cell_backward(arg(grad_input), arg(grad_state), arg(grad_hx), arg(grad), arg(saved)); });
  return {
      grad_input, grad_state, std::move(grad_hx), bias_gradient(grad_input, has_bias),
      bias_gradient(grad_state, has_bias)};
}

} // namespace torch_opencl::native
