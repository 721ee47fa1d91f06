//! A thread that builds programs which nobody waits for.
//!
//! One thread and not several: drivers compile one program at a time (PoCL holds a lock over all of LLVM, across
//! contexts). For that reason too it starts nothing while programs are built that somebody does wait for, and pauses
//! between two builds: PoCL's own threads need the lock when a kernel is launched for the first time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Builds that may wait; more are refused, and asked for again when they are next wanted.
const CAPACITY: usize = 256;
/// How long no program may have been built before the thread starts one: a program's first steps build many on the spot,
/// one after the other, within a third of a second.
const QUIET: Duration = Duration::from_millis(500);
/// Added to the thread's nice value, so that it takes what computation leaves.
const NICENESS: libc::c_int = 10;

type Job = Box<dyn FnOnce() + Send>;

/// A queue of builds, and the thread that does them.
pub(super) struct Worker {
    state: Mutex<State>,
    changed: Condvar,
    /// Builds that are queued or under way; an atomic so that it can be read in a forked child.
    pending: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// When a program was last built, here or on the spot.
    last_build: Option<Instant>,
    /// Callers that wait for the queue to be empty.
    waiting: usize,
    has_thread: bool,
    is_building: bool,
    stopped: bool,
}

impl Worker {
    pub const fn new() -> Self {
        let state = State {
            jobs: VecDeque::new(),
            last_build: None,
            waiting: 0,
            has_thread: false,
            is_building: false,
            stopped: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), pending: AtomicUsize::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds that are queued or under way.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Queues a build; returns whether it will be done.
    pub fn submit(&'static self, job: Job) -> bool {
        let mut state = self.state();
        if state.stopped || state.jobs.len() >= CAPACITY {
            return false;
        }
        if !state.has_thread {
            let spawned = thread::Builder::new().name("torch-opencl-build".to_owned()).spawn(|| self.run());
            state.has_thread = spawned.is_ok();
            if !state.has_thread {
                return false;
            }
        }
        state.jobs.push_back(job);
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        true
    }

    /// Says that a program has been built on the spot.
    pub fn yield_to_others(&self) {
        self.state().last_build = Some(Instant::now());
    }

    /// Waits until nothing is queued or under way, but no longer than `limit`; returns what is left.
    pub fn wait(&self, limit: Duration) -> usize {
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        let is_busy = |state: &mut State| state.is_building || !state.jobs.is_empty();
        let waited = self.changed.wait_timeout_while(state, limit, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        self.pending()
    }

    /// Gives up what is queued and waits for the build that is under way: drivers do not survive the end of the process
    /// in the middle of one. Nothing is built afterwards.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        self.pending.fetch_sub(state.jobs.len(), Ordering::Relaxed);
        state.jobs.clear();
        self.changed.notify_all();
        let done = self.changed.wait_while(state, |state| state.is_building);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    fn run(&self) {
        lower_priority();
        while let Some(job) = self.next() {
            job();
            self.pending.fetch_sub(1, Ordering::Relaxed);
            let mut state = self.state();
            state.is_building = false;
            state.last_build = Some(Instant::now());
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for a build that may start; none when the process ends.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        while !state.stopped {
            let pause = match state.last_build {
                Some(last) if state.waiting == 0 => QUIET.saturating_sub(last.elapsed()),
                _ => Duration::ZERO,
            };
            if state.jobs.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if !pause.is_zero() {
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state.is_building = true;
                return state.jobs.pop_front();
            }
        }
        None
    }
}

/// Lets other threads go first. Linux gives each thread a nice value of its own; where it is refused, nothing is lost.
fn lower_priority() {
    // SAFETY: the call takes three numbers; 0 is the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn worker() -> &'static Worker {
        Box::leak(Box::new(Worker::new()))
    }

    #[test]
    fn builds_are_done_in_their_order_and_can_be_waited_for() {
        let (worker, (done, all)) = (worker(), mpsc::channel());
        for number in 0..10 {
            let done = done.clone();
            assert!(worker.submit(Box::new(move || done.send(number).unwrap())));
        }
        assert_eq!(worker.wait(LONG), 0);
        assert_eq!(all.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let (worker, (release, gate)) = (worker(), mpsc::channel::<()>());
        assert!(worker.submit(Box::new(move || gate.recv().unwrap())));
        assert!(worker.submit(Box::new(|| ())));
        assert_eq!(worker.wait(Duration::from_millis(1)), 2);
        release.send(()).unwrap();
        assert_eq!(worker.wait(LONG), 0);
    }

    #[test]
    fn nothing_starts_while_programs_are_built_on_the_spot() {
        let (worker, (done, all)) = (worker(), mpsc::channel());
        worker.yield_to_others();
        let start = Instant::now();
        assert!(worker.submit(Box::new(move || done.send(Instant::now()).unwrap())));
        assert!(all.recv().unwrap() - start >= QUIET / 2);
    }

    #[test]
    fn stopping_waits_for_the_build_under_way_and_drops_the_others() {
        let (worker, (release, gate)) = (worker(), mpsc::channel::<()>());
        let (started, begun) = mpsc::channel();
        let (done, all) = mpsc::channel();
        let first = done.clone();
        let job = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
            first.send(1).unwrap();
        };
        assert!(worker.submit(Box::new(job)));
        assert!(worker.submit(Box::new(move || done.send(2).unwrap())));
        begun.recv().unwrap();
        let stopper = thread::spawn(|| worker.stop());
        thread::sleep(Duration::from_millis(20));
        assert!(!stopper.is_finished());
        release.send(()).unwrap();
        stopper.join().unwrap();
        assert_eq!(all.iter().collect::<Vec<_>>(), [1]);
        assert_eq!(worker.pending(), 0);
        assert!(!worker.submit(Box::new(|| ())));
    }

    #[test]
    fn a_full_queue_refuses() {
        let (worker, (release, gate)) = (worker(), mpsc::channel::<()>());
        let (started, begun) = mpsc::channel();
        let job = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        };
        assert!(worker.submit(Box::new(job)));
        begun.recv().unwrap();
        for _ in 0..CAPACITY {
            assert!(worker.submit(Box::new(|| ())));
        }
        assert!(!worker.submit(Box::new(|| ())));
        release.send(()).unwrap();
        assert_eq!(worker.wait(LONG), 0);
        assert!(worker.submit(Box::new(|| ())));
    }
}
