//! What every matrix product ends with.

use super::matrix::{Matrix, Operand};
use super::Scalar;
use crate::cl::Arg;
use crate::kernels::Class;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The activation of a matmul's result; as in `cl/activation.cl`.
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

    /// The bytes that its arguments borrow.
    pub fn encode(&self, class: Class) -> Encoded {
        let bytes = |scalar: Scalar| {
            let mut bytes = Vec::with_capacity(class.size());
            scalar.write(class, &mut bytes);
            bytes
        };
        let addend = self.addend.unwrap_or(self.out);
        Encoded {
            alpha: bytes(self.alpha),
            beta: bytes(self.beta),
            has_addend: self.addend.is_some(),
            addend,
            addend_layout: addend.layout,
            out: self.out,
            out_layout: self.out.layout,
        }
    }
}

/// An epilogue as kernels take it.
#[derive(Debug)]
pub struct Encoded {
    alpha: Vec<u8>,
    beta: Vec<u8>,
    has_addend: bool,
    addend: Operand,
    addend_layout: Matrix,
    out: Operand,
    out_layout: Matrix,
}

impl Encoded {
    /// The `EPILOGUE_ARGUMENTS` of `cl/epilogue.cl`.
    pub fn args(&self) -> [Arg<'_>; 9] {
        [
            Arg::Bytes(&self.alpha),
            Arg::Bytes(&self.beta),
            Arg::Int(i32::from(self.has_addend)),
            self.addend.memory,
            Arg::Int(self.addend.dtype.code()),
            Arg::of(&self.addend_layout),
            self.out.memory,
            Arg::Int(self.out.dtype.code()),
            Arg::of(&self.out_layout),
        ]
    }
}
