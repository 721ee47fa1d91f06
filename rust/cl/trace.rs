//! The commands of all queues with their times, while a profiler is active.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use opencl3::event::retain_event;

use super::{Event, Grid};

/// Commands between two checks of which have completed: an event takes several hundred bytes in a driver.
const SETTLE_EVERY: usize = 1024;

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedKind {
    /// Runs a kernel.
    Kernel,
    /// Copies memory, or maps it for the host.
    Copy,
    /// Fills memory.
    Fill,
}

/// A command that was enqueued during the trace.
#[derive(Debug)]
pub struct TracedCommand {
    /// Name of the kernel, or a description of the copy.
    pub name: String,
    /// Its kind.
    pub kind: TracedKind,
    /// The driver's function that enqueued it.
    pub call: &'static str,
    /// The host thread that called it, as the system's thread id.
    pub thread: i64,
    /// Time of the call, in nanoseconds since 1970.
    pub called: i64,
    /// Time at which the call returned.
    pub returned: i64,
    /// [`super::Queue::trace_id`] of its queue.
    pub queue: usize,
    /// The last id passed to [`push_correlation`] in the thread that enqueued the command; 0 for none.
    pub correlation: u64,
    /// Bytes copied or filled.
    pub bytes: usize,
    /// Global size of a kernel, 0 for absent dimensions.
    pub global: [usize; 3],
    /// Local size, 0 if the driver chooses.
    pub local: [usize; 3],
    /// Start and end, in nanoseconds of the device's clock; `None` if the driver does not report them.
    pub times: Option<(u64, u64)>,
    /// The command's event, until the times are known.
    event: Option<Event>,
}

impl TracedCommand {
    /// Queries the times, if the command has completed; returns false if it has not.
    fn settle(&mut self) -> bool {
        let Some(event) = &self.event else { return true };
        match event.is_complete() {
            Ok(false) => return false,
            Ok(true) => self.times = event.start_time().and_then(|start| Ok((start, event.end_time()?))).ok(),
            Err(_) => {}
        }
        self.event = None;
        true
    }
}

#[derive(Debug)]
struct Trace {
    commands: Vec<TracedCommand>,
    /// Number of leading commands whose times are known.
    settled: usize,
}

impl Trace {
    fn settle(&mut self) {
        for command in self.commands.iter_mut().skip(self.settled) {
            if !command.settle() {
                break;
            }
            self.settled += 1;
        }
    }
}

static TRACE: Mutex<Trace> = Mutex::new(Trace { commands: Vec::new(), settled: 0 });
/// Number of the active trace; 0 if there is none.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// Number of the last trace.
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static UNTRACED: Cell<bool> = const { Cell::new(false) };
    /// Correlations of the calling thread, with the number of the trace in which they were pushed.
    static CORRELATIONS: RefCell<(u64, Vec<u64>)> = const { RefCell::new((0, Vec::new())) };
}

fn trace() -> MutexGuard<'static, Trace> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true while commands are traced.
pub fn is_tracing() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0 && !UNTRACED.get()
}

/// While a value of this type lives, commands of its thread are not traced: they are not part of the user's program.
#[derive(Debug)]
pub struct Untraced {
    before: bool,
    /// Not `Send`: it counts for its thread.
    _thread: PhantomData<*const ()>,
}

impl Untraced {
    /// Stops tracing in this thread.
    #[must_use]
    pub fn begin() -> Self {
        Self { before: UNTRACED.replace(true), _thread: PhantomData }
    }
}

impl Drop for Untraced {
    fn drop(&mut self) {
        UNTRACED.set(self.before);
    }
}

/// The host's time in nanoseconds since 1970.
pub fn host_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}

/// The host's time while commands are traced, to be passed to [`note_launch`] and [`note_transfer`] after the call.
pub(super) fn about_to_call() -> Option<i64> {
    is_tracing().then(host_time)
}

fn this_thread() -> i64 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// Traces all commands from now on; drops an earlier trace.
pub fn start_trace() {
    let mut trace = trace();
    *trace = Trace { commands: Vec::new(), settled: 0 };
    ACTIVE.store(LAST.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Stops tracing.
pub fn stop_trace() {
    ACTIVE.store(0, Ordering::Relaxed);
}

/// The commands of the trace, for callers that have waited for them: commands that have not completed have no times.
pub fn take_trace() -> Vec<TracedCommand> {
    let mut trace = trace();
    trace.settle();
    trace.settled = 0;
    std::mem::take(&mut trace.commands)
}

/// Sets the id of the calling thread's commands, until [`pop_correlation`].
pub fn push_correlation(id: u64) {
    let active = ACTIVE.load(Ordering::Relaxed);
    CORRELATIONS.with_borrow_mut(|(trace, ids)| {
        if *trace != active {
            *trace = active;
            ids.clear();
        }
        ids.push(id);
    });
}

/// Reverts the thread's last [`push_correlation`].
pub fn pop_correlation() {
    CORRELATIONS.with_borrow_mut(|(_, ids)| ids.pop());
}

fn correlation() -> u64 {
    let active = ACTIVE.load(Ordering::Relaxed);
    CORRELATIONS.with_borrow(|(trace, ids)| ids.last().copied().filter(|_| *trace == active).unwrap_or(0))
}

/// A retained copy of an event.
fn retained(event: &Event) -> Option<Event> {
    // SAFETY: a live event; the copy releases it.
    let copied = unsafe { retain_event(event.handle) };
    copied.is_ok().then_some(Event { handle: event.handle, position: event.position })
}

fn padded(sizes: Option<&[usize]>) -> [usize; 3] {
    let mut result = [0; 3];
    for (slot, size) in result.iter_mut().zip(sizes.unwrap_or_default()) {
        *slot = *size;
    }
    result
}

/// Records a launch; `called` is a result of [`about_to_call`].
pub(super) fn note_launch(called: i64, queue: usize, event: &Event, name: &str, grid: &Grid<'_>) {
    note(TracedCommand {
        name: name.to_owned(),
        kind: TracedKind::Kernel,
        call: "clEnqueueNDRangeKernel",
        thread: this_thread(),
        called,
        returned: host_time(),
        queue,
        correlation: correlation(),
        bytes: 0,
        global: padded(Some(grid.global)),
        local: padded(grid.local),
        times: None,
        event: retained(event),
    });
}

/// Records a command that moves memory, named after the driver's function; `called` is a result of [`about_to_call`].
pub(super) fn note_transfer(called: i64, queue: usize, event: &Event, call: &'static str, bytes: usize) {
    let (name, kind) = match call {
        "clEnqueueWriteBuffer" => ("Memcpy HtoD", TracedKind::Copy),
        "clEnqueueReadBuffer" => ("Memcpy DtoH", TracedKind::Copy),
        "clEnqueueCopyBuffer" => ("Memcpy DtoD", TracedKind::Copy),
        "clEnqueueMapBuffer" => ("Map for the host", TracedKind::Copy),
        "clEnqueueUnmapMemObject" => ("Unmap", TracedKind::Copy),
        "clEnqueueFillBuffer" => ("Memset", TracedKind::Fill),
        _ => return,
    };
    note(TracedCommand {
        name: name.to_owned(),
        kind,
        call,
        thread: this_thread(),
        called,
        returned: host_time(),
        queue,
        correlation: correlation(),
        bytes,
        global: [0; 3],
        local: [0; 3],
        times: None,
        event: retained(event),
    });
}

fn note(command: TracedCommand) {
    let mut trace = trace();
    trace.commands.push(command);
    if trace.commands.len().is_multiple_of(SETTLE_EVERY) {
        trace.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_a_stack_of_the_thread_and_of_one_trace() {
        start_trace();
        push_correlation(3);
        push_correlation(5);
        assert_eq!(correlation(), 5);
        assert_eq!(std::thread::spawn(correlation).join().ok(), Some(0));
        pop_correlation();
        assert_eq!(correlation(), 3);
        start_trace();
        assert_eq!(correlation(), 0);
        push_correlation(7);
        assert_eq!(correlation(), 7);
        pop_correlation();
        pop_correlation();
        assert_eq!(correlation(), 0);
        assert!(is_tracing());
        let untraced = Untraced::begin();
        assert!(!is_tracing());
        drop(untraced);
        assert!(is_tracing());
        stop_trace();
        assert!(!is_tracing());
        assert!(take_trace().is_empty());
    }
}
