#include "dispatch/fallback.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/resize_as_sparse.h>
#include <torch/library.h>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "cpu/host_memory.h"
#include "cpu/host_view.h"
#include "dispatch/fallback_arguments.h"
#include "dispatch/fallback_widening.h"
#include "runtime/device_check.h"
#include "runtime/error.h"
#include "torch_opencl/rust/bridge/graph.rs.h"

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

// Counts the call, and warns on the first one. Raises if the user forbids fallbacks or the CPU has no kernel either.
void note(const c10::OperatorHandle& op, const std::string& name, bool on_cpu) {
  const char* lack = op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)
      ? "' has no OpenCL kernel for these dtypes"
      : "' has no OpenCL kernel";
  TORCH_CHECK_NOT_IMPLEMENTED(on_cpu, "The operator '", name, lack, ", and no CPU kernel either.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy() != Policy::Error, "The operator '", name, lack, ", and TORCH_OPENCL_FALLBACK=error forbids running it ",
      "on the CPU.");
  bool first;
  {
    const std::lock_guard<std::mutex> lock(counters().mutex);
    counters().calls[name]++;
    first = counters().warned.insert(name).second;
  }
  if (first && policy() == Policy::Warn) {
    TORCH_WARN(
        "The operator '", name, lack, " and runs on the CPU. This is correct but may be slow; ",
        "torch.opencl.fallbacks() counts such calls, TORCH_OPENCL_FALLBACK=silent|error changes this warning.");
  }
}

// Views share memory with their argument. The CPU could only return a copy, and writes to the copy would be lost.
void refuse_views(const c10::OperatorHandle& op, const std::string& name) {
  for (const c10::Argument& argument : op.schema().arguments()) {
    const auto* alias = argument.alias_info();
    TORCH_CHECK_NOT_IMPLEMENTED(
        alias == nullptr || alias->isWrite(), "The operator '", name,
        "' returns a view of its argument, but has no OpenCL kernel. On the CPU the result would be a copy, and "
        "what is written to it would be lost. Call it on .cpu() where a copy is what you want.");
  }
}

// An operator that runs on the CPU may call others that also run there, to copy its results back. Deep nesting means an
// endless recursion, which must raise instead of ending the process.
class Nesting {
 public:
  explicit Nesting(const std::string& name) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        depth_ < kMaxDepth, "The operator '", name,
        "' has no OpenCL kernel for these dtypes, and its CPU implementation calls the operator again.");
    depth_++;
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() {
    depth_--;
  }

 private:
  static constexpr int kMaxDepth = 8;
  static thread_local int depth_;
};

thread_local int Nesting::depth_ = 0;

// --- one call

// The device of the arguments. The CPU would accept any mix. Other devices do not: they accept only scalars, indices
// and lengths on the host.
std::optional<c10::Device> common_device(const std::string& op, c10::ArrayRef<c10::IValue> arguments) {
  DeviceCheck devices(op);
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const bool is_index = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
      if (!tensor.is_privateuseone() && (tensor.dim() == 0 || is_index)) return;
      devices.add(tensor.device());
    });
    if (argument.isDevice()) return argument.toDevice();
  }
  return devices.device();
}

// A sparse argument, copied to the CPU.
struct SparseCopy {
  at::Tensor device, host;
  bool writable;

  void write_back() const {
    if (!writable) return;
    at::resize_as_sparse_(device, host);
    device.copy_(host);
  }
};

// A contiguous copy of a written tensor that is not contiguous, or is lazily negated. Several of ATen's CPU functions
// treat the memory of outputs as dense, or as laid out like other arguments: fused optimizers, avg_pool3d, tril. The
// CPU's solve_triangular ignores the negation.
struct DenseCopy {
  at::Tensor device, dense;

  void write_back() const {
    device.resize_(dense.sizes()).copy_(dense);
  }
};

// The arguments of one call on the host.
class Call {
 public:
  explicit Call(std::optional<c10::Device> device) : device_(device) {}

  at::Tensor to_host(const at::Tensor& tensor, bool writable) {
    if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
    if (tensor.layout() != at::kStrided) return copies_.emplace_back(tensor, tensor.to(at::kCPU), writable).host;
    if (!writable) return views_.emplace_back(tensor, /*writable=*/false).host();
    // ATen's function itself rejects overlapping elements.
    const bool is_plain = tensor.is_contiguous() && !tensor.is_neg();
    if (is_plain || at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
      return views_.emplace_back(tensor, /*writable=*/true).host();
    }
    const DenseCopy& copy = dense_copies_.emplace_back(DenseCopy{tensor, tensor.resolve_neg().contiguous()});
    return views_.emplace_back(copy.dense, /*writable=*/true).host();
  }

  void convert(c10::IValue& value, bool writable) {
    map_tensors(value, [&](const at::Tensor& tensor) { return to_host(tensor, writable); });
    if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    } else if (value.isGenerator() && device_.has_value()) {
      value = host_generator(value.toGenerator(), *device_);
    }
  }

  // The device tensor for a result: the argument itself if the op returns it, else a new tensor.
  at::Tensor to_device(const at::Tensor& result) const {
    if (!result.defined() || result.device().type() != c10::DeviceType::CPU) return result;
    for (const HostView& view : views_) {
      if (view.host().is_same(result)) return argument_of(view.device());
    }
    for (const SparseCopy& copy : copies_) {
      if (copy.host.is_same(result)) return copy.device;
    }
    TORCH_INTERNAL_ASSERT(device_.has_value());
    if (std::optional<at::Tensor> taken = take_device_memory(result)) return *taken;
    // A plain copy would resolve the lazy conjugation.
    return result.is_conj() ? result.conj().to(*device_).conj() : result.to(*device_);
  }

  void convert_back(c10::IValue& value) const {
    if (!device_.has_value()) return;
    map_tensors(value, [&](const at::Tensor& tensor) { return to_device(tensor); });
  }

  std::optional<c10::Device> device() const {
    return device_;
  }

  // Writes changes back to the arguments, and closes their views.
  void write_back() {
    for (HostView& view : views_) view.write_back();
    for (const SparseCopy& copy : copies_) copy.write_back();
    views_.clear();
    for (const DenseCopy& copy : dense_copies_) copy.write_back();
  }

 private:
  // The argument that was viewed, directly or through a dense copy.
  const at::Tensor& argument_of(const at::Tensor& viewed) const {
    for (const DenseCopy& copy : dense_copies_) {
      if (copy.dense.is_same(viewed)) return copy.device;
    }
    return viewed;
  }

  std::deque<HostView> views_;
  std::deque<SparseCopy> copies_;
  std::deque<DenseCopy> dense_copies_;
  std::optional<c10::Device> device_; // of the results
};

// Runs _copy_from for dtypes without a kernel.
void copy_on_host(torch::jit::Stack* stack, size_t begin) {
  const at::Tensor source = (*stack)[begin].toTensor(), target = (*stack)[begin + 1].toTensor();
  const auto view = [](const at::Tensor& tensor, std::optional<HostView>& opened, bool writable) {
    if (tensor.device().type() != c10::DeviceType::PrivateUse1) return tensor;
    return opened.emplace(tensor, writable).host();
  };
  std::optional<HostView> from, to;
  view(target, to, true).copy_(view(source, from, false));
  if (to.has_value()) to->write_back();
  torch::jit::drop(*stack, stack->size() - begin);
  stack->emplace_back(target);
}

// The dispatch key of the CPU kernel for the layouts of a call's arguments.
c10::DispatchKey host_key(c10::ArrayRef<c10::IValue> arguments) {
  c10::DispatchKey key = c10::DispatchKey::CPU;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (at::sparse_csr::is_sparse_compressed(tensor)) {
        key = c10::DispatchKey::SparseCsrCPU;
      } else if (tensor.is_sparse() && key == c10::DispatchKey::CPU) {
        key = c10::DispatchKey::SparseCPU;
      }
    });
  }
  return key;
}

// Runs an operator whose arguments are all on the host. If the CPU, unlike CUDA, has no kernel for 16-bit floats, it
// computes in 32 bits.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const size_t begin = stack->size() - arguments.size();
  const c10::DispatchKeySet host(host_key(arguments));
  Widening widening(arguments);
  if (!widening.applies()) return op.redispatchBoxed(host, stack);
  try {
    op.redispatchBoxed(host, stack);
  } catch (const c10::NotImplementedError& refusal) {
    stack->resize(begin);
    for (c10::IValue& argument : widening.arguments()) stack->push_back(std::move(argument));
    try {
      op.redispatchBoxed(host, stack);
    } catch (const c10::NotImplementedError&) {
      throw refusal; // this error names the dtype of the caller's arguments
    }
    widening.narrow(op.schema(), *stack);
  }
}

// Replaces an op that only other devices use by the CPU's op.
c10::OperatorHandle host_operator(const c10::OperatorHandle& op, const std::string& name) {
  if (name != "aten::convolution_overrideable") return op;
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
}

// Runs an operator's CPU kernel on host views of the arguments. `agree` is called after the checks of the device, and
// may raise.
template <class Agree>
void call_host(const c10::OperatorHandle& op, const std::string& name, torch::jit::Stack* stack, Agree&& agree) {
  const auto& schema = op.schema();
  const size_t arguments = schema.arguments().size(), returns = schema.returns().size();
  const size_t begin = stack->size() - arguments;
  const Nesting nesting(name);
  const auto device = common_device(name, torch::jit::last(*stack, arguments));
  if (device.has_value() && device->is_privateuseone() && device->has_index()) {
    checked([&] { bridge::refuse_host_in_capture(device->index(), rust::Str(name)); });
  }
  const c10::OperatorHandle served = host_operator(op, name);
  Call call(device);
  agree(served);
  for (size_t i = 0; i < arguments; i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    call.convert((*stack)[begin + i], alias != nullptr && alias->isWrite());
  }
  check_host_arguments(name, torch::jit::last(*stack, arguments));
  {
    const MakesDeviceMemory scope(call.device());
    run_on_host(served, stack);
  }
  for (size_t i = stack->size() - returns; i < stack->size(); i++) call.convert_back((*stack)[i]);
  call.write_back();
}

} // namespace

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = qualified_name(op);
  refuse_views(op, name);
  if (name == "aten::_copy_from") {
    note(op, name, /*on_cpu=*/true);
    return copy_on_host(stack, stack->size() - op.schema().arguments().size());
  }
  call_host(op, name, stack, [&](const c10::OperatorHandle& served) {
    const c10::DispatchKey key = host_key(torch::jit::last(*stack, op.schema().arguments().size()));
    note(op, name, served.hasComputedKernelForDispatchKey(key));
  });
}

void host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  call_host(op, qualified_name(op), stack, [](const c10::OperatorHandle&) {});
}

void check_fallback_policy() {
  policy();
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
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}

} // namespace torch_opencl
