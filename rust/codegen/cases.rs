//! Renders operations as the `case` lines of the pointwise kernels' `switch`.
//!
//! The lines go into a function of `pointwise.cl` whose parameters are the inputs `a`, `b`, `c`, `d`
//! and the scalars `s0` to `s3`, one `T` each.

use super::expr::{self, names};
use super::plan::Pointwise;

/// Added to an operation's code to form the `case` for compute dtype bool, where bool differs from
/// the other integers.
pub const BOOL_CASES: usize = 1000;

/// Compute classes that have expressions of their own; float and double share theirs, and so do
/// the two complex types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Float,
    Int,
    Complex,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Float, Self::Int, Self::Complex];
}

/// The lines of one operation, empty where it has no expression for the class.
pub fn cases(op: &Pointwise, class: Class) -> String {
    let line = |code, expr: &Option<String>| expr.as_ref().map(|expr| case(op, code, expr));
    match class {
        Class::Float => line(op.code, &op.exprs.float).unwrap_or_default(),
        Class::Complex => line(op.code, &op.exprs.complex).unwrap_or_default(),
        Class::Int => {
            let int = line(op.code, &op.exprs.int);
            let bool = line(op.code + BOOL_CASES, &op.exprs.bool);
            int.into_iter().chain(bool).collect()
        }
    }
}

/// Returns true if the lines of one operation are a few instructions: those of others take long to compile.
pub fn is_short(op: &Pointwise, class: Class) -> bool {
    let exprs = match class {
        Class::Float => [&op.exprs.float, &None],
        Class::Complex => [&op.exprs.complex, &None],
        Class::Int => [&op.exprs.int, &op.exprs.bool],
    };
    exprs.into_iter().flatten().all(|expr| expr::is_short(expr))
}

fn case(op: &Pointwise, code: usize, expr: &str) -> String {
    let names = names(expr);
    let expr = expr::marked(expr);
    let used = op.scalars.iter().enumerate().filter(|(_, name)| names.contains(&name.as_str()));
    let scalars: String = used.map(|(i, name)| format!("const T {name} = s{i}; ")).collect();
    if scalars.is_empty() {
        format!("case {code}: return {expr};\n")
    } else {
        format!("case {code}: {{ {scalars}return {expr}; }}\n")
    }
}
