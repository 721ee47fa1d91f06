#include "distributed/process_group_reduction.h"

#include "distributed/process_group_staging.h"

namespace torch_opencl::distributed {
namespace {

using c10d::ReduceOp;

at::ScalarType reduced_in(at::ScalarType dtype) {
  if (cpu_backends_support(dtype)) return dtype;
  switch (dtype) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
      return at::kLong;
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e4m3fnuz:
    case at::kFloat8_e5m2:
    case at::kFloat8_e5m2fnuz:
      return at::kFloat;
    case at::kUInt64:
      C10_THROW_ERROR(TypeError, "torch.distributed: opencl tensors of UInt64 cannot be reduced by MIN or MAX");
    default:
      C10_THROW_ERROR(TypeError, c10::str("torch.distributed: opencl tensors of ", dtype, " cannot be reduced"));
  }
}

} // namespace

Reduction::Reduction(const ReduceOp& op, at::ScalarType dtype) : op_(op) {
  if (op.op_ == ReduceOp::PREMUL_SUM) {
    const auto* factor = dynamic_cast<const compat::PreMulSum*>(op.supplement_.get());
    TORCH_CHECK(
        factor != nullptr,
        "ReduceOp.PREMUL_SUM needs a factor: create it with torch.distributed._make_nccl_premul_sum");
    factor_ = *factor;
    op_ = ReduceOp::SUM;
  }
  // Checked here: CPU backends would fail after the exchange, with a message about casts.
  TORCH_CHECK_TYPE(
      !c10::isIntegralType(dtype, /*includeBool=*/true) || (op_.op_ != ReduceOp::AVG && !factor_.has_value()),
      "torch.distributed: opencl tensors of ", dtype, " cannot be reduced by AVG or PREMUL_SUM. Reduce them by SUM.");
  // CPU backends would add bytes, and 2 is not a valid bool.
  if (dtype == at::kBool && op_.op_ == ReduceOp::SUM) op_ = ReduceOp::BOR;
}

// True if signed and unsigned integers give the same bits as result.
bool Reduction::wraps() const {
  switch (op_.op_) {
    case ReduceOp::SUM:
    case ReduceOp::PRODUCT:
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      return !factor_.has_value();
    default:
      return false;
  }
}

at::Tensor Reduction::viewed(const at::Tensor& tensor) const {
  return tensor.scalar_type() == at::kUInt64 && wraps() ? tensor.view(at::kLong) : tensor;
}

bool Reduction::takes(const at::Tensor& tensor) const {
  return !factor_.has_value() && cpu_backends_support(tensor.scalar_type());
}

at::Tensor Reduction::prepare(const at::Tensor& tensor) const {
  const at::ScalarType dtype = reduced_in(tensor.scalar_type());
  const at::Tensor copy = tensor.to(dtype, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  if (!factor_.has_value()) return copy;
  if (!factor_->tensor_factor.defined()) return copy.mul_(factor_->double_factor);
  return copy.mul_(factor_->tensor_factor.to(tensor.device()));
}

} // namespace torch_opencl::distributed
