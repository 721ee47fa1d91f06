//! Tensors made from a rule: arange and linspace.

use crate::error::Result;
use crate::kernels::entry;
use crate::kernels::{Class, DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Scalar, Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Scalar = crate::abi::Scalar;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn arange(out: &Tensor, start: Scalar, step: Scalar) -> Result<()>;
        fn linspace(out: &Tensor, start: Scalar, end: Scalar) -> Result<()>;
    }
}

/// The class of the rule: double for floats where the device has it (see `factory.cl`).
fn rule_class(target: &Target, dtype: DType) -> Class {
    match dtype.class() {
        Class::Float if target.device.info.fp64 => Class::Double,
        class => class,
    }
}

/// Fills a contiguous tensor with `start + i * step`.
///
/// # Errors
/// Errors reported by the driver.
pub fn arange(out: &Tensor<'_>, start: Scalar, step: Scalar) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let class = rule_class(&target, out.dtype);
    let geometry = Geometry::of(&target, class);
    let spec = geometry.define(tier(count, &[("SPEC_DTYPE0", out.dtype.code())]));
    let program = target.program(Family::Factory, class, &spec)?;
    let args = entry::Arange {
        out: target.tensor(out)?,
        dtype0: out.dtype,
        n: count,
        start: start.value(class),
        step: step.value(class),
    };
    let vectors = div_ceil(count, geometry.lanes as i64);
    target.launch(&program, entry::ARANGE, &args, &geometry.items_for(vectors), None)
}

/// Fills a contiguous tensor with evenly spaced values from `start` to `end`, both included.
///
/// # Errors
/// Errors reported by the driver.
pub fn linspace(out: &Tensor<'_>, start: Scalar, end: Scalar) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    // PyTorch first converts both ends to integers; the steps between them need not be integers.
    let (class, start, end) = match rule_class(&target, out.dtype) {
        Class::Integer => (rule_class(&target, DType::F32), start.trunc(), end.trunc()),
        class => (class, start, end),
    };
    let steps = (count - 1).max(1) as f64;
    let step = Scalar { real: (end.real - start.real) / steps, imag: (end.imag - start.imag) / steps, integer: 0 };
    let geometry = Geometry::of(&target, class);
    let spec = geometry.define(tier(count, &[("SPEC_DTYPE0", out.dtype.code())]));
    let program = target.program(Family::Factory, class, &spec)?;
    let args = entry::Linspace {
        out: target.tensor(out)?,
        dtype0: out.dtype,
        n: count,
        start: start.value(class),
        end: end.value(class),
        step: step.value(class),
    };
    let vectors = div_ceil(count, geometry.lanes as i64);
    target.launch(&program, entry::LINSPACE, &args, &geometry.items_for(vectors), None)
}
