//! Sources of programs, from which a bundle of binaries is made, on this machine or another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::ahead_of_time;
use super::recipe::Recipe;
use super::source::Switch;
use super::spec::{Spec, Tier};
use super::{Class, Family};
use crate::cl::DeviceType;
use crate::runtime::Device;

/// A generic program: its source, and its compiler options.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Hash of source and options.
    pub key: String,
    /// Family, class and constants.
    pub name: String,
    /// OpenCL C.
    pub source: String,
    /// The compiler's options.
    pub options: String,
    /// The kernels that it shall have; `None` for all that its source declares.
    pub used_kernels: Option<BTreeSet<&'static str>>,
}

/// Programs that this process has requested, by key, if they are recorded.
static RECORDED: Mutex<Option<BTreeMap<String, Listing>>> = Mutex::new(None);

impl Listing {
    /// The generic form of a family's program.
    pub fn new(device: &'static Device, family: Family, class: Class, spec: &Spec, switch: Switch) -> Self {
        let constants = spec.shared().to_vec();
        Self::of(&Recipe { device, family, class, tier: Tier::Generic, constants, switch, kernel: None })
    }

    pub(super) fn of(recipe: &Recipe) -> Self {
        let (source, options) = (recipe.source(), recipe.bundle_options());
        Self { key: key(&source, &options), name: recipe.name(), source, options, used_kernels: None }
    }

    /// Names of the kernels that it needs; its options may exclude some that its source declares.
    pub fn kernels(&self) -> Vec<&str> {
        match &self.used_kernels {
            Some(used) => used.iter().copied().collect(),
            None => kernels(&self.source),
        }
    }

    /// The options to compile it with: those that are part of its key, and those that leave out unused kernels.
    pub fn build_options(&self) -> String {
        // Directives around the kernels test these macros (rust/codegen/guards.rs).
        let guards = self.used_kernels.iter().flatten().map(|kernel| format!(" -D KERNEL_{kernel}=1"));
        let one = if self.used_kernels.is_some() { " -D ONE_KERNEL" } else { "" };
        format!("{}{one}{}", self.options, guards.collect::<String>())
    }
}

/// The key of a program in a bundle.
pub(super) fn key(source: &str, options: &str) -> String {
    hexadecimal(&Sha256::new().chain_update(options).chain_update([0]).chain_update(source).finalize())
}

/// A hash in hexadecimal digits.
pub(super) fn hexadecimal(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names after `__kernel void`, sorted.
fn kernels(source: &str) -> Vec<&str> {
    let word = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut names: Vec<&str> = source
        .split("__kernel ")
        .skip(1)
        .filter_map(|text| {
            let (attributes, rest) = text.split_once("void ")?;
            let rest = rest.trim_start();
            let is_declaration = !attributes.contains([';', '{', '}', '#']);
            rest.get(..word(rest)).filter(|name| is_declaration && !name.is_empty())
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Records the generic programs that are requested from now on.
pub fn record_programs() {
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    recorded.get_or_insert_with(BTreeMap::new);
    // While the lock is held: `record`, which another thread may now call, takes it and then finds the list.
    ahead_of_time::start_recording();
}

/// Returns true while programs are recorded.
pub fn is_recording() -> bool {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The programs of which kernels have been requested so far.
pub fn recorded_programs() -> Vec<Listing> {
    let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_used = |listing: &&Listing| listing.used_kernels.as_ref().is_none_or(|used| !used.is_empty());
    recorded.iter().flat_map(BTreeMap::values).filter(is_used).cloned().collect()
}

/// Records a program, if recording is on, and returns its key. Each kernel takes a part of an FPGA, so there the program gets
/// only those that [`record_kernel`] names.
pub(super) fn record(recipe: &Recipe) -> Option<String> {
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = recorded.as_mut().filter(|_| recipe.is_whole_and_generic())?;
    let is_fpga = recipe.device.info.device_type == DeviceType::Accelerator;
    let listing = Listing { used_kernels: is_fpga.then(BTreeSet::new), ..Listing::of(recipe) };
    let key = listing.key.clone();
    programs.entry(key.clone()).or_insert(listing);
    Some(key)
}

/// Records that a kernel of a recorded program is used.
pub(super) fn record_kernel(key: &str, kernel: &'static str) {
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let listing = recorded.as_mut().and_then(|programs| programs.get_mut(key));
    if let Some(used) = listing.and_then(|listing| listing.used_kernels.as_mut()) {
        used.insert(kernel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_their_declarations() {
        let source = "// a __kernel\n__kernel void b_2(int x) {}\n__kernel __attribute__((unused))\nvoid a(int y) {}";
        assert_eq!(kernels(source), ["a", "b_2"]);
    }

    #[test]
    fn source_and_options_are_distinguished() {
        assert_ne!(key("ab", "c"), key("b", "ca"));
        assert_eq!(key("a", "b"), key("a", "b"));
    }
}
