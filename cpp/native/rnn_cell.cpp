#include "rnn_cell.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "check.h"
#include "contiguous.h"
#include "entries/rnn.h"
#include "torch_opencl/rust/ops/rnn/mod.rs.h"

namespace torch_opencl::native {
namespace {

// A tensor of a step, contiguous; if it is defined, it has the given size and the dtype of the state.
at::Tensor dense(
    const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, const at::Tensor& state) {
  check_sizes(op, name, tensor, sizes);
  check_dtype(op, name, tensor, state.scalar_type());
  return contiguous(tensor);
}

void check_state(const char* op, const at::Tensor& state) {
  TORCH_CHECK(state.dim() == 2, op, ": expected a state of 2 dimensions, but got ", state.sizes());
}

// The inputs of a step, dense and checked.
struct Inputs {
  template <class Op>
  Inputs(const char* op, Cell cell, const Arguments<Op>& args, const at::Tensor& state)
      : state((check_state(op, state), state.contiguous())),
        width(gates_of(cell) * state.size(1)),
        input_gates(dense(op, "input_gates", args.input_gates, {state.size(0), width}, state)),
        hidden_gates(dense(op, "hidden_gates", args.hidden_gates, {state.size(0), width}, state)),
        input_bias(dense(op, "input_bias", value_of(args.input_bias), width, state)),
        hidden_bias(dense(op, "hidden_bias", value_of(args.hidden_bias), width, state)) {}

  bridge::CellInputs args() const {
    return {arg(input_gates), arg(hidden_gates), arg(input_bias), arg(hidden_bias), arg(state)};
  }

  at::Tensor state;
  int64_t width;
  at::Tensor input_gates, hidden_gates, input_bias, hidden_bias;
};

} // namespace

// hy, cy, and the activated gates for the backward pass.
Tensors3 lstm_cell(const Arguments<at::_ops::_thnn_fused_lstm_cell>& args) {
  const Inputs inputs("lstm_cell", Cell::Lstm, args, args.cx);
  at::Tensor hy = at::empty_like(inputs.state), cy = at::empty_like(inputs.state),
             workspace = at::empty_like(inputs.input_gates);
  checked([&] { bridge::lstm_cell(inputs.args(), arg(hy), arg(cy), arg(workspace)); });
  return {std::move(hy), std::move(cy), std::move(workspace)};
}

// Gradients of the gates, of cx, and of each bias.
Tensors3 lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  constexpr const char* op = "lstm_cell_backward";
  const at::Tensor given_grad_hy = value_of(grad_hy), given_grad_cy = value_of(grad_cy);
  if (!given_grad_hy.defined() && !given_grad_cy.defined()) return {};
  check_state(op, cx);
  const at::Tensor before = cx.contiguous(), after = dense(op, "cy", cy, cx.sizes(), cx),
                   gates = dense(op, "workspace", workspace, {cx.size(0), gates_of(Cell::Lstm) * cx.size(1)}, cx),
                   from_hy = dense(op, "grad_hy", given_grad_hy, cx.sizes(), cx),
                   from_cy = dense(op, "grad_cy", given_grad_cy, cx.sizes(), cx);
  at::Tensor grad_gates = at::empty_like(gates), grad_cx = at::empty_like(before);
  checked([&] {
    bridge::lstm_cell_backward(
        arg(from_hy), arg(from_cy), arg(before), arg(after), arg(gates), arg(grad_gates), arg(grad_cx));
  });
  at::Tensor grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {std::move(grad_gates), std::move(grad_cx), std::move(grad_bias)};
}

// hy, and the values saved for the backward pass.
Tensors2 gru_cell(const Arguments<at::_ops::_thnn_fused_gru_cell>& args) {
  const Inputs inputs("gru_cell", Cell::Gru, args, args.hx);
  at::Tensor hy = at::empty_like(inputs.state),
             workspace = at::empty({args.hx.size(0), kGruSaved * args.hx.size(1)}, inputs.state.options());
  checked([&] { bridge::gru_cell(inputs.args(), arg(hy), arg(workspace)); });
  return {std::move(hy), std::move(workspace)};
}

// Gradients of input_gates, hidden_gates, hx, input_bias and hidden_bias.
Tensors5 gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  constexpr const char* op = "gru_cell_backward";
  check_state(op, grad_hy);
  const int64_t rows = grad_hy.size(0), hidden = grad_hy.size(1);
  const at::Tensor grad = grad_hy.contiguous(),
                   saved = dense(op, "workspace", workspace, {rows, kGruSaved * hidden}, grad_hy);
  at::Tensor grad_input = at::empty({rows, gates_of(Cell::Gru) * hidden}, grad.options()),
             grad_hidden = at::empty_like(grad_input), grad_hx = at::empty_like(grad);
  checked([&] { bridge::gru_cell_backward(arg(grad), arg(saved), arg(grad_input), arg(grad_hidden), arg(grad_hx)); });
  at::Tensor grad_input_bias, grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = grad_input.sum(0);
    grad_hidden_bias = grad_hidden.sum(0);
  }
  return {
      std::move(grad_input), std::move(grad_hidden), std::move(grad_hx), std::move(grad_input_bias),
      std::move(grad_hidden_bias)};
}

} // namespace torch_opencl::native
