//! Generated source of element-wise operations that matmul kernels apply to their results.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::FixedState;

use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::Switch;

/// The source of a fused epilogue; `epilogue.cl` says what it defines.
#[derive(Debug)]
pub struct FusedSource {
    /// Identifies the source. Equal in every process, as it is a constant of programs.
    pub key: i64,
    code: String,
    /// True if the record of faults is its last argument.
    pub reports_faults: bool,
}

/// A fused epilogue, and the arguments that kernels take for it.
#[derive(Clone, Copy, Debug)]
pub struct Fused<'a> {
    /// Its source.
    pub source: &'a FusedSource,
    /// Its buffers, the struct of their offsets and of its scalars, and the record of faults.
    pub arguments: &'a [Arg<'a>],
}

/// Registered sources, by key.
static SOURCES: RwLock<BTreeMap<i64, Arc<FusedSource>>> = RwLock::new(BTreeMap::new());

impl FusedSource {
    /// Registers a source, and returns its key.
    pub fn register(code: &str, reports_faults: bool) -> i64 {
        let mut sources = SOURCES.write().unwrap_or_else(PoisonError::into_inner);
        let mut key = (FixedState::with_seed(0).hash_one(code) >> 1) as i64;
        while sources.get(&key).is_some_and(|other| other.code != code) {
            key = (key + 1) & i64::MAX;
        }
        sources.entry(key).or_insert_with(|| Arc::new(Self { key, code: code.to_owned(), reports_faults }));
        key
    }

    /// The source registered with a key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown key.
    pub fn numbered(key: i64) -> Result<Arc<Self>> {
        let source = SOURCES.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        source.ok_or_else(|| Error::Invalid(format!("OpenCL: unknown matmul epilogue id {key}")))
    }

    /// The source as a part of a program, after the functions that it calls.
    pub fn switch(&self) -> Switch {
        Switch { functions: "", cases: self.code.clone() }
    }
}
