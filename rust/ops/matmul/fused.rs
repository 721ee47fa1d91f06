//! Matmuls fused with the element-wise operations that follow them in a graph.

use super::compute;
use super::epilogue::{Activation, Epilogue};
use super::fused_source::{Fused, FusedSource};
use crate::cl::Arg;
use crate::error::Result;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
        type Scalar = crate::abi::Scalar;
    }

    /// The fused epilogue of a matmul or a convolution, and the memory that it reads and writes.
    #[derive(Clone, Copy, Debug)]
    pub struct FusedOperands<'a> {
        /// The key of its source, from `fused_source`.
        pub epilogue: i64,
        /// Its buffers: addresses.
        pub buffers: &'a [usize],
        /// Its scalars: 64 bits each.
        pub scalars: &'a [i64],
    }

    /// A matmul with a fused epilogue.
    #[derive(Debug)]
    pub struct FusedMatmul<'a> {
        /// Has the shape of the result, densely; any memory of the same device.
        pub out: Tensor<'a>,
        /// Operand A.
        pub a: Tensor<'a>,
        /// Operand B.
        pub b: Tensor<'a>,
        /// Added to the matmul, in the shape of `out`; may be absent.
        pub bias: Tensor<'a>,
        /// Scale of the matmul.
        pub alpha: Scalar,
        /// Scale of `bias`.
        pub beta: Scalar,
        /// The epilogue.
        pub fused: FusedOperands<'a>,
    }

    extern "Rust" {
        fn fused_source(code: &str, reports_faults: bool) -> i64;
        fn fused_matmul(matmul: &FusedMatmul) -> Result<()>;
    }
}

use ffi::FusedMatmul;
pub use ffi::FusedOperands;

fn fused_source(code: &str, reports_faults: bool) -> i64 {
    FusedSource::register(code, reports_faults)
}

impl FusedOperands<'_> {
    /// Calls `run` with the source and its kernel arguments.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] for an unknown key; otherwise as `run`.
    pub fn with<R>(&self, target: &Target, run: impl FnOnce(Fused<'_>) -> Result<R>) -> Result<R> {
        let Self { epilogue, buffers, scalars } = *self;
        let source = FusedSource::numbered(epilogue)?;
        let memories = buffers.iter().map(|address| target.memory(*address)).collect::<Result<Vec<_>>>()?;
        let offsets = memories.iter().map(|memory| memory.offset);
        let mut values: Vec<u64> = offsets.chain(scalars.iter().map(|scalar| *scalar as u64)).collect();
        if values.is_empty() {
            // A struct needs at least one member.
            values.push(0);
        }
        let mut arguments: Vec<Arg<'_>> = memories.iter().map(|memory| Arg::Buffer(memory.handle)).collect();
        arguments.push(Arg::Bytes(bytemuck::cast_slice(&values)));
        if source.reports_faults {
            arguments.push(Arg::Buffer(target.faults()?.handle));
        }
        run(Fused { source: &source, arguments: &arguments })
    }
}

/// Computes a matmul and its fused epilogue.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for an unknown key and for shapes that do not fit; otherwise as the compiler, the
/// allocator and the driver report.
fn fused_matmul(matmul: &FusedMatmul<'_>) -> Result<()> {
    let FusedMatmul { out, a, b, bias, alpha, beta, fused } = matmul;
    let target = Target::of(out.address)?;
    let (alpha, beta) = (*alpha, *beta);
    fused.with(&target, |fused| {
        compute(&target, [out, a, b, bias], |out, bias| Epilogue {
            alpha,
            beta,
            bias,
            activation: Activation::None,
            out,
            fused: Some(fused),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::Memory;
    use crate::kernels::entry::{self, Arguments};
    use crate::kernels::structs::gemm_block::Extent;
    use crate::kernels::{Class, DType};
    use crate::ops::matmul::im2col::Im2col;
    use crate::ops::matmul::matrix::{Matrix, MatrixOperand};

    /// Bytes of arguments that every device takes (`CL_DEVICE_MAX_PARAMETER_SIZE`).
    const MOST_BYTES: usize = 1024;
    /// Equal to the value in `python/torch_opencl/inductor/graph/epilogues.py`.
    const MOST_WORDS: usize = 14;

    /// Kernels of matrices also take an im2col layout, so all kernels leave the same space for an epilogue.
    #[test]
    fn epilogue_arguments_fit_after_those_of_the_gpu_kernel() {
        let layout = Matrix::dense(1, 1);
        let matrix = MatrixOperand { memory: Memory::ABSENT, dtype: DType::F32, layout };
        let own = entry::GemmLocal {
            a: Memory::ABSENT,
            b: Memory::ABSENT,
            input_dtype: DType::F32,
            a_layout: layout,
            b_layout: layout,
            im2col: Im2col::default().layout(),
            extent: Extent { rows: 1, columns: 1, k: 1, splits: 1, split_stride: 1 },
            epilogue: Epilogue::plain(matrix, Some(matrix)).arguments(Class::Float),
        };
        let bytes: usize = own.bind(|arguments| {
            let sizes = arguments.iter().map(|argument| match argument {
                Arg::Bytes(bytes) => bytes.len(),
                Arg::Buffer(_) | Arg::Local(_) => size_of::<u64>(),
            });
            sizes.sum()
        });
        assert_eq!(bytes + MOST_WORDS * size_of::<u64>(), MOST_BYTES);
    }
}
