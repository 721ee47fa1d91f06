//! Programs in memory, one for each device, family, class and set of constants; and the choice of form for a launch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use foldhash::HashMap;

use super::build::is_stored;
use super::compile_thread::{CompileThread, Job};
use super::program::CachedProgram;
use super::recipe::Recipe;
use super::source::Switch;
use super::spec::{Constant, Tier};
use super::tiers::{Compiler, HotCounter, Specialisation, HOT};
use super::warning::warn;
use super::{disk, Class, Family, Spec};
use crate::error::{Error, Result};
use crate::runtime::{Device, DeviceClass};

/// Constants are looked up as a slice, so that a launch does not allocate for it.
type Programs = HashMap<(i32, Family, Class), HashMap<Vec<Constant>, Arc<Slot>>>;

static PROGRAMS: RwLock<Option<Programs>> = RwLock::new(None);
static COMPILE_THREAD: CompileThread = CompileThread::new();
static HITS: AtomicU64 = AtomicU64::new(0);
static SPECIALISED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// A launch waits for a program from disk until one has taken longer than this. They take some 25 ms with PoCL, which
/// reads the headers of OpenCL C each time, and less from a binary; where PoCL's own cache has been emptied, one takes
/// 300 ms to compile.
const QUICK: Duration = Duration::from_millis(150);
static LOADS_ARE_SLOW: AtomicBool = AtomicBool::new(false);

/// A program of kernels that are written at run time, behind what they call, the text of a family.
///
/// # Errors
/// [`Error::Build`] with the compiler's log.
pub fn generated_program(device: &'static Device, family: Family, kernels: &str) -> Result<CachedProgram> {
    let lanes = if device.class == DeviceClass::Cpu { 16 } else { 1 };
    let constants = if family == Family::Generated {
        // The last for the stores that the text itself chooses to stream.
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
    on_the_spot(move || CachedProgram::whole(&recipe))
}

/// Builds a program that the caller waits for.
///
/// # Errors
/// As the build does; [`Error::Interrupted`] where the handler of a signal raised meanwhile.
pub(super) fn on_the_spot<R: Send + 'static>(build: impl FnOnce() -> Result<R> + Send + 'static) -> Result<R> {
    COMPILE_THREAD.on_the_spot(build).and_then(|built| built)
}

/// The slot of one program, built or not.
#[derive(Debug, Default)]
struct Slot {
    program: OnceLock<Arc<CachedProgram>>,
    /// Two threads that want the same program must not both compile it.
    building: Mutex<()>,
    /// True where an earlier process has left it on disk.
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

    /// The program, where it takes no time to get; also asks for its build once it is worth it.
    fn get_soon(
        self: &Arc<Self>,
        elements: u64,
        compiler: Compiler,
        recipe: impl Fn() -> Recipe,
    ) -> Result<Option<Arc<CachedProgram>>> {
        let is_stored = self.counter.is_open() && *self.is_stored.get_or_init(|| is_stored(&recipe()));
        if is_stored && !LOADS_ARE_SLOW.load(Ordering::Relaxed) {
            let start = Instant::now();
            let (slot, recipe) = (Arc::clone(self), recipe());
            let loaded = COMPILE_THREAD.on_the_spot(move || slot.build_or_give_up(&recipe))?;
            if start.elapsed() > QUICK {
                LOADS_ARE_SLOW.store(true, Ordering::Relaxed);
            }
            if loaded.is_some() {
                return Ok(loaded);
            }
        }
        self.report_failure();
        // A program that an earlier process has built was worth it.
        let elements = if is_stored { HOT } else { elements };
        if self.counter.count(elements, compiler) {
            let job = Wanted { slot: Arc::clone(self), compiler, recipe: recipe() };
            if !COMPILE_THREAD.submit(Box::new(job)) {
                self.counter.put_off();
            }
        }
        Ok(None)
    }

    fn build_or_give_up(&self, recipe: &Recipe) -> Option<Arc<CachedProgram>> {
        match self.build(recipe) {
            Ok(program) => Some(program),
            Err(error) => {
                FAILED.fetch_add(1, Ordering::Relaxed);
                let _ = self.failure.set(error);
                self.counter.give_up();
                None
            }
        }
    }

    /// Says once, to the thread that would have used the program, that it could not be built.
    fn report_failure(&self) {
        let (true, Some(error)) = (self.counter.is_to_be_reported(), self.failure.get()) else { return };
        warn(&format!(
            "OpenCL: a specialised program could not be built; the generic one, which is slower, stays in use. {}",
            error.message()
        ));
    }
}

/// A specialised program that nobody waits for.
struct Wanted {
    slot: Arc<Slot>,
    compiler: Compiler,
    recipe: Recipe,
}

impl Job for Wanted {
    fn hotness(&self) -> u64 {
        self.slot.counter.elements()
    }

    fn quiet(&self) -> Duration {
        self.slot.counter.quiet(self.compiler)
    }

    fn build(self: Box<Self>) {
        self.slot.build_or_give_up(&self.recipe);
    }
}

/// The program of a family for a device and class: the specialised form where the launch is worth it and it has been
/// built, by this process or by an earlier one, else the generic one, which is built on first use.
///
/// `switch` gives the switch over ops for families that have one; it is only called for a build, so the
/// constants of `spec` must determine it.
///
/// # Errors
/// [`Error::NoFloat64`] when the class computes in f64 and the device does not; [`Error::Build`] with the
/// compiler's log.
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
                return on_the_spot(move || slot.build(&recipe));
            }
            let compiler = Compiler::of(&device.info);
            let recipe = || recipe(Tier::Specialised, constants);
            if let Some(program) = slot.get_soon(spec.elements(), compiler, recipe)? {
                return Ok(program);
            }
        }
    }
    let slot = slot(key, spec.shared());
    if let Some(program) = slot.built() {
        return Ok(program);
    }
    let recipe = recipe(Tier::Generic, spec.shared());
    on_the_spot(move || slot.build(&recipe))
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

/// Waits for specialised programs that are being built, but no longer than `limit`; returns how many are left.
pub fn wait_for_builds(limit: Duration) -> usize {
    COMPILE_THREAD.wait(limit)
}

/// Ends building in the background, before the process does.
pub fn stop_building() {
    COMPILE_THREAD.stop();
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
    /// Programs loaded from disk; with most drivers for GPUs a generic one has one kernel.
    pub loaded: u64,
    /// Programs compiled.
    pub compiled: u64,
    /// Programs of either that are specialised.
    pub specialised: u64,
    /// Specialised programs that wait to be built.
    pub pending: u64,
    /// Specialised programs that could not be built.
    pub failed: u64,
    /// When specialised programs are built.
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
