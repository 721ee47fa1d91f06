//! An OpenCL backend for PyTorch.
//!
//! Modules depend on one another in one direction:
//! `error` ← `cl` ← {`runtime`, `kernels`} ← `abi` ← `ops` ← `blas` ← `bridge` ← `cpp/` ← `python/`.
//!
//! * [`error`]: the one error type.
//! * [`cl`]: a thin safe layer on the driver.
//! * [`runtime`]: devices, streams, events, memory.
//! * [`kernels`]: sources, programs, their caches.
//! * `measured`: constants that `make bench-constants` compiles with other values.
//! * `abi`: structs that C++ and launchers share.
//! * [`ops`]: a launcher for each kernel family, and its functions for C++.
//! * [`blas`]: the libraries that can compute matmuls, and the choice between them.
//! * `bridge`: the runtime's functions for C++.

#[macro_use]
mod measured;

mod abi;
pub mod blas;
pub mod cl;
pub mod error;
pub mod kernels;
mod layers;
pub mod ops;
pub mod runtime;

mod bridge;
