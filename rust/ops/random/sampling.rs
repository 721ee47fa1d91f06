//! Distributions whose parameters are tensors, drawn by rejection, and the gradients of samples by these parameters.

use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::Family;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::tier::tier;
use crate::ops::{RandomStream, Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Distributions of one or two parameters: those of `sampling.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum Sampled {
        /// Poisson distribution, of a rate.
        Poisson,
        /// Binomial distribution, of a count and a probability.
        Binomial,
        /// Gamma distribution, of a concentration.
        Gamma,
        /// The logarithm of samples of the gamma distribution.
        LogGamma,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type RandomStream = crate::abi::RandomStream;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn sample_each(
            out: &Tensor,
            distribution: Sampled,
            a: &Tensor,
            b: &Tensor,
            least: f64,
            stream: RandomStream,
        ) -> Result<()>;
        fn sample_grad(out: &Tensor, a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()>;
    }
}

pub use ffi::Sampled;

/// Draws a sample for each element of the parameters; `b` may be absent. Samples of the gamma distribution are `least`
/// or more. All tensors are dense and have the same layout. Each element takes a counter of the stream.
///
/// # Errors
/// Errors reported by the driver; a negative rate is a fault of the stream.
pub fn sample_each(
    out: &Tensor<'_>,
    distribution: Sampled,
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    least: f64,
    stream: RandomStream,
) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let (target, class) = (Target::of(out.address)?, out.class());
    let geometry = Geometry::of(&target, class);
    let constants =
        [("SPEC_OP", distribution.repr), ("SPEC_DTYPE0", out.dtype.code()), ("SPEC_DTYPE1", a.dtype.code())];
    let spec = geometry.define(tier(count, &constants)).define("LANES", 1);
    let program = target.program(Family::Sampling, class, &spec)?;
    let args = entry::SampleEach {
        out: target.tensor(out)?,
        a: target.tensor(a)?,
        b: target.tensor(b)?,
        op: distribution.repr,
        dtype0: out.dtype,
        dtype1: a.dtype,
        n: count,
        seed: stream.seed,
        offset: stream.offset,
        least: Value::real(class, least),
        faults: target.faults()?,
    };
    target.launch(&program, entry::SAMPLE_EACH, &args, &geometry.items_for(count), None)
}

/// The gradient of samples: of the gamma distribution, from concentration and sample; of the Dirichlet distribution,
/// from sample, concentration and the sum of concentrations. All tensors are dense, with the same layout and dtype.
///
/// # Errors
/// Errors reported by the driver.
pub fn sample_grad(out: &Tensor<'_>, a: &Tensor<'_>, b: &Tensor<'_>, c: &Tensor<'_>) -> Result<()> {
    let count = out.numel();
    if count == 0 {
        return Ok(());
    }
    let (target, class) = (Target::of(out.address)?, out.class());
    let geometry = Geometry::of(&target, class);
    let op = i32::from(c.is_present());
    let spec = geometry.define(tier(count, &[("SPEC_OP", op), ("SPEC_DTYPE0", out.dtype.code())]));
    let program = target.program(Family::SamplingGrad, class, &spec)?;
    let args = entry::SampleGrad {
        out: target.tensor(out)?,
        a: target.tensor(a)?,
        b: target.tensor(b)?,
        c: target.tensor(c)?,
        op,
        dtype0: out.dtype,
        n: count,
    };
    target.launch(&program, entry::SAMPLE_GRAD, &args, &geometry.items_for(count), None)
}
