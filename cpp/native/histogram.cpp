#include "entries/reduce.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Histogram.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <cmath>

namespace torch_opencl::native {

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isIntegralType(self.scalar_type(), /*includeBool=*/false), "\"bincount\" not implemented for '",
      at::toString(self.scalar_type()), "'");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighted || weights->sizes() == self.sizes(), "weights should be 1-d and have the same length as input");
  // Floats are counted in their own dtype, everything else with weights in double.
  const at::ScalarType dtype = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const auto options = self.options().dtype(dtype);
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const auto [least, greatest] = self.aminmax();
  TORCH_CHECK(least.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(greatest.item<int64_t>() + 1, minlength);
  const at::Tensor amounts = weighted ? weights->to(dtype) : at::ones({}, options).expand_as(self);
  return at::zeros({bins}, options).index_add_(0, self.to(at::kLong), amounts);
}

namespace {

// Counts of each bin among the bin indices `indices`; the extra bin after the last is dropped.
at::Tensor counted(const at::Tensor& indices, int64_t bins) {
  const at::Tensor ones = at::ones({}, indices.options()).expand_as(indices);
  return at::zeros({bins + 1}, indices.options()).index_add_(0, indices, ones).narrow(0, 0, bins);
}

// [min, max]; if they are equal, the range of the values, widened by one either way if those are equal too.
template <class Value>
std::pair<Value, Value> histogram_range(const at::Tensor& values, const at::Scalar& min, const at::Scalar& max) {
  auto low = min.to<Value>(), high = max.to<Value>();
  if (low == high && values.numel() > 0) {
    const auto [least, greatest] = values.aminmax();
    low = least.item<Value>();
    high = greatest.item<Value>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  const bool is_finite = std::isfinite(static_cast<double>(low)) && std::isfinite(static_cast<double>(high));
  TORCH_CHECK(is_finite, "torch.histc: range of [", low, ", ", high, "] is not finite");
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  return {low, high};
}

// As on CUDA, which takes integers where the CPU does not: bounds are truncated to integers, and bins are exact.
at::Tensor integer_histogram(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  const at::Tensor values = self.reshape(-1).to(at::kLong);
  const auto [low, high] = histogram_range<int64_t>(values, min, max);
  const at::Tensor inside = values.ge(low).logical_and_(values.le(high));
  const at::Tensor indices = ((values - low) * bins).div(high - low, "floor").clamp_max_(bins - 1);
  return counted(at::where(inside, indices, bins), bins).to(self.scalar_type());
}

} // namespace

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return integer_histogram(self, bins, min, max);
  // Bin indices in the compute dtype, as borders between bins would shift by rounding.
  const at::Tensor values = self.reshape(-1).to(at::toOpMathType(self.scalar_type()));
  const auto [low, high] = histogram_range<double>(values, min, max);
  // Values outside, NaN too, go to an extra bin, which is dropped.
  const at::Tensor inside = values.ge(low).logical_and_(values.le(high));
  const at::Tensor indices = ((values - low) / (high - low) * bins).clamp_max_(bins - 1);
  // A range that the dtype does not hold makes indices inside it NaN.
  return counted(at::where(inside, indices, bins).nan_to_num_(static_cast<double>(bins)).to(at::kLong), bins)
      .to(self.scalar_type());
}

// Counts the rows of `self` by the bins that their coordinates fall into: the part that ATen's functions leave to a
// backend. They check arguments, and make edges and `hist`. A bin includes its lower edge, the last bin also its upper
// edge.
void histogramdd(
    const at::Tensor& self,
    const std::optional<at::Tensor>& weight,
    bool density,
    at::Tensor& hist,
    const at::TensorList& bin_edges) {
  const auto dims = static_cast<int64_t>(bin_edges.size());
  const at::Tensor rows = self.reshape({-1, dims});
  at::Tensor bin = at::zeros({rows.size(0)}, self.options().dtype(at::kLong)), inside;
  for (int64_t dim = 0; dim < dims; dim++) {
    const at::Tensor& edges = bin_edges[dim];
    const at::Tensor values = rows.select(1, dim).contiguous();
    const int64_t bins = edges.numel() - 1;
    const at::Tensor last = edges.select(0, bins);
    const at::Tensor fits = values.ge(edges.select(0, 0)).logical_and_(values.le(last));
    inside = inside.defined() ? inside.logical_and_(fits) : fits;
    const at::Tensor index = at::searchsorted(edges.contiguous(), values, /*out_int32=*/false, /*right=*/true).sub_(1);
    bin.mul_(bins).add_(index.clamp_(0, bins - 1));
  }
  const int64_t total = hist.numel();
  // Rows outside, NaN too, go to an extra bin, which is dropped.
  if (inside.defined()) bin = at::where(inside, bin, total);
  const bool weighted = weight.has_value() && weight->defined();
  const at::Tensor amounts = weighted ? weight->reshape(-1) : at::ones({}, self.options()).expand_as(bin);
  hist.copy_(at::zeros({total + 1}, self.options()).index_add_(0, bin, amounts).narrow(0, 0, total).view(hist.sizes()));
  if (!density) return;
  hist.div_(hist.sum());
  for (int64_t dim = 0; dim < dims; dim++) {
    at::DimVector sizes(static_cast<size_t>(dims), 1);
    sizes[static_cast<size_t>(dim)] = -1;
    hist.div_(bin_edges[dim].diff().view(sizes));
  }
}

// Bins of equal width: the edges define them too.
void histogramdd_linear(
    const at::Tensor& self,
    const std::optional<at::Tensor>& weight,
    bool density,
    at::Tensor& hist,
    const at::TensorList& bin_edges,
    bool /*local_search*/) {
  histogramdd(self, weight, density, hist, bin_edges);
}

void histogram_select_outer_bin_edges(
    const at::Tensor& input, const int64_t count, std::vector<double>& leftmost, std::vector<double>& rightmost) {
  const auto [least, greatest] = at::aminmax(input, 0);
  const at::Tensor low = least.cpu().to(at::kDouble), high = greatest.cpu().to(at::kDouble);
  for (int64_t dim = 0; dim < count; dim++) {
    leftmost[static_cast<size_t>(dim)] = low[dim].item<double>();
    rightmost[static_cast<size_t>(dim)] = high[dim].item<double>();
  }
}

} // namespace torch_opencl::native
