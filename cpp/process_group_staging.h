// Device tensors as an engine of torch.distributed that knows only the CPU reads and writes them.
#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "host_view.h"

namespace torch_opencl::distributed {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

enum class Access { Read, Write };

// The tensors of one collective: mapped where host and device share memory, else copied.
class Staging {
 public:
  Staging() = default;
  Staging(Staging&&) = default;
  Staging& operator=(Staging&&) = default;

  // The tensor on the CPU, behind all work of the current stream, which is waited for. For reductions.
  at::Tensor values(const at::Tensor& tensor, Access access);
  Tensors values(const Tensors& tensors, Access access);
  // The same for what is only moved: as bytes, where engines do not know the dtype. Dimension 0 stays. A tensor that is
  // not contiguous is moved through a copy.
  at::Tensor moved(const at::Tensor& tensor, Access access);
  Tensors moved(const Tensors& tensors, Access access);
  TensorLists moved(const TensorLists& lists, Access access);

  // Copies of sparse tensors on the CPU. When the engine has written them, the tensors become equal to their copies.
  Tensors copied(const Tensors& tensors);

  // Has a function called when what the engine has written is on the device.
  void then(std::function<void()> function) {
    after_.push_back(std::move(function));
  }
  // Keeps memory from being reused before the stream that finishes the collective has come to its end.
  void keep(const at::Tensor& tensor) {
    kept_.push_back(tensor);
  }

  // That of the tensors.
  c10::Device device() const;

  // Called once the engine is done: brings what it has written to the device, behind work of the current stream.
  void finish();
  // Gives the memory back. Nothing of the engine uses it any more.
  void close();

 private:
  std::optional<c10::Device> device_;
  std::vector<std::unique_ptr<HostView>> views_;
  std::vector<std::function<void()>> after_;
  Tensors kept_;
};

// Returns true if engines compute with elements of a dtype.
bool engines_know(at::ScalarType dtype);

} // namespace torch_opencl::distributed
