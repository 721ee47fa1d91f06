//! The epilogue of every matmul.

use std::sync::Arc;

use super::fused_source::Fused;
use super::matrix::{Matrix, MatrixOperand};
use crate::error::Result;
use crate::kernels::entry::{EpilogueArguments, Extended};
use crate::kernels::{CachedProgram, Class, Family, Spec};
use crate::ops::{Scalar, Target, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The activation of a matmul's result; as in `activation.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum Activation {
        /// No activation.
        None,
        /// max(x, 0).
        Relu,
        /// x * Phi(x), with the CDF Phi of the normal distribution.
        Gelu,
    }
}

pub use ffi::Activation;

/// The epilogue of a matmul: `out = activation(alpha * a @ b + beta * bias)`.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Scale of the matmul.
    pub alpha: Scalar,
    /// Scale of `bias`.
    pub beta: Scalar,
    /// Added to the matmul; a bias has stride 0 along one index.
    pub bias: Option<MatrixOperand>,
    /// Applied to the sum.
    pub activation: Activation,
    /// The result.
    pub out: MatrixOperand,
    /// Generated code that gets the result and stores what it computes from it; then only the layout of `out` counts.
    pub fused: Option<Fused<'a>>,
}

impl<'a> Epilogue<'a> {
    /// Stores the matmul, plus `bias` if there is one.
    pub fn plain(out: MatrixOperand, bias: Option<MatrixOperand>) -> Self {
        let one = Scalar { real: 1.0, imag: 0.0, integer: 1 };
        Self { alpha: one, beta: one, bias, activation: Activation::None, out, fused: None }
    }

    /// Stores sums of parts of k, [rows, columns] for each batch and part, to `sums`; itself if there are none.
    ///
    /// # Errors
    /// When the workspace is not the device's.
    pub fn or_sums(
        self,
        target: &Target,
        sums: Option<&Workspace>,
        class: Class,
        [rows, columns]: [i64; 2],
    ) -> Result<Self> {
        let Some(sums) = sums else { return Ok(self) };
        let (memory, layout) = (target.memory(sums.address)?, Matrix::dense(rows, columns));
        Ok(Self::plain(MatrixOperand { memory, dtype: class.storage(), layout }, None))
    }

    /// With rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { bias: self.bias.map(MatrixOperand::transposed), out: self.out.transposed(), ..self }
    }

    /// The program of `family`, or the program of `fused_family` with the fused epilogue's source.
    ///
    /// # Errors
    /// Errors reported by the compiler.
    pub fn program(
        &self,
        target: &Target,
        [family, fused_family]: [Family; 2],
        class: Class,
        spec: Spec,
    ) -> Result<Arc<CachedProgram>> {
        match self.fused {
            None => target.program(family, class, &spec),
            Some(fused) => {
                let spec = spec.define("FUSED", fused.source.key);
                target.program_with_switch(fused_family, class, &spec, |_| fused.source.switch())
            }
        }
    }

    /// A kernel's arguments, then those of the fused epilogue.
    pub fn extended<'b, A>(&'b self, own: &'b A) -> Extended<'b, A> {
        Extended { own, added: self.fused.map_or(&[], |fused| fused.arguments) }
    }

    /// The epilogue as kernels take it.
    pub fn arguments(&self, class: Class) -> EpilogueArguments {
        let bias = self.bias.unwrap_or(self.out);
        EpilogueArguments {
            alpha: self.alpha.value(class),
            beta: self.beta.value(class),
            has_bias: i32::from(self.bias.is_some()),
            bias: bias.memory,
            bias_dtype: bias.dtype,
            bias_layout: bias.layout,
            out: self.out.memory,
            out_dtype: self.out.dtype,
            out_layout: self.out.layout,
        }
    }
}
