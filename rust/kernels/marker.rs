//! A file for each process that says whether it is at a step that a damaged driver cache could crash.
//!
//! A process that dies of that cannot say so, and every later one would die alike: they find its file instead. The file
//! is locked while its process lives, and holds one byte, set where a program has been loaded from the driver's cache
//! that has not yet been seen to run. It is written once for all programs that are loaded between two waits for the
//! device (2 us).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::store;

const EXTENSION: &str = "running";
const IN_DOUBT: &[u8] = b"1";
const SAFE: &[u8] = b"0";

/// The file of a process.
#[derive(Debug)]
pub(super) struct Marker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Opened at the first doubt; `None` where none can be made.
    file: Option<(PathBuf, File)>,
    was_opened: bool,
    /// Builds under way: a wait for the device proves nothing of them.
    loading: usize,
    in_doubt: bool,
}

impl State {
    fn doubt(&mut self, folder: impl FnOnce() -> Option<PathBuf>) {
        if !self.was_opened {
            self.was_opened = true;
            self.file = folder().and_then(|folder| open(&folder).ok());
        }
        self.write(true);
    }

    fn write(&mut self, in_doubt: bool) {
        if let (true, Some((_, file))) = (in_doubt != self.in_doubt, &self.file) {
            let _ = file.write_all_at(if in_doubt { IN_DOUBT } else { SAFE }, 0);
        }
        self.in_doubt = in_doubt;
    }
}

impl Marker {
    pub const fn new() -> Self {
        Self { state: Mutex::new(State { file: None, was_opened: false, loading: 0, in_doubt: false }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A program is about to be launched that may be damaged. `folder` is where the file is made, at the first time.
    pub fn doubt(&self, folder: impl FnOnce() -> Option<PathBuf>) {
        self.state().doubt(folder);
    }

    /// As [`Self::doubt`], for as long as `load` takes and until the next proof.
    pub fn while_loading<T>(&self, folder: impl FnOnce() -> Option<PathBuf>, load: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        state.loading += 1;
        state.doubt(folder);
        drop(state);
        let loaded = load();
        self.state().loading -= 1;
        loaded
    }

    /// Everything launched has ended.
    pub fn prove(&self) {
        let mut state = self.state();
        if state.loading == 0 {
            state.write(false);
        }
    }

    /// The process ends normally.
    pub fn remove(&self) {
        if let Some((path, _)) = self.state().file.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new file, locked by this process before others can see it.
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

/// Removes the files of processes that have ended; returns true if one of them has died in doubt. Where others are
/// still using the cache the files stay, and tell a later process: a driver ends where its folder goes while it
/// compiles into it.
pub(super) fn sweep(folder: &Path) -> bool {
    let (mut dead, mut has_died, mut is_shared) = (Vec::new(), false, false);
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let Ok(Some(mut file)) = store::open(&path) else { continue };
        if lock(&file) {
            has_died |= store::content(&mut file).is_ok_and(|content| content == IN_DOUBT);
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

/// Takes the lock of a file, until it is closed, unless another process has it.
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
    fn a_process_that_died_in_doubt_is_found_once() {
        let (marker, folder) = marker("died");
        marker.doubt(|| Some(folder.clone()));
        assert!(!sweep(&folder), "it lives");
        assert_eq!(files(&folder), 1);
        drop(marker);
        assert!(sweep(&folder));
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn a_cache_that_others_use_is_left_to_them() {
        let (dead, folder) = marker("shared");
        dead.doubt(|| Some(folder.clone()));
        drop(dead);
        let alive = Marker::new();
        alive.doubt(|| Some(folder.clone()));
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 2);
        alive.prove();
        drop(alive);
        assert!(sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn one_that_died_of_something_else_is_not_held_against_the_cache() {
        let (marker, folder) = marker("killed");
        marker.doubt(|| Some(folder.clone()));
        marker.prove();
        marker.doubt(|| None);
        marker.prove();
        drop(marker);
        assert_eq!(files(&folder), 1);
        assert!(!sweep(&folder));
        assert_eq!(files(&folder), 0);
    }

    #[test]
    fn a_wait_proves_nothing_of_what_is_still_being_loaded() {
        let (marker, folder) = marker("loading");
        marker.while_loading(|| Some(folder.clone()), || marker.prove());
        drop(marker);
        assert!(sweep(&folder));
    }

    #[test]
    fn what_was_loaded_is_in_doubt_until_it_has_run() {
        let (marker, folder) = marker("loaded");
        assert_eq!(marker.while_loading(|| Some(folder.clone()), || 7), 7);
        marker.prove();
        drop(marker);
        assert!(!sweep(&folder));
    }

    #[test]
    fn an_orderly_end_leaves_nothing() {
        let (marker, folder) = marker("orderly");
        marker.doubt(|| Some(folder.clone()));
        marker.remove();
        assert_eq!(files(&folder), 0);
    }
}
