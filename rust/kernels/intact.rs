//! Checks that files of PoCL's cache have the length recorded in them: a truncated file, or one of zeros, ends the
//! process that loads it.
//!
//! A program is LLVM bitcode (<https://llvm.org/docs/BitCodeFormat.html>): blocks from the first byte to the last, each
//! with its length. A kernel is a shared library, and an ELF file ends with a table whose offset is in its header.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BITCODE: [u8; 4] = *b"BC\xc0\xde";
const ELF: [u8; 4] = *b"\x7fELF";

/// A file below a folder that is shorter, or longer, than recorded in it; `None` if there is none.
pub(super) fn damaged_file(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.find_map(|entry| {
        let path = entry.path();
        // Links are not followed.
        match entry.file_type().ok()? {
            kind if kind.is_dir() => damaged_file(&path),
            kind => (kind.is_file() && !is_whole(&path)).then_some(path),
        }
    })
}

/// Returns false for a file that its driver cannot load; true for files of other formats.
fn is_whole(path: &Path) -> bool {
    let check = match path.extension().and_then(|extension| extension.to_str()) {
        Some("bc") => is_whole_bitcode,
        Some("so") => is_whole_library,
        _ => return true,
    };
    // A file that cannot be read counts as intact: it may just have been removed.
    File::open(path).and_then(|file| check(&file)).unwrap_or_else(|error| error.kind() != ErrorKind::UnexpectedEof)
}

fn is_whole_bitcode(file: &File) -> io::Result<bool> {
    const ENTER_BLOCK: u32 = 1;
    let end = file.metadata()?.len();
    if bytes::<4>(file, 0)? != BITCODE {
        return Ok(false);
    }
    let mut at = BITCODE.len() as u64;
    while at < end {
        // The first word has the block's number and the width of its abbreviations, the second its length in words.
        let (head, words) = (u32::from_le_bytes(bytes(file, at)?), u32::from_le_bytes(bytes(file, at + 4)?));
        if head & 3 != ENTER_BLOCK {
            return Ok(false);
        }
        at += 8 + 4 * u64::from(words);
    }
    Ok(at == end)
}

fn is_whole_library(file: &File) -> io::Result<bool> {
    const CLASS: u64 = 4;
    const CLASS_64: u8 = 2;
    const SECTIONS: u64 = 40;
    const SECTION_SIZE: u64 = 58;
    const SECTION_COUNT: u64 = 60;
    if bytes::<4>(file, 0)? != ELF {
        return Ok(false);
    }
    if bytes::<1>(file, CLASS)? != [CLASS_64] {
        // A 32-bit file has a different header.
        return Ok(true);
    }
    let start = u64::from_ne_bytes(bytes(file, SECTIONS)?);
    let size = u16::from_ne_bytes(bytes(file, SECTION_SIZE)?);
    let count = u16::from_ne_bytes(bytes(file, SECTION_COUNT)?);
    let end = start.saturating_add(u64::from(size) * u64::from(count));
    Ok(start > 0 && end <= file.metadata()?.len())
}

fn bytes<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Writes a file below a separate folder, and returns true if it is found damaged.
    fn is_damaged(name: &str, content: &[u8]) -> bool {
        let folder = std::env::temp_dir().join(format!("torch_opencl_{}_intact_{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let path = folder.join("AB").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let found = damaged_file(&folder);
        let _ = fs::remove_dir_all(&folder);
        assert!(found.is_none() || found == Some(path));
        found.is_some()
    }

    #[test]
    fn bitcode_ends_where_its_blocks_do() {
        let mut content = BITCODE.to_vec();
        for words in [2_u32, 1] {
            content.extend(0x0c21_u32.to_le_bytes());
            content.extend(words.to_le_bytes());
            content.extend(vec![7; 4 * words as usize]);
        }
        assert!(!is_damaged("whole.bc", &content));
        for end in 0..content.len() {
            // The first block and the magic number are intact by themselves.
            assert_eq!(is_damaged("part.bc", &content[..end]), end != 4 && end != 20, "{end}");
        }
        assert!(is_damaged("zeros.bc", &vec![0; content.len()]));
        content.push(0);
        assert!(is_damaged("longer.bc", &content));
    }

    #[test]
    fn a_library_holds_the_table_at_its_end() {
        let mut content = vec![0; 64 + 3 * 64];
        content[..5].copy_from_slice(b"\x7fELF\x02");
        content[40..48].copy_from_slice(&64_u64.to_ne_bytes());
        content[58..62].copy_from_slice(&[64_u16.to_ne_bytes(), 3_u16.to_ne_bytes()].concat());
        assert!(!is_damaged("whole.so", &content));
        assert!(is_damaged("part.so", &content[..content.len() - 1]));
        assert!(is_damaged("empty.so", b""));
        assert!(is_damaged("zeros.so", &vec![0; content.len()]));
        assert!(!is_damaged("other.so", b"\x7fELF\x01"));
    }

    #[test]
    fn other_files_are_ignored() {
        assert!(!is_damaged("program.log", b"no bitcode"));
        assert_eq!(damaged_file(Path::new("/no/such/folder")), None);
    }
}
