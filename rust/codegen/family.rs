//! The families of rows.

use std::path::Path;

use super::diagnostic::Diagnostic;

/// The keys that rows of a family need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An expression on `arity` inputs that fills an ATen stub.
    Pointwise { arity: usize },
    /// A stub filled by a `kernel`, or an `entry`, expression (`returns`) or Python function in place of ATen's function.
    Kernel,
    /// A kernel as in `Kernel`, or a stub filled by an expression over random draws.
    Random,
    /// ATen's own function unchanged (it only composes other ops or changes metadata), or what a `Kernel` row may have.
    Composite,
    /// ATen's function for the CPU, on the memory of the device mapped for the host.
    Host,
}

/// A family of ops with a common kernel signature and launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    pub name: String,
    pub kind: Kind,
}

/// Families without a folder of launchers.
const KINDS: [(&str, Kind); 9] = [
    ("nullary", Kind::Pointwise { arity: 0 }),
    ("unary", Kind::Pointwise { arity: 1 }),
    ("binary", Kind::Pointwise { arity: 2 }),
    ("ternary", Kind::Pointwise { arity: 3 }),
    ("quaternary", Kind::Pointwise { arity: 4 }),
    ("random", Kind::Random),
    ("view", Kind::Composite),
    ("composite", Kind::Composite),
    ("host", Kind::Host),
];

/// Families whose small calls ATen's CPU kernels compute, except in rows with `on_cpu: never`: one CPU kernel replaces
/// one OpenCL kernel (`cpp/cpu/host_call.h`). Pointwise families have stubs for that (`cpp/cpu/host_iteration.h`).
const SMALL_ON_CPU: [&str; 13] = [
    "copy",
    "foreach",
    "index",
    "loss",
    "matmul",
    "norm",
    "optimizer",
    "pool",
    "reduce",
    "resample",
    "scan",
    "softmax",
    "sort",
];

impl Family {
    /// Returns true if ATen's CPU kernels compute small calls of the family's ops on CPU devices.
    pub fn is_small_on_cpu(&self) -> bool {
        SMALL_ON_CPU.contains(&self.name.as_str())
    }

    /// Returns true if the CPU's functions change the strides of an `out` argument: padding and pooling do.
    pub fn restrides_out(&self) -> bool {
        ["pool", "resample"].contains(&self.name.as_str())
    }
}

/// Other folders next to those of the families: shared code, and the pointwise families.
const NO_FAMILIES: [&str; 3] = ["core", "pointwise", "tuning"];

/// The maximum number of inputs of a pointwise family.
pub const MAX_ARITY: usize = 4;

/// Names of the inputs in an expression, in order.
pub const INPUTS: [&str; MAX_ARITY] = ["a", "b", "c", "d"];

/// Every family. Each folder of launchers is one: a new family needs no line here.
pub fn families(launchers: &Path) -> Result<Vec<Family>, Diagnostic> {
    let unreadable = |error| Diagnostic::file(launchers, format!("cannot be read: {error}"));
    let mut folders = Vec::new();
    for entry in launchers.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        folders.extend(path.file_name().filter(|_| path.is_dir()).and_then(|name| name.to_str()).map(str::to_owned));
    }
    folders.sort();
    let is_family = |name: &String| !NO_FAMILIES.contains(&name.as_str()) && KINDS.iter().all(|(kind, _)| kind != name);
    let kernels = folders.into_iter().filter(is_family).map(|name| Family { name, kind: Kind::Kernel });
    Ok(KINDS.iter().map(|&(name, kind)| Family { name: name.to_owned(), kind }).chain(kernels).collect())
}
