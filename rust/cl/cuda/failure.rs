//! A failure of CUDA's commands on a device.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::failed;
use crate::error::Result;

/// The first error of CUDA's commands on a device, if there is one. Clones share it.
///
/// CUDA reports such an error from then on for every call: only a new process can use the device again.
#[derive(Clone, Debug, Default)]
pub struct Failure(Arc<AtomicU32>);

impl Failure {
    /// Records a status of CUDA's; 0 is success.
    pub(super) fn record(&self, status: u32) {
        // An error that was recorded before stays.
        let _ = self.0.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Checks that no command has failed.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] from the first failure on.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(failed(format_args!(
                "commands failed on the device with error {code}. Results of matmuls since the last wait are wrong. \
                 Start the process again, with TORCH_OPENCL_BLAS=opencl if that repeats."
            ))),
        }
    }
}
