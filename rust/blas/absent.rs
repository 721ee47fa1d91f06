//! Stands in for a library that the features of this build leave out.

use super::Matmul;
use crate::cl::DeviceInfo;
use crate::error::{Error, Result};

const REASON: &str = "this build of torch-opencl leaves it out (a cargo feature)";

/// Why it cannot be used.
pub fn obstacle(_info: &DeviceInfo) -> Option<String> {
    Some(REASON.to_owned())
}

/// Returns false: it serves nothing.
pub fn serves(_matmul: &Matmul<'_>) -> bool {
    false
}

/// Not reached: [`obstacle`] is asked first.
pub fn matmul(_matmul: &Matmul<'_>) -> Result<()> {
    Err(Error::Invalid(format!("OpenCL: {REASON}")))
}
