// Collectives of device tensors that run in a CPU backend.
#pragma once

#include <c10/core/Stream.h>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "distributed/process_group_staging.h"

namespace torch_opencl::distributed {

// How a CPU backend signals completion.
enum class Ends {
  ByFuture, // it completes a future, in its own thread
  ByWait,   // only to a caller that waits
};

// A running collective. The CPU backend's threads finish it on a separate stream. Waiting for it, or for its future,
// makes the current stream wait for that stream.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(c10d::OpType type, Staging staging, TensorLists outputs, c10::Stream stream, Ends ends);
  // Destroys the CPU backend's work before the staging buffers: a CPU backend that has not finished may still use them.
  ~DeviceWork() override;

  // Takes over the CPU backend's work. Called once.
  void start(c10::intrusive_ptr<c10d::Work> cpu_work);

  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  void complete(std::exception_ptr failure);
  bool wait_for_cpu_backend(std::chrono::milliseconds timeout);
  c10::IValue value() const;

  c10::intrusive_ptr<c10d::Work> cpu_work_;
  Staging staging_;
  TensorLists outputs_;
  c10::Stream stream_;
  Ends ends_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::timed_mutex waiting_;
};

// Several collectives with a common wait.
class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<c10::intrusive_ptr<c10d::Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // `timeout` applies to each part.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

} // namespace torch_opencl::distributed
