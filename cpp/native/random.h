// Distributions of native_functions.yaml: one template fills the stub of each.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Generator.h>
#include <array>
#include <optional>

#include "distribution.h"

namespace torch_opencl::native {

// The arguments of a stub, except the tensor that it fills.
struct Draw {
  std::array<double, 2> parameters{};
  std::optional<at::Generator> generator; // none: the device's default one
  size_t count = 0;

  void take(double parameter) {
    parameters[count++] = parameter;
  }
  void take(const std::optional<at::Generator>& given) {
    generator = given;
  }
};

void sample(const at::TensorBase& self, Distribution distribution, const Draw& draw);
inline void sample(at::TensorIteratorBase& iter, Distribution distribution, const Draw& draw) {
  sample(iter.tensor(0), distribution, draw);
}

template <class FnPtr, Distribution kDistribution>
struct Sample;

template <class Self, class... Arguments, Distribution kDistribution>
struct Sample<void (*)(Self, Arguments...), kDistribution> {
  static void call(Self self, Arguments... arguments) {
    Draw draw;
    (draw.take(arguments), ...);
    sample(self, kDistribution, draw);
  }
};

} // namespace torch_opencl::native
