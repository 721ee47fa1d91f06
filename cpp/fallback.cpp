#include "fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <deque>
#include <mutex>
#include <optional>
#include <torch/library.h>
#include <unordered_set>

#include "error.h"

namespace torch_opencl {
namespace {

// --- policy and counters

enum class Policy { Warn, Silent, Error };

Policy policy() {
  static const Policy chosen = [] {
    const char* value = std::getenv("TORCH_OPENCL_FALLBACK");
    const std::string text = value == nullptr ? "warn" : value;
    if (text == "error") return Policy::Error;
    if (text == "silent") return Policy::Silent;
    TORCH_CHECK(text == "warn", "TORCH_OPENCL_FALLBACK=", text, ": expected warn, silent or error");
    return Policy::Warn;
  }();
  return chosen;
}

struct Counters {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
  std::unordered_set<std::string> warned;
};

Counters& counters() {
  static auto* const instance = new Counters; // never destroyed: ops may run while statics are torn down
  return *instance;
}

std::string qualified_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void note(const std::string& name) {
  bool first;
  {
    const std::lock_guard<std::mutex> lock(counters().mutex);
    counters().calls[name]++;
    first = counters().warned.insert(name).second;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy() != Policy::Error, "The operator '", name, "' has no OpenCL kernel for these dtypes, and ",
      "TORCH_OPENCL_FALLBACK=error forbids running it on the CPU.");
  if (first && policy() == Policy::Warn) {
    TORCH_WARN(
        "The operator '", name, "' has no OpenCL kernel for these dtypes and runs on the CPU. This is correct but may be ",
        "slow; torch.opencl.fallbacks() counts such calls, TORCH_OPENCL_FALLBACK=silent|error changes this warning.");
  }
}

// --- host views of device tensors

// A device tensor as the CPU sees it: its own memory, mapped, where host and device share one; else a copy.
class HostView {
 public:
  HostView(const at::Tensor& device, bool writable) : device_(device), writable_(writable) {
    if (device.numel() > 0 && checked([&] { return bridge::is_host_unified(device.device().index()); })) {
      host_ = map();
    } else {
      host_ = at::detail::empty_strided_cpu(device.sizes(), device.strides(), device.scalar_type());
      host_.copy_(device);
    }
    data_ = host_.const_data_ptr();
    sizes_ = host_.sizes().vec();
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  // An op that raised must not leave memory mapped.
  ~HostView() {
    try {
      unmap();
    } catch (const rust::Error& error) {
      TORCH_WARN("OpenCL: unmapping device memory failed: ", message_of(error));
    }
  }

  const at::Tensor& host() const {
    return host_;
  }
  const at::Tensor& device() const {
    return device_;
  }

  // Brings what the op wrote to the device.
  void write_back() {
    if (!writable_) return;
    const bool resized = host_.sizes() != at::IntArrayRef(sizes_) || host_.const_data_ptr() != data_;
    if (!resized && mapping_.has_value()) return;
    const at::Tensor written = resized ? host_.clone() : host_;
    if (resized) {
      // Some drivers write mapped memory back when it is unmapped, which must not hit the memory's next owner.
      checked([&] { unmap(); });
      device_.resize_(written.sizes());
    }
    device_.copy_(written);
  }

 private:
  at::Tensor map() {
    const size_t bytes =
        at::detail::computeStorageNbytes(device_.sizes(), device_.strides(), device_.element_size(), 0);
    const auto address = reinterpret_cast<size_t>(device_.const_data_ptr());
    mapping_.emplace(checked([&] { return bridge::map(address, bytes, writable_); }));
    auto* pointer = reinterpret_cast<void*>((*mapping_)->pointer());
    // Resizable, so that an out= argument can grow: the CPU then allocates, and write_back copies.
    at::Storage storage(
        at::Storage::use_byte_size_t(), bytes, at::DataPtr(pointer, at::kCPU), c10::GetCPUAllocator(),
        /*resizable=*/true);
    auto tensor = at::detail::make_tensor<at::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), device_.dtype());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(device_.sizes(), device_.strides());
    return tensor;
  }

  void unmap() {
    if (!mapping_.has_value()) return;
    rust::Box<bridge::Mapping> mapping = std::move(*mapping_);
    mapping_.reset();
    bridge::unmap(std::move(mapping));
  }

  at::Tensor device_;
  bool writable_;
  std::optional<rust::Box<bridge::Mapping>> mapping_;
  at::Tensor host_;
  const void* data_ = nullptr;
  std::vector<int64_t> sizes_;
};

// The views of one call's arguments.
class Call {
 public:
  at::Tensor to_host(const at::Tensor& tensor, bool writable) {
    if (!tensor.defined() || tensor.device().type() != c10::DeviceType::PrivateUse1) return tensor;
    device_ = tensor.device();
    return views_.emplace_back(tensor, writable).host();
  }

  void convert(c10::IValue& value, bool writable) {
    if (value.isTensor()) {
      value = to_host(value.toTensor(), writable);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_host(tensor, writable));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(to_host(*tensor, writable)) : std::nullopt);
      }
      value = std::move(list);
    } else if (value.isDevice()) {
      device_ = value.toDevice();
      value = c10::Device(at::kCPU);
    }
  }

  // The device tensor behind a result: the argument itself if the op returns it, else a new one.
  at::Tensor to_device(const at::Tensor& result) const {
    if (!result.defined() || result.device().type() != c10::DeviceType::CPU) return result;
    for (const HostView& view : views_) {
      if (view.host().is_same(result)) return view.device();
    }
    TORCH_INTERNAL_ASSERT(device_.has_value());
    return result.to(*device_);
  }

  void convert_back(c10::IValue& value) const {
    if (!device_.has_value()) return;
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to_device(tensor));
      value = std::move(list);
    }
  }

  void write_back() {
    for (HostView& view : views_) view.write_back();
  }

 private:
  std::deque<HostView> views_;
  std::optional<c10::Device> device_;
};

} // namespace

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note(qualified_name(op));
  const auto& schema = op.schema();
  const size_t arguments = schema.arguments().size(), returns = schema.returns().size();
  const size_t begin = stack->size() - arguments;

  Call call;
  for (size_t i = 0; i < arguments; i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    call.convert((*stack)[begin + i], alias != nullptr && alias->isWrite());
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.write_back();
  for (size_t i = stack->size() - returns; i < stack->size(); i++) call.convert_back((*stack)[i]);
}

std::map<std::string, int64_t> fallback_counts() {
  const std::lock_guard<std::mutex> lock(counters().mutex);
  return counters().calls;
}

void reset_fallback_counts() {
  const std::lock_guard<std::mutex> lock(counters().mutex);
  counters().calls.clear();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}

} // namespace torch_opencl
