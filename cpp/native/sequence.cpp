#include "sequence.h"

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

#include "../error.h"
#include "../tensor_arg.h"
#include "contiguous.h"
#include "rnn.h"
#include "torch_opencl/rust/ops/rnn/mod.rs.h"

namespace torch_opencl::native {
namespace {

at::Tensor flat(const at::Tensor& steps) {
  return steps.reshape({-1, steps.size(2)});
}

// The gates' gradients at all steps, [steps, batch, gates * hidden].
struct GateGradients {
  at::Tensor of_input, of_state; // of the two matmuls; the same tensor but for a GRU
};

// The state's weights get one matmul over the steps that follow another, and one for the first step, which follows hx.
at::Tensor hidden_weight_gradient(const Sequence& sequence, const at::Tensor& output, const at::Tensor& gradients) {
  const int64_t later = output.size(0) - 1, first = sequence.place(0), begin = sequence.reverse ? 0 : 1;
  at::Tensor result = at::mm(gradients.select(0, first).t(), sequence.inputs.hx);
  if (later > 0) {
    const at::Tensor before = output.narrow(0, 1 - begin, later), after = gradients.narrow(0, begin, later);
    result.addmm_(flat(after).t(), flat(before));
  }
  return result;
}

} // namespace

SequenceTrace run_sequence(const Sequence& sequence, bool has_backward) {
  const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = sequence.inputs;
  const Cell cell = sequence.cell;
  const int64_t steps = input.size(0), batch = input.size(1), hidden = hx.size(1), width = gates_of(cell) * hidden;
  // A plain cell has no kernel of its own that adds the other bias.
  const bool is_plain = cell == Cell::Tanh || cell == Cell::Relu;
  const at::Tensor bias = is_plain && input_bias.defined() ? at::add(input_bias, hidden_bias) : input_bias;
  at::Tensor gates = at::linear(flat(input), input_weight, bias).view({steps, batch, width});

  SequenceTrace trace{at::empty({steps, batch, hidden}, gates.options()), {}, {}};
  if (cell == Cell::Lstm) trace.cells = at::empty_like(trace.output);
  if (cell == Cell::Lstm) trace.kept = gates; // each step overwrites its own
  if (cell == Cell::Gru) {
    // Five times the output: without a backward pass the steps share the memory of one.
    trace.kept = at::empty({has_backward ? steps : 1, batch, kGruSaved * hidden}, gates.options());
    trace.kept = trace.kept.expand({steps, batch, kGruSaved * hidden});
  }
  at::Tensor product = is_plain ? at::Tensor() : at::empty({batch, width}, gates.options());
  at::Tensor state = hx.contiguous(), content = contiguous(cx);
  const at::Tensor weight = hidden_weight.t(), cell_bias = contiguous(hidden_bias), absent;
  for (int64_t n = 0; n < steps; n++) {
    const int64_t t = sequence.place(n);
    at::Tensor from_input = gates.select(0, t), shown = trace.output.select(0, t);
    if (is_plain) {
      from_input.addmm_(state, weight);
      if (cell == Cell::Tanh) at::tanh_out(shown, from_input);
      if (cell == Cell::Relu) at::clamp_min_out(shown, from_input, 0);
    } else {
      at::mm_out(product, state, weight);
      const at::Tensor kept = trace.kept.select(0, t), cells = cell == Cell::Lstm ? trace.cells.select(0, t) : absent;
      checked([&] {
        const auto args = [&](const at::Tensor& before) -> bridge::CellInputs {
          return {arg(from_input), arg(product), arg(absent), arg(cell_bias), arg(before)};
        };
        if (cell == Cell::Lstm) bridge::lstm_cell(args(content), arg(shown), arg(cells), arg(kept));
        if (cell == Cell::Gru) bridge::gru_cell(args(state), arg(shown), arg(kept));
      });
      content = cells;
    }
    state = shown;
  }
  return trace;
}

namespace {

// Goes through the steps from the last to the first.
class BackwardSteps {
 public:
  BackwardSteps(const Sequence& sequence, const SequenceTrace& trace) : sequence_(sequence), trace_(trace) {}

  // `shown` has the gradients of the output and gets those that come through later states; `grad_cx` has that of the
  // last content, or is undefined. Leaves the gradients of hx and cx in `grad_hx`, which starts at zero, and `grad_cx`.
  GateGradients run(at::Tensor& shown, at::Tensor& grad_hx, at::Tensor& grad_cx) {
    const bool is_gru = sequence_.cell == Cell::Gru;
    const at::Tensor& weight = sequence_.inputs.hidden_weight;
    const int64_t steps = shown.size(0), batch = shown.size(1);
    GateGradients result;
    result.of_input = at::empty({steps, batch, weight.size(0)}, shown.options());
    result.of_state = is_gru ? at::empty_like(result.of_input) : result.of_input;
    if (is_gru) direct_ = at::empty_like(grad_hx);
    for (int64_t n = steps - 1; n >= 0; n--) {
      const int64_t t = sequence_.place(n);
      at::Tensor before = n > 0 ? shown.select(0, sequence_.place(n - 1)) : grad_hx;
      const at::Tensor to_state = result.of_state.select(0, t);
      step(n, shown.select(0, t), result.of_input.select(0, t), to_state, grad_cx);
      if (is_gru) before.add_(direct_);
      before.addmm_(to_state, weight);
    }
    return result;
  }

 private:
  void step(int64_t n, const at::Tensor& grad, at::Tensor to_input, const at::Tensor& to_state, at::Tensor& grad_cx) {
    const int64_t t = sequence_.place(n);
    switch (sequence_.cell) {
      case Cell::Lstm: {
        const at::Tensor cx = n > 0 ? trace_.cells.select(0, sequence_.place(n - 1)) : contiguous(sequence_.inputs.cx),
                         cy = trace_.cells.select(0, t), gates = trace_.kept.select(0, t), grad_cy = grad_cx;
        if (!grad_cx.defined()) grad_cx = at::empty_like(cx);
        checked([&] {
          bridge::lstm_cell_backward(
              arg(grad), arg(grad_cy), arg(cx), arg(cy), arg(gates), arg(to_input), arg(grad_cx));
        });
        return;
      }
      case Cell::Gru: {
        const at::Tensor saved = trace_.kept.select(0, t);
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

  const Sequence& sequence_;
  const SequenceTrace& trace_;
  at::Tensor direct_; // gradient of a GRU's state that bypasses the matmul
};

} // namespace

std::array<at::Tensor, SequenceInputs::kCount> run_sequence_backward(
    const Sequence& sequence,
    const SequenceTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, SequenceInputs::kCount>& needed) {
  const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = sequence.inputs;
  at::Tensor shown = grad_output.defined() ? grad_output.clone(at::MemoryFormat::Contiguous)
                                           : at::zeros(trace.output.sizes(), trace.output.options());
  if (grad_hy.defined()) shown.select(0, sequence.place(shown.size(0) - 1)).add_(grad_hy);
  at::Tensor grad_hx = at::zeros(hx.sizes(), hx.options());
  at::Tensor grad_cx = grad_cy.defined() ? grad_cy.clone(at::MemoryFormat::Contiguous) : at::Tensor();
  const GateGradients gates = BackwardSteps(sequence, trace).run(shown, grad_hx, grad_cx);

  std::array<at::Tensor, SequenceInputs::kCount> result;
  auto& [of_input, of_hx, of_cx, of_input_weight, of_hidden_weight, of_input_bias, of_hidden_bias] = result;
  const at::Tensor rows = flat(gates.of_input);
  if (needed[0]) of_input = at::mm(rows, input_weight).view(input.sizes());
  if (needed[1]) of_hx = grad_hx;
  if (needed[2]) of_cx = grad_cx;
  if (needed[3]) of_input_weight = at::mm(rows.t(), flat(input));
  if (needed[4]) of_hidden_weight = hidden_weight_gradient(sequence, trace.output, gates.of_state);
  if (needed[5]) of_input_bias = rows.sum(0);
  if (needed[6]) {
    const bool is_same = of_input_bias.defined() && gates.of_state.is_same(gates.of_input);
    of_hidden_bias = is_same ? of_input_bias.clone() : flat(gates.of_state).sum(0);
  }
  return result;
}

} // namespace torch_opencl::native
