// Weights of 2 to 8 bits in the formats of other libraries: torch.ops.torch_opencl.quantized_linear and
// quantized_unpack. torch_opencl.quantized describes the formats, rust/ops/quantized/format.rs checks them.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "native/matmul.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/quantized/mod.rs.h"

namespace torch_opencl::native {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

OptionalTensor dense(const OptionalTensor& tensor) {
  return tensor ? std::optional(tensor->contiguous()) : std::nullopt;
}

// A weight, and its tensors with the strides that kernels assume.
struct Weight {
  Weight(
      const at::Tensor& weight,
      const OptionalTensor& given_scales,
      const OptionalTensor& given_zeros,
      const OptionalTensor& given_table,
      const std::string& format,
      int64_t rows,
      int64_t k,
      int64_t group_size,
      int64_t bias,
      const std::string& zeros_kind)
      : codes(weight.contiguous()), scales(given_scales), zeros(given_zeros), table(dense(given_table)) {
    // Scales and zeros may be transposed, both in the same way.
    if (table || (scales && zeros && scales->strides() != zeros->strides())) {
      scales = dense(scales);
      zeros = dense(zeros);
    }
    for (const OptionalTensor* tensor : {&scales, &zeros, &table}) {
      TORCH_CHECK(
          !*tensor || (*tensor)->device() == codes.device(), "quantised weight: expected all tensors on ",
          codes.device(), ", got one on ", (*tensor)->device());
    }
    value = {arg(codes), arg(scales), arg(zeros), arg(table), format, rows, k, group_size, bias, zeros_kind};
    checked([&] { bridge::check_quantized(value); });
  }

  at::Tensor unpacked(const at::TensorOptions& options) const {
    const at::Tensor out = at::empty({value.rows, value.k}, options);
    checked([&] { bridge::quantized_unpack(arg(out), value); });
    return out;
  }

  at::Tensor codes;
  OptionalTensor scales, zeros, table;
  bridge::QuantizedWeight value;
};

void check_floats(const char* name, at::ScalarType dtype) {
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, "quantised weight: expected ", name,
      " to be float32, float16 or bfloat16, got ", dtype);
}

// The operators, for the arguments that follow `weight` in both.
template <class... Args>
struct Operators {
  static at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Args... args) {
    check_floats("x", x.scalar_type());
    TORCH_CHECK(
        x.device() == weight.device(), "quantised weight: expected x on ", weight.device(), ", got ", x.device());
    const Weight packed(weight, args...);
    const int64_t rows = packed.value.rows, k = packed.value.k;
    TORCH_CHECK(
        x.dim() > 0 && x.size(-1) == k, "quantised weight: expected x with ", k, " columns, got shape ", x.sizes());
    at::DimVector sizes(x.sizes());
    sizes.back() = rows;
    const at::Tensor flat = x.reshape({-1, k}).contiguous();
    const at::Tensor out = at::empty({flat.size(0), rows}, x.options());
    if (!checked([&] { return bridge::quantized_few_rows(arg(out), arg(flat), packed.value); })) {
      multiply(out, flat, packed.unpacked(x.options()).t(), {}, 0, 1);
    }
    return out.view(sizes);
  }

  static at::Tensor unpack(const at::Tensor& weight, Args... args, at::ScalarType dtype) {
    check_floats("the dtype", dtype);
    return Weight(weight, args...).unpacked(weight.options().dtype(dtype));
  }
};

using Quantized = Operators<
    const OptionalTensor&,
    const OptionalTensor&,
    const OptionalTensor&,
    const std::string&,
    int64_t,
    int64_t,
    int64_t,
    int64_t,
    const std::string&>;

} // namespace

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  const std::string weight =
      "Tensor weight, Tensor? scales, Tensor? zeros, Tensor? table, str format, int rows, int k, int group_size, "
      "int bias, str zeros_kind";
  m.def(("quantized_linear(Tensor x, " + weight + ") -> Tensor").c_str());
  m.def(("quantized_unpack(" + weight + ", ScalarType dtype) -> Tensor").c_str());
}

TORCH_LIBRARY_IMPL(torch_opencl, PrivateUse1, m) {
  m.impl("quantized_linear", &Quantized::linear);
  m.impl("quantized_unpack", &Quantized::unpack);
}

} // namespace torch_opencl::native
