//! What crosses the bridge, as launchers take it.

use super::ffi::{Operand, Scalar, TensorArg};
use super::fused::ffi::ListOperand;
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::{self, List, Tensor};

impl<'a> TensorArg<'a> {
    /// The launcher's view of the argument. An absent tensor gets a dtype that nothing reads.
    pub fn tensor(&self) -> Result<Tensor<'a>> {
        let dtype = if self.address == 0 && self.dtype < 0 { DType::U8 } else { DType::from_code(self.dtype)? };
        Ok(Tensor { address: self.address, dtype, sizes: self.sizes, strides: self.strides })
    }
}

impl<'a> Operand<'a> {
    /// The launcher's view of the operand.
    pub fn operand(&self) -> Result<ops::pointwise::Operand<'a>> {
        let dtype = DType::from_code(self.dtype)?;
        Ok(ops::pointwise::Operand { address: self.address, dtype, strides: self.strides, value: self.value.into() })
    }
}

impl<'a> ListOperand<'a> {
    /// The launcher's view of the lists' tensors.
    pub fn list(&self) -> Result<List<'a>> {
        Ok(List { addresses: self.addresses, dtype: DType::from_code(self.dtype)?, is_one: self.is_one })
    }
}

impl From<Scalar> for ops::Scalar {
    fn from(scalar: Scalar) -> Self {
        Self { real: scalar.real, imag: scalar.imag, integer: scalar.integer }
    }
}
