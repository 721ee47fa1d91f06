//! Launchers: one folder for each family, with its kernels. A launcher chooses layout, geometry and program, and
//! enqueues the kernel.

pub mod assertion;
pub mod attention;
pub mod catalogue;
pub mod convolution;
pub mod copy;
pub mod core;
pub mod embedding_bag;
pub mod factory;
pub mod fft;
pub mod foreach;
pub mod generated;
pub mod grid_sampler;
pub mod index;
pub mod linalg;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod optimizer;
pub mod pointwise;
pub mod pool;
pub mod quantized;
pub mod random;
pub mod reduce;
pub mod resample;
pub mod rnn;
pub mod scan;
pub mod segment_reduce;
pub mod softmax;
pub mod sort;
pub mod sparse;
pub mod tuning;

pub use self::core::target::{Target, Workspace};
pub use crate::abi::{Operand, RandomStream, Scalar, Tensor, TensorList};
