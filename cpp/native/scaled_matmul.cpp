// Matmuls of float8 matrices with scales. Both are widened to bfloat16, which holds every float8, and summed in
// float32.
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "check.h"
#include "matmul.h"

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

  // The same with scales for each block along k of a row of a, or of 128 rows, and alike of b.
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

template <class Op>
void check_out_dtype(const Arguments<Op>& args) {
  TORCH_CHECK_VALUE(
      !args.out_dtype || *args.out_dtype == args.out.scalar_type(), "out_dtype must match output matrix type");
}

bool is_blockwise(Scaling recipe) {
  return recipe == Scaling::BlockWise1x128 || recipe == Scaling::BlockWise128x128;
}

} // namespace

at::Tensor& scaled_mm_out(const Arguments<at::_ops::_scaled_mm_out>& args) {
  check_out_dtype(args);
  const ScaledMatmul matmul{args.self, args.mat2, args.scale_a, args.scale_b};
  matmul.check(args.bias);
  if (!matmul.is_tensorwise() && !matmul.is_rowwise()) matmul.refuse();
  const std::optional<at::Tensor>& scale_result = args.scale_result;
  TORCH_CHECK(
      !scale_result || (scale_result->numel() == 1 && scale_result->scalar_type() == at::kFloat),
      "scale_result must be a float scalar");
  return store(matmul.by_factors(args.bias), scale_result, args.out);
}

// Scales for each matrix, for each row and column, and for each block of 1 x 128 or 128 x 128.
at::Tensor& scaled_mm_v2_out(const Arguments<at::_ops::_scaled_mm_v2_out>& args) {
  check_out_dtype(args);
  TORCH_CHECK_VALUE(!args.scale_a.empty() && !args.scale_b.empty(), "scale_a and scale_b must not be empty");
  for (const at::IntArrayRef swizzle : {args.swizzle_a, args.swizzle_b}) {
    TORCH_CHECK_VALUE(swizzle.empty() || swizzle[0] == 0, "OpenCL does not support swizzle.");
  }
  const ScaledMatmul matmul{args.self, args.mat2, args.scale_a[0], args.scale_b[0]};
  matmul.check(args.bias);
  const Scaling a = only(args.recipe_a), b = only(args.recipe_b);
  if (args.scale_a.size() != 1 || args.scale_b.size() != 1) matmul.refuse();
  if (is_blockwise(a) && is_blockwise(b)) return store(matmul.by_blocks(args.bias, a, b), std::nullopt, args.out);
  const bool is_tensorwise = a == Scaling::TensorWise && b == Scaling::TensorWise && matmul.is_tensorwise();
  const bool is_rowwise = a == Scaling::RowWise && b == Scaling::RowWise && matmul.is_rowwise();
  if (!is_tensorwise && !is_rowwise) matmul.refuse();
  return store(matmul.by_factors(args.bias), std::nullopt, args.out);
}

} // namespace torch_opencl::native
