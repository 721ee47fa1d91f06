//! Reads kernels' parameters, prints a Rust struct of them for each kernel, and packs a kernel's scalars into one
//! argument.
//!
//! A `.cl` file declares a kernel as OpenCL C has it:
//!
//! ```c
//! #define RANGE_ARGUMENTS long first, long last
//! __kernel void fill(__global uchar *out, ulong out_offset, int out_dtype, T value, RANGE_ARGUMENTS) {
//! ```
//!
//! From that come
//!
//! - `entry::Fill { out: Memory, out_dtype: DType, value: Value, range: RangeArguments }`, which a launcher fills in by name, and
//!   the typed name `entry::FILL` of the kernel. A macro `X_ARGUMENTS` is a struct of its own, which kernels can share.
//! - the source that is compiled: its scalars, offsets among them, are the fields of one struct, and the body begins
//!   by unpacking them. Thirty calls of `clSetKernelArg` cost more than most small kernels take. Buffers, local memory and
//!   structs stay arguments of their own: GPU compilers read those in place, but would copy a struct in a struct.
//!
//! | declared                                   | field                                         | is passed            |
//! | ------------------------------------------ | --------------------------------------------- | -------------------- |
//! | `__global uchar *x, ulong x_offset`        | `Memory`, a buffer and an offset              | as a buffer, packed  |
//! | `__global uchar *x`                        | `MemHandle`                                   | as a buffer          |
//! | `__local T *x`                             | `LocalBytes`, how many                        | by itself            |
//! | `int dtype0`, `int x_dtype`                | `DType`                                       | packed               |
//! | `int`, `long`, `ulong`, `float`            | `i32`, `i64`, `u64`, `f32`                    | packed               |
//! | `T`, `TR`                                  | `Value`, a scalar of the compute class        | packed, as its bits  |
//! | a struct with `SHARED`                     | the struct of `kernels::structs`              | by itself            |
//! | any other struct                           | `&[u8]`                                       | by itself            |

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;
use super::structs::{SharedStructs, TYPES};

/// Bytes of arguments that every device takes (`CL_DEVICE_MAX_PARAMETER_SIZE`).
const MOST_BYTES: usize = 1024;

/// Kind of a parameter.
/// Names that parameters cannot have: keywords of Rust, and the generated code's own.
const RESERVED: [&str; 16] = [
    "packed", "pad", "self", "in", "as", "fn", "impl", "loop", "match", "mod", "move", "mut", "pub", "ref", "type",
    "use",
];

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// `__global`, with an offset behind it or not.
    Buffer {
        has_offset: bool,
    },
    Local,
    DType,
    /// `int` and the like.
    Number(String),
    /// `T` or `TR`.
    Value(String),
    /// A struct that Rust has too: the module, and its bytes.
    Shared(String, usize),
    /// A struct that a launcher encodes.
    Bytes,
    /// The parameters that a macro lists.
    Group(Vec<Parameter>),
}

#[derive(Clone, Debug, PartialEq)]
struct Parameter {
    name: String,
    /// As it is declared: `__global const uchar *x`.
    declared: String,
    kind: Kind,
}

struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
    line: usize,
    /// Positions in the text of the parameter list and of the body.
    list: std::ops::Range<usize>,
    keyword: usize,
    body: usize,
}

/// A file of kernels as it is compiled.
pub struct Source {
    /// Name of the file.
    pub name: String,
    /// Its text with packed arguments.
    pub text: String,
}

/// All of a folder's kernels.
pub struct Kernels {
    /// The text of `kernel_entries.rs`.
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
                sources.push(Source { name: format!("{module}.cl"), text: packed(text, &kernels) });
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
    /// Their texts without comments.
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
            let header = (|| {
                let name_at = find(&code, "void", keyword)? + "void".len();
                let open = find(&code, "(", name_at)?;
                let name = code.get(name_at..open)?;
                let is_plain = name.starts_with(char::is_whitespace) && !name.contains([';', '{', '}', '*']);
                let is_near = !code.get(keyword..name_at)?.contains([';', '{', '}']);
                (is_plain && is_near).then_some(())?;
                let close = closing(&code, open)?;
                let body = find(&code, "{", close)? + 1;
                Some((code.get(name_at..open)?.trim().to_owned(), open + 1..close, body))
            })();
            let (name, list, body) = header.ok_or_else(|| problem("what follows '__kernel' is no function".into()))?;
            from = body;
            let declared = code.get(list.clone()).unwrap_or_default();
            let Some(parameters) = self.parameters(path, declared).map_err(problem)? else { continue };
            let bytes = argument_bytes(&parameters);
            if bytes > MOST_BYTES {
                return Err(problem(format!("{name} takes {bytes} bytes of arguments"))
                    .hint(format!("some devices take no more than {MOST_BYTES}; pass what is large in a buffer")));
            }
            found.push(Kernel { name, parameters, line, list, keyword, body });
        }
        Ok(found)
    }

    /// The parameters of a list; none where a macro with arguments makes it, as their number is open then.
    fn parameters(&self, path: &Path, list: &str) -> Result<Option<Vec<Parameter>>, String> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for declared in list.split(',').map(|declared| declared.split_whitespace().collect::<Vec<_>>().join(" ")) {
            if declared.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
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
                    "a parameter cannot be called '{name}', which means something else in Rust or here"
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

    /// Returns true if a file, or any, declares a struct of that name.
    fn is_struct(&self, name: &str, file: Option<&Path>) -> bool {
        let end = format!("}} {name};");
        let mut files = self.files.iter().filter(|(path, _)| file.is_none_or(|file| file == path));
        files.any(|(_, text)| text.lines().any(|line| line.trim_end() == end))
    }

    /// The text of a macro's only definition.
    fn definition(&self, name: &str) -> Result<String, String> {
        let define = format!("#define {name}");
        let mut definitions = self.files.iter().flat_map(|(_, text)| {
            text.match_indices(&define).filter_map(|(at, _)| text.get(at + define.len()..)).filter(|rest| {
                rest.starts_with([' ', '\\']) // and not the beginning of a longer name
            })
        });
        let (Some(rest), None) = (definitions.next(), definitions.next()) else {
            return Err(format!("'{name}' is defined nowhere, or more than once"));
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

/// The text with blanks for comments, byte for byte.
fn without_comments(text: &str) -> String {
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

/// The parameters of a list with those of its groups.
fn flat(parameters: &[Parameter]) -> Vec<&Parameter> {
    parameters
        .iter()
        .flat_map(|parameter| match &parameter.kind {
            Kind::Group(group) => flat(group),
            _ => vec![parameter],
        })
        .collect()
}

/// A field of the struct that holds a kernel's scalars.
struct Packed {
    /// In OpenCL C: `ulong scale[2]`.
    declared: String,
    /// In Rust: `scale: [u64; 2]`.
    field: String,
    /// Its value on the host, read from `path`.
    from: String,
    /// The kernel's variable, read from `packed`.
    unpacked: String,
    size: usize,
}

impl Packed {
    /// Each scalar as a kernel names it, and its type.
    fn numbers(&self) -> Vec<(String, &str)> {
        let (kind, name) = self.declared.split_once(' ').unwrap_or_default();
        match name.strip_suffix("[2]") {
            Some(name) => vec![(format!("{name}[0]"), kind), (format!("{name}[1]"), kind)],
            None => vec![(name.to_owned(), kind)],
        }
    }
}

/// The struct that holds a kernel's scalars, in OpenCL C; `None` where it has no scalars.
fn packed_struct(name: &str, numbers: &[Packed]) -> Option<String> {
    if numbers.is_empty() {
        return None;
    }
    let fields: String = numbers.iter().map(|number| format!("{}; ", number.declared)).collect();
    let pad = if has_gap(numbers) { "int pad; " } else { "" };
    Some(format!("typedef struct {{ {fields}{pad}}} {name}_packed;"))
}

/// The scalars of a list, the wide ones first, and where Rust finds them.
fn numbers(parameters: &[Parameter], path: &str) -> Vec<Packed> {
    let mut found = Vec::new();
    for parameter in parameters {
        let name = &parameter.name;
        let number = |declared: &str, rust: &str, from: String, unpacked: String, size: usize| Packed {
            declared: declared.to_owned(),
            field: rust.to_owned(),
            from,
            unpacked,
            size,
        };
        match &parameter.kind {
            Kind::Buffer { has_offset: true } => found.push(number(
                &format!("ulong {name}_offset"),
                &format!("{name}_offset: u64"),
                format!("{path}.{name}.offset"),
                format!("const ulong {name}_offset = packed.{name}_offset;"),
                8,
            )),
            Kind::DType => found.push(number(
                &format!("int {name}"),
                &format!("{name}: i32"),
                format!("{path}.{name}.code()"),
                format!("const int {name} = packed.{name};"),
                4,
            )),
            Kind::Number(kind) => {
                let basic = TYPES.iter().find(|(number, ..)| number == kind);
                let (rust, size) = basic.map_or(("i32", 4), |(_, rust, size)| (*rust, *size));
                found.push(number(
                    &format!("{kind} {name}"),
                    &format!("{name}: {rust}"),
                    format!("{path}.{name}"),
                    format!("const {kind} {name} = packed.{name};"),
                    size,
                ));
            }
            Kind::Value(kind) => found.push(number(
                &format!("ulong {name}[2]"),
                &format!("{name}: [u64; 2]"),
                format!("{path}.{name}.bits()"),
                format!("const {kind} {name} = UNPACK_{kind}(packed.{name});"),
                16,
            )),
            Kind::Group(group) => found.extend(numbers(group, &format!("{path}.{name}"))),
            Kind::Buffer { has_offset: false } | Kind::Local | Kind::Shared(..) | Kind::Bytes => {}
        }
    }
    found.sort_by_key(|number| number.size == 4);
    found
}

/// The bytes of a kernel's arguments; those of structs that only the launcher knows are left out.
fn argument_bytes(parameters: &[Parameter]) -> usize {
    let others = flat(parameters).into_iter().map(|parameter| match parameter.kind {
        Kind::Buffer { .. } => 8,
        Kind::Shared(_, size) => size,
        _ => 0,
    });
    others.sum::<usize>() + numbers(parameters, "").iter().map(|number| number.size).sum::<usize>()
}

/// The text of a file, in which each kernel takes its scalars in one struct. Line numbers are kept.
fn packed(text: &str, kernels: &[Kernel]) -> String {
    let mut printed = String::with_capacity(text.len() * 2);
    let mut copied = 0;
    for kernel in kernels {
        let numbers = numbers(&kernel.parameters, "");
        let name = &kernel.name;
        let Some(declaration) = packed_struct(name, &numbers) else { continue };
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        printed.push_str(part(copied, kernel.keyword));
        let _ = write!(printed, "{declaration} ");
        printed.push_str(part(kernel.keyword, kernel.list.start));
        for parameter in flat(&kernel.parameters) {
            if matches!(parameter.kind, Kind::Buffer { .. } | Kind::Local | Kind::Shared(..) | Kind::Bytes) {
                let _ = write!(printed, "{}, ", parameter.declared);
            }
        }
        let _ = write!(printed, "const {name}_packed packed");
        let lines = part(kernel.list.start, kernel.list.end).matches('\n').count();
        printed.push_str(&"\n".repeat(lines));
        printed.push_str(part(kernel.list.end, kernel.body));
        for number in &numbers {
            let _ = write!(printed, " {}", number.unpacked);
        }
        copied = kernel.body;
    }
    printed.push_str(text.get(copied..).unwrap_or_default());
    printed
}

/// Returns true if the struct's last field ends before its alignment does.
fn has_gap(numbers: &[Packed]) -> bool {
    numbers.iter().map(|number| number.size).sum::<usize>() % 8 != 0 && numbers.iter().any(|number| number.size > 4)
}

/// The parts of `kernel_entries.rs`.
#[derive(Default)]
struct Entries {
    text: String,
    names: String,
    /// Rows of `PACKED`.
    packed: String,
    /// Kernels and groups so far: their names, and their lists.
    kernels: Vec<(String, Vec<Parameter>)>,
    groups: Vec<String>,
}

impl Entries {
    /// A kernel may be declared once for each kind of device; those that take the same share a struct.
    fn add(&mut self, module: &str, kernel: &Kernel) -> Result<(), String> {
        let Kernel { name, parameters, .. } = kernel;
        if let Some((_, other)) = self.kernels.iter().find(|(other, _)| other == name) {
            return if other == parameters {
                Ok(())
            } else {
                Err(format!("another kernel {name} takes something else"))
            };
        }
        let same = self.kernels.iter().find(|(_, other)| other == parameters).map(|(name, _)| camel(name));
        let arguments = same.clone().unwrap_or_else(|| camel(name));
        let _ = writeln!(
            self.names,
            "/// The kernel `{name}` of `{module}.cl`.\npub const {}: EntryPoint<{}{}> = EntryPoint::new(\"{name}\");",
            name.to_uppercase(),
            camel(name),
            lifetime(parameters).replace("'a", "'static"),
        );
        if same.is_some() {
            let lifetime = lifetime(parameters);
            let _ = writeln!(
                self.names,
                "/// What `{name}` takes, as another kernel does.\npub type {}{lifetime} = {arguments}{lifetime};",
                camel(name)
            );
        }
        self.list(module, name, &numbers(parameters, ""));
        if same.is_none() {
            self.groups(parameters);
            self.print(&arguments, &format!("What `{name}` of `{module}.cl` takes."), parameters);
            self.implement(&arguments, parameters);
        }
        self.kernels.push((name.clone(), parameters.clone()));
        Ok(())
    }

    /// A row of `PACKED`: the struct of a kernel's scalars, and the offset of each.
    fn list(&mut self, module: &str, kernel: &str, numbers: &[Packed]) {
        let Some(declaration) = packed_struct(kernel, numbers) else { return };
        let (mut offset, mut listed) = (0, String::new());
        for number in numbers {
            let parts = number.numbers();
            for (path, kind) in &parts {
                let _ = write!(listed, "(\"{path}\", \"{kind}\", {offset}), ");
                offset += number.size / parts.len();
            }
        }
        let size = offset + if has_gap(numbers) { 4 } else { 0 };
        let _ = writeln!(
            self.packed,
            "    SharedStruct {{ file: \"{module}\", name: \"{kernel}_packed\", size: {size}, declarations: \"{declaration}\", \
             numbers: &[{listed}] }},"
        );
    }

    /// The structs of a list's groups, each once.
    fn groups(&mut self, parameters: &[Parameter]) {
        for Parameter { name, declared, kind } in parameters {
            let Kind::Group(group) = kind else { continue };
            self.groups(group);
            if !self.groups.contains(declared) {
                self.groups.push(declared.clone());
                self.print(&camel(&format!("{name}_arguments")), &format!("What `{declared}` lists."), group);
            }
        }
    }

    fn print(&mut self, name: &str, docs: &str, parameters: &[Parameter]) {
        let text = &mut self.text;
        let _ = writeln!(
            text,
            "\n/// {docs}\n#[derive(Clone, Copy, Debug)]\n#[allow(missing_docs, reason = \"the kernel says what they are\")]\npub struct {name}{} {{",
            lifetime(parameters)
        );
        for Parameter { name, kind, .. } in parameters {
            let rust = match kind {
                Kind::Buffer { has_offset: true } => "Memory".to_owned(),
                Kind::Buffer { has_offset: false } => "MemHandle".to_owned(),
                Kind::Local => "LocalBytes".to_owned(),
                Kind::DType => "DType".to_owned(),
                Kind::Number(number) => {
                    TYPES.iter().find(|(other, ..)| other == number).map_or("i32", |(_, rust, _)| rust).to_owned()
                }
                Kind::Value(_) => "Value".to_owned(),
                Kind::Shared(path, _) => format!("structs::{path}"),
                Kind::Bytes => "&'a [u8]".to_owned(),
                Kind::Group(group) => format!("{}{}", camel(&format!("{name}_arguments")), lifetime(group)),
            };
            let _ = writeln!(text, "    pub {name}: {rust},");
        }
        text.push_str("}\n");
    }

    fn implement(&mut self, name: &str, parameters: &[Parameter]) {
        let numbers = numbers(parameters, "self");
        let mut bound = String::new();
        bind(parameters, "self", &mut bound);
        let anonymous = lifetime(parameters).replace("'a", "'_");
        let text = &mut self.text;
        let _ = writeln!(
            text,
            "\nimpl Arguments for {name}{anonymous} {{\n    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {{"
        );
        if numbers.is_empty() {
            let _ = writeln!(text, "        run(&[{bound}])\n    }}\n}}");
            return;
        }
        let pad = has_gap(&numbers);
        let fields: String = numbers.iter().map(|number| format!("{}, ", number.field)).collect();
        let values: String = numbers
            .iter()
            .map(|number| format!("{}: {}, ", number.field.split(':').next().unwrap_or_default(), number.from))
            .collect();
        let size = numbers.iter().map(|number| number.size).sum::<usize>() + if pad { 4 } else { 0 };
        let (pad_field, pad_value) = if pad { ("pad: i32", "pad: 0") } else { ("", "") };
        let _ = writeln!(
            text,
            "        #[repr(C)]\n        #[derive(Clone, Copy, Pod, Zeroable)]\n        struct Packed {{ {fields}{pad_field} }}\n        \
             const _: () = assert!(size_of::<Packed>() == {size});\n        \
             let packed = Packed {{ {values}{pad_value} }};\n        \
             run(&[{bound}Arg::of(&packed)])\n    }}\n}}"
        );
    }

    fn text(self) -> String {
        format!(
            "// Generated from the kernels by rust/codegen.\n\n{}{}\n\
             /// The structs that kernels' numbers travel in.\npub static PACKED: &[SharedStruct] = &[\n{}];\n",
            self.names, self.text, self.packed
        )
    }
}

/// The arguments besides the scalars, in the kernel's order.
fn bind(parameters: &[Parameter], path: &str, bound: &mut String) {
    for Parameter { name, kind, .. } in parameters {
        let _ = match kind {
            Kind::Buffer { has_offset: true } => write!(bound, "Arg::Buffer({path}.{name}.handle), "),
            Kind::Buffer { has_offset: false } => write!(bound, "Arg::Buffer({path}.{name}), "),
            Kind::Local => write!(bound, "Arg::Local({path}.{name}.0), "),
            Kind::Shared(..) => write!(bound, "Arg::of(&{path}.{name}), "),
            Kind::Bytes => write!(bound, "Arg::Bytes({path}.{name}), "),
            Kind::Group(group) => {
                bind(group, &format!("{path}.{name}"), bound);
                Ok(())
            }
            Kind::DType | Kind::Number(_) | Kind::Value(_) => Ok(()),
        };
    }
}

/// `<'a>` where a parameter borrows.
fn lifetime(parameters: &[Parameter]) -> &'static str {
    if flat(parameters).iter().any(|parameter| parameter.kind == Kind::Bytes) {
        "<'a>"
    } else {
        ""
    }
}

fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        })
        .collect()
}
