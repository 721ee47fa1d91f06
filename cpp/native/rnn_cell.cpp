#include "native/rnn_cell.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <array>

#include "cpu/host_call.h"
#include "entries/rnn.h"
#include "native/check.h"
#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
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

// `lstm_cell` of few elements.
std::optional<Tensors3> lstm_cell_on_host(const Inputs& inputs) {
  HostMemory memory;
  const auto views =
      memory.views<5>({inputs.input_gates, inputs.hidden_gates, inputs.input_bias, inputs.hidden_bias, inputs.state});
  if (!views.has_value()) return std::nullopt;
  const auto& [input_gates, hidden_gates, input_bias, hidden_bias, cx] = *views;
  const OneThread one_thread;
  at::Tensor gates = input_gates + hidden_gates;
  if (input_bias.defined()) gates.add_(input_bias).add_(hidden_bias);
  const std::vector<at::Tensor> parts = gates.unsafe_chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  for (const at::Tensor& gate : {in, forget, out}) gate.sigmoid_();
  cell.tanh_();
  const at::Tensor cy = (forget * cx).addcmul_(in, cell);
  return Tensors3{memory.to_device(out * cy.tanh()), memory.to_device(cy), memory.to_device(gates)};
}

// `lstm_cell_backward` of few elements; undefined gradients are zero.
std::optional<Tensors3> lstm_cell_backward_on_host(const std::array<at::Tensor, 5>& tensors, bool has_bias) {
  HostMemory memory;
  const auto views = memory.views(tensors);
  if (!views.has_value()) return std::nullopt;
  const auto& [grad_hy, grad_cy, cx, cy, gates] = *views;
  const OneThread one_thread;
  const std::vector<at::Tensor> parts = gates.chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const at::Tensor tanh = cy.tanh(), from_hy = grad_hy.defined() ? grad_hy : at::zeros_like(cy);
  at::Tensor grad = at::tanh_backward(from_hy * out, tanh);
  if (grad_cy.defined()) grad.add_(grad_cy);
  const at::Tensor grad_gates = at::cat(
      {at::sigmoid_backward(grad * cell, in), at::sigmoid_backward(grad * cx, forget),
       at::tanh_backward(grad * in, cell), at::sigmoid_backward(from_hy * tanh, out)},
      1);
  const at::Tensor grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return Tensors3{memory.to_device(grad_gates), memory.to_device(grad * forget), memory.to_device(grad_bias)};
}

} // namespace

// hy, cy, and the activated gates for the backward pass.
Tensors3 lstm_cell(const Arguments<at::_ops::_thnn_fused_lstm_cell>& args) {
  const Inputs inputs("lstm_cell", Cell::Lstm, args, args.cx);
  if (auto results = lstm_cell_on_host(inputs)) return *results;
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
  if (auto results = lstm_cell_backward_on_host({from_hy, from_cy, before, after, gates}, has_bias)) return *results;
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
  const at::Tensor absent;
  checked([&] {
    bridge::gru_cell_backward(arg(grad), arg(saved), arg(absent), arg(grad_input), arg(grad_hidden), arg(grad_hx));
  });
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
