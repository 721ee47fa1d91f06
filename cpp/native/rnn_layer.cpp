#include "native/rnn_layer.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "native/contiguous.h"
#include "native/rnn_cell.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/layers/rnn.rs.h"

namespace torch_opencl::native {
namespace {

at::Tensor flat(const at::Tensor& steps) {
  return steps.reshape({-1, steps.size(2)});
}

// The gates' gradients at all steps, [steps, batch, gates * hidden].
struct GateGradients {
  at::Tensor of_input, of_state; // of the two matmuls; the same tensor, except for a GRU
};

// The state's weights get one matmul over the steps that follow another, and one for the first step, which follows hx.
at::Tensor hidden_weight_gradient(const RnnLayer& layer, const at::Tensor& output, const at::Tensor& gradients) {
  const int64_t later = output.size(0) - 1, first = layer.step_index(0), begin = layer.reverse ? 0 : 1;
  at::Tensor result = at::mm(gradients.select(0, first).t(), layer.inputs.hx);
  if (later > 0) {
    const at::Tensor before = output.narrow(0, 1 - begin, later), after = gradients.narrow(0, begin, later);
    result.addmm_(flat(after).t(), flat(before));
  }
  return result;
}

} // namespace

RnnLayerTrace rnn_layer_forward(const RnnLayer& layer, bool has_backward) {
  const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = layer.inputs;
  const Cell cell = layer.cell;
  const int64_t steps = input.size(0), batch = input.size(1), hidden = hx.size(1), width = gates_of(cell) * hidden;
  // A plain cell lacks a separate kernel that adds the other bias.
  const bool is_plain = cell == Cell::Tanh || cell == Cell::Relu;
  const at::Tensor bias = is_plain && input_bias.defined() ? at::add(input_bias, hidden_bias) : input_bias;
  const at::Tensor gates = at::linear(flat(input), input_weight, bias).view({steps, batch, width});

  RnnLayerTrace trace{at::empty({steps, batch, hidden}, gates.options()), {}, {}};
  if (cell == Cell::Lstm) trace.cells = at::empty_like(trace.output);
  if (cell == Cell::Lstm) trace.saved_gates = gates; // each step overwrites its own
  if (cell == Cell::Gru) {
    // Five times the output: without a backward pass the steps share the memory of one.
    trace.saved_gates = at::empty({has_backward ? steps : 1, batch, kGruSaved * hidden}, gates.options());
    trace.saved_gates = trace.saved_gates.expand({steps, batch, kGruSaved * hidden});
  }
  const at::Tensor workspace = is_plain ? at::Tensor() : at::empty({batch, width}, gates.options());
  const at::Tensor first = hx.contiguous(), first_cell = contiguous(cx), weight = hidden_weight.contiguous().t(),
                   cell_bias = is_plain ? at::Tensor() : contiguous(hidden_bias);
  checked([&] {
    bridge::rnn_steps(
        {cell, layer.reverse, arg(first), arg(first_cell), arg(weight), arg(cell_bias), arg(gates), arg(workspace),
         arg(trace.output), arg(trace.cells), arg(trace.saved_gates)});
  });
  return trace;
}

std::array<at::Tensor, RnnLayerInputs::kCount> rnn_layer_backward(
    const RnnLayer& layer,
    const RnnLayerTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, RnnLayerInputs::kCount>& needed) {
  const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = layer.inputs;
  // The gradient of the output, to which each step adds that of its state.
  at::Tensor grad_outputs = grad_output.defined() ? grad_output.clone(at::MemoryFormat::Contiguous)
                                                  : at::zeros(trace.output.sizes(), trace.output.options());
  if (grad_hy.defined()) grad_outputs.select(0, layer.step_index(grad_outputs.size(0) - 1)).add_(grad_hy);
  const bool is_gru = layer.cell == Cell::Gru, is_lstm = layer.cell == Cell::Lstm;
  const at::Tensor first_cell = contiguous(cx), weight = hidden_weight.contiguous();
  const at::Tensor grad_hx = at::empty(hx.sizes(), hx.options()),
                   grad_cx = grad_cy.defined() ? grad_cy.clone(at::MemoryFormat::Contiguous)
      : is_lstm                                ? at::empty(cx.sizes(), cx.options())
                                               : at::Tensor();
  GateGradients gates;
  gates.of_input = at::empty({input.size(0), input.size(1), weight.size(0)}, grad_outputs.options());
  gates.of_state = is_gru ? at::empty_like(gates.of_input) : gates.of_input;
  checked([&] {
    bridge::rnn_steps_backward(
        {layer.cell, layer.reverse, arg(first_cell), arg(weight), arg(trace.output), arg(trace.cells),
         arg(trace.saved_gates), arg(grad_outputs), arg(grad_hx), arg(grad_cx), grad_cy.defined(), arg(gates.of_input),
         arg(gates.of_state)});
  });

  std::array<at::Tensor, RnnLayerInputs::kCount> result;
  auto& [of_input, of_hx, of_cx, of_input_weight, of_hidden_weight, of_input_bias, of_hidden_bias] = result;
  const at::Tensor rows = flat(gates.of_input);
  if (needed[0]) of_input = at::mm(rows, input_weight).view(input.sizes());
  if (needed[1]) of_hx = grad_hx;
  if (needed[2]) of_cx = grad_cx;
  if (needed[3]) of_input_weight = at::mm(rows.t(), flat(input));
  if (needed[4]) of_hidden_weight = hidden_weight_gradient(layer, trace.output, gates.of_state);
  if (needed[5]) of_input_bias = rows.sum(0);
  if (needed[6]) {
    const bool is_same = of_input_bias.defined() && gates.of_state.is_same(gates.of_input);
    of_hidden_bias = is_same ? of_input_bias.clone() : flat(gates.of_state).sum(0);
  }
  return result;
}

} // namespace torch_opencl::native
