//! Errors that kernels find in their input. A kernel cannot raise: it writes a record, which becomes an error at the
//! next call that waits for its stream anyway.
//!
//! Threads may share a stream, and each has a separate record on it: a thread that reads a tensor gets the faults of
//! its own launches, and a thread that waits for a whole stream or device gets those of all threads, since the others
//! may never wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::cl::{Buffer, Context, Deferred, MemHandle, Queue, Read};
use crate::error::{Error, Result};

/// Four longs, the kind, a value and its bound (see `fault.cl`), and the dimension that an index was for.
const BYTES: usize = 32;

/// An index out of range, found by an operator that waits for its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIndexRecord {
    /// The index.
    pub index: i64,
    /// Size of the dimension.
    pub size: i64,
    /// The dimension.
    pub dim: i64,
}

thread_local! {
    /// Lives as long as its thread, and identifies it.
    static THREAD: Arc<()> = Arc::new(());
}

/// The threads whose kernels are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// The calling thread.
    Here,
    /// All threads.
    Anywhere,
}

/// The record for what one thread launches on one stream.
#[derive(Debug)]
struct Record {
    thread: Weak<()>,
    memory: Buffer,
    /// True if a kernel that may write the record may have been launched since it was last read.
    armed: bool,
}

impl Record {
    fn is_of(&self, thread: &Arc<()>) -> bool {
        std::ptr::eq(self.thread.as_ptr(), Arc::as_ptr(thread))
    }
}

/// The records of one stream's kernels.
#[derive(Debug, Default)]
pub struct Faults {
    records: Mutex<Vec<Record>>,
    /// Records that only their own thread reads, right after its launches.
    index_records: Mutex<Vec<Record>>,
    /// True if any record is armed.
    armed: AtomicBool,
}

/// Messages of assertions: a record holds the index of its message.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The index of a message, which an assertion's record holds. Messages are never removed, because programs have few.
pub fn message_index(text: &str) -> i64 {
    let mut messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let index = messages.iter().position(|message| message == text).unwrap_or(messages.len());
    if index == messages.len() {
        messages.push(text.to_owned());
    }
    index as i64
}

fn message(index: i64) -> String {
    let messages = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    messages.get(index as usize).cloned().unwrap_or_default()
}

/// The error of a record; the kinds are those of `fault.cl`.
fn error_of([kind, value, bound]: [i64; 3]) -> Result<()> {
    match kind {
        0 => Ok(()),
        1 => Err(Error::Index(format!("Target {value} is out of bounds."))),
        2 => Err(Error::Invalid("all elements of input should be between 0 and 1".to_owned())),
        3 => Err(Error::Invalid("all elements of target should be between 0 and 1".to_owned())),
        4 => Err(Error::Invalid(format!(
            "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {value}; there are {bound} \
             embeddings"
        ))),
        5 => Err(Error::Invalid(format!(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from \
             position 0. However, got {value}"
        ))),
        6 => Err(Error::Invalid(format!(
            "offsets[-1] can not be greater than input's length {bound} but got offsets[-1] of {value}"
        ))),
        7 => Err(Error::Invalid(format!(
            "embedding_bag: expected offsets that do not decrease, but got {value} after {bound}"
        ))),
        8 => Err(Error::Invalid("bernoulli: Expected p_in >= 0 && p_in <= 1 to be true, but got false.".to_owned())),
        9 => Err(Error::Invalid("target out of range".to_owned())),
        10 => Err(Error::Invalid("invalid Poisson rate, expected rate to be non-negative".to_owned())),
        11 => Err(Error::Invalid(message(value))),
        12 => Err(Error::Invalid(format!(
            "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive, but got {value} of {bound}. Did you \
             properly pass the result of lu_factor?"
        ))),
        13 => Err(Error::Index(format!("index {value} is out of bounds for dimension with size {bound}"))),
        _ => Err(Error::Invalid(format!("OpenCL: a kernel recorded an unknown fault: {kind}"))),
    }
}

/// The error of another thread's record.
fn with_thread_note(error: Error) -> Error {
    let note = |text: String| format!("{text} (in an operation that another thread called on this stream)");
    match error {
        Error::Index(text) => Error::Index(note(text)),
        Error::Invalid(text) => Error::Invalid(note(text)),
        other => other,
    }
}

/// Reads and clears a record, and raises its error.
fn take(memory: MemHandle, queue: &Queue) -> Result<()> {
    let mut bytes = [0; BYTES];
    // SAFETY: the array is exclusively borrowed during the call.
    unsafe { queue.read_now(&[Read { source: memory, offset: 0, target: bytes.as_mut_ptr(), size: BYTES }])? };
    settle(memory, queue, bytes)
}

/// Clears a record, and raises its error.
fn settle(memory: MemHandle, queue: &Queue, bytes: [u8; BYTES]) -> Result<()> {
    let [kind, value, bound, _] = cleared(memory, queue, bytes)?;
    error_of([kind, value, bound])
}

/// Decodes a record, and clears it.
fn cleared(memory: MemHandle, queue: &Queue, bytes: [u8; BYTES]) -> Result<[i64; 4]> {
    let mut fields = bytes.chunks_exact(8).map(|field| field.try_into().map_or(0, i64::from_ne_bytes));
    let record = std::array::from_fn(|_| fields.next().unwrap_or(0));
    if record != [0; 4] {
        queue.fill(memory, 0, &[0], BYTES)?;
    }
    Ok(record)
}

/// The calling thread's record in a list. A thread without one reuses the record of a thread that has ended, if
/// `is_free` returns true for it, or gets a new one.
fn own<'a>(
    records: &'a mut Vec<Record>,
    context: &Context,
    queue: &Queue,
    is_free: impl Fn(&Record) -> bool,
) -> Result<&'a mut Record> {
    let Ok(thread) = THREAD.try_with(Arc::clone) else { return Err(ending()) };
    let free = |record: &Record| record.thread.strong_count() == 0 && is_free(record);
    let found = records.iter().position(|record| record.is_of(&thread)).or_else(|| records.iter().position(free));
    let index = match found {
        Some(index) => index,
        None => {
            let memory = Buffer::new(context, BYTES, true)?;
            queue.fill(memory.handle(), 0, &[0], BYTES)?;
            records.push(Record { thread: Weak::new(), memory, armed: false });
            records.len() - 1
        }
    };
    let Some(record) = records.get_mut(index) else { return Err(ending()) };
    record.thread = Arc::downgrade(&thread);
    Ok(record)
}

impl Faults {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.index_records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a buffer is one of the records.
    pub fn has(&self, memory: MemHandle) -> bool {
        self.records().iter().any(|record| record.memory.handle() == memory)
    }

    /// The calling thread's record, for a launch on `queue` that may write it.
    pub fn arm(&self, context: &Context, queue: &Queue) -> Result<MemHandle> {
        let mut records = self.records();
        // Other threads read a record only while it is armed.
        let record = own(&mut records, context, queue, |record| !record.armed)?;
        record.armed = true;
        self.armed.store(true, Ordering::Release);
        Ok(record.memory.handle())
    }

    /// The record of an index out of range, for launches that [`Self::take_index_record`] follows.
    pub fn index_record(&self, context: &Context, queue: &Queue) -> Result<MemHandle> {
        let mut records = self.index_records();
        let record = own(&mut records, context, queue, |_| true)?;
        // An operator that failed after a launch has not read its record: the content is obsolete.
        if std::mem::replace(&mut record.armed, true) {
            queue.fill(record.memory.handle(), 0, &[0], BYTES)?;
        }
        Ok(record.memory.handle())
    }

    /// Waits, and returns the index out of range that the calling thread's kernels have found.
    pub fn take_index_record(&self, context: &Context, queue: &Queue) -> Result<Option<BadIndexRecord>> {
        let memory = own(&mut self.index_records(), context, queue, |_| true)?.memory.handle();
        let mut bytes = [0; BYTES];
        // SAFETY: the array is exclusively borrowed during the call.
        unsafe { queue.read_now(&[Read { source: memory, offset: 0, target: bytes.as_mut_ptr(), size: BYTES }])? };
        let [kind, index, size, dim] = cleared(memory, queue, bytes)?;
        if let Some(record) = self.index_records().iter_mut().find(|record| record.memory.handle() == memory) {
            record.armed = false;
        }
        Ok((kind != 0).then_some(BadIndexRecord { index, size, dim }))
    }

    /// The records that may hold something: of the calling thread's kernels and, if `launched` includes them, of
    /// others'.
    fn disarm(&self, launched: Launched) -> (Vec<MemHandle>, Vec<MemHandle>) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        if !self.armed.load(Ordering::Acquire) {
            return (own, others);
        }
        let thread = THREAD.try_with(Arc::clone).ok();
        let mut records = self.records();
        for record in records.iter_mut().filter(|record| record.armed) {
            if thread.as_ref().is_some_and(|thread| record.is_of(thread)) {
                own.push(record.memory.handle());
                record.armed = false;
            } else if launched == Launched::Anywhere {
                others.push(record.memory.handle());
                // A living thread may be about to launch the kernel for which it has armed the record.
                record.armed = record.thread.strong_count() > 0;
            }
        }
        self.armed.store(records.iter().any(|record| record.armed), Ordering::Release);
        (own, others)
    }

    /// Arms a record again after a failed read.
    fn rearm(&self, memory: MemHandle) {
        if let Some(record) = self.records().iter_mut().find(|record| record.memory.handle() == memory) {
            record.armed = true;
            self.armed.store(true, Ordering::Release);
        }
    }

    /// Raises what kernels have recorded, and clears it; waits only if a record is armed.
    pub fn raise(&self, queue: &Queue, launched: Launched) -> Result<()> {
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        queue.finish()?;
        // A disarmed record must be read.
        let _deferred = Deferred::new();
        let (own, others) = self.disarm(launched);
        let mut found = own.into_iter().try_for_each(|memory| take(memory, queue));
        for memory in others {
            found = found.and(take(memory, queue).map_err(with_thread_note));
        }
        found
    }

    /// Copies `read` to the host and raises what the calling thread's kernels have recorded; waits once for both.
    ///
    /// # Safety
    /// The target of `read` is writable for as many bytes, and nothing else uses it during the call.
    pub unsafe fn read_with(&self, queue: &Queue, read: Read) -> Result<()> {
        // A thread has one record.
        let Some(memory) = self.disarm(Launched::Here).0.pop() else {
            // SAFETY: the caller's promise.
            return unsafe { queue.read_now(&[read]) };
        };
        let mut bytes = [0; BYTES];
        let faults = Read { source: memory, offset: 0, target: bytes.as_mut_ptr(), size: BYTES };
        // SAFETY: the caller's promise; the array is exclusively borrowed during the call.
        if let Err(error) = unsafe { queue.read_now(&[read, faults]) } {
            self.rearm(memory);
            return Err(error);
        }
        settle(memory, queue, bytes)
    }
}

fn ending() -> Error {
    Error::Invalid("OpenCL: an operation was called by a thread that is ending".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_becomes_the_error_that_the_cpu_raises() {
        assert_eq!(error_of([0, 7, 0]), Ok(()));
        assert_eq!(error_of([1, 7, 3]), Err(Error::Index("Target 7 is out of bounds.".to_owned())));
        assert!(matches!(error_of([2, 0, 0]), Err(Error::Invalid(_))));
        let index = message_index("not so");
        assert_eq!(message_index("not so"), index);
        assert_eq!(error_of([11, index, 0]), Err(Error::Invalid("not so".to_owned())));
    }

    #[test]
    fn a_fault_of_another_thread_says_so() {
        let error = with_thread_note(Error::Index("Target 7 is out of bounds.".to_owned()));
        assert!(
            matches!(&error, Error::Index(text) if text.starts_with("Target 7") && text.contains("another thread"))
        );
    }
}
