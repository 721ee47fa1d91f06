// LSTM layers on a device that is the CPU: by oneDNN, as ATen's own backend has them.
//
// A step is a small matmul and a cell, which cost more to enqueue than to compute there.
#pragma once

#include "rnn_layer.h"

namespace torch_opencl::native {

// Returns true if the host may compute something now: a graph that is captured would not hold it, and who looks for
// operations that wait is not to find this one.
bool may_wait_for_host(const at::Tensor& tensor);

// Returns true if the functions below take the layer.
bool is_rnn_layer_on_host(const RnnLayer& layer);

// `saved_gates` is oneDNN's workspace, undefined without a backward pass to come, and `cells` stays undefined.
RnnLayerTrace rnn_layer_on_host(const RnnLayer& layer, bool has_backward);

// As `rnn_layer_backward`.
std::array<at::Tensor, RnnLayerInputs::kCount> rnn_layer_backward_on_host(
    const RnnLayer& layer,
    const RnnLayerTrace& trace,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy,
    const std::array<bool, RnnLayerInputs::kCount>& needed);

} // namespace torch_opencl::native
