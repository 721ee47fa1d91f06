// torch.nn.LSTM, GRU and RNN: ATen's functions for whole networks, layer by layer, each over its whole sequence.
//
// ATen composes these functions of steps, and calls no faster implementation of a backend outside its tree; so they are
// registered above autograd, with a node for each layer. Calls that the node does not support (projections, autocast,
// tangents, tensors that are not plain memory) go to ATen.

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <algorithm>

#include "native/composite.h"
#include "native/rnn_cell.h"
#include "native/rnn_layer.h"
#include "native/rnn_layer_host.h"

namespace torch_opencl::native {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct States {
  at::Tensor output, hy, cy;
};

// Arguments of each ATen function; `cx` is an LSTM's.
struct Network {
  Cell cell;
  at::Tensor input, hx, cx;
  at::TensorList parameters;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
  // Parameters of one direction of a layer.
  size_t parameter_count() const {
    return has_biases ? 4 : 2;
  }

  // ATen's own function.
  States composed() const;
  // Returns true if the layers' own function takes the call: plain tensors of one floating dtype, with matching sizes.
  // ATen computes all other cases, or raises for them.
  bool is_simple() const;
  variable_list run_layer(const at::Tensor& steps, int64_t index, at::TensorList weights, bool has_backward) const;
  States run() const;
};

States Network::composed() const {
  const auto plain = [&](auto function) -> States {
    auto [output, hy] = function(input, hx, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
    return {output, hy, {}};
  };
  using Plain =
      Tensors2 (*)(const at::Tensor&, const at::Tensor&, at::TensorList, bool, int64_t, double, bool, bool, bool);
  switch (cell) {
    case Cell::Lstm: {
      auto [output, hy, cy] =
          at::native::lstm(input, {hx, cx}, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
      return {output, hy, cy};
    }
    case Cell::Gru:
      return plain(static_cast<Plain>(&at::native::gru));
    case Cell::Tanh:
      return plain(static_cast<Plain>(&at::native::rnn_tanh));
    case Cell::Relu:
      return plain(static_cast<Plain>(&at::native::rnn_relu));
  }
  return {};
}

// One direction of one layer as ATen's steps, which are differentiable more than once.
variable_list composed_steps(const RnnLayer& layer) {
  const RnnLayerInputs& inputs = layer.inputs;
  const auto turned = [&](const at::Tensor& steps) { return layer.reverse ? steps.flip(0) : steps; };
  std::vector<at::Tensor> parameters{inputs.input_weight, inputs.hidden_weight};
  const bool has_biases = inputs.input_bias.defined();
  if (has_biases) parameters.insert(parameters.end(), {inputs.input_bias, inputs.hidden_bias});
  const at::Tensor cx = inputs.cx.defined() ? inputs.cx.unsqueeze(0) : at::Tensor();
  const Network steps{
      layer.cell, turned(inputs.input), inputs.hx.unsqueeze(0), cx, parameters, has_biases, 1, 0.0, true, false, false};
  const auto [output, hy, cy] = steps.composed();
  variable_list results{turned(output), hy.squeeze(0)};
  if (cy.defined()) results.push_back(cy.squeeze(0));
  return results;
}

// The node of autograd for one direction of a layer: output, last state, and the last cell state of an LSTM.
struct RnnLayerFunction : torch::autograd::Function<RnnLayerFunction> {
  static variable_list forward(
      AutogradContext* context,
      int64_t cell,
      bool reverse,
      bool has_backward,
      const Variable& input,
      const Variable& hx,
      const std::optional<Variable>& cx,
      const Variable& input_weight,
      const Variable& hidden_weight,
      const std::optional<Variable>& input_bias,
      const std::optional<Variable>& hidden_bias) {
    const at::Tensor absent;
    const RnnLayer layer{
        static_cast<Cell>(cell),
        reverse,
        {input, hx, cx.value_or(absent), input_weight, hidden_weight, input_bias.value_or(absent),
         hidden_bias.value_or(absent)}};
    at::AutoDispatchBelowADInplaceOrView below;
    const bool is_on_host = is_lstm_layer_on_host(layer, has_backward);
    context->saved_data["cell"] = cell;
    context->saved_data["reverse"] = reverse;
    context->saved_data["is_on_host"] = is_on_host;
    context->set_materialize_grads(false);
    const auto inputs = layer.inputs.all();
    variable_list saved(inputs.begin(), inputs.end()), results;
    if (is_on_host) {
      const auto [output, hy, cy, workspace] = lstm_layer_on_host(layer, has_backward);
      results = {output, hy, cy};
      saved.insert(saved.end(), {output, hy, cy, workspace});
    } else {
      const RnnLayerTrace trace = rnn_layer_forward(layer, has_backward);
      const int64_t last = layer.step_index(input.size(0) - 1);
      results = {trace.output, trace.output.select(0, last).clone()};
      if (trace.cells.defined()) results.push_back(trace.cells.select(0, last).clone());
      saved.insert(saved.end(), {trace.output, trace.cells, trace.saved_gates});
    }
    context->save_for_backward(std::move(saved));
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    // The forward pass was not under autocast: its tensors are of one dtype, and so are the gradients.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    const variable_list saved = context->get_saved_variables();
    const RnnLayer layer{
        static_cast<Cell>(context->saved_data["cell"].toInt()),
        context->saved_data["reverse"].toBool(),
        {saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]}};
    const auto inputs = layer.inputs.all();
    std::array<bool, RnnLayerInputs::kCount> needed{};
    size_t edge = 0; // autograd counts the inputs that are defined
    for (size_t i = 0; i < inputs.size(); i++) needed[i] = inputs[i].defined() && context->needs_input_grad(edge++);

    const bool is_any = std::any_of(gradients.begin(), gradients.end(), [](const auto& g) { return g.defined(); });
    std::array<at::Tensor, RnnLayerInputs::kCount> results;
    // Gradients under vmap, as for a vectorized Jacobian, have no memory for kernels.
    const bool is_plain = std::none_of(
        gradients.begin(), gradients.end(), [](const auto& g) { return g.defined() && at::isTensorSubclassLike(g); });
    if (is_any && (!is_plain || at::GradMode::is_enabled())) {
      results = differentiable(layer, gradients, needed);
    } else if (is_any) {
      at::AutoDispatchBelowADInplaceOrView below;
      const at::Tensor grad_cy = gradients.size() > 2 ? gradients[2] : at::Tensor();
      const bool was_on_host = context->saved_data["is_on_host"].toBool();
      if (was_on_host && is_lstm_layer_on_host(layer, /*has_backward=*/true)) {
        results = lstm_layer_backward_on_host(
            layer, {saved[7], saved[8], saved[9], saved[10]}, gradients[0], gradients[1], grad_cy);
      } else {
        // Kernels cannot read the workspace that oneDNN saves: a captured graph computes the layer again.
        const RnnLayerTrace trace =
            was_on_host ? rnn_layer_forward(layer, /*has_backward=*/true) : RnnLayerTrace{saved[7], saved[8], saved[9]};
        results = rnn_layer_backward(layer, trace, gradients[0], gradients[1], grad_cy, needed);
      }
    }
    variable_list all(3); // of `cell`, `reverse` and `has_backward`
    all.insert(all.end(), results.begin(), results.end());
    return all;
  }

 private:
  // Differentiable gradients, from ATen's steps. Inputs are aliased: if one is computed from another (a state from the
  // layer's weights), the gradient of the other would be included here, and autograd would then add it twice.
  static std::array<at::Tensor, RnnLayerInputs::kCount> differentiable(
      const RnnLayer& layer, const variable_list& gradients, const std::array<bool, RnnLayerInputs::kCount>& needed) {
    const bool create_graph = at::GradMode::is_enabled();
    const at::AutoGradMode with_graph(true);
    auto inputs = layer.inputs.all();
    for (at::Tensor& input : inputs) {
      if (input.defined()) input = input.view_as(input);
    }
    const auto& [input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias] = inputs;
    const variable_list all = composed_steps(
        {layer.cell, layer.reverse, {input, hx, cx, input_weight, hidden_weight, input_bias, hidden_bias}});
    variable_list outputs, given, wanted;
    for (size_t i = 0; i < all.size(); i++) {
      if (!gradients[i].defined()) continue;
      outputs.push_back(all[i]);
      given.push_back(gradients[i]);
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      if (needed[i]) wanted.push_back(inputs[i]);
    }
    const variable_list found = torch::autograd::grad(
        outputs, wanted, given, /*retain_graph=*/create_graph, create_graph, /*allow_unused=*/true);
    std::array<at::Tensor, RnnLayerInputs::kCount> results;
    for (size_t i = 0, next = 0; i < inputs.size(); i++) {
      if (needed[i]) results[i] = found[next++];
    }
    return results;
  }
};

bool Network::is_simple() const {
  const size_t total = layers * directions();
  if (input.dim() != 3 || input.numel() == 0 || !at::isFloatingType(input.scalar_type()) || hx.dim() != 3 ||
      parameters.size() != total * parameter_count() || at::autocast::is_autocast_enabled(at::kPrivateUse1)) {
    return false;
  }
  const auto is_plain = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == input.scalar_type() && tensor.device() == input.device() &&
        tensor.layout() == at::kStrided && !tensor.is_neg() && !at::isTensorSubclassLike(tensor) &&
        !tensor._fw_grad(/*level=*/0).defined();
  };
  if (!is_plain(input) || !is_plain(hx) || (cx.defined() && !is_plain(cx)) ||
      !std::all_of(parameters.begin(), parameters.end(), is_plain)) {
    return false;
  }
  const int64_t batch = input.size(batch_first ? 0 : 1), hidden = hx.size(2), width = gates_of(cell) * hidden;
  const std::array<int64_t, 3> state{static_cast<int64_t>(total), batch, hidden};
  if (hidden == 0 || hx.sizes() != at::IntArrayRef(state) || (cx.defined() && cx.sizes() != hx.sizes())) return false;
  for (size_t i = 0; i < parameters.size(); i++) {
    const size_t kind = i % parameter_count(), layer = i / parameter_count() / directions();
    const int64_t features = kind == 1 ? hidden : layer == 0 ? input.size(2) : directions() * hidden;
    const std::array<int64_t, 2> size{width, features};
    if (parameters[i].sizes() != at::IntArrayRef(size.data(), kind < 2 ? 2 : 1)) return false;
  }
  return true;
}

// Output, last state, and the last cell state of an LSTM, of the layer and direction with that index.
variable_list Network::run_layer(
    const at::Tensor& steps, int64_t index, at::TensorList weights, bool has_backward) const {
  const bool reverse = index % directions() == 1;
  const at::Tensor absent, layer_hx = hx.select(0, index), layer_cx = cx.defined() ? cx.select(0, index) : absent,
                           &input_bias = has_biases ? weights[2] : absent,
                           &hidden_bias = has_biases ? weights[3] : absent;
  const RnnLayer layer{cell, reverse, {steps, layer_hx, layer_cx, weights[0], weights[1], input_bias, hidden_bias}};
  if (!has_backward && is_lstm_layer_on_host(layer, has_backward)) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [output, hy, cy, workspace] = lstm_layer_on_host(layer, has_backward);
    return {std::move(output), std::move(hy), std::move(cy)};
  }
  // Autograd takes no undefined tensor for an absent one.
  const auto present = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return RnnLayerFunction::apply(
      static_cast<int64_t>(cell), reverse, has_backward, steps, layer_hx, present(layer_cx), weights[0], weights[1],
      present(input_bias), present(hidden_bias));
}

States Network::run() const {
  if (!is_simple()) return composed();
  const bool has_backward = torch::autograd::compute_requires_grad(input, hx, cx, parameters);
  at::Tensor steps = batch_first ? input.transpose(0, 1) : input;
  std::vector<at::Tensor> hy, cy;
  for (int64_t layer = 0; layer < layers; layer++) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions(); direction++) {
      const int64_t index = layer * directions() + direction;
      const at::TensorList weights = parameters.slice(index * parameter_count(), parameter_count());
      const variable_list results = run_layer(steps, index, weights, has_backward);
      outputs.push_back(results[0]);
      hy.push_back(results[1]);
      if (cx.defined()) cy.push_back(results[2]);
    }
    steps = bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (dropout > 0 && train && layer + 1 < layers) {
      steps = at::dropout(steps, dropout, /*train=*/true);
    }
  }
  // A layer's node keeps its output. The caller gets a copy, which it may change in place; copying is cheap
  // compared with the steps.
  if (has_backward && !bidirectional) steps = steps.clone();
  return {batch_first ? steps.transpose(0, 1) : steps, at::stack(hy), cx.defined() ? at::stack(cy) : at::Tensor()};
}

Tensors3 lstm(
    const at::Tensor& input,
    at::TensorList hx,
    at::TensorList parameters,
    bool has_biases,
    int64_t layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Network network{Cell::Lstm, input,   hx[0], hx[1],         parameters, has_biases,
                        layers,     dropout, train, bidirectional, batch_first};
  auto [output, hy, cy] = network.run();
  return {std::move(output), std::move(hy), std::move(cy)};
}

template <Cell kCell>
Tensors2 plain(
    const at::Tensor& input,
    const at::Tensor& hx,
    at::TensorList parameters,
    bool has_biases,
    int64_t layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  const Network network{kCell, input,         hx,         {}, parameters, has_biases, layers, dropout,
                        train, bidirectional, batch_first};
  auto [output, hy, cy] = network.run();
  return {std::move(output), std::move(hy)};
}

void register_all(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", TORCH_FN(plain<Cell::Gru>));
  m.impl("rnn_tanh.input", TORCH_FN(plain<Cell::Tanh>));
  m.impl("rnn_relu.input", TORCH_FN(plain<Cell::Relu>));
}

TORCH_OPENCL_COMPOSITES(register_all);

} // namespace
} // namespace torch_opencl::native
