//! The names that a row may use: files of pointwise functions, functions of OpenCL C, and functions of Python.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::check::Checker;
use super::diagnostic::Diagnostic;
use super::table::{OutputExprs, Row};
use super::{expr, find_kernels, nearest::nearest, read};

/// Builtins of OpenCL C that have integer forms; `expr` knows the others.
const INTEGER_BUILTINS: &str = "abs abs_diff add_sat clamp clz ctz hadd mad24 mad_hi mad_sat max min mul24 mul_hi \
    popcount rhadd rotate select sub_sat";

/// Names that rows may use.
pub struct Sources {
    /// Stems of the files that are valid values of `part`.
    pub parts: Vec<String>,
    /// Functions and macros that an expression may call.
    calls: BTreeSet<String>,
    /// Macros that the sources define.
    macros: BTreeSet<String>,
    /// `module:function` of each function that `python` may name.
    python: BTreeSet<String>,
}

impl Sources {
    /// Reads the folder of pointwise functions, that of shared OpenCL C, and that of Python's composites.
    pub fn read(pointwise: &Path, include: &Path, composites: &Path) -> Result<Self, Diagnostic> {
        let mut files = Vec::new();
        find_kernels(pointwise, &mut files)?;
        let stems = files.iter().filter_map(|path| path.file_stem()?.to_str()).filter(|stem| *stem != "pointwise");
        let mut parts: Vec<_> = stems.map(str::to_owned).collect();
        parts.sort();
        find_kernels(include, &mut files)?;
        let mut calls: BTreeSet<_> = INTEGER_BUILTINS.split_whitespace().map(str::to_owned).collect();
        let mut macros = BTreeSet::new();
        for file in &files {
            let text = read(file)?;
            // Macros define some of them by the name that they are given.
            calls.extend(expr::names(&text).into_iter().map(str::to_owned));
            let defined = text.lines().filter_map(|line| expr::names(line.strip_prefix("#define ")?).first().copied());
            macros.extend(defined.map(str::to_owned));
        }
        Ok(Self { parts, calls, macros, python: python_functions(composites)? })
    }

    /// Macros that an expression may use.
    pub fn macros(&self) -> impl Iterator<Item = &str> {
        self.macros.iter().map(String::as_str)
    }

    /// A function that an expression calls and that is not defined, with the defined one of the nearest name.
    pub fn unknown_call<'a>(&self, text: &'a str) -> Option<(&'a str, Option<&str>)> {
        let name = expr::called(text).find(|name| !self.calls.contains(*name) && !is_builtin(name))?;
        Some((name, nearest(name, self.calls.iter().map(String::as_str))))
    }

    /// Checks that a `module:function` exists; the error is a hint.
    pub fn python_function(&self, target: &str) -> Result<(), String> {
        if self.python.contains(target) {
            return Ok(());
        }
        Err(match nearest(target, self.python.iter().map(String::as_str)) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "`module:function` is a function of python/torch_opencl/composites/module.py".to_owned(),
        })
    }
}

impl Checker<'_> {
    /// Checks that the functions exist that the row's expressions call and that `python` names.
    pub(super) fn functions(&mut self, row: &Row) {
        for text in row.exprs.iter().flat_map(OutputExprs::given) {
            if let Some((name, known)) = self.sources.unknown_call(&text.value) {
                let hint = match known {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => {
                        "functions are OpenCL C's builtins and those of rust/kernels/include and of `part`".to_owned()
                    }
                };
                self.report.error_with_hint(text.line, format!("no function `{name}`"), hint);
            }
        }
        if let Some(target) = &row.python {
            if let Err(hint) = self.sources.python_function(&target.value) {
                self.report.error_with_hint(target.line, format!("no Python function `{}`", target.value), hint);
            }
        }
    }
}

fn is_builtin(name: &str) -> bool {
    expr::float_part(name).is_some() || name.starts_with("as_") || name.starts_with("convert_")
}

fn python_functions(folder: &Path) -> Result<BTreeSet<String>, Diagnostic> {
    let unreadable = |error: std::io::Error| Diagnostic::file(folder, format!("cannot be read: {error}"));
    let entries = folder.read_dir().map_err(unreadable)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>();
    let mut found = BTreeSet::new();
    for path in paths.map_err(unreadable)?.iter().filter(|path| path.extension().is_some_and(|end| end == "py")) {
        let module = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let text = read(path)?;
        let functions = text.lines().filter_map(|line| line.strip_prefix("def ")?.split('(').next());
        found.extend(functions.map(|function| format!("{module}:{function}")));
    }
    Ok(found)
}
