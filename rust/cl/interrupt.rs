//! Waits that a signal can end: Ctrl-C is handled even if the device has minutes of work left.
//!
//! Python runs signal handlers in its main thread, between two bytecode instructions: never while that thread waits in
//! this library. So such a wait is interrupted every [`SLICE`] to let Python run them, which takes the interpreter's
//! lock. Another thread may hold that lock and need a lock of this library: code must not wait with a lock held.
//! [`Deferred`] is for callers that hold a lock, and for callers that drop errors.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// Longest delay from a signal to its handler.
const SLICE: Duration = Duration::from_millis(50);

/// Runs the handlers of pending signals; returns true if one of them raised.
pub type RunHandlers = fn() -> bool;

/// A [`RunHandlers`], or null if no handlers can run.
static RUN_HANDLERS: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static DEFERRED: Cell<u32> = const { Cell::new(0) };
    static IS_MAIN: bool = is_main_thread();
}

/// Sets the function that runs signal handlers; `None` when the interpreter ends.
pub fn watch_signals(run: Option<RunHandlers>) {
    RUN_HANDLERS.store(run.map_or(std::ptr::null_mut(), |run| run as *mut ()), Ordering::Release);
}

fn run_handlers() -> Option<RunHandlers> {
    let pointer = RUN_HANDLERS.load(Ordering::Acquire);
    // SAFETY: only functions of this type, or null, are stored.
    (!pointer.is_null()).then(|| unsafe { std::mem::transmute::<*mut (), RunHandlers>(pointer) })
}

fn is_main_thread() -> bool {
    // SAFETY: neither call has arguments or can fail.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) }
}

/// While a value of this type lives, waits of its thread cannot be interrupted.
#[derive(Debug)]
pub struct Deferred(PhantomData<*const ()>);

impl Deferred {
    /// Starts deferring signals.
    #[must_use]
    pub fn new() -> Self {
        DEFERRED.set(DEFERRED.get() + 1);
        Self(PhantomData)
    }
}

impl Default for Deferred {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        DEFERRED.set(DEFERRED.get().saturating_sub(1));
    }
}

/// Returns true if a signal may end a wait of the calling thread.
pub fn is_possible() -> bool {
    !RUN_HANDLERS.load(Ordering::Relaxed).is_null() && DEFERRED.get() == 0 && IS_MAIN.try_with(|is| *is) == Ok(true)
}

/// A one-time event of another thread.
#[derive(Debug, Default)]
pub struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    /// Opens the latch, which releases waiting threads.
    pub fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    /// Waits until it is open, or for one slice; returns true if it is.
    fn wait_slice(&self) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_timeout_while(is_open, SLICE, |is_open| !*is_open);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until it is open, or until `is_done`, which is polled, returns true.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if a signal handler raised.
    pub fn wait(&self, is_done: impl Fn() -> bool) -> Result<()> {
        while !self.wait_slice() && !is_done() {
            let raised = if is_possible() { run_handlers().is_some_and(|run| run()) } else { false };
            if raised {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_latch_is_waited_for() {
        let latch = Arc::new(Latch::default());
        let opener = Arc::clone(&latch);
        let thread = std::thread::spawn(move || opener.open());
        assert_eq!(latch.wait(|| false), Ok(()));
        assert!(thread.join().is_ok());
        assert_eq!(Latch::default().wait(|| true), Ok(()));
    }

    #[test]
    fn only_the_main_thread_is_interrupted() {
        // Tests run in other threads.
        assert!(!is_possible());
        let _deferred = Deferred::new();
        assert_eq!(DEFERRED.get(), 1);
    }
}
