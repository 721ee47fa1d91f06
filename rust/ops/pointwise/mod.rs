//! Element-wise ops: every row of the op table that has an expression.

mod cast;
mod narrow;
pub mod row;
pub mod tiles;
mod words;

pub(in crate::ops) use self::cast::cast;
pub(in crate::ops) use self::row::forms;
use self::row::{program, row, PointwiseRow, Source};
use self::tiles::{fits_vectors, is_across, layout_facing, Tiles, GPU_SIDE, TILE_ROWS, TILE_VECTORS};
use self::words::{copy_words, fill_words};
use crate::cl::{Arg, MemHandle};
use crate::error::{Error, Result};
use crate::kernels::entry::{EntryPoint, Listed};
use crate::kernels::{CachedProgram, Class, DType, Family, MAX_DIMS, MAX_OPERANDS};
use crate::ops::copy::transpose;
use crate::ops::core::tier::tier;
use crate::ops::{Operand, Scalar, Target};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type DType = crate::kernels::DType;
        type Operand<'a> = crate::abi::Operand<'a>;
        type Scalar = crate::abi::Scalar;
    }

    extern "Rust" {
        fn pointwise(
            op: u32,
            compute: DType,
            shape: &[i64],
            outputs: usize,
            operands: &[Operand],
            scalars: &[Scalar],
            casts: u32,
        ) -> Result<()>;
    }
}

/// Capacity of the kernel's `Launch` struct: scalars of a stub, and inputs.
const SLOTS: usize = 4;
/// Bytes of `T` that a work-item takes: the widest register of today's CPUs, the widest load of today's GPUs.
const CPU_VECTOR: usize = 64;
const GPU_VECTOR: usize = 16;
/// Work-items of a group. One size for all launches: PoCL compiles a kernel again for each size.
pub(super) const GROUP: usize = 64;
/// Work-items of a group for dense operands on GPUs: an H200 copies 4.1 TB/s with it, 3.3 with the driver's choice.
const GPU_GROUP: usize = 128;

/// Computes `operands[0] = op(operands[1], ...)` over `shape` (innermost dimension first). Bit k of `casts` casts
/// input k to `compute` first, the dtype that PyTorch promoted it to.
///
/// # Errors
/// [`Error::Unsupported`] when the row has no expression for the class of `compute`.
pub fn pointwise(
    op: u32,
    compute: DType,
    shape: &[i64],
    outputs: usize,
    operands: &[Operand<'_>],
    scalars: &[Scalar],
    casts: u32,
) -> Result<()> {
    let row = row(op)?;
    let is_meant =
        outputs == row.outputs && operands.len() == outputs + row.arity && scalars.len() == row.scalars.len();
    let (Some((out, rest)), true) = (operands.split_first(), is_meant) else {
        return Err(Error::Invalid(format!(
            "OpenCL: {} has {} outputs, {} inputs and {} scalars, got {outputs} outputs, {} operands and {} scalars",
            row.name,
            row.outputs,
            row.arity,
            row.scalars.len(),
            operands.len(),
            scalars.len()
        )));
    };
    let (more_outs, inputs) = rest.split_at(outputs - 1);
    let target = Target::of(out.address)?;
    // Copies within one dtype, and fills, do not need a device that computes in that dtype.
    let is_stored_only = || out.dtype.class().check(&target.device.info).is_err();
    match (row.expr_for(compute), inputs) {
        (Some("a"), &[source]) if source.dtype == out.dtype && source.address != 0 => {
            if source.dtype.is_rare() {
                let dtype = source.dtype.moved_as();
                let moved = [Operand { dtype, ..*out }, Operand { dtype, ..source }];
                let [out, inputs @ ..] = &moved;
                let call = Call { row, compute: dtype, target, out: *out, more_outs, inputs, scalars, casts };
                return call.over(shape, &moved);
            }
            if is_stored_only() {
                return copy_words(op, shape, [out, &source], scalars);
            }
        }
        (Some("C(value)" | "value"), []) if is_stored_only() => return fill_words(op, shape, out, scalars),
        _ => {}
    }
    // Integers that are cast to floats are computed as floats: only the dtypes of the class are stored by vectors.
    let stores_floats = match out.dtype.class() {
        class @ (Class::Float | Class::Double) => class.check(&target.device.info).is_ok(),
        _ => false,
    };
    let is_cast = row.expr_for(compute) == Some("a") && compute.class() == Class::Integer && casts == 0;
    let compute = if is_cast && stores_floats { out.dtype } else { compute };
    let is_converted = |operand: &&Operand<'_>| operand.address != 0 && operand.dtype != compute;
    target.converts(operands.iter().filter(is_converted).map(|operand| operand.dtype))?;
    Call { row, compute, target, out: *out, more_outs, inputs, scalars, casts }.over(shape, operands)
}

/// Has as many buffers as the op has operands.
const DENSE: EntryPoint<Listed<'static>> = Listed::entry_point("pointwise_dense");
const STRIDED: EntryPoint<Listed<'static>> = Listed::entry_point("pointwise_strided");

struct Call<'a> {
    row: &'static PointwiseRow,
    compute: DType,
    target: Target,
    out: Operand<'a>,
    more_outs: &'a [Operand<'a>],
    inputs: &'a [Operand<'a>],
    scalars: &'a [Scalar],
    casts: u32,
}

impl Call<'_> {
    fn over(&self, shape: &[i64], operands: &[Operand<'_>]) -> Result<()> {
        if shape.len() > MAX_DIMS {
            return self.over_slices(shape, operands);
        }
        let count: i64 = shape.iter().product();
        let class = self.compute.class();
        if let Some(source) = self.copied() {
            if transpose::copy(&self.target, shape, &self.out, source, self.writes_non_temporal(count))? {
                return Ok(());
            }
        }
        let dense = self.dense_sources(shape);
        let lanes = match class {
            Class::Complex | Class::ComplexDouble => 1,
            _ if self.target.is_cpu() => CPU_VECTOR / class.size(),
            _ if dense.is_none() && !fits_vectors(shape, operands, GPU_VECTOR / class.size()) => 1,
            _ => GPU_VECTOR / class.size(),
        };
        let non_temporal = (dense.is_some() && self.writes_non_temporal(count)).then_some(("SPEC_NON_TEMPORAL", 1));
        let narrow = self.is_narrow();
        let wide = if dense.is_some() { self.specialised_lanes(lanes, narrow, operands) } else { lanes };
        let widened = (wide > lanes).then_some(("SPEC_VEC", wide as i32));
        let narrowed = narrow.then_some(("SPEC_INT", 1));
        let constants = self.constants(dense, shape.len()).chain(non_temporal).chain(widened).chain(narrowed);
        let spec = tier(count, constants).define("VEC", lanes as i64);
        let program = program(&self.target, Family::Pointwise, class, self.row, spec)?;
        let lanes = if program.is_specialised() { wide } else { lanes };

        let sources = dense.unwrap_or_else(|| self.value_sources());
        let facing = if dense.is_some() { None } else { self.facing(shape, operands, &program)? };
        let tiles = if dense.is_some() { Tiles::default() } else { self.tiles(shape, operands, lanes, facing) };
        let (launch, buffers) = self.launch_struct(class, count, sources, &tiles)?;
        let mut args = Vec::with_capacity(2 + MAX_OPERANDS);
        args.push(Arg::Bytes(&launch));
        let layout;
        let kernel = if dense.is_some() {
            DENSE
        } else {
            layout = layout_facing(shape, operands, facing)?;
            args.push(Arg::of(&layout));
            STRIDED
        };
        args.extend(buffers);
        let (items, group) = if dense.is_some() {
            self.dense_items((count as usize).div_ceil(lanes), &program)?
        } else {
            // On GPUs items that share no tile may be in groups of any size.
            let (items, group) = tiles.items(&self.target);
            (items, (self.target.is_cpu() || facing.is_some()).then_some(group))
        };
        let group = group.map(|group| [group]);
        let local = group.as_ref().map(|group| &group[..]);
        self.target.launch_elements(&program, kernel, &Listed(&args), count, &[items], local)
    }

    /// Work-items of the dense kernel, and of its groups; `None` if the driver chooses.
    fn dense_items(&self, vectors: usize, program: &CachedProgram) -> Result<(usize, Option<usize>)> {
        if self.target.is_cpu() {
            return Ok((vectors.next_multiple_of(GROUP), Some(GROUP)));
        }
        let fits = program.kernel(DENSE.name)?.largest_group() >= GPU_GROUP;
        Ok((vectors.next_multiple_of(GPU_GROUP), fits.then_some(GPU_GROUP)))
    }

    fn outs(&self) -> impl Iterator<Item = &Operand<'_>> {
        std::iter::once(&self.out).chain(self.more_outs)
    }

    /// For more dimensions than a kernel can walk: one launch per index of the outermost dimension.
    fn over_slices(&self, shape: &[i64], operands: &[Operand<'_>]) -> Result<()> {
        let Some((&outermost, inner)) = shape.split_last() else { return Ok(()) };
        for index in 0..outermost {
            let sliced: Vec<Operand<'_>> = operands
                .iter()
                .map(|operand| {
                    let (&stride, strides) = operand.strides.split_last().unwrap_or((&0, &[]));
                    // A flipped dimension is walked backwards. A scalar from the host keeps address 0.
                    let step = if operand.address == 0 { 0 } else { index * stride };
                    let address = operand.address.wrapping_add_signed(step as isize);
                    Operand { address, strides, ..*operand }
                })
                .collect();
            let Some((out, rest)) = sliced.split_first() else { return Ok(()) };
            let (more_outs, inputs) = rest.split_at(self.more_outs.len());
            Call { out: *out, more_outs, inputs, ..*self }.over(inner, &sliced)?;
        }
        Ok(())
    }

    /// On GPUs, the dimension along which a transposed operand is dense, if tiles of it and dimension 0 fill a group.
    fn facing(&self, shape: &[i64], operands: &[Operand<'_>], program: &CachedProgram) -> Result<Option<usize>> {
        let is_long = |dim: usize| shape.get(dim).is_some_and(|size| *size >= GPU_SIDE);
        if self.target.is_cpu() || !is_long(0) {
            return Ok(None);
        }
        let is_dense = |operand: &Operand<'_>, dim: usize| {
            operand.strides.get(dim).is_some_and(|stride| stride.unsigned_abs() as usize == operand.dtype.size())
        };
        let faces = |dim: usize| operands.iter().any(|operand| is_across(operand, dim) && is_dense(operand, dim));
        let Some(dim) = (1..shape.len()).find(|&dim| is_long(dim) && faces(dim)) else { return Ok(None) };
        let has_groups = program.kernel(STRIDED.name)?.largest_group() as i64 >= GPU_SIDE * GPU_SIDE;
        Ok(has_groups.then_some(dim))
    }

    /// Tiles of the strided kernel.
    fn tiles(&self, shape: &[i64], operands: &[Operand<'_>], lanes: usize, facing: Option<usize>) -> Tiles {
        let size = |dim: usize| shape.get(dim).copied().unwrap_or(1);
        let vectors = (size(0) as u64).div_ceil(lanes as u64) as i64;
        let (wide, high) = if facing.is_some() {
            (GPU_SIDE, GPU_SIDE)
        } else if !self.target.is_cpu() {
            (1, 1)
        } else if operands.iter().any(|operand| is_across(operand, 1)) {
            (1, TILE_ROWS)
        } else {
            (vectors.min(TILE_VECTORS), (TILE_VECTORS / vectors.max(1)).max(1))
        };
        let next = facing.unwrap_or(1);
        let rows_at_once = (lanes as i64 / size(0).max(1)).clamp(1, size(next).max(1));
        let outer: i64 =
            shape.iter().enumerate().filter(|(dim, _)| ![0, next].contains(dim)).map(|(_, size)| size).product();
        let tiles = |size: i64, tile: i64| (size as u64).div_ceil(tile as u64) as i64;
        let count = tiles(vectors, wide) * tiles(size(next), high * rows_at_once) * outer;
        Tiles { vectors: wide, rows: high, rows_at_once, count }
    }

    /// Returns true if the output should be written with non-temporal stores. An output that is also read is in the
    /// caches already: such stores would take two to three times as long in place.
    fn writes_non_temporal(&self, count: i64) -> bool {
        self.target.writes_non_temporal(count as usize * self.out.dtype.size())
            && self.inputs.iter().all(|input| self.outs().all(|out| input.address != out.address))
    }

    /// The `sources` argument of the dense kernel, if every operand is contiguous or a single element.
    fn dense_sources(&self, shape: &[i64]) -> Option<i32> {
        let (size, is_one) = match shape {
            [] => (1, true),
            [size] => (*size, *size == 1),
            _ => return None,
        };
        let stride_of = |operand: &Operand<'_>| operand.strides.first().copied().unwrap_or(0);
        let is_dense = |operand: &Operand<'_>| is_one || stride_of(operand) == operand.dtype.size() as i64;
        if size == 0 || !self.outs().all(is_dense) {
            return None;
        }
        self.inputs.iter().zip(0..).try_fold(self.row.absent_sources(Family::Pointwise), |sources, (input, index)| {
            let source = if input.address == 0 {
                Source::Value
            } else if is_dense(input) {
                Source::Dense
            } else if stride_of(input) == 0 {
                Source::One
            } else {
                return None;
            };
            Some(sources | (source as i32) << (2 * index))
        })
    }

    /// The `sources` argument of the strided kernel: only scalars from the host matter.
    fn value_sources(&self) -> i32 {
        self.inputs
            .iter()
            .zip(0..)
            .filter(|(input, _)| input.address == 0)
            .fold(self.row.absent_sources(Family::Pointwise), |sources, (_, index)| {
                sources | (Source::Value as i32) << (2 * index)
            })
    }

    /// The input, if the output gets its elements as they are.
    fn copied(&self) -> Option<&Operand<'_>> {
        let is_copy = self.row.expr_for(self.compute) == Some("a");
        let input = self.inputs.first().filter(|_| is_copy)?;
        (input.address != 0 && input.dtype == self.out.dtype).then_some(input)
    }

    /// The case of the switch.
    fn case(&self) -> Result<u32> {
        if self.row.expr_for(self.compute).is_none() {
            return Err(Error::Unsupported(format!(
                "\"{}\" not implemented for '{}'",
                self.row.name,
                self.compute.name()
            )));
        }
        Ok(self.row.op as u32)
    }

    /// Dtype that the result is rounded to before it is stored: an output from the caller may have a wider dtype. A
    /// copy that only converts needs no rounding, and bools fit every dtype.
    fn result_dtype(&self) -> DType {
        let is_copy = self.row.expr == Some("a");
        if is_copy || self.out.dtype == DType::Bool {
            self.out.dtype
        } else {
            self.compute
        }
    }

    /// Constants of a specialised program. An iterator, so that launches of the generic program allocate nothing.
    fn constants(&self, dense: Option<i32>, ndim: usize) -> impl Iterator<Item = (&'static str, i32)> + '_ {
        const DTYPES: [&str; SLOTS] = ["SPEC_DTYPE0", "SPEC_DTYPE1", "SPEC_DTYPE2", "SPEC_DTYPE3"];
        let case = self.case().unwrap_or(self.row.op as u32);
        let of_row = [
            ("SPEC_OP", case as i32),
            ("SPEC_SOURCES", dense.unwrap_or_else(|| self.value_sources())),
            ("SPEC_DTYPE_OUT", self.out.dtype.code()),
            ("SPEC_DTYPE", self.result_dtype().code()),
        ];
        let second = self.more_outs.first().map(|out| ("SPEC_DTYPE_OUT1", out.dtype.code()));
        let casts = [("SPEC_CASTS", self.casts as i32), ("SPEC_COMMON", self.compute.code())];
        of_row
            .into_iter()
            .chain(DTYPES.into_iter().zip(self.inputs.iter().map(|input| input.dtype.code())))
            .chain(second)
            .chain(casts.into_iter().filter(|_| self.casts != 0))
            .chain(dense.is_none().then_some(("SPEC_NDIM", ndim as i32)))
    }

    /// The kernel's `Launch`, and the buffers of its offsets.
    fn launch_struct(
        &self,
        class: Class,
        count: i64,
        sources: i32,
        tiles: &Tiles,
    ) -> Result<(Vec<u8>, Vec<Arg<'static>>)> {
        let mut buffers = Vec::with_capacity(MAX_OPERANDS);
        let (mut offsets, mut dtypes) = ([0_u64; MAX_OPERANDS], [0_i32; MAX_OPERANDS]);
        let operands = self.outs().chain(self.inputs);
        for ((operand, offset), dtype) in operands.zip(&mut offsets).zip(&mut dtypes) {
            let memory = self.target.memory(operand.address)?;
            buffers.push(Arg::Buffer(memory.handle));
            (*offset, *dtype) = (memory.offset, operand.dtype.code());
        }
        buffers.resize(self.row.outputs + self.row.slots(Family::Pointwise), Arg::Buffer(MemHandle::NULL));
        let mut bytes = Vec::with_capacity(2 * SLOTS * class.size() + 112);
        for slot in 0..SLOTS {
            self.scalars.get(slot).copied().unwrap_or_default().write(class, &mut bytes);
        }
        for slot in 0..SLOTS {
            self.inputs.get(slot).map(|input| input.value).unwrap_or_default().write(class, &mut bytes);
        }
        bytes.extend(count.to_ne_bytes());
        bytes.extend(offsets.iter().flat_map(|offset| offset.to_ne_bytes()));
        bytes.extend(tiles.count.to_ne_bytes());
        let tile = [tiles.vectors, tiles.rows, tiles.rows_at_once].map(|size| size as i32);
        let casts = [self.casts as i32, self.compute.code()];
        let rest = [self.result_dtype().code(), self.case()? as i32, sources].into_iter().chain(casts).chain(tile);
        bytes.extend(dtypes.into_iter().chain(rest).flat_map(i32::to_ne_bytes));
        // The size of the struct is a multiple of its alignment.
        bytes.resize(bytes.len().next_multiple_of(class.size().max(size_of::<i64>())), 0);
        Ok((bytes, buffers))
    }
}
