//! Reads the structs that launchers pass to kernels by value, and prints them for Rust.
//!
//! A file of kernels declares a struct, followed by its size:
//!
//! ```c
//! // Positions of fixed windows.
//! typedef struct {
//!   int kernel_size[3];
//!   long plane;  // elements of the input
//! } Window;
//! SHARED(Window, 24);
//! ```
//!
//! The Rust struct with the same name is in a module named after the file. Its fields have the same names, order and
//! offsets; `SHARED` checks the size in the OpenCL compiler, and a constant assertion in the Rust compiler.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::diagnostic::Diagnostic;

/// A field's type in OpenCL C and in Rust, and its size, which is also its alignment.
pub const TYPES: [(&str, &str, usize); 6] = [
    ("int", "i32", 4),
    ("uint", "u32", 4),
    ("float", "f32", 4),
    ("long", "i64", 8),
    ("ulong", "u64", 8),
    ("double", "f64", 8),
];

struct Field {
    name: String,
    /// The type's name in OpenCL C.
    kind: String,
    /// Array bounds, outermost first.
    bounds: Vec<usize>,
    docs: Vec<String>,
    offset: usize,
}

struct Struct {
    name: String,
    docs: Vec<String>,
    fields: Vec<Field>,
    size: usize,
    align: usize,
}

/// The structs in a folder's files.
pub struct SharedStructs(Vec<(String, Vec<Struct>)>);

impl SharedStructs {
    /// Reads the structs of some files.
    pub fn parse(files: &[(PathBuf, String)]) -> Result<Self, Vec<Diagnostic>> {
        let (mut modules, mut diagnostics) = (Vec::new(), Vec::new());
        for (path, source) in files {
            match parse(path, source) {
                Ok(structs) if structs.is_empty() => {}
                Ok(structs) => modules.push((module_of(path), structs)),
                Err(diagnostic) => diagnostics.push(diagnostic),
            }
        }
        if diagnostics.is_empty() {
            Ok(Self(modules))
        } else {
            Err(diagnostics)
        }
    }

    /// The module and the bytes of the struct with a name in a file: the file's own if it declares one, otherwise the
    /// only one.
    pub fn find(&self, own: &str, declares_own: bool, name: &str) -> Result<Option<(&str, usize)>, String> {
        let all = self.0.iter().flat_map(|(module, structs)| structs.iter().map(move |shared| (&**module, shared)));
        let mut found = all.filter(|(_, shared)| shared.name == name).collect::<Vec<_>>();
        if found.len() > 1 || declares_own {
            found.retain(|(module, _)| *module == own);
        }
        match *found {
            [(module, shared)] => Ok(Some((module, shared.size))),
            [] if !declares_own && self.0.iter().flat_map(|(_, structs)| structs).any(|shared| shared.name == name) => {
                Err(format!("several files have a struct {name}; give them distinct names"))
            }
            _ => Ok(None),
        }
    }

    /// The content of `kernel_structs.rs`: a module for each file that has such structs.
    pub fn text(&self) -> String {
        let mut text = String::from("// Generated from the kernels by rust/codegen.\n");
        let mut listed = String::new();
        for (module, structs) in &self.0 {
            let printed: String = structs.iter().map(print).collect();
            listed.push_str(&list(module, structs));
            let _ = write!(
                text,
                "\n/// Structs of `{module}.cl`.\npub mod {module} {{\n    use bytemuck::{{Pod, Zeroable}};\n{printed}}}\n"
            );
        }
        let _ = write!(text, "\n/// All structs.\npub static SHARED: &[SharedStruct] = &[\n{listed}];\n");
        text
    }
}

/// The name of a file without its extension, which is the name of its structs' module.
pub fn module_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn parse(path: &Path, source: &str) -> Result<Vec<Struct>, Diagnostic> {
    let lines: Vec<&str> = source.lines().collect();
    let mut structs: Vec<Struct> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !line.trim_start().starts_with("SHARED(") {
            continue;
        }
        let problem = |line: usize, message: String| Diagnostic::at(path, line + 1, message);
        let arguments = line.strip_prefix("SHARED(").and_then(|rest| rest.strip_suffix(");")).unwrap_or_default();
        let stated = arguments.split_once(", ").and_then(|(name, size)| Some((name, size.parse::<usize>().ok()?)));
        let (name, size) = stated.ok_or_else(|| {
            problem(at, format!("'{line}' is not a struct name and size"))
                .hint("write SHARED(Name, bytes); after the struct")
        })?;
        let before = lines.get(..at).unwrap_or_default();
        let end = before.last().filter(|line| **line == format!("}} {name};")).map(|_| before.len() - 1);
        let begin = end.and_then(|_| before.iter().rposition(|line| *line == "typedef struct {"));
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(problem(at, format!("{name} is not declared directly before"))
                .hint(format!("write it after 'typedef struct {{ ... }} {name};'")));
        };
        let mut shared =
            Struct { name: name.to_owned(), docs: docs_above(&lines, begin), fields: Vec::new(), size: 0, align: 1 };
        for (index, line) in lines.iter().enumerate().take(end).skip(begin + 1) {
            let message = |message: String| problem(index, message);
            field(&mut shared, line, &structs, source).map_err(message)?;
        }
        let gap = shared.size.next_multiple_of(shared.align) - shared.size;
        if gap > 0 {
            return Err(problem(end, format!("{gap} bytes after the last field of {name} belong to no field"))
                .hint("name the gap: 'int pad;'"));
        }
        if shared.size != size {
            return Err(problem(at, format!("{name} has {} bytes, not {size}", shared.size))
                .hint(format!("write SHARED({name}, {});", shared.size)));
        }
        structs.push(shared);
    }
    Ok(structs)
}

/// Adds the field in a line, such as `long strides[4];  // in bytes`.
fn field(shared: &mut Struct, line: &str, known: &[Struct], source: &str) -> Result<(), String> {
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let code = code.trim();
    if code.is_empty() {
        return Ok(());
    }
    let declared = code.strip_suffix(';').and_then(|code| code.split_once(' '));
    let (kind, declared) = declared.ok_or_else(|| format!("'{code}' is not one field"))?;
    let basic = TYPES.iter().find(|(name, ..)| *name == kind).map(|(_, _, size)| (*size, *size));
    let nested = || known.iter().find(|other| other.name == kind).map(|other| (other.size, other.align));
    let (mut size, align) = basic.or_else(nested).ok_or_else(|| {
        format!(
            "the type '{kind}' is none of int, uint, long, ulong, float, double and the shared structs of this file"
        )
    })?;
    let (name, rest) = declared.split_once('[').unwrap_or((declared, ""));
    let mut bounds = Vec::new();
    for bound in rest.split('[').filter(|bound| !bound.is_empty()) {
        let bound = bound.trim_end_matches(']');
        let count = value_of(bound, source)
            .ok_or_else(|| format!("'{bound}' is not a number, nor defined once in this file"))?;
        size *= count;
        bounds.push(count);
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Err(format!("'{code}' is not one field"));
    }
    let offset = shared.size.next_multiple_of(align);
    if offset != shared.size {
        return Err(format!(
            "{} bytes before '{name}' belong to no field; order fields by size, or name the gap",
            offset - shared.size
        ));
    }
    let docs = if comment.is_empty() { Vec::new() } else { vec![comment.trim().to_owned()] };
    shared.fields.push(Field { name: name.to_owned(), kind: kind.to_owned(), bounds, docs, offset });
    shared.size += size;
    shared.align = shared.align.max(align);
    Ok(())
}

/// A number, or the value of a macro that is defined once.
fn value_of(word: &str, source: &str) -> Option<usize> {
    let define = format!("#define {word} ");
    let mut defined = source.lines().filter_map(|line| line.strip_prefix(&define));
    match (word.parse(), defined.next(), defined.next()) {
        (Ok(number), ..) => Some(number),
        (_, Some(number), None) => number.trim().parse().ok(),
        _ => None,
    }
}

/// The comment directly above a line.
fn docs_above(lines: &[&str], line: usize) -> Vec<String> {
    let above = lines.get(..line).unwrap_or_default().iter().rev().map_while(|line| line.strip_prefix("//"));
    let mut docs: Vec<String> = above.map(|text| text.trim().to_owned()).collect();
    docs.reverse();
    docs
}

fn print(shared: &Struct) -> String {
    let Struct { name, docs, fields, size, .. } = shared;
    let mut text = String::new();
    let document = |text: &mut String, indent: &str, docs: &[String], other: &str| {
        let own = if docs.is_empty() { vec![other.to_owned()] } else { docs.to_vec() };
        for line in own {
            let _ = writeln!(text, "{indent}/// {line}");
        }
    };
    text.push('\n');
    document(&mut text, "    ", docs, "As in the kernels.");
    let _ = writeln!(text, "    #[repr(C)]\n    #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]");
    let _ = writeln!(text, "    pub struct {name} {{");
    for field in fields {
        document(&mut text, "        ", &field.docs, "As in the kernels.");
        let kind = TYPES.iter().find(|(name, ..)| *name == field.kind).map_or(&*field.kind, |(_, rust, _)| rust);
        let rust = field.bounds.iter().rev().fold(kind.to_owned(), |inner, bound| format!("[{inner}; {bound}]"));
        let _ = writeln!(text, "        pub {}: {rust},", field.name);
    }
    let _ = writeln!(text, "    }}\n\n    const _: () = {{\n        assert!(size_of::<{name}>() == {size});");
    for field in fields {
        let _ = writeln!(text, "        assert!(std::mem::offset_of!({name}, {}) == {});", field.name, field.offset);
    }
    text.push_str("    };\n");
    text
}

/// A row of `SHARED` for each struct of a file: its declaration, preceded by those of the structs in it, and all its
/// scalars.
fn list(module: &str, structs: &[Struct]) -> String {
    let mut declarations = String::new();
    let mut text = String::new();
    for shared in structs {
        declarations.push_str("typedef struct { ");
        for field in &shared.fields {
            let bounds: String = field.bounds.iter().map(|bound| format!("[{bound}]")).collect();
            let _ = write!(declarations, "{} {}{bounds}; ", field.kind, field.name);
        }
        let _ = write!(declarations, "}} {}; ", shared.name);
        let scalars: String = scalars(shared, structs, "", 0)
            .iter()
            .map(|(path, kind, offset)| format!("(\"{path}\", \"{kind}\", {offset}), "))
            .collect();
        let _ = writeln!(
            text,
            "    SharedStruct {{ file: \"{module}\", name: \"{}\", size: {}, declarations: \"{}\", scalars: &[{scalars}] }},",
            shared.name,
            shared.size,
            declarations.trim_end()
        );
    }
    text
}

/// Every scalar of a struct: its expression in a kernel, its type and its offset.
fn scalars(shared: &Struct, structs: &[Struct], path: &str, offset: usize) -> Vec<(String, String, usize)> {
    let mut found = Vec::new();
    for field in &shared.fields {
        let nested = structs.iter().find(|other| other.name == field.kind);
        let basic = TYPES.iter().find(|(name, ..)| *name == field.kind).map_or(0, |(_, _, size)| *size);
        let size = nested.map_or(basic, |other| other.size);
        let mut elements = vec![format!("{path}{}", field.name)];
        for bound in &field.bounds {
            elements = elements.iter().flat_map(|path| (0..*bound).map(move |i| format!("{path}[{i}]"))).collect();
        }
        for (index, element) in elements.into_iter().enumerate() {
            let at = offset + field.offset + index * size;
            match nested {
                Some(other) => found.extend(scalars(other, structs, &format!("{element}."), at)),
                None => found.push((element, field.kind.clone(), at)),
            }
        }
    }
    found
}
