#include "entries/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "native/check.h"
#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/loss/margin.rs.h"

namespace torch_opencl::native {
namespace {

// Scores and targets as contiguous rows.
struct Rows {
  Rows(const at::Tensor& self, const at::Tensor& target, int64_t count, int64_t classes)
      : count(count), classes(classes), input(self.contiguous().view({count, classes})), target(target.contiguous()) {}

  bridge::MarginInputs args() const {
    return {arg(input), arg(target)};
  }

  // The CPU divides losses by the number of classes.
  double scale(int64_t reduction) const {
    return 1.0 / static_cast<double>(reduction == at::Reduction::Mean ? count * classes : classes);
  }

  int64_t count, classes;
  at::Tensor input, target;
};

Rows multi_margin_rows(const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight) {
  int64_t count = 0, classes = 0;
  at::native::multi_margin_loss_shape_check(count, classes, self.dim(), self, target, weight);
  return {self, target, count, classes};
}

Rows multilabel_margin_rows(const at::Tensor& self, const at::Tensor& target) {
  int64_t count = 0, classes = 0;
  at::native::multilabel_margin_loss_shape_check(count, classes, self.dim(), self, target);
  if (self.numel() > 0) {
    const auto [least, greatest] = target.aminmax();
    TORCH_CHECK(least.item<int64_t>() >= -1, "argument #2 'target' is out of range");
    TORCH_CHECK(greatest.item<int64_t>() < classes, "argument #2 'target' is out of range");
  }
  return {self, target, count, classes};
}

// Rows and parameters of a multi-class margin loss.
struct MultiMargin {
  template <class Op>
  MultiMargin(const char* op, const Arguments<Op>& args)
      : rows((check_power(args.p), multi_margin_rows(args.self, args.target, args.weight))),
        weight(contiguous(args.weight)),
        margin(args.margin.toDouble()),
        p(args.p.template to<int>()) {
    check_dtype(op, "weight", weight, args.self.scalar_type());
  }

  bridge::MultiMargin args() const {
    return {arg(weight), margin, p};
  }

  Rows rows;
  at::Tensor weight;
  double margin;
  int p;

 private:
  static void check_power(const at::Scalar& p) {
    const auto power = p.to<int64_t>();
    TORCH_CHECK(power == 1 || power == 2, "only p == 1 and p == 2 supported");
  }
};

// Losses of rows as the reduction asks for; a row without a batch has one loss.
at::Tensor reduced(const at::Tensor& losses, int64_t reduction, bool is_batch) {
  if (reduction == at::Reduction::Mean) return losses.mean();
  if (reduction == at::Reduction::Sum) return losses.sum();
  return is_batch ? losses : losses.squeeze(0);
}

// One gradient for each row, or one without dimensions for all.
at::Tensor upstream(const char* op, const at::Tensor& grad_output, int64_t reduction, const Rows& rows) {
  const bool is_one = reduction != at::Reduction::None || grad_output.dim() == 0;
  check_numel(op, "grad_output", grad_output, is_one ? 1 : rows.count);
  check_dtype(op, "grad_output", grad_output, rows.input.scalar_type());
  return is_one ? grad_output.reshape({}) : grad_output.contiguous();
}

} // namespace

at::Tensor multi_margin_loss(const Arguments<at::_ops::multi_margin_loss>& args) {
  const MultiMargin loss("multi_margin_loss", args);
  const at::Tensor losses = at::empty({loss.rows.count}, args.self.options());
  if (args.self.numel() > 0) {
    checked([&] { bridge::multi_margin_loss(loss.rows.args(), loss.args(), arg(losses)); });
  }
  return reduced(losses, args.reduction, args.target.dim() > 0);
}

at::Tensor multi_margin_loss_backward(const Arguments<at::_ops::multi_margin_loss_backward>& args) {
  constexpr const char* op = "multi_margin_loss_backward";
  const MultiMargin loss(op, args);
  at::Tensor grad_input = at::empty_like(args.self, at::MemoryFormat::Contiguous);
  if (args.self.numel() == 0) return grad_input;
  const at::Tensor grad = upstream(op, args.grad_output, args.reduction, loss.rows);
  checked([&] {
    bridge::multi_margin_loss_backward(
        loss.rows.args(), loss.args(), arg(grad), loss.rows.scale(args.reduction), arg(grad_input));
  });
  return grad_input;
}

std::tuple<at::Tensor, at::Tensor> multilabel_margin_loss_forward(
    const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  const Rows rows = multilabel_margin_rows(self, target);
  const at::Tensor losses = at::empty({rows.count}, self.options());
  at::Tensor is_target = at::empty(target.sizes(), self.options());
  if (self.numel() > 0) {
    checked([&] { bridge::multilabel_margin_loss(rows.args(), arg(is_target), arg(losses)); });
  }
  return {reduced(losses, reduction, target.dim() > 1), std::move(is_target)};
}

at::Tensor multilabel_margin_loss_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    int64_t reduction,
    const at::Tensor& is_target) {
  const Rows rows = multilabel_margin_rows(self, target);
  check_sizes("multilabel_margin_loss_backward", "is_target", is_target, target.sizes());
  check_dtype("multilabel_margin_loss_backward", "is_target", is_target, self.scalar_type());
  at::Tensor grad_input = at::empty_like(self, at::MemoryFormat::Contiguous);
  if (self.numel() == 0) return grad_input;
  const at::Tensor grad = upstream("multilabel_margin_loss_backward", grad_output, reduction, rows);
  const at::Tensor marks = is_target.contiguous();
  checked([&] {
    bridge::multilabel_margin_loss_backward(rows.args(), arg(marks), arg(grad), rows.scale(reduction), arg(grad_input));
  });
  return grad_input;
}

} // namespace torch_opencl::native
