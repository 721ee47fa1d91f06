//! Discrete Fourier transforms.

mod axis;
mod plan;
mod tables;

use axis::{Axis, BatchDim, Side};

use crate::error::Result;
use crate::kernels::{Class, Spec};
use crate::ops::core::forms::Form;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn fft(output: &Tensor, input: &Tensor, dim: &[i64], forward: bool, scale: f64) -> Result<()>;
    }
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let most = i64::try_from(target.device.info.max_work_group).unwrap_or(i64::MAX);
    let groups = plan::GROUPS.into_iter().filter(|group| *group <= most);
    let specs = groups.map(|group| Spec::generic().define("LSIZE", group));
    specs.flat_map(|spec| [Class::Complex, Class::ComplexDouble].map(|class| (class, spec.clone()))).collect()
}

/// Transforms along the dimensions `dim`, and multiplies by `scale`. If one side is real, the complex side has all
/// coefficients of the last dimension, or only the first half. The tensors do not overlap.
///
/// # Errors
/// [`crate::error::Error::NoFloat64`] for complex128 on devices without float64.
pub fn fft(output: &Tensor<'_>, input: &Tensor<'_>, dim: &[i64], forward: bool, scale: f64) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(output.address)?;
    target.converts([input.dtype, output.dtype])?;
    let (from_real, to_real) = (!input.class().is_complex(), !output.class().is_complex());
    let class = if from_real { output.class() } else { input.class() };
    let mut axes: Vec<usize> = dim.iter().map(|&d| d as usize).collect();
    // The dimension with real values comes first or last, which halves the work for the others.
    if !to_real {
        axes.reverse();
    }
    if !from_real && !to_real && axes.iter().any(|&d| input.size(d) != 1) {
        axes.retain(|&d| input.size(d) != 1);
    }

    // Between two dimensions values are stored in the result, unless that would round them.
    let between = if to_real { input } else { output };
    let strides = dense(between.sizes);
    let is_rounded = output.dtype != class.storage() && axes.len() > 1;
    let bytes = if is_rounded { between.numel() as usize * class.storage().size() } else { 0 };
    let workspace = if is_rounded { Some(target.workspace(bytes)?) } else { None };
    let between = match &workspace {
        Some(held) => Tensor { address: held.address, dtype: class.storage(), sizes: between.sizes, strides: &strides },
        None => *output,
    };
    let mut source = *input;
    let count = axes.len();
    for (i, axis) in axes.into_iter().enumerate() {
        let result = if i + 1 == count { *output } else { between };
        let length = if source.class().is_complex() { result.size(axis) } else { source.size(axis) };
        let side = |tensor: &Tensor<'_>| -> Result<Side> {
            let is_complex = tensor.class().is_complex();
            let is_half = is_complex && (tensor.size(axis) != length || !result.class().is_complex());
            let hermitian = if is_half { length } else { 0 };
            Ok(Side { memory: target.tensor(tensor)?, dtype: tensor.dtype, stride: tensor.stride(axis), hermitian })
        };
        let others = (0..result.ndim()).filter(|d| *d != axis);
        let batch: Vec<BatchDim> =
            others.map(|d| BatchDim { size: result.size(d), strides: [source.stride(d), result.stride(d)] }).collect();
        let is_last = i + 1 == count;
        Axis {
            target: &target,
            class,
            length,
            batch: &batch,
            direction: if forward { 1 } else { -1 },
            scale: if is_last { scale } else { 1.0 },
        }
        .run(&side(&source)?, &side(&result)?)?;
        source = result;
    }
    Ok(())
}

/// Row-major strides.
fn dense(sizes: &[i64]) -> Vec<i64> {
    let mut strides: Vec<i64> = sizes
        .iter()
        .rev()
        .scan(1, |stride, size| {
            let own = *stride;
            *stride *= size;
            Some(own)
        })
        .collect();
    strides.reverse();
    strides
}
