//! Programs in memory: built once per device, family, class and spec.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::disk;
use super::{Class, Family, Spec};
use crate::cl::{Kernel, Program};
use crate::error::{Error, Result};
use crate::runtime::Device;

type Key = (i32, Family, Class, Spec);

static PROGRAMS: RwLock<Option<HashMap<Key, Arc<CachedProgram>>>> = RwLock::new(None);
/// One build at a time: two threads that want the same program must not both compile it, and drivers serialise
/// compilation anyway.
static BUILDING: Mutex<()> = Mutex::new(());
static COMPILED: AtomicU64 = AtomicU64::new(0);
static LOADED: AtomicU64 = AtomicU64::new(0);
static HITS: AtomicU64 = AtomicU64::new(0);

/// A built program and the kernels taken from it so far.
#[derive(Debug)]
pub struct CachedProgram {
    program: Program,
    kernels: RwLock<HashMap<&'static str, Arc<Kernel>>>,
}

impl CachedProgram {
    /// A kernel by name.
    pub fn kernel(&self, name: &'static str) -> Result<Arc<Kernel>> {
        if let Some(kernel) = self.kernels.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(kernel));
        }
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(self.program.kernel(name)?);
        kernels.insert(name, Arc::clone(&kernel));
        Ok(kernel)
    }
}

/// The program of a family for a device and class, built on first use.
///
/// `cases` gives the text of the op switch for families that have one; it is only called for a build, so the
/// constants of `spec` must determine it.
///
/// # Errors
/// [`Error::Unsupported`] when the class computes in f64 and the device does not; [`Error::Build`] with the
/// compiler's log.
pub fn program(
    device: &Device,
    family: Family,
    class: Class,
    spec: &Spec,
    cases: impl FnOnce() -> String,
) -> Result<Arc<CachedProgram>> {
    let key = (device.index, family, class, spec.clone());
    if let Some(program) = lookup(&key) {
        HITS.fetch_add(1, Ordering::Relaxed);
        return Ok(program);
    }
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = lookup(&key) {
        return Ok(program);
    }
    let program = Arc::new(CachedProgram {
        program: build(device, family, class, spec, &cases())?,
        kernels: RwLock::new(HashMap::new()),
    });
    let mut programs = PROGRAMS.write().unwrap_or_else(PoisonError::into_inner);
    programs.get_or_insert_with(HashMap::new).insert(key, Arc::clone(&program));
    Ok(program)
}

fn lookup(key: &Key) -> Option<Arc<CachedProgram>> {
    let programs = PROGRAMS.read().unwrap_or_else(PoisonError::into_inner);
    programs.as_ref()?.get(key).map(Arc::clone)
}

fn build(device: &Device, family: Family, class: Class, spec: &Spec, cases: &str) -> Result<Program> {
    let info = &device.info;
    if class.needs_fp64() && !info.fp64 {
        return Err(Error::Unsupported(format!(
            "OpenCL: '{}' does not compute in float64, so float64 and complex128 tensors cannot be used on it. \
             Use float32 and complex64 instead.",
            info.name
        )));
    }
    let source = family.source(cases);
    let mut options = format!("-cl-std=CL1.2 -D {}", class.define());
    if info.fp64 {
        options.push_str(" -D HAS_FP64");
    }
    if !class.needs_fp64() && class != Class::Integer {
        options.push_str(" -cl-single-precision-constant");
    }
    options.push_str(&spec.options());

    let context = &device.state()?.context;
    let entry = disk::Entry::new(info, &source, &options);
    if let Some(binary) = entry.load() {
        // A binary that the driver refuses (it was updated in place, say) is rebuilt and replaced.
        if let Ok(program) = Program::from_binary(context, &binary, &options) {
            LOADED.fetch_add(1, Ordering::Relaxed);
            return Ok(program);
        }
    }
    let name = format!("{}{}", family.name(), spec.options());
    let program = Program::from_source(context, &source, &options, &name, &info.name)?;
    COMPILED.fetch_add(1, Ordering::Relaxed);
    if let Ok(binary) = program.binary() {
        entry.store(&binary);
    }
    Ok(program)
}

/// State of the caches: where the disk cache is, its entries and bytes, and what this process used.
#[derive(Clone, Debug)]
pub struct CacheInfo {
    /// Folder of the disk cache, `None` when it is off.
    pub folder: Option<String>,
    /// Files in it.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Look-ups answered from memory.
    pub hits: u64,
    /// Programs loaded from disk.
    pub loaded: u64,
    /// Programs compiled.
    pub compiled: u64,
}

/// What the program caches hold.
pub fn cache_info() -> CacheInfo {
    let (folder, entries, bytes) = disk::contents();
    CacheInfo {
        folder,
        entries,
        bytes,
        hits: HITS.load(Ordering::Relaxed),
        loaded: LOADED.load(Ordering::Relaxed),
        compiled: COMPILED.load(Ordering::Relaxed),
    }
}
