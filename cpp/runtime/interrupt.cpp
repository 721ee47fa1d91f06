#include "runtime/interrupt.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <exception>
#include <utility>

namespace torch_opencl {
namespace {

// A handler's exception is kept here until the bridge has returned: Rust has errors, but no exceptions.
thread_local std::exception_ptr raised;

} // namespace

bool is_interrupt(const rust::Error& error) {
  return error.what()[0] == 'S';
}

void rethrow_interrupt() {
  TORCH_CHECK(raised != nullptr, "OpenCL: a wait was interrupted, but no signal handler raised an exception");
  std::rethrow_exception(std::exchange(raised, nullptr));
}

bool bridge::run_signal_handlers() noexcept {
  try {
    // torch_opencl/_interrupts.py implements it. The call bypasses profilers and modes.
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("torch_opencl::run_signal_handlers", "");
    const at::DisableRecordFunctionGuard no_profiler;
    torch::jit::Stack stack;
    op.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
    return false;
  } catch (...) {
    raised = std::current_exception();
    return true;
  }
}

} // namespace torch_opencl
