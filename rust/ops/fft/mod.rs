//! Discrete Fourier transforms of powers of two.

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Value};
use crate::kernels::{Family, Spec};
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn fft_c2c(output: &Tensor, input: &Tensor, dim: usize, forward: bool, scale: f64) -> Result<()>;
    }
}

/// The widest transform that registers hold. Each pass moves all elements once, and a larger radix saves passes.
const LARGEST_RADIX: i64 = 8;

/// Transforms along `dim`, a power of two, and multiplies by `scale`. `output` and `input` are contiguous, complex and of
/// one shape and dtype, and do not overlap.
///
/// # Errors
/// [`Error::Invalid`] for a dimension that is no power of two.
pub fn fft_c2c(output: &Tensor<'_>, input: &Tensor<'_>, dim: usize, forward: bool, scale: f64) -> Result<()> {
    let n = input.size(dim);
    if n < 2 || n.count_ones() != 1 {
        return Err(Error::Invalid(format!("OpenCL: fft_c2c takes powers of two from 2 on, got {n}")));
    }
    let count = input.numel();
    if count == 0 {
        return Ok(());
    }
    let (target, class) = (Target::of(output.address)?, input.class());
    let inner = input.sizes.iter().skip(dim + 1).product();
    let radices = radices(n);
    // Passes write in turns to the output and to a workspace, so that the last one writes to the output.
    let workspace = if radices.len() > 1 { Some(target.workspace(count as usize * input.dtype.size())?) } else { None };
    let between = target.memory(workspace.as_ref().map_or(0, |memory| memory.address))?;
    let (mut from, mut span) = (target.tensor(input)?, 1);
    for (pass, radix) in radices.iter().enumerate() {
        let is_last = pass + 1 == radices.len();
        let to = if (radices.len() - pass) % 2 == 1 { target.tensor(output)? } else { between };
        let butterflies = count / radix;
        let program = target.program(Family::Fft, class, &Spec::generic().define("RADIX", *radix))?;
        let args = entry::FftPass {
            input: from,
            output: to,
            butterflies,
            n,
            inner,
            span,
            sign: Value::real(class, if forward { -1.0 } else { 1.0 }),
            scale: Value::real(class, if is_last { scale } else { 1.0 }),
        };
        let global = (butterflies as usize).next_multiple_of(ITEM_GROUP);
        target.launch(&program, entry::FFT_PASS, &args, &[global], Some(&[ITEM_GROUP]))?;
        (from, span) = (to, span * radix);
    }
    Ok(())
}

/// The radices of the passes of a transform, the largest first.
fn radices(n: i64) -> Vec<i64> {
    let mut left = n;
    let mut radices = Vec::new();
    while left > 1 {
        let radix = left.min(LARGEST_RADIX);
        radices.push(radix);
        left /= radix;
    }
    radices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radices_multiply_to_the_length() {
        assert_eq!(radices(2), [2]);
        assert_eq!(radices(16), [8, 2]);
        assert_eq!(radices(2048), [8, 8, 8, 4]);
    }
}
