//! What every matrix product ends with.

use super::matrix::Operand;
use crate::kernels::entry::EpilogueArguments;
use crate::kernels::Class;
use crate::ops::Scalar;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The activation of a matmul's result; as in `activation.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum Activation {
        /// They stay.
        None,
        /// max(x, 0).
        Relu,
        /// x times the normal distribution up to x.
        Gelu,
    }
}

pub use ffi::Activation;

/// What a product ends with: `out = activation(alpha * product + beta * addend)`.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    /// Factor of the product.
    pub alpha: Scalar,
    /// Factor of the addend.
    pub beta: Scalar,
    /// What is added; a bias has stride 0 along one index.
    pub addend: Option<Operand>,
    /// What becomes of the sum.
    pub activation: Activation,
    /// Where the result goes.
    pub out: Operand,
}

impl Epilogue {
    /// Stores the product, plus an addend if there is one.
    pub fn plain(out: Operand, addend: Option<Operand>) -> Self {
        let one = Scalar { real: 1.0, imag: 0.0, integer: 1 };
        Self { alpha: one, beta: one, addend, activation: Activation::None, out }
    }

    /// With rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { addend: self.addend.map(Operand::transposed), out: self.out.transposed(), ..self }
    }

    /// As kernels take it.
    pub fn arguments(&self, class: Class) -> EpilogueArguments {
        let addend = self.addend.unwrap_or(self.out);
        EpilogueArguments {
            alpha: self.alpha.value(class),
            beta: self.beta.value(class),
            has_addend: i32::from(self.addend.is_some()),
            addend: addend.memory,
            addend_dtype: addend.dtype,
            addend_layout: addend.layout,
            out: self.out.memory,
            out_dtype: self.out.dtype,
            out_layout: self.out.layout,
        }
    }
}
