//! When a specialised program is built, and where.

use std::env::{self, VarError};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Elements that a generic program has worked on when its specialised form is queued: a second or so of a core's work, and seconds of
/// a large network. A small one ends before a build would pay: with a quarter of it, training on the digits from empty
/// caches took 1.5 s longer (`make bench-first-use`).
const HOT: u64 = 1 << 30;

/// What becomes of launches that a specialised program would serve better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specialisation {
    /// The generic program serves them until the other has been built by a thread of its own.
    Background,
    /// They wait for the specialised program.
    Eager,
    /// The generic program serves them.
    Never,
}

impl Specialisation {
    /// Its name in `TORCH_OPENCL_SPECIALIZE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Eager => "eager",
            Self::Never => "never",
        }
    }

    /// What `TORCH_OPENCL_SPECIALIZE` asks for.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value that is none of the three.
    pub fn from_environment() -> Result<Self> {
        let text = match env::var("TORCH_OPENCL_SPECIALIZE") {
            Ok(text) => text,
            Err(VarError::NotPresent) => return Ok(Self::Background),
            Err(VarError::NotUnicode(raw)) => raw.to_string_lossy().into_owned(),
        };
        [Self::Background, Self::Eager, Self::Never].into_iter().find(|known| known.name() == text).ok_or_else(|| {
            Error::Invalid(format!("TORCH_OPENCL_SPECIALIZE={text}: expected 'background', 'eager' or 'never'"))
        })
    }

    /// What this process does. A wrong value has been refused when the process began to use OpenCL.
    pub fn of_process() -> Self {
        static CHOSEN: OnceLock<Specialisation> = OnceLock::new();
        *CHOSEN.get_or_init(|| Self::from_environment().unwrap_or(Self::Background))
    }
}

/// While set, programs are wanted from their first launch.
static IN_A_HURRY: AtomicBool = AtomicBool::new(false);

/// Makes every specialised program wanted from its first launch on, or (the default) once it is worth its build.
pub fn hurry(on: bool) {
    IN_A_HURRY.store(on, Ordering::Relaxed);
}

/// How much a specialised program is wanted that has not been built.
#[derive(Debug, Default)]
pub(super) struct Demand {
    elements: AtomicU64,
    stage: AtomicU8,
}

const COLD: u8 = 0;
const ASKED_FOR: u8 = 1;
const FAILED: u8 = 2;
const REPORTED: u8 = 3;

impl Demand {
    /// Counts a launch; true for the one launch that has to ask for the build.
    pub fn grows_to_a_build(&self, elements: u64) -> bool {
        let before = self.elements.fetch_add(elements, Ordering::Relaxed);
        let is_hot = before.saturating_add(elements) >= HOT || IN_A_HURRY.load(Ordering::Relaxed);
        is_hot && self.moves(COLD, ASKED_FOR)
    }

    /// The build was refused: a later launch asks again.
    pub fn put_off(&self) {
        self.moves(ASKED_FOR, COLD);
    }

    /// The build failed, for good.
    pub fn give_up(&self) {
        self.moves(ASKED_FOR, FAILED);
    }

    /// Whether the build has failed and nobody has been told: true once.
    pub fn is_to_be_reported(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == FAILED && self.moves(FAILED, REPORTED)
    }

    fn moves(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_asked_for_once_when_it_is_hot() {
        let demand = Demand::default();
        assert!(!demand.grows_to_a_build(HOT - 1));
        assert!(demand.grows_to_a_build(1));
        assert!(!demand.grows_to_a_build(HOT));
    }

    #[test]
    fn a_refused_build_is_asked_for_again() {
        let demand = Demand::default();
        assert!(demand.grows_to_a_build(HOT));
        demand.put_off();
        assert!(demand.grows_to_a_build(1));
    }

    #[test]
    fn a_failed_build_is_reported_once_and_not_tried_again() {
        let demand = Demand::default();
        assert!(!demand.is_to_be_reported());
        assert!(demand.grows_to_a_build(HOT));
        demand.give_up();
        assert!(!demand.grows_to_a_build(HOT));
        assert!(demand.is_to_be_reported());
        assert!(!demand.is_to_be_reported());
    }
}
