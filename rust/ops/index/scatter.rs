//! Writing by index: scatter and the ops built on it.

use std::sync::Arc;

use super::heuristics::{
    is_across, is_worth_racing, row_of, step_of_reads, suits_copies, suits_rows, OCCUPANCY_TARGET, RACING_ITEMS,
    SCATTER_COST, SHALLOW, SORTING_ITEMS,
};
use super::{fold, slices, wide_sums, write_offsets, IndexAxis, Report};
use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Class, DType, Family, MAX_DIMS};
use crate::ops::core::space::{coalesce, dims, div_ceil, layout, span, Dim};
use crate::ops::core::tier::tier;
use crate::ops::sort::{merge, Elements, SortRows};
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// How `index_set` combines source and destination; as in `scatter.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum SetOp {
        /// The source replaces the destination.
        Assign,
        /// Sum.
        Add,
        /// Product.
        Multiply,
        /// The larger; NaN wins.
        Maximum,
        /// The smaller; NaN wins.
        Minimum,
    }

    /// Order of the updates of one destination.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum ScatterOrder {
        /// Any order: sums of floats may differ between runs, and any one of several assigned values is kept.
        Any,
        /// The order of the sources, with one work-item for each destination: slow on GPUs if most updates share few
        /// destinations.
        Sequential,
    }

    /// How `index_set` writes.
    #[derive(Clone, Copy, Debug)]
    pub struct Writing {
        /// Combines source and destination.
        pub op: SetOp,
        /// Order of the updates of one destination.
        pub order: ScatterOrder,
        /// True if all indices are known to be in range.
        pub is_known: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/index/mod.rs.h");
        type IndexAxis<'a> = super::IndexAxis<'a>;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn index_set(dst: &Tensor, src: &Tensor, axes: &[IndexAxis], writing: Writing) -> Result<bool>;
    }
}

pub use ffi::{ScatterOrder, SetOp, Writing};

/// `dst[p + index[p] * stride] op= src[p]` for every position p. Returns the same value as `index_get`.
///
/// # Errors
/// The axes' error for an index out of range; positions before it may have been written.
pub fn index_set(dst: &Tensor<'_>, src: &Tensor<'_>, axes: &[IndexAxis<'_>], writing: Writing) -> Result<bool> {
    if src.numel() == 0 {
        return Ok(false);
    }
    if dst.ndim() > MAX_DIMS {
        return slices(dst, src, axes, |dst, src, axes| index_set(dst, src, axes, writing));
    }
    let Writing { op, order, is_known } = writing;
    let target = Target::of(dst.address)?;
    let needs_wide_sums = matches!(op, SetOp::Add | SetOp::Multiply) && wide_sums::is_needed(dst, axes);
    if needs_wide_sums && wide_sums::suits_copy(dst, axes) {
        return wide_sums::by_copy(&target, dst, axes, |dst, axes| index_set(dst, src, axes, writing));
    }
    let report = Report::new(&target, axes, is_known)?;
    let mut strides = Vec::new();
    let folded = fold(&target, axes, &mut strides, &report)?;
    let axis = folded.axis;
    // Unless elements share memory, work-items that differ in a dimension along which dst moves never write to the same
    // address.
    let (lanes, depth): (Vec<_>, Vec<_>) =
        dims([dst, src, &axis.index]).into_iter().partition(|dim| dim.strides[0] != 0);
    let (lanes, depth) = (coalesce(lanes), coalesce(depth));
    let is_moved = op == SetOp::Assign;
    let [dtype, src_dtype] = [dst.dtype, src.dtype].map(|dtype| if is_moved { dtype.moved_as() } else { dtype });
    let scatter = Scatter { target: &target, report: &report, dtype, src_dtype, op };
    let operands = MoveOperands { dst: dst.address, src: src.address, axis };
    match (lanes.as_slice(), depth.as_slice()) {
        _ if needs_wide_sums => scatter.by_destination(&operands, lanes, depth)?,
        _ if op != SetOp::Assign && wide_sums::shares_memory(dst, axes) => {
            if scatter.may_reorder(order) && scatter.may_race() {
                scatter.race(&operands, lanes, depth)?;
            } else if lanes.len() + depth.len() == MAX_DIMS {
                return slices(dst, src, axes, |dst, src, axes| index_set(dst, src, axes, writing));
            } else {
                // One work-item makes all updates: its lane is a dimension of size 1.
                scatter.run(&operands, Vec::new(), lanes.into_iter().chain(depth).collect(), false)?;
            }
        }
        ([], [dim]) if scatter.may_reorder(order) && op == SetOp::Add && suits_copies(&target, &axis, dim.size) => {
            scatter.by_copies(&operands, *dim)?;
        }
        ([] | [_], [dim]) if suits_rows(&target, &axis, row_of(&lanes, [dtype, src_dtype]), [dtype, src_dtype]) => {
            scatter.by_rows(&operands, row_of(&lanes, [dtype, src_dtype]), *dim)?;
        }
        _ => match scatter.serialisation(&lanes, &depth, order) {
            Serialisation::Atomics => scatter.race(&operands, lanes, depth)?,
            Serialisation::Sort => scatter.by_destination(&operands, lanes, depth)?,
            Serialisation::Loop => scatter.run(&operands, lanes, depth, false)?,
        },
    }
    report.check(&target)
}

/// How updates of one destination are serialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serialisation {
    /// A work-item makes all updates of a lane, in order.
    Loop,
    /// Each work-item makes one update, by atomics.
    Atomics,
    /// Updates are sorted by destination: a work-item makes all updates of one destination, in order.
    Sort,
}

/// Destination, source and indices of a move.
#[derive(Clone, Copy)]
struct MoveOperands<'a> {
    dst: usize,
    src: usize,
    axis: IndexAxis<'a>,
}

/// State that every launch of one [`index_set`] shares.
struct Scatter<'a> {
    target: &'a Target,
    report: &'a Report,
    /// The destination's dtype.
    dtype: DType,
    /// The source's dtype. It has the destination's class.
    src_dtype: DType,
    op: SetOp,
}

impl Scatter<'_> {
    fn program(&self, elements: usize, index: DType) -> Result<Arc<CachedProgram>> {
        let constants = [
            ("SPEC_OP", self.op.repr),
            ("SPEC_DTYPE0", self.dtype.code()),
            ("SPEC_DTYPE1", index.code()),
            ("SPEC_DTYPE2", self.src_dtype.code()),
        ];
        let spec = tier(elements as i64 * SCATTER_COST, &constants);
        self.target.program(Family::Index, self.dtype.class(), &spec)
    }

    /// How to serialise the updates along `depth` of each lane.
    fn serialisation(&self, lanes: &[Dim<3>], depth: &[Dim<3>], order: ScatterOrder) -> Serialisation {
        let target = self.target;
        let (width, height) = (span(lanes), span(depth));
        if target.is_cpu() {
            let races = self.may_reorder(order) && self.may_race() && is_worth_racing(target, width, height);
            return if races { Serialisation::Atomics } else { Serialisation::Loop };
        }
        if height <= SHALLOW {
            return Serialisation::Loop;
        }
        // Integers give the same result in any order.
        let is_exact = self.op != SetOp::Assign && self.dtype.class() == Class::Integer;
        let may_reorder = self.may_reorder(order) || is_exact && !self.dtype.is_rare();
        if may_reorder && self.may_race() {
            let is_few = width < target.compute_units() * RACING_ITEMS;
            return if is_few || is_across(lanes, depth) { Serialisation::Atomics } else { Serialisation::Loop };
        }
        if width < target.compute_units() * SORTING_ITEMS {
            return Serialisation::Sort;
        }
        Serialisation::Loop
    }

    /// Returns true if updates may be made in any order. Atomics support the frequent dtypes only.
    fn may_reorder(&self, order: ScatterOrder) -> bool {
        order == ScatterOrder::Any && !self.dtype.is_rare()
    }

    /// Returns true if work-items may race: they use atomics, which need a word of the element's width.
    fn may_race(&self) -> bool {
        match self.dtype.size() {
            _ if self.op == SetOp::Assign => true,
            1 | 2 | 4 => true,
            8 => self.target.device.info.has_wide_atomics(),
            _ => false,
        }
    }

    /// Distributes all dimensions over work-items, so that neighbouring items read contiguously.
    fn race(&self, operands: &MoveOperands<'_>, lanes: Vec<Dim<3>>, depth: Vec<Dim<3>>) -> Result<()> {
        if self.target.is_cpu() {
            return self.run(operands, lanes, depth, true);
        }
        let mut space: Vec<_> = lanes.into_iter().chain(depth).collect();
        space.sort_by_key(step_of_reads);
        self.run(operands, space, Vec::new(), true)
    }

    /// Groups the updates of each destination, in their order, by a stable sort.
    fn by_destination(&self, operands: &MoveOperands<'_>, lanes: Vec<Dim<3>>, depth: Vec<Dim<3>>) -> Result<()> {
        let target = self.target;
        let height = span(&depth) as i64;
        // Lanes along which the index does not move share one order.
        let (mut space, own): (Vec<_>, Vec<_>) = lanes.into_iter().partition(|dim| dim.strides[2] == 0);
        if space.is_empty() {
            space.push(Dim { size: 1, strides: [0; 3] });
        }
        let (shared, rows) = (space.len(), span(&own) as i64);
        let mut step = DType::I64.size() as i64;
        let indices = depth.iter().chain(&own).map(|dim| {
            let strides = [step, dim.strides[2]];
            step *= dim.size;
            Dim { size: dim.size, strides }
        });
        let offsets = target.workspace((rows * height) as usize * DType::I64.size())?;
        write_offsets(target, offsets.address, &operands.axis, indices.collect(), true, self.report)?;
        let input =
            Tensor { address: offsets.address, dtype: DType::I64, sizes: &[rows, height], strides: &[height, 1] };
        let sorted = Elements::new(target, rows * height, DType::I64)?;
        let unsorted = SortRows { input, length: height, descending: false };
        merge(target, &unsorted, sorted.values.address, sorted.indices.address)?;

        let inner = space.first().map_or(1, |dim| dim.size);
        let chunk = if target.is_cpu() { div_ceil(inner, target.compute_units() as i64) } else { 1 };
        space.extend(own);
        let parallel = space.len();
        space.extend(depth);
        let program = self.program(span(&space), DType::I64)?;
        let walk: Vec<Dim<2>> =
            space.iter().map(|dim| Dim { size: dim.size, strides: [dim.strides[0], dim.strides[1]] }).collect();
        let args = entry::IndexSetSorted {
            dst: target.memory(operands.dst)?,
            src: target.memory(operands.src)?,
            offsets: target.memory(sorted.values.address)?,
            positions: target.memory(sorted.indices.address)?,
            layout: layout(&walk)?,
            shared: shared as i32,
            lanes: parallel as i32,
            op: self.op.repr,
            dtype0: self.dtype,
            dtype2: self.src_dtype,
            depth: height,
            chunk,
        };
        target.launch(
            &program,
            entry::INDEX_SET_SORTED,
            &args,
            &[span(&space) / inner as usize * div_ceil(inner, chunk) as usize],
            None,
        )
    }

    /// Distributes `lanes` over work-items, which loop over `depth` in order unless they race.
    fn run(&self, operands: &MoveOperands<'_>, mut lanes: Vec<Dim<3>>, depth: Vec<Dim<3>>, races: bool) -> Result<()> {
        let target = self.target;
        if lanes.is_empty() {
            lanes.push(Dim { size: 1, strides: [0; 3] });
        }
        // If the source, then the index, is denser along the depth, a work-item keeps to one lane: a scatter_add of
        // 2048 rows of 2048 floats takes 6 ms instead of 48 (PoCL, 2 cores; `make bench CASES="'scatter_add *'"`). It
        // also does with a single lane.
        let keeps_lane = !races
            && target.is_cpu()
            && match (lanes.first(), depth.first()) {
                (Some(lane), Some(deep)) => {
                    span(&lanes) == 1 || span(&lanes) >= target.compute_units() && deep.strides[1..] < lane.strides[1..]
                }
                _ => false,
            };
        let mut depth = depth.into_iter();
        let mut space: Vec<Dim<3>> = if keeps_lane { depth.next().into_iter().collect() } else { Vec::new() };
        space.extend(lanes);
        let ordered = space.len();
        space.extend(depth);
        let parallel = if races { space.len() } else { ordered };
        let inner = space.first().map_or(1, |dim| dim.size);
        let items = space.iter().take(parallel).map(|dim| dim.size).product::<i64>();
        let chunk = match (keeps_lane, target.is_cpu()) {
            (true, _) => inner,
            (_, true) => div_ceil(inner, target.compute_units() as i64),
            _ => 1,
        };
        let global = (items / inner) * div_ceil(inner, chunk);

        let index = &operands.axis.index;
        let program = self.program(span(&space), index.dtype)?;
        let args = entry::IndexSet {
            dst: target.memory(operands.dst)?,
            src: target.memory(operands.src)?,
            index: target.tensor(index)?,
            dtype1: index.dtype,
            layout: layout(&space)?,
            axis: operands.axis.walked(),
            parallel: parallel as i32,
            atomic: i32::from(races && self.op != SetOp::Assign),
            op: self.op.repr,
            dtype0: self.dtype,
            dtype2: self.src_dtype,
            chunk,
            status: self.report.memory,
        };
        target.launch(&program, entry::INDEX_SET, &args, &[global as usize], None)
    }

    /// Combines dense rows; each work-item makes the updates of a part of the destination.
    fn by_rows(&self, operands: &MoveOperands<'_>, row: Dim<3>, dim: Dim<3>) -> Result<()> {
        let (target, index) = (self.target, &operands.axis.index);
        let [_, src_step, index_step] = dim.strides;
        let program = self.program((row.size * dim.size) as usize, index.dtype)?;
        let args = entry::IndexSetRows {
            dst: target.memory(operands.dst)?,
            src: target.memory(operands.src)?,
            index: target.tensor(index)?,
            dtype1: index.dtype,
            axis: operands.axis.walked(),
            op: self.op.repr,
            dtype0: self.dtype,
            dtype2: self.src_dtype,
            count: dim.size,
            width: row.size,
            src_step,
            index_step,
            status: self.report.memory,
        };
        target.launch(&program, entry::INDEX_SET_ROWS, &args, &[target.compute_units()], None)
    }

    /// Adds along one dimension in pieces that each have a copy of the destination; the copies are summed at the end.
    fn by_copies(&self, operands: &MoveOperands<'_>, dim: Dim<3>) -> Result<()> {
        let (target, size, element) = (self.target, operands.axis.size, self.dtype.size() as i64);
        let copies = target.compute_units() as i64 * OCCUPANCY_TARGET;
        let bytes = (copies * size * element) as usize;
        let memory = target.workspace(bytes)?;
        target.fill(memory.address, 0, bytes)?;
        let piece = dim.size / copies;
        let [_, src_step, index_step] = dim.strides;
        let lanes = Dim { size: copies, strides: [size * element, piece * src_step, piece * index_step] };
        let axis = IndexAxis { stride: element, ..operands.axis };
        let depth = Dim { size: piece, ..dim };
        self.run(&MoveOperands { dst: memory.address, axis, ..*operands }, vec![lanes], vec![depth], false)?;
        // The remaining elements are added to the destination itself.
        let done = copies * piece;
        if done < dim.size {
            let step = |address: usize, stride: i64| address.wrapping_add_signed((done * stride) as isize);
            let index = Tensor { address: step(operands.axis.index.address, index_step), ..operands.axis.index };
            let src = step(operands.src, src_step);
            let axis = IndexAxis { index, ..operands.axis };
            let depth = Dim { size: dim.size - done, ..dim };
            self.run(&MoveOperands { src, axis, ..*operands }, Vec::new(), vec![depth], false)?;
        }
        let args = entry::IndexAddCopies {
            dst: target.memory(operands.dst)?,
            copies: target.memory(memory.address)?,
            dtype0: self.dtype,
            size,
            step: operands.axis.stride,
            count: copies as i32,
        };
        let program = self.program(dim.size as usize, operands.axis.index.dtype)?;
        target.launch(&program, entry::INDEX_ADD_COPIES, &args, &[size as usize], None)
    }
}
