//! The library that the user prefers.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Library;
use crate::error::{Error, Result};
use crate::runtime::{current_device, device};

/// The variable with the initial preference of a process.
const VARIABLE: &str = "TORCH_OPENCL_BLAS";

/// The user's preference for matmuls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// The fastest, by measurement.
    Auto,
    /// This library, for every matmul that it supports.
    Only(Library),
}

impl Preference {
    const ALL: [Self; 4] =
        [Self::Auto, Self::Only(Library::OpenCl), Self::Only(Library::Host), Self::Only(Library::Cublas)];

    /// Its name in the user's interface.
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

/// Index in [`Preference::ALL`] plus one; 0 before the first use. Not a lock, as every matmul reads it.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

fn store(preference: Preference) {
    let position = Preference::ALL.iter().position(|known| *known == preference);
    CHOSEN.store(position.map_or(0, |position| position + 1), Ordering::Relaxed);
}

/// The preference: the user's last choice, otherwise `TORCH_OPENCL_BLAS`, otherwise `auto`.
///
/// # Errors
/// [`Error::Invalid`] if the variable has another value.
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

/// Sets the preference for this process.
///
/// # Errors
/// [`Error::Invalid`] for an unknown name, and for a library that the current device cannot use.
pub fn set_preference(name: &str) -> Result<()> {
    let preference = Preference::named(name).ok_or_else(|| {
        Error::Invalid(format!("OpenCL: there is no BLAS library '{name}'. Choose one of {}.", Preference::names()))
    })?;
    match preference {
        Preference::Auto | Preference::Only(Library::OpenCl) => {}
        Preference::Only(library) => library.check(device(current_device())?)?,
    }
    store(preference);
    Ok(())
}
