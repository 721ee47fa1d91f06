// LSTM layers on a device that is the CPU: by oneDNN, as ATen's own backend has them, where no backward pass follows.
//
// Then a step is a small matmul and a cell, which cost more to enqueue than to compute: a layer of 100 steps takes a
// third to a tenth of the time (batch of 1 or 8, state of 128, PoCL, 2 cores). Training stays with kernels: oneDNN
// keeps 2.5 times as much for the backward pass.
#pragma once

#include <tuple>

#include "rnn_layer.h"

namespace torch_opencl::native {

// Returns true if the host may compute the layer now.
bool is_lstm_layer_on_host(const RnnLayer& layer);

// Output, last state and last cell state.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_layer_on_host(const RnnLayer& layer);

} // namespace torch_opencl::native
