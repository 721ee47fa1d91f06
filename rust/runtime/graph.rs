//! Graphs: commands captured on a stream, and replayed on any stream of the same device.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::blocks::MemPool;
use super::capture::{new_mempool, Capture, Content, Drawn, Kept};
use super::current::current_stream;
use super::device::device;
use super::fork;
use crate::cl::{Arg, Deferred};
use crate::error::{Error, Result};

/// The states of a graph.
#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Capturing(Arc<Capture>),
    Captured(Box<Captured>),
}

#[derive(Debug)]
struct Captured {
    device: i32,
    mempool: MemPool,
    content: Content,
    /// Streams on which it has been replayed, which may still use it.
    streams: Vec<i64>,
}

thread_local! {
    /// The graph that this thread replays. A wait for room in the queue may run a signal handler, which must not wait
    /// for the graph's lock.
    static REPLAYING: Cell<*const Graph> = const { Cell::new(std::ptr::null()) };
}

/// Restores the graph that was replayed before.
struct Replaying(*const Graph);

impl Replaying {
    fn begin(graph: &Graph) -> Self {
        Self(REPLAYING.replace(graph))
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        REPLAYING.set(self.0);
    }
}

/// A graph: `torch.opencl.OpenCLGraph` and `torch.accelerator.Graph`.
#[derive(Debug, Default)]
pub struct Graph(Mutex<State>);

fn invalid<T>(text: &str) -> Result<T> {
    Err(Error::Invalid(format!("OpenCL: {text}")))
}

impl Graph {
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        if std::ptr::eq(REPLAYING.get(), self) {
            return invalid("a signal handler cannot use the graph that is being replayed.");
        }
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to capture this thread's current stream of a device; `pool` is (0, 0) for a separate pool.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the default stream, for a stream that captures already, and for a graph that is not
    /// empty.
    pub fn begin(&self, index: i32, pool: MemPool) -> Result<()> {
        let mut state = self.state()?;
        if !matches!(*state, State::Empty) {
            return invalid("this graph has been captured already. Call reset() first, or make another graph.");
        }
        let stream = current_stream(index)?;
        if let Some(capture) = stream.capture() {
            return Err(capture.refuse("another capture began"));
        }
        if stream.id() == 0 {
            return invalid(
                "a graph cannot be captured on the default stream, which other threads use too. Capture it under \
                 torch.opencl.graph(), or make another stream current.",
            );
        }
        // Commands wait for their stream's queue; what is already enqueued is not part of the graph.
        stream.flush()?;
        let pool = if pool == MemPool::default() { new_mempool() } else { pool };
        let capture = Arc::new(Capture::new(index, stream.id(), pool, |index, handle| {
            Ok(device(index)?.state()?.buffer(handle))
        }));
        stream.set_capture(Some(Arc::clone(&capture)));
        *state = State::Capturing(capture);
        Ok(())
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first call that could not be recorded; the graph is empty then, and also if no capture has begun.
    pub fn end(&self) -> Result<()> {
        let mut state = self.state()?;
        let State::Capturing(capture) = &*state else { return invalid("no capture of this graph has begun.") };
        if current_stream(capture.device)?.id() != capture.origin {
            return invalid("a capture must end on the stream on which it began: make that stream current.");
        }
        let (content, result) = capture.end();
        let (device, mempool) = (capture.device, capture.mempool);
        *state = State::Empty;
        result?;
        *state = State::Captured(Box::new(Captured { device, mempool, content, streams: Vec::new() }));
        Ok(())
    }

    /// The generators that a replay draws from, in the order of [`Self::replay`]'s argument, with the objects that keep
    /// them alive: another thread may reset the graph at any time.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a signal handler that runs during a replay of this graph; this holds for the other
    /// functions too.
    pub fn generators(&self) -> Result<(Vec<Drawn>, Vec<Kept>)> {
        match &*self.state()? {
            State::Captured(captured) => Ok((captured.content.generators.clone(), captured.content.kept.clone())),
            _ => Ok(Default::default()),
        }
    }

    /// Enqueues the commands on this thread's current stream; `streams` has the seed and first counter of each
    /// generator.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a graph that has not been captured, and during a capture; otherwise errors of the driver.
    pub fn replay(&self, streams: &[[u64; 2]]) -> Result<()> {
        let mut state = self.state()?;
        let State::Captured(captured) = &mut *state else {
            return invalid("this graph cannot be replayed before it has been captured.");
        };
        let _replaying = Replaying::begin(self);
        let stream = current_stream(captured.device)?;
        if let Some(capture) = stream.capture() {
            return Err(capture.refuse("another graph was replayed"));
        }
        if !captured.streams.contains(&stream.id()) {
            captured.streams.push(stream.id());
        }
        let content = &mut captured.content;
        for draw in &content.draws {
            if let Some([seed, first]) = streams.get(draw.generator) {
                draw.set(*seed, *first);
            }
        }
        for patch in &mut content.patches {
            for (start, word) in &patch.words {
                if let Some(slot) = patch.bytes.get_mut(*start..*start + 8) {
                    slot.copy_from_slice(&word.value().to_ne_bytes());
                }
            }
            content.recording.set(patch.position, patch.index, &Arg::Bytes(&patch.bytes))?;
        }
        let context = &device(captured.device)?.state()?.context;
        if !content.faults.is_empty() {
            let record = stream.fault_record(context)?;
            for (position, index) in &content.faults {
                content.recording.set(*position, *index, &Arg::Buffer(record))?;
            }
        }
        stream.replay(context, &mut content.recording)
    }

    /// Empties the graph: ends its capture and waits for its replays, also in a destructor, which cannot raise.
    pub fn reset(&self) -> Result<()> {
        let _deferred = Deferred::new();
        let state = std::mem::take(&mut *self.state()?);
        match state {
            State::Empty => {}
            State::Capturing(capture) => drop(capture.end()),
            State::Captured(captured) => {
                // Its kernels and buffers may be released with it, and some drivers do not keep them alive for enqueued
                // commands.
                if let Ok(state) = device(captured.device).and_then(super::Device::state) {
                    for id in &captured.streams {
                        // The failure is that of an earlier command, and the next wait reports it.
                        let _ = state.stream(*id).and_then(super::Stream::synchronize);
                    }
                }
            }
        }
        Ok(())
    }

    /// The memory pool of the graph.
    pub fn mempool(&self) -> Result<MemPool> {
        match &*self.state()? {
            State::Empty => invalid("this graph has no memory pool before it is captured."),
            State::Capturing(capture) => Ok(capture.mempool),
            State::Captured(captured) => Ok(captured.mempool),
        }
    }

    /// The kernels and sizes of its launches, in the format of [`crate::cl::Recording::kernels`].
    pub fn kernels(&self) -> Result<Vec<[usize; 8]>> {
        match &*self.state()? {
            State::Captured(captured) => Ok(captured.content.recording.kernels()),
            _ => invalid("this graph has not been captured."),
        }
    }

    /// One line for each command.
    pub fn describe(&self) -> Result<String> {
        match &*self.state()? {
            State::Captured(captured) => Ok(captured.content.recording.describe()),
            _ => invalid("this graph has not been captured."),
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if fork::in_bad_fork() {
            // The driver's objects belong to the parent.
            let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(state));
        } else {
            // A graph that is being replayed is not dropped.
            let _ = self.reset();
        }
    }
}
