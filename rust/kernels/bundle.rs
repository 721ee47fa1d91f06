//! A bundle: a file of precompiled programs, for a device whose driver cannot compile, or must not.
//!
//! A bundle is a zip file. Its `manifest.json` has the device and the version of this package for which the bundle was
//! made, and the hash of every program. Each program is a file, named by the hash of source and options. `python -m
//! torch_opencl.bundle` makes bundles. A process that uses a bundle builds nothing from source.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::ahead_of_time::{bundle_path, VARIABLE};
use super::listing::{hexadecimal, Listing};
use super::recipe::Recipe;
use super::Family;
use crate::cl::{Context, Program, INVALID_KERNEL_NAME};
use crate::error::{Error, Result};
use crate::runtime::Device;

const FORMAT: &str = "torch-opencl kernel bundle 1";
const MANIFEST: &str = "manifest.json";
/// Limit of a manifest's size: one of 10,000 programs has 3 MB.
const MOST_MANIFEST_BYTES: u64 = 64 << 20;

static BUNDLE: OnceLock<Result<Option<Bundle>>> = OnceLock::new();

/// An open bundle.
#[derive(Debug)]
pub(super) struct Bundle {
    path: PathBuf,
    /// The [`identity`] of the device for which it was built.
    identity: Value,
    /// Hashes of the binaries, by key.
    programs: HashMap<String, String>,
    /// Opened, with its directory read.
    archive: Mutex<ZipArchive<File>>,
}

/// Opens the bundle in `TORCH_OPENCL_KERNEL_BUNDLE`, if that is set.
///
/// # Errors
/// [`Error::Invalid`] for a file that is not a bundle, is incomplete, or was made by another version of this package.
pub fn check_bundle() -> Result<()> {
    of_process().map(drop)
}

/// The bundle of this process.
///
/// # Errors
/// See [`check_bundle`].
pub(super) fn of_process() -> Result<Option<&'static Bundle>> {
    let opened = BUNDLE.get_or_init(|| bundle_path().map(Bundle::open).transpose());
    opened.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

/// The file of this process's bundle and the number of its programs, if there is a usable bundle.
pub fn bundle_contents() -> Option<(&'static Path, usize)> {
    of_process().ok().flatten().map(|bundle| (bundle.path.as_path(), bundle.programs.len()))
}

/// The part of a bundle's manifest that must match the device and the library: everything except the programs.
pub fn identity(device: &Device) -> Value {
    let info = &device.info;
    json!({
        "format": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "sources": sources(),
        "platform": info.platform,
        "device": info.name,
        "driver_version": info.driver_version,
        "opencl_version": info.version,
        "device_class": device.class.name(),
    })
}

/// Hash of all sources of this build: programs from other sources may have other arguments.
fn sources() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let all = Family::ALL.iter().map(|family| family.source(&super::Switch::default()));
        hexadecimal(&all.fold(Sha256::new(), |hash, source| hash.chain_update(source)).finalize())
    })
}

impl Bundle {
    fn open(path: &Path) -> Result<Self> {
        let refused = |reason: &str| {
            Error::Invalid(format!(
                "OpenCL: {VARIABLE}={}: {reason}. `python -m torch_opencl.bundle` makes bundles.",
                path.display()
            ))
        };
        let file = File::open(path).map_err(|error| refused(&format!("it cannot be read ({error})")))?;
        let no_bundle = || refused("it is not a kernel bundle, or is truncated or damaged");
        let mut archive = ZipArchive::new(file).map_err(|_| no_bundle())?;
        let text = content(&mut archive, MANIFEST, MOST_MANIFEST_BYTES).ok_or_else(no_bundle)?;
        let mut identity: Value = serde_json::from_slice(&text).map_err(|_| no_bundle())?;
        let programs = identity.as_object_mut().and_then(|fields| fields.remove("programs"));
        let of = |name: &str| identity.get(name).and_then(Value::as_str).unwrap_or_default();
        if of("format") != FORMAT {
            return Err(refused(&format!("its format is '{}', not '{FORMAT}'", of("format"))));
        }
        if of("version") != env!("CARGO_PKG_VERSION") || of("sources") != sources() {
            return Err(refused(&format!(
                "it was made by torch_opencl {} from other kernel sources than those of this torch_opencl {}; rebuild \
                 it with this one",
                of("version"),
                env!("CARGO_PKG_VERSION")
            )));
        }
        let hashes = programs.as_ref().and_then(Value::as_object).ok_or_else(no_bundle)?;
        let hash = |entry: &Value| entry.get("sha256")?.as_str().map(str::to_owned);
        let programs = hashes.iter().filter_map(|(key, entry)| Some((key.clone(), hash(entry)?))).collect();
        Ok(Self { path: path.to_owned(), identity, programs, archive: Mutex::new(archive) })
    }

    /// Loads a program.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bundle is for another device, or the program is absent or damaged.
    pub fn program(&self, recipe: &Recipe, context: &Context) -> Result<Program> {
        self.check_device(recipe.device)?;
        let path = self.path.display();
        if recipe.is_written_at_run_time() {
            return Err(Error::Unsupported(format!(
                "OpenCL: kernels of torch.opencl.compile_kernel and torch.compile have to be compiled, and with \
                 {VARIABLE}={path} nothing is."
            )));
        }
        let listing = Listing::of(recipe);
        let Some(hash) = self.programs.get(&listing.key) else {
            return Err(Error::Unsupported(format!(
                "OpenCL: the kernel bundle {path} has no program '{}' (kernels {}), and with {VARIABLE} nothing is \
                 compiled. On a machine with a compiler, list what this script uses, `python -m torch_opencl.bundle \
                 export FOLDER --run SCRIPT`, and build the bundle from that folder.",
                listing.name,
                listing.kernels().join(", ")
            )));
        };
        let damaged = |reason: &str| {
            Error::Invalid(format!(
                "OpenCL: the program '{}' of the kernel bundle {path} {reason}. Copy or build the bundle again.",
                listing.name
            ))
        };
        let mut archive = self.archive.lock().unwrap_or_else(PoisonError::into_inner);
        let binary = content(&mut archive, &file_name(&listing.key), u64::MAX)
            .filter(|binary| hexadecimal(&Sha256::digest(binary)) == *hash)
            .ok_or_else(|| damaged("is damaged"))?;
        drop(archive);
        Program::from_binary(context, &binary, &listing.options)
            .map_err(|error| damaged(&format!("is refused by the driver ({})", error.message())))
    }

    fn check_device(&self, device: &Device) -> Result<()> {
        let own = identity(device);
        let differs = |name: &&&str| self.identity.get(**name) != own.get(**name);
        let fields = ["platform", "device", "driver_version", "opencl_version", "device_class"];
        let Some(name) = fields.iter().find(differs) else { return Ok(()) };
        let of = |identity: &Value| identity.get(*name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        Err(Error::Invalid(format!(
            "OpenCL: the kernel bundle {} was built for the {} '{}', and '{}' has '{}'. Build one for it: `python -m \
             torch_opencl.bundle build`.",
            self.path.display(),
            name.replace('_', " "),
            of(&self.identity),
            device.info.name,
            of(&own)
        )))
    }
}

/// The error of a kernel that a program lacks: bundles have only the kernels that a recorded script used.
pub(super) fn without_kernel(kernel: &str, error: Error) -> Error {
    let is_missing = matches!(error, Error::OpenCl { code: INVALID_KERNEL_NAME, .. });
    let Some(bundle) = of_process().ok().flatten().filter(|_| is_missing) else { return error };
    Error::Unsupported(format!(
        "OpenCL: the kernel bundle {} has no kernel '{kernel}', and with {VARIABLE} nothing is compiled. On a machine \
         with a compiler, list what this script uses, `python -m torch_opencl.bundle export FOLDER --run SCRIPT`, and \
         build the bundle from that folder.",
        bundle.path.display()
    ))
}

/// The name of a program's file in a bundle.
fn file_name(key: &str) -> String {
    format!("programs/{key}.bin")
}

/// A file of an archive; `None` if it is absent or incomplete.
fn content(archive: &mut ZipArchive<File>, name: &str, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    // Reading to the end compares the archive's checksum.
    archive.by_name(name).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
