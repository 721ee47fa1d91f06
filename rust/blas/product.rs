//! A matmul as every library takes it.

use crate::kernels::DType;
use crate::ops::{Scalar, Tensor};

/// `out = alpha * a @ b + beta * addend`, for matrices or for batches of them, none of them empty.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// The result.
    pub out: Tensor<'a>,
    /// Operand A.
    pub a: Tensor<'a>,
    /// Operand B.
    pub b: Tensor<'a>,
    /// Added to the matmul, in the shape of `out`; strides may be 0.
    pub addend: Option<Tensor<'a>>,
    /// Scale of the matmul.
    pub alpha: Scalar,
    /// Scale of `addend`.
    pub beta: Scalar,
}

/// Size of a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Matrices.
    pub batches: i64,
    /// Rows of each result.
    pub rows: i64,
    /// Columns of each result.
    pub columns: i64,
    /// K, the terms of each sum.
    pub depth: i64,
}

impl Extent {
    /// Multiplications.
    pub fn volume(&self) -> i64 {
        self.batches * self.rows * self.columns * self.depth
    }

    /// With no matrix longer than `longest` in any direction, and no more matrices than fill `longest` cubed.
    #[must_use]
    pub fn clamped(&self, longest: i64) -> Self {
        let (rows, columns, depth) = (self.rows.min(longest), self.columns.min(longest), self.depth.min(longest));
        let matrix = (rows * columns * depth).max(1);
        Self { batches: self.batches.min(longest.pow(3) / matrix), rows, columns, depth }
    }
}

impl Product<'_> {
    /// Its size.
    pub fn extent(&self) -> Extent {
        let dim = self.out.ndim();
        let size = |tensor: &Tensor<'_>, back: usize| dim.checked_sub(back).map_or(1, |d| tensor.size(d));
        Extent {
            batches: size(&self.out, 3),
            rows: size(&self.out, 2),
            columns: size(&self.out, 1),
            depth: size(&self.a, 1),
        }
    }

    /// The dtype of all its tensors, if they have one in common.
    pub fn dtype(&self) -> Option<DType> {
        let dtype = self.out.dtype;
        let inputs = [Some(self.a), Some(self.b), self.addend];
        inputs.into_iter().flatten().all(|input| input.dtype == dtype).then_some(dtype)
    }

    /// Returns true if `addend` is the result's own memory: `c.addmm_(a, b)`.
    pub fn adds_in_place(&self) -> bool {
        self.addend.is_some_and(|addend| addend.address == self.out.address && addend.strides == self.out.strides)
    }

    /// Returns true if memory of the result is also read, other than by adding in place.
    pub fn overwrites_input(&self) -> bool {
        let written = range(&self.out);
        let addend = self.addend.filter(|_| !self.adds_in_place());
        [Some(self.a), Some(self.b), addend]
            .into_iter()
            .flatten()
            .map(|input| range(&input))
            .any(|read| read.start < written.end && written.start < read.end)
    }

    /// The matmul of the first rows, columns and terms, into the corner of the same result.
    pub fn with_corner<T>(&self, corner: &Extent, then: impl FnOnce(&Product<'_>) -> T) -> T {
        let batched = self.out.ndim() > 2;
        let sizes = |rows: i64, columns: i64| {
            if batched {
                vec![corner.batches, rows, columns]
            } else {
                vec![rows, columns]
            }
        };
        let (out, a, b) =
            (sizes(corner.rows, corner.columns), sizes(corner.rows, corner.depth), sizes(corner.depth, corner.columns));
        then(&Product {
            out: Tensor { sizes: &out, ..self.out },
            a: Tensor { sizes: &a, ..self.a },
            b: Tensor { sizes: &b, ..self.b },
            addend: self.addend.map(|addend| Tensor { sizes: &out, ..addend }),
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

    fn product<'a>(out: Tensor<'a>, addend: Option<Tensor<'a>>) -> Product<'a> {
        let one = Scalar { real: 1.0, imag: 0.0, integer: 1 };
        let (a, b) = (tensor(0x10000, &[4, 8], &[8, 1]), tensor(0x20000, &[8, 6], &[1, 8]));
        Product { out, a, b, addend, alpha: one, beta: one }
    }

    #[test]
    fn a_corner_is_smaller_and_at_the_same_place() {
        let product = product(tensor(0x30000, &[4, 6], &[6, 1]), Some(tensor(0x40000, &[4, 6], &[0, 1])));
        let corner = Extent { batches: 1, rows: 2, columns: 3, depth: 5 };
        product.with_corner(&corner, |small| {
            assert_eq!(small.extent(), corner);
            assert_eq!(
                (small.a.sizes, small.a.strides, small.a.address),
                ([2, 5].as_slice(), [8, 1].as_slice(), 0x10000)
            );
            assert_eq!(small.addend.map(|addend| addend.sizes.to_vec()), Some(vec![2, 3]));
        });
    }

    #[test]
    fn an_extent_is_clamped_in_every_direction() {
        let extent = Extent { batches: 100, rows: 5000, columns: 16, depth: 16 };
        assert_eq!(extent.clamped(64), Extent { batches: 16, rows: 64, columns: 16, depth: 16 });
        let small = Extent { batches: 2, rows: 3, columns: 4, depth: 5 };
        assert_eq!(small.clamped(64), small);
    }

    #[test]
    fn adding_in_place_is_told_from_other_overlaps() {
        let (sizes, strides) = ([4, 6], [6, 1]);
        let out = tensor(0x30000, &sizes, &strides);
        assert!(!product(out, None).overwrites_input());
        let in_place = product(out, Some(out));
        assert!(in_place.adds_in_place() && !in_place.overwrites_input());
        let shifted = product(out, Some(tensor(0x30004, &sizes, &strides)));
        assert!(!shifted.adds_in_place() && shifted.overwrites_input());
        assert!(product(tensor(0x10000 + 4 * 31, &sizes, &strides), None).overwrites_input());
        assert!(!product(tensor(0x10000 + 4 * 32, &sizes, &strides), None).overwrites_input());
    }
}
