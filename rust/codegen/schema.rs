//! An index of ATen's ops, from the `native_functions.yaml` that torchgen ships inside torch.

use std::collections::BTreeMap;
use std::path::Path;

use marked_yaml::types::{MarkedMappingNode, MarkedScalarNode};
use marked_yaml::Node;

use super::diagnostic::Diagnostic;
use super::layout::Layout;
use super::nearest::nearest;
use super::yaml::load_list;

/// Dispatch keys whose kernel also works for a new device, the most specific first.
const REUSABLE_KEYS: [&str; 3] = ["CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"];

/// One op (one overload) of ATen.
#[derive(Debug)]
pub struct Op {
    /// Name with overload, `add.Tensor`.
    pub name: String,
    /// Number of values returned.
    pub outputs: usize,
    /// The op stores its results in arguments, one each.
    pub is_out: bool,
    /// Number of arguments that are tensors or lists of tensors.
    pub tensors: usize,
    /// Names of its arguments, in order.
    pub arguments: Vec<String>,
    /// The op is an out variant with a structured class.
    pub structured: bool,
    /// The structured out variant that computes this op.
    delegate: Option<String>,
    /// ATen computes arguments of the class's `impl` in its `meta`.
    pub precomputed: bool,
    /// ATen generates the CPU class from an inner loop.
    ufunc: bool,
    /// ATen composes the op from others, for every device.
    pub composite: bool,
    /// ATen's function or class for the CPU, without `structured_`.
    kernel: Option<String>,
    /// ATen's CPU functions for other layouts.
    sparse: Vec<(Layout, String)>,
}

impl Op {
    /// The name of the op's struct in `at::_ops`: `add_.Tensor` is `add__Tensor`.
    pub fn unambiguous_name(&self) -> String {
        self.name.replace('.', "_")
    }

    /// The stem of the op's headers in `ATen/ops`: `add_.Tensor` is in `add`,
    /// `__iand__` in `and`, `normal_functional` in `normal`.
    pub fn header(&self) -> &str {
        let name = self.base();
        if let Some(dunder) = name.strip_prefix("__").and_then(|n| n.strip_suffix("__")) {
            return dunder.strip_prefix('i').unwrap_or(dunder);
        }
        name.strip_suffix('_').or(name.strip_suffix("_functional")).unwrap_or(name)
    }

    /// The op works in place on its first argument.
    pub fn is_inplace(&self) -> bool {
        let name = self.base();
        name.starts_with("__i") || (name.ends_with('_') && !name.ends_with("__"))
    }

    /// ATen's C++ implementation that also works for a new device, if there is one.
    pub fn implementation(&self) -> Option<String> {
        let structured = if self.structured { "structured_" } else { "" };
        if self.ufunc {
            return Some(format!("at::native::{structured}ufunc_{}_CPU", self.base()));
        }
        self.kernel.as_ref().map(|kernel| format!("at::native::{structured}{kernel}"))
    }

    /// ATen's CPU function that also works for tensors of another layout on a new device, if there is one.
    pub fn sparse_implementation(&self, layout: Layout) -> Option<String> {
        let (_, kernel) = self.sparse.iter().find(|(other, _)| *other == layout)?;
        Some(format!("at::native::{kernel}"))
    }

    pub fn base(&self) -> &str {
        base_name(&self.name)
    }
}

/// The variants of a structured op.
#[derive(Debug)]
pub struct Group<'a> {
    /// The variant whose class the others share.
    pub out: &'a Op,
    /// The existing functional and in-place variants.
    pub delegating: Vec<&'a Op>,
}

/// All ops of ATen by name.
#[derive(Debug)]
pub struct Index {
    ops: BTreeMap<String, Op>,
    /// Ops that torchgen derives, with their original op.
    derived: BTreeMap<String, String>,
}

impl Index {
    /// Reads ATen's `native_functions.yaml`.
    pub fn parse(file: &Path, source: &str) -> Result<Self, Diagnostic> {
        let mut index = Self { ops: BTreeMap::new(), derived: BTreeMap::new() };
        for entry in load_list(file, source)? {
            let op = entry.get_scalar("func").and_then(|func| parse_op(func.as_str(), &entry));
            let Some(op) = op else {
                let line = super::yaml::line_of(entry.span());
                return Err(Diagnostic::at(file, line, "an ATen op without a readable `func`"));
            };
            if let Some(derived) = entry.get_scalar("autogen") {
                for name in derived.as_str().split(',') {
                    index.derived.insert(name.trim().to_owned(), op.name.clone());
                }
            }
            index.ops.insert(op.name.clone(), op);
        }
        Ok(index)
    }

    /// The op with a name such as `add.Tensor`.
    pub fn get(&self, name: &str) -> Option<&Op> {
        self.ops.get(name)
    }

    /// The structured group of the op.
    pub fn group(&self, op: &Op) -> Option<Group<'_>> {
        let out = if op.structured { &op.name } else { op.delegate.as_ref()? };
        Some(Group {
            out: self.get(out)?,
            delegating: self.ops.values().filter(|o| o.delegate.as_ref() == Some(out)).collect(),
        })
    }

    /// The header in `ATen/ops` that declares `at::<function>`, if ATen has such a function.
    pub fn header_of(&self, function: &str) -> Option<&str> {
        let base = function.strip_suffix("_outf").or(function.strip_suffix("_out")).unwrap_or(function);
        let is_variant = |op: &&Op| [function, base].contains(&op.base());
        self.ops.values().find(is_variant).map(Op::header)
    }

    /// The op's overloads, including in-place and out= variants, for which ATen has a function for a layout.
    pub fn overloads(&self, op: &Op, layout: Layout) -> impl Iterator<Item = &Op> {
        let stem = op.base().trim_end_matches('_').to_owned();
        let is_overload = move |other: &&Op| other.base().trim_end_matches('_') == stem;
        self.ops.values().filter(is_overload).filter(move |other| other.sparse.iter().any(|(has, _)| *has == layout))
    }

    /// The existing function of ATen closest to an unknown name.
    pub fn suggest_function(&self, name: &str) -> Option<&str> {
        nearest(name, self.ops.values().map(Op::base))
    }

    /// A hint with the existing name closest to an unknown name.
    pub fn suggest(&self, name: &str) -> String {
        if let Some(origin) = self.derived.get(name) {
            return format!("torchgen derives it from `{origin}`: name that op");
        }
        let overloads: Vec<_> = self.ops.keys().filter(|op| base_name(op) == name).collect();
        if !overloads.is_empty() {
            let names: Vec<_> = overloads.iter().map(|op| format!("`{op}`")).collect();
            return format!("name an overload: {}", names.join(", "));
        }
        match nearest(name, self.ops.keys().map(String::as_str)) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "names are those of torch's native_functions.yaml".to_owned(),
        }
    }
}

fn base_name(name: &str) -> &str {
    name.split_once('.').map_or(name, |(base, _)| base)
}

fn parse_op(func: &str, entry: &MarkedMappingNode) -> Option<Op> {
    let (name, arguments) = func.split_once('(')?;
    let (arguments, _) = arguments.split_once("->")?;
    let (_, returns) = func.rsplit_once("->")?;
    let dispatch = entry.get_mapping("dispatch");
    let text = |key| entry.get_scalar(key).map(|value| value.as_str().to_owned());
    Some(Op {
        name: name.trim().to_owned(),
        outputs: count_returns(returns.trim()),
        is_out: arguments
            .rsplit_once("*,")
            .is_some_and(|(_, named)| named.matches("!)").count() == count_returns(returns.trim())),
        tensors: arguments.split(',').filter(|argument| argument.trim().starts_with("Tensor")).count(),
        arguments: argument_names(arguments),
        structured: text("structured").is_some_and(|value| value == "True"),
        delegate: text("structured_delegate"),
        precomputed: entry.get_sequence("precomputed").is_some(),
        ufunc: entry.get_node("ufunc_inner_loop").is_some(),
        composite: dispatch.is_none_or(|d| d.keys().any(|keys| serves(keys, "CompositeImplicitAutograd"))),
        kernel: dispatch.and_then(|dispatch| kernel_of(dispatch, &REUSABLE_KEYS)),
        sparse: [Layout::SparseCoo, Layout::SparseCsr]
            .into_iter()
            .filter_map(|layout| Some((layout, kernel_of(dispatch?, &[layout.cpu_key()])?)))
            .collect(),
    })
}

/// The argument names of `(Tensor self, int[] dims=[0,1], *, Tensor(a!) out)` are `self`, `dims` and `out`.
fn argument_names(arguments: &str) -> Vec<String> {
    let mut depth = 0_i32;
    let parts = arguments.split(|c| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        c == ',' && depth <= 0
    });
    let name = |part: &str| {
        let declared = part.split_once('=').map_or(part, |(declared, _)| declared).trim_end();
        let (_, name) = declared.trim_end_matches(')').rsplit_once(' ')?;
        Some(name.to_owned())
    };
    parts.filter_map(name).filter(|name| name != "*").collect()
}

/// `Tensor` counts as one value, `(Tensor, Tensor)` as two, `()` as none.
fn count_returns(returns: &str) -> usize {
    match returns.strip_prefix('(').and_then(|list| list.strip_suffix(')')) {
        None => 1,
        Some("") => 0,
        Some(list) => list.split(',').count(),
    }
}

/// The kernel for the first of some keys; a key of `dispatch` may list several (`CPU, CUDA: add_out`).
fn kernel_of(dispatch: &MarkedMappingNode, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|wanted| {
        let (_, kernel) = dispatch.iter().find(|(keys, _)| serves(keys, wanted))?;
        match kernel {
            Node::Scalar(name) => Some(name.as_str().to_owned()),
            _ => None,
        }
    })
}

fn serves(keys: &MarkedScalarNode, wanted: &str) -> bool {
    keys.as_str().split(',').any(|key| key.trim() == wanted)
}
