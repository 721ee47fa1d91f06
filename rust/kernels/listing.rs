//! Sources of programs, from which a bundle of binaries is made, on this machine or another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::ahead_of_time;
use super::recipe::Recipe;
use super::source::Switch;
use super::spec::{Spec, Tier};
use super::{Class, Family};
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
    /// The kernels that were requested; `None` for all that its source declares.
    pub used: Option<BTreeSet<&'static str>>,
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
        let (source, options) = (recipe.source(), recipe.options());
        Self { key: key(&source, &options), name: recipe.name(), source, options, used: None }
    }

    /// Names of the kernels that it needs; its options may exclude some that its source declares.
    pub fn kernels(&self) -> Vec<&str> {
        match &self.used {
            Some(used) => used.iter().copied().collect(),
            None => kernels(&self.source),
        }
    }

    /// The options to compile it with: those that are part of its key, and those that leave out unused kernels.
    pub fn build_options(&self) -> String {
        // Directives around the kernels test these macros (rust/codegen/guards.rs).
        let guards = self.used.iter().flatten().map(|kernel| format!(" -D KERNEL_{kernel}=1"));
        let one = if self.used.is_some() { " -D ONE_KERNEL" } else { "" };
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
    // While the lock is held: a thread that sees that recording is on takes it in `note`, and then finds the list.
    ahead_of_time::start_recording();
}

/// The programs of which kernels have been requested so far.
pub fn recorded_programs() -> Vec<Listing> {
    let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_used = |listing: &&Listing| listing.used.as_ref().is_none_or(|used| !used.is_empty());
    recorded.iter().flat_map(BTreeMap::values).filter(is_used).cloned().collect()
}

/// Records a program, without kernels, and returns its key, if recording is on.
pub(super) fn note(recipe: &Recipe) -> Option<String> {
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let programs = recorded.as_mut().filter(|_| recipe.is_whole_and_generic())?;
    let listing = Listing { used: Some(BTreeSet::new()), ..Listing::of(recipe) };
    let key = listing.key.clone();
    programs.entry(key.clone()).or_insert(listing);
    Some(key)
}

/// Records that a kernel of a recorded program is used.
pub(super) fn note_kernel(key: &str, kernel: &'static str) {
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(listing) = recorded.as_mut().and_then(|programs| programs.get_mut(key)) {
        listing.used.get_or_insert_default().insert(kernel);
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
