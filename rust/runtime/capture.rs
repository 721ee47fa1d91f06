//! Capture: while a stream captures, its commands are recorded instead of enqueued.
//!
//! Streams that wait for an event of a capturing one join the capture. The host makes calls in an order in which every
//! command comes after those that it waits for, so one list holds the commands of all streams.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

use super::blocks::MemPool;
use super::draws::{find_words, Draw, Word};
use crate::cl::{Arg, Buffer, Grid, Kernel, MemHandle, Recording, Start};
use crate::error::{Error, Result};

/// An object that a graph needs as long as it lives.
#[derive(Clone)]
pub struct Kept(#[allow(dead_code)] Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// An argument that contains words of generators.
#[derive(Debug)]
pub(super) struct Patch {
    pub position: usize,
    pub index: u32,
    pub bytes: Vec<u8>,
    pub words: Vec<(usize, Word)>,
}

/// Random numbers that a graph draws from one generator.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    /// The caller's identifier of the generator.
    pub generator: u64,
    /// Counters that one replay consumes.
    pub blocks: u64,
}

/// Everything recorded so far.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub recording: Recording,
    /// Buffers that commands use, by their handles.
    pub buffers: HashMap<usize, Arc<Buffer>>,
    pub kept: Vec<Kept>,
    pub generators: Vec<Drawn>,
    pub draws: Vec<Arc<Draw>>,
    pub patches: Vec<Patch>,
    /// Arguments that are fault records: position and index.
    pub faults: Vec<(usize, u32)>,
    /// Streams that have joined.
    pub joined: Vec<i64>,
    pub failure: Option<Error>,
}

/// An active capture.
#[derive(Debug)]
pub struct Capture {
    pub(super) device: i32,
    /// The stream on which it began.
    pub(super) origin: i64,
    pub(super) mempool: MemPool,
    buffer_of: BufferOf,
    content: Mutex<Content>,
}

/// Finds the buffer of a handle on a device. A callback, as this module cannot depend on devices: they have streams,
/// which capture.
pub(super) type BufferOf = fn(i32, MemHandle) -> Result<Option<Arc<Buffer>>>;

/// A separate pool for each graph that is given none.
pub fn new_mempool() -> MemPool {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    MemPool([NEXT.fetch_add(1, Ordering::Relaxed), 0])
}

impl Capture {
    pub(super) fn new(device: i32, origin: i64, mempool: MemPool, buffer_of: BufferOf) -> Self {
        Self { device, origin, mempool, buffer_of, content: Mutex::default() }
    }

    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a call that cannot be recorded; it invalidates the capture.
    pub(super) fn refuse(&self, what: &str) -> Error {
        let error = Error::Invalid(format!(
            "OpenCL: {what} while a graph is captured on this stream. A graph holds kernels, copies on the device and \
             fills: do everything else before the capture or after it."
        ));
        self.content().failure.get_or_insert(error).clone()
    }

    /// Records a launch; `is_fault_record` returns true for buffers that are fault records.
    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        args: &[Arg<'_>],
        grid: &Grid<'_>,
        start: Start,
        is_fault_record: impl Fn(MemHandle) -> bool,
    ) -> Result<()> {
        let mut content = self.content();
        let position = content.recording.launch(kernel, args, grid, start)?;
        for (arg, index) in args.iter().zip(0..) {
            match arg {
                Arg::Buffer(handle) if is_fault_record(*handle) => content.faults.push((position, index)),
                Arg::Buffer(handle) => content.hold(self, *handle)?,
                Arg::Bytes(bytes) => content.patch(position, index, bytes),
                Arg::Local(_) => {}
            }
        }
        Ok(())
    }

    /// Records a copy between two buffers.
    pub(super) fn copy(&self, source: (MemHandle, usize), target: (MemHandle, usize), size: usize) -> Result<()> {
        let mut content = self.content();
        content.hold(self, source.0)?;
        content.hold(self, target.0)?;
        content.recording.copy(source.0, source.1, target.0, target.1, size);
        Ok(())
    }

    /// Records a fill.
    pub(super) fn fill(&self, target: MemHandle, offset: usize, pattern: &[u8], size: usize) -> Result<()> {
        let mut content = self.content();
        content.hold(self, target)?;
        let position = content.recording.fill(target, offset, pattern, size);
        content.patch(position, 0, pattern);
        Ok(())
    }

    /// Keeps a value until the graph is gone.
    pub(super) fn keep(&self, value: Arc<dyn Any + Send + Sync>) {
        self.content().kept.push(Kept(value));
    }

    /// Placeholders for seed and offset of a launch that takes `blocks` counters, and whether the generator is new.
    pub fn draw(&self, generator: u64, blocks: u64) -> ([u64; 2], bool) {
        let mut content = self.content();
        let known = content.generators.iter().position(|drawn| drawn.generator == generator);
        let index = known.unwrap_or(content.generators.len());
        if known.is_none() {
            content.generators.push(Drawn { generator, blocks: 0 });
        }
        let before = content.generators.get(index).map_or(0, |drawn| drawn.blocks);
        if let Some(drawn) = content.generators.get_mut(index) {
            drawn.blocks = before.wrapping_add(blocks);
        }
        let draw = Draw::new(index, before);
        let stand_ins = draw.stand_ins;
        content.draws.push(draw);
        (stand_ins, known.is_none())
    }
}

impl Content {
    fn hold(&mut self, capture: &Capture, handle: MemHandle) -> Result<()> {
        if handle == MemHandle::NULL || self.buffers.contains_key(&handle.to_bits()) {
            return Ok(());
        }
        // All other buffers are fault records, which live as long as the process.
        if let Some(buffer) = (capture.buffer_of)(capture.device, handle)? {
            self.buffers.insert(handle.to_bits(), buffer);
        }
        Ok(())
    }

    fn patch(&mut self, position: usize, index: u32, bytes: &[u8]) {
        let words = find_words(bytes);
        if !words.is_empty() {
            self.patches.push(Patch { position, index, bytes: bytes.to_vec(), words });
        }
    }
}
