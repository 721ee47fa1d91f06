//! Prints `kernel_entries.rs`: for each kernel its name, and the Rust struct of its arguments.

use std::fmt::Write;

use super::kernels::{flat, Kernel, Kind, Parameter};
use super::packed::{has_gap, packed_struct, scalars, Packed};
use super::structs::TYPES;

/// The parts of `kernel_entries.rs`.
#[derive(Default)]
pub struct Entries {
    text: String,
    names: String,
    /// Rows of `PACKED`.
    packed: String,
    /// Kernels so far: their names, and their parameters.
    kernels: Vec<(String, Vec<Parameter>)>,
    groups: Vec<String>,
}

impl Entries {
    /// A kernel may be declared once for each class of devices; kernels with the same parameters share a struct.
    pub fn add(&mut self, module: &str, kernel: &Kernel) -> Result<(), String> {
        let Kernel { name, parameters, .. } = kernel;
        if let Some((_, other)) = self.kernels.iter().find(|(other, _)| other == name) {
            return if other == parameters {
                Ok(())
            } else {
                Err(format!("another kernel {name} has other parameters"))
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
                "/// Arguments of `{name}`, the same as another kernel's.\npub type {}{lifetime} = {arguments}{lifetime};",
                camel(name)
            );
        }
        self.list(module, name, &scalars(parameters, ""));
        if same.is_none() {
            self.groups(parameters);
            self.print(&arguments, &format!("Arguments of `{name}` of `{module}.cl`."), parameters);
            self.implement(&arguments, parameters);
        }
        self.kernels.push((name.clone(), parameters.clone()));
        Ok(())
    }

    /// A row of `PACKED`: the struct of a kernel's scalars, and the offset of each.
    fn list(&mut self, module: &str, kernel: &str, scalars: &[Packed]) {
        let Some(declaration) = packed_struct(kernel, scalars) else { return };
        let (mut offset, mut listed) = (0, String::new());
        for scalar in scalars {
            let parts = scalar.scalars();
            for (path, kind) in &parts {
                let _ = write!(listed, "(\"{path}\", \"{kind}\", {offset}), ");
                offset += scalar.size / parts.len();
            }
        }
        let size = offset + if has_gap(scalars) { 4 } else { 0 };
        let _ = writeln!(
            self.packed,
            "    SharedStruct {{ file: \"{module}\", name: \"{kernel}_packed\", size: {size}, declarations: \"{declaration}\", \
             scalars: &[{listed}] }},"
        );
    }

    /// The structs of the groups in a list, each once.
    fn groups(&mut self, parameters: &[Parameter]) {
        for Parameter { name, declared, kind } in parameters {
            let Kind::Group(group) = kind else { continue };
            self.groups(group);
            if !self.groups.contains(declared) {
                self.groups.push(declared.clone());
                self.print(&camel(&format!("{name}_arguments")), &format!("Arguments in `{declared}`."), group);
            }
        }
    }

    fn print(&mut self, name: &str, docs: &str, parameters: &[Parameter]) {
        let text = &mut self.text;
        let _ = writeln!(
            text,
            "\n/// {docs}\n#[derive(Clone, Copy, Debug)]\n#[allow(missing_docs, reason = \"the kernel describes them\")]\npub struct {name}{} {{",
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
                Kind::Open => continue,
            };
            let _ = writeln!(text, "    pub {name}: {rust},");
        }
        text.push_str("}\n");
    }

    fn implement(&mut self, name: &str, parameters: &[Parameter]) {
        let scalars = scalars(parameters, "self");
        let mut bound = String::new();
        bind(parameters, "self", &mut bound);
        let anonymous = lifetime(parameters).replace("'a", "'_");
        let text = &mut self.text;
        let _ = writeln!(
            text,
            "\nimpl Arguments for {name}{anonymous} {{\n    fn bind<R>(&self, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {{"
        );
        if scalars.is_empty() {
            let _ = writeln!(text, "        run(&[{bound}])\n    }}\n}}");
            return;
        }
        let pad = has_gap(&scalars);
        let fields: String = scalars.iter().map(|scalar| format!("{}, ", scalar.field)).collect();
        let values: String = scalars
            .iter()
            .map(|scalar| format!("{}: {}, ", scalar.field.split(':').next().unwrap_or_default(), scalar.from))
            .collect();
        let size = scalars.iter().map(|scalar| scalar.size).sum::<usize>() + if pad { 4 } else { 0 };
        let (pad_field, pad_value) = if pad { ("pad: i32", "pad: 0") } else { ("", "") };
        let _ = writeln!(
            text,
            "        #[repr(C)]\n        #[derive(Clone, Copy, Pod, Zeroable)]\n        struct Packed {{ {fields}{pad_field} }}\n        \
             const _: () = assert!(size_of::<Packed>() == {size});\n        \
             let packed = Packed {{ {values}{pad_value} }};\n        \
             run(&[{bound}Arg::of(&packed)])\n    }}"
        );
        let dtypes: Vec<_> = scalars.iter().filter_map(|scalar| scalar.from.strip_suffix(".code()")).collect();
        if !dtypes.is_empty() {
            let _ = writeln!(
                text,
                "\n    fn rare_dtype(&self) -> Option<DType> {{\n        \
                 [{}].into_iter().find(|dtype| dtype.is_rare())\n    }}",
                dtypes.join(", ")
            );
        }
        text.push_str("}\n");
    }

    pub fn text(self) -> String {
        format!(
            "// Generated from the kernels by rust/codegen.\n\n{}{}\n\
             /// The structs in which kernels' scalars are passed.\npub static PACKED: &[SharedStruct] = &[\n{}];\n",
            self.names, self.text, self.packed
        )
    }
}

/// The arguments other than scalars, in the kernel's order.
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
            Kind::DType | Kind::Number(_) | Kind::Value(_) | Kind::Open => Ok(()),
        };
    }
}

/// `<'a>` if a parameter borrows.
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
