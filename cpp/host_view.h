// Device tensors as the CPU sees them, for ops that run there.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

#include "bridge.h"

namespace torch_opencl {

// A device tensor on the CPU: its own memory, mapped, where host and device share one; else a copy. Of any dtype.
class HostView {
 public:
  HostView(const at::Tensor& device, bool writable);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  // An op that raised must not leave memory mapped.
  ~HostView();

  const at::Tensor& host() const {
    return host_;
  }
  const at::Tensor& device() const {
    return device_;
  }

  // Writes the op's changes back to the device: elements, and shape, strides and lazy bits where it gave the tensor
  // others.
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
