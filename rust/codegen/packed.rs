//! The struct in which a kernel's scalars are passed, and the source that unpacks it.

use std::fmt::Write;

use super::kernels::{flat, Kernel, Kind, Parameter};
use super::structs::TYPES;

/// A field of the struct of a kernel's scalars.
pub struct Packed {
    /// In OpenCL C: `ulong scale[2]`.
    pub declared: String,
    /// In Rust: `scale: [u64; 2]`.
    pub field: String,
    /// Its value on the host, read from `path`.
    pub from: String,
    /// The kernel's variable, read from `packed`.
    pub unpacked: String,
    pub size: usize,
}

impl Packed {
    /// Each scalar's expression in a kernel, and its type.
    pub fn scalars(&self) -> Vec<(String, &str)> {
        let (kind, name) = self.declared.split_once(' ').unwrap_or_default();
        match name.strip_suffix("[2]") {
            Some(name) => vec![(format!("{name}[0]"), kind), (format!("{name}[1]"), kind)],
            None => vec![(name.to_owned(), kind)],
        }
    }
}

/// The struct of a kernel's scalars, in OpenCL C; `None` if it has no scalars.
pub fn packed_struct(name: &str, scalars: &[Packed]) -> Option<String> {
    if scalars.is_empty() {
        return None;
    }
    let fields: String = scalars.iter().map(|scalar| format!("{}; ", scalar.declared)).collect();
    let pad = if has_gap(scalars) { "int pad; " } else { "" };
    Some(format!("typedef struct {{ {fields}{pad}}} {name}_packed;"))
}

/// The scalars of a list, wide ones first, with their expressions in Rust.
pub fn scalars(parameters: &[Parameter], path: &str) -> Vec<Packed> {
    let mut found = Vec::new();
    for parameter in parameters {
        let name = &parameter.name;
        let scalar = |declared: &str, rust: &str, from: String, unpacked: String, size: usize| Packed {
            declared: declared.to_owned(),
            field: rust.to_owned(),
            from,
            unpacked,
            size,
        };
        match &parameter.kind {
            Kind::Buffer { has_offset: true } => found.push(scalar(
                &format!("ulong {name}_offset"),
                &format!("{name}_offset: u64"),
                format!("{path}.{name}.offset"),
                format!("const ulong {name}_offset = packed.{name}_offset;"),
                8,
            )),
            Kind::DType => found.push(scalar(
                &format!("int {name}"),
                &format!("{name}: i32"),
                format!("{path}.{name}.code()"),
                format!("const int {name} = packed.{name};"),
                4,
            )),
            Kind::Number(kind) => {
                let basic = TYPES.iter().find(|(number, ..)| number == kind);
                let (rust, size) = basic.map_or(("i32", 4), |(_, rust, size)| (*rust, *size));
                found.push(scalar(
                    &format!("{kind} {name}"),
                    &format!("{name}: {rust}"),
                    format!("{path}.{name}"),
                    format!("const {kind} {name} = packed.{name};"),
                    size,
                ));
            }
            Kind::Value(kind) => found.push(scalar(
                &format!("ulong {name}[2]"),
                &format!("{name}: [u64; 2]"),
                format!("{path}.{name}.bits()"),
                format!("const {kind} {name} = UNPACK_{kind}(packed.{name});"),
                16,
            )),
            Kind::Group(group) => found.extend(scalars(group, &format!("{path}.{name}"))),
            Kind::Buffer { has_offset: false } | Kind::Local | Kind::Shared(..) | Kind::Bytes | Kind::Open => {}
        }
    }
    found.sort_by_key(|scalar| scalar.size == 4);
    found
}

/// The bytes of a kernel's arguments, without structs that only the launcher knows.
pub fn argument_bytes(parameters: &[Parameter]) -> usize {
    let others = flat(parameters).into_iter().map(|parameter| match parameter.kind {
        Kind::Buffer { .. } => 8,
        Kind::Shared(_, size) => size,
        _ => 0,
    });
    others.sum::<usize>() + scalars(parameters, "").iter().map(|scalar| scalar.size).sum::<usize>()
}

/// The source of a file, in which each kernel takes its scalars in one struct.
pub fn packed(text: &str, kernels: &[Kernel]) -> String {
    let mut printed = String::with_capacity(text.len() * 2);
    let mut copied = 0;
    for kernel in kernels {
        let scalars = scalars(&kernel.parameters, "");
        let name = &kernel.name;
        let Some(declaration) = packed_struct(name, &scalars) else { continue };
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
        for parameter in kernel.parameters.iter().filter(|parameter| parameter.kind == Kind::Open) {
            let _ = write!(printed, " {}", parameter.declared);
        }
        printed.push_str(part(kernel.list.end, kernel.body));
        for scalar in &scalars {
            let _ = write!(printed, " {}", scalar.unpacked);
        }
        copied = kernel.body;
    }
    printed.push_str(text.get(copied..).unwrap_or_default());
    printed
}

/// Returns true if the size of the struct's fields is not a multiple of its alignment.
pub fn has_gap(scalars: &[Packed]) -> bool {
    scalars.iter().map(|scalar| scalar.size).sum::<usize>() % 8 != 0 && scalars.iter().any(|scalar| scalar.size > 4)
}
