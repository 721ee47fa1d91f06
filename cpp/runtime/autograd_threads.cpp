#include "runtime/autograd_threads.h"

#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "runtime/error.h"

namespace torch_opencl {
namespace {

// Long enough for destructors. A thread that still runs a user's hook is not waited for.
constexpr std::chrono::seconds patience{2};

// Runs a backward pass over no elements. The engine's thread of a device takes one pass after the other: when this one
// has run, earlier ones are gone. Neither this pass nor the thread that calls it holds Python objects.
void run_empty_pass(c10::DeviceIndex index) {
  const c10::Device device(c10::DeviceType::PrivateUse1, index);
  const at::Tensor x = at::empty({0}, at::TensorOptions(device));
  x.set_requires_grad(true);
  torch::autograd::grad({x.view({0})}, {x}, {at::empty({0}, at::TensorOptions(device))});
}

} // namespace

void keep_backward_in_thread(c10::DeviceIndex index) {
  if (!checked([&] { return bridge::is_host_cpu(index); })) return;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

// A pass returns before the engine's thread has released its graph, which holds Python objects. If the interpreter ends
// in between, it ends that thread inside a destructor, and the process aborts.
void finish_autograd(int64_t index) {
  const auto done = std::make_shared<std::promise<void>>();
  auto result = done->get_future();
  std::thread([done, index] {
    try {
      run_empty_pass(static_cast<c10::DeviceIndex>(index));
    } catch (...) { // The engine does not run here, for example after a fork: there is nothing to wait for.
    }
    done->set_value();
  }).detach();
  result.wait_for(patience);
}

} // namespace torch_opencl
