//! The names that a row may use: files of pointwise functions, and functions of OpenCL C, C++ and Python.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::check::Checker;
use super::diagnostic::Diagnostic;
use super::plan::{Declaration, Registration};
use super::table::{OutputExprs, Row};
use super::yaml::Text;
use super::{expr, find_files, nearest::nearest, read, Inputs};

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
    /// Functions of `cpp/native`, such as `sum` and `mm_out::impl`, and names of its classes.
    native: BTreeSet<String>,
    /// `module:function` of each function that `python` may name.
    python: BTreeSet<String>,
}

impl Sources {
    /// Reads the folder of pointwise functions, that of shared OpenCL C, that of C++, and that of Python's composites.
    pub fn read(inputs: &Inputs<'_>) -> Result<Self, Diagnostic> {
        let mut files = Vec::new();
        find_files(&inputs.launchers.join("pointwise"), &["cl"], &mut files)?;
        let stems = files.iter().filter_map(|path| path.file_stem()?.to_str()).filter(|stem| *stem != "pointwise");
        let mut parts: Vec<_> = stems.map(str::to_owned).collect();
        parts.sort();
        find_files(inputs.include, &["cl"], &mut files)?;
        let mut calls: BTreeSet<_> = INTEGER_BUILTINS.split_whitespace().map(str::to_owned).collect();
        let mut macros = BTreeSet::new();
        for file in &files {
            let text = read(file)?;
            // Macros define some of them by the name that they are given.
            calls.extend(expr::names(&text).into_iter().map(str::to_owned));
            let defined = text.lines().filter_map(|line| expr::names(line.strip_prefix("#define ")?).first().copied());
            macros.extend(defined.map(str::to_owned));
        }
        let mut units = Vec::new();
        find_files(inputs.native, &["cpp", "h"], &mut units)?;
        let mut native = BTreeSet::new();
        for unit in &units {
            native.extend(read(unit)?.lines().flat_map(defined).map(str::to_owned));
        }
        Ok(Self { parts, calls, macros, native, python: python_functions(inputs.composites)? })
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
    /// Checks that the functions exist that the row's expressions call and that its keys name.
    pub(super) fn functions(&mut self, row: &Row, registrations: &[Registration]) {
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
        let declared = registrations.iter().find_map(|registration| definition(registration.declares.as_ref()?));
        let kernel = row.kernel.as_ref().map(|kernel| (kernel, kernel.value.clone()));
        for (text, name) in row.entry.as_ref().zip(declared).into_iter().chain(kernel) {
            self.native(text, &name);
        }
    }

    /// Checks that `cpp/native` defines a function or class; otherwise the linker reports it, without the row.
    fn native(&mut self, text: &Text, name: &str) {
        let native = &self.sources.native;
        if native.contains(name) {
            return;
        }
        let hint = match nearest(name, native.iter().map(String::as_str)) {
            Some(known) => format!("did you mean `{}`?", known.trim_end_matches("::impl")),
            None => "define it there, or name one that is".to_owned(),
        };
        self.report.error_with_hint(text.line, format!("cpp/native has no `{name}`"), hint);
    }
}

/// The name of an entry where it is defined: a structured op calls the `impl` of a class.
fn definition(declaration: &Declaration) -> Option<String> {
    match declaration {
        Declaration::Function(name) | Declaration::OfStruct { name, .. } => Some(name.clone()),
        Declaration::Class { name, .. } => Some(format!("{name}::impl")),
        Declaration::Template { class, .. } => class.split('<').next().map(str::to_owned),
        Declaration::Expression { .. } => None,
    }
}

/// Functions and classes that a line of C++ defines, by its form: definitions are not indented. It may also find others
/// of the same line, such as calls in default arguments.
fn defined(line: &str) -> impl Iterator<Item = &str> {
    let is_definition = line.starts_with(|c: char| c.is_ascii_alphabetic()) && !line.ends_with(';');
    let class = line.strip_prefix("struct ").or_else(|| line.strip_prefix("class "));
    let class = class.and_then(|rest| rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next());
    let functions = line.match_indices('(').filter(move |_| is_definition).filter_map(|(at, _)| {
        line.get(..at)?.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).next()
    });
    class.into_iter().chain(functions)
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
