//! Launchers: one file a kernel family. Each decides layout, geometry and program, and enqueues.

mod scalar;
mod space;
mod target;
mod tensor;
mod tier;

pub use scalar::Scalar;
pub use target::{Target, Workspace};
pub use tensor::Tensor;

pub mod copy;
pub mod factory;
pub mod index;
pub mod pointwise;
pub mod random;
pub mod scan;
pub mod sort;
