#include "distributed/process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <map>

#include "distributed/process_group_reduction.h"
#include "distributed/process_group_work.h"
#include "runtime/bridge.h"

namespace torch_opencl {
namespace distributed {
namespace {

using c10d::OpType;
using Work = c10::intrusive_ptr<c10d::Work>;

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

// Runs collectives of device tensors in a CPU backend, gloo for example. The caller's thread waits for the current
// stream. If host and device share memory, the CPU backend uses the tensors' own memory.
class Backend final : public c10d::Backend {
 public:
  explicit Backend(c10::intrusive_ptr<c10d::Backend> cpu_backend)
      : c10d::Backend(cpu_backend->getRank(), cpu_backend->getSize()), cpu_backend_(std::move(cpu_backend)) {}

  const std::string getBackendName() const override {
    return cpu_backend_->getBackendName();
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return cpu_backend_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    cpu_backend_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {
    cpu_backend_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return cpu_backend_->getSequenceNumberForGroup();
  }
  c10d::ErrorType getError() override {
    return cpu_backend_->getError();
  }
  void abort() override {
    cpu_backend_->abort();
  }
  void shutdown() override {
    cpu_backend_->shutdown();
  }

  // CPU backends start each collective at once. Only the waiting is coalesced.
  bool supportsCoalescing() const override {
    return true;
  }
  void startCoalescing() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    coalesced_.emplace();
  }
  Work endCoalescing() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(coalesced_.has_value(), "torch.distributed: endCoalescing without startCoalescing");
    auto work = c10::make_intrusive<CoalescedWork>(std::move(*coalesced_));
    coalesced_.reset();
    return work;
  }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Staging staging;
    Tensors host = staging.moved(tensors, options.rootRank == rank_ ? Access::Read : Access::Write);
    return launch(
        OpType::BROADCAST, std::move(staging), {tensors}, [&] { return cpu_backend_->broadcast(host, options); });
  }

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (first(tensors).layout() == at::kSparse) return allreduce_sparse(tensors, options);
    return reduce_in_place(OpType::ALLREDUCE, &c10d::Backend::allreduce, tensors, options);
  }

  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return reduce_in_place(OpType::ALLREDUCE_COALESCED, &c10d::Backend::allreduce_coalesced, tensors, options);
  }

  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    const bool is_wanted = options.rootRank == rank_;
    return reduce_in_place(OpType::REDUCE, &c10d::Backend::reduce, tensors, options, is_wanted);
  }

  Work allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::ALLGATHER, &c10d::Backend::allgather, outputs, inputs, options);
  }

  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    // Flattened, because gloo would divide dimension 0 of the output, which may be shorter.
    const auto elements = [](const at::Tensor& host) { return host.view({host.numel()}); };
    TORCH_CHECK_VALUE(
        output.numel() == input.numel() * size_, "all_gather_into_tensor: expected an output of ", size_,
        " times the input's ", input.numel(), " elements, got ", output.numel());
    Staging staging;
    at::Tensor written = elements(staging.moved(output, Access::Write));
    at::Tensor read = elements(staging.moved(input, Access::Read));
    return launch(OpType::_ALLGATHER_BASE, std::move(staging), {{output}}, [&] {
      return cpu_backend_->_allgather_base(written, read, options);
    });
  }

  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return exchange(OpType::ALLGATHER_COALESCED, &c10d::Backend::allgather_coalesced, outputs, inputs, options);
  }

  Work allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    const auto collective = &c10d::Backend::allgather_into_tensor_coalesced;
    return exchange(OpType::COALESCED, collective, outputs, inputs, options, Ends::ByWait);
  }

  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return exchange(OpType::GATHER, &c10d::Backend::gather, outputs, inputs, options);
  }

  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override {
    return exchange(OpType::SCATTER, &c10d::Backend::scatter, outputs, inputs, options);
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
    return launch(OpType::ALLTOALL_BASE, std::move(staging), {{output}}, [&] {
      return cpu_backend_->alltoall_base(written, read, output_sizes, input_sizes, options);
    });
  }

  // Runs alltoall_base on two tensors: some CPU backends have no alltoall, or only one for tensors of one size.
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
    const auto begin = [&] { return cpu_backend_->alltoall_base(written, read, output_sizes, input_sizes, options); };
    return launch(OpType::ALLTOALL, std::move(staging), {outputs}, begin);
  }

  Work send(Tensors& tensors, int target, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Read);
    return launch(
        OpType::SEND, std::move(staging), {tensors}, [&] { return cpu_backend_->send(host, target, tag); },
        Ends::ByWait);
  }

  Work recv(Tensors& tensors, int source, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Write);
    return launch(
        OpType::RECV, std::move(staging), {tensors}, [&] { return cpu_backend_->recv(host, source, tag); },
        Ends::ByWait);
  }

  Work recvAnysource(Tensors& tensors, int tag) override {
    Staging staging;
    Tensors host = staging.moved(tensors, Access::Write);
    return launch(
        OpType::RECVANYSOURCE, std::move(staging), {tensors}, [&] { return cpu_backend_->recvAnysource(host, tag); },
        Ends::ByWait);
  }

  Work barrier(const c10d::BarrierOptions& options) override {
    // Commands enqueued before the barrier must also have completed on this device.
    const c10::impl::VirtualGuardImpl device(c10::DeviceType::PrivateUse1);
    const c10::Device current = device.getDevice();
    if (bridge::is_initialized(current.index())) device.synchronizeStream(device.getStream(current));
    return cpu_backend_->barrier(options);
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    cpu_backend_->monitoredBarrier(options, wait_all_ranks);
  }

 private:
  static Reduction reduction_of(const c10d::ReduceOp& op, const Tensors& tensors) {
    return Reduction(op, first(tensors).scalar_type());
  }

  // Uses copies, because the CPU backend replaces the indices and values of its tensors.
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    Staging staging;
    Tensors host = staging.copied(tensors);
    return launch(
        OpType::ALLREDUCE, std::move(staging), {tensors}, [&] { return cpu_backend_->allreduce(host, options); });
  }

  // Tensors that the CPU backend reduces in place: the caller's own, or copies in a form that it supports.
  static Tensors reduced(Staging& staging, const Tensors& tensors, const Reduction& reduction, bool is_wanted) {
    Tensors host;
    for (const at::Tensor& given : tensors) {
      const at::Tensor tensor = reduction.viewed(given);
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

  // A CPU backend's function for a collective.
  template <class... Args>
  using Collective = Work (c10d::Backend::*)(Args...);

  // Lets the CPU backend reduce the tensors of this process. They are only written if the result is wanted.
  template <class Options>
  Work reduce_in_place(
      OpType type,
      Collective<Tensors&, const Options&> collective,
      const Tensors& tensors,
      Options options,
      bool is_wanted = true) {
    const Reduction reduction = reduction_of(options.reduceOp, tensors);
    Staging staging;
    Tensors host = reduced(staging, tensors, reduction, is_wanted);
    options.reduceOp = reduction.op();
    return launch(type, std::move(staging), {tensors}, [&] { return ((*cpu_backend_).*collective)(host, options); });
  }

  // Lets the CPU backend write the outputs of this process from the inputs of all processes. Both may be lists.
  template <class Outputs, class Inputs, class Options>
  Work exchange(
      OpType type,
      Collective<Outputs&, Inputs&, const Options&> collective,
      const Outputs& outputs,
      const Inputs& inputs,
      const Options& options,
      Ends ends = Ends::ByFuture) {
    Staging staging;
    Outputs written = staging.moved(outputs, Access::Write);
    Inputs read = staging.moved(inputs, Access::Read);
    const auto begin = [&] { return ((*cpu_backend_).*collective)(written, read, options); };
    return launch(type, std::move(staging), {outputs}, begin, ends);
  }

  // Reduces everything and drops the parts of other processes. gloo does the same, but only once a caller waits.
  Work reduce_and_split(
      OpType type, const Tensors& outputs, const Tensors& inputs, const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK_VALUE(
        outputs.size() == inputs.size(), "reduce_scatter: expected as many outputs as inputs, got ", outputs.size(),
        " and ", inputs.size());
    const Reduction reduction = reduction_of(options.reduceOp, inputs);
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
      const at::Tensor copy = reduction.prepare(reduction.viewed(input)), kept = reduction.viewed(output);
      host.push_back(staging.values(copy, Access::Write));
      staging.keep(output);
      staging.then([output = kept, copy, rank = rank_, size = size_] {
        output.copy_(copy.view({size, -1}).select(0, rank).view(output.sizes()));
      });
    }
    c10d::AllreduceCoalescedOptions theirs;
    theirs.reduceOp = reduction.op();
    theirs.timeout = options.timeout;
    theirs.asyncOp = options.asyncOp;
    const auto begin = [&] {
      return host.size() == 1 ? cpu_backend_->allreduce(host, theirs) : cpu_backend_->allreduce_coalesced(host, theirs);
    };
    return launch(type, std::move(staging), {outputs}, begin);
  }

  // Lets the CPU backend start a collective, and returns it as work on device tensors.
  template <typename Begin>
  Work launch(OpType type, Staging staging, TensorLists outputs, const Begin& begin, Ends ends = Ends::ByFuture) {
    // The stream and the work are made first: nothing may fail between the CPU backend's start and the work that keeps
    // its buffers.
    const c10::Stream stream = stream_of(staging.device());
    auto work = c10::make_intrusive<DeviceWork>(type, std::move(staging), std::move(outputs), stream, ends);
    work->start(begin());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (coalesced_.has_value()) coalesced_->push_back(work);
    return work;
  }

  // The stream on which collectives of a device end.
  c10::Stream stream_of(c10::Device device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = streams_.find(device.index());
    if (found == streams_.end()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      found = streams_.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first;
    }
    return found->second;
  }

  c10::intrusive_ptr<c10d::Backend> cpu_backend_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
  // Collectives since startCoalescing.
  std::optional<std::vector<Work>> coalesced_;
};

// Collectives of sparse tensors go to the device's backend, like those of dense tensors. Without these kernels the CPU
// fallback would reduce copies, and drop them.
void as_dense(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

void register_sparse(torch::Library& library) {
  for (const char* name :
       {"broadcast_", "allreduce_", "allreduce_coalesced_", "reduce_", "allgather_", "_allgather_base_",
        "allgather_coalesced_", "allgather_into_tensor_coalesced_", "gather_", "scatter_", "reduce_scatter_",
        "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_", "alltoall_", "alltoall_base_", "send", "recv_",
        "recv_any_source_"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_dense>());
  }
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, library) {
  register_sparse(library);
}
TORCH_LIBRARY_IMPL(c10d, SparseCsrPrivateUse1, library) {
  register_sparse(library);
}

} // namespace
} // namespace distributed

void add_device_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto cpu_backend = group->getBackend(c10::DeviceType::CPU);
  group->setBackend(
      c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<distributed::Backend>(std::move(cpu_backend)));
}

} // namespace torch_opencl
