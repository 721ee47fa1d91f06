//! The families that a row can belong to.

/// The keys that a row of a family must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An expression on `arity` inputs that fills an ATen stub.
    Pointwise { arity: usize },
    /// A stub filled by a `kernel`, or an `entry` in place of ATen's own function.
    Kernel,
    /// As `Kernel`, or a stub filled by an expression over random draws.
    Random,
    /// ATen's own function as it is (it only composes other ops or touches metadata), or an `entry`.
    Composite,
    /// ATen's function for the CPU, on the memory of the device mapped for the host.
    Host,
}

/// A family of ops: those that share one kernel signature and one launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
}

const fn pointwise(name: &'static str, arity: usize) -> Family {
    Family { name, kind: Kind::Pointwise { arity } }
}

const fn kernel(name: &'static str) -> Family {
    Family { name, kind: Kind::Kernel }
}

const fn composite(name: &'static str) -> Family {
    Family { name, kind: Kind::Composite }
}

/// Every family. A new one is one line here beside its `.cl` and its launcher.
pub const FAMILIES: [Family; 30] = [
    pointwise("nullary", 0),
    pointwise("unary", 1),
    pointwise("binary", 2),
    pointwise("ternary", 3),
    pointwise("quaternary", 4),
    kernel("reduce"),
    kernel("scan"),
    kernel("sort"),
    kernel("softmax"),
    kernel("matmul"),
    kernel("conv"),
    kernel("pool"),
    kernel("norm"),
    kernel("index"),
    kernel("embedding"),
    kernel("cat"),
    kernel("copy"),
    kernel("factory"),
    Family { name: "random", kind: Kind::Random },
    kernel("loss"),
    kernel("optimizer"),
    kernel("rnn"),
    kernel("pad"),
    kernel("upsample"),
    kernel("grid"),
    kernel("attention"),
    kernel("foreach"),
    composite("view"),
    composite("composite"),
    Family { name: "host", kind: Kind::Host },
];

/// The most inputs a pointwise family has.
pub const MAX_ARITY: usize = 4;

/// Names of the inputs in an expression, in order.
pub const INPUTS: [&str; MAX_ARITY] = ["a", "b", "c", "d"];

/// The family of a name.
pub fn find(name: &str) -> Option<Family> {
    FAMILIES.iter().copied().find(|family| family.name == name)
}
