//! A file for each process, with a flag whether it is in a step in which a damaged driver cache could crash it.
//!
//! A process that crashes so cannot report it, and every later process would crash in the same way: instead they find
//! its file. The file is locked while its process lives, and holds one byte, which is set while a program from the
//! driver's cache has been loaded and is not known to have run. It is written once for all programs that are loaded
//! between two waits for the device (2 us).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::store;

const EXTENSION: &str = "running";
const SUSPECT: &[u8] = b"1";
const SAFE: &[u8] = b"0";

/// The file of a process.
#[derive(Debug)]
pub(super) struct Marker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Opened when the flag is first set; `None` if it cannot be created.
    file: Option<(PathBuf, File)>,
    was_opened: bool,
    /// Running builds: a wait for the device does not verify them.
    loading: usize,
    is_suspect: bool,
}

impl State {
    fn suspect(&mut self, folder: impl FnOnce() -> Option<PathBuf>) {
        if !self.was_opened {
            self.was_opened = true;
            self.file = folder().and_then(|folder| open(&folder).ok());
        }
        self.write(true);
    }

    fn write(&mut self, is_suspect: bool) {
        if let (true, Some((_, file))) = (is_suspect != self.is_suspect, &self.file) {
            let _ = file.write_all_at(if is_suspect { SUSPECT } else { SAFE }, 0);
        }
        self.is_suspect = is_suspect;
    }
}

impl Marker {
    pub const fn new() -> Self {
        Self { state: Mutex::new(State { file: None, was_opened: false, loading: 0, is_suspect: false }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the flag before the launch of a program that may be damaged. `folder` returns the file's folder, when it is
    /// first needed.
    pub fn suspect(&self, folder: impl FnOnce() -> Option<PathBuf>) {
        self.state().suspect(folder);
    }

    /// Sets the flag as [`Self::suspect`] does, from the start of `load` until the next [`Self::verify`] after its end.
    pub fn while_loading<T>(&self, folder: impl FnOnce() -> Option<PathBuf>, load: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        state.loading += 1;
        state.suspect(folder);
        drop(state);
        let loaded = load();
        self.state().loading -= 1;
        loaded
    }

    /// Clears the flag: everything launched has completed.
    pub fn verify(&self) {
        let mut state = self.state();
        if state.loading == 0 {
            state.write(false);
        }
    }

    /// Removes the file: the process ends normally.
    pub fn remove(&self) {
        if let Some((path, _)) = self.state().file.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new file, locked by this process before other processes can see it.
fn open(folder: &Path) -> io::Result<(PathBuf, File)> {
    store::make_folder(folder)?;
    let (temporary, file) = store::create_temporary(folder)?;
    let path = temporary.with_extension(EXTENSION);
    let made = file.write_all_at(SAFE, 0).and_then(|()| match lock(&file) {
        true => fs::rename(&temporary, &path),
        false => Err(io::ErrorKind::WouldBlock.into()),
    });
    if made.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    made.map(|()| (path, file))
}

/// Removes the files of processes that have ended; returns true if one of them crashed with the flag set. If other
/// processes still use the cache, the files stay for a later process: a driver crashes if its folder is removed while
/// it compiles into it.
pub(super) fn sweep(folder: &Path) -> bool {
    let (mut dead, mut has_died, mut is_shared) = (Vec::new(), false, false);
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let Ok(Some(mut file)) = store::open(&path) else { continue };
        if lock(&file) {
            has_died |= store::content(&mut file).is_ok_and(|content| content == SUSPECT);
            dead.push(path);
        } else {
            is_shared = true;
        }
    }
    if has_died && is_shared {
        return false;
    }
    for path in dead {
        let _ = fs::remove_file(path);
    }
    has_died
}

/// Takes the lock of a file, until it is closed, unless another process holds it.
fn lock(file: &File) -> bool {
    // SAFETY: the descriptor is open as long as `file` is borrowed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A marker, and the folder of its file.
    fn marker(test: &str) -> (Marker, PathBuf) {
        let folder = std::env::temp_dir().join(format!("torch_opencl_{}_marker_{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        (Marker::new(), folder)
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).map_or(0, Iterator::count)
    }

    #[test]
    fn a_process_that_died_as_suspect_is_found_once() {
        let (marker, folder) = marker("died");
        marker.suspect(|| Some(folder.clone()));
        assert!(!sweep(&folder), "it lives");
        assert_eq!(files(&folder), 1);
        drop(marker);
        assert!(sweep(&folder));
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn a_cache_that_other_processes_use_is_kept() {
        let (dead, folder) = marker("shared");
        dead.suspect(|| Some(folder.clone()));
        drop(dead);
        let alive = Marker::new();
        alive.suspect(|| Some(folder.clone()));
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 2);
        alive.verify();
        drop(alive);
        assert!(sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn another_cause_of_death_is_not_attributed_to_the_cache() {
        let (marker, folder) = marker("killed");
        marker.suspect(|| Some(folder.clone()));
        marker.verify();
        marker.suspect(|| None);
        marker.verify();
        drop(marker);
        assert_eq!(files(&folder), 1);
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn a_wait_does_not_verify_a_program_that_is_still_being_loaded() {
        let (marker, folder) = marker("loading");
        marker.while_loading(|| Some(folder.clone()), || marker.verify());
        drop(marker);
        assert!(sweep(&folder));
    }

    #[test]
    fn a_loaded_program_is_suspect_until_it_has_run() {
        let (marker, folder) = marker("loaded");
        assert_eq!(marker.while_loading(|| Some(folder.clone()), || 7), 7);
        marker.verify();
        drop(marker);
        assert!(!sweep(&folder));
    }

    #[test]
    fn a_normal_exit_leaves_no_file() {
        let (marker, folder) = marker("orderly");
        marker.suspect(|| Some(folder.clone()));
        marker.remove();
        assert_eq!(files(&folder), 0);
    }
}
