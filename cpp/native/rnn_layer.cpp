#include "native/rnn_layer.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/zeros.h>

#include "entries/rnn.h"
#include "native/contiguous.h"
#include "native/rnn_cell.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/rnn/mod.rs.h"

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
  at::Tensor gates = at::linear(flat(input), input_weight, bias).view({steps, batch, width});

  RnnLayerTrace trace{at::empty({steps, batch, hidden}, gates.options()), {}, {}};
  if (cell == Cell::Lstm) trace.cells = at::empty_like(trace.output);
  if (cell == Cell::Lstm) trace.saved_gates = gates; // each step overwrites its own
  if (cell == Cell::Gru) {
    // Five times the output: without a backward pass the steps share the memory of one.
    trace.saved_gates = at::empty({has_backward ? steps : 1, batch, kGruSaved * hidden}, gates.options());
    trace.saved_gates = trace.saved_gates.expand({steps, batch, kGruSaved * hidden});
  }
  at::Tensor hidden_gates = is_plain ? at::Tensor() : at::empty({batch, width}, gates.options());
  at::Tensor state = hx.contiguous(), cell_state = contiguous(cx);
  const at::Tensor weight = hidden_weight.t(), cell_bias = contiguous(hidden_bias), absent;
  for (int64_t n = 0; n < steps; n++) {
    const int64_t t = layer.step_index(n);
    at::Tensor from_input = gates.select(0, t), hy = trace.output.select(0, t);
    if (is_plain) {
      from_input.addmm_(state, weight);
      if (cell == Cell::Tanh) at::tanh_out(hy, from_input);
      if (cell == Cell::Relu) at::clamp_min_out(hy, from_input, 0);
    } else {
      at::mm_out(hidden_gates, state, weight);
      const at::Tensor saved_gates = trace.saved_gates.select(0, t),
                       cells = cell == Cell::Lstm ? trace.cells.select(0, t) : absent;
      checked([&] {
        const auto args = [&](const at::Tensor& before) -> bridge::CellInputs {
          return {arg(from_input), arg(hidden_gates), arg(absent), arg(cell_bias), arg(before)};
        };
        if (cell == Cell::Lstm) bridge::lstm_cell(args(cell_state), arg(hy), arg(cells), arg(saved_gates));
        if (cell == Cell::Gru) bridge::gru_cell(args(state), arg(hy), arg(saved_gates));
      });
      cell_state = cells;
    }
    state = hy;
  }
  return trace;
}

namespace {

// Goes through the steps from the last to the first.
class BackwardSteps {
 public:
  BackwardSteps(const RnnLayer& layer, const RnnLayerTrace& trace) : layer_(layer), trace_(trace) {}

  // `grad_outputs` has the gradients of the output and gets those that come through later states; `grad_cx` has that of
  // the last cell state, or is undefined. Leaves the gradients of hx and cx in `grad_hx`, which starts at zero, and
  // `grad_cx`.
  GateGradients run(at::Tensor& grad_outputs, at::Tensor& grad_hx, at::Tensor& grad_cx) {
    const bool is_gru = layer_.cell == Cell::Gru;
    const at::Tensor& weight = layer_.inputs.hidden_weight;
    const int64_t steps = grad_outputs.size(0), batch = grad_outputs.size(1);
    GateGradients result;
    result.of_input = at::empty({steps, batch, weight.size(0)}, grad_outputs.options());
    result.of_state = is_gru ? at::empty_like(result.of_input) : result.of_input;
    if (is_gru) direct_ = at::empty_like(grad_hx);
    for (int64_t n = steps - 1; n >= 0; n--) {
      const int64_t t = layer_.step_index(n);
      at::Tensor before = n > 0 ? grad_outputs.select(0, layer_.step_index(n - 1)) : grad_hx;
      const at::Tensor to_state = result.of_state.select(0, t);
      step(n, grad_outputs.select(0, t), result.of_input.select(0, t), to_state, grad_cx);
      if (is_gru) before.add_(direct_);
      before.addmm_(to_state, weight);
    }
    return result;
  }

 private:
  void step(int64_t n, const at::Tensor& grad, at::Tensor to_input, const at::Tensor& to_state, at::Tensor& grad_cx) {
    const int64_t t = layer_.step_index(n);
    switch (layer_.cell) {
      case Cell::Lstm: {
        const at::Tensor cx = n > 0 ? trace_.cells.select(0, layer_.step_index(n - 1)) : contiguous(layer_.inputs.cx),
                         cy = trace_.cells.select(0, t), gates = trace_.saved_gates.select(0, t), grad_cy = grad_cx;
        if (!grad_cx.defined()) grad_cx = at::empty_like(cx);
        checked([&] {
          bridge::lstm_cell_backward(
              arg(grad), arg(grad_cy), arg(cx), arg(cy), arg(gates), arg(to_input), arg(grad_cx));
        });
        return;
      }
      case Cell::Gru: {
        const at::Tensor saved = trace_.saved_gates.select(0, t);
        checked([&] { bridge::gru_cell_backward(arg(grad), arg(saved), arg(to_input), arg(to_state), arg(direct_)); });
        return;
      }
      case Cell::Tanh:
        at::tanh_backward_out(to_input, grad, trace_.output.select(0, t));
        return;
      case Cell::Relu:
        at::threshold_backward_out(to_input, grad, trace_.output.select(0, t), 0);
        return;
    }
  }

  const RnnLayer& layer_;
  const RnnLayerTrace& trace_;
  at::Tensor direct_; // gradient of a GRU's state that bypasses the matmul
};

} // namespace

std::array<at::Tensor, RnnLayerInputs::kCount> rnn_layer_backward(
    const RnnLayer& layer,
    const RnnLayerTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, RnnLayerInputs::kCount>& needed) {
  const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = layer.inputs;
  at::Tensor grad_outputs = grad_output.defined() ? grad_output.clone(at::MemoryFormat::Contiguous)
                                                  : at::zeros(trace.output.sizes(), trace.output.options());
  if (grad_hy.defined()) grad_outputs.select(0, layer.step_index(grad_outputs.size(0) - 1)).add_(grad_hy);
  at::Tensor grad_hx = at::zeros(hx.sizes(), hx.options());
  at::Tensor grad_cx = grad_cy.defined() ? grad_cy.clone(at::MemoryFormat::Contiguous) : at::Tensor();
  const GateGradients gates = BackwardSteps(layer, trace).run(grad_outputs, grad_hx, grad_cx);

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
