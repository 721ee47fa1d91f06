// Steps of LSTM and GRU cells; PyTorch's recurrent layers call these for devices other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

#include "native/norm.h"
#include "torch_opencl/rust/ops/rnn/mod.rs.h"

namespace torch_opencl::native {

using bridge::Cell;

// Number of gates of a cell.
constexpr int64_t gates_of(Cell cell) {
  switch (cell) {
    case Cell::Lstm:
      return 4;
    case Cell::Gru:
      return 3;
    default:
      return 1;
  }
}

// Number of values that a GRU saves for the backward pass for each element of the state.
constexpr int64_t kGruSaved = 5;

using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

} // namespace torch_opencl::native
