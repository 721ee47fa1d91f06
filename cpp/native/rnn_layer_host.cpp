#include "native/rnn_layer_host.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <optional>

#include "cpu/cpu_call.h"
#include "cpu/one_thread.h"
#include "runtime/error.h"
#include "torch_opencl/rust/bridge/graph.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"

namespace torch_opencl::native {
namespace {

// oneDNN's cell type for the LSTM.
constexpr int64_t kLstm = 2;

bool is_short_step(const RnnLayer& layer) {
  const int64_t multiplications = layer.inputs.hx.size(0) * layer.inputs.hidden_weight.numel();
  return cpu_policy::is_small(Cost::LstmStep, {.multiplications = multiplications});
}

// The arguments of oneDNN's functions. Short steps run on one thread, as several threads, which wait for each other at
// every step, take longer.
class Call {
 public:
  explicit Call(const RnnLayer& layer)
      : layer(layer), hx(layer.inputs.hx.contiguous()), cx(layer.inputs.cx.contiguous()) {
    if (is_short_step(layer)) one_thread_.emplace();
  }

  // Input and states have to be contiguous; ATen copies weights itself.
  const RnnLayer& layer;
  at::Tensor input = layer.inputs.input.contiguous(), hx, cx;
  bool has_biases = layer.inputs.input_bias.defined();
  // oneDNN needs a defined tensor for the bias even if `has_biases` is false.
  const at::Tensor& input_bias = has_biases ? layer.inputs.input_bias : layer.inputs.input_weight;
  const at::Tensor& hidden_bias = has_biases ? layer.inputs.hidden_bias : layer.inputs.hidden_weight;

 private:
  std::optional<OneThread> one_thread_;
};

} // namespace

bool is_lstm_layer_on_host(const RnnLayer& layer, bool has_backward) {
  const at::Tensor& input = layer.inputs.input;
  if (layer.cell != Cell::Lstm || input.scalar_type() != at::kFloat ||
      !cpu_policy::runs_on_cpu(CpuCalls::Always, input)) {
    return false;
  }
  if (has_backward && (!is_short_step(layer) || checked([] { return bridge::small_calls(); }) != "host")) return false;
  // Not while a graph is captured, which cannot hold host calls, nor in set_sync_debug_mode: the call waits.
  const bool may_wait =
      checked([&] { return bridge::sync_debug_mode() == 0 && !bridge::is_capturing(input.get_device()); });
  return may_wait && at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
}

HostLstmLayer lstm_layer_on_host(const RnnLayer& layer, bool has_backward) {
  const Call call(layer);
  const RnnLayerInputs& inputs = layer.inputs;
  const at::AutoGradMode makes_workspace(has_backward);
  auto [output, hy, cy, workspace] = call_on_host<at::_ops::mkldnn_rnn_layer>(
      call.input, inputs.input_weight, inputs.hidden_weight, call.input_bias, call.hidden_bias, call.hx, call.cx,
      layer.reverse, at::IntArrayRef(), kLstm, call.hx.size(1), /*num_layers=*/1, call.has_biases,
      /*bidirectional=*/false, /*batch_first=*/false, has_backward);
  return {std::move(output), std::move(hy), std::move(cy), std::move(workspace)};
}

std::array<at::Tensor, RnnLayerInputs::kCount> lstm_layer_backward_on_host(
    const RnnLayer& layer,
    const HostLstmLayer& results,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy) {
  const Call call(layer);
  const RnnLayerInputs& inputs = layer.inputs;
  const auto present = [](const at::Tensor& gradient) {
    return gradient.defined() ? std::optional<at::Tensor>(gradient.contiguous()) : std::nullopt;
  };
  auto [of_input, of_input_weight, of_hidden_weight, of_input_bias, of_hidden_bias, of_hx, of_cx] =
      call_on_host<at::_ops::mkldnn_rnn_layer_backward>(
          call.input, inputs.input_weight, inputs.hidden_weight, call.input_bias, call.hidden_bias, call.hx, call.cx,
          results.output, results.hy, results.cy, present(grad_output), present(grad_hy), present(grad_cy),
          layer.reverse, kLstm, call.hx.size(1), /*num_layers=*/1, call.has_biases, /*train=*/true,
          /*bidirectional=*/false, at::IntArrayRef(), /*batch_first=*/false, results.workspace);
  if (!call.has_biases) return {of_input, of_hx, of_cx, of_input_weight, of_hidden_weight};
  return {of_input, of_hx, of_cx, of_input_weight, of_hidden_weight, of_input_bias, of_hidden_bias};
}

} // namespace torch_opencl::native
