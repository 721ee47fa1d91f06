//! The library that the user prefers.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Library;
use crate::error::{Error, Result};
use crate::runtime::{current_device, device};

/// The variable that gives the preference a process starts with.
const VARIABLE: &str = "TORCH_OPENCL_BLAS";

/// The user's preference for matmuls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// The fastest, by measurement.
    Auto,
    /// This library, wherever it serves the matmul.
    Only(Library),
}

impl Preference {
    const ALL: [Self; 4] =
        [Self::Auto, Self::Only(Library::OpenCl), Self::Only(Library::Host), Self::Only(Library::Cublas)];

    /// The name that users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(library) => library.name(),
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preference| preference.name() == name)
    }

    /// "'auto', 'opencl', ...", for messages.
    fn names() -> String {
        Self::ALL.map(|preference| format!("'{}'", preference.name())).join(", ")
    }
}

/// Index in [`Preference::ALL`] plus one; 0 before the first question. Not a lock: every matmul reads it.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

fn store(preference: Preference) {
    let position = Preference::ALL.iter().position(|known| *known == preference);
    CHOSEN.store(position.map_or(0, |position| position + 1), Ordering::Relaxed);
}

/// The preference: the last choice of the user, else `TORCH_OPENCL_BLAS`, else `auto`.
///
/// # Errors
/// [`Error::Invalid`] when the variable names no library.
pub fn preference() -> Result<Preference> {
    let chosen = CHOSEN.load(Ordering::Relaxed).checked_sub(1).and_then(|position| Preference::ALL.get(position));
    if let Some(preference) = chosen {
        return Ok(*preference);
    }
    let preference = match std::env::var(VARIABLE) {
        Ok(name) => Preference::named(&name)
            .ok_or_else(|| Error::Invalid(format!("{VARIABLE}={name}: expected one of {}", Preference::names())))?,
        Err(_) => Preference::Auto,
    };
    store(preference);
    Ok(preference)
}

/// Makes a choice for this process.
///
/// # Errors
/// [`Error::Invalid`] for a name that is none, and for a library that the current device cannot use.
pub fn set_preference(name: &str) -> Result<()> {
    let preference = Preference::named(name).ok_or_else(|| {
        Error::Invalid(format!("OpenCL: there is no BLAS library '{name}'. Choose one of {}.", Preference::names()))
    })?;
    match preference {
        Preference::Auto | Preference::Only(Library::OpenCl) => {}
        Preference::Only(library) => library.check(&device(current_device())?.info)?,
    }
    store(preference);
    Ok(())
}
