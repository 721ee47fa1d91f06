//! A line on standard error while kernels are compiled: the first use of an operator may take seconds, and the first
//! training step minutes.
//!
//! It appears after [`PATIENCE`] of compiling, is updated in place, and ends with the total when nothing has been
//! compiled for [`PAUSE`], or with the process. A thread writes it, which ends with the line.

use std::io::{IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The variable that turns the line off.
const VARIABLE: &str = "TORCH_OPENCL_PROGRESS";
/// Time of compiling before the line appears.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time without compiling after which the line ends: in a training step kernels are compiled one after the other.
const PAUSE: Duration = Duration::from_secs(3);
/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(250);

/// A period of compiling, from the first program until nothing has been compiled for a while.
#[derive(Debug)]
struct State {
    is_hidden: bool,
    /// True while a thread updates the line.
    is_watched: bool,
    /// Running compilations, of several threads.
    active: usize,
    /// Start of the first of these, or end of the last one.
    since: Option<Instant>,
    /// Time of compiling before `since`.
    spent: Duration,
    programs: u64,
    /// The line on the terminal.
    shown: String,
}

static STATE: Mutex<State> = Mutex::new(State {
    is_hidden: false,
    is_watched: false,
    active: 0,
    since: None,
    spent: Duration::ZERO,
    programs: 0,
    shown: String::new(),
});
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the line is shown on terminals.
fn from_environment() -> Result<bool> {
    match std::env::var(VARIABLE) {
        Ok(value) if value == "never" => Ok(false),
        Ok(value) if value != "auto" => Err(Error::Invalid(format!("{VARIABLE}={value}: expected 'auto' or 'never'"))),
        _ => Ok(true),
    }
}

/// Refuses an invalid value of the variable.
///
/// # Errors
/// [`Error::Invalid`] for such a value.
pub fn check_progress() -> Result<()> {
    from_environment().map(drop)
}

/// Shows the line, or hides it for a caller that shows progress differently. A line that is shown again counts from
/// that moment: the caller has shown what was compiled before.
pub fn show(on: bool) {
    state().show(on);
}

/// A compilation for which a caller waits, or will wait.
#[derive(Debug)]
pub(super) struct Compiling(());

impl Compiling {
    pub fn begin() -> Self {
        begin();
        Self(())
    }

    /// Counts its program after it has been compiled.
    pub fn count(self) {
        state().programs += 1;
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        finish();
    }
}

/// Called with true before a wait for a driver that compiles a kernel at its launch, and with false after it.
pub(super) fn wait_for_compiler(begins: bool) {
    if begins {
        begin();
    } else {
        finish();
    }
}

fn begin() {
    let mut state = state();
    state.active += 1;
    if state.active == 1 {
        state.since = Some(Instant::now());
    }
    if !state.is_watched && std::io::stderr().is_terminal() && from_environment().unwrap_or(false) {
        let builder = thread::Builder::new().name("torch-opencl-progress".to_owned());
        state.is_watched = builder.spawn(watch).is_ok();
    }
}

fn finish() {
    let mut state = state();
    if state.active == 1 {
        let elapsed = state.elapsed();
        state.spent += elapsed;
        state.since = Some(Instant::now());
    }
    state.active = state.active.saturating_sub(1);
}

/// Ends the line when the process ends.
pub fn end() {
    state().end();
    CHANGED.notify_all();
}

fn watch() {
    let mut state = state();
    while state.is_watched {
        if state.active == 0 && state.elapsed() >= PAUSE {
            state.end();
        } else {
            state.update();
            state = CHANGED.wait_timeout(state, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn show(&mut self, on: bool) {
        if on && self.is_hidden {
            (self.programs, self.spent) = (0, Duration::ZERO);
            self.since = self.since.map(|_| Instant::now());
        } else if !on && !self.shown.is_empty() {
            write(&format!("\n{}\n", summary(self.programs, self.compiling())));
            self.shown.clear();
        }
        self.is_hidden = !on;
    }

    fn elapsed(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn compiling(&self) -> Duration {
        self.spent + if self.active > 0 { self.elapsed() } else { Duration::ZERO }
    }

    fn update(&mut self) {
        if self.is_hidden || self.compiling() < PATIENCE {
            return;
        }
        let text = format!("compiling OpenCL kernels, once for this machine; {} so far", self.programs);
        if text != self.shown {
            write(&format!("\r{text}"));
            self.shown = text;
        }
    }

    fn end(&mut self) {
        if !self.shown.is_empty() {
            write(&format!("\n{}\n", summary(self.programs, self.compiling())));
        }
        let (is_hidden, active) = (self.is_hidden, self.active);
        let since = (active > 0).then(Instant::now);
        let (spent, programs, shown) = (Duration::ZERO, 0, String::new());
        *self = Self { is_hidden, is_watched: false, active, since, spent, programs, shown };
    }
}

fn summary(programs: u64, time: Duration) -> String {
    let plural = if programs == 1 { "" } else { "s" };
    format!("compiled {programs} program{plural} of OpenCL kernels in {:.0} s", time.as_secs_f64())
}

/// Ignores errors: a closed terminal must not make a compilation fail.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_number_and_time() {
        let text = summary(14, Duration::from_millis(42_600));
        assert_eq!(text, "compiled 14 programs of OpenCL kernels in 43 s");
        assert!(summary(1, Duration::ZERO).starts_with("compiled 1 program of"));
    }

    #[test]
    fn a_line_shown_again_does_not_count_what_was_hidden() {
        let five_seconds_ago = Instant::now().checked_sub(Duration::from_secs(5));
        let mut state = State {
            is_hidden: true,
            is_watched: true,
            active: 1,
            since: five_seconds_ago,
            spent: Duration::from_secs(5),
            programs: 3,
            shown: String::new(),
        };
        state.show(true);
        assert!(state.compiling() < PATIENCE && state.programs == 0);
        state.since = five_seconds_ago;
        state.show(true);
        assert!(state.compiling() > PATIENCE);
    }

    #[test]
    fn the_time_of_overlapping_compilations_is_counted_once() {
        let mut state = State {
            is_hidden: false,
            is_watched: true,
            active: 2,
            since: Instant::now().checked_sub(Duration::from_secs(5)),
            spent: Duration::from_secs(1),
            programs: 3,
            shown: String::new(),
        };
        assert!((6.0..7.0).contains(&state.compiling().as_secs_f64()));
        state.active = 0;
        assert_eq!(state.compiling(), Duration::from_secs(1));
    }
}
