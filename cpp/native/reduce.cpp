#include "entries/reduce.h"
#include "entries/composite.h"
#include "entries/unary.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sum.h>
#include <cmath>
#include <limits>

#include "dispatch/operand.h"
#include "dispatch/pointwise.h"
#include "runtime/error.h"
#include "torch_opencl/rust/ops/reduce/arg_reduce.rs.h"
#include "torch_opencl/rust/ops/reduce/mod.rs.h"
#include "torch_opencl/rust/ops/reduce/var_mean.rs.h"

namespace torch_opencl::native {
namespace {

using bridge::ReduceOp;

// The iteration of a reduction: its outputs, with stride 0 along reduced dimensions, and its input.
//
// Kernels support at most eight kept and eight reduced dimensions. If ATen cannot merge the dimensions of an iteration
// into that few, the input is copied to two dimensions, and the results are copied from dense tensors.
class Iteration {
 public:
  explicit Iteration(at::TensorIterator& iter) : iter_(iter) {
    constexpr int kMostDims = 8;
    if (iter.ndim() > kMostDims) pack();
  }

  rust::Slice<const int64_t> shape() const {
    return packed_ ? arg(packed_shape_) : arg(iter_.shape());
  }

  bridge::Operand operand(int index) const {
    if (!packed_) return torch_opencl::operand(iter_, index);
    const bridge::DType dtype = arg(iter_.dtype(index));
    const at::Tensor& tensor = index < iter_.noutputs() ? results_[index] : input_;
    const auto& strides = index < iter_.noutputs() ? result_strides_[index] : input_strides_;
    return {reinterpret_cast<size_t>(tensor.data_ptr()), dtype, arg(strides), {0.0, 0.0, 0}};
  }

  // Copies dense results to the outputs.
  void finish() const {
    for (size_t i = 0; i < results_.size(); i++) {
      const at::Tensor target = view(static_cast<int>(i), kept_);
      target.copy_(results_[i].view(target.sizes()));
    }
  }

 private:
  // An operand over some dimensions of the iteration.
  at::Tensor view(int index, const at::DimVector& dims) const {
    const at::Tensor tensor = iter_.tensor(index);
    at::DimVector sizes, strides;
    for (const int64_t dim : dims) {
      sizes.push_back(iter_.shape()[dim]);
      strides.push_back(iter_.strides(index)[dim] / static_cast<int64_t>(tensor.element_size()));
    }
    return tensor.as_strided(sizes, strides);
  }

  void pack() {
    packed_ = true;
    at::DimVector dims;
    for (int64_t dim = 0; dim < iter_.ndim(); dim++) {
      if (iter_.strides(0)[dim] != 0) kept_.push_back(dim);
    }
    dims = kept_;
    for (int64_t dim = 0; dim < iter_.ndim(); dim++) {
      if (iter_.strides(0)[dim] == 0) dims.push_back(dim);
    }
    input_ = view(iter_.ntensors() - 1, dims).contiguous();
    int64_t results = 1;
    for (const int64_t dim : kept_) results *= iter_.shape()[dim];
    const int64_t length = results == 0 ? 0 : input_.numel() / results;
    packed_shape_ = {length, results};
    const auto element = static_cast<int64_t>(input_.element_size());
    input_strides_ = {element, length * element};
    for (int i = 0; i < iter_.noutputs(); i++) {
      results_.push_back(at::empty({results}, iter_.tensor(i).options()));
      result_strides_.push_back({0, static_cast<int64_t>(results_.back().element_size())});
    }
  }

  at::TensorIterator& iter_;
  bool packed_ = false;
  at::DimVector kept_;                         // dimensions of the iteration
  at::DimVector packed_shape_, input_strides_; // innermost dimension first, in bytes
  std::vector<at::DimVector> result_strides_;
  at::Tensor input_;
  std::vector<at::Tensor> results_;
};

void reduce(at::TensorIterator& iter, ReduceOp op, double power = 0.0) {
  const Iteration over(iter);
  checked([&] { bridge::reduce(op, power, over.shape(), over.operand(0), over.operand(1)); });
  over.finish();
}

ReduceOp norm_of(double power) {
  if (power == 0.0) return ReduceOp::NonZeros;
  if (power == 1.0) return ReduceOp::NormOne;
  if (power == 2.0) return ReduceOp::NormTwo;
  if (std::isinf(power)) return power > 0 ? ReduceOp::NormMaximum : ReduceOp::NormMinimum;
  return ReduceOp::NormPower;
}

// The extreme elements along `dim` and their indices; `values` may be undefined.
void find_extreme(
    const at::Tensor& self,
    int64_t dim,
    bool keepdim,
    const at::Tensor& values,
    const at::Tensor& indices,
    bool largest) {
  if (self.numel() == 0) return;
  const bool is_scalar = self.dim() == 0;
  // In a dense tensor all dimensions before `dim` merge into one, and so do all after it.
  constexpr int64_t kMostDims = 8;
  const at::Tensor input = is_scalar ? self.unsqueeze(0) : self.dim() > kMostDims ? self.contiguous() : self;
  const int64_t axis = at::maybe_wrap_dim(dim, input.dim());
  const auto aligned = [&](const at::Tensor& result) {
    return result.defined() && (is_scalar || !keepdim) ? result.unsqueeze(axis) : result;
  };
  const at::Tensor best = aligned(values), best_indices = aligned(indices);
  checked([&] { bridge::arg_reduce(arg(best), arg(best_indices), arg(input), static_cast<size_t>(axis), largest); });
}

// Without a dimension, the index in the flattened tensor.
void find_extreme_index(
    const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& result, bool largest) {
  if (dim.has_value()) return find_extreme(self, *dim, keepdim, {}, result, largest);
  find_extreme(self.reshape(-1), 0, false, {}, result.view(at::IntArrayRef{}), largest);
}

// Returns true if a kernel for elements of `from` sums them as it would after a cast to `to`, which is then not needed.
bool sums_alike(at::ScalarType from, at::ScalarType to) {
  const auto is_narrow_float = [](at::ScalarType dtype) {
    return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat;
  };
  const bool are_integers =
      c10::isIntegralType(from, /*includeBool=*/true) && c10::isIntegralType(to, /*includeBool=*/false);
  return are_integers || (is_narrow_float(from) && to == at::kFloat);
}

} // namespace

void sum_out::impl(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType>,
    const at::Tensor& result) {
  const at::ScalarType from = self.scalar_type(), to = result.scalar_type();
  auto iter = at::meta::make_reduction(self, result, dim, keepdim, sums_alike(from, to) ? from : to);
  if (iter.numel() == 0) {
    result.zero_();
  } else {
    reduce(iter, ReduceOp::Sum);
  }
}

void mean_out::impl(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType>,
    const at::Tensor& result) {
  TORCH_CHECK(
      !at::isIntegralType(result.scalar_type(), /*includeBool=*/true),
      "result type Float can't be cast to the desired output type ", result.scalar_type());
  // Elements that are rounded to 16 bits first may overflow, and cancel to less.
  const bool narrows = at::isReducedFloatingType(result.scalar_type()) && self.scalar_type() != result.scalar_type();
  const at::Tensor mean = narrows ? at::empty(result.sizes(), result.options().dtype(at::kFloat)) : result;
  auto iter = at::meta::make_reduction(self, mean, dim, keepdim, mean.scalar_type());
  if (iter.numel() > 0) {
    reduce(iter, ReduceOp::Mean);
    if (narrows) result.copy_(mean);
    return;
  }
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  result.fill_(result.is_complex() ? at::Scalar(c10::complex<double>(nan, nan)) : at::Scalar(nan));
}

void argmax_out::impl(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& result) {
  find_extreme_index(self, dim, keepdim, result, /*largest=*/true);
}

void argmin_out::impl(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& result) {
  find_extreme_index(self, dim, keepdim, result, /*largest=*/false);
}

void max_dim_out::impl(
    const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& values, const at::Tensor& indices) {
  find_extreme(self, dim, keepdim, values, indices, /*largest=*/true);
}

void min_dim_out::impl(
    const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& values, const at::Tensor& indices) {
  find_extreme(self, dim, keepdim, values, indices, /*largest=*/false);
}

void aminmax_out::impl(
    const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& min, const at::Tensor& max) {
  at::Tensor smallest = min, largest = max;
  const at::IntArrayRef dims = dim.has_value() ? at::IntArrayRef(*dim) : at::IntArrayRef();
  at::amin_out(smallest, self, dims, keepdim);
  at::amax_out(largest, self, dims, keepdim);
}

namespace {

// The input of a hash: 64-bit integers, or dtypes that reductions load as such.
at::Tensor hashed_bits(const at::Tensor& self) {
  if (!self.is_floating_point()) return self;
  if (self.scalar_type() == at::kDouble) return self.view(at::kLong);
  // NaN keeps its sign and payload, as on the CPU. Conversions of some devices, such as NVIDIA's, change them, so
  // 16-bit floats are widened as integers: bfloat16 always, float16 where it is NaN.
  at::Tensor input = self;
  if (self.scalar_type() == at::kBFloat16) {
    input = self.view(at::kShort).to(at::kInt).bitwise_left_shift_(16);
  } else if (self.scalar_type() == at::kHalf) {
    const at::Tensor bits = self.view(at::kShort).to(at::kInt);
    const at::Tensor nan = bits.bitwise_and(0x8000).mul_(1 << 16) | bits.bitwise_and(0x3ff).mul_(1 << 13) | 0x7f800000;
    input = at::where(self.isnan(), nan, self.to(at::kFloat).view(at::kInt));
  }
  input = input.view(at::kInt);
  at::Tensor bits = at::empty(self.sizes(), self.options().dtype(at::kLong));
  auto iter = at::TensorIteratorConfig().check_all_same_dtype(false).add_output(bits).add_const_input(input).build();
  run_pointwise(iter, PointwiseOp::hash_tensor, {});
  return bits;
}

} // namespace

void hash_tensor_out::impl(
    const at::Tensor& self, at::IntArrayRef dim, bool keepdim, int64_t mode, const at::Tensor& result) {
  TORCH_CHECK(mode == 0, "Unknown hash_tensor mode: ", mode);
  if (self.numel() == 0) {
    result.zero_();
    return;
  }
  // XOR is bitwise, so int64 can stand for the dtype of the result.
  const at::Tensor bits = hashed_bits(self), words = result.view(at::kLong);
  auto iter = at::meta::make_reduction(bits, words, dim, keepdim, bits.scalar_type());
  reduce(iter, ReduceOp::Xor);
}

void nansum(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::NanSum);
}
void prod(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::Product);
}
void min_values(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::Minimum);
}
void max_values(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::Maximum);
}
void logical_and(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::All);
}
void logical_or(at::TensorIterator& iter) {
  reduce(iter, ReduceOp::Any);
}

void norm(at::TensorIterator& iter, const at::Scalar& power) {
  reduce(iter, norm_of(power.toDouble()), power.toDouble());
}

void powsum(at::TensorIterator& iter, const at::Scalar& power) {
  reduce(iter, ReduceOp::PowerSum, power.toDouble());
}

void std_var(at::TensorIterator& iter, double correction, bool take_sqrt) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !at::isComplexType(iter.dtype(0)), "OpenCL: std and var have real results, and out= is ", iter.dtype(0),
      ". Copy the result into it");
  // One output, or two: the variance and the mean.
  const int input = iter.ntensors() - 1;
  const Iteration over(iter);
  const bridge::Operand absent{0, arg(iter.dtype(0)), {}, {0.0, 0.0, 0}};
  const bridge::Operand mean = input == 2 ? over.operand(1) : absent;
  checked([&] { bridge::var_mean({correction, take_sqrt}, over.shape(), over.operand(0), mean, over.operand(input)); });
  over.finish();
}

void min_all(at::Tensor& result, const at::Tensor& self) {
  if (result.scalar_type() == self.scalar_type()) {
    at::amin_out(result, self);
  } else {
    result.copy_(at::amin(self));
  }
}
void max_all(at::Tensor& result, const at::Tensor& self) {
  if (result.scalar_type() == self.scalar_type()) {
    at::amax_out(result, self);
  } else {
    result.copy_(at::amax(self));
  }
}

} // namespace torch_opencl::native
