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
#include "runtime/bound.h"
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
#include "torch_opencl/rust/ops/matmul/tile_check.rs.h"

namespace torch_opencl {
namespace {

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

std::vector<int64_t> build_kernels(int64_t device, const std::string& source, const std::vector<std::string>& names) {
  rust::Vec<rust::String> list;
  for (const std::string& name : names) list.push_back(name);
  const rust::Vec<int64_t> kernels =
      checked([&] { return bridge::build_kernels(device_index(device), rust::Str(source), std::move(list)); });
  return {kernels.begin(), kernels.end()};
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
  m.def("device_count() -> int", bound<&bridge::device_count>());
  m.def("device_error() -> str", bound<&bridge::device_error>());
  m.def("device_properties(int device) -> str", bound<&bridge::device_json>());
  m.def("platforms() -> str", bound<&bridge::platforms_json>());
  m.def("in_bad_fork() -> bool", bound<&bridge::in_bad_fork>());
  m.def("is_initialized(int device) -> bool", bound<&bridge::is_initialized>());
  m.def("synchronize(int device) -> ()", bound<&bridge::synchronize_device>());
  m.def("finish_device(int device) -> ()", bound<&bridge::finish_device>());
  m.def("finish() -> ()", bound<&bridge::finish_all>());
  m.def("finish_autograd(int device) -> ()", finish_autograd);
  m.def("empty_cache(int device) -> ()", bound<&bridge::empty_cache>());
  m.def("memory_stats(int device) -> str", bound<&bridge::memory_stats_json>());
  m.def("memory_snapshot(int device) -> str", bound<&bridge::memory_snapshot_json>());
  m.def("host_memory_stats() -> str", bound<&bridge::host_memory_stats_json>());
  m.def("reset_peak_host_memory_stats() -> ()", bound<&bridge::reset_peak_host_stats>());
  m.def("reset_accumulated_host_memory_stats() -> ()", bound<&bridge::reset_accumulated_host_stats>());
  m.def("reset_peak_memory_stats(int device) -> ()", bound<&bridge::reset_peak_stats>());
  m.def("reset_accumulated_memory_stats(int device) -> ()", bound<&bridge::reset_accumulated_stats>());
  m.def("mem_get_info(int device) -> int[]", &memory_info);
  m.def("set_memory_fraction(float fraction, int device) -> ()", bound<&bridge::set_memory_fraction>());
  m.def("memory_fraction(int device) -> float", bound<&bridge::memory_fraction>());
  m.def("default_generator(int device) -> Generator?", &generator_of);
  m.def("check_environment() -> ()", &check_environment);
  m.def("fallbacks() -> str", &fallbacks);
  m.def("reset_fallbacks() -> ()", &reset_fallback_counts);
  m.def("kernel_cache_info() -> str", bound<&bridge::kernel_cache_json>());
  m.def("wait_for_builds(float seconds) -> int", bound<&bridge::wait_for_builds>());
  m.def("set_eager_builds(bool on) -> ()", bound<&bridge::set_eager_builds>());
  m.def("show_progress(bool on) -> ()", bound<&bridge::show_progress>());
  m.def("bundle_path() -> str", bound<&bridge::bundle_path>());
  m.def("bundle_identity(int device) -> str", bound<&bridge::bundle_identity>());
  m.def("kernel_catalogue(int device) -> str", bound<&bridge::kernel_catalogue>());
  m.def("record_programs() -> ()", bound<&bridge::record_programs>());
  m.def("recorded_programs() -> str", bound<&bridge::recorded_programs>());
  m.def(
      "compile_binary(int device, str name, str source, str options, str path) -> str",
      bound<&bridge::compile_binary>());
  m.def("preferred_blas_library() -> str", bound<&bridge::preferred_blas_library>());
  m.def("set_preferred_blas_library(str name) -> ()", bound<&bridge::set_preferred_blas_library>());
  m.def("small_calls() -> str", bound<&bridge::small_calls>());
  m.def("set_small_calls(str choice) -> ()", bound<&bridge::set_small_calls>());
  m.def("blas_choices(int device) -> str", bound<&bridge::blas_choices_json>());
  m.def("blas_obstacles(int device) -> str", bound<&bridge::blas_obstacles_json>());
  m.def("matrix_instructions(int device) -> str", bound<&bridge::matrix_instructions>());
  m.def("tuning(int device) -> str", bound<&bridge::tuning_json>());
  m.def("set_tuning(int device, str values) -> ()", bound<&bridge::set_tuning>());
  m.def("read_tuning(int device) -> str", bound<&bridge::read_tuning>());
  m.def("store_tuning(int device, str text) -> ()", bound<&bridge::store_tuning>());
  m.def("struct_mismatches(int device) -> str", bound<&bridge::struct_mismatches>());
  m.def("run_signal_handlers() -> ()");
  m.def("watch_signals(bool on) -> ()", bound<&bridge::watch_signals>());
  m.def("sync_debug_mode() -> int", bound<&bridge::sync_debug_mode>());
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
      "fused_matmul(int source_id, Tensor a, Tensor b, Tensor? bias, Scalar beta, Scalar alpha, Tensor[] buffers, "
      "int[] scalars) -> ()",
      &native::fused_matmul);
  m.def(
      "fused_convolution(int source_id, Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
      "dilation, int groups, bool channels_last, Tensor[] buffers, int[] scalars) -> ()",
      &native::fused_convolution);
  m.def("convolution_is_gemm(int out_channels, int in_channels) -> bool", &native::convolution_is_gemm);
  m.def("launch_function() -> int", bound<&bridge::launch_function>());
  m.def("fault_message(str text) -> int", bound<&bridge::fault_message>());
  m.def("build_user_kernel(int device, str source, str name) -> int", bound<&bridge::build_user_kernel>());
  m.def(
      "launch_user_kernel(int kernel, Tensor(a!)[] written, Tensor[] read, int[] values, int[] global_size, int[] "
      "local_size) -> ()",
      &launch_user_kernel);
  m.def("native_device(int device) -> int", bound<&bridge::native_device>());
  m.def("native_context(int device) -> int", bound<&bridge::native_context>());
  m.def("native_buffer(Tensor tensor) -> int[]", &native_buffer);
  m.def("adopt_buffer(int device, int memory) -> Tensor", &adopt_buffer);
  m.def("add_device_backend(__torch__.torch.classes.c10d.ProcessGroup group) -> ()", &add_device_backend);
  m.def("python_functions() -> str[]", &python_functions);
  m.def("launches() -> int", bound<&bridge::launch_count>());
}

} // namespace torch_opencl
