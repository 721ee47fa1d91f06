//! Launchers: one file a kernel family. Each decides layout, geometry and program, and enqueues.

mod scalar;
mod target;
mod tensor;

pub use scalar::Scalar;
pub use target::{Target, Workspace};
pub use tensor::Tensor;

pub mod pointwise;
