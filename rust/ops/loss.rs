//! Negative log likelihood and binary cross entropy of contiguous tensors.

use super::geometry::{real, Geometry};
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{CachedProgram, Family};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// How losses become one: numbers of `at::Reduction`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum Reduction {
        /// They do not.
        None,
        /// Weighted mean.
        Mean,
        /// Sum.
        Sum,
    }

    /// What selects a likelihood for each target.
    #[derive(Clone, Copy, Debug)]
    pub struct Classes<'a> {
        /// Class of each target: 64- or 32-bit, or bytes.
        pub target: Tensor<'a>,
        /// Weight of each class; may be absent.
        pub weight: Tensor<'a>,
        /// The class that counts for nothing.
        pub ignored: i64,
        /// Number of classes.
        pub count: i64,
        /// Targets of a sample.
        pub inner: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn nll_loss(
            input: &Tensor,
            classes: &Classes,
            reduction: Reduction,
            output: &Tensor,
            total_weight: &Tensor,
        ) -> Result<()>;
        fn nll_loss_backward(
            grad: &Tensor,
            classes: &Classes,
            reduction: Reduction,
            total_weight: &Tensor,
            grad_input: &Tensor,
        ) -> Result<()>;
        fn binary_cross_entropy(input: &Tensor, target: &Tensor, weight: &Tensor, output: &Tensor) -> Result<()>;
        fn binary_cross_entropy_backward(
            grad: &Tensor,
            input: &Tensor,
            target: &Tensor,
            weight: &Tensor,
            grad_input: &Tensor,
            scale: f64,
        ) -> Result<()>;
    }
}

pub use ffi::{Classes, Reduction};

impl Classes<'_> {
    fn sizes(&self) -> [Arg<'static>; 4] {
        [Arg::Long(self.target.numel()), Arg::Long(self.count), Arg::Long(self.inner), Arg::Long(self.ignored)]
    }
}

/// Device, program and geometry of one call.
struct Call {
    target: Target,
    geometry: Geometry,
    program: std::sync::Arc<CachedProgram>,
}

impl Call {
    fn new(tensor: &Tensor<'_>, elements: i64) -> Result<Self> {
        let target = Target::of(tensor.address)?;
        let geometry = Geometry::of(&target, tensor.class());
        let spec = geometry.define(tier(elements, &[("SPEC_DTYPE0", tensor.dtype.code())]));
        Ok(Self { target, geometry, program: target.program(Family::Loss, tensor.class(), &spec)? })
    }

    /// Target and weight, as every kernel of the likelihood takes them.
    fn classes(&self, classes: &Classes<'_>) -> Result<[Arg<'static>; 3]> {
        let target = self.target.tensor(&classes.target)?;
        Ok([target, Arg::Int(classes.target.dtype.code()), self.target.tensor(&classes.weight)?])
    }
}

/// The loss of `input` [samples, classes, inner]: into `output`, and the weight it was divided by into `total_weight`.
///
/// # Errors
/// As the driver reports.
pub fn nll_loss(
    input: &Tensor<'_>,
    classes: &Classes<'_>,
    reduction: Reduction,
    output: &Tensor<'_>,
    total_weight: &Tensor<'_>,
) -> Result<()> {
    // Where there is no target, there is no output; the weight is a number that is always there.
    let call = Call::new(total_weight, classes.target.numel())?;
    let mut args = vec![call.target.tensor(input)?, Arg::Int(output.dtype.code())];
    args.extend(call.classes(classes)?);
    if reduction == Reduction::None {
        args.push(call.target.tensor(output)?);
        args.extend(classes.sizes());
        args.push(call.target.faults()?);
        let items = call.geometry.items_for(classes.target.numel());
        call.target.launch(&call.program, "nll_loss_each", &args, &items, None)?;
        return call.target.fill(total_weight.address, 0, total_weight.dtype.size());
    }
    // An empty batch still gets its NaN or 0, of one group that finds nothing.
    let (global, local) = call.geometry.groups_for(classes.target.numel().max(1));
    let groups = global.iter().product::<usize>() / call.geometry.group;
    let parts = call.target.workspace(2 * groups * output.class().size())?;
    args.push(call.target.memory(parts.address)?);
    args.extend(classes.sizes());
    args.push(call.target.faults()?);
    call.target.launch(&call.program, "nll_loss_parts", &args, &global, Some(&local))?;
    let args = [
        call.target.memory(parts.address)?,
        call.target.tensor(output)?,
        call.target.tensor(total_weight)?,
        Arg::Int(output.dtype.code()),
        Arg::Long(groups as i64),
        Arg::Int(reduction.repr),
    ];
    call.target.launch(&call.program, "nll_loss_finish", &args, &[1], None)
}

/// The gradient of `likelihood`; `grad_input` is dense.
///
/// # Errors
/// As the driver reports.
pub fn nll_loss_backward(
    grad: &Tensor<'_>,
    classes: &Classes<'_>,
    reduction: Reduction,
    total_weight: &Tensor<'_>,
    grad_input: &Tensor<'_>,
) -> Result<()> {
    if grad_input.numel() == 0 {
        return Ok(());
    }
    let call = Call::new(grad_input, classes.target.numel())?;
    call.target.fill(grad_input.address, 0, grad_input.numel() as usize * grad_input.dtype.size())?;
    let mut args = vec![call.target.tensor(grad)?];
    args.extend(call.classes(classes)?);
    args.extend([
        call.target.tensor(total_weight)?,
        call.target.tensor(grad_input)?,
        Arg::Int(grad_input.dtype.code()),
    ]);
    args.extend(classes.sizes());
    args.extend([Arg::Int(reduction.repr), call.target.faults()?]);
    let items = call.geometry.items_for(classes.target.numel());
    call.target.launch(&call.program, "nll_loss_backward", &args, &items, None)
}

/// The cross entropy of probabilities and targets, each times its weight where that is present.
///
/// # Errors
/// As the driver reports.
pub fn binary_cross_entropy(
    input: &Tensor<'_>,
    target: &Tensor<'_>,
    weight: &Tensor<'_>,
    output: &Tensor<'_>,
) -> Result<()> {
    let count = output.numel();
    if count == 0 {
        return Ok(());
    }
    let call = Call::new(output, count)?;
    let args = [
        call.target.tensor(input)?,
        call.target.tensor(target)?,
        call.target.tensor(weight)?,
        call.target.tensor(output)?,
        Arg::Int(output.dtype.code()),
        Arg::Long(count),
        call.target.faults()?,
    ];
    let vectors = (count as u64).div_ceil(call.geometry.lanes as u64) as i64;
    call.target.launch(&call.program, "binary_cross_entropy", &args, &call.geometry.items_for(vectors), None)
}

/// The gradient of `cross_entropy` times `scale`; `grad` is one value or one for each element.
///
/// # Errors
/// As the driver reports.
pub fn binary_cross_entropy_backward(
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    target: &Tensor<'_>,
    weight: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    scale: f64,
) -> Result<()> {
    let count = grad_input.numel();
    if count == 0 {
        return Ok(());
    }
    let call = Call::new(grad_input, count)?;
    let args = [
        call.target.tensor(grad)?,
        Arg::Long(i64::from(grad.numel() == count)),
        call.target.tensor(input)?,
        call.target.tensor(target)?,
        call.target.tensor(weight)?,
        call.target.tensor(grad_input)?,
        Arg::Int(grad_input.dtype.code()),
        Arg::Long(count),
        real(grad_input.class(), scale),
    ];
    let vectors = (count as u64).div_ceil(call.geometry.lanes as u64) as i64;
    call.target.launch(&call.program, "binary_cross_entropy_backward", &args, &call.geometry.items_for(vectors), None)
}
