// Exceptions that handlers of Python's signals raise while the host waits.
#pragma once

#include "rust/cxx.h"

namespace torch_opencl {

// True if a signal handler raised, which no caller may take for a failure.
bool is_interrupt(const rust::Error& error);

// Throws the exception that `run_signal_handlers` has caught in this thread.
[[noreturn]] void rethrow_interrupt();

namespace bridge {

// Has Python run the handlers of pending signals; returns true if one of them has raised. Takes Python's lock.
bool run_signal_handlers() noexcept;

} // namespace bridge
} // namespace torch_opencl
