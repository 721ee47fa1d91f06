//! Replaces a library that the features of this build exclude.

use super::Matmul;
use crate::error::Result;
use crate::runtime::Device;

const REASON: &str = "this build of torch-opencl excludes it (a cargo feature)";

/// The reason why it cannot be used.
pub fn obstacle(_device: &Device) -> Option<String> {
    Some(REASON.to_owned())
}

/// Returns false: it supports no matmul.
pub fn serves(_matmul: &Matmul<'_>) -> bool {
    false
}

/// Returns false: it supports no matmul.
pub fn matmul(_matmul: &Matmul<'_>) -> Result<bool> {
    Ok(false)
}
