//! Writing by index: scatter and what it serves.

use std::sync::Arc;

use super::index::{fold, slices, Axis, Report};
use super::space::{coalesce, dims, div_ceil, layout, span, Dim};
use super::tier::{tier, with_rare};
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{CachedProgram, DType, Family, MAX_DIMS};

/// What `set` does where it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SetOp {
    /// The source replaces what was there.
    Assign = 0,
    /// Sum.
    Add = 1,
    /// Product.
    Multiply = 2,
    /// The larger; NaN wins.
    Maximum = 3,
    /// The smaller; NaN wins.
    Minimum = 4,
}

/// In which order updates of one place follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any: sums of floats may differ between runs, and any of several assigned values stays.
    Any,
    /// That of the sources, by one work-item for each place: slow on a device with many where the places are few.
    Sequential,
}

impl SetOp {
    /// From the bridge's number.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other number.
    pub fn from_code(code: i32) -> Result<Self> {
        [Self::Assign, Self::Add, Self::Multiply, Self::Maximum, Self::Minimum]
            .into_iter()
            .find(|op| *op as i32 == code)
            .ok_or_else(|| Error::Invalid(format!("OpenCL: {code} is not an operation of index_set")))
    }
}

/// `dst[p + index[p] * stride] op= src[p]` for every position p.
///
/// # Errors
/// The axes' own error for an index out of range; positions before it may have been written.
pub fn set(dst: &Tensor<'_>, src: &Tensor<'_>, axes: &[Axis<'_>], op: SetOp, order: Order) -> Result<()> {
    if src.numel() == 0 {
        return Ok(());
    }
    if dst.ndim() > MAX_DIMS {
        return slices(dst, src, axes, |dst, src, axes| set(dst, src, axes, op, order));
    }
    let target = Target::of(dst.address)?;
    let report = Report::new(&target, axes)?;
    let mut strides = Vec::new();
    let folded = fold(&target, axes, &mut strides, &report)?;
    let axis = folded.axis;
    // Work-items that differ in a dimension along which dst moves never write to one place.
    let (lanes, depth): (Vec<_>, Vec<_>) =
        dims([dst, src, &axis.index]).into_iter().partition(|dim| dim.strides[0] != 0);
    let (lanes, depth) = (coalesce(lanes), coalesce(depth));
    let is_moved = op == SetOp::Assign;
    let dtype = if is_moved { dst.dtype.moved_as() } else { dst.dtype };
    let update = Update { target: &target, report: &report, dtype, op };
    let places = Places { dst: dst.address, src: src.address, axis };
    // Atomics know the frequent dtypes.
    let may_reorder = order == Order::Any && (is_moved || !dst.dtype.is_rare());
    match (lanes.as_slice(), depth.as_slice()) {
        ([], [dim]) if may_reorder && op == SetOp::Add && suits_copies(&target, &axis, dim.size) => {
            update.by_copies(&places, *dim)?;
        }
        _ => {
            let races =
                may_reorder && is_worth_racing(&target, span(&lanes), span(&depth)) && may_race(&target, op, dst.dtype);
            update.run(&places, lanes, depth, races)?;
        }
    }
    report.check(&target)
}

/// What a move by index writes to, reads, and goes by.
#[derive(Clone, Copy)]
struct Places<'a> {
    dst: usize,
    src: usize,
    axis: Axis<'a>,
}

/// What every launch of one [`set`] has in common.
struct Update<'a> {
    target: &'a Target,
    report: &'a Report,
    dtype: DType,
    op: SetOp,
}

impl Update<'_> {
    fn program(&self, elements: usize, index: DType) -> Result<Arc<CachedProgram>> {
        let constants =
            [("SPEC_OP", self.op as i32), ("SPEC_DTYPE0", self.dtype.code()), ("SPEC_DTYPE1", index.code())];
        let spec = with_rare(tier(elements as i64, &constants), [self.dtype]);
        self.target.program(Family::Index, self.dtype.class(), &spec)
    }

    /// Spreads `lanes` over work-items, which walk `depth` in order unless they race.
    fn run(&self, places: &Places<'_>, mut lanes: Vec<Dim<3>>, depth: Vec<Dim<3>>, races: bool) -> Result<()> {
        let target = self.target;
        if lanes.is_empty() {
            lanes.push(Dim { size: 1, strides: [0; 3] });
        }
        // Where what is read (the source, then the index) is denser along the depth, a work-item keeps to one lane: 48 ms
        // become 6 for a scatter_add of 2048 rows of 2048 floats (PoCL, 2 cores).
        let keeps_lane = !races
            && match (lanes.first(), depth.first()) {
                (Some(lane), Some(deep)) => {
                    span(&lanes) >= target.compute_units() && deep.strides[1..] < lane.strides[1..]
                }
                _ => false,
            };
        let mut depth = depth.into_iter();
        let mut space: Vec<Dim<3>> = if keeps_lane { depth.next().into_iter().collect() } else { Vec::new() };
        space.extend(lanes);
        let ordered = space.len();
        space.extend(depth);
        let spread = if races { space.len() } else { ordered };
        let inner = space.first().map_or(1, |dim| dim.size);
        let items = space.iter().take(spread).map(|dim| dim.size).product::<i64>();
        let chunk = match (keeps_lane, target.is_cpu()) {
            (true, _) => inner,
            (_, true) => div_ceil(inner, target.compute_units() as i64),
            _ => 1,
        };
        let global = (items / inner) * div_ceil(inner, chunk);

        let index = &places.axis.index;
        let program = self.program(span(&space), index.dtype)?;
        let walk = layout(&space)?;
        let axis_bytes = places.axis.bytes();
        let args = [
            target.memory(places.dst)?,
            target.memory(places.src)?,
            target.tensor(index)?,
            Arg::Int(index.dtype.code()),
            Arg::Bytes(walk.as_bytes()),
            Arg::Bytes(&axis_bytes),
            Arg::Int(spread as i32),
            Arg::Int(i32::from(races && self.op != SetOp::Assign)),
            Arg::Int(self.op as i32),
            Arg::Int(self.dtype.code()),
            Arg::Long(chunk),
            target.memory(self.report.memory.address)?,
        ];
        target.launch(&program, "index_set", &args, &[global as usize], None)
    }

    /// Adds along one dimension whose pieces each have a copy of the destination; copies are added up at the end.
    fn by_copies(&self, places: &Places<'_>, dim: Dim<3>) -> Result<()> {
        let (target, size, element) = (self.target, places.axis.size, self.dtype.size() as i64);
        let copies = target.compute_units() as i64 * COPIES_PER_UNIT;
        let bytes = (copies * size * element) as usize;
        let memory = target.workspace(bytes)?;
        target.fill(memory.address, 0, bytes)?;
        let piece = dim.size / copies;
        let [_, src_step, index_step] = dim.strides;
        let lanes = Dim { size: copies, strides: [size * element, piece * src_step, piece * index_step] };
        let axis = Axis { stride: element, ..places.axis };
        let depth = Dim { size: piece, ..dim };
        self.run(&Places { dst: memory.address, axis, ..*places }, vec![lanes], vec![depth], false)?;
        // What is left over goes to the destination itself.
        let done = copies * piece;
        if done < dim.size {
            let step = |address: usize, stride: i64| address.wrapping_add_signed((done * stride) as isize);
            let index = Tensor { address: step(places.axis.index.address, index_step), ..places.axis.index };
            let src = step(places.src, src_step);
            let axis = Axis { index, ..places.axis };
            let depth = Dim { size: dim.size - done, ..dim };
            self.run(&Places { src, axis, ..*places }, Vec::new(), vec![depth], false)?;
        }
        let args = [
            target.memory(places.dst)?,
            target.memory(memory.address)?,
            Arg::Int(self.dtype.code()),
            Arg::Long(size),
            Arg::Long(places.axis.stride),
            Arg::Int(copies as i32),
        ];
        let program = self.program(dim.size as usize, places.axis.index.dtype)?;
        target.launch(&program, "index_add_copies", &args, &[size as usize], None)
    }
}

/// Copies of the destination for each core.
const COPIES_PER_UNIT: i64 = 4;

/// Whether a CPU's cores should have their own copies of a destination that all elements of a vector are added to: that
/// costs little where they are many more than its places, and spares atomics: bincount went from 33 ms to 3.
fn suits_copies(target: &Target, axis: &Axis<'_>, elements: i64) -> bool {
    let copies = target.compute_units() as i64 * COPIES_PER_UNIT;
    target.is_cpu() && axis.size < elements && axis.size * copies * 4 <= elements
}

/// Whether too few lanes walk too deep. A sequential walk gives the same result every time, so it is kept as long as
/// it keeps the device busy: 64 work-items for a compute unit. Atomics of a CPU pay only from 16 idle cores on.
fn is_worth_racing(target: &Target, lanes: usize, depth: usize) -> bool {
    let units = target.compute_units();
    let busy = if target.is_cpu() { units / 16 } else { units * 64 };
    lanes < busy && depth > 4096
}

/// Whether work-items may meet: they take turns through atomics, which need a word of the element's width.
fn may_race(target: &Target, op: SetOp, dtype: DType) -> bool {
    let has_wide_atomics = || target.device.info.extensions.iter().any(|name| name == "cl_khr_int64_base_atomics");
    match dtype.size() {
        _ if op == SetOp::Assign => true,
        1 | 2 | 4 => true,
        8 => has_wide_atomics(),
        _ => false,
    }
}
