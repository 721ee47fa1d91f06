//! An OpenCL backend for PyTorch.
//!
//! Modules depend on one another in one direction:
//! `error` ← `cl` ← {`runtime`, `kernels`} ← `abi` ← `ops` ← `blas` ← `bridge` ← `cpp/` ← `python/`.
//!
//! * [`error`]: the one error type.
//! * [`cl`]: a thin safe layer on the driver.
//! * [`runtime`]: devices, streams, events, memory.
//! * [`kernels`]: sources, programs, their caches.
//! * `abi`: what C++ and launchers share.
//! * [`ops`]: one launcher a kernel family, and what C++ calls of it.
//! * [`blas`]: the libraries that can serve a matrix product, and the choice between them.
//! * `bridge`: what C++ calls of the runtime.

mod abi;
pub mod blas;
pub mod cl;
pub mod error;
pub mod kernels;
pub mod ops;
pub mod runtime;

mod bridge;
