//! Keeps the folder of program binaries below a size limit, by dropping the least recently used ones.
//!
//! The modification time of an entry is the time of its last use: loading sets it. Several processes may do this at
//! once: a file that another process has removed is skipped, and a file that is removed during a read can still be read
//! to its end.

use std::env::{self, VarError};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// Bytes that a folder may hold if `TORCH_OPENCL_CACHE_SIZE` is not set: about 3000 programs with PoCL 3.1, three times
/// as many as all tests of this package build.
const DEFAULT_LIMIT: u64 = 512 << 20;
/// A temporary file of this age belongs to a process that ended before it could rename it.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A program in the folder.
#[derive(Debug)]
pub(super) struct Stored {
    path: PathBuf,
    used: SystemTime,
    /// Its size.
    pub bytes: u64,
}

/// Refuses a `TORCH_OPENCL_CACHE_SIZE` that is not a number.
pub fn check_cache_size() -> Result<()> {
    limit().map(drop)
}

/// Bytes that the folder may hold: `TORCH_OPENCL_CACHE_SIZE`, which is in MiB.
fn limit() -> Result<u64> {
    let wrong = |text: &str| {
        Error::Invalid(format!("TORCH_OPENCL_CACHE_SIZE={text}: expected how many MiB of compiled kernels to keep"))
    };
    match env::var("TORCH_OPENCL_CACHE_SIZE") {
        Ok(text) => text.trim().parse::<u32>().map(|mebibytes| u64::from(mebibytes) << 20).map_err(|_| wrong(&text)),
        Err(VarError::NotPresent) => Ok(DEFAULT_LIMIT),
        Err(VarError::NotUnicode(raw)) => Err(wrong(&raw.to_string_lossy())),
    }
}

/// All programs of a folder.
pub(super) fn programs(folder: &Path) -> Vec<Stored> {
    files(folder, "clbin").collect()
}

fn files<'a>(folder: &Path, extension: &'a str) -> impl Iterator<Item = Stored> + 'a {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(move |entry| {
        let path = entry.path();
        if path.extension() != Some(OsStr::new(extension)) {
            return None;
        }
        let data = entry.metadata().ok()?;
        Some(Stored { path, used: data.modified().ok()?, bytes: data.len() })
    })
}

/// Records that a program has been used. If that fails, the program is dropped earlier.
pub(super) fn touch(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}

/// Removes programs if the folder exceeds its limit.
pub(super) fn tidy(folder: &Path) {
    tidy_to(folder, limit().unwrap_or(DEFAULT_LIMIT));
}

fn tidy_to(folder: &Path, limit: u64) {
    let mut programs = programs(folder);
    let mut total: u64 = programs.iter().map(|program| program.bytes).sum();
    if total <= limit {
        return;
    }
    let now = SystemTime::now();
    for file in files(folder, "tmp").filter(|file| now.duration_since(file.used).is_ok_and(|age| age > ABANDONED)) {
        let _ = fs::remove_file(&file.path);
    }
    programs.sort_by_key(|program| program.used);
    // Down to three quarters: otherwise a full folder would be sorted for every new program.
    for program in programs {
        if total <= limit / 4 * 3 {
            break;
        }
        let _ = fs::remove_file(&program.path);
        total -= program.bytes;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A separate folder with files of 100 bytes, in the order of their last use.
    fn folder(test: &str, names: &[&str]) -> PathBuf {
        let folder = env::temp_dir().join(format!("torch_opencl_{}_{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let oldest = SystemTime::now() - Duration::from_secs(7200);
        for (name, age) in names.iter().zip(0..) {
            fs::write(folder.join(name), [0; 100]).unwrap();
            let file = File::options().append(true).open(folder.join(name)).unwrap();
            file.set_modified(oldest + Duration::from_secs(age)).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn below_the_limit_nothing_is_removed() {
        let folder = folder("below", &["a.clbin", "b.clbin", ".1.tmp"]);
        tidy_to(&folder, 200);
        assert_eq!(names(&folder), [".1.tmp", "a.clbin", "b.clbin"]);
    }

    #[test]
    fn the_least_recently_used_are_removed_first() {
        let folder = folder("oldest", &["a.clbin", "b.clbin", "c.clbin", "d.clbin", "e.clbin"]);
        touch(&File::open(folder.join("a.clbin")).unwrap());
        tidy_to(&folder, 400);
        assert_eq!(names(&folder), ["a.clbin", "d.clbin", "e.clbin"]);
    }

    #[test]
    fn abandoned_files_are_removed_and_unrelated_files_stay() {
        let folder = folder("others", &["notes.txt", ".1.tmp", "a.clbin"]);
        fs::write(folder.join(".2.tmp"), "being written").unwrap();
        tidy_to(&folder, 0);
        assert_eq!(names(&folder), [".2.tmp", "notes.txt"]);
    }

    #[test]
    fn processes_may_tidy_at_once() {
        let all: Vec<String> = (0..64).map(|number| format!("{number:02}.clbin")).collect();
        let folder = folder("at_once", &all.iter().map(String::as_str).collect::<Vec<_>>());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| tidy_to(&folder, 3200));
            }
        });
        assert!(names(&folder).len() <= 32 && names(&folder).contains(&"63.clbin".to_owned()));
    }
}
