//! Reading by index: gather and the ops built on it, and code shared with writing.
//!
//! Every move runs over operands of one shape; the indexed side has stride 0 along its indexed dimensions (see
//! `index.cl`).

mod heuristics;
pub mod nonzero;
pub mod scatter;
pub mod searchsorted;
mod wide_sums;

use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::structs::index::Indexed;
use crate::kernels::{entry, Class, DType, Family, Spec, MAX_DIMS};
use crate::ops::core::space::{coalesce, dims, div_ceil, layout, span, Dim};
use crate::ops::{Target, Tensor, Workspace};
use crate::runtime::BadIndexRecord;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The message and the exception of PyTorch's CPU backend for an index out of range.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum BadIndex {
        /// Advanced indexing.
        Plain,
        /// `index_select` and `index_add`.
        InSelf,
        /// `index_copy`.
        Copy,
        /// `take` and `put_`, which treat a tensor as one-dimensional.
        Flat,
        /// `gather` and the scatter ops.
        Gather,
    }

    /// An index tensor and the dimension that it indexes.
    #[derive(Clone, Copy, Debug)]
    pub struct IndexAxis<'a> {
        /// 32- or 64-bit indices, of the shape of the move.
        pub index: Tensor<'a>,
        /// Size of the dimension.
        pub size: i64,
        /// Its stride in bytes.
        pub stride: i64,
        /// Its index, for messages.
        pub dim: i64,
        /// True if negative indices count from the end.
        pub wraps: bool,
        /// Error of an index out of range: the same for all axes of a move.
        pub bad: BadIndex,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn index_get(dst: &Tensor, src: &Tensor, axes: &[IndexAxis], is_known: bool) -> Result<bool>;
    }
}

pub use ffi::{BadIndex, IndexAxis};

impl BadIndex {
    fn error(self, BadIndexRecord { index, size, dim }: BadIndexRecord) -> Error {
        let text = format!("index {index} is out of bounds for dimension {dim} with size {size}");
        match self {
            Self::InSelf => Error::Index(format!("index out of range in self: {text}")),
            Self::Copy => Error::Index(format!("index_copy_(): {text}")),
            Self::Flat => {
                Error::Index(format!("out of range: tried to access index {index} on a tensor of {size} elements."))
            }
            Self::Gather => Error::Invalid(text),
            _ => Error::Index(text),
        }
    }
}

impl IndexAxis<'_> {
    /// The same axis for one index of the outermost dimension of a move.
    fn at(&self, position: i64) -> Self {
        Self { index: self.index.at(position), ..*self }
    }

    /// As a kernel argument.
    pub(super) fn walked(&self) -> Indexed {
        let lowest = if self.wraps { -self.size } else { 0 };
        Indexed { size: self.size, stride: self.stride, lowest, dim: self.dim }
    }
}

/// Memory where kernels report an index out of range: a record of faults, followed by the dimension. It belongs to the
/// thread, and is cleared only after a report, or after a failure has prevented reading it, so that it usually needs no
/// launch. If the call does not wait (while a graph is captured, and for indices already known to be in range), it is
/// the stream's record, which is read at the host's next wait.
pub(super) struct Report {
    pub(super) memory: Memory,
    is_deferred: bool,
    bad: BadIndex,
}

impl Report {
    pub(super) fn new(target: &Target, axes: &[IndexAxis<'_>], is_known: bool) -> Result<Self> {
        let is_deferred = is_known || target.stream.capture().is_some();
        let memory = if is_deferred { target.faults()? } else { target.index_record()? };
        Ok(Self { memory, is_deferred, bad: axes.first().map_or(BadIndex::Plain, |axis| axis.bad) })
    }

    /// Waits for the kernels and returns the error that they reported. Returns false if the check is left to the next
    /// wait.
    pub(super) fn check(&self, target: &Target) -> Result<bool> {
        if self.is_deferred {
            return Ok(false);
        }
        target.take_index_record()?.map_or(Ok(true), |record| Err(self.bad.error(record)))
    }
}

/// One index operand, made of one axis or of several.
pub(super) struct Folded<'a> {
    pub(super) axis: IndexAxis<'a>,
    /// Bitwise or of the byte strides of the indexed dimensions.
    steps: i64,
    /// Holds the byte offsets that several axes were folded into.
    _memory: Option<Workspace>,
}

/// ATen turns a mask without dimensions into no index at all, as `nonzero` has no column for it.
const NO_AXIS: &str = "OpenCL: index() and index_put_() support a bool index without dimensions only for one value \
                       and accumulate=False; index self[None] with index[None] instead";

/// Strides of a dense tensor over the dimensions along which some index moves, 0 along the others; and its number of
/// elements.
fn offset_strides(sizes: &[i64], axes: &[IndexAxis<'_>]) -> (Vec<i64>, i64) {
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

/// Folds several axes into one tensor of byte offsets, and writes its strides to `strides`.
pub(super) fn fold<'a>(
    target: &Target,
    axes: &[IndexAxis<'a>],
    strides: &'a mut Vec<i64>,
    report: &Report,
) -> Result<Folded<'a>> {
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
    for (position, axis) in axes.iter().enumerate() {
        let mut space = dims([&offsets, &axis.index]);
        space.retain(|dim| dim.strides != [0, 0]);
        write_offsets(target, memory.address, axis, space, position == 0, report)?;
    }
    // Offsets are already in range and in bytes: one unbounded dimension, with steps of one byte.
    let axis = IndexAxis { index: offsets, size: i64::MAX, stride: 1, dim: 0, wraps: false, bad: first.bad };
    Ok(Folded { axis, steps, _memory: Some(memory) })
}

/// Writes the byte offsets of the indices of an axis, -1 for indices out of range. Unless `is_first`, adds them to the
/// offsets of the previous axes. The operands of `space` are the offsets and the index.
pub(super) fn write_offsets(
    target: &Target,
    offsets: usize,
    axis: &IndexAxis<'_>,
    space: Vec<Dim<2>>,
    is_first: bool,
    report: &Report,
) -> Result<()> {
    let space = coalesce(space);
    let share = Share::of(target, &space);
    let args = entry::IndexOffsets {
        offsets: target.memory(offsets)?,
        index: target.tensor(&axis.index)?,
        index_dtype: axis.index.dtype,
        layout: layout(&space)?,
        axis: axis.walked(),
        first: i32::from(is_first),
        chunk: share.chunk,
        rows: share.rows,
        status: report.memory,
    };
    let program = target.program(Family::Index, Class::Integer, &Spec::generic())?;
    target.launch(&program, entry::INDEX_OFFSETS, &args, &[share.items], None)
}

/// A work-item's share of a space: on GPUs one element, on CPUs enough to amortise the item without idling a core.
struct Share {
    /// Elements of dimension 0.
    chunk: i64,
    /// Positions of the other dimensions, more than 1 if the item takes all of dimension 0: 10500 rows of 32 floats
    /// then take 110 us of processor time instead of 250 (PoCL, `make bench CASES="'index_select *'"`).
    rows: i64,
    /// Number of items.
    items: usize,
}

impl Share {
    fn of<const N: usize>(target: &Target, space: &[Dim<N>]) -> Self {
        let (inner, count) = (space.first().map_or(1, |dim| dim.size), span(space) as i64);
        if !target.is_cpu() {
            return Self { chunk: 1, rows: 1, items: count as usize };
        }
        let wanted = (count / (target.compute_units() as i64 * 16)).clamp(256, 4096);
        let (chunk, rows) = (wanted.min(inner), (wanted / inner).max(1));
        Self { chunk, rows, items: (div_ceil(count / inner, rows) * div_ceil(inner, chunk)) as usize }
    }
}

/// A move over more dimensions than kernels support: one launch for each index of the outermost dimension.
pub(super) fn slices(
    dst: &Tensor<'_>,
    src: &Tensor<'_>,
    axes: &[IndexAxis<'_>],
    one: impl Fn(&Tensor<'_>, &Tensor<'_>, &[IndexAxis<'_>]) -> Result<bool>,
) -> Result<bool> {
    (0..dst.size(0)).try_fold(true, |is_checked, position| {
        let axes: Vec<_> = axes.iter().map(|axis| axis.at(position)).collect();
        Ok(one(&dst.at(position), &src.at(position), &axes)? && is_checked)
    })
}

/// `dst[p] = src[p + index[p] * stride]` for every position p. Returns true if it has checked that all indices are in
/// range. It does not wait for this check if `is_known`, and while a graph is captured.
///
/// # Errors
/// The axes' error for an index out of range.
pub fn index_get(dst: &Tensor<'_>, src: &Tensor<'_>, axes: &[IndexAxis<'_>], is_known: bool) -> Result<bool> {
    if dst.numel() == 0 {
        return Ok(false);
    }
    if dst.ndim() > MAX_DIMS {
        return slices(dst, src, axes, |dst, src, axes| index_get(dst, src, axes, is_known));
    }
    let target = Target::of(dst.address)?;
    let report = Report::new(&target, axes, is_known)?;
    let mut strides = Vec::new();
    let folded = fold(&target, axes, &mut strides, &report)?;
    let axis = &folded.axis;
    let mut space = coalesce(dims([dst, src, &axis.index]));
    let addresses = (dst.address | src.address) as i64;
    let width = widen(&mut space, dst.dtype.size() as i64, addresses | folded.steps);
    let share = Share::of(&target, &space);
    let program = target.program(Family::Index, Class::Integer, &Spec::generic())?;
    let args = entry::IndexGet {
        dst: target.tensor(dst)?,
        src: target.tensor(src)?,
        index: target.tensor(&axis.index)?,
        index_dtype: axis.index.dtype,
        layout: layout(&space)?,
        axis: axis.walked(),
        width: width as i32,
        chunk: share.chunk,
        rows: share.rows,
        status: report.memory,
    };
    target.launch(&program, entry::INDEX_GET, &args, &[share.items], None)?;
    report.check(&target)
}

/// Makes elements up to 16 bytes wide if one index moves dense runs of them (rows of an embedding): 20 instead of 29 ms
/// for 16384 rows of 512 floats on PoCL (`make bench CASES="'index_select rows *'"`). `steps` holds the bits of every
/// address and step that must stay a multiple.
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
