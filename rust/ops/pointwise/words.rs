//! Copies and fills of dtypes that a device can store but not compute in, by words of 64 bits.

use super::pointwise;
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::{Operand, Scalar};

/// Dtype in which elements are moved.
const WORD: DType = DType::I64;
const WORD_SIZE: i64 = WORD.size() as i64;

/// Copies float64 and complex128 if the device does not compute in them: each element is one or two words.
pub(super) fn copy_words(op: u32, shape: &[i64], operands: [&Operand<'_>; 2], scalars: &[Scalar]) -> Result<()> {
    let words = operands[0].dtype.size() as i64 / WORD_SIZE;
    let within = |inner: i64, outer: &[i64]| [&[inner], outer].concat();
    let [to, from] = operands.map(|operand| within(WORD_SIZE, operand.strides));
    let [out, source] = operands.map(|operand| Operand { dtype: WORD, ..*operand });
    let moved = [Operand { strides: &to, ..out }, Operand { strides: &from, ..source }];
    pointwise(op, WORD, &within(words, shape), 1, &moved, scalars, 0)
}

/// Fills memory of such a dtype with a scalar: all first words, then all second words.
pub(super) fn fill_words(op: u32, shape: &[i64], out: &Operand<'_>, scalars: &[Scalar]) -> Result<()> {
    let mut bytes = Vec::new();
    for scalar in scalars {
        scalar.write(out.dtype.class(), &mut bytes);
    }
    for (index, word) in (0..).zip(bytes.as_chunks().0) {
        let words = Operand { address: out.address + index * WORD_SIZE as usize, dtype: WORD, ..*out };
        let value = Scalar { integer: i64::from_ne_bytes(*word), ..Scalar::default() };
        pointwise(op, WORD, shape, 1, &[words], &[value], 0)?;
    }
    Ok(())
}
