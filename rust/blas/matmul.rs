//! A matmul as passed to every library.

use crate::kernels::DType;
use crate::ops::{Scalar, Tensor};

/// `out = alpha * a @ b + beta * bias`, for non-empty matrices or batches of them.
#[derive(Clone, Copy, Debug)]
pub struct Matmul<'a> {
    /// The result.
    pub out: Tensor<'a>,
    /// Operand A.
    pub a: Tensor<'a>,
    /// Operand B.
    pub b: Tensor<'a>,
    /// Added to the matmul, in the shape of `out`; strides may be 0.
    pub bias: Option<Tensor<'a>>,
    /// Scale of the matmul.
    pub alpha: Scalar,
    /// Scale of `bias`.
    pub beta: Scalar,
}

/// Size of a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulSize {
    /// Matrices.
    pub batches: i64,
    /// Rows of each result.
    pub rows: i64,
    /// Columns of each result.
    pub columns: i64,
    /// K, the terms of each sum.
    pub k: i64,
}

impl MatmulSize {
    /// Number of multiplications.
    pub fn volume(&self) -> i64 {
        self.batches * self.rows * self.columns * self.k
    }

    /// Clamped to at most `longest` in every direction, and to at most as many matrices as fill `longest` cubed.
    #[must_use]
    pub fn clamped(&self, longest: i64) -> Self {
        let (rows, columns, k) = (self.rows.min(longest), self.columns.min(longest), self.k.min(longest));
        let matrix = (rows * columns * k).max(1);
        Self { batches: self.batches.min(longest.pow(3) / matrix), rows, columns, k }
    }
}

impl Matmul<'_> {
    /// Its size.
    pub fn size(&self) -> MatmulSize {
        let dim = self.out.ndim();
        let size = |tensor: &Tensor<'_>, back: usize| dim.checked_sub(back).map_or(1, |d| tensor.size(d));
        MatmulSize {
            batches: size(&self.out, 3),
            rows: size(&self.out, 2),
            columns: size(&self.out, 1),
            k: size(&self.a, 1),
        }
    }

    /// The dtype of all its tensors, if it is the same.
    pub fn dtype(&self) -> Option<DType> {
        let dtype = self.out.dtype;
        let inputs = [Some(self.a), Some(self.b), self.bias];
        inputs.into_iter().flatten().all(|input| input.dtype == dtype).then_some(dtype)
    }

    /// Returns true if `bias` is the result's own memory: `c.addmm_(a, b)`.
    pub fn adds_in_place(&self) -> bool {
        self.bias.is_some_and(|bias| bias.address == self.out.address && bias.strides == self.out.strides)
    }

    /// Returns true if memory of the result is also read, except by adding in place.
    pub fn overwrites_input(&self) -> bool {
        let written = range(&self.out);
        let bias = self.bias.filter(|_| !self.adds_in_place());
        [Some(self.a), Some(self.b), bias]
            .into_iter()
            .flatten()
            .map(|input| range(&input))
            .any(|read| read.start < written.end && written.start < read.end)
    }

    /// Calls `then` with the matmul of the first rows, columns and terms, which writes the corner of the same result.
    pub fn with_corner<T>(&self, corner: &MatmulSize, then: impl FnOnce(&Matmul<'_>) -> T) -> T {
        let batched = self.out.ndim() > 2;
        let sizes = |rows: i64, columns: i64| {
            if batched {
                vec![corner.batches, rows, columns]
            } else {
                vec![rows, columns]
            }
        };
        let (out, a, b) =
            (sizes(corner.rows, corner.columns), sizes(corner.rows, corner.k), sizes(corner.k, corner.columns));
        then(&Matmul {
            out: Tensor { sizes: &out, ..self.out },
            a: Tensor { sizes: &a, ..self.a },
            b: Tensor { sizes: &b, ..self.b },
            bias: self.bias.map(|bias| Tensor { sizes: &out, ..bias }),
            ..*self
        })
    }
}

fn range(tensor: &Tensor<'_>) -> std::ops::Range<usize> {
    tensor.address..tensor.address + tensor.span()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<'a>(address: usize, sizes: &'a [i64], strides: &'a [i64]) -> Tensor<'a> {
        Tensor { address, dtype: DType::F32, sizes, strides }
    }

    fn matmul<'a>(out: Tensor<'a>, bias: Option<Tensor<'a>>) -> Matmul<'a> {
        let one = Scalar { real: 1.0, imag: 0.0, integer: 1 };
        let (a, b) = (tensor(0x10000, &[4, 8], &[8, 1]), tensor(0x20000, &[8, 6], &[1, 8]));
        Matmul { out, a, b, bias, alpha: one, beta: one }
    }

    #[test]
    fn a_corner_is_smaller_and_at_the_same_address() {
        let matmul = matmul(tensor(0x30000, &[4, 6], &[6, 1]), Some(tensor(0x40000, &[4, 6], &[0, 1])));
        let corner = MatmulSize { batches: 1, rows: 2, columns: 3, k: 5 };
        matmul.with_corner(&corner, |small| {
            assert_eq!(small.size(), corner);
            assert_eq!(
                (small.a.sizes, small.a.strides, small.a.address),
                ([2, 5].as_slice(), [8, 1].as_slice(), 0x10000)
            );
            assert_eq!(small.bias.map(|bias| bias.sizes.to_vec()), Some(vec![2, 3]));
        });
    }

    #[test]
    fn an_extent_is_clamped_in_every_direction() {
        let size = MatmulSize { batches: 100, rows: 5000, columns: 16, k: 16 };
        assert_eq!(size.clamped(64), MatmulSize { batches: 16, rows: 64, columns: 16, k: 16 });
        let small = MatmulSize { batches: 2, rows: 3, columns: 4, k: 5 };
        assert_eq!(small.clamped(64), small);
    }

    #[test]
    fn adding_in_place_differs_from_other_overlaps() {
        let (sizes, strides) = ([4, 6], [6, 1]);
        let out = tensor(0x30000, &sizes, &strides);
        assert!(!matmul(out, None).overwrites_input());
        let in_place = matmul(out, Some(out));
        assert!(in_place.adds_in_place() && !in_place.overwrites_input());
        let shifted = matmul(out, Some(tensor(0x30004, &sizes, &strides)));
        assert!(!shifted.adds_in_place() && shifted.overwrites_input());
        assert!(matmul(tensor(0x10000 + 4 * 31, &sizes, &strides), None).overwrites_input());
        assert!(!matmul(tensor(0x10000 + 4 * 32, &sizes, &strides), None).overwrites_input());
    }
}
