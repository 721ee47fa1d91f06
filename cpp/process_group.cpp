#include "process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <map>

#include "compat.h"
#include "error.h"
#include "process_group_work.h"

namespace torch_opencl {
namespace distributed {
namespace {

using c10d::OpType;
using Work = c10::intrusive_ptr<c10d::Work>;

#if TORCH_OPENCL_TORCH_AT_LEAST(13)
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;
#endif

// A reduction as engines know it: of their dtypes, and without a factor.
class Reduction {
 public:
  explicit Reduction(const c10d::ReduceOp& op) : op_(op) {
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
    const auto* factor = dynamic_cast<const PreMulSum*>(op.supplement_.get());
    TORCH_CHECK(factor != nullptr, "ReduceOp.PREMUL_SUM needs a factor: make it by _make_nccl_premul_sum");
    factor_ = *factor;
    op_ = c10d::ReduceOp::SUM;
  }

  const c10d::ReduceOp& op() const {
    return op_;
  }

  bool takes(const at::Tensor& tensor) const {
    return !factor_.has_value() && engines_know(tensor.scalar_type());
  }

  // A tensor of its own, whose elements engines reduce.
  at::Tensor prepare(const at::Tensor& tensor) const {
    const at::ScalarType dtype = reduced_in(tensor.scalar_type());
    const at::Tensor copy = tensor.to(dtype, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
    if (!factor_.has_value()) return copy;
    if (!factor_->tensor_factor.defined()) return copy.mul_(factor_->double_factor);
    return copy.mul_(factor_->tensor_factor.to(tensor.device()));
  }

 private:
  static at::ScalarType reduced_in(at::ScalarType dtype) {
    if (engines_know(dtype)) return dtype;
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
      default:
        C10_THROW_ERROR(TypeError, c10::str("torch.distributed: opencl tensors of ", dtype, " cannot be reduced"));
    }
  }

  c10d::ReduceOp op_;
  std::optional<PreMulSum> factor_;
};

at::Tensor flat(const Tensors& tensors) {
  Tensors rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.reshape({-1}));
  return at::cat(rows);
}

const at::Tensor& first(const Tensors& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "torch.distributed: expected tensors, got an empty list");
  return tensors.front();
}

// Has an engine for tensors of the CPU carry out collectives of device tensors. The caller's thread waits for the
// current stream, and gives the engine the tensors' own memory where host and device share it.
class Backend final : public c10d::Backend {
 public:
  explicit Backend(c10::intrusive_ptr<c10d::Backend> engine)
      : c10d::Backend(engine->getRank(), engine->getSize()), engine_(std::move(engine)) {}

  const std::string getBackendName() const override {
    return engine_->getBackendName();
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return engine_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    engine_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {
    engine_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return engine_->getSequenceNumberForGroup();
  }
  c10d::ErrorType getError() override {
    return engine_->getError();
  }
  void abort() override {
    engine_->abort();
  }
  void shutdown() override {
    engine_->shutdown();
  }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Staging staging;
    Tensors host = staging.moved(tensors, options.rootRank == rank_ ? Access::Read : Access::Write);
    return launch(OpType::BROADCAST, engine_->broadcast(host, options), std::move(staging), {tensors});
  }

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const Reduction reduction(options.reduceOp);
    Staging staging;
    Tensors host = reduced(staging, tensors, reduction);
    c10d::AllreduceOptions theirs = options;
    theirs.reduceOp = reduction.op();
    return launch(OpType::ALLREDUCE, engine_->allreduce(host, theirs), std::move(staging), {tensors});
  }

  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    const Reduction reduction(options.reduceOp);
    Staging staging;
    Tensors host = reduced(staging, tensors, reduction);
    c10d::AllreduceCoalescedOptions theirs = options;
    theirs.reduceOp = reduction.op();
    return launch(
        OpType::ALLREDUCE_COALESCED, engine_->allreduce_coalesced(host, theirs), std::move(staging), {tensors});
  }

  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    const Reduction reduction(options.reduceOp);
    Staging staging;
    Tensors host = reduced(staging, tensors, reduction, /*is_wanted=*/options.rootRank == rank_);
    c10d::ReduceOptions theirs = options;
    theirs.reduceOp = reduction.op();
    return launch(OpType::REDUCE, engine_->reduce(host, theirs), std::move(staging), {tensors});
  }

  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    Staging staging;
    TensorLists written = staging.moved(outputs, Access::Write);
    Tensors read = staging.moved(inputs, Access::Read);
    return launch(OpType::ALLGATHER, engine_->allgather(written, read, options), std::move(staging), outputs);
  }

  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    // gloo would divide dimension 0 of the output, which may be shorter.
    const auto elements = [](const at::Tensor& host) { return host.view({host.numel()}); };
    TORCH_CHECK_VALUE(
        output.is_contiguous() && input.is_contiguous(), "all_gather_into_tensor: tensors must be contiguous");
    TORCH_CHECK_VALUE(
        output.numel() == input.numel() * size_, "all_gather_into_tensor: expected an output of ", size_,
        " times the input's ", input.numel(), " elements, got ", output.numel());
    Staging staging;
    at::Tensor written = elements(staging.moved(output, Access::Write));
    at::Tensor read = elements(staging.moved(input, Access::Read));
    return launch(
        OpType::_ALLGATHER_BASE, engine_->_allgather_base(written, read, options), std::move(staging), {{output}});
  }

  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    Staging staging;
    TensorLists written = staging.moved(outputs, Access::Write);
    Tensors read = staging.moved(inputs, Access::Read);
    return launch(
        OpType::ALLGATHER_COALESCED, engine_->allgather_coalesced(written, read, options), std::move(staging), outputs);
  }

  Work allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    Staging staging;
    Tensors written = staging.moved(outputs, Access::Write), read = staging.moved(inputs, Access::Read);
    Work work = engine_->allgather_into_tensor_coalesced(written, read, options);
    return launch(OpType::COALESCED, std::move(work), std::move(staging), {outputs}, Ends::ByWait);
  }

  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    Staging staging;
    TensorLists written = staging.moved(outputs, Access::Write);
    Tensors read = staging.moved(inputs, Access::Read);
    return launch(OpType::GATHER, engine_->gather(written, read, options), std::move(staging), outputs);
  }

  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    Staging staging;
    Tensors written = staging.moved(outputs, Access::Write);
    TensorLists read = staging.moved(inputs, Access::Read);
    return launch(OpType::SCATTER, engine_->scatter(written, read, options), std::move(staging), {outputs});
  }

  Work reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override {
    Tensors joined;
    for (const Tensors& list : inputs) {
      TORCH_CHECK_VALUE(
          static_cast<int>(list.size()) == size_, "reduce_scatter: expected one tensor for each of ", size_,
          " processes, got ", list.size());
      joined.push_back(flat(list));
    }
    return reduce_and_split(OpType::REDUCE_SCATTER, outputs, joined, options);
  }

  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return reduce_and_split(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, options);
  }

  Work reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return reduce_and_split(OpType::COALESCED, outputs, inputs, options);
  }

  Work alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_sizes,
      std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    Staging staging;
    at::Tensor written = staging.moved(output, Access::Write), read = staging.moved(input, Access::Read);
    return launch(
        OpType::ALLTOALL_BASE, engine_->alltoall_base(written, read, output_sizes, input_sizes, options),
        std::move(staging), {{output}});
  }

  // Not all engines have it, nor for tensors of different sizes: as one of pieces of two tensors.
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    const auto sizes = [](const Tensors& tensors) {
      std::vector<int64_t> result;
      result.reserve(tensors.size());
      for (const at::Tensor& tensor : tensors) result.push_back(tensor.numel());
      return result;
    };
    std::vector<int64_t> output_sizes = sizes(outputs), input_sizes = sizes(inputs);
    int64_t total = 0;
    for (const int64_t size : output_sizes) total += size;
    const at::Tensor sent = flat(inputs), received = at::empty({total}, first(outputs).options());
    Staging staging;
    at::Tensor written = staging.moved(received, Access::Write), read = staging.moved(sent, Access::Read);
    for (const at::Tensor& output : outputs) staging.keep(output);
    staging.then([outputs, pieces = received.split_with_sizes(output_sizes)] {
      for (size_t i = 0; i < pieces.size(); ++i) outputs[i].copy_(pieces[i].view(outputs[i].sizes()));
    });
    Work work = engine_->alltoall_base(written, read, output_sizes, input_sizes, options);
    return launch(OpType::ALLTOALL, std::move(work), std::move(staging), {outputs});
  }

  Work send(Tensors& tensors, int target, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Read);
    return launch(OpType::SEND, engine_->send(host, target, tag), std::move(staging), {tensors}, Ends::ByWait);
  }

  Work recv(Tensors& tensors, int source, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Write);
    return launch(OpType::RECV, engine_->recv(host, source, tag), std::move(staging), {tensors}, Ends::ByWait);
  }

  Work recvAnysource(Tensors& tensors, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Write);
    return launch(
        OpType::RECVANYSOURCE, engine_->recvAnysource(host, tag), std::move(staging), {tensors}, Ends::ByWait);
  }

  Work barrier(const c10d::BarrierOptions& options) override {
    // What comes before it has been done, on this device too.
    const c10::impl::VirtualGuardImpl device(c10::DeviceType::PrivateUse1);
    const c10::Device current = device.getDevice();
    if (bridge::is_initialized(current.index())) device.synchronizeStream(device.getStream(current));
    return engine_->barrier(options);
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    engine_->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  // Tensors that the engine reduces in place: the caller's own, or copies that it can reduce.
  static Tensors reduced(Staging& staging, const Tensors& tensors, const Reduction& reduction, bool is_wanted = true) {
    Tensors host;
    for (const at::Tensor& tensor : tensors) {
      if (reduction.takes(tensor)) {
        host.push_back(staging.values(tensor, Access::Write));
        continue;
      }
      const at::Tensor copy = reduction.prepare(tensor);
      host.push_back(staging.values(copy, Access::Write));
      if (!is_wanted) continue;
      staging.keep(tensor);
      staging.then([tensor, copy] { tensor.copy_(copy); });
    }
    return host;
  }

  // gloo, too, reduces all and drops what other processes get, but not before somebody waits.
  Work reduce_and_split(
      OpType type, const Tensors& outputs, const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK_VALUE(
        outputs.size() == inputs.size(), "reduce_scatter: expected as many outputs as inputs, got ", outputs.size(),
        " and ", inputs.size());
    const Reduction reduction(options.reduceOp);
    Staging staging;
    Tensors host;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor &output = outputs[i], &input = inputs[i];
      TORCH_CHECK_VALUE(
          input.numel() == output.numel() * size_, "reduce_scatter: expected an input of ", size_,
          " times the output's ", output.numel(), " elements, got ", input.numel());
      TORCH_CHECK_VALUE(
          input.scalar_type() == output.scalar_type(), "reduce_scatter: expected an output of the input's dtype ",
          input.scalar_type(), ", got ", output.scalar_type());
      const at::Tensor copy = reduction.prepare(input);
      host.push_back(staging.values(copy, Access::Write));
      staging.keep(output);
      staging.then([output, copy, rank = rank_, size = size_] {
        output.copy_(copy.view({size, -1}).select(0, rank).view(output.sizes()));
      });
    }
    c10d::AllreduceCoalescedOptions theirs;
    theirs.reduceOp = reduction.op();
    theirs.timeout = options.timeout;
    theirs.asyncOp = options.asyncOp;
    Work work = host.size() == 1 ? engine_->allreduce(host, theirs) : engine_->allreduce_coalesced(host, theirs);
    return launch(type, std::move(work), std::move(staging), {outputs});
  }

  // What the engine has begun, as a piece of work on device tensors.
  Work launch(OpType type, Work engine, Staging staging, TensorLists outputs, Ends ends = Ends::ByFuture) {
    const c10::Stream stream = stream_of(staging.device());
    auto work =
        c10::make_intrusive<DeviceWork>(type, std::move(engine), std::move(staging), std::move(outputs), stream, ends);
    work->start();
    return work;
  }

  // The stream that collectives of a device end on.
  c10::Stream stream_of(c10::Device device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = streams_.find(device.index());
    if (found == streams_.end()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      found = streams_.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first;
    }
    return found->second;
  }

  c10::intrusive_ptr<c10d::Backend> engine_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

} // namespace
} // namespace distributed

void add_device_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto engine = group->getBackend(c10::DeviceType::CPU);
  group->setBackend(
      c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<distributed::Backend>(std::move(engine)));
}

} // namespace torch_opencl
