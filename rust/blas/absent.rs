//! Stands in for a library that the features of this build leave out.

use super::Product;
use crate::cl::DeviceInfo;
use crate::error::{Error, Result};

const REASON: &str = "this build of torch-opencl leaves it out (a cargo feature)";

/// Why it cannot be used.
pub fn obstacle(_info: &DeviceInfo) -> Option<String> {
    Some(REASON.to_owned())
}

/// Nothing.
pub fn serves(_product: &Product<'_>) -> bool {
    false
}

/// Not reached: [`obstacle`] is asked first.
pub fn matmul(_product: &Product<'_>) -> Result<()> {
    Err(Error::Invalid(format!("OpenCL: {REASON}")))
}
