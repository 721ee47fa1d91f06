// Steps of LSTM and GRU cells; PyTorch's recurrent layers call these for devices other than the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

#include "norm.h"

namespace torch_opencl::native {

enum class Cell : int64_t { Lstm, Gru, Tanh, Relu };

// How many gates a cell has.
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

// How many numbers a state's element of a GRU leaves for the backward pass.
constexpr int64_t kGruSaved = 5;

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

} // namespace torch_opencl::native
