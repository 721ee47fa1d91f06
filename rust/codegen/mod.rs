//! Build-time code generation: from the op table to registrations, enums, kernel cases and docs.
//!
//! `native_functions.yaml` lists the ops that the backend implements; the file of the same name that torchgen ships
//! inside torch describes those ops. `build.rs` calls [`run`], which reads both, checks every row and writes files for
//! the two languages into `OUT_DIR`:
//!
//! | file                   | for                                                             |
//! | ---------------------- | --------------------------------------------------------------- |
//! | `registrations_N.cpp`  | dispatcher registrations and stub pointers                      |
//! | `entries/FAMILY.h`     | declarations of a family's functions and classes, by their ops  |
//! | `pointwise_op.h`       | `torch_opencl::PointwiseOp`, the pointwise ops for C++          |
//! | `pointwise_table.rs`   | the same enum, its rows and the kernel cases, for Rust          |
//! | `distribution.h`, `distributions.rs` | the distributions of the random kernels, for both     |
//! | `coverage.md`          | the table of supported ops for the documentation                |
//!
//! [`kernels()`] reads the kernels: their parameters become `kernel_entries.rs` and `kernel_structs.rs` for launchers,
//! and `cl/*.cl` are the sources that are compiled.
//!
//! Each stage is a module: [`table`] and [`schema`] parse, [`stubs`] scans torch's headers, [`check`] converts rows to
//! a [`plan`] or to diagnostics (with [`resolve`] for ops, [`operation`] and [`classes`] for expressions), and the
//! `emit_*` modules print the plan. Nothing is printed from a table with an invalid row.

mod cases;
mod check;
mod classes;
mod composite;
mod cpu;
mod diagnostic;
mod dtypes;
mod emit_cpp;
mod emit_docs;
mod emit_rust;
mod entries;
mod expr;
mod family;
mod guards;
mod kernels;
mod layout;
mod nearest;
mod operation;
mod packed;
mod plan;
mod release;
mod resolve;
mod scalars;
mod schema;
mod sources;
mod structs;
mod stubs;
mod table;
mod yaml;

use std::fs;
use std::path::{Path, PathBuf};

pub use diagnostic::Diagnostic;
pub use release::{Release, Supported};

/// Inputs of the generator.
pub struct Inputs<'a> {
    /// The backend's op table.
    pub table: &'a Path,
    /// The `native_functions.yaml` of the torch that is built against.
    pub aten: &'a Path,
    /// The folder of torch that contains `ATen/`.
    pub torch_include: &'a Path,
    /// The folder of the launchers, with a folder for each family.
    pub launchers: &'a Path,
    /// The folder of OpenCL C that families share.
    pub include: &'a Path,
    /// The folder of the C++ functions and classes that rows name.
    pub native: &'a Path,
    /// The folder of the Python functions that rows name.
    pub composites: &'a Path,
    /// The release of torch, for which some rows may not be.
    pub torch: Release,
    pub supported: Supported,
}

/// Generates all files into `out_dir` and returns the C++ sources to compile.
///
/// All problems of the table are reported at once, in the order of its lines.
pub fn run(inputs: &Inputs<'_>, out_dir: &Path) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    let &Inputs { table, aten, torch_include, launchers, torch, supported, .. } = inputs;
    let index = schema::Index::parse(aten, &read(aten)?)?;
    let stubs = stubs::scan(torch_include)?;
    let rows = table::parse(table, &read(table)?)?;
    let releases = check::Releases { torch, supported };
    let families = family::families(launchers)?;
    let sources = sources::Sources::read(inputs)?;
    let plan = check::check(table, &rows, &index, &stubs, &families, &sources, releases)?;

    let sources = emit_cpp::registrations(&plan)
        .iter()
        .enumerate()
        .map(|(i, text)| write(out_dir, &format!("registrations_{i}.cpp"), text))
        .collect::<Result<_, _>>()?;
    let entries = out_dir.join("entries");
    make_empty(&entries)?;
    for (family, text) in emit_cpp::entries(&plan) {
        write(&entries, &format!("{family}.h"), &text)?;
    }
    write(out_dir, "python_functions.h", &emit_cpp::python_functions(&plan))?;
    write(out_dir, "pointwise_op.h", &emit_cpp::pointwise_op(&plan))?;
    write(out_dir, "distribution.h", &emit_cpp::distribution(&plan))?;
    write(out_dir, "distributions.rs", &emit_rust::distributions(&plan))?;
    write(out_dir, "pointwise_table.rs", &emit_rust::pointwise_table(&plan))?;
    write(out_dir, "coverage.md", &emit_docs::coverage(&plan))?;
    Ok(sources)
}

/// Reads the kernels below some folders, and writes their Rust declarations (`kernel_structs.rs`, `kernel_entries.rs`)
/// and the sources that are compiled (`cl/*.cl`).
pub fn kernels(folders: &[&Path], out_dir: &Path) -> Result<(), Vec<Diagnostic>> {
    let mut paths = Vec::new();
    for folder in folders {
        find_files(folder, &["cl"], &mut paths)?;
    }
    paths.sort();
    let files = paths.into_iter().map(|path| read(&path).map(|text| (path, text))).collect::<Result<Vec<_>, _>>()?;

    let structs = structs::SharedStructs::parse(&files)?;
    write(out_dir, "kernel_structs.rs", &structs.text())?;
    let kernels = kernels::kernels(&files, &structs)?;
    write(out_dir, "kernel_entries.rs", &kernels.entries)?;
    let sources = out_dir.join("cl");
    make_empty(&sources)?;
    for source in kernels.sources {
        write(&sources, &source.name, &source.text)?;
    }
    Ok(())
}

/// Adds the files of a folder and its subfolders with one of these extensions.
fn find_files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) -> Result<(), Diagnostic> {
    let unreadable = |error: std::io::Error| Diagnostic::file(folder, format!("cannot be read: {error}"));
    for entry in folder.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            find_files(&path, extensions, found)?;
        } else if extensions.iter().any(|wanted| path.extension().is_some_and(|extension| extension == *wanted)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Creates a folder without files of an earlier build.
fn make_empty(folder: &Path) -> Result<(), Diagnostic> {
    let removed = fs::remove_dir_all(folder).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    });
    removed
        .and_then(|()| fs::create_dir_all(folder))
        .map_err(|e| Diagnostic::file(folder, format!("cannot be created: {e}")))
}

fn read(path: &Path) -> Result<String, Diagnostic> {
    fs::read_to_string(path).map_err(|e| Diagnostic::file(path, format!("cannot be read: {e}")))
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf, Diagnostic> {
    let path = dir.join(name);
    fs::write(&path, text).map_err(|e| Diagnostic::file(&path, format!("cannot be written: {e}")))?;
    Ok(path)
}
