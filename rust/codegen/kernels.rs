//! Reads kernels' parameters, prints a Rust struct of them for each kernel, and packs a kernel's scalars into one
//! argument.
//!
//! A `.cl` file declares a kernel in OpenCL C:
//!
//! ```c
//! #define RANGE_ARGUMENTS long first, long last
//! __kernel void fill(__global uchar *out, ulong out_offset, int out_dtype, T value, RANGE_ARGUMENTS) {
//! ```
//!
//! This gives
//!
//! - `entry::Fill { out: Memory, out_dtype: DType, value: Value, range: RangeArguments }`, which a launcher fills in by
//!   name, and the typed name `entry::FILL` of the kernel. A macro `X_ARGUMENTS` becomes a separate struct, which
//!   kernels can share.
//! - the source that is compiled: its scalars, including offsets, are the fields of one struct, and the body begins
//!   with code that unpacks them. Thirty calls of `clSetKernelArg` cost more than most small kernels take. Buffers,
//!   local memory and structs remain separate arguments: GPU compilers read those in place, but would copy a struct in
//!   a struct.
//!
//! | declared                                   | field                                         | is passed            |
//! | ------------------------------------------ | --------------------------------------------- | -------------------- |
//! | `__global uchar *x, ulong x_offset`        | `Memory`, a buffer and an offset              | as a buffer, packed  |
//! | `__global uchar *x`                        | `MemHandle`                                   | as a buffer          |
//! | `__local T *x`                             | `LocalBytes`, their number                    | by itself            |
//! | `int dtype0`, `int x_dtype`                | `DType`                                       | packed               |
//! | `int`, `long`, `ulong`, `float`            | `i32`, `i64`, `u64`, `f32`                    | packed               |
//! | `T`, `TR`                                  | `Value`, a scalar of the compute class        | packed, as its bits  |
//! | a struct with `SHARED`                     | the struct of `kernels::structs`              | by itself            |
//! | any other struct                           | `&[u8]`                                       | by itself            |
//! | a macro `X_PARAMETERS`, at the end         | none: generated source declares them          | by the launcher      |

use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;
use super::entries::Entries;
use super::guards::guarded;
use super::packed::{argument_bytes, packed, scalars};
use super::structs::{SharedStructs, TYPES};

/// Bytes of arguments that every device supports (`CL_DEVICE_MAX_PARAMETER_SIZE`).
const MOST_BYTES: usize = 1024;

/// Names that parameters cannot have: keywords of Rust, and names in the generated code.
const RESERVED: [&str; 16] = [
    "packed", "pad", "self", "in", "as", "fn", "impl", "loop", "match", "mod", "move", "mut", "pub", "ref", "type",
    "use",
];

/// Kind of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `__global`, possibly followed by an offset.
    Buffer {
        has_offset: bool,
    },
    Local,
    DType,
    /// `int` and similar.
    Number(String),
    /// `T` or `TR`.
    Value(String),
    /// A struct that is also in Rust: the module, and its bytes.
    Shared(String, usize),
    /// A struct that a launcher writes as bytes.
    Bytes,
    /// The parameters in a macro.
    Group(Vec<Parameter>),
    /// A macro `X_PARAMETERS` at the end, for parameters that generated source adds, each after a comma.
    Open,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    /// The declaration: `__global const uchar *x`.
    pub declared: String,
    pub kind: Kind,
}

pub struct Kernel {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub line: usize,
    /// Positions in the source of the parameter list and of the body.
    pub list: std::ops::Range<usize>,
    pub keyword: usize,
    pub body: usize,
}

/// A file of kernels in its compiled form.
pub struct Source {
    /// Name of the file.
    pub name: String,
    /// Its source with packed arguments.
    pub text: String,
}

/// All kernels of a folder.
pub struct Kernels {
    /// The content of `kernel_entries.rs`.
    pub entries: String,
    /// The sources that replace the files.
    pub sources: Vec<Source>,
}

/// Reads the kernels of a folder's files.
pub fn kernels(files: &[(PathBuf, String)], structs: &SharedStructs) -> Result<Kernels, Vec<Diagnostic>> {
    let (mut entries, mut sources, mut diagnostics) = (Entries::default(), Vec::<Source>::new(), Vec::new());
    let plain: Vec<_> = files.iter().map(|(path, text)| (path.clone(), without_comments(text))).collect();
    let reader = Reader { files: &plain, structs };
    for (path, text) in files {
        let module = super::structs::module_of(path);
        if sources.iter().any(|other| other.name == format!("{module}.cl")) {
            diagnostics.push(Diagnostic::file(path, "another folder has a file of this name"));
        }
        match reader.kernels(path, text) {
            Ok(kernels) => {
                for kernel in &kernels {
                    if let Err(message) = entries.add(&module, kernel) {
                        diagnostics.push(Diagnostic::at(path, kernel.line, message));
                    }
                }
                match guarded(&packed(text, &kernels)) {
                    Ok(text) => sources.push(Source { name: format!("{module}.cl"), text }),
                    Err(line) => diagnostics.push(Diagnostic::at(path, line, "this kernel's body does not end")),
                }
            }
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    if diagnostics.is_empty() {
        Ok(Kernels { entries: entries.text(), sources })
    } else {
        Err(diagnostics)
    }
}

struct Reader<'a> {
    /// Their sources without comments.
    files: &'a [(PathBuf, String)],
    structs: &'a SharedStructs,
}

impl Reader<'_> {
    fn kernels(&self, path: &Path, text: &str) -> Result<Vec<Kernel>, Diagnostic> {
        let code = without_comments(text);
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(keyword) = find(&code, "__kernel", from) {
            let line = code.get(..keyword).unwrap_or_default().matches('\n').count() + 1;
            let problem = |message: String| Diagnostic::at(path, line, message);
            let Some(Header { name, list, body }) = header(&code, keyword) else {
                return Err(problem("'__kernel' is not followed by a function".into()));
            };
            from = body;
            let declared = code.get(list.clone()).unwrap_or_default();
            let Some(parameters) = self.parameters(path, declared).map_err(problem)? else { continue };
            if parameters.iter().any(|p| p.kind == Kind::Open) && scalars(&parameters, "").is_empty() {
                return Err(problem(format!("{name} needs a scalar before the parameters that generated source adds")));
            }
            let bytes = argument_bytes(&parameters);
            if bytes > MOST_BYTES {
                return Err(problem(format!("{name} takes {bytes} bytes of arguments"))
                    .hint(format!("some devices support no more than {MOST_BYTES}; pass large structs in a buffer")));
            }
            found.push(Kernel { name, parameters, line, list, keyword, body });
        }
        Ok(found)
    }

    /// The parameters of a list; `None` if it is a macro with arguments, as their number is then unknown.
    fn parameters(&self, path: &Path, list: &str) -> Result<Option<Vec<Parameter>>, String> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for declared in list.split(',').map(|declared| declared.split_whitespace().collect::<Vec<_>>().join(" ")) {
            if declared.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
                if declared.ends_with("_PARAMETERS") {
                    parameters.push(Parameter { name: declared.to_lowercase(), declared, kind: Kind::Open });
                    continue;
                }
                let definition = self.definition(&declared)?;
                if definition.contains('(') || !declared.ends_with("_ARGUMENTS") {
                    return Ok(None);
                }
                let Some(group) = self.parameters(path, &definition)? else { return Ok(None) };
                parameters.push(Parameter {
                    name: declared.trim_end_matches("_ARGUMENTS").to_lowercase(),
                    declared,
                    kind: Kind::Group(group),
                });
                continue;
            }
            let split = declared.rfind([' ', '*']).map(|at| declared.split_at(at + 1));
            let (kind, name) = split.ok_or_else(|| format!("'{declared}' is not a type and a name"))?;
            let (kind, name) = (kind.trim().trim_start_matches("const ").to_owned(), name.to_owned());
            if let Some(Parameter { name: buffer, kind: Kind::Buffer { has_offset }, .. }) = parameters.last_mut() {
                if kind == "ulong" && name == format!("{buffer}_offset") {
                    *has_offset = true;
                    continue;
                }
            }
            if RESERVED.contains(&&*name) {
                return Err(format!(
                    "a parameter cannot be called '{name}', which has another meaning in Rust or in generated code"
                ));
            }
            let kind = self.kind(path, &kind, &name)?;
            parameters.push(Parameter { name, declared, kind });
        }
        Ok(Some(parameters))
    }

    fn kind(&self, path: &Path, kind: &str, name: &str) -> Result<Kind, String> {
        let is_dtype = name.starts_with("dtype") || name.ends_with("_dtype");
        Ok(match kind {
            _ if kind.starts_with("__global") => Kind::Buffer { has_offset: false },
            _ if kind.starts_with("__local") => Kind::Local,
            "int" if is_dtype => Kind::DType,
            "T" | "TR" => Kind::Value(kind.to_owned()),
            _ if TYPES.iter().any(|(number, ..)| *number == kind) => Kind::Number(kind.to_owned()),
            _ => match self.structs.find(&super::structs::module_of(path), self.is_struct(kind, Some(path)), kind)? {
                Some((module, size)) => Kind::Shared(format!("{module}::{kind}"), size),
                None if self.is_struct(kind, None) => Kind::Bytes,
                None => {
                    return Err(format!(
                        "'{kind} {name}' is none of __global, __local, T, TR, int, uint, long, ulong, float, double and a struct"
                    ))
                }
            },
        })
    }

    /// Returns true if a file, or any file, declares a struct with that name.
    fn is_struct(&self, name: &str, file: Option<&Path>) -> bool {
        let end = format!("}} {name};");
        let mut files = self.files.iter().filter(|(path, _)| file.is_none_or(|file| file == path));
        files.any(|(_, text)| text.lines().any(|line| line.trim_end() == end))
    }

    /// The value of a macro that is defined once.
    fn definition(&self, name: &str) -> Result<String, String> {
        let define = format!("#define {name}");
        let mut definitions = self.files.iter().flat_map(|(_, text)| {
            text.match_indices(&define).filter_map(|(at, _)| text.get(at + define.len()..)).filter(|rest| {
                rest.starts_with([' ', '\\']) // and not the beginning of a longer name
            })
        });
        let (Some(rest), None) = (definitions.next(), definitions.next()) else {
            return Err(format!("'{name}' is not defined, or defined more than once"));
        };
        let mut definition = String::new();
        for line in rest.lines() {
            let continued = line.trim_end().strip_suffix('\\');
            definition.push_str(continued.unwrap_or(line));
            if continued.is_none() {
                break;
            }
        }
        Ok(definition.trim().to_owned())
    }
}

/// The name of a kernel, and positions in the source: of its parameters, and after the brace that opens its body.
pub struct Header {
    pub name: String,
    pub list: std::ops::Range<usize>,
    pub body: usize,
}

/// The header of the kernel whose keyword is at a position of a source without comments.
pub fn header(code: &str, keyword: usize) -> Option<Header> {
    let name_at = find(code, "void", keyword)? + "void".len();
    let open = find(code, "(", name_at)?;
    let name = code.get(name_at..open)?;
    let is_plain = name.starts_with(char::is_whitespace) && !name.contains([';', '{', '}', '*']);
    let is_near = !code.get(keyword..name_at)?.contains([';', '{', '}']);
    (is_plain && is_near).then_some(())?;
    let close = closing(code, open)?;
    let body = find(code, "{", close)? + 1;
    Some(Header { name: name.trim().to_owned(), list: open + 1..close, body })
}

/// The source with blanks instead of comments, of the same length.
pub fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let end = line.find("//").unwrap_or(line.len());
        let (kept, comment) = line.split_at(end);
        code.push_str(kept);
        code.extend(comment.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    }
    code
}

fn find(text: &str, what: &str, from: usize) -> Option<usize> {
    text.get(from..).and_then(|rest| rest.find(what)).map(|at| at + from)
}

/// Position of the parenthesis that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.get(open..)?.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(open + at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The parameters of a list, including those of its groups.
pub fn flat(parameters: &[Parameter]) -> Vec<&Parameter> {
    parameters
        .iter()
        .flat_map(|parameter| match &parameter.kind {
            Kind::Group(group) => flat(group),
            _ => vec![parameter],
        })
        .collect()
}
