// LSTM layers on CPU devices: by oneDNN, as in ATen's CPU backend, if no backward pass follows or steps are short.
//
// A short step is a small matmul and a cell, which cost more to enqueue than to compute: on the host a layer of 100
// steps takes a tenth to a third of the kernels' time (batch 1 or 8, hidden_size 128, PoCL, 2 cores). Training with
// longer steps stays with kernels: oneDNN keeps 2.5 times as many bytes for the backward pass.
#pragma once

#include <array>

#include "native/rnn_layer.h"

namespace torch_opencl::native {

// Returns true if the host may compute the layer now.
bool is_lstm_layer_on_host(const RnnLayer& layer, bool has_backward);

struct HostLstmLayer {
  at::Tensor output, hy, cy;
  at::Tensor workspace; // bytes, for the backward pass
};

HostLstmLayer lstm_layer_on_host(const RnnLayer& layer, bool has_backward);

// Gradients of all inputs, from the gradients of the results. Each gradient may be undefined.
std::array<at::Tensor, RnnLayerInputs::kCount> lstm_layer_backward_on_host(
    const RnnLayer& layer,
    const HostLstmLayer& results,
    const at::Tensor& grad_output,
    const at::Tensor& grad_hy,
    const at::Tensor& grad_cy);

} // namespace torch_opencl::native
