//! Replaces the connection to CUDA in a build without it.

use super::{Buffer, Context};
use crate::error::Result;

/// Does not exist in this build.
#[derive(Debug)]
pub enum Link {}

/// Does not exist in this build.
#[derive(Debug)]
pub enum Memory {}

/// Never holds a failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failure;

impl Failure {
    /// Succeeds.
    ///
    /// # Errors
    /// None.
    pub fn check(self) -> Result<()> {
        Ok(())
    }
}

impl Link {
    /// Fails.
    ///
    /// # Errors
    /// The reason.
    pub fn open(_context: &Context) -> std::result::Result<Self, String> {
        Err("this build of torch-opencl excludes it (a cargo feature)".to_owned())
    }

    /// Is never called.
    pub fn failure(&self) -> Failure {
        match *self {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn allocate(&self, _context: &Context, _size: usize) -> Result<Buffer> {
        match *self {}
    }
}

impl Memory {
    /// Is never called.
    pub fn address(&self) -> u64 {
        match *self {}
    }
}
