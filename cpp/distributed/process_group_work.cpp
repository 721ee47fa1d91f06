#include "distributed/process_group_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <algorithm>

namespace torch_opencl::distributed {
namespace {

// The type of the outputs as in the futures of PyTorch's own backends: a list, or a list of lists.
c10::TypePtr type_of(const TensorLists& outputs) {
  const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::ListType::create(list) : list;
}

} // namespace

DeviceWork::DeviceWork(c10d::OpType type, Staging staging, TensorLists outputs, c10::Stream stream, Ends ends)
    : c10d::Work(/*rank=*/-1, type),
      staging_(std::move(staging)),
      outputs_(std::move(outputs)),
      stream_(stream),
      ends_(ends),
      future_(c10::make_intrusive<c10::ivalue::Future>(type_of(outputs_), std::vector<c10::Device>{stream.device()})) {}

DeviceWork::~DeviceWork() {
  cpu_work_.reset();
  staging_.close();
}

void DeviceWork::start(c10::intrusive_ptr<c10d::Work> cpu_work) {
  cpu_work_ = std::move(cpu_work);
  if (ends_ == Ends::ByWait) return;
  auto self = c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this);
  cpu_work_->getFuture()->addCallback(
      [self](c10::ivalue::Future& done) { self->complete(done.hasError() ? done.exception_ptr() : nullptr); });
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (ends_ == Ends::ByWait && !wait_for_cpu_backend(timeout)) return false;
  return c10d::Work::wait(timeout);
}

bool DeviceWork::wait_for_cpu_backend(std::chrono::milliseconds timeout) {
  // One thread at a time waits for the CPU backend. Others wait for that thread, with the same timeout.
  std::unique_lock<std::timed_mutex> lock(waiting_, std::defer_lock);
  if (timeout == kNoTimeout) {
    lock.lock();
  } else {
    TORCH_CHECK(lock.try_lock_for(timeout), "Operation timed out!");
  }
  if (isCompleted()) return true;
  std::exception_ptr failure;
  try {
    if (!cpu_work_->wait(timeout)) return false; // aborted
  } catch (...) {
    failure = std::current_exception();
  }
  complete(failure);
  return true;
}

void DeviceWork::complete(std::exception_ptr failure) {
  {
    const c10::StreamGuard guard(stream_);
    // The CPU backend's thread lacks the caller's modes, and writes parameters and inference tensors in place. Below
    // ADInplaceOrView both are allowed. Versions stay, as they do when the CPU backend itself writes.
    const at::AutoDispatchBelowADInplaceOrView below;
    try {
      if (failure == nullptr) {
        staging_.finish();
        staging_.close();
      }
      // A failed CPU backend may still use the buffers until it is destroyed: the destructor closes them.
    } catch (...) {
      failure = std::current_exception();
    }
    // Records an event of the stream, and runs the future's callbacks.
    failure == nullptr ? future_->markCompleted(value()) : future_->setError(failure);
  }
  finish(failure);
}

c10::IValue DeviceWork::value() const {
  if (outputs_.size() > 1) return outputs_;
  return outputs_.empty() ? Tensors() : outputs_.front();
}

void DeviceWork::synchronize() {
  future_->wait();
}

void DeviceWork::abort() {
  cpu_work_->abort();
}

int DeviceWork::sourceRank() const {
  return cpu_work_->sourceRank();
}

std::vector<at::Tensor> DeviceWork::result() {
  TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result(). Should call wait() before result().");
  TORCH_CHECK(outputs_.size() <= 1, "work result does not support list of lists, use .getFuture() and value()");
  return outputs_.empty() ? Tensors() : outputs_.front();
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  return ends_ == Ends::ByFuture ? future_ : c10d::Work::getFuture();
}

uint64_t DeviceWork::getSequencenumber() const {
  return cpu_work_->getSequencenumber();
}

CoalescedWork::CoalescedWork(std::vector<c10::intrusive_ptr<c10d::Work>> parts)
    : c10d::Work(/*rank=*/-1, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& part : parts_) {
    if (auto failure = part->exception()) return failure;
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  bool done = true;
  for (const auto& part : parts_) done = part->wait(timeout) && done;
  return done;
}

void CoalescedWork::synchronize() {
  for (const auto& part : parts_) part->synchronize();
}

} // namespace torch_opencl::distributed
