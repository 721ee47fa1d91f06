//! Kernel families for C++: dtype codes become dtypes, the rest goes through as it is.

use super::ffi::{Operand, Scalar, TensorArg};
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::{self, Tensor};

impl<'a> TensorArg<'a> {
    /// The launcher's view of the argument. An absent tensor gets a dtype that nothing reads.
    fn tensor(&self) -> Result<Tensor<'a>> {
        let dtype = if self.address == 0 && self.dtype < 0 { DType::U8 } else { DType::from_code(self.dtype)? };
        Ok(Tensor { address: self.address, dtype, sizes: self.sizes, strides: self.strides })
    }
}

pub fn pointwise(
    op: u32,
    compute: i32,
    shape: &[i64],
    outputs: usize,
    operands: &[Operand<'_>],
    scalars: &[Scalar],
) -> Result<()> {
    let operands = operands
        .iter()
        .map(|operand| {
            Ok(ops::pointwise::Operand {
                address: operand.address,
                dtype: DType::from_code(operand.dtype)?,
                strides: operand.strides,
                value: operand.value.into(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let scalars: Vec<_> = scalars.iter().map(|scalar| (*scalar).into()).collect();
    ops::pointwise::launch(op, DType::from_code(compute)?, shape, outputs, &operands, &scalars)
}

impl From<Scalar> for ops::Scalar {
    fn from(scalar: Scalar) -> Self {
        Self { real: scalar.real, imag: scalar.imag, integer: scalar.integer }
    }
}
