//! Random numbers: distributions, dropout. The host passes the seed and the first counter of each launch.

pub mod sampling;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Arguments, EntryPoint, Value};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec, Switch};
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::core::tier::tier;
use crate::ops::{RandomStream, Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type RandomStream = crate::abi::RandomStream;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn random_counters(elements: i64) -> u64;
        fn random_sample(out: &Tensor, distribution: u32, parameters: [f64; 2], stream: RandomStream) -> Result<()>;
        fn random_integers(out: &Tensor, range: u64, base: i64, stream: RandomStream) -> Result<()>;
        fn random_bernoulli(out: &Tensor, probabilities: &Tensor, stream: RandomStream) -> Result<()>;
        fn uses_swap_kernel(out: &Tensor) -> Result<bool>;
        fn permutation(out: &Tensor, keys: &Tensor) -> Result<()>;
        fn dropout(out: &Tensor, mask: &Tensor, input: &Tensor, keep_prob: f64, stream: RandomStream) -> Result<()>;
        fn dropout_backward(grad_in: &Tensor, grad_out: &Tensor, mask: &Tensor, scale: f64) -> Result<()>;
    }
}

mod table {
    //! The distributions of the op table.

    include!(concat!(env!("OUT_DIR"), "/distributions.rs"));
}

/// Number of consecutive counters in a group; `COUNTERS_PER_GROUP` in `random.cl`.
const COUNTERS_PER_GROUP: i64 = 8;

/// Number of elements that the counters of a group make; `GROUP` in `random.cl`. Each counter makes four 32-bit words.
const fn group(class: Class) -> i64 {
    match class {
        Class::Float => 32,
        _ => 16,
    }
}

/// Counters that a launch over `elements` uses up, in any class.
pub const fn random_counters(elements: i64) -> u64 {
    (div_ceil(elements, group(Class::Double)) * COUNTERS_PER_GROUP) as u64
}

/// The class that a distribution is drawn in: integers are drawn in single precision.
fn drawing_class(dtype: DType) -> Result<Class> {
    match dtype.class() {
        Class::Double => Ok(Class::Double),
        Class::Float | Class::Integer | Class::Unsigned => Ok(Class::Float),
        Class::Complex | Class::ComplexDouble => {
            Err(Error::Unsupported(format!("OpenCL: random numbers of dtype {} are not supported", dtype.name())))
        }
    }
}

/// Work-items that draw `elements`: on CPUs each runs the counters of a group, on GPUs one counter.
fn drawing_items(target: &Target, class: Class, elements: i64) -> i64 {
    let groups = div_ceil(elements, group(class));
    if target.is_cpu() {
        groups
    } else {
        groups * COUNTERS_PER_GROUP
    }
}

fn program(target: &Target, class: Class, spec: &Spec) -> Result<Arc<CachedProgram>> {
    target.program_with_switch(Family::Random, class, spec, |_| switch())
}

/// The distributions of all programs.
pub(in crate::ops) fn switch() -> Switch {
    Switch { functions: table::CODES, cases: table::CASES.to_owned() }
}

/// Enqueues a kernel whose items check their bounds. Therefore all launches have one group size, and a driver that
/// compiles a kernel for each group size compiles it once.
fn launch<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    items: i64,
) -> Result<()> {
    let global = (items as usize).next_multiple_of(ITEM_GROUP);
    target.launch(program, kernel, args, &[global], Some(&[ITEM_GROUP]))
}

/// Fills a dense tensor from a distribution of the op table, of up to two parameters.
///
/// # Errors
/// [`Error::Unsupported`] for complex dtypes.
pub fn random_sample(out: &Tensor<'_>, distribution: u32, parameters: [f64; 2], stream: RandomStream) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    if table::NAMES.get(distribution as usize).is_none() {
        return Err(Error::Invalid(format!("OpenCL: distribution {distribution} is not in the op table")));
    }
    let class = drawing_class(out.dtype)?;
    let [first, second] = parameters;
    let target = Target::of(out.address)?;
    let spec = tier(count, &[("SPEC_OP", distribution as i32), ("SPEC_DTYPE0", out.dtype.code())]);
    let program = program(&target, class, &spec)?;
    let args = entry::RandomSample {
        out: target.tensor(out)?,
        op: distribution as i32,
        dtype0: out.dtype,
        n: count,
        seed: stream.seed,
        offset: stream.offset,
        a: Value::real(class, first),
        b: Value::real(class, second),
    };
    launch(&target, &program, entry::RANDOM_SAMPLE, &args, drawing_items(&target, class, count))
}

/// Fills a dense tensor with `base` plus integers below `range`; range 0 means all 64 bits.
///
/// # Errors
/// Errors reported by the driver.
pub fn random_integers(out: &Tensor<'_>, range: u64, base: i64, stream: RandomStream) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    target.converts([out.dtype])?;
    let spec = tier(count, &[("SPEC_DTYPE0", out.dtype.code())]);
    let program = program(&target, Class::Integer, &spec)?;
    let args = entry::RandomIntegers {
        out: target.tensor(out)?,
        dtype0: out.dtype,
        n: count,
        seed: stream.seed,
        offset: stream.offset,
        range,
        base,
    };
    launch(&target, &program, entry::RANDOM_INTEGERS, &args, drawing_items(&target, Class::Integer, count))
}

/// Fills a dense tensor with 0 and 1; `probabilities` has the same layout. A probability outside [0, 1] is a
/// fault of the stream.
///
/// # Errors
/// [`Error::Unsupported`] for complex dtypes.
pub fn random_bernoulli(out: &Tensor<'_>, probabilities: &Tensor<'_>, stream: RandomStream) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let class = drawing_class(probabilities.dtype)?;
    let target = Target::of(out.address)?;
    target.converts([out.dtype])?;
    let dtypes = [("SPEC_DTYPE0", out.dtype.code()), ("SPEC_DTYPE1", probabilities.dtype.code())];
    let program = program(&target, class, &tier(count, &dtypes))?;
    let args = entry::RandomBernoulli {
        out: target.tensor(out)?,
        p: target.tensor(probabilities)?,
        dtype0: out.dtype,
        dtype1: probabilities.dtype,
        n: count,
        seed: stream.seed,
        offset: stream.offset,
        faults: target.faults()?,
    };
    launch(&target, &program, entry::RANDOM_BERNOULLI, &args, drawing_items(&target, class, count))
}

/// Returns true if [`permutation`] is used on the device of `out`: on CPUs, where its one work-item takes a quarter of
/// the time of sorting random keys.
///
/// # Errors
/// [`Error::Invalid`] if the address belongs to no device.
pub fn uses_swap_kernel(out: &Tensor<'_>) -> Result<bool> {
    Ok(Target::of(out.address)?.is_cpu())
}

/// Fills `out` with the permutation that `keys`, random numbers of 63 bits, determine. Both are dense and int64.
///
/// # Errors
/// Errors reported by the driver.
pub fn permutation(out: &Tensor<'_>, keys: &Tensor<'_>) -> Result<()> {
    let n = out.numel();
    if n == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let spec = tier(n, &[("SPEC_DTYPE0", out.dtype.code())]);
    let program = program(&target, Class::Integer, &spec)?;
    let args = entry::Permutation { out: target.tensor(out)?, keys: target.tensor(keys)?, n };
    target.launch(&program, entry::PERMUTATION, &args, &[1], Some(&[1]))
}

/// Keeps each element with probability `keep_prob`, and divides it by `keep_prob`; `mask` (bool) is true for elements
/// that are kept. All tensors have the same layout.
///
/// # Errors
/// [`Error::Unsupported`] for complex dtypes.
pub fn dropout(
    out: &Tensor<'_>,
    mask: &Tensor<'_>,
    input: &Tensor<'_>,
    keep_prob: f64,
    stream: RandomStream,
) -> Result<()> {
    let count = input.numel();
    if count == 0 {
        return Ok(());
    }
    let class = drawing_class(input.dtype)?;
    let target = Target::of(out.address)?;
    let spec = tier(count, &[("SPEC_DTYPE0", input.dtype.code())]);
    let program = program(&target, class, &spec)?;
    let args = entry::Dropout {
        out: target.tensor(out)?,
        mask: target.tensor(mask)?,
        input: target.tensor(input)?,
        dtype0: input.dtype,
        n: count,
        seed: stream.seed,
        offset: stream.offset,
        keep_prob: Value::real(class, keep_prob),
        scale: Value::real(class, keep_prob.recip()),
    };
    launch(&target, &program, entry::DROPOUT, &args, drawing_items(&target, class, count))
}

/// `grad_in = mask ? grad_out * scale : 0`. All tensors have the same layout.
///
/// # Errors
/// [`Error::Unsupported`] for complex dtypes.
pub fn dropout_backward(grad_in: &Tensor<'_>, grad_out: &Tensor<'_>, mask: &Tensor<'_>, scale: f64) -> Result<()> {
    let count = grad_out.numel();
    if count == 0 {
        return Ok(());
    }
    let class = drawing_class(grad_out.dtype)?;
    let target = Target::of(grad_in.address)?;
    let spec = tier(count, &[("SPEC_DTYPE0", grad_out.dtype.code())]);
    let program = program(&target, class, &spec)?;
    let args = entry::DropoutBackward {
        grad_in: target.tensor(grad_in)?,
        grad_out: target.tensor(grad_out)?,
        mask: target.tensor(mask)?,
        dtype0: grad_out.dtype,
        n: count,
        scale: Value::real(class, scale),
    };
    let items = if target.is_cpu() { div_ceil(count, COUNTERS_PER_GROUP) } else { count };
    launch(&target, &program, entry::DROPOUT_BACKWARD, &args, items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_whole_groups_of_counters() {
        assert_eq!(random_counters(0), 0);
        assert_eq!(random_counters(1), 8);
        assert_eq!(random_counters(16), 8);
        assert_eq!(random_counters(17), 16);
    }
}
