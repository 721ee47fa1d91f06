//! Norms of the small tensors of a list: many per launch.

use crate::error::{Error, Result};
use crate::kernels::entry;
use crate::kernels::{Family, Spec};
use crate::ops::core::forms::{Form, FLOATS};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::multi_tensor::MultiTensorBatch;
use crate::ops::core::tier::tier;
use crate::ops::{Target, TensorList};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type TensorList<'a> = crate::abi::TensorList<'a>;
    }

    extern "Rust" {
        fn foreach_norm(order: f64, counts: &[i64], out: &TensorList, tensors: &TensorList) -> Result<()>;
    }
}

/// Tensors of a launch, whose arguments must fit the 1024 bytes that every device supports.
type Tensors = MultiTensorBatch<28, 2>;

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    FLOATS.map(|class| (class, Geometry::of(target, class).define(Tensors::define(Spec::generic())))).to_vec()
}
/// More elements than any tensor of a launch has, so that a group takes a whole tensor.
const WHOLE: i64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Norm {
    /// The largest magnitude.
    Max,
    /// The sum of magnitudes.
    Sum,
    /// The root of the sum of squares.
    Euclid,
}

impl Norm {
    /// The norm of an order: infinity, 1 or 2.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other order.
    fn of_order(order: f64) -> Result<Self> {
        match order {
            f64::INFINITY => Ok(Self::Max),
            1.0 => Ok(Self::Sum),
            2.0 => Ok(Self::Euclid),
            _ => Err(Error::Invalid(format!("OpenCL: norms of order {order} of lists of tensors are not supported"))),
        }
    }
}

/// Writes the norm of the n-th tensor, which has `counts[n]` elements, to the n-th tensor of `out`, which has the same
/// dtype.
///
/// # Errors
/// [`Error::Invalid`] for an order other than infinity, 1 and 2.
pub fn foreach_norm(order: f64, counts: &[i64], out: &TensorList<'_>, tensors: &TensorList<'_>) -> Result<()> {
    let norm = Norm::of_order(order)?;
    let target = Target::of(out.address(0))?;
    let class = tensors.dtype.class();
    let geometry = Geometry::of(&target, class);
    Tensors::for_each(&target, &[*out, *tensors], counts.iter().copied().enumerate(), |batch| {
        let elements = batch.elements();
        let constants = tier(elements, &[("SPEC_DTYPE0", tensors.dtype.code())]);
        let program = target.program(Family::ForeachNorm, class, &geometry.define(Tensors::define(constants)))?;
        let table = batch.table(WHOLE);
        let args =
            entry::ForeachNorm { order: norm as i32, dtype0: tensors.dtype, multi_tensor: batch.arguments(&table) };
        let global = [batch.groups(WHOLE) * geometry.group];
        target.launch_elements(&program, entry::FOREACH_NORM, &args, elements, &global, Some(&[geometry.group]))
    })
}
