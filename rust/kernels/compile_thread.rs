//! A thread that builds programs in the background.
//!
//! One thread, not several: drivers compile one program at a time (PoCL holds a lock over all of LLVM, across
//! contexts). For the same reason it starts no build while a caller waits for another build.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::warning::{collect_warnings, warn};
use crate::cl::{is_interruptible, Latch};
use crate::error::{Error, Result};

/// Capacity of the queue; further builds are refused, and requested again when they are next needed.
const CAPACITY: usize = 256;
/// Pause between two builds, if the device compiles: its threads need the compiler when a kernel is launched for the
/// first time.
const BUILD_PAUSE: Duration = Duration::from_millis(200);
/// Interval at which queued builds are checked again, because a program may have become more frequent.
const INTERVAL: Duration = Duration::from_millis(100);
/// Stack size of a thread that compiles: compilers are written for main threads, which have this size.
const STACK: usize = 8 << 20;
/// Added to the thread's nice value, so that it uses only the time that computation leaves.
const NICENESS: libc::c_int = 10;

/// A build in the background.
pub(super) trait Job: Send {
    /// Elements of its launches so far: the hottest build is started first.
    fn hotness(&self) -> u64;
    /// Time without waited builds that must pass before it starts. Zero if building does not disturb the device.
    fn quiet(&self) -> Duration;
    fn build(self: Box<Self>);
}

/// The compile thread of this process.
pub(super) static COMPILE_THREAD: CompileThread = CompileThread::new();

/// A queue of builds, and the thread that runs them.
pub(super) struct CompileThread {
    state: Mutex<State>,
    changed: Condvar,
    /// Builds that are queued or running; an atomic so that it can be read in a forked child.
    pending: AtomicUsize,
}

struct State {
    jobs: Vec<Box<dyn Job>>,
    /// Running builds for which a caller waits.
    blocking_builds: usize,
    /// End of the last build for which a caller waited.
    last_on_the_spot: Option<Instant>,
    /// End of the thread's last build.
    last: Option<Instant>,
    /// Callers that wait for the queue to be empty.
    waiting: usize,
    thread: Option<JoinHandle<()>>,
    is_building: bool,
    stopped: bool,
}

impl State {
    /// The build that may start first, the hottest if there are several; and its remaining delay.
    fn next(&self) -> Option<(usize, Duration)> {
        let pauses = self.jobs.iter().map(|job| self.pause(job.quiet()));
        let (index, (pause, _)) =
            pauses.zip(&self.jobs).enumerate().min_by_key(|(_, (pause, job))| (*pause, Reverse(job.hotness())))?;
        Some((index, pause))
    }

    /// The remaining delay of a build that needs a time of `quiet` without waited builds.
    fn pause(&self, quiet: Duration) -> Duration {
        if self.waiting > 0 {
            return Duration::ZERO;
        }
        if self.blocking_builds > 0 {
            return INTERVAL;
        }
        let left = |pause: Duration, since: Option<Instant>| {
            since.map_or(Duration::ZERO, |since| pause.saturating_sub(since.elapsed()))
        };
        left(quiet, self.last_on_the_spot).max(left(BUILD_PAUSE.min(quiet), self.last))
    }
}

impl CompileThread {
    pub const fn new() -> Self {
        let state = State {
            jobs: Vec::new(),
            blocking_builds: 0,
            last_on_the_spot: None,
            last: None,
            waiting: 0,
            thread: None,
            is_building: false,
            stopped: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), pending: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds that are queued or running.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Queues a build; returns true if it was accepted.
    pub fn submit(&'static self, job: Box<dyn Job>) -> bool {
        let mut state = self.state();
        if state.stopped || state.jobs.len() >= CAPACITY {
            return false;
        }
        if state.thread.is_none() {
            let builder = thread::Builder::new().name("torch-opencl-build".to_owned()).stack_size(STACK);
            let spawned = builder.spawn(|| self.run());
            let Ok(thread) = spawned else { return false };
            state.thread = Some(thread);
        }
        state.jobs.push(job);
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        true
    }

    /// Builds a program while the caller waits, before all queued builds. Drivers do not return while they compile: if
    /// a signal may end the wait, another thread builds, and completes the build even if the caller no longer waits.
    ///
    /// # Errors
    /// The error of `build`; [`Error::Interrupted`] if a signal handler raised.
    pub fn build_blocking<R: Send + 'static>(
        &'static self,
        build: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        if !is_interruptible() {
            return self.count_on_the_spot(build);
        }
        let (done, latch) = (Arc::new(Mutex::new(None)), Arc::new(Latch::default()));
        let (result, opener) = (Arc::clone(&done), Arc::clone(&latch));
        // Either thread can take the build: this one does if the other cannot be started.
        let build = Arc::new(Mutex::new(Some(build)));
        let kept = Arc::clone(&build);
        let run = move || {
            let Some(build) = take(&build) else { return };
            let built = collect_warnings(|| self.count_on_the_spot(build));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(built);
            opener.open();
        };
        let builder = thread::Builder::new().name("torch-opencl-build".to_owned()).stack_size(STACK);
        let lost = || Error::Invalid("OpenCL: a build ended without a result".to_owned());
        let Ok(thread) = builder.spawn(run) else { return self.count_on_the_spot(take(&kept).ok_or_else(lost)?) };
        // A build that panicked ends without a result.
        latch.wait(|| thread.is_finished())?;
        let (built, warnings) = take(&done).ok_or_else(lost)?;
        warnings.iter().for_each(|text| warn(text));
        built
    }

    fn count_on_the_spot<R>(&self, build: impl FnOnce() -> R) -> R {
        self.state().blocking_builds += 1;
        // Also runs if the build panics.
        let _ended = OnTheSpot(self);
        build()
    }

    /// Waits until nothing is queued or running, but no longer than `limit`; returns the number that remain.
    pub fn wait(&self, limit: Duration) -> usize {
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        let is_busy = |state: &mut State| state.is_building || !state.jobs.is_empty();
        let waited = self.changed.wait_timeout_while(state, limit, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        self.pending()
    }

    /// Drops queued builds and waits for the running build, and for the thread: drivers crash if the process ends in
    /// the middle of a build, or while the compiler's thread-local data are freed. Nothing is built afterwards.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        self.pending.fetch_sub(state.jobs.len(), Ordering::Relaxed);
        state.jobs.clear();
        let thread = state.thread.take();
        self.changed.notify_all();
        drop(state);
        // A build that panicked has already been reported.
        let _ = thread.map(JoinHandle::join);
        // A build whose caller was interrupted continues in its thread.
        let state = self.state();
        drop(self.changed.wait_while(state, |state| state.blocking_builds > 0));
    }

    fn run(&self) {
        lower_priority();
        while let Some(job) = self.next() {
            job.build();
            self.pending.fetch_sub(1, Ordering::Relaxed);
            let mut state = self.state();
            state.is_building = false;
            state.last = Some(Instant::now());
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for a build that may start; `None` when the process ends.
    fn next(&self) -> Option<Box<dyn Job>> {
        let mut state = self.state();
        while !state.stopped {
            match state.next() {
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((index, Duration::ZERO)) => {
                    state.is_building = true;
                    return Some(state.jobs.remove(index));
                }
                Some((_, pause)) => {
                    let waited = self.changed.wait_timeout(state, pause.min(INTERVAL));
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        None
    }
}

/// A running build for which a caller waits.
struct OnTheSpot<'a>(&'a CompileThread);

impl Drop for OnTheSpot<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.blocking_builds -= 1;
        state.last_on_the_spot = Some(Instant::now());
        drop(state);
        self.0.changed.notify_all();
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Lowers this thread's priority. On Linux each thread has its own nice value; a failure has no consequences.
fn lower_priority() {
    // SAFETY: the call takes three integers; 0 is the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    const QUIET: Duration = Duration::from_millis(300);

    struct Wanted<F> {
        hotness: u64,
        quiet: Duration,
        build: F,
    }

    impl<F: FnOnce() + Send> Job for Wanted<F> {
        fn hotness(&self) -> u64 {
            self.hotness
        }

        fn quiet(&self) -> Duration {
            self.quiet
        }

        fn build(self: Box<Self>) {
            (self.build)();
        }
    }

    /// A build with this hotness, which may start if no caller has waited for another.
    fn wanted(hotness: u64, build: impl FnOnce() + Send + 'static) -> Box<dyn Job> {
        Box::new(Wanted { hotness, quiet: QUIET, build })
    }

    fn compile_thread() -> &'static CompileThread {
        Box::leak(Box::new(CompileThread::new()))
    }

    #[test]
    fn builds_are_done_in_their_order_and_can_be_waited_for() {
        let (compile_thread, (done, all)) = (compile_thread(), mpsc::channel());
        for number in 0..10 {
            let done = done.clone();
            assert!(compile_thread.submit(wanted(1, move || done.send(number).unwrap())));
        }
        assert_eq!(compile_thread.wait(LONG), 0);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let (compile_thread, (release, gate)) = (compile_thread(), mpsc::channel::<()>());
        assert!(compile_thread.submit(wanted(1, move || gate.recv().unwrap())));
        assert!(compile_thread.submit(wanted(1, || ())));
        assert_eq!(compile_thread.wait(Duration::from_millis(1)), 2);
        release.send(()).unwrap();
        assert_eq!(compile_thread.wait(LONG), 0);
    }

    #[test]
    fn nothing_starts_during_or_soon_after_a_waited_build() {
        let (compile_thread, (done, all)) = (compile_thread(), mpsc::channel());
        let tell = done.clone();
        let build = move || {
            assert!(compile_thread.submit(wanted(1, move || tell.send(Instant::now()).unwrap())));
            thread::sleep(2 * INTERVAL);
            done.send(Instant::now()).unwrap();
            Ok(())
        };
        compile_thread.build_blocking(build).unwrap();
        let end = all.recv().unwrap();
        assert!(all.recv().unwrap() - end >= QUIET / 2);
    }

    #[test]
    fn a_build_that_does_not_disturb_the_device_starts_at_once() {
        let (compile_thread, (done, all)) = (compile_thread(), mpsc::channel());
        compile_thread.build_blocking(|| Ok(())).unwrap();
        for (name, quiet) in [("later", LONG), ("now", Duration::ZERO)] {
            let done = done.clone();
            let build = move || done.send(name).unwrap();
            assert!(compile_thread.submit(Box::new(Wanted { hotness: 1, quiet, build })));
        }
        assert_eq!(all.recv().unwrap(), "now");
        compile_thread.stop();
        assert_eq!(compile_thread.pending(), 0);
    }

    #[test]
    fn the_hottest_is_built_first() {
        let (compile_thread, (done, all)) = (compile_thread(), mpsc::channel());
        let build = move || {
            for hotness in [2, 5, 1, 5, 3] {
                let done = done.clone();
                assert!(compile_thread.submit(wanted(hotness, move || done.send(hotness).unwrap())));
            }
            Ok(())
        };
        compile_thread.build_blocking(build).unwrap();
        assert_eq!(compile_thread.wait(LONG), 0);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), [5, 5, 3, 2, 1]);
    }

    #[test]
    fn stopping_waits_for_the_build_under_way_and_drops_the_others() {
        let (compile_thread, (release, gate)) = (compile_thread(), mpsc::channel::<()>());
        let (started, begun) = mpsc::channel();
        let (done, all) = mpsc::channel();
        let first = done.clone();
        let job = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
            first.send(1).unwrap();
        };
        assert!(compile_thread.submit(wanted(1, job)));
        assert!(compile_thread.submit(wanted(1, move || done.send(2).unwrap())));
        begun.recv().unwrap();
        let stopper = thread::spawn(|| compile_thread.stop());
        thread::sleep(Duration::from_millis(20));
        assert!(!stopper.is_finished());
        release.send(()).unwrap();
        stopper.join().unwrap();
        assert_eq!(all.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(compile_thread.pending(), 0);
        assert!(!compile_thread.submit(wanted(1, || ())));
    }

    #[test]
    fn a_full_queue_refuses() {
        let (compile_thread, (release, gate)) = (compile_thread(), mpsc::channel::<()>());
        let (started, begun) = mpsc::channel();
        let job = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        };
        assert!(compile_thread.submit(wanted(1, job)));
        begun.recv().unwrap();
        for _ in 0..CAPACITY {
            assert!(compile_thread.submit(wanted(1, || ())));
        }
        assert!(!compile_thread.submit(wanted(1, || ())));
        release.send(()).unwrap();
        assert_eq!(compile_thread.wait(LONG), 0);
        assert!(compile_thread.submit(wanted(1, || ())));
    }
}
