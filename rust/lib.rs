//! An OpenCL backend for PyTorch.
//!
//! Modules depend on one another in one direction:
//! `error` ← `cl` ← {`runtime`, `kernels`} ← `ops` ← `bridge` ← `cpp/` ← `python/`.
//!
//! * [`error`]: the one error type.
//! * [`cl`]: a thin safe layer on the driver.
//! * [`runtime`]: devices, streams, events, memory.
//! * [`kernels`]: sources, programs, their caches.
//! * [`ops`]: one launcher a kernel family.
//! * `bridge`: the one cxx bridge to C++.

pub mod cl;
pub mod error;
pub mod kernels;
pub mod ops;
pub mod runtime;

mod bridge;
