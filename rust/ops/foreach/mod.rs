//! A pointwise op on every tensor of a list: several small tensors per launch.

pub mod norm;

use crate::error::{Error, Result};
use crate::kernels::entry;
use crate::kernels::{Class, DType, Family, Spec, Switch, MAX_OPERANDS};
use crate::ops::core::forms::{Form, REALS};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::multi_tensor::{MultiTensorBatch, CHUNK};
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::core::tier::tier;
use crate::ops::pointwise;
use crate::ops::pointwise::row::{forms_of, program, row, PointwiseRow, Source};
use crate::ops::{Operand, Scalar, Target, TensorList};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Scalar = crate::abi::Scalar;
        type TensorList<'a> = crate::abi::TensorList<'a>;
    }

    extern "Rust" {
        fn foreach(
            op: u32,
            counts: &[i64],
            lists: &[TensorList],
            scalars: &[Scalar],
            scalar_is_input: bool,
        ) -> Result<()>;
    }
}

/// Tensors of a launch, whose arguments must fit the 1024 bytes that every device supports.
const TENSORS: usize = 11;
type Tensors = MultiTensorBatch<TENSORS, MAX_OPERANDS>;
/// Parameters of a stub that the kernel's `ForeachLaunch` has room for.
const PARAMETERS: usize = 4;
/// A larger tensor is worth a separate launch, with a specialised program.
const LARGEST: i64 = 1 << 16;

/// The generic programs of ops that optimizers and gradient clipping call.
pub(in crate::ops) fn forms(target: &Target) -> Vec<(Family, Form, Switch)> {
    let is_common = |row: &PointwiseRow| row.part == 0 && row.outputs == 1 && row.arity <= 3;
    let forms = |class| forms_of(Family::Foreach, class, &spec(target, class, Spec::generic()), is_common);
    REALS.into_iter().flat_map(forms).collect()
}

fn spec(target: &Target, class: Class, spec: Spec) -> Spec {
    let lanes = Geometry::of(target, class).lanes;
    Tensors::define(spec).define("VEC", lanes as i64).define("LSIZE", group(target) as i64)
}

fn group(target: &Target) -> usize {
    if target.is_cpu() {
        1
    } else {
        ITEM_GROUP
    }
}

struct ForeachCall<'a> {
    target: Target,
    op: u32,
    class: Class,
    lists: &'a [TensorList<'a>],
    scalars: &'a [Scalar],
    scalar_is_input: bool,
}

/// Computes `lists[0][n] = op(lists[1][n], ...)` over `counts[n]` elements, for every n. `scalars` holds none, one, or
/// one for each tensor: the last input of the op, or its parameter.
///
/// # Errors
/// [`Error::Invalid`] if the op takes a different number of inputs.
pub fn foreach(
    op: u32,
    counts: &[i64],
    lists: &[TensorList<'_>],
    scalars: &[Scalar],
    scalar_is_input: bool,
) -> Result<()> {
    let row = row(op)?;
    if row.arity + 1 != lists.len() + usize::from(scalar_is_input) || lists.len() > MAX_OPERANDS {
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
    target.converts(lists.iter().map(|list| list.dtype))?;
    let call = ForeachCall { target, op, class: out.dtype.class(), lists, scalars, scalar_is_input };
    // Large tensors are launched alone, before the batches of the others.
    let (large, small): (Vec<_>, Vec<_>) = counts.iter().copied().enumerate().partition(|(_, count)| *count > LARGEST);
    for (index, count) in large {
        call.alone(index, count)?;
    }
    Tensors::for_each(&call.target, lists, small.into_iter(), |batch| call.run(batch))
}

impl ForeachCall<'_> {
    /// The scalar of an index.
    fn scalar(&self, index: usize) -> Scalar {
        let index = if self.scalars.len() == 1 { 0 } else { index };
        self.scalars.get(index).copied().unwrap_or_default()
    }

    /// The parameter of an op whose input is a scalar: alpha is 1.
    const ONE: Scalar = Scalar { real: 1.0, imag: 0.0, integer: 1 };

    /// Launches the op on one tensor alone.
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
        if self.scalar_is_input {
            operands.push(Operand { address: 0, dtype: compute, strides: &[0], value: self.scalar(index) });
        }
        let parameters = row(self.op)?.scalars.len().min(1);
        let scalar = if self.scalar_is_input { Self::ONE } else { self.scalar(index) };
        pointwise::pointwise(self.op, compute, &[count], 1, &operands, &vec![scalar; parameters], 0)
    }

    fn sources(&self, row: &PointwiseRow) -> i32 {
        let scalar = self.scalar_is_input.then_some(Source::Value);
        let inputs = self.lists.iter().skip(1).map(|list| if list.is_one { Source::One } else { Source::Dense });
        let all = inputs.chain(scalar).zip(0..);
        all.fold(row.absent_sources(Family::Foreach), |sources, (source, index)| {
            sources | (source as i32) << (2 * index)
        })
    }

    fn run(&self, batch: &Tensors) -> Result<()> {
        let row = row(self.op)?;
        let count = batch.elements();
        let group = group(&self.target);
        let spec = spec(&self.target, self.class, tier(count, &self.constants(row)));
        let program = program(&self.target, Family::Foreach, self.class, row, spec)?;
        let (table, launch) = (batch.table(CHUNK), self.launch_struct(batch, row));
        let args = entry::Foreach { launch: &launch, multi_tensor: batch.arguments(&table) };
        let global = [batch.groups(CHUNK) * group];
        self.target.launch_elements(&program, entry::FOREACH, &args, count, &global, Some(&[group]))
    }

    fn constants(&self, row: &PointwiseRow) -> Vec<(&'static str, i32)> {
        const DTYPES: [&str; MAX_OPERANDS] =
            ["SPEC_DTYPE_OUT", "SPEC_DTYPE0", "SPEC_DTYPE1", "SPEC_DTYPE2", "SPEC_DTYPE3"];
        let mut constants = vec![("SPEC_OP", self.op as i32), ("SPEC_SOURCES", self.sources(row))];
        constants.extend(DTYPES.iter().copied().zip(self.lists.iter().map(|list| list.dtype.code())));
        constants
    }

    /// The struct `ForeachLaunch` of `foreach.cl`.
    fn launch_struct(&self, batch: &Tensors, row: &PointwiseRow) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        for _ in 0..PARAMETERS {
            Self::ONE.write(self.class, &mut bytes);
        }
        for slot in 0..TENSORS {
            let scalar = batch.tensors.get(slot).map(|tensor| self.scalar(tensor.index));
            scalar.unwrap_or_default().write(self.class, &mut bytes);
        }
        let mut dtypes = [0; MAX_OPERANDS];
        for (dtype, list) in dtypes.iter_mut().zip(self.lists) {
            *dtype = list.dtype.code();
        }
        let tail = [self.op as i32, self.sources(row), i32::from(!self.scalar_is_input)];
        bytes.extend(dtypes.into_iter().chain(tail).flat_map(i32::to_ne_bytes));
        // The struct's size is a multiple of its alignment.
        bytes.resize(bytes.len().next_multiple_of(self.class.size()), 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_every_device_in_the_widest_class() {
        const BUFFERS: usize = 8;
        let launch = (PARAMETERS + TENSORS) * Class::ComplexDouble.size() + (MAX_OPERANDS + 3) * size_of::<i32>();
        assert!(
            Tensors::default().table(CHUNK).len() + launch.next_multiple_of(16) + BUFFERS * size_of::<usize>() <= 1024
        );
    }
}
