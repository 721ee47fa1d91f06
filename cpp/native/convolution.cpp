#include "entries/convolution.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/StringUtil.h>
#include <c10/util/strides.h>
#include <algorithm>
#include <numeric>

#include "cpu/host_call.h"
#include "native/check.h"
#include "native/contiguous.h"
#include "native/fused.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/convolution/format.rs.h"
#include "torch_opencl/rust/ops/convolution/fused.rs.h"
#include "torch_opencl/rust/ops/convolution/mod.rs.h"

namespace torch_opencl::native {
namespace {

c10::SymIntArrayRef symbolic(at::IntArrayRef list) {
  return c10::fromIntArrayRefSlow(list);
}

bridge::ConvDirection direction(bool transposed) {
  return transposed ? bridge::ConvDirection::Transposed : bridge::ConvDirection::Forward;
}

// Arguments of a convolution.
struct Convolution {
  const at::Tensor& input;
  const at::Tensor& weight;
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  at::IntArrayRef output_padding;
  int64_t groups;

  bridge::ConvParameters args() const {
    return {arg(stride), arg(padding), arg(dilation), groups};
  }

  // PyTorch's `convolution` makes these checks before it calls; direct callers do not.
  void check() const {
    TORCH_CHECK(
        input.scalar_type() == weight.scalar_type(), "convolution: input of dtype ", input.scalar_type(),
        " and weight of dtype ", weight.scalar_type(), " should have the same dtype; shapes ", input.sizes(), " and ",
        weight.sizes());
    const int64_t spatial = input.dim() - 2;
    TORCH_CHECK(
        spatial >= 1 && weight.dim() == input.dim(), "convolution: expected input and weight of the same number of ",
        "dimensions, at least 3, but got shapes ", input.sizes(), " and ", weight.sizes());
    check_list("stride", stride, 1);
    check_list("padding", padding, 0);
    check_list("dilation", dilation, 1);
    check_list("output_padding", output_padding, 0);
    check_list("kernel size", weight.sizes().slice(2), 1);
    check_channels();
    for (int64_t d = 0; d < spatial; d++) check_extent(d);
  }

  // Raises if the padding of a transposed convolution would remove more than there is.
  std::vector<int64_t> output_sizes() const {
    if (!transposed) return at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
    const auto sizes =
        at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation, groups);
    const at::IntArrayRef spatial = at::IntArrayRef(sizes).slice(2);
    TORCH_CHECK(
        !has_data() || std::all_of(spatial.begin(), spatial.end(), [](int64_t size) { return size >= 1; }),
        "Given input size per channel: (", c10::Join(" x ", input.sizes().slice(2)),
        "). Calculated output size per channel: (", c10::Join(" x ", spatial), "). Output size is too small");
    return sizes;
  }

  // Format of the result and all gradients: channels_last if either operand is, as on PyTorch's other devices.
  at::MemoryFormat memory_format() const {
    const at::MemoryFormat last = channels_last();
    const bool has = input.suggest_memory_format() == last || weight.suggest_memory_format() == last;
    return has ? last : at::MemoryFormat::Contiguous;
  }

  at::MemoryFormat channels_last() const {
    return weight.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  }

  // True if matrix instructions compute this convolution, or with `scatters` its transpose, and need runs of channels
  // in images and in the weight, whatever the format of the result.
  bool needs_runs(bool scatters) const {
    return (groups == 1 || !scatters) && weight_needs_runs() && !reads_images();
  }

  // The same for the gradient of the weight.
  bool weight_needs_runs() const {
    return weight.dim() > 3 && bridge::convolution_needs_channels_last(arg(input), arg(weight), groups);
  }

  // True if matrix instructions multiply the weight by each contiguous image in place.
  bool reads_images() const {
    return multiplies_images() && weight_needs_runs();
  }

  // An image in the format of the result, as kernels that read one format and write another take up to three times as
  // long, or with runs of channels.
  at::Tensor formatted(const at::Tensor& image, at::MemoryFormat format, bool needs_runs) const {
    if (needs_runs) return image.contiguous(channels_last());
    if (reads_images()) return image.contiguous();
    return image.suggest_memory_format() == format ? repeated_in_batches_only(image, format) : image.contiguous(format);
  }

  // Computes the convolution, or with `scatters` its transpose: both are forward passes, and gradients of each other.
  void compute(
      const at::Tensor& output, const at::Tensor& image, const at::Tensor& bias, bool needs_runs, bool scatters) const {
    const bool has_strides = std::any_of(stride.begin(), stride.end(), [](int64_t step) { return step > 1; });
    if (needs_runs && scatters && has_strides) return scatter_by_remainder(output, image, bias);
    const at::Tensor kernel = formatted_weight(weight, needs_runs, scatters);
    checked([&] { bridge::convolve(arg(output), arg(image), arg(kernel), arg(bias), args(), direction(scatters)); });
  }

  // The weight, or a part of it; if it needs runs, of the channels that are summed: with `scatters` those of the first
  // dimension.
  at::Tensor formatted_weight(const at::Tensor& part, bool needs_runs, bool scatters) const {
    if (!needs_runs) return reads_images() ? part.contiguous() : repeated_in_batches_only(part);
    if (!scatters) return part.contiguous(channels_last());
    return part.transpose(0, 1).contiguous(channels_last()).transpose(0, 1);
  }

  // Raises unless the bias has a value for each channel of an output of these sizes.
  void check_bias(const std::optional<at::Tensor>& bias, at::IntArrayRef sizes) const {
    if (!bias.has_value()) return;
    check_numel("convolution", "bias", *bias, sizes[1]);
    check_dtype("convolution", "bias", *bias, input.scalar_type());
  }

  // Without values in either operand all sums are empty, and no kernel is launched.
  bool has_data() const {
    return input.numel() > 0 && weight.numel() > 0;
  }

 private:
  // True if a contiguous convolution is a product of the weight and each image, of a size that suits tiles.
  bool multiplies_images() const {
    const auto all = [](at::IntArrayRef list, int64_t wanted) {
      return std::all_of(list.begin(), list.end(), [&](int64_t value) { return value == wanted; });
    };
    const at::IntArrayRef positions = input.sizes().slice(2);
    return groups == 1 && memory_format() == at::MemoryFormat::Contiguous && all(weight.sizes().slice(2), 1) &&
        all(stride, 1) && all(padding, 0) && all(output_padding, 0) &&
        bridge::convolution_reads_images(c10::multiply_integers(positions));
  }

  // The transposed convolution as one with stride 1 for each remainder of the result's positions by the stride, with
  // the kernel elements that reach them. Their weights are copied side by side, as matrix instructions load runs of
  // them.
  void scatter_by_remainder(const at::Tensor& output, const at::Tensor& image, const at::Tensor& bias) const {
    // Larger remainders have no positions.
    std::vector<int64_t> remainders;
    for (size_t d = 0; d < stride.size(); d++)
      remainders.push_back(std::min(stride[d], output.size(static_cast<int64_t>(d) + 2)));
    for (int64_t part = 0; part < c10::multiply_integers(remainders); part++) {
      at::Tensor result = output, elements = weight;
      std::vector<int64_t> part_padding, part_dilation;
      int64_t rest = part;
      for (size_t d = 0; d < stride.size(); d++) {
        const auto dim = static_cast<int64_t>(d) + 2;
        const int64_t remainder = rest % remainders[d], step = stride[d] / std::gcd(dilation[d], stride[d]);
        rest /= remainders[d];
        // Kernel element e reads position (p + padding - e * dilation) / stride of the image, where that is whole.
        const auto offset = [&](int64_t element) { return remainder + padding[d] - element * dilation[d]; };
        int64_t first = 0;
        while (first < step && offset(first) % stride[d] != 0) first++;
        result = result.slice(dim, remainder, std::nullopt, stride[d]);
        elements = elements.slice(dim, first == step ? weight.size(dim) : first, std::nullopt, step);
        part_padding.push_back(offset(first) / stride[d]);
        part_dilation.push_back(step * dilation[d] / stride[d]);
      }
      const std::vector<int64_t> ones(stride.size(), 1);
      const Convolution call{image, elements, ones, part_padding, part_dilation, true, output_padding, groups};
      if (elements.numel() > 0)
        call.compute(result, image, bias, /*needs_runs=*/true, /*scatters=*/true);
      else if (bias.defined())
        result.copy_(at::native::reshape_bias(result.dim(), bias).expand_as(result));
      else
        result.zero_();
    }
  }

  void check_list(const char* name, at::IntArrayRef list, int64_t least) const {
    TORCH_CHECK(
        static_cast<int64_t>(list.size()) == input.dim() - 2 &&
            std::all_of(list.begin(), list.end(), [&](int64_t value) { return value >= least; }),
        "convolution: expected ", input.dim() - 2, " values of at least ", least, " for ", name, ", but got ", list);
  }

  void check_channels() const {
    TORCH_CHECK(groups > 0, "convolution: expected groups to be positive, but got ", groups);
    const int64_t channels = transposed ? weight.size(0) : weight.size(1) * groups;
    TORCH_CHECK(
        input.size(1) == channels && weight.size(0) % groups == 0, "convolution: a weight of shape ", weight.sizes(),
        " in ", groups, " groups takes inputs of ", channels, " channels, but got shape ", input.sizes());
  }

  void check_extent(int64_t d) const {
    if (transposed) {
      TORCH_CHECK(
          output_padding[d] < std::max(stride[d], dilation[d]), "convolution: output padding must be smaller than ",
          "either stride or dilation, but got ", output_padding, ", ", stride, " and ", dilation);
      return;
    }
    const int64_t size = input.size(d + 2) + 2 * padding[d], extent = dilation[d] * (weight.size(d + 2) - 1) + 1;
    TORCH_CHECK(
        size >= extent, "convolution: a kernel of shape ", weight.sizes().slice(2),
        " does not fit into an input of shape ", input.sizes(), " with padding ", padding, " and dilation ", dilation);
  }
};

// Does not check arguments that only one of the operators has.
template <class Op>
Convolution call_of(const Arguments<Op>& args) {
  const Convolution call{args.input,    args.weight,     args.stride,         args.padding,
                         args.dilation, args.transposed, args.output_padding, args.groups};
  call.check();
  return call;
}

bool is_small(const Convolution& call, at::IntArrayRef sizes) {
  const int64_t results = c10::multiply_integers(sizes);
  const int64_t positions = call.transposed ? call.input.numel() : results;
  if (!call.has_data()) return false;
  const int64_t multiplications = positions * (call.weight.numel() / call.weight.size(0));
  return cpu_policy::is_small(Cost::Convolution, {.results = results, .multiplications = multiplications});
}

} // namespace

at::Tensor convolution(const Arguments<at::_ops::convolution_overrideable>& args) {
  const Convolution call = call_of(args);
  const at::Tensor &input = args.input, &weight = args.weight;
  const std::optional<at::Tensor>& bias = args.bias;
  const auto sizes = call.output_sizes();
  call.check_bias(bias, sizes);
  const at::MemoryFormat format = call.memory_format();
  if (is_small(call, sizes)) {
    const auto result = attempt_on_host<at::_ops::convolution, Cost::Convolution>(
        input, weight, bias, symbolic(call.stride), symbolic(call.padding), symbolic(call.dilation), call.transposed,
        symbolic(call.output_padding), call.groups);
    if (result.has_value()) return result->contiguous(format);
  }
  const bool needs_runs = call.needs_runs(args.transposed);
  const at::Tensor image = call.formatted(input, format, needs_runs);
  const at::Tensor output = at::empty(sizes, input.options().memory_format(format));
  if (!call.has_data()) {
    output.zero_();
    if (bias.has_value() && bias->defined()) output.add_(at::native::reshape_bias(output.dim(), *bias));
    return output;
  }
  call.compute(output, image, bias.value_or(at::Tensor()), needs_runs, args.transposed);
  return output;
}

void fused_convolution(
    int64_t epilogue,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    const std::vector<int64_t>& stride,
    const std::vector<int64_t>& padding,
    const std::vector<int64_t>& dilation,
    int64_t groups,
    bool channels_last,
    const std::vector<at::Tensor>& buffers,
    const std::vector<int64_t>& scalars) {
  const std::vector<int64_t> output_padding(stride.size(), 0);
  const Convolution call{input, weight, stride, padding, dilation, false, output_padding, groups};
  call.check();
  const auto sizes = call.output_sizes();
  call.check_bias(bias, sizes);
  if (c10::multiply_integers(sizes) == 0) return;
  // The format that the source was generated for: strides of dimensions of size 1 do not determine it.
  const at::MemoryFormat format = channels_last ? call.channels_last() : at::MemoryFormat::Contiguous;
  const auto contiguous = c10::contiguous_strides(sizes);
  std::vector<int64_t> strides(contiguous.begin(), contiguous.end());
  if (format == at::MemoryFormat::ChannelsLast) strides = c10::get_channels_last_strides_2d(sizes);
  if (format == at::MemoryFormat::ChannelsLast3d) strides = c10::get_channels_last_strides_3d(sizes);
  const FusedOperands fused(epilogue, buffers, scalars);
  const bool needs_runs = call.needs_runs(/*scatters=*/false);
  const at::Tensor image = call.formatted(input, format, needs_runs);
  const at::Tensor kernel = call.formatted_weight(weight, needs_runs, /*scatters=*/false);
  checked([&] {
    bridge::fused_convolution(
        fused.result(input.scalar_type(), sizes, strides), arg(image), arg(kernel), arg(bias), call.args(),
        fused.arg());
  });
}

bool convolution_is_gemm(int64_t out_channels, int64_t in_channels) {
  return bridge::convolution_is_gemm(out_channels, in_channels);
}

// Gradients of input, weight and bias, if `output_mask` asks for them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const Arguments<at::_ops::convolution_backward_overrideable>& args) {
  const Convolution call = call_of(args);
  const at::Tensor &grad_output = args.grad_output, &input = args.input, &weight = args.weight;
  const bool transposed = args.transposed;
  check_sizes("convolution_backward", "grad_output", grad_output, call.output_sizes());
  check_dtype("convolution_backward", "grad_output", grad_output, input.scalar_type());
  const at::MemoryFormat format = call.memory_format();
  if (is_small(call, grad_output.sizes())) {
    const c10::SymInt channels = grad_output.size(1);
    const auto gradients = attempt_on_host<at::_ops::convolution_backward, Cost::Convolution>(
        grad_output, input, weight, at::OptionalSymIntArrayRef(channels), symbolic(call.stride), symbolic(call.padding),
        symbolic(call.dilation), transposed, symbolic(call.output_padding), call.groups, args.output_mask);
    if (gradients.has_value()) {
      const auto formatted = [&](const at::Tensor& grad) { return grad.defined() ? grad.contiguous(format) : grad; };
      const auto& [grad_input, grad_weight, grad_bias] = *gradients;
      return {formatted(grad_input), formatted(grad_weight), grad_bias};
    }
  }
  const bool has_data = call.has_data() && grad_output.numel() > 0;
  const bool input_needs_runs = args.output_mask[0] && call.needs_runs(!transposed);
  const bool weight_needs_runs = args.output_mask[1] && call.weight_needs_runs();
  const at::Tensor gradient = repeated_in_batches_only(grad_output, format);
  const at::Tensor runs =
      input_needs_runs || weight_needs_runs ? call.formatted(grad_output, format, true) : at::Tensor();
  at::Tensor grad_input, grad_weight, grad_bias;
  if (args.output_mask[0]) {
    grad_input = has_data ? at::empty_like(input, format) : at::zeros_like(input, at::TensorOptions(), format);
    // The input's gradient is the transposed convolution of grad_output, or vice versa.
    if (has_data)
      call.compute(
          grad_input, input_needs_runs ? runs : call.formatted(gradient, format, false), at::Tensor(), input_needs_runs,
          !transposed);
  }
  if (args.output_mask[1]) {
    grad_weight = has_data ? at::empty_like(weight, format) : at::zeros_like(weight, at::TensorOptions(), format);
    if (has_data) {
      const at::Tensor image = call.formatted(input, format, weight_needs_runs);
      const at::Tensor& ours = weight_needs_runs ? runs : gradient;
      // A transposed convolution exchanges the roles of input and output.
      const at::Tensor& from = transposed ? ours : image;
      const at::Tensor& output = transposed ? image : ours;
      checked([&] { bridge::convolve_backward_weight(arg(grad_weight), arg(from), arg(output), call.args()); });
    }
  }
  if (args.output_mask[2]) {
    at::DimVector dims{0};
    for (int64_t dim = 2; dim < grad_output.dim(); dim++) dims.push_back(dim);
    grad_bias = gradient.sum(dims);
  }
  return {grad_input, grad_weight, grad_bias};
}

} // namespace torch_opencl::native
