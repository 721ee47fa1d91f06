//! The iteration space of a reduction: the kept and reduced dimensions, and how work is distributed.

use crate::kernels::{Class, DType};
use crate::ops::core::geometry::{Columns, Geometry};
use crate::ops::core::space::{coalesce, div_ceil, Dim};
use crate::ops::core::vectors::Vectors;

/// Number of elements from which one result is worth splitting: if elements are neighbours, and if results are.
const SHORTEST_ROW: i64 = 1 << 14;
const SHORTEST_COLUMN: i64 = 256;
/// Neighbouring vectors that an item on a CPU takes: `STRIP` of `reduce.cl`.
const STRIP: i64 = 4;

/// The kernel of a family that runs: for rows or for columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traversal {
    /// Elements of one result are neighbours.
    Rows,
    /// Results are neighbours.
    Columns,
}

/// N operands, the outputs first and the input last; the outputs have stride 0 along the reduced dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduction<const N: usize> {
    /// Dimensions of the results.
    pub kept: Vec<Dim<N>>,
    /// Dimensions that each result folds, with the input's strides.
    pub reduced: Vec<Dim<1>>,
}

impl<const N: usize> Reduction<N> {
    /// From a shape and byte strides, in any order of dimensions. Dimensions along which the first output has stride 0
    /// are reduced.
    pub fn new(shape: &[i64], strides: [&[i64]; N]) -> Self {
        let at = |operand: &[i64], dim: usize| operand.get(dim).copied().unwrap_or(0);
        let all: Vec<Dim<N>> = shape
            .iter()
            .zip(0..)
            .filter(|(size, _)| **size != 1)
            .map(|(&size, dim)| Dim { size, strides: strides.map(|operand| at(operand, dim)) })
            .collect();
        let (reduced, mut kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|dim| dim.strides.first() == Some(&0));
        let mut reduced: Vec<Dim<1>> =
            reduced.into_iter().map(|dim| Dim { size: dim.size, strides: [input_stride(&dim)] }).collect();
        kept.sort_by_key(input_stride);
        reduced.sort_by_key(input_stride);
        Self { kept: coalesce(kept), reduced: coalesce(reduced) }
    }

    /// Number of results.
    pub fn outputs(&self) -> i64 {
        self.kept.iter().map(|dim| dim.size).product()
    }

    /// Elements of each result.
    pub fn length(&self) -> i64 {
        self.reduced.iter().map(|dim| dim.size).product()
    }

    /// Size of the innermost reduced dimension.
    pub fn run(&self) -> i64 {
        self.reduced.first().map_or(1, |dim| dim.size)
    }

    /// The kernel that reads the input in the order of memory.
    pub fn order(&self, geometry: &Geometry) -> Traversal {
        let (Some(kept), Some(reduced)) = (self.kept.first(), self.reduced.first()) else { return Traversal::Rows };
        if input_stride(reduced) < input_stride(kept) && !geometry.starves(self.length()) {
            Traversal::Rows
        } else {
            Traversal::Columns
        }
    }

    /// The geometry of the kernel for inputs of `dtype`, from its device's.
    pub fn geometry(&self, order: Traversal, device: Geometry, dtype: DType) -> Geometry {
        let contiguous = self.kept.first().filter(|dim| input_stride(dim) == dtype.size() as i64);
        match order {
            Traversal::Rows => device,
            Traversal::Columns => {
                let splits = (self.length() / SHORTEST_COLUMN).max(1);
                device.for_columns(contiguous.map_or(1, |dim| dim.size), self.outputs() * splits)
            }
        }
    }

    /// The vectors that the kernel reads from an input at `address`.
    pub fn vectors(
        &self,
        order: Traversal,
        vectors: Vectors,
        splits: i64,
        (address, dtype): (usize, DType),
    ) -> Vectors {
        let (kept, reduced) = (self.kept.iter().map(input_stride), self.reduced.iter().map(input_stride));
        match order {
            Traversal::Rows => {
                // Splits begin at a multiple of a vector's elements, which may be anywhere in a run.
                let run = (splits > 1 && self.reduced.len() > 1).then(|| self.run() * dtype.size() as i64);
                let steps = kept.chain(reduced.skip(1)).chain(run);
                vectors.with(address, dtype, steps)
            }
            Traversal::Columns => vectors.with(address, dtype, kept.skip(1).chain(reduced)),
        }
    }

    /// Tasks of a kernel that takes whole results.
    pub fn tasks(&self, order: Traversal, geometry: &Geometry) -> i64 {
        let Some((columns, rows)) = self.kept.split_first() else { return 1 };
        match order {
            Traversal::Rows => self.outputs(),
            Traversal::Columns => {
                let strips = div_ceil(columns.size, geometry.lanes as i64);
                strips * rows.iter().map(|dim| dim.size).product::<i64>()
            }
        }
    }

    /// `tasks` of the column kernels with `length` elements each; parts share their runs.
    pub fn columns(&self, tasks: i64, length: i64) -> Columns {
        let stride = |dim: Option<i64>| dim.unwrap_or(0);
        let kept = stride(self.kept.first().map(input_stride));
        let (beside, length) = (self.kept.first().map_or(1, |dim| dim.size), length.min(self.run()));
        Columns { tasks, beside, length, is_row: stride(self.reduced.first().map(input_stride)) < kept }
    }

    /// Number of splits of every result that reaches the occupancy target.
    pub fn splits(&self, order: Traversal, geometry: &Geometry) -> i64 {
        let (tasks, shortest) = match order {
            Traversal::Rows => (self.outputs(), SHORTEST_ROW),
            Traversal::Columns => {
                let (tasks, strip) = (self.tasks(order, geometry), if geometry.group == 1 { STRIP } else { 1 });
                ((tasks * geometry.column_parts(self.columns(tasks, self.length())) / strip).max(1), SHORTEST_COLUMN)
            }
        };
        let wanted = geometry.occupancy_target(order == Traversal::Rows) / 2 / tasks.max(1);
        wanted.clamp(1, (self.length() / shortest).max(1))
    }

    /// The results of the first pass, over `splits` splits: the outputs are workspaces `[splits, results]` of elements
    /// of `sizes` bytes.
    pub fn split(&self, splits: i64, sizes: [i64; N]) -> Vec<Dim<N>> {
        let mut count = 1;
        let mut kept: Vec<Dim<N>> = Vec::with_capacity(self.kept.len() + 1);
        for dim in &self.kept {
            kept.push(Dim { size: dim.size, strides: workspace_strides(count, sizes, input_stride(dim)) });
            count *= dim.size;
        }
        kept.push(Dim { size: splits, strides: workspace_strides(count, sizes, 0) });
        kept
    }

    /// The second pass: folds the partial results of `split`, of class `class`, into the first output.
    pub fn join(&self, splits: i64, class: Class) -> Reduction<2> {
        let size = class.size() as i64;
        let mut count = 1;
        let mut kept = Vec::with_capacity(self.kept.len());
        for dim in &self.kept {
            let out = dim.strides.first().copied().unwrap_or(0);
            kept.push(Dim { size: dim.size, strides: [out, count * size] });
            count *= dim.size;
        }
        Reduction { kept, reduced: vec![Dim { size: splits, strides: [count * size] }] }
    }
}

/// The stride of the last operand.
fn input_stride<const N: usize>(dim: &Dim<N>) -> i64 {
    dim.strides.last().copied().unwrap_or(0)
}

fn workspace_strides<const N: usize>(count: i64, sizes: [i64; N], input: i64) -> [i64; N] {
    let mut strides = sizes.map(|size| count * size);
    if let Some(last) = strides.last_mut() {
        *last = input;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Geometry = Geometry::for_tests(1, 16, 32);

    fn sum_over(shape: &[i64], output: &[i64], input: &[i64]) -> Reduction<2> {
        Reduction::new(shape, [output, input])
    }

    #[test]
    fn neighbours_that_fold_make_rows() {
        let rows = sum_over(&[8, 100], &[0, 4], &[4, 32]);
        assert_eq!((rows.outputs(), rows.length()), (100, 8));
        assert_eq!(rows.order(&CPU), Traversal::Rows);
    }

    #[test]
    fn neighbours_that_stay_make_columns() {
        let columns = sum_over(&[8, 100], &[4, 0], &[4, 32]);
        assert_eq!((columns.outputs(), columns.length()), (8, 100));
        assert_eq!(columns.order(&CPU), Traversal::Columns);
    }

    #[test]
    fn reduced_dimensions_around_a_kept_one_stay_apart() {
        let channels = sum_over(&[49, 64, 32], &[0, 4, 0], &[4, 196, 12544]);
        assert_eq!(channels.reduced, [Dim { size: 49, strides: [4] }, Dim { size: 32, strides: [12544] }]);
        assert_eq!(channels.run(), 49);
    }

    #[test]
    fn one_long_result_is_split() {
        let all = sum_over(&[1 << 24], &[0], &[4]);
        let splits = all.splits(Traversal::Rows, &CPU);
        assert!(splits > 1);
        assert_eq!(all.split(splits, [4, 0]), [Dim { size: splits, strides: [4, 0] }]);
        assert_eq!(all.join(splits, Class::Float).reduced, [Dim { size: splits, strides: [4] }]);
    }

    #[test]
    fn short_results_are_not_split() {
        assert_eq!(sum_over(&[1000], &[0], &[4]).splits(Traversal::Rows, &CPU), 1);
    }
}
