//! Specialised programs for elements that are narrower than the type that generic programs compute in.

use super::{Call, CPU_VECTOR};
use crate::kernels::DType;
use crate::ops::core::geometry::filling_lanes;
use crate::ops::{Operand, Scalar};

impl Call<'_> {
    /// Elements that an item of a specialised program takes at a time: on CPUs as many `int` as fill a register, on
    /// GPUs as many as fill a load of the narrowest operand.
    pub(super) fn specialised_lanes(&self, lanes: usize, narrow: bool, operands: &[Operand<'_>]) -> usize {
        let narrowest =
            operands.iter().filter(|operand| operand.address != 0).map(|operand| operand.dtype.size()).min();
        match narrowest {
            Some(_) if narrow && self.target.is_cpu() => CPU_VECTOR / size_of::<i32>(),
            Some(size) if lanes > 1 && !self.target.is_cpu() => filling_lanes(lanes, size),
            _ => lanes,
        }
    }

    /// Returns true if a specialised program may compute in `int` what the generic one computes in `long`.
    pub(super) fn is_narrow(&self) -> bool {
        let is_int = |dtype: DType| matches!(dtype, DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32);
        let fits = |scalar: &Scalar| i32::try_from(scalar.integer).is_ok();
        let is_input_narrow = |input: &Operand<'_>| is_int(input.dtype) && (input.address != 0 || fits(&input.value));
        self.row.narrow
            && is_int(self.compute)
            && self.outs().all(|out| is_int(out.dtype))
            && self.inputs.iter().all(is_input_narrow)
            && self.scalars.iter().all(fits)
    }
}
