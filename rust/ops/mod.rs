//! Launchers: one file a kernel family. Each decides layout, geometry and program, and enqueues.

mod conv_channels;
mod conv_direct;
mod epilogue;
mod gemm;
mod gemm_local;
mod geometry;
mod matrix;
mod patches;
mod plan;
mod planes;
mod reduction;
mod scalar;
mod space;
mod target;
mod tensor;
mod tier;

pub use scalar::Scalar;
pub use target::{Target, Workspace};
pub use tensor::Tensor;

pub mod arg_reduce;
pub mod attention;
pub mod bag;
pub mod batch_norm;
pub mod conv;
pub mod copy;
pub mod factory;
pub mod foreach;
pub mod grid;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod moments;
pub mod norm;
pub mod optimizer;
pub mod pointwise;
pub mod pool;
pub mod random;
pub mod reduce;
pub mod resample;
pub mod rnn;
pub mod scan;
pub mod search;
pub mod softmax;
pub mod sort;
