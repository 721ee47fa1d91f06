//! Indexing: gather, scatter and what they serve.
//!
//! Every move runs over operands of one shape; the indexed side has stride 0 along its indexed dimensions (see
//! `cl/index.cl`).

use super::space::{coalesce, dims, div_ceil, layout, span, Dim};
use super::tier::tier;
use super::{Target, Tensor, Workspace};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec, MAX_DIMS};

/// An index tensor and the dimension that it walks.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// 32- or 64-bit indices, of the shape of the move.
    pub index: Tensor<'a>,
    /// Size of the dimension.
    pub size: i64,
    /// Its stride in bytes.
    pub stride: i64,
    /// Its number, for messages.
    pub dim: i64,
    /// Whether negative indices count from the end.
    pub wraps: bool,
}

impl Axis<'_> {
    /// The same axis for one position of the outermost dimension of a move.
    fn at(&self, position: i64) -> Self {
        Self { index: self.index.at(position), ..*self }
    }

    /// The kernels' `Axis`.
    fn bytes(&self) -> Vec<u8> {
        let lowest = if self.wraps { -self.size } else { 0 };
        [self.size, self.stride, lowest, self.dim].iter().flat_map(|field| field.to_ne_bytes()).collect()
    }
}

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

/// Where kernels report an index that is out of range: four longs, the first of them a flag.
struct Report {
    memory: Workspace,
}

impl Report {
    const BYTES: usize = 32;

    fn new(target: &Target) -> Result<Self> {
        let memory = target.workspace(Self::BYTES)?;
        target.fill(memory.address, 0, Self::BYTES)?;
        Ok(Self { memory })
    }

    /// Waits for the kernels and raises what they reported.
    fn check(&self, target: &Target) -> Result<()> {
        let mut bytes = [0; Self::BYTES];
        target.read(self.memory.address, &mut bytes)?;
        let mut fields = bytes.chunks_exact(8).map(|field| field.try_into().map_or(0, i64::from_ne_bytes));
        let mut next = || fields.next().unwrap_or(0);
        let (is_set, index, dim, size) = (next(), next(), next(), next());
        if is_set == 0 {
            return Ok(());
        }
        Err(Error::Index(format!("index {index} is out of bounds for dimension {dim} with size {size}")))
    }
}

/// One index operand, made of one axis or of several.
struct Folded<'a> {
    axis: Axis<'a>,
    /// The bits of every step that indices make, in bytes.
    steps: i64,
    /// Holds the byte offsets that several axes were folded into.
    _memory: Option<Workspace>,
}

const NO_AXIS: &str = "OpenCL: an indexed move needs at least one index tensor";

/// Byte strides of a dense tensor over the dimensions along which some index moves; 0 along the others.
fn offset_strides(sizes: &[i64], axes: &[Axis<'_>]) -> (Vec<i64>, i64) {
    let mut count = 1;
    let mut strides: Vec<i64> = (0..sizes.len())
        .rev()
        .map(|dim| {
            let moves = axes.iter().any(|axis| axis.index.size(dim) > 1 && axis.index.stride(dim) != 0);
            let stride = if moves { count } else { 0 };
            count *= if moves { sizes.get(dim).copied().unwrap_or(1) } else { 1 };
            stride
        })
        .collect();
    strides.reverse();
    (strides, count)
}

/// Folds several axes into one tensor of byte offsets, whose strides go into `strides`.
fn fold<'a>(target: &Target, axes: &[Axis<'a>], strides: &'a mut Vec<i64>, report: &Report) -> Result<Folded<'a>> {
    let steps = axes.iter().fold(0, |bits, axis| bits | axis.stride);
    let first = match axes {
        [] => return Err(Error::Invalid(NO_AXIS.to_owned())),
        [axis] => return Ok(Folded { axis: *axis, steps, _memory: None }),
        [first, ..] => first,
    };
    let sizes = first.index.sizes;
    let (dense, count) = offset_strides(sizes, axes);
    *strides = dense;
    let memory = target.workspace(count as usize * DType::I64.size())?;
    let offsets = Tensor { address: memory.address, dtype: DType::I64, sizes, strides };
    let program = target.program(Family::Index, Class::Integer, &Spec::generic())?;
    for (number, axis) in axes.iter().enumerate() {
        let mut space = dims([&offsets, &axis.index]);
        space.retain(|dim| dim.strides != [0, 0]);
        let space = coalesce(space);
        let walk = layout(&space)?;
        let axis_bytes = axis.bytes();
        let args = [
            target.tensor(&offsets)?,
            target.tensor(&axis.index)?,
            Arg::Int(axis.index.dtype.code()),
            Arg::Bytes(walk.as_bytes()),
            Arg::Bytes(&axis_bytes),
            Arg::Int(i32::from(number == 0)),
            target.memory(report.memory.address)?,
        ];
        target.launch(&program, "index_offsets", &args, &[span(&space)], None)?;
    }
    // Offsets are in range and in bytes already: one "dimension" without end, a byte a step.
    let axis = Axis { index: offsets, size: i64::MAX, stride: 1, dim: 0, wraps: false };
    Ok(Folded { axis, steps, _memory: Some(memory) })
}

/// Elements of dimension 0 that one work-item takes: on CPUs enough to amortise it without idling a core, else one.
fn chunk_of(target: &Target, inner: i64, items: i64) -> i64 {
    if !target.is_cpu() {
        return 1;
    }
    let wanted = items / (target.compute_units() as i64 * 16);
    wanted.clamp(256, 4096).min(inner)
}

/// A move over more dimensions than kernels walk: one after the other for each position of the outermost one.
fn slices(
    dst: &Tensor<'_>,
    src: &Tensor<'_>,
    axes: &[Axis<'_>],
    one: impl Fn(&Tensor<'_>, &Tensor<'_>, &[Axis<'_>]) -> Result<()>,
) -> Result<()> {
    (0..dst.size(0)).try_for_each(|position| {
        let axes: Vec<_> = axes.iter().map(|axis| axis.at(position)).collect();
        one(&dst.at(position), &src.at(position), &axes)
    })
}

/// `dst[p] = src[p + index[p] * stride]` for every position p.
///
/// # Errors
/// [`Error::Index`] for an index out of range.
pub fn get(dst: &Tensor<'_>, src: &Tensor<'_>, axes: &[Axis<'_>]) -> Result<()> {
    if dst.numel() == 0 {
        return Ok(());
    }
    if dst.ndim() > MAX_DIMS {
        return slices(dst, src, axes, get);
    }
    let target = Target::of(dst.address)?;
    let report = Report::new(&target)?;
    let mut strides = Vec::new();
    let folded = fold(&target, axes, &mut strides, &report)?;
    let axis = &folded.axis;
    let mut space = coalesce(dims([dst, src, &axis.index]));
    let addresses = (dst.address | src.address) as i64;
    let width = widen(&mut space, dst.dtype.size() as i64, addresses | folded.steps);
    let inner = space.first().map_or(1, |dim| dim.size);
    let count = span(&space) as i64;
    let chunk = chunk_of(&target, inner, count);
    let items = (count / inner) * div_ceil(inner, chunk);
    let program = target.program(Family::Index, Class::Integer, &Spec::generic())?;
    let walk = layout(&space)?;
    let axis_bytes = axis.bytes();
    let args = [
        target.tensor(dst)?,
        target.tensor(src)?,
        target.tensor(&axis.index)?,
        Arg::Int(axis.index.dtype.code()),
        Arg::Bytes(walk.as_bytes()),
        Arg::Bytes(&axis_bytes),
        Arg::Int(width as i32),
        Arg::Long(chunk),
        target.memory(report.memory.address)?,
    ];
    target.launch(&program, "index_get", &args, &[items as usize], None)?;
    report.check(&target)
}

/// Makes elements up to 16 bytes wide where one index moves dense runs of them (rows of an embedding): 20 instead of
/// 29 ms for 16384 rows of 512 floats on PoCL. `steps` holds the bits of every address and step that must stay a multiple.
fn widen(space: &mut [Dim<3>], element: i64, steps: i64) -> i64 {
    let Some((inner, outer)) = space.split_first_mut() else { return element };
    if inner.strides != [element, element, 0] {
        return element;
    }
    let bits = outer.iter().fold(steps | (inner.size * element), |bits, dim| bits | dim.strides[0] | dim.strides[1]);
    let mut width = element;
    while width < 16 && bits & width == 0 {
        width *= 2;
    }
    *inner = Dim { size: inner.size * element / width, strides: [width, width, 0] };
    width
}

/// `dst[p + index[p] * stride] op= src[p]` for every position p.
///
/// # Errors
/// [`Error::Index`] for an index out of range; positions before it may have been written.
pub fn set(dst: &Tensor<'_>, src: &Tensor<'_>, axes: &[Axis<'_>], op: SetOp, order: Order) -> Result<()> {
    if src.numel() == 0 {
        return Ok(());
    }
    if dst.ndim() > MAX_DIMS {
        return slices(dst, src, axes, |dst, src, axes| set(dst, src, axes, op, order));
    }
    let target = Target::of(dst.address)?;
    let report = Report::new(&target)?;
    let mut strides = Vec::new();
    let folded = fold(&target, axes, &mut strides, &report)?;
    let axis = folded.axis;
    // Work-items that differ in a dimension along which dst moves never write to one place.
    let (lanes, depth): (Vec<_>, Vec<_>) =
        dims([dst, src, &axis.index]).into_iter().partition(|dim| dim.strides[0] != 0);
    let (lanes, depth) = (coalesce(lanes), coalesce(depth));
    let update = Update { target: &target, report: &report, dtype: dst.dtype, op };
    let places = Places { dst: dst.address, src: src.address, axis };
    let may_reorder = order == Order::Any;
    match (lanes.as_slice(), depth.as_slice()) {
        ([], [dim]) if may_reorder && op == SetOp::Add && suits_copies(&target, &axis, dim.size) => {
            update.by_copies(&places, *dim)?;
        }
        _ => {
            let races = may_reorder
                && is_worth_racing(&target, span(&lanes), span(&depth))
                && may_race(&target, op, dst.dtype);
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
    fn program(&self, elements: usize, index: DType) -> Result<std::sync::Arc<CachedProgram>> {
        let constants =
            [("SPEC_OP", self.op as i32), ("SPEC_DTYPE0", self.dtype.code()), ("SPEC_DTYPE1", index.code())];
        self.target.program(Family::Index, self.dtype.class(), &tier(elements as i64, &constants))
    }

    /// Spreads `lanes` over work-items, which walk `depth` in order unless they race.
    fn run(&self, places: &Places<'_>, mut lanes: Vec<Dim<3>>, depth: Vec<Dim<3>>, races: bool) -> Result<()> {
        let target = self.target;
        if lanes.is_empty() {
            lanes.push(Dim { size: 1, strides: [0; 3] });
        }
        // Where the source is denser along the depth, a work-item keeps to one lane: 48 ms become 4 for a scatter_add of
        // 2048 rows of 2048 floats (PoCL, 2 cores).
        let keeps_lane = !races
            && match (lanes.first(), depth.first()) {
                (Some(lane), Some(deep)) => span(&lanes) >= target.compute_units() && deep.strides[1] < lane.strides[1],
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
            Arg::Int(i32::from(races)),
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
/// costs little where they are many more than its places, and atomics are 20 times slower.
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
