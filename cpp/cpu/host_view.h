// Device tensors as the CPU sees them, for ops that run there.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

#include "runtime/bridge.h"

namespace torch_opencl {

// A device tensor on the CPU, of any dtype: its own memory, mapped, if host and device share memory, else a copy.
class HostView {
 public:
  HostView(const at::Tensor& device, bool writable);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  // Unmaps the memory, also after an op that raised.
  ~HostView();

  const at::Tensor& host() const {
    return host_;
  }
  const at::Tensor& device() const {
    return device_;
  }

  // Writes the op's changes back to the device: elements, and shape, strides, conj and neg bits if the op changed them.
  void write_back();

 private:
  void copy_replaced();
  size_t address() const;
  at::DataPtr open();
  void unmap();

  at::Tensor device_;
  bool writable_;
  size_t bytes_;
  std::optional<rust::Box<bridge::Mapping>> mapping_;
  at::Tensor host_;
  const void* data_;
};

} // namespace torch_opencl
