//! The `DispatchStub`s that torch's public headers declare.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;

const MACRO: &str = "DECLARE_DISPATCH(";

/// Stub names, each with the header that declares it (`ATen/native/BinaryOps.h`).
pub type Stubs = BTreeMap<String, String>;

/// Finds every stub declared under `ATen/native` of an include folder.
pub fn scan(torch_include: &Path) -> Result<Stubs, Diagnostic> {
    let mut stubs = Stubs::new();
    let mut folders = vec![torch_include.join("ATen/native")];
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "h") {
                let header = path.strip_prefix(torch_include).unwrap_or(&path);
                for stub in declared(&super::read(&path)?) {
                    stubs.insert(stub.to_owned(), header.display().to_string());
                }
            }
        }
    }
    Ok(stubs)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let unreadable = |e| Diagnostic::file(folder, format!("cannot be listed: {e}"));
    fs::read_dir(folder).map_err(unreadable)?.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

/// Names in `DECLARE_DISPATCH(type, name)`. The type may contain commas and parentheses and the declaration may span
/// lines, so the name is between the last comma and the closing parenthesis.
fn declared(header: &str) -> Vec<&str> {
    header
        .match_indices(MACRO)
        .filter(|(at, _)| is_declaration(header, *at))
        .filter_map(|(at, _)| arguments(header.get(at + MACRO.len()..)?))
        .filter_map(|arguments| Some(arguments.rsplit_once(',')?.1.trim()))
        .collect()
}

/// Excludes the macro's own definition and mentions in comments: the line must start with the macro.
fn is_declaration(header: &str, at: usize) -> bool {
    let line = header.get(..at).and_then(|before| before.rsplit('\n').next());
    line.is_some_and(|indent| indent.trim().is_empty())
}

/// The source up to the parenthesis that closes the macro's own.
fn arguments(text: &str) -> Option<&str> {
    let mut depth = 1usize;
    let end = text.find(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    text.get(..end)
}
