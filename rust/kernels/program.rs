//! A program, and the kernels that launches have requested from it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use foldhash::HashMap;

use super::build::build;
use super::compile_thread::COMPILE_THREAD;
use super::dtype::RARE_DTYPES;
use super::entry::Arguments;
use super::recipe::Recipe;
use super::spec::Tier;
use super::{bundle, listing};
use crate::cl::{Kernel, Program};
use crate::error::{Error, Result};

/// A program and the kernels created from it so far.
#[derive(Debug)]
pub struct CachedProgram {
    built: Built,
    tier: Tier,
    converts_rare: bool,
    kernels: Arc<Kernels>,
    /// Its key in the list of recorded programs, if programs are recorded.
    recorded_key: Option<String>,
}

/// Kernels by their names.
#[derive(Debug, Default)]
struct Kernels(RwLock<HashMap<&'static str, Arc<Kernel>>>);

#[derive(Debug)]
enum Built {
    /// One program has all kernels.
    Whole(Program),
    /// Each kernel is a separate program, which its first launch builds.
    ByKernel {
        recipe: Recipe,
        /// Prevents two threads that need the same kernel from both compiling it.
        building: Arc<Mutex<()>>,
    },
}

impl CachedProgram {
    /// Builds a program, or defers that to the first launches of its kernels.
    pub(super) fn new(recipe: &Recipe) -> Result<Self> {
        if !recipe.is_by_kernel() {
            return Self::whole(recipe);
        }
        recipe.class.check(&recipe.device.info)?;
        let built = Built::ByKernel { recipe: recipe.clone(), building: Arc::default() };
        Ok(Self::of(recipe, built, None))
    }

    /// Builds a program of all its kernels.
    pub(super) fn whole(recipe: &Recipe) -> Result<Self> {
        let (recorded_key, built) = (listing::record(recipe), Built::Whole(build(recipe)?));
        Ok(Self::of(recipe, built, recorded_key))
    }

    fn of(recipe: &Recipe, built: Built, recorded_key: Option<String>) -> Self {
        let converts_rare = recipe.constants.iter().any(|(name, _)| *name == RARE_DTYPES);
        Self { built, tier: recipe.tier, converts_rare, kernels: Arc::default(), recorded_key }
    }

    /// Refuses arguments with a rare dtype that the program does not convert: a kernel would read zeros.
    pub fn check(&self, kernel: &str, args: &impl Arguments) -> Result<()> {
        match args.rare_dtype() {
            Some(dtype) if !self.converts_rare => Err(Error::Invalid(format!(
                "OpenCL: the program of the kernel {kernel} does not convert {}: its launcher needs `with_rare`",
                dtype.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns true if it was built with the constants of the specialised form.
    pub fn is_specialised(&self) -> bool {
        self.tier == Tier::Specialised
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &'static str) -> Result<Arc<Kernel>> {
        if let Some(kernel) = self.kernels.get(name) {
            return Ok(kernel);
        }
        match &self.built {
            Built::Whole(program) => {
                if let Some(key) = &self.recorded_key {
                    listing::record_kernel(key, name);
                }
                Ok(self.kernels.add(name, program.kernel(name).map_err(|error| bundle::without_kernel(name, error))?))
            }
            Built::ByKernel { recipe, building } => {
                let (recipe, building) = (recipe.of_kernel(name), Arc::clone(building));
                let kernels = Arc::clone(&self.kernels);
                COMPILE_THREAD.build_blocking(move || {
                    let _building = building.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(kernel) = kernels.get(name) {
                        return Ok(kernel);
                    }
                    Ok(kernels.add(name, build(&recipe)?.kernel(name)?))
                })
            }
        }
    }

    /// A kernel generated at run time, by its name.
    pub fn generated_kernel(&self, name: &str) -> Result<Arc<Kernel>> {
        match &self.built {
            Built::Whole(program) => Ok(Arc::new(program.kernel(name)?)),
            Built::ByKernel { recipe, .. } => {
                Err(Error::Invalid(format!("OpenCL: '{name}' is not a kernel of the program {}", recipe.name())))
            }
        }
    }
}

impl Kernels {
    fn get(&self, name: &str) -> Option<Arc<Kernel>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    fn add(&self, name: &'static str, kernel: Kernel) -> Arc<Kernel> {
        let mut kernels = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kernels.entry(name).or_insert_with(|| Arc::new(kernel)))
    }
}
