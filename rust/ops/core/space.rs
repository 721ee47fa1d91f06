//! Iteration spaces over several strided operands.

use crate::abi::Tensor;
use crate::error::Result;
use crate::kernels::Layout;

/// One dimension: its size and the byte stride of each operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim<const N: usize> {
    /// Positions along it.
    pub size: i64,
    /// Bytes from one position to the next.
    pub strides: [i64; N],
}

/// Dimensions of tensors of one shape, innermost first, without those of size 1.
pub fn dims<const N: usize>(tensors: [&Tensor<'_>; N]) -> Vec<Dim<N>> {
    let Some(first) = tensors.first() else { return Vec::new() };
    (0..first.ndim())
        .rev()
        .map(|dim| Dim {
            size: first.size(dim),
            strides: tensors.map(|tensor| tensor.stride(dim) * tensor.dtype.size() as i64),
        })
        .filter(|dim| dim.size != 1)
        .collect()
}

/// Merges adjacent dimensions that every operand walks as one.
pub fn coalesce<const N: usize>(space: Vec<Dim<N>>) -> Vec<Dim<N>> {
    let mut joined: Vec<Dim<N>> = Vec::with_capacity(space.len());
    for dim in space {
        match joined.last_mut() {
            Some(inner) if inner.strides.map(|stride| stride * inner.size) == dim.strides => inner.size *= dim.size,
            _ => joined.push(dim),
        }
    }
    joined
}

/// Number of positions.
pub fn span<const N: usize>(space: &[Dim<N>]) -> usize {
    space.iter().map(|dim| dim.size).product::<i64>() as usize
}

/// `a / b` rounded up; 0 where b is not positive.
pub const fn div_ceil(a: i64, b: i64) -> i64 {
    if b <= 0 {
        return 0;
    }
    (a + b - 1) / b
}

/// The space as a kernel argument; a single position becomes one dimension of size 1.
///
/// # Errors
/// [`Error::Invalid`](crate::error::Error::Invalid) for more dimensions than kernels walk.
pub fn layout<const N: usize>(space: &[Dim<N>]) -> Result<Layout> {
    if space.is_empty() {
        return Layout::new(&[1], &[[0].as_slice(); N]);
    }
    let sizes: Vec<i64> = space.iter().map(|dim| dim.size).collect();
    let mut strides: [Vec<i64>; N] = [const { Vec::new() }; N];
    for dim in space {
        for (operand, stride) in strides.iter_mut().zip(dim.strides) {
            operand.push(stride);
        }
    }
    Layout::new(&sizes, &strides.each_ref().map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::DType;

    fn tensor<'a>(sizes: &'a [i64], strides: &'a [i64]) -> Tensor<'a> {
        Tensor { address: 0, dtype: DType::F32, sizes, strides }
    }

    #[test]
    fn dense_tensors_become_one_dimension() {
        let sizes = [2, 3, 1, 4];
        let a = tensor(&sizes, &[12, 4, 4, 1]);
        assert_eq!(coalesce(dims([&a, &a])), [Dim { size: 24, strides: [4, 4] }]);
    }

    #[test]
    fn a_broadcast_dimension_stays_apart() {
        let sizes = [3, 4];
        let space = coalesce(dims([&tensor(&sizes, &[4, 1]), &tensor(&sizes, &[0, 1])]));
        assert_eq!(space, [Dim { size: 4, strides: [4, 4] }, Dim { size: 3, strides: [16, 0] }]);
        assert_eq!(span(&space), 12);
    }

    #[test]
    fn a_scalar_is_one_position() {
        let space = dims([&tensor(&[], &[])]);
        assert_eq!(span(&space), 1);
        assert_eq!(layout(&space).map(|layout| layout.ndim), Ok(1));
    }
}
