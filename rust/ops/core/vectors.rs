//! Vectors of a launch: how many elements they have, and whether they are aligned.

use super::geometry::{filling_lanes, Geometry};
use crate::kernels::DType;
use crate::ops::Tensor;

/// Vectors that the kernels of `vector.cl` load and store. Compilers move a vector with one instruction only if they
/// know that its address is a multiple of its size, so that is a constant of specialised programs for GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// The geometry of the launch.
    pub geometry: Geometry,
    lanes: usize,
    /// `None` before the first operand.
    are_aligned: Option<bool>,
}

impl Vectors {
    /// Vectors of as many elements as in generic programs.
    pub const fn of(geometry: Geometry) -> Self {
        Self { geometry, lanes: geometry.lanes, are_aligned: None }
    }

    /// Vectors of rows of `length` elements, which the items of a group share. In specialised programs for GPUs they
    /// have more elements of narrow dtypes, if a row has enough for all items.
    pub fn of_rows(geometry: Geometry, length: i64, dtype: DType) -> Self {
        let wide = filling_lanes(geometry.lanes, dtype.size());
        let fills = geometry.group > 1 && geometry.lanes > 1 && length >= (geometry.group * wide) as i64;
        Self { lanes: if fills { wide } else { geometry.lanes }, ..Self::of(geometry) }
    }

    /// Adds an operand, whose vectors begin at `address` plus sums of multiples of `steps`, in bytes, and of whole vectors.
    /// An absent operand has address 0.
    #[must_use]
    pub fn with(self, address: usize, dtype: DType, steps: impl IntoIterator<Item = i64>) -> Self {
        let size = (self.lanes * dtype.size()) as i64;
        // Kernels store vectors with a negative stride in reverse, from another address.
        let fits = steps.into_iter().chain([address as i64]).all(|step| step >= 0 && step % size == 0);
        Self { are_aligned: Some(fits && self.are_aligned != Some(false)), ..self }
    }

    /// Adds a tensor of dense rows of `length` elements.
    #[must_use]
    pub fn along(self, tensor: &Tensor<'_>, length: i64) -> Self {
        self.with(tensor.address, tensor.dtype, [length * tensor.dtype.size() as i64])
    }

    /// Returns true if the program may rely on the alignment.
    pub fn are_aligned(&self) -> bool {
        self.geometry.group > 1 && self.lanes > 1 && self.are_aligned == Some(true)
    }

    /// The constants of the specialised program.
    pub fn constants(self) -> impl Iterator<Item = (&'static str, i32)> {
        let is_wide = self.lanes > self.geometry.lanes;
        let lanes = is_wide.then_some(("SPEC_VEC", self.lanes as i32));
        lanes.into_iter().chain(self.are_aligned().then_some(("SPEC_ALIGNED", 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Geometry = Geometry::for_tests(256, 4, 32);

    fn constants(vectors: Vectors) -> Vec<(&'static str, i32)> {
        vectors.constants().collect()
    }

    #[test]
    fn vectors_are_aligned_if_all_operands_are() {
        let with = |steps: &[i64]| Vectors::of(GPU).with(512, DType::F32, steps.iter().copied());
        assert_eq!(constants(with(&[])), [("SPEC_ALIGNED", 1)]);
        assert_eq!(constants(with(&[4096, 16])), [("SPEC_ALIGNED", 1)]);
        assert_eq!(constants(with(&[4096, 8])), []);
        assert_eq!(constants(with(&[-16])), []);
        assert_eq!(constants(with(&[]).with(516, DType::F32, [])), []);
        assert_eq!(constants(with(&[8]).with(512, DType::F32, [])), []);
        assert_eq!(constants(Vectors::of(GPU)), []);
    }

    #[test]
    fn long_rows_of_narrow_elements_have_longer_vectors() {
        let rows = |length| constants(Vectors::of_rows(GPU, length, DType::F16).with(0, DType::F16, [2 * length]));
        assert_eq!(rows(2048), [("SPEC_VEC", 8), ("SPEC_ALIGNED", 1)]);
        assert_eq!(rows(2047), []);
        assert_eq!(rows(2052), [("SPEC_VEC", 8)]);
        assert_eq!(rows(1028), [("SPEC_ALIGNED", 1)]);
    }

    #[test]
    fn cpus_and_single_elements_need_no_alignment() {
        for (group, lanes) in [(1, 16), (256, 1)] {
            let vectors = Vectors::of_rows(Geometry::for_tests(group, lanes, 32), 1 << 20, DType::F16);
            assert_eq!(constants(vectors.with(0, DType::F16, [])), []);
        }
    }
}
