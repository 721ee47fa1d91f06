//! Program binaries on disk, and measured properties of a device.
//!
//! One file an entry, named by the hash of device, driver, source and options. It starts with the hash of that name and
//! its content, so a file that is truncated, corrupt, or stored under another name is ignored and written again. A
//! failure to write (full disk, read-only home) only costs the next process a compilation. Trust in files and the way
//! they are written: `store.rs`.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use sha2::{Digest, Sha256};

use super::{evict, store, warn};
use crate::cl::DeviceInfo;
use crate::error::{Error, Result};

/// Bumped when the layout of a file changes.
const FORMAT: &[u8] = b"torch-opencl program 2\n";
const HASH_BYTES: usize = 32;

/// `TORCH_OPENCL_CACHE_DIR`, or the user's cache folder; `None` if it is set to an empty string, there is no home, or
/// other users can write to the folder.
pub fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || folder_of(|name| env::var_os(name)).ok().flatten().filter(|folder| store::can_be_used(folder));
    FOLDER.get_or_init(find).as_deref()
}

/// Refuses a `TORCH_OPENCL_CACHE_DIR` that is a relative path.
pub fn check_cache_folder() -> Result<()> {
    folder_of(|name| env::var_os(name)).map(drop)
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<PathBuf>> {
    if let Some(path) = variable("TORCH_OPENCL_CACHE_DIR").map(PathBuf::from) {
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        // A relative path would name a different folder for each working directory: a new cache, or one that another
        // user has put there.
        if path.is_relative() {
            return Err(Error::Invalid(format!(
                "TORCH_OPENCL_CACHE_DIR={}: expected an absolute path, or nothing to keep no compiled kernels",
                path.display()
            )));
        }
        return Ok(Some(path));
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(base.map(|base| base.join("torch_opencl").join("programs")))
}

/// The disk entry of a program, or of a note.
#[derive(Debug)]
pub struct Entry {
    path: Option<PathBuf>,
}

impl Entry {
    /// The entry of a source built with options for a device.
    pub fn new(info: &DeviceInfo, source: &str, options: &str) -> Self {
        Self::in_folder(folder(), info, source, options, "clbin")
    }

    /// The entry for the result of a measurement of a source on a device.
    pub fn note(info: &DeviceInfo, source: &str, question: &str) -> Self {
        Self::in_folder(folder(), info, source, question, "note")
    }

    fn in_folder(folder: Option<&Path>, info: &DeviceInfo, source: &str, options: &str, suffix: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(FORMAT);
        for part in [&info.platform, &info.name, &info.driver_version, &info.version, options, source] {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { path: folder.map(|folder| folder.join(format!("{name}.{suffix}"))) }
    }

    /// The stored bytes, if they are present and intact.
    pub fn load(&self) -> Option<Vec<u8>> {
        let path = self.path.as_ref()?;
        let mut file = store::open(path).ok()??;
        let bytes = store::content(&mut file).ok()?;
        evict::touch(&file);
        let rest = bytes.strip_prefix(FORMAT)?;
        let (hash, binary) = rest.split_at_checked(HASH_BYTES)?;
        (self.hash_of(binary) == hash).then(|| binary.to_vec())
    }

    /// Returns true if it has a path, which means that the cache has a folder.
    pub fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Stores a binary, or a note.
    pub fn store(&self, binary: &[u8]) {
        let Some(path) = &self.path else { return };
        let content = [FORMAT, &self.hash_of(binary), binary].concat();
        let Some(folder) = path.parent() else { return };
        match store::replace(path, &content) {
            Ok(()) => evict::tidy(folder),
            Err(error) => warn_unwritable(folder, &error),
        }
    }

    fn hash_of(&self, binary: &[u8]) -> Vec<u8> {
        let name = self.path.as_ref().and_then(|path| path.file_name()).unwrap_or_default();
        Sha256::new().chain_update(name.as_bytes()).chain_update(binary).finalize().to_vec()
    }
}

/// Warns once that a folder chosen by the user cannot be written to. There is no warning for the default folder: some
/// home folders cannot be written to.
fn warn_unwritable(folder: &Path, error: &std::io::Error) {
    static TOLD: Once = Once::new();
    if env::var_os("TORCH_OPENCL_CACHE_DIR").is_some() {
        TOLD.call_once(|| {
            warn(&format!(
                "OpenCL: compiled kernels cannot be kept in {} ({error}), so every process compiles them. Set \
                 TORCH_OPENCL_CACHE_DIR to a folder that can be written to.",
                folder.display()
            ));
        });
    }
}

/// (folder, programs, bytes) of the disk cache.
pub fn contents() -> (Option<String>, u64, u64) {
    let Some(folder) = folder() else { return (None, 0, 0) };
    let programs = evict::programs(folder);
    let bytes = programs.iter().map(|program| program.bytes).sum();
    (Some(folder.display().to_string()), programs.len() as u64, bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cl::DeviceType;

    /// An entry in a separate folder, which does not exist yet.
    fn entry(test: &str, source: &str, options: &str) -> Entry {
        let folder = std::env::temp_dir().join(format!("torch_opencl_{}_{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let info = DeviceInfo::imagined(1, "device", "platform", DeviceType::Cpu);
        Entry::in_folder(Some(&folder.join("deep")), &info, source, options, "clbin")
    }

    #[test]
    fn a_stored_binary_comes_back() {
        let entry = entry("stored", "source", "-D A");
        assert_eq!(entry.load(), None);
        entry.store(b"binary");
        assert_eq!(entry.load().unwrap(), b"binary");
        entry.store(b"another");
        assert_eq!(entry.load().unwrap(), b"another");
        assert_eq!(fs::read_dir(entry.path.unwrap().parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_incomplete_file_is_not_loaded() {
        let entry = entry("damaged", "source", "-D A");
        entry.store(b"binary");
        let path = entry.path.as_ref().unwrap();
        let whole = fs::read(path).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        for content in [&[], FORMAT, whole.split_last().unwrap().1, b"something else", &changed] {
            fs::write(path, content).unwrap();
            assert_eq!(entry.load(), None);
        }
    }

    #[test]
    fn an_entry_under_another_s_name_is_not_loaded() {
        let (one, other) = (entry("renamed", "source", "-D A"), entry("renamed", "source", "-D B"));
        one.store(b"binary");
        fs::rename(one.path.as_ref().unwrap(), other.path.as_ref().unwrap()).unwrap();
        assert_eq!(other.load(), None);
    }

    #[test]
    fn source_and_options_are_distinguished() {
        let names = [("ab", "c"), ("a", "bc"), ("ab", ""), ("", "ab")].map(|(s, o)| entry("names", s, o).path);
        for (index, name) in names.iter().enumerate() {
            assert!(!names.iter().skip(index + 1).any(|other| other == name));
        }
    }

    #[test]
    fn the_folder_is_below_the_user_s_home_or_absent() {
        let found = |variables: &[(&str, &str)]| {
            folder_of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let folder = |variables| found(variables).unwrap();
        let below = |base: &str| Some(Path::new(base).join("torch_opencl/programs"));
        assert_eq!(folder(&[("HOME", "/home/me")]), below("/home/me/.cache"));
        assert_eq!(folder(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/cache")]), below("/cache"));
        assert_eq!(folder(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "")]), below("/home/me/.cache"));
        let named = folder(&[("HOME", "/home/me"), ("TORCH_OPENCL_CACHE_DIR", "/here")]);
        assert_eq!(named, Some(PathBuf::from("/here")));
        for relative in ["here", "./here", "~/here"] {
            let refused = found(&[("HOME", "/home/me"), ("TORCH_OPENCL_CACHE_DIR", relative)]);
            assert!(refused.is_err_and(|error| error.message().contains(&format!("{relative}: expected an absolute"))));
        }
        for none in [&[("HOME", "")], &[("HOME", "relative")], &[("TORCH_OPENCL_CACHE_DIR", "")]] {
            assert_eq!(folder(none), None);
        }
        assert_eq!(folder(&[]), None);
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let info = DeviceInfo::imagined(1, "device", "platform", DeviceType::Cpu);
        let entry = Entry::in_folder(None, &info, "source", "", "note");
        entry.store(b"binary");
        assert_eq!(entry.load(), None);
    }
}
