// Exceptions that Python's signal handlers raise while the host waits.
#pragma once

#include "rust/cxx.h"

namespace torch_opencl {

// True if a signal handler raised. Callers must not treat that as a failure.
bool is_interrupt(const rust::Error& error);

// Throws the exception that `run_signal_handlers` has caught in this thread.
[[noreturn]] void rethrow_interrupt();

namespace bridge {

// Makes Python run the handlers of pending signals. Returns true if a handler has raised an exception. Takes the GIL.
bool run_signal_handlers() noexcept;

} // namespace bridge
} // namespace torch_opencl
