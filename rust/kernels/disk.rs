//! Program binaries on disk, and notes of what was measured about a device.
//!
//! One file an entry, named by the hash of device, driver, source and options. A file is written under a
//! temporary name and renamed, so concurrent processes see a whole file or none; it starts with the hash of its
//! content, so a torn or corrupt one is ignored and written again. Failures to write (full disk, read-only home)
//! cost the next process a compilation and nothing else.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::evict;
use crate::cl::DeviceInfo;

/// Bumped when the layout of a file changes.
const FORMAT: &[u8] = b"torch-opencl program 1\n";
const HASH_BYTES: usize = 32;

/// `TORCH_OPENCL_CACHE_DIR`, or the user's cache folder; `None` when set to an empty string or there is no home.
pub fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| folder_of(|name| env::var_os(name))).as_deref()
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("TORCH_OPENCL_CACHE_DIR") {
        return (!path.is_empty()).then(|| PathBuf::from(path));
    }
    // A relative path would make a cache in whatever folder the process was started from.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("torch_opencl").join("programs"))
}

/// The place of one program, or of one note, on disk.
#[derive(Debug)]
pub struct Entry {
    path: Option<PathBuf>,
}

impl Entry {
    /// The entry of a source built with options for a device.
    pub fn new(info: &DeviceInfo, source: &str, options: &str) -> Self {
        Self::in_folder(folder(), info, source, options, "clbin")
    }

    /// The answer to a question about how a source does on a device.
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

    /// The stored bytes, if they are there and whole.
    pub fn load(&self) -> Option<Vec<u8>> {
        let path = self.path.as_ref()?;
        let bytes = fs::read(path).ok()?;
        evict::touch(path);
        let rest = bytes.strip_prefix(FORMAT)?;
        let (hash, binary) = rest.split_at_checked(HASH_BYTES)?;
        (Sha256::digest(binary).as_slice() == hash).then(|| binary.to_vec())
    }

    /// Stores a binary, or an answer.
    pub fn store(&self, binary: &[u8]) {
        let Some(path) = &self.path else { return };
        let Some(folder) = path.parent() else { return };
        let temporary = folder.join(format!(".{}.{:?}.tmp", std::process::id(), std::thread::current().id()));
        let content = [FORMAT, Sha256::digest(binary).as_slice(), binary].concat();
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&temporary, content))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            return;
        }
        evict::tidy(folder);
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
    use super::*;
    use crate::cl::DeviceType;

    /// An entry in a folder of its own, which does not exist yet.
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
    fn what_is_not_whole_is_not_loaded() {
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
    fn source_and_options_are_told_apart() {
        let names = [("ab", "c"), ("a", "bc"), ("ab", ""), ("", "ab")].map(|(s, o)| entry("names", s, o).path);
        for (index, name) in names.iter().enumerate() {
            assert!(!names.iter().skip(index + 1).any(|other| other == name));
        }
    }

    #[test]
    fn the_folder_is_below_the_user_s_own_or_none() {
        let folder = |variables: &[(&str, &str)]| {
            folder_of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let below = |base: &str| Some(Path::new(base).join("torch_opencl/programs"));
        assert_eq!(folder(&[("HOME", "/home/me")]), below("/home/me/.cache"));
        assert_eq!(folder(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/cache")]), below("/cache"));
        assert_eq!(folder(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "")]), below("/home/me/.cache"));
        assert_eq!(folder(&[("HOME", "/home/me"), ("TORCH_OPENCL_CACHE_DIR", "here")]), Some(PathBuf::from("here")));
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
