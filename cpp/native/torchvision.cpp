// Operators of torchvision, for programs that import it.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>
#include <algorithm>

#include "../fallback.h"
#include "../registration.h"
#include "check.h"
#include "sparse.h"

namespace torch_opencl::native {
namespace {

// Elements of sampling matrices that are in memory at a time.
constexpr int64_t kMostElements = int64_t{1} << 24;

struct RoiAlign {
  double spatial_scale;
  int64_t pooled_height, pooled_width;
  int64_t
      sampling_ratio; // samples of a bin along a dimension; where it is not positive, as many as the bin has elements
  bool aligned;
};

// Sizes of the feature maps.
struct Features {
  int64_t batch_size, channels, height, width;

  int64_t positions() const {
    return batch_size * height * width;
  }
};

// Elements that all bins read along one dimension, [regions, bins, samples, 2]: two neighbours, and their weights
// in the bin's mean.
struct Samples {
  at::Tensor indices, weights;
};

// Regions from `begin` to `end`, in elements of feature maps.
Samples samples_of(const at::Tensor& begin, at::Tensor end, int64_t bins, int64_t extent, const RoiAlign& how) {
  at::Tensor size = end.sub_(begin);
  if (!how.aligned) size = size.clamp_min(1);
  const auto each_region = [](const at::Tensor& values) { return values.view({-1, 1, 1}); };
  const at::Tensor bin = each_region(size / bins);
  at::Tensor counts = bin.ceil();
  if (how.sampling_ratio > 0) counts.fill_(how.sampling_ratio);
  const int64_t most = how.sampling_ratio > 0 ? how.sampling_ratio : std::max<int64_t>(1, counts.max().item<double>());
  const at::Tensor sample = at::arange(most, begin.options()), nth = at::arange(bins, begin.options()).unsqueeze(1);
  const at::Tensor divisor = counts.clamp_min(1);
  const at::Tensor position = each_region(begin) + nth * bin + (sample + 0.5) * bin / divisor;
  const at::Tensor inside = position.ge(-1).logical_and_(position.le(extent)).logical_and_(sample.lt(counts));
  const at::Tensor x = at::where(inside, position, 0).clamp_min_(0);
  const at::Tensor low = x.floor().clamp_max_(extent - 1), fraction = x - low;
  const at::Tensor weights = at::stack({1 - fraction, fraction}, -1).div_(divisor.unsqueeze(-1));
  return {
      at::stack({low, (low + 1).clamp_max_(extent - 1)}, -1).to(at::kLong),
      at::where(inside.unsqueeze(-1), weights, 0)};
}

// The matrix that multiplies feature maps, [positions, channels], to the bins of regions. Bilinear interpolation is a
// product of one interpolation along each dimension.
sparse::Elements sampling_matrix(const at::Tensor& rois, const Features& features, const RoiAlign& how) {
  const at::Tensor corners = rois.narrow(1, 1, 4) * how.spatial_scale - (how.aligned ? 0.5 : 0.0);
  const auto corner = [&](int64_t column) { return corners.select(1, column); };
  const Samples y = samples_of(corner(1), corner(3), how.pooled_height, features.height, how);
  const Samples x = samples_of(corner(0), corner(2), how.pooled_width, features.width, how);
  // [regions, bins of y, bins of x, samples of y, 2, samples of x, 2]
  const auto along_y = [](const at::Tensor& t) { return t.unsqueeze(2).unsqueeze(-1).unsqueeze(-1); };
  const auto along_x = [](const at::Tensor& t) { return t.unsqueeze(1).unsqueeze(3).unsqueeze(3); };
  const at::Tensor image = rois.select(1, 0).to(at::kLong).mul_(features.height).view({-1, 1, 1, 1, 1, 1, 1});
  const at::Tensor columns = ((image + along_y(y.indices)) * features.width + along_x(x.indices)).view(-1);
  const at::Tensor values = (along_y(y.weights) * along_x(x.weights)).view(-1);
  const int64_t bins = rois.size(0) * how.pooled_height * how.pooled_width;
  const at::Tensor rows = at::arange(bins, columns.options()).unsqueeze(1).expand({bins, values.numel() / bins});
  return {rows.reshape(-1), columns, values, /*by_row=*/true};
}

// Calls `use(start, regions)` for runs of regions whose sampling matrices are not too large.
template <class Use>
void for_regions(const at::Tensor& rois, const Features& features, const RoiAlign& how, Use use) {
  const int64_t bins = how.pooled_height * how.pooled_width;
  // Without a sampling ratio a region reads at most as many elements as there are, each for up to four neighbours.
  const int64_t read = how.sampling_ratio > 0
      ? bins * how.sampling_ratio * how.sampling_ratio
      : (features.height + how.pooled_height) * (features.width + how.pooled_width);
  const int64_t step = std::max<int64_t>(1, kMostElements / std::max<int64_t>(1, 4 * read));
  for (int64_t start = 0; start < rois.size(0); start += step) {
    use(start, rois.narrow(0, start, std::min(step, rois.size(0) - start)));
  }
}

void check_rois(const at::Tensor& input, const at::Tensor& rois, const char* name) {
  TORCH_CHECK(input.dim() == 4, "roi_align: expected ", name, " of 4 dimensions, but got ", input.dim());
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5, "rois must have shape as Tensor[K, 5]");
  check_dtype("roi_align", "rois", rois, input.scalar_type());
}

at::Tensor roi_align(
    const at::Tensor& input,
    const at::Tensor& rois,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width,
    int64_t sampling_ratio,
    bool aligned) {
  check_rois(input, rois, "input");
  const RoiAlign how{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  const Features features{input.size(0), input.size(1), input.size(2), input.size(3)};
  const auto dtype = at::toOpMathType(input.scalar_type());
  const int64_t bins = pooled_height * pooled_width;
  const at::Tensor out = at::zeros({rois.size(0) * bins, features.channels}, input.options().dtype(dtype));
  if (out.numel() > 0 && input.numel() > 0) {
    const at::Tensor positions = input.permute({0, 2, 3, 1}).to(dtype).reshape({-1, features.channels});
    for_regions(rois.to(dtype), features, how, [&](int64_t start, const at::Tensor& regions) {
      const int64_t rows = regions.size(0) * bins;
      const auto matrix = sampling_matrix(regions, features, how);
      out.narrow(0, start * bins, rows).copy_(sparse::matmul(matrix, rows, positions));
    });
  }
  const at::Tensor pooled = out.view({-1, pooled_height, pooled_width, features.channels}).permute({0, 3, 1, 2});
  return pooled.to(input.scalar_type()).contiguous();
}

at::Tensor roi_align_backward(
    const at::Tensor& grad,
    const at::Tensor& rois,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width,
    int64_t batch_size,
    int64_t channels,
    int64_t height,
    int64_t width,
    int64_t sampling_ratio,
    bool aligned) {
  check_rois(grad, rois, "grad");
  const RoiAlign how{spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  const Features features{batch_size, channels, height, width};
  const auto dtype = at::toOpMathType(grad.scalar_type());
  const int64_t bins = pooled_height * pooled_width;
  const at::Tensor sum = at::zeros({features.positions(), channels}, grad.options().dtype(dtype));
  if (sum.numel() > 0 && grad.numel() > 0) {
    const at::Tensor rows = grad.permute({0, 2, 3, 1}).to(dtype).reshape({-1, channels});
    for_regions(rois.to(dtype), features, how, [&](int64_t start, const at::Tensor& regions) {
      const auto transposed = sampling_matrix(regions, features, how).transposed();
      const at::Tensor part = rows.narrow(0, start * bins, regions.size(0) * bins);
      sum.add_(sparse::matmul(transposed, features.positions(), part));
    });
  }
  return sum.view({batch_size, height, width, channels}).permute({0, 3, 1, 2}).to(grad.scalar_type()).contiguous();
}

// In float32 under autocast, as torchvision has it on other devices. The result has the dtype of the first argument.
void autocast_to_float32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto dtype = arguments[0].toTensor().scalar_type();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = first; i < stack->size(); i++) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isTensor()) {
      argument = at::autocast::cached_cast(at::kFloat, argument.toTensor(), at::kPrivateUse1);
    }
  }
  op.callBoxed(stack);
  for (size_t i = first; i < stack->size(); i++) {
    c10::IValue& result = (*stack)[i];
    if (result.isTensor() && result.toTensor().is_floating_point()) result = result.toTensor().to(dtype);
  }
}

} // namespace
} // namespace torch_opencl::native

// Operators that always run as torchvision's CPU functions on the host: non-maximum suppression, which visits the boxes
// one by one, and operators that few models use.
TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  for (const char* op :
       {"nms", "roi_pool", "_roi_pool_backward", "ps_roi_align", "_ps_roi_align_backward", "ps_roi_pool",
        "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
  }
  constexpr auto bit = [](at::ScalarType dtype) { return uint64_t{1} << static_cast<unsigned>(dtype); };
  constexpr torch_opencl::DtypeSet kDtypes = bit(at::kFloat) | bit(at::kDouble) | bit(at::kHalf);
  constexpr torch_opencl::OpRow kRow{.dtypes = kDtypes, .cpu = torch_opencl::CpuCalls::All, .cpu_dtypes = kDtypes};
  using torch_opencl::OpInfo;
  using torch_opencl::register_entry;
  using torch_opencl::form::Function;
  register_entry<Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::roi_align)>>(
      m, "roi_align", new OpInfo(kRow, "torchvision::roi_align", ""), &torch_opencl::native::roi_align);
  register_entry<Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::roi_align_backward)>>(
      m, "_roi_align_backward", new OpInfo(kRow, "torchvision::_roi_align_backward", ""),
      &torch_opencl::native::roi_align_backward);
}

TORCH_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  for (const char* op : {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&torch_opencl::native::autocast_to_float32>());
  }
}
