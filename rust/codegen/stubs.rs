//! The `DispatchStub`s that torch's public headers declare.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;

const MACRO: &str = "DECLARE_DISPATCH(";

/// A stub as a header declares it.
#[derive(Debug)]
pub struct Stub {
    /// The header: `ATen/native/BinaryOps.h`.
    pub header: String,
    /// The parameters that follow the tensors, without the generator: `const Scalar& alpha`. None if the type of the
    /// stub's kernels is not found.
    pub scalars: Option<Vec<String>>,
}

/// Stubs by their names.
pub type Stubs = BTreeMap<String, Stub>;

/// Finds every stub declared under `ATen/native` of an include folder.
pub fn scan(torch_include: &Path) -> Result<Stubs, Diagnostic> {
    let (mut found, mut types) = (Vec::new(), BTreeMap::new());
    let mut folders = vec![torch_include.join("ATen/native")];
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "h") {
                let header = path.strip_prefix(torch_include).unwrap_or(&path).display().to_string();
                let text = super::read(&path)?;
                types.extend(aliases(&text).map(|(name, kind)| (name.to_owned(), kind.to_owned())));
                let stubs = declared(&text).map(|(kind, stub)| (stub.to_owned(), kind.to_owned(), header.clone()));
                found.extend(stubs);
            }
        }
    }
    let stub = |(name, kind, header): (String, String, String)| {
        let scalars = scalars(types.get(&kind).unwrap_or(&kind));
        (name, Stub { header, scalars })
    };
    Ok(found.into_iter().map(stub).collect())
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let unreadable = |e| Diagnostic::file(folder, format!("cannot be listed: {e}"));
    fs::read_dir(folder).map_err(unreadable)?.map(|entry| entry.map(|entry| entry.path()).map_err(unreadable)).collect()
}

/// Types and names in `DECLARE_DISPATCH(type, name)`. The type may contain commas and parentheses and the declaration
/// may span lines, so the name is between the last comma and the closing parenthesis.
fn declared(header: &str) -> impl Iterator<Item = (&str, &str)> {
    header
        .match_indices(MACRO)
        .filter(|(at, _)| is_declaration(header, *at))
        .filter_map(|(at, _)| arguments(header.get(at + MACRO.len()..)?))
        .filter_map(|arguments| arguments.rsplit_once(','))
        .map(|(kind, name)| (kind.trim(), name.trim()))
}

/// Names and types in `using name = type;`.
fn aliases(header: &str) -> impl Iterator<Item = (&str, &str)> {
    let definitions = header.split("using ").skip(1).filter_map(|rest| rest.split(';').next()?.split_once('='));
    definitions.map(|(name, kind)| (name.trim(), kind.trim()))
}

/// The scalars of a function's type, `void (*)(TensorIteratorBase&, const Scalar& alpha)`.
fn scalars(kind: &str) -> Option<Vec<String>> {
    let parameters = arguments(kind.split_once("(*)")?.1.trim_start().strip_prefix('(')?)?;
    let mut depth = 0;
    let is_end = |c: char| {
        depth += i32::from("(<".contains(c)) - i32::from(")>".contains(c));
        c == ',' && depth == 0
    };
    let scalars = parameters.split(is_end).skip(1).filter(|parameter| !parameter.contains("Generator"));
    Some(scalars.map(|parameter| parameter.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
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
