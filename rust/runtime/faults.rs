//! What kernels find wrong in their input. A kernel cannot raise: it leaves a record, which becomes an error at the next
//! call that waits for its stream anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use crate::cl::{Buffer, Context, MemHandle, Queue, Read};
use crate::error::{Error, Result};

/// Two longs, the kind and a value: see `kernels/cl/fault.cl`.
const BYTES: usize = 16;

/// The record of one stream's kernels.
#[derive(Debug, Default)]
pub struct Faults {
    record: OnceLock<Result<Buffer>>,
    /// Whether a kernel that may write the record has been launched since it was last read.
    armed: AtomicBool,
}

/// The error of a record; the numbers are those of `kernels/cl/fault.cl`.
fn error_of(kind: i64, value: i64) -> Result<()> {
    match kind {
        0 => Ok(()),
        1 => Err(Error::Index(format!("Target {value} is out of bounds."))),
        2 => Err(Error::Invalid("all elements of input should be between 0 and 1".to_owned())),
        3 => Err(Error::Invalid("all elements of target should be between 0 and 1".to_owned())),
        4 => Err(Error::Index(format!("embedding_bag: index {value} is out of range of the embeddings"))),
        _ => Err(Error::Invalid(format!("OpenCL: a kernel left an unknown fault, {kind}"))),
    }
}

impl Faults {
    /// The record, for a launch on `queue` that may write it.
    pub fn arm(&self, context: &Context, queue: &Queue) -> Result<MemHandle> {
        let record = self.record.get_or_init(|| {
            let buffer = Buffer::new(context, BYTES, true)?;
            queue.fill(buffer.handle(), 0, &[0], BYTES)?;
            Ok(buffer)
        });
        let record = record.as_ref().map_err(Clone::clone)?;
        self.armed.store(true, Ordering::Release);
        Ok(record.handle())
    }

    /// The record, if a kernel that may write it has been launched since it was last read.
    fn take(&self) -> Option<MemHandle> {
        let is_armed = self.armed.load(Ordering::Acquire) && self.armed.swap(false, Ordering::AcqRel);
        self.record.get().filter(|_| is_armed)?.as_ref().ok().map(Buffer::handle)
    }

    /// Raises what kernels have recorded, and forgets it; waits for them only if there were some.
    pub fn raise(&self, queue: &Queue) -> Result<()> {
        let Some(record) = self.take() else { return Ok(()) };
        let mut bytes = [0; BYTES];
        // SAFETY: the array is exclusively borrowed during the call.
        unsafe { queue.read_now(&[Read { source: record, offset: 0, target: bytes.as_mut_ptr(), size: BYTES }])? };
        Self::settle(queue, record, bytes)
    }

    /// Copies something else to the host and does as [`Self::raise`], but waits once for both.
    ///
    /// # Safety
    /// The target of `read` is writable for as many bytes, and nothing else uses it during the call.
    pub unsafe fn read_with(&self, queue: &Queue, read: Read) -> Result<()> {
        let Some(record) = self.take() else {
            // SAFETY: the caller's promise.
            return unsafe { queue.read_now(&[read]) };
        };
        let mut bytes = [0; BYTES];
        let faults = Read { source: record, offset: 0, target: bytes.as_mut_ptr(), size: BYTES };
        // SAFETY: the caller's promise; the array is exclusively borrowed during the call.
        unsafe { queue.read_now(&[read, faults])? };
        Self::settle(queue, record, bytes)
    }

    /// Raises what a record says, and clears it.
    fn settle(queue: &Queue, record: MemHandle, bytes: [u8; BYTES]) -> Result<()> {
        let mut fields = bytes.chunks_exact(8).map(|field| field.try_into().map_or(0, i64::from_ne_bytes));
        let (kind, value) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        if kind != 0 {
            queue.fill(record, 0, &[0], BYTES)?;
        }
        error_of(kind, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_becomes_the_error_that_the_cpu_raises() {
        assert_eq!(error_of(0, 7), Ok(()));
        assert_eq!(error_of(1, 7), Err(Error::Index("Target 7 is out of bounds.".to_owned())));
        assert!(matches!(error_of(2, 0), Err(Error::Invalid(_))));
    }
}
