#include "rnn_layer_host.h"

#include <ATen/Context.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>

#include "../error.h"
#include "../host_on_cpu.h"
#include "contiguous.h"
#include "torch_opencl/rust/bridge/graph.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"

namespace torch_opencl::native {
namespace {

// oneDNN's number of the LSTM among its cells.
constexpr int64_t kLstm = 2;

// The arguments of ATen's functions that say what the layer is. Input and states are contiguous, which these take for
// granted; weights they copy themselves.
struct HostLayer {
  explicit HostLayer(const RnnLayer& layer)
      : input(layer.inputs.input.contiguous()),
        hx(layer.inputs.hx.contiguous()),
        cx(layer.inputs.cx.contiguous()),
        has_biases(layer.inputs.input_bias.defined()),
        // A bias that `has_biases` rules out is a tensor all the same.
        input_bias(has_biases ? layer.inputs.input_bias : layer.inputs.input_weight),
        hidden_bias(has_biases ? layer.inputs.hidden_bias : layer.inputs.hidden_weight) {}

  at::Tensor input, hx, cx;
  bool has_biases;
  at::Tensor input_bias, hidden_bias;
};

} // namespace

bool may_wait_for_host(const at::Tensor& tensor) {
  return checked([&] { return bridge::sync_debug_mode() == 0 && !bridge::is_capturing(tensor.get_device()); });
}

bool is_rnn_layer_on_host(const RnnLayer& layer) {
  const at::Tensor& input = layer.inputs.input;
  return layer.cell == Cell::Lstm && input.scalar_type() == at::kFloat && is_host_cpu(input) && at::hasMKLDNN() &&
      at::globalContext().userEnabledMkldnn() && may_wait_for_host(input);
}

RnnLayerTrace rnn_layer_on_host(const RnnLayer& layer, bool has_backward) {
  const HostLayer host(layer);
  const at::AutoGradMode makes_workspace(has_backward);
  auto [output, hy, cy, workspace] = call_on_host<at::_ops::mkldnn_rnn_layer>(
      host.input, layer.inputs.input_weight, layer.inputs.hidden_weight, host.input_bias, host.hidden_bias, host.hx,
      host.cx, layer.reverse, at::IntArrayRef(), kLstm, host.hx.size(1), /*num_layers=*/1, host.has_biases,
      /*bidirectional=*/false, /*batch_first=*/false, /*train=*/has_backward);
  return {std::move(output), {}, std::move(workspace), std::move(cy)};
}

std::array<at::Tensor, RnnLayerInputs::kCount> rnn_layer_backward_on_host(
    const RnnLayer& layer,
    const RnnLayerTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, RnnLayerInputs::kCount>& needed) {
  const HostLayer host(layer);
  const auto given = [](const at::Tensor& gradient) {
    return gradient.defined() ? std::optional<at::Tensor>(gradient.contiguous()) : std::nullopt;
  };
  const at::Tensor hy = trace.output.select(0, layer.step_index(host.input.size(0) - 1));
  auto [grad_input, grad_input_weight, grad_hidden_weight, grad_input_bias, grad_hidden_bias, grad_hx, grad_cx] =
      call_on_host<at::_ops::mkldnn_rnn_layer_backward>(
          host.input, layer.inputs.input_weight, layer.inputs.hidden_weight, host.input_bias, host.hidden_bias, host.hx,
          host.cx, trace.output, hy, trace.cy, given(grad_output), given(grad_hy), given(grad_cy), layer.reverse, kLstm,
          host.hx.size(1), /*num_layers=*/1, host.has_biases, /*train=*/true, /*bidirectional=*/false,
          at::IntArrayRef(), /*batch_first=*/false, trace.saved_gates);
  std::array<at::Tensor, RnnLayerInputs::kCount> results{
      grad_input, grad_hx, grad_cx, grad_input_weight, grad_hidden_weight, grad_input_bias, grad_hidden_bias};
  for (size_t i = 0; i < results.size(); i++) {
    if (!needed[i]) results[i].reset();
  }
  return results;
}

} // namespace torch_opencl::native
