// torch.ops.torch_opencl: the Python package's interface to the runtime, in addition to PyTorch's generic interfaces.

#include <ATen/core/Generator.h>
#include <torch/library.h>
#include <utility>

#include "dispatch/fallback.h"
#include "distributed/process_group.h"
#include "native/fused.h"
#include "python_functions.h"
#include "runtime/allocator.h"
#include "runtime/autograd_threads.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/library.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/blas/mod.rs.h"
#include "torch_opencl/rust/bridge/builds.rs.h"
#include "torch_opencl/rust/bridge/bundle.rs.h"
#include "torch_opencl/rust/bridge/interop.rs.h"
#include "torch_opencl/rust/ops/core/struct_check.rs.h"
#include "torch_opencl/rust/ops/generated/mod.rs.h"

namespace torch_opencl {
namespace {

std::string to_string(const rust::String& text) {
  return {text.data(), text.size()};
}

// {"name": count, ...}; op names need no escaping.
std::string fallbacks() {
  std::string json = "{";
  for (const auto& [name, count] : fallback_counts()) {
    if (json.size() > 1) json += ", ";
    json += '"' + name + "\": " + std::to_string(count);
  }
  return json + "}";
}

std::vector<int64_t> memory_info(int64_t index) {
  const auto info = checked([&] { return bridge::memory_info(device_index(index)); });
  return {static_cast<int64_t>(info.free), static_cast<int64_t>(info.total)};
}

void check_environment() {
  check_fallback_policy();
  checked([] { bridge::check_environment(); });
}

at::Generator generator_of(int64_t index) {
  return default_generator(static_cast<c10::DeviceIndex>(device_index(index)));
}

void set_preferred_blas_library(const std::string& name) {
  checked([&] { bridge::set_preferred_blas_library(rust::Str(name)); });
}

void set_small_calls(const std::string& choice) {
  checked([&] { bridge::set_small_calls(rust::Str(choice)); });
}

void set_tuning(int64_t device, const std::string& values) {
  checked([&] { bridge::set_tuning(device_index(device), rust::Str(values)); });
}

void store_tuning(int64_t device, const std::string& text) {
  checked([&] { bridge::store_tuning(device_index(device), rust::Str(text)); });
}

std::vector<int64_t> build_kernels(int64_t device, const std::string& source, const std::vector<std::string>& names) {
  rust::Vec<rust::String> list;
  for (const std::string& name : names) list.push_back(name);
  const rust::Vec<int64_t> kernels =
      checked([&] { return bridge::build_kernels(device_index(device), rust::Str(source), std::move(list)); });
  return {kernels.begin(), kernels.end()};
}

int64_t build_user_kernel(int64_t device, const std::string& source, const std::string& name) {
  return checked([&] { return bridge::build_user_kernel(device_index(device), rust::Str(source), rust::Str(name)); });
}

// Writes the binary to a file and returns the names of the kernels.
std::string compile_binary(
    int64_t device,
    const std::string& name,
    const std::string& source,
    const std::string& options,
    const std::string& path) {
  return to_string(checked([&] {
    return bridge::compile_binary(
        device_index(device), rust::Str(name), rust::Str(source), rust::Str(options), rust::Str(path));
  }));
}

// The kernel takes the buffers of `written` first, then those of `read`, which it does not write.
void launch_user_kernel(
    int64_t kernel,
    at::TensorList written,
    at::TensorList read,
    at::IntArrayRef values,
    at::IntArrayRef global,
    at::IntArrayRef local) {
  std::vector<size_t> buffers;
  buffers.reserve(written.size() + read.size());
  for (const at::Tensor& tensor : written) {
    materialize(tensor);
    buffers.push_back(address_of(tensor));
  }
  for (const at::Tensor& tensor : read) buffers.push_back(address_of(tensor));
  checked([&] {
    bridge::launch_user_kernel(kernel, arg(global), arg(local), {buffers.data(), buffers.size()}, arg(values));
  });
  // Lets autograd detect that saved tensors have changed.
  for (const at::Tensor& tensor : written) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

// Returns the cl_mem and the offset in bytes.
std::vector<int64_t> native_buffer(const at::Tensor& tensor) {
  const auto buffer = checked([&] { return bridge::native_buffer(address_of(tensor)); });
  return {static_cast<int64_t>(buffer.memory), static_cast<int64_t>(buffer.offset)};
}

// Wraps an external cl_mem as a tensor of bytes.
at::Tensor adopt_buffer(int64_t device, int64_t memory) {
  const auto buffer = checked([&] { return bridge::adopt_buffer(device_index(device), static_cast<size_t>(memory)); });
  auto* data = reinterpret_cast<void*>(buffer.address);
  const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), buffer.size,
      c10::DataPtr(data, data, device_allocator()->raw_deleter(), where), device_allocator(), /*resizable=*/false);
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(buffer.size)});
  return bytes;
}

} // namespace

TORCH_LIBRARY(torch_opencl, m) {
  m.def("device_count() -> int", [] { return static_cast<int64_t>(bridge::device_count()); });
  m.def("device_error() -> str", [] { return to_string(bridge::device_error()); });
  m.def("device_properties(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::device_json(device_index(device)); }));
  });
  m.def("platforms() -> str", [] { return to_string(bridge::platforms_json()); });
  m.def("in_bad_fork() -> bool", [] { return bridge::in_bad_fork(); });
  m.def("is_initialized(int device) -> bool", [](int64_t device) {
    return bridge::is_initialized(device_index(device));
  });
  m.def("synchronize(int device) -> ()", [](int64_t device) {
    checked([&] { bridge::synchronize_device(device_index(device)); });
  });
  m.def("finish_device(int device) -> ()", [](int64_t device) {
    checked([&] { bridge::finish_device(device_index(device)); });
  });
  m.def("finish() -> ()", [] { checked([] { bridge::finish_all(); }); });
  m.def("finish_autograd(int device) -> ()", finish_autograd);
  m.def("empty_cache(int device) -> ()", [](int64_t device) {
    checked([&] { bridge::empty_cache(device_index(device)); });
  });
  m.def("memory_stats(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::memory_stats_json(device_index(device)); }));
  });
  m.def("memory_snapshot(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::memory_snapshot_json(static_cast<int32_t>(device)); }));
  });
  m.def("host_memory_stats() -> str", [] { return to_string(bridge::host_memory_stats_json()); });
  m.def("reset_peak_host_memory_stats() -> ()", [] { bridge::reset_peak_host_stats(); });
  m.def("reset_accumulated_host_memory_stats() -> ()", [] { bridge::reset_accumulated_host_stats(); });
  m.def("reset_peak_memory_stats(int device) -> ()", [](int64_t device) {
    checked([&] { bridge::reset_peak_stats(device_index(device)); });
  });
  m.def("reset_accumulated_memory_stats(int device) -> ()", [](int64_t device) {
    checked([&] { bridge::reset_accumulated_stats(device_index(device)); });
  });
  m.def("mem_get_info(int device) -> int[]", &memory_info);
  m.def("set_memory_fraction(float fraction, int device) -> ()", [](double fraction, int64_t device) {
    checked([&] { bridge::set_memory_fraction(device_index(device), fraction); });
  });
  m.def("memory_fraction(int device) -> float", [](int64_t device) {
    return checked([&] { return bridge::memory_fraction(device_index(device)); });
  });
  m.def("default_generator(int device) -> Generator?", &generator_of);
  m.def("check_environment() -> ()", &check_environment);
  m.def("fallbacks() -> str", &fallbacks);
  m.def("reset_fallbacks() -> ()", &reset_fallback_counts);
  m.def("kernel_cache_info() -> str", [] { return to_string(bridge::kernel_cache_json()); });
  m.def("wait_for_builds(float seconds) -> int", [](double seconds) { return bridge::wait_for_builds(seconds); });
  m.def("set_eager_builds(bool on) -> ()", [](bool on) { bridge::set_eager_builds(on); });
  m.def("show_progress(bool on) -> ()", [](bool on) { bridge::show_progress(on); });
  m.def("bundle_path() -> str", [] { return to_string(bridge::bundle_path()); });
  m.def("bundle_identity(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::bundle_identity(device_index(device)); }));
  });
  m.def("kernel_catalogue(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::kernel_catalogue(device_index(device)); }));
  });
  m.def("record_programs() -> ()", [] { bridge::record_programs(); });
  m.def("recorded_programs() -> str", [] { return to_string(bridge::recorded_programs()); });
  m.def("compile_binary(int device, str name, str source, str options, str path) -> str", &compile_binary);
  m.def("preferred_blas_library() -> str", [] {
    return to_string(checked([] { return bridge::preferred_blas_library(); }));
  });
  m.def("set_preferred_blas_library(str name) -> ()", &set_preferred_blas_library);
  m.def("small_calls() -> str", [] { return to_string(checked([] { return bridge::small_calls(); })); });
  m.def("set_small_calls(str choice) -> ()", &set_small_calls);
  m.def("blas_choices(int device) -> str", [](int64_t device) {
    return to_string(bridge::blas_choices_json(static_cast<int32_t>(device)));
  });
  m.def("tuning(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::tuning_json(device_index(device)); }));
  });
  m.def("set_tuning(int device, str values) -> ()", &set_tuning);
  m.def("read_tuning(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::read_tuning(device_index(device)); }));
  });
  m.def("store_tuning(int device, str text) -> ()", &store_tuning);
  m.def("struct_mismatches(int device) -> str", [](int64_t device) {
    return to_string(checked([&] { return bridge::struct_mismatches(device_index(device)); }));
  });
  m.def("run_signal_handlers() -> ()");
  m.def("watch_signals(bool on) -> ()", [](bool on) { bridge::watch_signals(on); });
  m.def("sync_debug_mode() -> int", [] { return static_cast<int64_t>(bridge::sync_debug_mode()); });
  m.def("set_sync_debug_mode(int mode) -> ()", [](int64_t mode) {
    checked([&] { bridge::set_sync_debug_mode(std::in_range<int32_t>(mode) ? static_cast<int32_t>(mode) : -1); });
  });
  m.def("build_kernels(int device, str source, str[] names) -> int[]", &build_kernels);
  m.def("release_kernels(int[] kernels) -> ()", [](const std::vector<int64_t>& kernels) {
    bridge::release_kernels({kernels.data(), kernels.size()});
  });
  m.def("new_tensor_function() -> int", &new_tensor_function);
  // The value of c10::ScalarType for a dtype.
  m.def("dtype_code(ScalarType dtype) -> int", [](at::ScalarType dtype) { return static_cast<int64_t>(dtype); });
  m.def("fused_source(str source, bool reports_faults) -> int", &native::fused_source);
  m.def(
      "fused_matmul(int text, Tensor a, Tensor b, Tensor? bias, Scalar beta, Scalar alpha, Tensor[] buffers, "
      "int[] scalars) -> ()",
      &native::fused_matmul);
  m.def(
      "fused_convolution(int text, Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
      "dilation, int groups, bool channels_last, Tensor[] buffers, int[] scalars) -> ()",
      &native::fused_convolution);
  m.def("convolution_is_gemm(int out_channels, int in_channels) -> bool", &native::convolution_is_gemm);
  m.def("launch_function() -> int", [] { return static_cast<int64_t>(bridge::launch_function()); });
  m.def(
      "fault_message(str text) -> int", [](const std::string& text) { return bridge::fault_message(rust::Str(text)); });
  m.def("build_user_kernel(int device, str source, str name) -> int", &build_user_kernel);
  m.def(
      "launch_user_kernel(int kernel, Tensor(a!)[] written, Tensor[] read, int[] values, int[] global_size, int[] "
      "local_size) -> ()",
      &launch_user_kernel);
  m.def("native_device(int device) -> int", [](int64_t device) {
    return static_cast<int64_t>(checked([&] { return bridge::native_device(device_index(device)); }));
  });
  m.def("native_context(int device) -> int", [](int64_t device) {
    return static_cast<int64_t>(checked([&] { return bridge::native_context(device_index(device)); }));
  });
  m.def("native_buffer(Tensor tensor) -> int[]", &native_buffer);
  m.def("adopt_buffer(int device, int memory) -> Tensor", &adopt_buffer);
  m.def("add_device_backend(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", &add_device_backend);
  m.def("python_functions() -> str[]", &python_functions);
  m.def("launches() -> int", [] { return static_cast<int64_t>(bridge::launch_count()); });
}

} // namespace torch_opencl
