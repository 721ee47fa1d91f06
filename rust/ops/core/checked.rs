//! Programs that are checked before their first use.
//!
//! Drivers are known that compile matrix instructions to wrong results, or crash their compiler. So a program with such
//! instructions is used only after its results were right for inputs whose results are known. The outcome is remembered
//! with the driver's version beside the compiled programs.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

use foldhash::HashMap;

use crate::cl::{Arg, Buffer, Deferred, Grid, Kernel, Memory, Queue, Read, Start, Untraced};
use crate::error::Result;
use crate::kernels::entry::Arguments;
use crate::kernels::{is_recording, warn, DiskEntry, Family, Switch};
use crate::ops::Target;

/// The forms that this process uses, and those that it has refused, by device.
static COUNTS: RwLock<Option<HashMap<i32, Counts>>> = RwLock::new(None);

/// Numbers of forms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Forms whose results were right.
    pub used: usize,
    /// Others.
    pub refused: usize,
}

/// The numbers of forms of all kernels on a device.
pub fn counts(device: i32) -> Counts {
    let all = COUNTS.read().unwrap_or_else(PoisonError::into_inner);
    all.as_ref().and_then(|all| all.get(&device).copied()).unwrap_or_default()
}

/// The outcomes of the forms of a kernel, by device.
pub struct Outcomes<F> {
    known: RwLock<Option<HashMap<(i32, F), bool>>>,
}

/// Names a kernel in the warning that it is not used.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The family of its programs.
    pub family: Family,
    /// "matmul", for "the matmul kernel".
    pub kernel: &'static str,
    /// The kind of matrix instructions.
    pub kind: &'static str,
}

impl<F: Copy + Debug + Eq + Hash> Outcomes<F> {
    /// None yet.
    pub const fn empty() -> Self {
        Self { known: RwLock::new(None) }
    }

    /// Returns true if a form may be used on a device. The first use on a driver runs `check`, which returns whether all
    /// results were right.
    pub fn is_right(&self, target: &Target, form: &F, subject: Subject, check: impl FnOnce() -> Result<bool>) -> bool {
        let key = (target.device.index, *form);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = known.as_ref().and_then(|all| all.get(&key).copied()) {
            return outcome;
        }
        drop(known);
        let outcome = recall(target, form, subject, check);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have checked it meanwhile.
        if known.get_or_insert_default().insert(key, outcome).is_none() {
            let mut all = COUNTS.write().unwrap_or_else(PoisonError::into_inner);
            let counts = all.get_or_insert_default().entry(target.device.index).or_default();
            counts.used += usize::from(outcome);
            counts.refused += usize::from(!outcome);
        }
        outcome
    }

    /// Returns true if one of some forms has been refused on a device.
    pub fn has_failed(&self, device: i32, is_meant: impl Fn(&F) -> bool) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().flatten().any(|((index, form), outcome)| *index == device && is_meant(form) && !outcome)
    }
}

/// The outcome that an earlier process has noted, or that of a check.
fn recall<F: Debug>(target: &Target, form: &F, subject: Subject, check: impl FnOnce() -> Result<bool>) -> bool {
    let source = subject.family.source(&Switch::default());
    let note = DiskEntry::note(&target.device.info, &source, &format!("results of {form:?}"));
    // A bundle also needs the program of the check.
    match note.load().as_deref().filter(|_| !is_recording()) {
        Some(b"right") => return true,
        Some(b"wrong") => return false,
        _ => {}
    }
    // Signals wait until the check has ended, and profiles do not show it.
    let _deferred = Deferred::new();
    let _untraced = Untraced::begin();
    match check() {
        Ok(outcome) => {
            if !outcome {
                tell(target, subject, "computes wrong results");
            }
            note.store(if outcome { b"right" } else { b"wrong" });
            outcome
        }
        // Not noted: memory may have been short.
        Err(error) => {
            let text = error.message();
            tell(target, subject, &format!("fails ({})", text.lines().next().unwrap_or_default()));
            false
        }
    }
}

fn tell(target: &Target, subject: Subject, what: &str) {
    let (info, Subject { kernel, kind, .. }) = (&target.device.info, subject);
    warn(&format!(
        "OpenCL: on {} (driver {}) the {kernel} kernel for matrix instructions ({kind}) {what}. It is not used: some \
         {kernel} calls take longer. A newer driver may help.",
        info.name, info.driver_version
    ));
}

/// A queue and buffers for a check, apart from the streams and the memory of the process.
pub struct Trial<'a> {
    target: &'a Target,
    queue: Queue,
}

impl<'a> Trial<'a> {
    /// # Errors
    /// Errors reported by the driver.
    pub fn new(target: &'a Target) -> Result<Self> {
        Ok(Self { target, queue: Queue::new(&target.state.context)? })
    }

    /// A buffer with these values.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn upload<T: bytemuck::NoUninit>(&self, values: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = Buffer::new(&self.target.state.context, bytes.len(), false)?;
        // SAFETY: the bytes are borrowed until the queue has finished.
        let _event = unsafe { self.queue.write(buffer.handle(), 0, bytes.as_ptr(), bytes.len())? };
        self.queue.finish()?;
        Ok(buffer)
    }

    /// Runs a kernel with `items` items a group.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn run(&self, kernel: &Kernel, args: &impl Arguments, groups: usize, items: usize) -> Result<()> {
        let grid = Grid { first: None, global: &[groups * items], local: Some(&[items]) };
        args.bind(|args: &[Arg<'_>]| self.queue.launch(kernel, args, &grid, Start::Now))?;
        self.queue.finish()
    }

    /// Reads a buffer.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn download<T: bytemuck::Pod>(&self, buffer: &Buffer, values: &mut [T]) -> Result<()> {
        let (pointer, size) = (values.as_mut_ptr().cast(), size_of_val(values));
        // SAFETY: `values` is exclusively borrowed during the call.
        unsafe { self.queue.read_now(&[Read { source: buffer.handle(), offset: 0, target: pointer, size }]) }
    }
}

/// The start of a buffer, as an argument of a kernel.
pub fn start_of(buffer: &Buffer) -> Memory {
    Memory { handle: buffer.handle(), offset: 0 }
}
