//! Problems of an input file: message, line and hint.

use std::fmt;
use std::path::{Path, PathBuf};

/// One problem, printed as `file:line: message`, with the hint on a separate line.
#[derive(Debug)]
pub struct Diagnostic {
    file: PathBuf,
    line: Option<usize>,
    message: String,
    hint: Option<String>,
}

impl Diagnostic {
    /// A problem at a line (counted from 1).
    pub fn at(file: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::file(file, message) }
    }

    /// A problem of the whole file.
    pub fn file(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.to_path_buf(), line: None, message: message.into(), hint: None }
    }

    /// Adds a hint how to fix it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Lets `?` convert a single problem to the list that the public functions return.
impl From<Diagnostic> for Vec<Diagnostic> {
    fn from(diagnostic: Diagnostic) -> Self {
        vec![diagnostic]
    }
}

/// Collects the problems of a file, so that its author sees all of them at once.
#[derive(Debug)]
pub struct Report<'a> {
    file: &'a Path,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    pub fn new(file: &'a Path) -> Self {
        Self { file, diagnostics: Vec::new() }
    }

    /// Adds a problem.
    pub fn error(&mut self, line: usize, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::at(self.file, line, message));
    }

    /// Adds a problem with a hint how to fix it.
    pub fn error_with_hint(&mut self, line: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.diagnostics.push(Diagnostic::at(self.file, line, message).hint(hint));
    }

    /// The value, or the problems in the order of their lines, if there are any.
    pub fn finish<T>(mut self, value: T) -> Result<T, Vec<Diagnostic>> {
        if self.diagnostics.is_empty() {
            return Ok(value);
        }
        self.diagnostics.sort_by_key(|diagnostic| diagnostic.line);
        Err(self.diagnostics)
    }
}
