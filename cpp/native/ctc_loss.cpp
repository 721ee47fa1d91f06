#include "entries/loss.h"

#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "native/check.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/loss/ctc.rs.h"

namespace torch_opencl::native {
namespace {

// The tensors of a call, in the layouts that kernels take.
struct CtcBatch {
  CtcBatch(
      const at::Tensor& log_probs,
      const at::Tensor& targets,
      at::IntArrayRef input_lengths,
      at::IntArrayRef target_lengths)
      : log_probs(log_probs.contiguous()), targets(targets.reshape({-1})) {
    std::vector<int64_t> table;
    int64_t first = 0;
    for (size_t i = 0; i < input_lengths.size(); i++) {
      // Targets of one dimension follow each other; a row of a matrix is as long as the longest.
      if (targets.dim() > 1) first = static_cast<int64_t>(i) * targets.size(1);
      table.insert(table.end(), {input_lengths[i], target_lengths[i], first});
      first += target_lengths[i];
    }
    samples = at::tensor(table, at::kLong).to(log_probs.device());
  }

  bridge::CtcInputs args(int64_t blank) const {
    return {arg(log_probs), arg(targets), arg(samples), blank};
  }

  at::Tensor log_probs, targets, samples;
};

} // namespace

std::tuple<at::Tensor, at::Tensor> ctc_loss(
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths,
    int64_t blank,
    bool zero_infinity) {
  // PyTorch's own checks, and the outputs.
  auto [losses, log_alpha] =
      at::native::ctc_loss_meta(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
  if (log_probs.numel() == 0) return {losses.zero_(), std::move(log_alpha)};
  const CtcBatch batch(log_probs, targets, input_lengths, target_lengths);
  checked([&] { bridge::ctc_loss(batch.args(blank), arg(losses), arg(log_alpha)); });
  return {std::move(losses), std::move(log_alpha)};
}

at::Tensor ctc_loss_backward(const Arguments<at::_ops::_ctc_loss_backward>& args) {
  const auto [losses, states] = at::native::ctc_loss_meta(
      args.log_probs, args.targets, args.input_lengths, args.target_lengths, args.blank, args.zero_infinity);
  check_sizes("_ctc_loss_backward", "grad", args.grad, losses.sizes());
  check_sizes("_ctc_loss_backward", "neg_log_likelihood", args.neg_log_likelihood, losses.sizes());
  check_sizes("_ctc_loss_backward", "log_alpha", args.log_alpha, states.sizes());
  const at::Tensor gradient = args.grad.contiguous(), likelihood = args.neg_log_likelihood.contiguous(),
                   alpha = args.log_alpha.contiguous();
  for (const at::Tensor& tensor : {gradient, likelihood, alpha}) {
    check_dtype("_ctc_loss_backward", "the gradient and the results", tensor, args.log_probs.scalar_type());
  }
  at::Tensor grad_input = at::empty_like(args.log_probs, at::MemoryFormat::Contiguous);
  if (args.log_probs.numel() == 0) return grad_input;
  const CtcBatch batch(args.log_probs, args.targets, args.input_lengths, args.target_lengths);
  checked([&] {
    bridge::ctc_loss_backward(
        batch.args(args.blank), arg(gradient), arg(likelihood), arg(alpha), arg(grad_input), args.zero_infinity);
  });
  return grad_input;
}

} // namespace torch_opencl::native
