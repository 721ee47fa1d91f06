//! Builds a program, or loads one that an earlier process has built.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

use super::recipe::Recipe;
use super::{ahead_of_time, bundle, disk, driver_cache, progress, warn};
use crate::cl::{Context, DeviceInfo, FirstLaunch, Program};
use crate::error::{Error, Result};
use crate::runtime::Device;

static COMPILED: AtomicU64 = AtomicU64::new(0);
static LOADED: AtomicU64 = AtomicU64::new(0);

/// Stored instead of a binary if the driver itself keeps the build.
const KEPT_BY_DRIVER: &[u8] = b"kept by the driver";

/// Returns true if an earlier process has stored the program on disk.
pub(super) fn is_stored(recipe: &Recipe) -> bool {
    disk::Entry::new(&recipe.device.info, &recipe.source(), &recipe.options()).load().is_some()
}

/// Builds a program, or loads it.
pub(super) fn build(recipe: &Recipe) -> Result<Program> {
    let info = &recipe.device.info;
    recipe.class.check(info)?;
    if let Some(bundle) = bundle::of_process()? {
        let program = bundle.program(recipe, &recipe.device.state()?.context)?;
        LOADED.fetch_add(1, Ordering::Relaxed);
        return Ok(program);
    }
    let source = recipe.source();
    let options = recipe.options();
    let context = &recipe.device.state()?.context;
    let entry = disk::Entry::new(info, &source, &options);
    let stored = entry.load();
    let is_kept = stored.as_deref() == Some(KEPT_BY_DRIVER);
    if let Some(binary) = stored.filter(|_| !is_kept) {
        // A binary that the driver rejects (for example after an update in place) is rebuilt and replaced.
        if let Ok(program) = Program::from_binary(context, &binary, &options) {
            LOADED.fetch_add(1, Ordering::Relaxed);
            return Ok(program);
        }
    }
    let name = recipe.name();
    let keeps_builds = driver_cache::keeps_builds(info);
    if keeps_builds && (is_kept || !entry.has_path()) {
        let program = driver_cache::while_loading(|| compile(context, &source, &options, &name, info))?;
        let count = if is_kept { &LOADED } else { &COMPILED };
        count.fetch_add(1, Ordering::Relaxed);
        return Ok(program.with_first_launches(FirstLaunch::Loads));
    }
    if let Some(reason) = keeps_builds.then(driver_cache::obstacle).flatten() {
        return Err(Error::Invalid(reason));
    }
    let compiling = progress::Compiling::begin();
    let program = compile(context, &source, &options, &name, info)?;
    compiling.count();
    COMPILED.fetch_add(1, Ordering::Relaxed);
    if keeps_builds {
        entry.store(KEPT_BY_DRIVER);
    } else if let Ok(binary) = program.binary() {
        entry.store(&binary);
    }
    Ok(if info.compiles_at_launch() { program.with_first_launches(FirstLaunch::Compiles) } else { program })
}

/// Builds from source, and a second time if a driver that keeps builds returns a damaged one.
fn compile(context: &Context, source: &str, options: &str, name: &str, info: &DeviceInfo) -> Result<Program> {
    let build = |options: &str| Program::from_source(context, source, options, name, &info.name);
    let mut built = build(options);
    if built.is_err() && driver_cache::keeps_builds(info) && driver_cache::restore() {
        built = build(options);
    }
    let mut error = match built {
        Err(error @ Error::Build { .. }) if driver_cache::keeps_builds(info) => error,
        result => return result,
    };
    // No kernel uses this macro: it only changes the key under which the driver keeps the build.
    if let Ok(program) = build(&format!("{options} -D TORCH_OPENCL_REBUILD=1")) {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            let advice = driver_cache::advice();
            warn(&format!("{} It was compiled once more, and works. {advice}", error.message()));
        });
        return Ok(program);
    }
    if let Error::Build { log, .. } = &mut error {
        // If the compiler's log has an explanation, no advice is needed.
        if log.lines().filter(|line| !line.trim().is_empty()).count() <= 1 {
            log.push_str(&driver_cache::advice());
        }
    }
    Err(error)
}

/// Compiles a program for a bundle: the device's binary and the names of its kernels.
///
/// # Errors
/// [`Error::Build`] with the compiler's log; [`Error::Invalid`] in a process that must not compile.
pub fn compile_binary(device: &'static Device, name: &str, source: &str, options: &str) -> Result<(Vec<u8>, String)> {
    if let Some(path) = ahead_of_time::bundle_path() {
        return Err(Error::Invalid(format!(
            "OpenCL: with TORCH_OPENCL_KERNEL_BUNDLE={} nothing is compiled: unset it to build a bundle",
            path.display()
        )));
    }
    let program = compile(&device.state()?.context, source, options, name, &device.info)?;
    Ok((program.binary()?, program.kernel_names()?))
}

/// (loaded, compiled) programs of this process.
pub(super) fn counts() -> (u64, u64) {
    (LOADED.load(Ordering::Relaxed), COMPILED.load(Ordering::Relaxed))
}
