// Gives a CPU backend of torch.distributed access to device tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/host_view.h"

namespace torch_opencl::distributed {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

enum class Access { Read, Write };

// The tensors of one collective: mapped if host and device share memory, else copied.
class Staging {
 public:
  Staging() = default;
  Staging(Staging&&) = default;
  Staging& operator=(Staging&&) = default;

  // The tensor on the CPU, for reductions. Waits for all work of the current stream first.
  at::Tensor values(const at::Tensor& tensor, Access access);
  Tensors values(const Tensors& tensors, Access access);
  // The tensor on the CPU, for collectives that only move it: as bytes if CPU backends do not support the dtype.
  // Dimension 0 stays. A tensor that is not contiguous is moved through a copy.
  at::Tensor moved(const at::Tensor& tensor, Access access);
  Tensors moved(const Tensors& tensors, Access access);
  TensorLists moved(const TensorLists& lists, Access access);

  // Copies of sparse tensors on the CPU. When the CPU backend has written them, the tensors become equal to their
  // copies.
  Tensors copied(const Tensors& tensors);

  // Adds a function to call when the CPU backend's results are on the device.
  void then(std::function<void()> function) {
    after_.push_back(std::move(function));
  }
  // Prevents reuse of memory before the stream that finishes the collective has completed.
  void keep(const at::Tensor& tensor) {
    kept_.push_back(tensor);
  }

  // The device of the tensors.
  c10::Device device() const;

  // Called once the CPU backend is done: brings its results to the device, after work of the current stream.
  void finish();
  // Releases the memory. The CPU backend must no longer use it.
  void close();

 private:
  std::optional<c10::Device> device_;
  std::vector<std::unique_ptr<HostView>> views_;
  std::vector<std::function<void()>> after_;
  Tensors kept_;
};

// Returns true if CPU backends can compute in a dtype.
bool cpu_backends_support(at::ScalarType dtype);

} // namespace torch_opencl::distributed
