//! Assertions: a zero value becomes an error at the host's next wait.

use crate::error::Result;
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::{Target, Tensor};
use crate::runtime::message_index;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn assert_true(condition: &Tensor, message: &str) -> Result<()>;
    }
}

/// Reports `message` as a fault of the stream if `condition`, one bool, is false.
///
/// # Errors
/// Errors reported by the driver.
pub fn assert_true(condition: &Tensor<'_>, message: &str) -> Result<()> {
    let target = Target::of(condition.address)?;
    let program = target.program(Family::Assertion, Class::Float, &Spec::generic())?;
    let args = entry::AssertTrue {
        condition: target.tensor(condition)?,
        message: message_index(message),
        faults: target.faults()?,
    };
    target.launch(&program, entry::ASSERT_TRUE, &args, &[1], None)
}
