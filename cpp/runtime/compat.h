// Names that differ or are missing in the supported releases of PyTorch (Cargo.toml). Only this file knows which
// release added which name; other files use TORCH_OPENCL_TORCH_AT_LEAST where a header or an op is missing.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/Padding.h>
#include <torch/headeronly/version.h>
#include <optional>

#define TORCH_OPENCL_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// The dimensions of outputs had names until 2.12: a last parameter of the functions that structured kernels override.
#if TORCH_OPENCL_TORCH_AT_LEAST(13)
#define TORCH_OPENCL_NAMES_PARAMETER
#define TORCH_OPENCL_NAMES_ARGUMENT
#else
#define TORCH_OPENCL_NAMES_PARAMETER , at::DimnameList names
#define TORCH_OPENCL_NAMES_ARGUMENT , names
#endif

namespace c10d {
#if TORCH_OPENCL_TORCH_AT_LEAST(13)
struct PreMulSumSupplement;
#else
struct NCCLPreMulSumSupplement;
#endif
} // namespace c10d

namespace torch_opencl::compat {

// The factor of ReduceOp.PREMUL_SUM.
#if TORCH_OPENCL_TORCH_AT_LEAST(13)
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;
#endif

// The dtype that the inputs were promoted to, if they were.
inline std::optional<at::ScalarType> maybe_common_dtype(const at::TensorIteratorBase& iter) {
#if TORCH_OPENCL_TORCH_AT_LEAST(13)
  return iter.maybe_common_dtype();
#else
  // In older releases the getter raises without a common dtype, and the member is protected.
  struct Reader : at::TensorIteratorBase {
    static at::ScalarType of(const at::TensorIteratorBase& iter) {
      return iter.*(&Reader::common_dtype_);
    }
  };
  const at::ScalarType dtype = Reader::of(iter);
  return dtype == at::ScalarType::Undefined ? std::nullopt : std::make_optional(dtype);
#endif
}

// Raises unless the padding and the input fit `kDims` padded dimensions.
template <int kDims>
void check_padded_input(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_OPENCL_TORCH_AT_LEAST(15)
  at::native::padding::check_valid_input(input, padding, kDims);
#else
  at::native::padding::check_valid_input<kDims>(input, padding);
#endif
}

} // namespace torch_opencl::compat
