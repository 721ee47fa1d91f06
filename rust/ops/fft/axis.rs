//! Transforms along one dimension: one launch, or several if a work-group holds only part of a transform.
//!
//! A transform of n = f * r elements consists of transforms of f elements that are r apart, products with roots of
//! unity, and transforms of r elements (W. M. Gentleman and G. Sande, "Fast Fourier transforms: for fun and profit",
//! AFIPS 1966); a third launch and more split r again. With real values only half of the values between launches is
//! computed: with real input, the results of the first transforms have conjugates in their upper half; with real
//! output, the inputs of the last transforms have.
//!
//! Lengths with larger prime factors are computed as convolutions with a chirp (L. I. Bluestein, "A linear filtering
//! approach to the computation of discrete Fourier transform", IEEE Transactions on Audio and Electroacoustics 18,
//! 1970).

use std::sync::Arc;

use super::plan::{self, Block, Limits, NEIGHBOURS};
use super::tables::{root_bits, Table};
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::entry::{self, LocalBytes, Value};
use crate::kernels::structs::fft::End;
use crate::kernels::{Class, DType, Family, Spec};
use crate::ops::core::space::{coalesce, layout, Dim};
use crate::ops::core::target::Workspace;
use crate::ops::core::tier::tier;
use crate::ops::Target;

/// A dimension of a launch, with the strides of `Position` in `fft.cl`.
type LaunchDim = Dim<5>;

/// A dimension that is not transformed: its strides in the input and in the result.
pub type BatchDim = Dim<2>;

/// Maximum number of batch dimensions of a launch, in addition to the dimensions that a long transform is split into.
const MOST_BATCH_DIMS: usize = 4;

/// One side of a transform.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Its first element.
    pub memory: Memory,
    /// Storage dtype.
    pub dtype: DType,
    /// Stride of the dimension that is transformed, in elements.
    pub stride: i64,
    /// Length of the transform if only half of it is stored; else 0.
    pub hermitian: i64,
}

/// A transform along one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// Device and stream of the launches.
    pub target: &'a Target,
    /// The complex class that it is computed in.
    pub class: Class,
    /// Elements of the transform.
    pub length: i64,
    /// The other dimensions, and their strides at both sides in elements.
    pub batch: &'a [BatchDim],
    /// 1 forward, -1 inverse.
    pub direction: i32,
    /// Factor of the result.
    pub scale: f64,
}

/// Factors of the elements at one side.
#[derive(Clone, Debug, Default)]
struct Factors {
    table: Option<Arc<Workspace>>,
    count: i64,
    direction: i32,
}

/// A dimension whose index selects transforms of a launch, not elements.
#[derive(Clone, Copy, Debug)]
struct Batch {
    size: i64,
    /// Strides in the launch's input, and in the result.
    from: i64,
    to: i64,
    /// Stride of the index in the result.
    index: i64,
    /// True if it lies within the transformed dimension.
    is_inner: bool,
}

/// The parameters of a launch that differ between the launches of a transform.
struct Launch<'a> {
    block: Block,
    dims: Vec<LaunchDim>,
    from: (Memory, DType, End, &'a Factors),
    to: (Memory, DType, End, &'a Factors),
    spectrum: Option<Table>,
    /// Length whose roots of unity multiply the result.
    roots: i64,
    direction: i32,
    scale: f64,
}

impl Axis<'_> {
    /// Transforms `from` into `to`, which may be the same memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a length that launches do not support.
    pub fn run(&self, from: &Side, to: &Side) -> Result<()> {
        let mut batch: Vec<BatchDim> = self.batch.iter().copied().filter(|dim| dim.size != 1).collect();
        batch.sort_by_key(|dim| dim.strides[1]);
        let mut batch = coalesce(batch);
        let outer = if batch.len() > MOST_BATCH_DIMS { batch.pop() } else { None };
        // Outermost first.
        batch.reverse();
        let inner = Axis { batch: &batch, ..*self };
        if let Some(outer) = outer {
            let [before, after] = outer.strides;
            return (0..outer.size).try_for_each(|i| inner.run(&from.moved(i * before), &to.moved(i * after)));
        }
        if plan::radices(self.length).is_some() {
            return inner.smooth(self.length, from, to, &Factors::default(), &Factors::default());
        }
        inner.convolution(from, to)
    }

    fn limits(&self) -> Limits {
        Limits::of(self.target, self.class)
    }

    /// Transforms by a convolution with a chirp.
    fn convolution(&self, from: &Side, to: &Side) -> Result<()> {
        let (limits, length) = (self.limits(), plan::convolution_length(self.length));
        let factors = |table: Table, count| -> Result<Factors> {
            let table = Some(table.on(self.target, self.class)?);
            Ok(Factors { table, count, direction: self.direction })
        };
        let chirp = factors(Table::Chirp(self.length), self.length)?;
        let dims: Vec<LaunchDim> = self.batches(from).iter().map(|dim| dim.launch(dim.to, 0)).collect();
        if let Some(block) = plan::block(limits, length, wanted(&dims, from.stride, to.stride)) {
            return self.launch(Launch {
                block,
                dims,
                from: (from.memory, from.dtype, end(from, 1, &chirp), &chirp),
                to: (to.memory, to.dtype, end(to, 1, &chirp), &chirp),
                spectrum: Some(Table::Spectrum(self.length)),
                roots: 0,
                direction: self.direction,
                scale: self.scale,
            });
        }
        let spectrum = factors(Table::Spectrum(self.length), length)?;
        let dtype = self.class.storage();
        let count: i64 = self.batch.iter().map(|dim| dim.size).product();
        let workspace = self.target.workspace((count * length) as usize * dtype.size())?;
        let between = Side { memory: self.target.memory(workspace.address)?, dtype, stride: 1, hermitian: 0 };
        let mut stride = length;
        let (mut into, mut out_of) = (self.batch.to_vec(), self.batch.to_vec());
        for (before, after) in into.iter_mut().zip(&mut out_of).rev() {
            (before.strides[1], after.strides[0]) = (stride, stride);
            stride *= before.size;
        }
        Axis { batch: &into, scale: 1.0, ..*self }.smooth(length, from, &between, &chirp, &spectrum)?;
        let back = Axis { batch: &out_of, direction: -self.direction, ..*self };
        back.smooth(length, &between, to, &Factors::default(), &chirp)
    }

    /// Transforms a length that has radices; `from_factors` and `to_factors` multiply the elements at both ends.
    fn smooth(&self, length: i64, from: &Side, to: &Side, from_factors: &Factors, to_factors: &Factors) -> Result<()> {
        let limits = self.limits();
        let parts = plan::parts(limits, length).unwrap_or_default();
        let Some((&last, before)) = parts.split_last() else {
            return Err(Error::Unsupported(format!("OpenCL: an FFT of {length} elements is not supported")));
        };
        // With factors, values are not real and no half is the conjugate of the other.
        let is_plain = from_factors.count == 0 && to_factors.count == 0;
        let halves_first = is_plain && to.hermitian != 0 && !before.is_empty();
        let halves_columns = is_plain && from.hermitian != 0;
        let none = Factors::default();

        let mut batch = self.batches(from);
        let mut side = *from;
        let (mut rest, mut done) = (length, 1);
        let mut workspaces = Vec::new();
        for &part in before {
            let is_first = done == 1;
            let below = rest / part;
            let columns = if halves_columns { below / 2 + 1 } else { below };
            let rows = if halves_first && is_first { part / 2 + 1 } else { part };
            // Dimensions of the workspace, innermost first: those within the transform, columns, rows, all others.
            let inner: i64 = batch.iter().filter(|dim| dim.is_inner).map(|dim| dim.size).product();
            let (mut within, mut around) = (1, inner * columns * rows);
            let strides: Vec<i64> = batch
                .iter()
                .rev()
                .map(|dim| {
                    let stride = if dim.is_inner { &mut within } else { &mut around };
                    let own = *stride;
                    *stride *= dim.size;
                    own
                })
                .collect();
            let strides: Vec<i64> = strides.into_iter().rev().collect();
            let dtype = self.class.storage();
            let workspace = self.target.workspace(around as usize * dtype.size())?;
            let memory = self.target.memory(workspace.address)?;
            workspaces.push(workspace);

            let column = Dim { size: columns, strides: [side.stride, inner, 1, 0, 1] };
            let others = batch.iter().zip(&strides).map(|(dim, stride)| dim.launch(*stride, 0));
            let row = Side {
                memory,
                dtype,
                stride: inner * columns,
                hermitian: if halves_first && is_first { part } else { 0 },
            };
            let factors = if is_first { from_factors } else { &none };
            let start = End { stride: side.stride * below, index: below, ..end(&side, 1, factors) };
            let dims: Vec<LaunchDim> = others.chain([column]).collect();
            let block = self.block(part, &dims, start.stride, row.stride)?;
            self.launch(Launch {
                block,
                dims,
                from: (side.memory, side.dtype, start, factors),
                to: (memory, dtype, end(&row, 1, &none), &none),
                spectrum: None,
                roots: rest,
                direction: self.direction,
                scale: 1.0,
            })?;

            for (dim, stride) in batch.iter_mut().zip(&strides) {
                dim.from = *stride;
            }
            batch.push(Batch { size: rows, from: row.stride, to: to.stride * done, index: done, is_inner: false });
            (rest, done) = (below, done * part);
            side = Side { memory, dtype, stride: inner, hermitian: if halves_columns { below } else { 0 } };
        }

        let period = if halves_first { parts.first().copied().unwrap_or(1) } else { 1 };
        let factors = if before.is_empty() { from_factors } else { &none };
        let start = end(&side, 1, factors);
        let finish = End { stride: to.stride * done, index: done, ..end(to, period, to_factors) };
        let dims: Vec<LaunchDim> = batch.iter().map(|dim| dim.launch(dim.to, dim.index)).collect();
        let block = self.block(last, &dims, start.stride, finish.stride)?;
        self.launch(Launch {
            block,
            dims,
            from: (side.memory, side.dtype, start, factors),
            to: (to.memory, to.dtype, finish, to_factors),
            spectrum: None,
            roots: 0,
            direction: self.direction,
            scale: self.scale,
        })
    }

    fn batches(&self, from: &Side) -> Vec<Batch> {
        let batch = |dim: &BatchDim| {
            let [before, after] = dim.strides;
            Batch { size: dim.size, from: before, to: after, index: 0, is_inner: before != 0 && before < from.stride }
        };
        self.batch.iter().map(batch).collect()
    }

    fn block(&self, length: i64, dims: &[LaunchDim], from: i64, to: i64) -> Result<Block> {
        plan::block(self.limits(), length, wanted(dims, from, to))
            .ok_or_else(|| Error::Unsupported(format!("OpenCL: no work-group can transform {length} elements")))
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let Launch { block, mut dims, from, to, spectrum, roots, direction, scale } = launch;
        let ((input, dtype0, mut start, from_factors), (output, dtype1, mut finish, to_factors)) = (from, to);
        // Neighbouring transforms of the tile should be contiguous where the elements of a transform are not: in the
        // input, or else in the output.
        dims.retain(|dim| dim.size != 1);
        let near = |dims: &[LaunchDim], side: usize| {
            let strides = dims.iter().filter_map(|dim| dim.strides.get(side).copied());
            strides.filter(|stride| *stride != 0).min().unwrap_or(i64::MAX)
        };
        let side = usize::from(near(&dims, 0) >= start.stride);
        dims.sort_by_key(|dim| dim.strides.get(side).copied().filter(|stride| *stride != 0).unwrap_or(i64::MAX));
        let [before, after] = dims.first().map_or([i64::MAX; 2], |dim| [dim.strides[0], dim.strides[1]]);
        start.is_transform_major = i32::from(before != 0 && before < start.stride);
        finish.is_transform_major = i32::from(after != 0 && after < finish.stride);

        let transforms: i64 = dims.iter().map(|dim| dim.size).product();
        if u32::try_from(transforms).is_err() {
            return Err(Error::Unsupported(format!("OpenCL: a batch of {transforms} FFTs is not supported")));
        }
        let memory = |workspace: Option<&Arc<Workspace>>| self.target.memory(workspace.map_or(0, |held| held.address));
        let table = |table: Option<Table>| table.map(|table| table.on(self.target, self.class)).transpose();
        let stages = Table::Twiddles(block.length).on(self.target, self.class)?;
        let (factors, powers) = (table(spectrum)?, table((roots != 0).then_some(Table::Roots(roots)))?);
        let radices = plan::radices(block.length).unwrap_or_default();
        let passes = radices.len() * if factors.is_some() { 2 } else { 1 };
        let args = entry::FftBlock {
            input,
            dtype0,
            output,
            dtype1,
            twiddles: memory(Some(&stages))?,
            from_factors: memory(from_factors.table.as_ref())?,
            to_factors: memory(to_factors.table.as_ref())?,
            spectrum: memory(factors.as_ref())?,
            roots: memory(powers.as_ref())?,
            layout: layout(&coalesce(dims))?,
            from: start,
            to: finish,
            transforms,
            length: block.length as i32,
            radices: plan::packed(&radices) as i32,
            tile: block.tile as i32,
            exchanges: passes as i32 - 1,
            root_bits: if roots == 0 { 0 } else { root_bits(roots) },
            direction,
            scale: Value::real(self.class, scale),
            exchange: LocalBytes(block.bytes as usize),
        };
        let constants = [
            ("SPEC_LENGTH", args.length),
            ("SPEC_RADICES", args.radices),
            ("SPEC_TILE", args.tile),
            ("SPEC_EXCHANGES", args.exchanges),
            ("SPEC_DTYPE0", dtype0.code()),
            ("SPEC_DTYPE1", dtype1.code()),
        ];
        let spec: Spec = tier(transforms * block.length, constants).define("LSIZE", block.group);
        let program = self.target.program(Family::Fft, self.class, &spec)?;
        let groups = transforms.unsigned_abs().div_ceil(block.tile.unsigned_abs()) as usize;
        let group = block.group as usize;
        self.target.launch(&program, entry::FFT_BLOCK, &args, &[groups * group], Some(&[group]))
    }
}

impl Side {
    /// This side from a later element on.
    fn moved(&self, elements: i64) -> Self {
        let offset = self.memory.offset.wrapping_add_signed(elements * self.dtype.size() as i64);
        Self { memory: Memory { offset, ..self.memory }, ..*self }
    }
}

impl Batch {
    /// The dimension of a launch that writes it with stride `to`, and indices `index` apart.
    fn launch(&self, to: i64, index: i64) -> LaunchDim {
        Dim { size: self.size, strides: [self.from, to, 0, index, 0] }
    }
}

/// The end of a launch that takes whole transforms of a side.
fn end(side: &Side, period: i64, factors: &Factors) -> End {
    End {
        stride: side.stride,
        index: 1,
        unit: side.stride,
        hermitian: side.hermitian,
        period,
        factors: factors.count,
        direction: factors.direction,
        is_transform_major: 0,
    }
}

/// Transforms that a group should take at a time: more than one if the elements of a transform are not contiguous.
fn wanted(dims: &[LaunchDim], from: i64, to: i64) -> i64 {
    let neighbours: i64 = dims.iter().map(|dim| dim.size).product();
    if from == 1 && to == 1 {
        return 1;
    }
    NEIGHBOURS.min(neighbours.max(1))
}
