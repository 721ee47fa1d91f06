//! Files that this package keeps for later processes, protected from other users.
//!
//! Some drivers store programs as native code, so a user who can write such a file can run code as the user who loads
//! it. Folders are created with mode 0700 and files with 0600, whatever the umask. Existing ones are used only if they
//! belong to the effective user (root's files are not used by others, nor a user's by root) and no other user can write
//! to them. Others are skipped and left unchanged: the user may share the folder on purpose. One warning has the name
//! and a remedy.
//!
//! Checks are made on opened descriptors. Symbolic links are not followed, except for the folder itself: a cache may be
//! moved to a larger disk.

use std::collections::hash_map::RandomState;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::warn;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;
/// Number of temporary names that are tried; all are taken only if 64 random bits repeat.
const ATTEMPTS: usize = 4;

/// The content of a file; `None` if there is no file that can be trusted.
///
/// # Errors
/// The system's error for an existing file that cannot be read.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    open(path)?.map(|mut file| content(&mut file)).transpose()
}

/// All bytes of an open file.
pub(super) fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file for reading; `None` if there is no file that can be trusted.
///
/// # Errors
/// See [`read`].
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    if !path.parent().is_some_and(can_be_used) {
        return Ok(None);
    }
    // Non-blocking, as another user may have put a pipe there.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            distrust(path, "is a symbolic link", "Delete it.");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let data = file.metadata()?;
    if !data.is_file() {
        distrust(path, "is not a file", "Delete it.");
        return Ok(None);
    }
    Ok(is_own(path, &data, "Delete it.").then_some(file))
}

/// Writes a file, and creates its folder if needed. Other processes see the old content or the new, never a part.
///
/// # Errors
/// The system's error; [`ErrorKind::PermissionDenied`] for a folder that cannot be trusted.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::InvalidInput)?;
    make_folder(folder)?;
    let (temporary, mut file) = create_temporary(folder)?;
    let written = file.write_all(content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file in a folder, with an unpredictable name.
pub(super) fn create_temporary(folder: &Path) -> io::Result<(PathBuf, File)> {
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        let path = folder.join(format!(".{:016x}.tmp", RandomState::new().build_hasher().finish()));
        match create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A new file of the user; fails if the name is taken.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    // The umask may have removed the user's permissions.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Creates a folder of the user, with its parents, if it does not exist.
///
/// # Errors
/// See [`replace`].
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    if can_be_used(folder) {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} is open to other users", folder.display())))
}

/// Returns true if a folder belongs to the user, or does not exist and can be created.
pub(super) fn can_be_used(folder: &Path) -> bool {
    let Ok(data) = fs::metadata(folder) else { return true };
    let cure = if data.uid() == effective_user() {
        format!("Run `chmod go-w '{}'`, or set TORCH_OPENCL_CACHE_DIR to another folder.", folder.display())
    } else {
        "Set TORCH_OPENCL_CACHE_DIR to a folder that you own.".to_owned()
    };
    is_own(folder, &data, &cure)
}

fn is_own(path: &Path, data: &Metadata, cure: &str) -> bool {
    let user = effective_user();
    if data.uid() != user {
        distrust(path, &format!("belongs to user {}, and this process runs as user {user}", data.uid()), cure);
        return false;
    }
    if data.mode() & OTHERS_WRITE != 0 {
        distrust(path, &format!("can be changed by other users (mode {:o})", data.mode() & 0o7777), cure);
        return false;
    }
    true
}

/// Warns once for each folder about an untrusted file or folder, with the reason.
fn distrust(path: &Path, reason: &str, cure: &str) {
    static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        warn(&format!(
            "OpenCL: {} {reason}: it is not used, as what is kept there may be run as code. {cure}",
            path.display()
        ));
    }
}

fn effective_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A separate empty folder with mode 0700.
    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("torch_opencl_{}_store_{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        make_folder(&folder).unwrap();
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_written_file_is_read_and_only_the_user_has_access() {
        let path = folder("own").join("deep").join("er").join("file");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"two");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(path.parent().unwrap().parent().unwrap()), 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn files_that_others_can_write_are_skipped_until_they_are_replaced() {
        let path = folder("mode").join("file");
        for wide in [0o602, 0o620, 0o666] {
            replace(&path, b"content").unwrap();
            set_mode(&path, wide);
            assert_eq!(read(&path).unwrap(), None);
        }
        replace(&path, b"content").unwrap();
        set_mode(&path, 0o644);
        assert_eq!(read(&path).unwrap().unwrap(), b"content");
    }

    #[test]
    fn a_folder_that_others_can_write_is_neither_read_nor_written() {
        let folder = folder("folder_mode");
        let path = folder.join("file");
        replace(&path, b"content").unwrap();
        for wide in [0o720, 0o702, 0o1777] {
            set_mode(&folder, wide);
            assert_eq!(read(&path).unwrap(), None);
            assert_eq!(replace(&path, b"new").unwrap_err().kind(), ErrorKind::PermissionDenied);
            assert_eq!(mode(&folder), wide);
        }
        set_mode(&folder, 0o755);
        assert_eq!(read(&path).unwrap().unwrap(), b"content");
    }

    #[test]
    fn links_and_pipes_are_not_followed() {
        let folder = folder("links");
        let (target, link) = (folder.join("target"), folder.join("link"));
        replace(&target, b"content").unwrap();
        symlink(&target, &link).unwrap();
        assert_eq!(read(&link).unwrap(), None);
        assert!(create(&link).is_err());
        replace(&link, b"new").unwrap();
        assert_eq!(
            (read(&link).unwrap().unwrap(), read(&target).unwrap().unwrap()),
            (b"new".into(), b"content".into())
        );
        assert_eq!(read(&folder).unwrap(), None);
        let pipe = folder.join("pipe");
        if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
            assert_eq!(read(&pipe).unwrap(), None);
        }
    }

    #[test]
    fn a_folder_may_be_a_link_to_one_of_the_user_s() {
        let folder = folder("moved");
        make_folder(&folder.join("large")).unwrap();
        symlink(folder.join("large"), folder.join("cache")).unwrap();
        replace(&folder.join("cache").join("file"), b"content").unwrap();
        assert_eq!(read(&folder.join("large").join("file")).unwrap().unwrap(), b"content");
    }

    #[test]
    fn files_of_another_user_are_skipped() {
        let folder = folder("owner");
        let path = folder.join("file");
        replace(&path, b"content").unwrap();
        // Only root can change a file's owner.
        if chown(&path, Some(12345), None).is_ok() {
            assert_eq!(read(&path).unwrap(), None);
            replace(&path, b"new").unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), b"new");
            chown(&folder, Some(12345), None).unwrap();
            assert_eq!(read(&path).unwrap(), None);
            assert!(replace(&path, b"new").is_err());
        }
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let folder = folder("failed");
        make_folder(&folder.join("in the way").join("deep")).unwrap();
        assert!(replace(&folder.join("in the way"), b"content").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
