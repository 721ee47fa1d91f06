//! Renders operations as the `case` lines of the pointwise kernels' `switch`.
//!
//! The lines go into a function of `pointwise.cl` whose parameters are the inputs `a`, `b`, `c`, `d` and the scalars
//! `s0` to `s3`, each a `T`.

use super::expr::{self, names};
use super::plan::{Distribution, Exprs, Pointwise};

/// The index of an output, times this, is added to an operation's code.
pub const OUTPUT_CASES: usize = 1000;

/// Compute classes with separate expressions; float and double share theirs, and so do the two complex types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Float,
    Int,
    Complex,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Float, Self::Int, Self::Complex];
}

/// The lines of one operation, empty if it has no expression for the class.
pub fn cases(op: &Pointwise, class: Class) -> String {
    let mut lines = String::new();
    for (output, exprs) in op.exprs.iter().enumerate() {
        let code = op.code + output * OUTPUT_CASES;
        lines.extend(expr_for(exprs, class).map(|expr| case(&op.scalars, code, expr)));
    }
    lines
}

/// Returns true if the lines of one operation are a few instructions: others take long to compile.
pub fn is_short(op: &Pointwise, class: Class) -> bool {
    op.exprs.iter().filter_map(|exprs| expr_for(exprs, class)).all(expr::is_short)
}

/// Returns true if the expressions for integers are correct in `int`, if no operand and no scalar has more bits.
pub fn is_narrow(op: &Pointwise) -> bool {
    let mut given = op.exprs.iter().filter_map(|exprs| expr_for(exprs, Class::Int)).peekable();
    given.peek().is_some() && given.all(expr::is_narrow)
}

/// The line of a distribution, in a function of `random.cl` in which the scalars are `s0` and `s1`.
pub fn distribution_case(distribution: &Distribution) -> String {
    case(&distribution.scalars, distribution.code, &distribution.expr)
}

fn expr_for(exprs: &Exprs, class: Class) -> Option<&str> {
    match class {
        Class::Float => exprs.float.as_deref(),
        Class::Int => exprs.int.as_deref(),
        Class::Complex => exprs.complex.as_deref(),
    }
}

fn case(scalars: &[String], code: usize, expr: &str) -> String {
    let names = names(expr);
    let expr = expr::marked(expr);
    let used = scalars.iter().enumerate().filter(|(_, name)| names.contains(&name.as_str()));
    let scalars: String = used.map(|(i, name)| format!("const T {name} = s{i}; ")).collect();
    if scalars.is_empty() {
        format!("case {code}: return {expr};\n")
    } else {
        format!("case {code}: {{ {scalars}return {expr}; }}\n")
    }
}
