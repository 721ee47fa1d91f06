//! Programs in memory, one for each device, family, class and set of constants; selects the form for a launch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use foldhash::HashMap;

use super::build::is_stored;
use super::compile_thread::{Job, COMPILE_THREAD};
use super::program::CachedProgram;
use super::recipe::Recipe;
use super::source::Switch;
use super::spec::{Constant, Tier};
use super::tiers::{Compiler, HotCounter, Specialisation, HOT};
use super::warning::warn;
use super::{disk, Class, Family, Spec};
use crate::error::{Error, Result};
use crate::runtime::{Device, DeviceClass};

/// The inner key is looked up as a slice, so that a launch does not allocate.
type Programs = HashMap<(i32, Family, Class), HashMap<Vec<Constant>, Arc<Slot>>>;

static PROGRAMS: RwLock<Option<Programs>> = RwLock::new(None);
static HITS: AtomicU64 = AtomicU64::new(0);
static SPECIALISED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Until the load of a program from disk has taken longer than this, launches wait for such loads. They take some 25 ms
/// with PoCL, which reads the headers of OpenCL C each time, and less from a binary; if PoCL's own cache has been
/// emptied, compiling one takes 300 ms.
const QUICK: Duration = Duration::from_millis(150);
static LOADS_ARE_SLOW: AtomicBool = AtomicBool::new(false);

/// A program of kernels that are generated at run time, appended to the source of a family with the functions that they
/// call.
///
/// # Errors
/// [`Error::Build`] with the compiler's log.
pub fn generated_program(device: &'static Device, family: Family, kernels: &str) -> Result<CachedProgram> {
    let lanes = if device.class == DeviceClass::Cpu { 16 } else { 1 };
    let constants = if family == Family::Generated {
        // The macro is for non-temporal stores selected in the source.
        vec![("VEC", lanes), ("SPEC_NON_TEMPORAL", 1)]
    } else {
        Vec::new()
    };
    let recipe = Recipe {
        device,
        family,
        class: Class::Float,
        tier: Tier::Generic,
        constants,
        switch: Switch { functions: "", cases: kernels.to_owned() },
        kernel: None,
    };
    COMPILE_THREAD.build_blocking(move || CachedProgram::whole(&recipe))
}

/// The slot of one program, built or not.
#[derive(Debug, Default)]
struct Slot {
    program: OnceLock<Arc<CachedProgram>>,
    /// Prevents two threads that need the same program from both compiling it.
    building: Mutex<()>,
    /// True if an earlier process has stored it on disk.
    is_stored: OnceLock<bool>,
    counter: HotCounter,
    failure: OnceLock<Error>,
}

impl Slot {
    fn built(&self) -> Option<Arc<CachedProgram>> {
        let program = self.program.get().map(Arc::clone)?;
        HITS.fetch_add(1, Ordering::Relaxed);
        Some(program)
    }

    fn build(&self, recipe: &Recipe) -> Result<Arc<CachedProgram>> {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = self.program.get() {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(CachedProgram::new(recipe)?);
        if recipe.tier == Tier::Specialised {
            SPECIALISED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Arc::clone(self.program.get_or_init(|| program)))
    }

    /// The program, if it is available without waiting; also requests its build once that is worthwhile.
    fn try_get(
        self: &Arc<Self>,
        elements: u64,
        compiler: Compiler,
        recipe: impl Fn() -> Recipe,
    ) -> Result<Option<Arc<CachedProgram>>> {
        let is_stored = self.counter.accepting() && *self.is_stored.get_or_init(|| is_stored(&recipe()));
        if is_stored && !LOADS_ARE_SLOW.load(Ordering::Relaxed) {
            let start = Instant::now();
            let (slot, recipe) = (Arc::clone(self), recipe());
            let loaded = COMPILE_THREAD.build_blocking(move || Ok(slot.try_build(&recipe)))?;
            if start.elapsed() > QUICK {
                LOADS_ARE_SLOW.store(true, Ordering::Relaxed);
            }
            if loaded.is_some() {
                return Ok(loaded);
            }
        }
        self.report_failure();
        // If an earlier process has built a program, it is worthwhile.
        let elements = if is_stored { HOT } else { elements };
        if self.counter.count(elements, compiler) {
            let job = BackgroundBuild { slot: Arc::clone(self), compiler, recipe: recipe() };
            if !COMPILE_THREAD.submit(Box::new(job)) {
                self.counter.defer();
            }
        }
        Ok(None)
    }

    fn try_build(&self, recipe: &Recipe) -> Option<Arc<CachedProgram>> {
        match self.build(recipe) {
            Ok(program) => Some(program),
            Err(error) => {
                FAILED.fetch_add(1, Ordering::Relaxed);
                let _ = self.failure.set(error);
                self.counter.abandon();
                None
            }
        }
    }

    /// Warns once, in a thread that would have used the program, that it could not be built.
    fn report_failure(&self) {
        let (true, Some(error)) = (self.counter.is_to_be_reported(), self.failure.get()) else { return };
        warn(&format!(
            "OpenCL: a specialised program could not be built; the generic one, which is slower, stays in use. {}",
            error.message()
        ));
    }
}

/// A specialised program that is built in the background.
struct BackgroundBuild {
    slot: Arc<Slot>,
    compiler: Compiler,
    recipe: Recipe,
}

impl Job for BackgroundBuild {
    fn hotness(&self) -> u64 {
        self.slot.counter.elements()
    }

    fn quiet(&self) -> Duration {
        self.slot.counter.quiet(self.compiler)
    }

    fn build(self: Box<Self>) {
        self.slot.try_build(&self.recipe);
    }
}

/// The program of a family for a device and class: the specialised form if the launch is worth it and it has been
/// built, by this process or by an earlier one, otherwise the generic form, which is built on first use.
///
/// `switch` returns the switch over ops for families that have one; it is only called for a build, so the constants of
/// `spec` must determine it.
///
/// # Errors
/// [`Error::NoFloat64`] if the class computes in f64 and the device does not; [`Error::Build`] with the compiler's log.
pub fn program(
    device: &'static Device,
    family: Family,
    class: Class,
    spec: &Spec,
    switch: impl Fn(Tier) -> Switch,
) -> Result<Arc<CachedProgram>> {
    let recipe = |tier, constants: &[Constant]| Recipe {
        device,
        family,
        class,
        tier,
        constants: constants.to_vec(),
        switch: switch(tier),
        kernel: None,
    };
    let key = (device.index, family, class);
    if let Some(constants) = spec.specialised() {
        let mode = Specialisation::of_process();
        if mode != Specialisation::Never {
            let slot = slot(key, constants);
            if let Some(program) = slot.built() {
                return Ok(program);
            }
            if mode == Specialisation::Eager {
                let recipe = recipe(Tier::Specialised, constants);
                return COMPILE_THREAD.build_blocking(move || slot.build(&recipe));
            }
            let compiler = Compiler::of(&device.info);
            let recipe = || recipe(Tier::Specialised, constants);
            if let Some(program) = slot.try_get(spec.elements(), compiler, recipe)? {
                return Ok(program);
            }
        }
    }
    let slot = slot(key, spec.shared());
    if let Some(program) = slot.built() {
        return Ok(program);
    }
    let recipe = recipe(Tier::Generic, spec.shared());
    COMPILE_THREAD.build_blocking(move || slot.build(&recipe))
}

fn slot(key: (i32, Family, Class), constants: &[Constant]) -> Arc<Slot> {
    let programs = PROGRAMS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = programs.as_ref().and_then(|programs| programs.get(&key)?.get(constants)) {
        return Arc::clone(slot);
    }
    drop(programs);
    let mut programs = PROGRAMS.write().unwrap_or_else(PoisonError::into_inner);
    let slots = programs.get_or_insert_with(HashMap::default).entry(key).or_default();
    Arc::clone(slots.entry(constants.to_vec()).or_default())
}

/// Waits for specialised programs that are being built, but no longer than `limit`; returns the number that remain.
pub fn wait_for_builds(limit: Duration) -> usize {
    COMPILE_THREAD.wait(limit)
}

/// Stops building in the background, before the process ends.
pub fn stop_building() {
    COMPILE_THREAD.stop();
}

/// State of the caches: location, entries and bytes of the disk cache, and counters of this process.
#[derive(Clone, Debug)]
pub struct CacheInfo {
    /// Folder of the disk cache, `None` if it is off.
    pub folder: Option<String>,
    /// Number of its files.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Programs found in memory.
    pub hits: u64,
    /// Programs loaded from disk; with most drivers a generic program has one kernel.
    pub loaded: u64,
    /// Programs compiled.
    pub compiled: u64,
    /// Specialised programs among the loaded and compiled ones.
    pub specialised: u64,
    /// Specialised programs that are queued or being built.
    pub pending: u64,
    /// Specialised programs that could not be built.
    pub failed: u64,
    /// The mode in which specialised programs are built.
    pub specialisation: Specialisation,
}

/// Contents and counters of the program caches.
pub fn cache_info() -> CacheInfo {
    let (folder, entries, bytes) = disk::contents();
    let (loaded, compiled) = super::build::counts();
    CacheInfo {
        folder,
        entries,
        bytes,
        hits: HITS.load(Ordering::Relaxed),
        loaded,
        compiled,
        specialised: SPECIALISED.load(Ordering::Relaxed),
        pending: COMPILE_THREAD.pending() as u64,
        failed: FAILED.load(Ordering::Relaxed),
        specialisation: Specialisation::of_process(),
    }
}
