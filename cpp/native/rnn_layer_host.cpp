#include "rnn_layer_host.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <optional>

#include "../error.h"
#include "../host_on_cpu.h"
#include "../one_thread.h"
#include "torch_opencl/rust/bridge/graph.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"

namespace torch_opencl::native {
namespace {

// Multiplications of a step's matmul with the state that one thread computes sooner than several (some 50 us).
constexpr int64_t kMaxMultiplications = int64_t{1} << 20;

} // namespace

bool is_lstm_layer_on_host(const RnnLayer& layer) {
  const at::Tensor& input = layer.inputs.input;
  if (layer.cell != Cell::Lstm || input.scalar_type() != at::kFloat || !is_host_cpu(input)) return false;
  // A graph that is captured would not hold it, and who looks for operations that wait is not to find this one.
  const bool may_wait =
      checked([&] { return bridge::sync_debug_mode() == 0 && !bridge::is_capturing(input.get_device()); });
  return may_wait && at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_layer_on_host(const RnnLayer& layer) {
  // oneDNN's number of the LSTM among its cells.
  constexpr int64_t kLstm = 2;
  const RnnLayerInputs& inputs = layer.inputs;
  const bool has_biases = inputs.input_bias.defined();
  // A bias that `has_biases` rules out is a tensor all the same.
  const at::Tensor &input_bias = has_biases ? inputs.input_bias : inputs.input_weight,
                   &hidden_bias = has_biases ? inputs.hidden_bias : inputs.hidden_weight;
  const at::AutoGradMode no_workspace(false);
  // Threads that wait for each other at every step take longer than a short step does.
  std::optional<OneThread> one_thread;
  if (inputs.hx.size(0) * inputs.hidden_weight.numel() <= kMaxMultiplications) one_thread.emplace();
  // Input and states have to be contiguous; ATen copies weights itself.
  auto [output, hy, cy, workspace] = call_on_host<at::_ops::mkldnn_rnn_layer>(
      inputs.input.contiguous(), inputs.input_weight, inputs.hidden_weight, input_bias, hidden_bias,
      inputs.hx.contiguous(), inputs.cx.contiguous(), layer.reverse, at::IntArrayRef(), kLstm, inputs.hx.size(1),
      /*num_layers=*/1, has_biases, /*bidirectional=*/false, /*batch_first=*/false, /*train=*/false);
  return {std::move(output), std::move(hy), std::move(cy)};
}

} // namespace torch_opencl::native
