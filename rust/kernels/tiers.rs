//! Decides when a specialised program is built.

use std::env::{self, VarError};
use std::sync::atomic::{AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use super::ahead_of_time::is_ahead_of_time;
use crate::cl::{DeviceInfo, DeviceType};
use crate::error::{Error, Result};

/// Elements that a generic program has processed when its specialised form is built soon: about a second of a core's
/// work, and seconds of a large network. A small network ends before a build would pay: with a quarter of this value,
/// training on the digits from empty caches took 1.5 s longer (`make bench-first-use`).
pub(super) const HOT: u64 = 1 << 30;
/// Elements after which it is built once the process has settled: a process that still repeats a step then is a
/// training or a server.
const WARM: u64 = 1 << 25;
/// As `WARM`, for a device that is not the host's processor and so loses no time by compiling: one launch, or a few
/// dozen.
const WARM_ELSEWHERE: u64 = 1 << 22;
/// Elements of one launch that indicate a large network, whose steps continue for longer than its builds take: 16 MiB
/// of floats.
const LARGE: u64 = 1 << 22;
/// Time without waited builds after which a hot program is built: the first steps of a process build many programs, one
/// after the other, within a third of a second.
const QUIET: Duration = Duration::from_millis(500);
/// As `QUIET`, for a warm program of a large network, whose first steps may compute for a second between two programs.
const QUIET_LARGE: Duration = Duration::from_secs(2);
/// As `QUIET`, for a program that is only warm: a process that has needed no new program for this long repeats its
/// work. With 5 s, training on the digits from empty caches, which ends 3 s after its kernels have been compiled, took
/// 1 to 2 s longer (`make bench-first-use`).
const SETTLED: Duration = Duration::from_secs(8);

/// The treatment of launches for which a specialised program would be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specialisation {
    /// They use the generic program until a separate thread has built the specialised one.
    Background,
    /// They wait for the specialised program.
    Eager,
    /// They use the generic program.
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

    /// The mode in `TORCH_OPENCL_SPECIALIZE`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another value.
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

    /// The mode of this process. An invalid value has raised an error when the process began to use OpenCL.
    pub fn of_process() -> Self {
        static CHOSEN: OnceLock<Specialisation> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            if is_ahead_of_time() {
                Self::Never
            } else {
                Self::from_environment().unwrap_or(Self::Background)
            }
        })
    }
}

/// Number of callers that want specialised programs to be requested at their first launch.
static EAGER_BUILDS: AtomicUsize = AtomicUsize::new(0);

/// Requests every specialised program at its first launch, instead of when it is worth its build, until the same caller
/// passes false.
pub fn set_eager_builds(on: bool) {
    let count = |callers: usize| Some(if on { callers + 1 } else { callers.saturating_sub(1) });
    // The closure never returns `None`.
    let _ = EAGER_BUILDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
}

/// The place of compilation, relative to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compiler {
    /// On the CPU that is the device: cores that compile do not compute.
    OnDevice,
    /// On a host that waits for the device.
    Elsewhere,
}

impl Compiler {
    /// The location for a device.
    pub fn of(info: &DeviceInfo) -> Self {
        if info.device_type == DeviceType::Cpu {
            Self::OnDevice
        } else {
            Self::Elsewhere
        }
    }

    const fn warm(self) -> u64 {
        match self {
            Self::Elsewhere => WARM_ELSEWHERE,
            Self::OnDevice => WARM,
        }
    }
}

/// Counts the elements for which a specialised program, not built yet, would have been used, to find out when it is
/// hot.
#[derive(Debug, Default)]
pub(super) struct HotCounter {
    elements: AtomicU64,
    largest: AtomicU64,
    stage: AtomicU8,
}

const COLD: u8 = 0;
const ASKED_FOR: u8 = 1;
const FAILED: u8 = 2;
const REPORTED: u8 = 3;

impl HotCounter {
    /// Counts a launch; true for the one launch that must request the build.
    pub fn count(&self, elements: u64, compiler: Compiler) -> bool {
        self.largest.fetch_max(elements, Ordering::Relaxed);
        let before = self.elements.fetch_add(elements, Ordering::Relaxed);
        let is_warm = before.saturating_add(elements) >= compiler.warm() || EAGER_BUILDS.load(Ordering::Relaxed) > 0;
        is_warm && self.moves(COLD, ASKED_FOR)
    }

    /// Elements of the launches so far.
    pub fn elements(&self) -> u64 {
        self.elements.load(Ordering::Relaxed)
    }

    /// Time without waited builds after which this program is built.
    pub fn quiet(&self, compiler: Compiler) -> Duration {
        match compiler {
            Compiler::Elsewhere => Duration::ZERO,
            Compiler::OnDevice if self.elements() >= HOT => QUIET,
            Compiler::OnDevice if self.largest.load(Ordering::Relaxed) >= LARGE => QUIET_LARGE,
            Compiler::OnDevice => SETTLED,
        }
    }

    /// Returns true if the build has not been requested yet.
    pub fn accepting(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == COLD
    }

    /// Called if the build was not accepted: a later launch requests it again.
    pub fn defer(&self) {
        self.moves(ASKED_FOR, COLD);
    }

    /// Called if the build failed, which is final.
    pub fn abandon(&self) {
        self.stage.store(FAILED, Ordering::Relaxed);
    }

    /// Returns true, once, if the build has failed and this has not been reported.
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

    const HERE: Compiler = Compiler::OnDevice;

    #[test]
    fn a_program_is_requested_once_when_it_is_warm() {
        let counter = HotCounter::default();
        assert!(!counter.count(WARM - 1, HERE));
        assert!(counter.count(1, HERE));
        assert!(!counter.count(HOT, HERE));
        assert_eq!(counter.elements(), WARM + HOT);
    }

    #[test]
    fn a_device_that_does_not_compile_waits_less() {
        assert!(!HotCounter::default().count(WARM_ELSEWHERE, HERE));
        assert!(HotCounter::default().count(WARM_ELSEWHERE, Compiler::Elsewhere));
        assert_eq!(HotCounter::default().quiet(Compiler::Elsewhere), Duration::ZERO);
    }

    #[test]
    fn a_hotter_program_or_one_of_a_large_network_waits_less() {
        let quiet_after = |launches: u64, elements: u64| {
            let counter = HotCounter::default();
            (0..launches).for_each(|_| _ = counter.count(elements, HERE));
            counter.quiet(HERE)
        };
        let (warm, large, hot) = (quiet_after(64, LARGE / 2), quiet_after(8, LARGE), quiet_after(1, HOT));
        assert!(warm > large && large > hot && !hot.is_zero());
    }

    #[test]
    fn a_refused_build_is_requested_again() {
        let counter = HotCounter::default();
        assert!(counter.count(HOT, HERE));
        assert!(!counter.accepting());
        counter.defer();
        assert!(counter.accepting());
        assert!(counter.count(1, HERE));
    }

    #[test]
    fn a_failed_build_is_reported_once_and_not_tried_again() {
        let counter = HotCounter::default();
        assert!(!counter.is_to_be_reported());
        assert!(counter.count(HOT, HERE));
        counter.abandon();
        assert!(!counter.count(HOT, HERE));
        assert!(counter.is_to_be_reported());
        assert!(!counter.is_to_be_reported() && !counter.accepting());
    }
}
