//! The runtime's functions for C++: devices and memory (`bridge/runtime.rs`), programs built in the background
//! (`bridge/builds.rs`). Kernel families have separate blocks of `#[cxx::bridge]`, next to their launchers
//! (docs/decisions/006).

mod builds;
mod bundle;
mod c_interface;
mod device;
mod graph;
mod interop;
mod memory;
mod runtime;
mod trace;
mod tuning;
