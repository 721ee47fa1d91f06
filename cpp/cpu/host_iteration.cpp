#include "cpu/host_iteration.h"

#include <ATen/ops/empty_strided.h>
#include <algorithm>
#include <utility>

#include "runtime/bridge.h"
#include "runtime/compat.h"

namespace torch_opencl {
namespace {

// Access to the protected operands. ATen's own casts also exchange them.
struct Operands : at::TensorIteratorBase {
  static at::OperandInfo& get(at::TensorIteratorBase& iter, int index) {
    return (iter.*(&Operands::operands_))[index];
  }
};

// Element-wise functions of the CPU compute 16-bit floats as kernels do.
bool is_usual(at::ScalarType dtype) {
  return is_same_on_host(dtype) || dtype == at::kHalf || dtype == at::kBFloat16;
}

bool has_usual_dtypes(const at::TensorIteratorBase& iter) {
  for (int i = 0; i < iter.ntensors(); i++) {
    if (!is_usual(iter.dtype(i))) return false;
  }
  return true;
}

// Returns true if the CPU kernel stores results of these dtypes: the common dtype, or bool, as comparisons do.
bool stores_results(const at::TensorIteratorBase& iter, at::ScalarType common) {
  for (int i = 0; i < iter.noutputs(); i++) {
    if (iter.dtype(i) != common && iter.dtype(i) != at::kBool) return false;
  }
  return is_usual(common);
}

// Maximum number of elements of memory that an input to be cast may span.
constexpr int64_t kMaxSpan = int64_t{1} << 17;

// Returns true if the elements of a tensor do not overlap, apart from expanded dimensions, and span so little memory
// that a copy may have the same strides.
bool has_copyable_strides(const at::TensorBase& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return true;
  if (tensor.is_neg()) return false;
  c10::SmallVector<std::pair<int64_t, int64_t>, 5> dims;
  for (int64_t d = 0; d < tensor.dim(); d++) {
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < span || stride > kMaxSpan || size > kMaxSpan) return false;
    span += stride * (size - 1);
  }
  return span <= kMaxSpan;
}

// A copy in `dtype` with the strides of the tensor.
at::Tensor cast_with_strides(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.to(dtype);
  c10::SmallVector<int64_t, 5> sizes(tensor.sizes());
  for (int64_t d = 0; d < tensor.dim(); d++) {
    if (tensor.stride(d) == 0) sizes[d] = std::min<int64_t>(sizes[d], 1);
  }
  const at::Tensor result = at::empty_strided(sizes, tensor.strides(), tensor.options().dtype(dtype));
  result.copy_(tensor.as_strided(sizes, tensor.strides()));
  return result.as_strided(tensor.sizes(), tensor.strides());
}

// Returns true if the host may use the memory of the first result now.
bool has_open_result(const at::TensorIteratorBase& iter) {
  auto address = reinterpret_cast<size_t>(iter.data_ptr(0));
  return bridge::to_host_if_idle({&address, 1});
}

} // namespace

HostIteration::HostIteration(at::TensorIteratorBase& iter, Casts casts, Cost cost) : iter_(iter) {
  if (iter.numel() == 0 || !cpu_policy::is_small(cost, {.elements = iter.numel()}) || !has_usual_dtypes(iter)) return;
  if (casts == Casts::ToCommon) {
    if (const auto common = compat::maybe_common_dtype(iter); common.has_value()) {
      if (!stores_results(iter, *common)) return;
      c10::SmallVector<int, 4> others;
      for (int i = iter.noutputs(); i < iter.ntensors(); i++) {
        if (iter.dtype(i) == *common) continue;
        // If a scalar becomes a 16-bit float, ATen's kernels read its value before the cast, in the device's memory.
        const bool reads_original = iter.is_scalar(i) && at::isReducedFloatingType(*common);
        if (!has_copyable_strides(iter.tensor_base(i)) || reads_original) return;
        others.push_back(i);
      }
      if (!others.empty() && !has_open_result(iter)) return;
      for (const int i : others) cast(i, *common);
    }
  }
  is_open_ = open();
}

// Casts as ATen does before it calls the CPU kernel.
void HostIteration::cast(int index, at::ScalarType common) {
  at::OperandInfo& operand = Operands::get(iter_, index);
  at::Tensor result = cast_with_strides(operand.tensor(), common);
  const auto before = static_cast<int64_t>(c10::elementSize(operand.current_dtype));
  const auto after = static_cast<int64_t>(c10::elementSize(common));
  for (int64_t& stride : operand.stride_bytes) stride = stride / before * after;
  operand.current_dtype = operand.target_dtype = common;
  operand.data = result.mutable_data_ptr();
  operand.exchange_tensor(c10::MaybeOwned<at::TensorBase>::owned(std::move(result)));
}

bool HostIteration::open() {
  for (int i = 0; i < iter_.ntensors(); i++) {
    if (!iter_.device(i).is_cpu()) addresses_.push_back(reinterpret_cast<size_t>(iter_.data_ptr(i)));
  }
  c10::SmallVector<size_t, 5> host(addresses_);
  if (!bridge::to_host_if_idle({host.data(), host.size()})) return false;
  auto address = host.begin();
  for (int i = 0; i < iter_.ntensors(); i++) {
    if (!iter_.device(i).is_cpu()) Operands::get(iter_, i).data = reinterpret_cast<void*>(*address++);
  }
  return true;
}

void HostIteration::restore() {
  auto address = addresses_.begin();
  for (int i = 0; i < iter_.ntensors(); i++) {
    if (!iter_.device(i).is_cpu()) Operands::get(iter_, i).data = reinterpret_cast<void*>(*address++);
  }
  is_open_ = false;
}

} // namespace torch_opencl
