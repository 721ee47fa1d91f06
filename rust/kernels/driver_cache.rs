//! The driver's own cache: PoCL's, which does not check its files.
//!
//! PoCL 3.1 with a damaged cache: a truncated or changed `program.bc` ends the process in `clBuildProgram` (SIGABRT),
//! an empty one or one of zeros gives a program without kernels. A truncated `.so` of a kernel ends the process at the
//! first launch (SIGBUS), as does an empty one or one of zeros (SIGABRT). A full disk ends it while compiling
//! (`exit(1)` by LLVM), or fails the build with an empty log. `tests/python/runtime/test_damaged_caches.py` makes such
//! caches.
//!
//! So a program without kernels is built a second time under another key (`build.rs`), nothing is compiled onto a full
//! disk, and a process that ends before a loaded program has run leaves a [`Marker`]. The next process then checks the
//! lengths of the files, because most processes that end so have been killed, and sets the folder aside if a file is
//! damaged; or if two processes in a row have ended so, because changed bytes in a file of the right length are not
//! detected.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::marker::{self, Marker};
use super::{intact, progress, store, warn};
use crate::cl::{set_cache_check, CacheCheck, DeviceInfo};

static MARKER: Marker = Marker::new();

/// Free bytes with which compiling a program surely succeeds: the largest needs 1 MiB of bitcode, and temporary files.
const ROOM: u64 = 4 << 20;
/// Suffix of a folder that has been set aside; the seconds since 1970 follow.
const SET_ASIDE: &str = ".damaged-";

/// Returns true if the driver has its own cache, from which a build from source is as fast as loading a binary.
///
/// PoCL has one, and its binaries contain every kernel of a program, for groups of any size: more work than a program
/// that uses two of them should wait for. Training on the digits from empty caches took 44 s with binaries and 20 s
/// without, and 1.6 s longer from full ones.
pub(super) fn keeps_builds(info: &DeviceInfo) -> bool {
    info.platform == "Portable Computing Language" && is_on()
}

fn is_on() -> bool {
    env::var_os("POCL_KERNEL_CACHE").is_none_or(|value| value != "0")
}

/// Folder of PoCL's cache.
fn folder() -> Option<PathBuf> {
    folder_of(|name| env::var_os(name).filter(|value| !value.is_empty()))
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from);
    let of_caches = |base: PathBuf| base.join("pocl").join("kcache");
    path("POCL_CACHE_DIR")
        .or_else(|| path("XDG_CACHE_HOME").map(of_caches))
        .or_else(|| path("HOME").map(|home| of_caches(home.join(".cache"))))
        .filter(|path| path.is_absolute())
}

/// Folder for the markers of processes.
fn markers() -> Option<PathBuf> {
    Some(markers_of(&folder()?))
}

fn markers_of(folder: &Path) -> PathBuf {
    folder.join("torch_opencl")
}

/// Builds a program that may be in the driver's cache.
pub(super) fn while_loading<T>(load: impl FnOnce() -> T) -> T {
    MARKER.while_loading(markers, load)
}

/// Called when the process ends normally.
pub fn leave() {
    MARKER.remove();
}

/// Sets the driver's cache aside if a process has crashed on it, and sets up the marker of this process. Called before
/// programs are built.
pub fn check_driver_cache() {
    let waits_for_compiler = progress::wait_for_compiler;
    set_cache_check(CacheCheck {
        suspect: || MARKER.suspect(markers),
        verified: || MARKER.verify(),
        waits_for_compiler,
    });
    if let Some(folder) = folder().filter(|_| is_on()) {
        if let Some(text) = checked(&folder, marker::sweep(&markers_of(&folder))) {
            warn(&text);
        }
    }
}

/// Checks the cache if a process `has_died` while it loaded from it; returns a message if the cache is the cause.
fn checked(folder: &Path, has_died: bool) -> Option<String> {
    // Exists after such a crash if the files do not explain it.
    let unexplained = markers_of(folder).join("unexplained");
    if !has_died {
        let _ = fs::remove_file(unexplained);
        return None;
    }
    if let Some(file) = intact::damaged_file(folder) {
        let name = file.strip_prefix(folder).unwrap_or(&file).display();
        return Some(suspect(folder, "a process has ended", &format!("{name} is damaged")));
    }
    if unexplained.exists() {
        return Some(suspect(folder, "two processes have ended", "It may be damaged"));
    }
    let _ = store::replace(&unexplained, b"");
    None
}

/// Renames a folder, unless its disk is full; returns a message with the outcome.
fn suspect(folder: &Path, ended: &str, finding: &str) -> String {
    let ended = format!("OpenCL: {ended} while loading kernels that the driver had compiled and kept in");
    let shown = folder.display();
    if let Some(free) = free_bytes(folder).filter(|free| *free < ROOM) {
        return format!("{ended} {shown}. The disk is full ({free} bytes are free): make room, or set POCL_CACHE_DIR.");
    }
    match set_aside(folder) {
        Ok(aside) => format!(
            "{ended} {shown}. {finding}: the folder is now {}, and kernels are compiled again. If the process did not \
             crash, move it back, otherwise delete it.",
            aside.display()
        ),
        Err(error) => format!("{ended} {shown}. {finding}, and the folder cannot be renamed ({error}): delete it."),
    }
}

/// Seconds for which a folder that was set aside is kept at least: if several processes are killed one after the other,
/// the first folder has all programs from before, and the later ones have few.
const KEPT_SECONDS: u64 = 24 * 3600;

/// Renames a folder, and creates an empty one in its place. Deletes those set aside more than a day ago.
fn set_aside(folder: &Path) -> std::io::Result<PathBuf> {
    let mut prefix = folder.as_os_str().to_owned();
    prefix.push(SET_ASIDE);
    let earlier = folder.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let is_old = |path: &PathBuf| {
        let time = path.as_os_str().as_bytes().strip_prefix(prefix.as_bytes());
        let time = time.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        time.is_some_and(|time| time.saturating_add(KEPT_SECONDS) < now)
    };
    let old: Vec<PathBuf> = earlier.map(|entry| entry.path()).filter(is_old).collect();
    let mut aside = prefix.clone();
    aside.push(now.to_string());
    let aside = PathBuf::from(aside);
    // The driver has started, and needs its folder.
    fs::rename(folder, &aside).and_then(|()| store::make_folder(folder))?;
    for path in old {
        let _ = fs::remove_dir_all(path);
    }
    Ok(aside)
}

/// The reason why nothing can be compiled, if there is one: compilers end the process when the disk is full.
pub(super) fn obstacle() -> Option<String> {
    let folder = folder()?;
    let free = free_bytes(&folder).filter(|free| *free < ROOM)?;
    Some(format!(
        "OpenCL: there is no room to compile a kernel: {} KiB are free on the disk of the driver's cache, {}. Make \
         room there, or set POCL_CACHE_DIR to a folder on another disk.",
        free >> 10,
        folder.display()
    ))
}

/// Creates the folder again if it was deleted after the driver started: PoCL then fails every build. Returns true if it
/// did.
pub(super) fn restore() -> bool {
    folder().is_some_and(|folder| !folder.exists() && store::make_folder(&folder).is_ok())
}

/// The reason why PoCL offers no device, if it cannot write to its folder.
pub fn driver_cache_obstacle() -> Option<String> {
    let folder = folder()?;
    let error = write_error(&folder)?;
    Some(format!(
        "If PoCL is installed: it offers no device if it cannot write to {} ({error}). Set POCL_CACHE_DIR to a \
         writable folder.",
        folder.display()
    ))
}

/// The reason why a folder cannot be written to, or cannot be created. Nothing is created, as PoCL may not be
/// installed.
fn write_error(folder: &Path) -> Option<Error> {
    let nearest = folder.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    if !nearest.is_dir() {
        return Some(Error::new(ErrorKind::NotADirectory, format!("{} is not a folder", nearest.display())));
    }
    let name = CString::new(nearest.as_os_str().as_bytes()).ok()?;
    // SAFETY: the name ends with NUL.
    let status = unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) };
    (status != 0).then(Error::last_os_error)
}

/// Advice for a build that has failed without an explanation.
pub(super) fn advice() -> String {
    let Some(folder) = folder() else { return String::new() };
    let free = free_bytes(&folder).map_or(String::new(), |free| format!(" ({} MiB are free)", free >> 20));
    format!(
        "The driver keeps what it has compiled in {}, which may be damaged: delete it. Or is the disk full{free}?",
        folder.display()
    )
}

/// Bytes that this user may still write to the disk that holds a folder.
fn free_bytes(folder: &Path) -> Option<u64> {
    let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut data = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with NUL, and the data are a local.
    let status = unsafe { libc::statvfs(name.as_ptr(), data.as_mut_ptr()) };
    if status != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, and so has initialised the data.
    let data = unsafe { data.assume_init() };
    Some(data.f_bavail * data.f_frsize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_one_that_pocl_uses() {
        let folder = |variables: &[(&str, &str)]| {
            folder_of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let all = [("POCL_CACHE_DIR", "/p"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(folder(&all), Some("/p".into()));
        assert_eq!(folder(all.get(1..).unwrap()), Some("/x/pocl/kcache".into()));
        assert_eq!(folder(all.get(2..).unwrap()), Some("/h/.cache/pocl/kcache".into()));
        assert_eq!(folder(&[("POCL_CACHE_DIR", "p")]), None);
        assert_eq!(folder(&[]), None);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_its_reason_and_not_made() {
        let base = env::temp_dir().join(format!("torch_opencl_{}_write_error", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        store::replace(&base.join("file"), b"no folder").unwrap();
        assert!(write_error(&base.join("deep").join("kcache")).is_none());
        assert!(!base.join("deep").exists());
        let error = write_error(&base.join("file").join("kcache")).unwrap();
        assert!(error.to_string().contains("file is not a folder"), "{error}");
        let _ = fs::remove_dir_all(&base);
    }

    #[test]
    fn a_folder_is_set_aside_with_its_files_and_old_ones_are_deleted() {
        let base = env::temp_dir().join(format!("torch_opencl_{}_aside", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let folder = base.join("kcache");
        store::replace(&folder.join("program"), b"damaged").unwrap();
        let minute_ago = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 60;
        let recent = format!("kcache.damaged-{minute_ago}");
        for other in ["kcache.damaged-17", &recent, "kcache.damaged-by-me", "other.damaged-17"] {
            store::make_folder(&base.join(other)).unwrap();
        }
        let text = suspect(&folder, "a process has ended", "It may be damaged");
        assert!(text.contains(&folder.display().to_string()) && text.contains("is now"), "{text}");
        let mut names: Vec<String> =
            fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 5, "{names:?}");
        assert!(!names.contains(&"kcache.damaged-17".to_owned()) && names.contains(&recent));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let aside = names.iter().find(|name| name.starts_with("kcache.damaged-1") && **name != recent).unwrap();
        assert_eq!(fs::read(base.join(aside).join("program")).unwrap(), b"damaged");
    }

    #[test]
    fn intact_files_are_suspected_after_two_crashes_in_a_row() {
        let base = env::temp_dir().join(format!("torch_opencl_{}_checked", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let folder = base.join("kcache");
        store::replace(&folder.join("program.bc"), b"BC\xc0\xde").unwrap();
        for has_died in [true, false, true] {
            assert_eq!(checked(&folder, has_died), None);
        }
        let text = checked(&folder, true).unwrap();
        assert!(text.contains("two processes") && text.contains("is now"), "{text}");
        assert_eq!(checked(&folder, true), None, "the new folder has no history");
        store::replace(&folder.join("program.bc"), b"BC").unwrap();
        let text = checked(&folder, true).unwrap();
        assert!(text.contains("program.bc is damaged"), "{text}");
        let _ = fs::remove_dir_all(&base);
    }

    #[test]
    fn free_bytes_are_known_for_existing_folders() {
        assert!(free_bytes(&env::temp_dir()).is_some());
        assert_eq!(free_bytes(Path::new("/no/such/folder")), None);
    }
}
