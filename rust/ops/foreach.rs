//! A pointwise op on every tensor of a list: several small tensors a launch.
//!
//! A launch of a small tensor costs the host 5 us and more, of which its elements are a small part: a model of a hundred
//! parameters pays that a hundred times for each step of an optimizer.

use super::geometry::Geometry;
use super::pointwise::{self, Operand, Source};
use super::space::div_ceil;
use super::tier::tier;
use super::{Scalar, Target};
use crate::cl::{Arg, MemHandle};
use crate::error::{Error, Result};
use crate::kernels::{Class, DType, Family, MAX_OPERANDS};

/// As in `cl/foreach.cl`.
const SEGMENTS: usize = 16;
const BUFFERS: usize = 8;
const CHUNK: i64 = 1024;
/// Items of a group on GPUs.
const GPU_GROUP: usize = 64;
/// A larger tensor repays a launch of its own, with a program that is cut to it.
const LARGEST: i64 = 1 << 16;

/// The tensors of one operand: dense, and the n-th of each operand laid out alike.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// Where they begin.
    pub addresses: &'a [usize],
    /// Their dtype.
    pub dtype: DType,
    /// Whether it is one number in device memory, for all tensors.
    pub is_one: bool,
}

impl List<'_> {
    fn address(&self, index: usize) -> usize {
        let index = if self.is_one { 0 } else { index };
        self.addresses.get(index).copied().unwrap_or(0)
    }
}

/// Where one tensor of each operand lies.
struct Segment {
    index: usize,
    count: i64,
    /// Buffer, and offset in elements.
    places: Vec<(MemHandle, u32)>,
}

/// One call.
struct Call<'a> {
    target: Target,
    op: u32,
    class: Class,
    lists: &'a [List<'a>],
    numbers: &'a [Scalar],
    number_is_input: bool,
}

/// Computes `lists[0][n] = op(lists[1][n], ...)` over `counts[n]` elements, for every n. Of `numbers` there are none, one,
/// or one for each tensor: the last input of the op, or its parameter.
///
/// # Errors
/// [`Error::Invalid`] when an op takes other inputs than there are.
pub fn launch(op: u32, counts: &[i64], lists: &[List<'_>], numbers: &[Scalar], number_is_input: bool) -> Result<()> {
    let row = pointwise::row(op)?;
    if row.arity + 1 != lists.len() + usize::from(number_is_input) || lists.len() > MAX_OPERANDS {
        return Err(Error::Invalid(format!(
            "OpenCL: {} takes {} inputs, got {} lists",
            row.name,
            row.arity,
            lists.len()
        )));
    }
    let Some(out) = lists.first() else { return Ok(()) };
    let Some(present) = counts.iter().position(|count| *count > 0) else { return Ok(()) };
    let target = Target::of(out.address(present))?;
    let call = Call { target, op, class: out.dtype.class(), lists, numbers, number_is_input };
    let mut batch = Batch::default();
    for (index, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let Some(segment) = call.segment(index, count)? else {
            call.alone(index, count)?;
            continue;
        };
        if !batch.takes(&segment) {
            call.run(&batch)?;
            batch = Batch::default();
        }
        batch.push(segment);
    }
    call.run(&batch)
}

/// What one launch does.
#[derive(Default)]
struct Batch {
    segments: Vec<Segment>,
    buffers: Vec<MemHandle>,
}

impl Batch {
    fn takes(&self, segment: &Segment) -> bool {
        let mut fresh: Vec<MemHandle> = Vec::new();
        for (memory, _) in &segment.places {
            if !self.buffers.contains(memory) && !fresh.contains(memory) {
                fresh.push(*memory);
            }
        }
        self.segments.len() < SEGMENTS && self.buffers.len() + fresh.len() <= BUFFERS
    }

    fn push(&mut self, segment: Segment) {
        for (memory, _) in &segment.places {
            if !self.buffers.contains(memory) {
                self.buffers.push(*memory);
            }
        }
        self.segments.push(segment);
    }

    fn buffer(&self, memory: MemHandle) -> u8 {
        self.buffers.iter().zip(0..).find_map(|(buffer, index)| (*buffer == memory).then_some(index)).unwrap_or(0)
    }
}

impl Call<'_> {
    /// Where the tensors of an index lie; `None` for those that have to go alone.
    fn segment(&self, index: usize, count: i64) -> Result<Option<Segment>> {
        if count > LARGEST {
            return Ok(None);
        }
        let mut places = Vec::with_capacity(self.lists.len());
        for list in self.lists {
            let (memory, offset) = self.target.location(list.address(index))?;
            let size = list.dtype.size() as u64;
            let Some(offset) = u32::try_from(offset / size).ok().filter(|_| offset.is_multiple_of(size)) else {
                return Ok(None);
            };
            places.push((memory, offset));
        }
        Ok(Some(Segment { index, count, places }))
    }

    /// The number of an index.
    fn number(&self, index: usize) -> Scalar {
        let index = if self.numbers.len() == 1 { 0 } else { index };
        self.numbers.get(index).copied().unwrap_or_default()
    }

    /// The parameter of an op whose input is a number: adding a number adds 1 of it.
    const ONE: Scalar = Scalar { real: 1.0, imag: 0.0, integer: 1 };

    /// One tensor as an op of its own.
    fn alone(&self, index: usize, count: i64) -> Result<()> {
        let dense: Vec<[i64; 1]> =
            self.lists.iter().map(|list| [if list.is_one { 0 } else { list.dtype.size() as i64 }]).collect();
        let mut operands: Vec<Operand<'_>> = self
            .lists
            .iter()
            .zip(&dense)
            .map(|(list, strides)| Operand {
                address: list.address(index),
                dtype: list.dtype,
                strides,
                value: Scalar::default(),
            })
            .collect();
        let compute = self.lists.first().map_or(DType::F32, |list| list.dtype);
        if self.number_is_input {
            operands.push(Operand { address: 0, dtype: compute, strides: &[0], value: self.number(index) });
        }
        let parameters = pointwise::row(self.op)?.scalars.len().min(1);
        let scalar = if self.number_is_input { Self::ONE } else { self.number(index) };
        pointwise::launch(self.op, compute, &[count], 1, &operands, &vec![scalar; parameters])
    }

    fn sources(&self) -> i32 {
        let numbers = self.number_is_input.then_some(Source::Value);
        let inputs = self.lists.iter().skip(1).map(|list| if list.is_one { Source::One } else { Source::Dense });
        inputs.chain(numbers).zip(0..).fold(0, |sources, (source, index)| sources | (source as i32) << (2 * index))
    }

    fn run(&self, batch: &Batch) -> Result<()> {
        let Some(&first) = batch.buffers.first() else { return Ok(()) };
        let row = pointwise::row(self.op)?;
        let count: i64 = batch.segments.iter().map(|segment| segment.count).sum();
        let group = if self.target.is_cpu() { 1 } else { GPU_GROUP };
        let lanes = Geometry::of(&self.target, self.class).lanes;
        let spec = tier(count, &self.constants()).define("VEC", lanes as i64).define("LSIZE", group as i64);
        let program = pointwise::program(&self.target, Family::Foreach, self.class, row, spec)?;
        let table = self.table(batch);
        let mut args = vec![Arg::Bytes(&table)];
        args.extend((0..BUFFERS).map(|index| Arg::Buffer(batch.buffers.get(index).copied().unwrap_or(first))));
        let groups: i64 = batch.segments.iter().map(|segment| div_ceil(segment.count, CHUNK)).sum();
        let global = [groups.max(0) as usize * group];
        self.target.launch_elements(&program, "foreach", &args, count, &global, Some(&[group]))
    }

    fn constants(&self) -> Vec<(&'static str, i32)> {
        const DTYPES: [&str; MAX_OPERANDS] =
            ["SPEC_DTYPE_OUT", "SPEC_DTYPE0", "SPEC_DTYPE1", "SPEC_DTYPE2", "SPEC_DTYPE3"];
        let mut constants = vec![("SPEC_OP", self.op as i32), ("SPEC_SOURCES", self.sources())];
        constants.extend(DTYPES.iter().copied().zip(self.lists.iter().map(|list| list.dtype.code())));
        constants
    }

    /// The struct `Table` of `cl/foreach.cl`.
    fn table(&self, batch: &Batch) -> Vec<u8> {
        const PARAMETERS: usize = 4;
        let mut bytes = Vec::with_capacity(1024);
        for _ in 0..PARAMETERS {
            Self::ONE.write(self.class, &mut bytes);
        }
        let (mut ends, mut counts) = ([0_u32; SEGMENTS], [0_u32; SEGMENTS]);
        let (mut offsets, mut buffers) = ([[0_u32; MAX_OPERANDS]; SEGMENTS], [[0_u8; MAX_OPERANDS]; SEGMENTS]);
        let mut end = 0;
        for slot in 0..SEGMENTS {
            let number = batch.segments.get(slot).map(|segment| self.number(segment.index));
            number.unwrap_or_default().write(self.class, &mut bytes);
        }
        let rows = ends.iter_mut().zip(&mut counts).zip(offsets.iter_mut().zip(&mut buffers));
        for (segment, ((last, count), (starts, memories))) in batch.segments.iter().zip(rows) {
            end += div_ceil(segment.count, CHUNK) as u32;
            (*last, *count) = (end, segment.count as u32);
            for ((start, memory), place) in starts.iter_mut().zip(memories).zip(&segment.places) {
                (*start, *memory) = (place.1, batch.buffer(place.0));
            }
        }
        bytes.extend(ends.iter().chain(&counts).chain(offsets.as_flattened()).flat_map(|number| number.to_ne_bytes()));
        bytes.extend(buffers.as_flattened());
        let mut dtypes = [0; MAX_OPERANDS];
        for (dtype, list) in dtypes.iter_mut().zip(self.lists) {
            *dtype = list.dtype.code();
        }
        let tail = [self.op as i32, self.sources(), i32::from(!self.number_is_input)];
        bytes.extend(dtypes.into_iter().chain(tail).flat_map(i32::to_ne_bytes));
        bytes
    }
}
