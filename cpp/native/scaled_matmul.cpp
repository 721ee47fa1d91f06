// Matmuls of float8 matrices with scales. Both are widened to bfloat16, which holds every float8, and summed in
// float32.
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <vector>

#include "native/check.h"
#include "native/matmul.h"
#include "runtime/compat.h"

namespace torch_opencl::native {
namespace {

// Values of torch.nn.functional.ScalingType.
enum class Scaling : int64_t { TensorWise = 0, RowWise = 1, BlockWise1x128 = 4, BlockWise128x128 = 5 };
constexpr int64_t kBlock = 128;

struct ScaledMatmul {
  const at::Tensor& a;
  const at::Tensor& b;
  at::Tensor scale_a, scale_b;

  [[noreturn]] void refuse() const {
    TORCH_CHECK_VALUE(
        false, "Invalid scaling configuration.\n",
        "- For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n",
        "- For RowWise scaling, a and b should be float8, scales should be float, scale_a should be (", a.size(0),
        ", 1) and scale_b should be (1, ", b.size(1),
        "), and both should be contiguous.\nGot a.dtype()=", a.scalar_type(),
        ", scale_a.dtype()=", scale_a.scalar_type(), ", scale_a.size()=", scale_a.sizes(),
        ", scale_a.stride()=", scale_a.strides(), ", b.dtype()=", b.scalar_type(),
        ", scale_b.dtype()=", scale_b.scalar_type(), ", scale_b.size()=", scale_b.sizes(),
        " and scale_b.stride()=", scale_b.strides());
    __builtin_unreachable();
  }

  void check(const std::optional<at::Tensor>& bias) const {
    TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix");
    TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
    check_inner_sizes("mat_a and mat_b", a, b);
    TORCH_CHECK(
        !bias.has_value() || bias->numel() == b.size(1), "Bias must be size ", b.size(1), " but got ", bias->numel());
    const bool are_narrow = at::isFloat8Type(a.scalar_type()) && at::isFloat8Type(b.scalar_type());
    if (!are_narrow || scale_a.scalar_type() != at::kFloat || scale_b.scalar_type() != at::kFloat) refuse();
  }

  bool is_tensorwise() const {
    return scale_a.numel() == 1 && scale_b.numel() == 1;
  }

  bool is_rowwise() const {
    return scale_a.dim() == 2 && scale_b.dim() == 2 && scale_a.size(0) == a.size(0) && scale_a.size(1) == 1 &&
        scale_b.size(0) == 1 && scale_b.size(1) == b.size(1) && scale_a.is_contiguous() && scale_b.is_contiguous();
  }

  // a @ b * scale_a * scale_b + bias in float32, with a scale for each matrix, or for each row of a and column of b.
  at::Tensor by_factors(const std::optional<at::Tensor>& bias) const {
    at::Tensor sums = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
    multiply(sums, a.to(at::kBFloat16), b.to(at::kBFloat16), {}, 0, 1);
    sums.mul_(is_tensorwise() ? scale_a.reshape({}) : scale_a).mul_(is_tensorwise() ? scale_b.reshape({}) : scale_b);
    return bias.has_value() ? sums.add_(bias->reshape({-1})) : sums;
  }

  // Each block along k of each row of `a`, or of each 128 rows, has a scale; the same holds for `b`.
  at::Tensor by_blocks(const std::optional<at::Tensor>& bias, Scaling recipe_a, Scaling recipe_b) const {
    at::Tensor sums = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
    multiply(sums, widened(a, scale_a, recipe_a), widened(b.t(), scale_b, recipe_b).t(), {}, 0, 1);
    return bias.has_value() ? sums.add_(bias->reshape({-1})) : sums;
  }

 private:
  // A matrix [rows, k] times its scales [rows or blocks of rows, blocks of k].
  at::Tensor widened(const at::Tensor& matrix, const at::Tensor& scale, Scaling recipe) const {
    const int64_t rows = matrix.size(0), k = matrix.size(1), row_block = recipe == Scaling::BlockWise1x128 ? 1 : kBlock;
    const int64_t row_blocks = (rows + row_block - 1) / row_block, blocks = (k + kBlock - 1) / kBlock;
    // CUDA pads the blocks along k of scales of 128 rows, which lie innermost there, to a multiple of 4.
    const at::Tensor grid = recipe == Scaling::BlockWise1x128 ? scale : scale.t();
    if (scale.dim() != 2 || grid.size(0) != row_blocks || grid.size(1) < blocks) refuse();
    const at::Tensor factors = grid.narrow(1, 0, blocks)
                                   .unsqueeze(1)
                                   .unsqueeze(-1)
                                   .expand({row_blocks, row_block, blocks, kBlock})
                                   .reshape({row_blocks * row_block, blocks * kBlock});
    return matrix.to(at::kFloat) * factors.narrow(0, 0, rows).narrow(1, 0, k);
  }
};

// Rounds to the output's dtype; results in float8 are divided by `scale_result`.
at::Tensor& store(const at::Tensor& sums, const std::optional<at::Tensor>& scale_result, at::Tensor& out) {
  if (scale_result.has_value() && at::isFloat8Type(out.scalar_type())) sums.div_(scale_result->reshape({}));
  at::native::resize_output(out, sums.sizes());
  return out.copy_(sums);
}

Scaling only(at::IntArrayRef recipe) {
  return static_cast<Scaling>(recipe.size() == 1 ? recipe[0] : -1);
}

void check_out_dtype(const std::optional<at::ScalarType>& out_dtype, const at::Tensor& out) {
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(), "out_dtype must match output matrix type");
}

bool is_blockwise(Scaling recipe) {
  return recipe == Scaling::BlockWise1x128 || recipe == Scaling::BlockWise128x128;
}

// A float8 matrix as _scaled_mm_v2 takes it.
struct ScaledOperand {
  const at::Tensor& matrix;
  at::TensorList scale;
  at::IntArrayRef recipe, swizzle;
};

// Scales for each matrix, for each row and column, and for each block of 1 x 128 or 128 x 128.
at::Tensor& multiply_scaled(
    const ScaledOperand& a,
    const ScaledOperand& b,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::ScalarType>& out_dtype,
    at::Tensor& out) {
  check_out_dtype(out_dtype, out);
  TORCH_CHECK_VALUE(!a.scale.empty() && !b.scale.empty(), "scale_a and scale_b must not be empty");
  for (const at::IntArrayRef swizzle : {a.swizzle, b.swizzle}) {
    TORCH_CHECK_VALUE(swizzle.empty() || swizzle[0] == 0, "OpenCL does not support swizzle.");
  }
  const ScaledMatmul matmul{a.matrix, b.matrix, a.scale[0], b.scale[0]};
  matmul.check(bias);
  const Scaling of_a = only(a.recipe), of_b = only(b.recipe);
  if (a.scale.size() != 1 || b.scale.size() != 1) matmul.refuse();
  if (is_blockwise(of_a) && is_blockwise(of_b)) {
    return store(matmul.by_blocks(bias, of_a, of_b), std::nullopt, out);
  }
  const bool is_tensorwise = of_a == Scaling::TensorWise && of_b == Scaling::TensorWise && matmul.is_tensorwise();
  const bool is_rowwise = of_a == Scaling::RowWise && of_b == Scaling::RowWise && matmul.is_rowwise();
  if (!is_tensorwise && !is_rowwise) matmul.refuse();
  return store(matmul.by_factors(bias), std::nullopt, out);
}

} // namespace

at::Tensor& scaled_mm_out(const Arguments<at::_ops::_scaled_mm_out>& args) {
  check_out_dtype(args.out_dtype, args.out);
  const ScaledMatmul matmul{args.self, args.mat2, args.scale_a, args.scale_b};
  matmul.check(args.bias);
  if (!matmul.is_tensorwise() && !matmul.is_rowwise()) matmul.refuse();
  const std::optional<at::Tensor>& scale_result = args.scale_result;
  TORCH_CHECK(
      !scale_result || (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
      "scale_result must be a float scalar");
  return store(matmul.by_factors(args.bias), scale_result, args.out);
}

#if TORCH_OPENCL_TORCH_AT_LEAST(14)
void scaled_mm_v2_out::impl(
    const at::Tensor& self,
    const at::Tensor& mat2,
    const at::ITensorListRef& scale_a,
    at::IntArrayRef recipe_a,
    at::IntArrayRef swizzle_a,
    const at::ITensorListRef& scale_b,
    at::IntArrayRef recipe_b,
    at::IntArrayRef swizzle_b,
    at::OptionalTensorRef bias,
    std::optional<at::ScalarType> out_dtype,
    at::IntArrayRef /*contraction_dim*/,
    bool /*use_fast_accum*/,
    const at::Tensor& out) {
  const std::vector<at::Tensor> scales_a(scale_a.begin(), scale_a.end()), scales_b(scale_b.begin(), scale_b.end());
  at::Tensor result = out;
  multiply_scaled(
      {self, scales_a, recipe_a, swizzle_a}, {mat2, scales_b, recipe_b, swizzle_b},
      bias.has_value() ? std::make_optional(*bias) : std::nullopt, out_dtype, result);
}
#else
at::Tensor& scaled_mm_v2_out(const Arguments<at::_ops::_scaled_mm_v2_out>& args) {
  return multiply_scaled(
      {args.self, args.scale_a, args.recipe_a, args.swizzle_a},
      {args.mat2, args.scale_b, args.recipe_b, args.swizzle_b}, args.bias, args.out_dtype, args.out);
}
#endif

} // namespace torch_opencl::native
