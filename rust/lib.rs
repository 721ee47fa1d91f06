//! An OpenCL backend for PyTorch.
//!
//! Modules depend on one another in one direction:
//! `error` ← `cl` ← {`runtime`, `kernels`} ← `ops` ← `blas` ← `bridge` ← `cpp/` ← `python/`.
//!
//! * [`error`]: the one error type.
//! * [`cl`]: a thin safe layer on the driver.
//! * [`runtime`]: devices, streams, events, memory.
//! * [`kernels`]: sources, programs, their caches.
//! * [`ops`]: one launcher a kernel family.
//! * [`blas`]: the libraries that can serve a matrix product, and the choice between them.
//! * `bridge`: the one cxx bridge to C++.

pub mod blas;
pub mod cl;
pub mod error;
pub mod kernels;
pub mod ops;
pub mod runtime;

mod bridge;
