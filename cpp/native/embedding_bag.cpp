#include "entries/embedding_bag.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/native/EmbeddingBag.h>
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "cpu/host_call.h"
#include "native/contiguous.h"
#include "native/index_moves.h"
#include "native/sparse.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/embedding_bag/mod.rs.h"

namespace torch_opencl::native {
namespace {

using Mode = at::native::EmbeddingBagMode;

Mode mode_of(int64_t mode) {
  return static_cast<Mode>(mode);
}

template <class Op>
void check(const Arguments<Op>& args) {
  const at::Tensor &weight = args.weight, &indices = args.indices, &offsets = args.offsets;
  const std::optional<at::Tensor>& scales = args.per_sample_weights;
  constexpr const char* kOp = "embedding_bag";
  TORCH_CHECK(
      mode_of(args.mode) == Mode::SUM || mode_of(args.mode) == Mode::MEAN || mode_of(args.mode) == Mode::MAX,
      "`mode` must be sum, mean, or max.");
  TORCH_CHECK(indices.dim() == 1, "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  at::checkScalarTypes(kOp, {indices, "indices", 1}, {at::kLong, at::kInt});
  at::checkScalarTypes(kOp, {offsets, "offsets", 1}, {at::kLong, at::kInt});
  at::checkScalarTypes(kOp, {weight, "weight", 1}, {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  TORCH_CHECK(
      !args.include_last_offset || offsets.size(0) >= 1, "include_last_offset: number of offset should be at least 1");
  if (!scales.has_value() || !scales->defined()) return;
  TORCH_CHECK(mode_of(args.mode) == Mode::SUM, "embedding_bag: per_sample_weights only supported with mode='sum'");
  TORCH_CHECK(
      scales->scalar_type() == weight.scalar_type(), "embedding_bag: expected scalar type ", weight.scalar_type(),
      " but found ", scales->scalar_type(), " for per_sample_weights");
  TORCH_CHECK(
      scales->sizes() == indices.sizes(), "embedding_bag: expected per_sample_weights of sizes ", indices.sizes(),
      ", got ", scales->sizes());
}

// Repeats the gradient of each bag for all of its rows.
at::Tensor for_each_index(const at::Tensor& grad, const at::Tensor& offset2bag) {
  return grad.index_select(0, offset2bag);
}

// Returns true if a condition holds for int32 or int64 elements on the host. Several calls of ATen would take longer
// than the bags of a small model.
template <class Condition>
bool applies_to(const at::Tensor& integers, const Condition& condition) {
  const c10::MaybeOwned<at::Tensor> dense = integers.expect_contiguous();
  const auto count = static_cast<size_t>(dense->numel());
  if (dense->scalar_type() == at::kInt) {
    return condition(c10::ArrayRef<int32_t>(dense->const_data_ptr<int32_t>(), count));
  }
  return condition(c10::ArrayRef<int64_t>(dense->const_data_ptr<int64_t>(), count));
}

// Returns true if all integers on the host are in [0, size). The CPU's functions do not check.
bool all_in_range(const at::Tensor& integers, int64_t size) {
  return applies_to(integers, [=](auto elements) {
    return std::all_of(
        elements.begin(), elements.end(), [=](int64_t element) { return 0 <= element && element < size; });
  });
}

// Checks the indices if rows have no elements: kernels make these checks while they read rows.
void check_zero_width_indices(const at::Tensor& weight, const at::Tensor& indices) {
  if (weight.size(1) > 0 || indices.numel() == 0) return;
  const auto [least, greatest] = indices.aminmax();
  for (const at::Tensor& index : {least, greatest}) {
    const auto idx = index.item<int64_t>();
    TORCH_CHECK(
        idx >= 0 && idx < weight.size(0), "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx ",
        "to be ", idx, "; there are ", weight.size(0), " embeddings");
  }
}

} // namespace

// ATen's function makes a view of an index with several dimensions.
at::Tensor embedding(
    const at::Tensor& weight,
    const at::Tensor& indices,
    int64_t /*padding_idx*/,
    bool /*scale_grad_by_freq*/,
    bool /*sparse*/) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  at::checkScalarTypes("embedding", {indices, "indices", 1}, {at::kLong, at::kInt});
  if (indices.dim() == 1) return weight.index_select(0, indices);
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  const at::Tensor rows = at::empty({indices.numel(), weight.size(1)}, weight.options());
  if (rows.numel() == 0) return weight.index_select(0, indices.reshape(-1)).view(sizes);
  take_rows(rows, weight, indices);
  return rows.view(sizes);
}

at::Tensor embedding_dense_backward(
    const at::Tensor& grad_output,
    const at::Tensor& indices,
    int64_t num_weights,
    int64_t padding_idx,
    bool scale_grad_by_freq) {
  const int64_t count = indices.numel();
  HostMemory memory;
  if (const auto views = memory.views<2>({grad_output, indices})) {
    const auto& [grads, index] = *views;
    const OneThread one_thread;
    if (all_in_range(index, num_weights)) {
      return memory.to_device(at::embedding_dense_backward(grads, index, num_weights, padding_idx, scale_grad_by_freq));
    }
  }
  at::Tensor rows = grad_output.reshape({count, grad_output.size(-1)});
  if (scale_grad_by_freq) {
    // Quotients of 16-bit floats stay float32: those of equal rows would all be rounded the same way.
    const auto options = rows.options().dtype(at::toOpMathType(rows.scalar_type()));
    const at::Tensor index = indices.reshape(-1), counts = at::zeros({num_weights}, options);
    add_rows(counts.unsqueeze(1), indices, at::ones({count, 1}, options));
    rows = rows / counts.index_select(0, index).unsqueeze(1);
  }
  const at::Tensor grad = at::zeros({num_weights, rows.size(1)}, grad_output.options());
  add_rows(grad, indices, rows);
  if (padding_idx >= 0) grad.select(0, padding_idx).zero_();
  return grad;
}

namespace {

// The bag of each index, and the number of rows in each bag without padding. The CPU's function does not compute these
// for sums, whose gradients it computes otherwise.
template <class Index>
void fill_bags(
    const at::Tensor& indices,
    const at::Tensor& offsets,
    int64_t padding_idx,
    at::Tensor& offset2bag,
    at::Tensor& bag_size) {
  const auto *index = indices.const_data_ptr<Index>(), *offset = offsets.const_data_ptr<Index>();
  auto *bag = offset2bag.mutable_data_ptr<Index>(), *size = bag_size.mutable_data_ptr<Index>();
  const int64_t count = indices.numel(), bags = bag_size.numel();
  for (int64_t b = 0; b < bags; ++b) {
    const int64_t end = b + 1 < offsets.numel() ? offset[b + 1] : count;
    for (int64_t i = offset[b]; i < end; ++i) {
      bag[i] = static_cast<Index>(b);
      size[b] += index[i] != padding_idx;
    }
  }
}

// Returns true if offsets begin at 0, do not decrease, and are at most the number of indices.
bool are_offsets(const at::Tensor& offsets, int64_t count) {
  return applies_to(offsets, [=](auto elements) {
    return elements.front() == 0 && elements.back() <= count && std::is_sorted(elements.begin(), elements.end());
  });
}

// `bag_of_index` for few elements and valid arguments: kernels report the errors of invalid ones.
template <class Op>
std::optional<Returns<Op>> bags_on_host(const Arguments<Op>& args) {
  const bool is_of_one_dtype = args.indices.scalar_type() == args.offsets.scalar_type();
  if (!is_of_one_dtype || args.offsets.numel() <= (args.include_last_offset ? 1 : 0)) return std::nullopt;
  const at::Tensor scales = value_of(args.per_sample_weights), dense_indices = args.indices.contiguous(),
                   dense_offsets = args.offsets.contiguous();
  HostMemory memory;
  const auto views = memory.views<4>({args.weight, dense_indices, dense_offsets, scales});
  if (!views.has_value()) return std::nullopt;
  const auto& [weight, indices, offsets, scale] = *views;
  const OneThread one_thread;
  if (!all_in_range(indices, weight.size(0)) || !are_offsets(offsets, indices.numel())) return std::nullopt;
  const auto weights = scale.defined() ? std::optional<at::Tensor>(scale) : std::nullopt;
  auto [output, offset2bag, bag_size, chosen] = at::_embedding_bag(
      weight, indices, offsets, /*scale_grad_by_freq=*/false, args.mode, /*sparse=*/false, weights,
      args.include_last_offset, args.padding_idx);
  if (mode_of(args.mode) == Mode::SUM) {
    offset2bag = at::zeros_like(indices);
    bag_size = at::zeros({output.size(0)}, indices.options());
    if (indices.scalar_type() == at::kLong) {
      fill_bags<int64_t>(indices, offsets, args.padding_idx, offset2bag, bag_size);
    } else {
      fill_bags<int32_t>(indices, offsets, args.padding_idx, offset2bag, bag_size);
    }
  }
  if (mode_of(args.mode) != Mode::MAX) chosen = at::empty({0}, indices.options());
  return Returns<Op>{
      memory.to_device(output), memory.to_device(offset2bag), memory.to_device(bag_size), memory.to_device(chosen)};
}

// Returns the bags, the bag of each index, the number of rows in each bag and, for the maximum, the row of each
// element.
template <class Op>
Returns<Op> bag_of_index(const Arguments<Op>& args) {
  const at::Tensor &weight = args.weight, &indices = args.indices, &offsets = args.offsets;
  check(args);
  if (auto bags = bags_on_host(args)) return *std::move(bags);
  const bool is_wide = indices.scalar_type() == at::kLong || offsets.scalar_type() == at::kLong;
  const at::ScalarType dtype = is_wide ? at::kLong : at::kInt;
  const at::Tensor rows = weight.stride(1) == 1 || weight.size(1) == 1 ? weight : weight.contiguous();
  const at::Tensor picked = indices.to(dtype).contiguous(), scales = contiguous(args.per_sample_weights);
  check_zero_width_indices(weight, picked);
  const int64_t bags = offsets.size(0) - (args.include_last_offset ? 1 : 0);
  const at::Tensor all_offsets = offsets.to(dtype).contiguous();
  const auto integers = picked.options();

  at::Tensor output = at::empty({bags, weight.size(1)}, weight.options());
  // Without bags, no kernel writes offset2bag.
  at::Tensor bag_size = at::empty({bags}, integers),
             offset2bag = bags > 0 ? at::empty(picked.sizes(), integers) : at::zeros(picked.sizes(), integers);
  const bool needs_rows = mode_of(args.mode) == Mode::MAX;
  at::Tensor chosen = needs_rows ? at::empty(output.sizes(), integers) : at::empty({0}, integers);
  checked([&] {
    bridge::embedding_bag(
        {arg(rows), arg(picked), arg(all_offsets), arg(scales), args.padding_idx, static_cast<int32_t>(args.mode)},
        {arg(output), arg(bag_size), arg(offset2bag), arg(chosen)});
  });
  return {std::move(output), std::move(offset2bag), std::move(bag_size), std::move(chosen)};
}

} // namespace

Returns<at::_ops::_embedding_bag> embedding_bag(const Arguments<at::_ops::_embedding_bag>& args) {
  return bag_of_index(args);
}
Returns<at::_ops::_embedding_bag_forward_only> embedding_bag(
    const Arguments<at::_ops::_embedding_bag_forward_only>& args) {
  return bag_of_index(args);
}

namespace {

// The gradient by one matmul with a sparse matrix, which has an element for each index, if that needs no sorting.
std::optional<at::Tensor> sum_by_index(
    const Arguments<at::_ops::_embedding_bag_dense_backward>& args, const at::Tensor& grad, const at::Tensor& weights) {
  if (args.scale_grad_by_freq) return std::nullopt;
  auto sum = sparse::scattered_matmul(
      {args.indices, args.offset2bag, weights}, /*is_compressed=*/false, args.num_weights, grad);
  if (sum.has_value() && args.padding_idx >= 0) sum->select(0, args.padding_idx).zero_();
  return sum;
}

// `embedding_bag_dense_backward` with few elements.
std::optional<at::Tensor> gradient_on_host(const Arguments<at::_ops::_embedding_bag_dense_backward>& args) {
  const bool is_max = mode_of(args.mode) == Mode::MAX;
  const int64_t count = args.indices.numel(), bags = args.grad.size(0);
  const at::Tensor scales = value_of(args.per_sample_weights);
  // ATen's function for the CPU then divides by the frequencies of other indices than the row's.
  if (args.scale_grad_by_freq) return std::nullopt;
  if (args.offset2bag.numel() != count || args.bag_size.numel() != bags) return std::nullopt;
  if (scales.defined() && scales.numel() != count) return std::nullopt;
  if (is_max && args.maximum_indices.sizes() != args.grad.sizes()) return std::nullopt;
  HostMemory memory;
  const auto views = memory.views<6>(
      {args.grad, args.indices, args.offset2bag, args.bag_size, is_max ? args.maximum_indices : at::Tensor(), scales});
  if (!views.has_value()) return std::nullopt;
  const auto& [grad, indices, offset2bag, bag_size, chosen, scale] = *views;
  const OneThread one_thread;
  if (!all_in_range(indices, args.num_weights) || !all_in_range(offset2bag, bags)) return std::nullopt;
  if (is_max && !all_in_range(chosen, args.num_weights)) return std::nullopt;
  const auto weights = scale.defined() ? std::optional<at::Tensor>(scale) : std::nullopt;
  return memory.to_device(
      at::_embedding_bag_dense_backward(
          grad, indices, offset2bag, bag_size, is_max ? chosen : at::empty({0}, indices.options()), args.num_weights,
          /*scale_grad_by_freq=*/false, args.mode, weights, args.padding_idx));
}

} // namespace

at::Tensor embedding_bag_dense_backward(const Arguments<at::_ops::_embedding_bag_dense_backward>& args) {
  const at::Tensor &grad = args.grad, weights = value_of(args.per_sample_weights);
  if (grad.numel() == 0 || args.num_weights == 0) return at::zeros({args.num_weights, grad.size(1)}, grad.options());
  if (auto gradient = gradient_on_host(args)) return *std::move(gradient);
  if (mode_of(args.mode) == Mode::MAX) {
    const at::Tensor taken = at::where(args.bag_size.gt(0).unsqueeze(1), grad, 0);
    return at::zeros({args.num_weights, grad.size(1)}, grad.options())
        .scatter_add_(0, args.maximum_indices.to(at::kLong), taken);
  }
  // A bag of size 0 has no indices, or only padding indices.
  const at::Tensor each = mode_of(args.mode) == Mode::MEAN ? grad / args.bag_size.unsqueeze(1) : grad;
  if (auto sum = sum_by_index(args, each, weights)) return *sum;
  at::Tensor rows = for_each_index(each, args.offset2bag);
  if (weights.defined()) rows = rows * weights.unsqueeze(1);
  return at::embedding_dense_backward(rows, args.indices, args.num_weights, args.padding_idx, args.scale_grad_by_freq);
}

at::Tensor embedding_bag_per_sample_weights_backward(
    const Arguments<at::_ops::_embedding_bag_per_sample_weights_backward>& args) {
  TORCH_CHECK(
      mode_of(args.mode) == Mode::SUM, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  const at::Tensor rows = args.weight.index_select(0, args.indices);
  at::Tensor gradients = (for_each_index(args.grad, args.offset2bag) * rows).sum(1);
  return args.padding_idx < 0 ? gradients : gradients.masked_fill_(args.indices.eq(args.padding_idx), 0);
}

} // namespace torch_opencl::native
