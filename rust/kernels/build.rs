//! Building a program, or loading what an earlier process has built.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::Tier;
use super::disk;
use super::spec::{options, Constant};
use super::{Class, Family};
use crate::cl::{DeviceInfo, Program};
use crate::error::{Error, Result};
use crate::runtime::{Device, DeviceClass};

static COMPILED: AtomicU64 = AtomicU64::new(0);
static LOADED: AtomicU64 = AtomicU64::new(0);

/// Stored in place of a binary where the driver itself has what it needs.
const KEPT_BY_DRIVER: &[u8] = b"kept by the driver";

/// All that a program is made from.
#[derive(Debug)]
pub(super) struct Recipe {
    pub device: &'static Device,
    pub family: Family,
    pub class: Class,
    pub tier: Tier,
    pub constants: Vec<Constant>,
    /// Text of the op switch, empty where the family has none.
    pub cases: String,
}

impl Recipe {
    fn source(&self) -> String {
        self.family.source(&self.cases)
    }

    fn options(&self) -> String {
        let fp64 = self.device.info.fp64;
        let mut text = format!("-cl-std=CL1.2 -D {}", self.class.define());
        if self.device.class == DeviceClass::Cpu {
            text.push_str(" -D IS_CPU");
        }
        if fp64 {
            text.push_str(" -D HAS_FP64");
        }
        if !self.class.needs_fp64() && self.class != Class::Integer {
            text.push_str(" -cl-single-precision-constant");
        }
        // GPUs leave the last bits of a quotient open by default, and a floor or a remainder then misses by one.
        if self.device.info.exact_quotients && self.device.class == DeviceClass::Gpu {
            text.push_str(" -cl-fp32-correctly-rounded-divide-sqrt");
        }
        text + &options(&self.constants)
    }
}

/// Whether an earlier process has left the program on disk.
pub(super) fn is_stored(recipe: &Recipe) -> bool {
    disk::Entry::new(&recipe.device.info, &recipe.source(), &recipe.options()).load().is_some()
}

/// Builds a program, or loads it.
pub(super) fn build(recipe: &Recipe) -> Result<Program> {
    let info = &recipe.device.info;
    if recipe.class.needs_fp64() && !info.fp64 {
        return Err(Error::Unsupported(format!(
            "OpenCL: '{}' does not compute in float64, so float64 and complex128 tensors cannot be used on it. \
             Use float32 and complex64 instead.",
            info.name
        )));
    }
    let source = recipe.source();
    let options = recipe.options();
    let context = &recipe.device.state()?.context;
    let entry = disk::Entry::new(info, &source, &options);
    let stored = entry.load();
    let is_kept = stored.as_deref() == Some(KEPT_BY_DRIVER);
    if let Some(binary) = stored.filter(|_| !is_kept) {
        // A binary that the driver refuses (it was updated in place, say) is rebuilt and replaced.
        if let Ok(program) = Program::from_binary(context, &binary, &options) {
            LOADED.fetch_add(1, Ordering::Relaxed);
            return Ok(program);
        }
    }
    let name = format!("{}{}", recipe.family.name(), self::options(&recipe.constants));
    let program = Program::from_source(context, &source, &options, &name, &info.name)?;
    if is_kept {
        LOADED.fetch_add(1, Ordering::Relaxed);
        return Ok(program);
    }
    COMPILED.fetch_add(1, Ordering::Relaxed);
    if keeps_builds(info) {
        entry.store(KEPT_BY_DRIVER);
    } else if let Ok(binary) = program.binary() {
        entry.store(&binary);
    }
    Ok(program)
}

/// Whether the driver has a cache of its own that serves a build from source as well as a binary would.
///
/// PoCL has, and what it makes a binary of is every kernel of a program, for groups of any size: more than what a program that
/// uses two of them has to wait for. Training on the digits from empty caches took 44 s with binaries and 20 s without, and 1.6 s
/// longer from full ones.
fn keeps_builds(info: &DeviceInfo) -> bool {
    info.platform == "Portable Computing Language" && env::var_os("POCL_KERNEL_CACHE").is_none_or(|value| value != "0")
}

/// (loaded, compiled) programs of this process.
pub(super) fn counts() -> (u64, u64) {
    (LOADED.load(Ordering::Relaxed), COMPILED.load(Ordering::Relaxed))
}
