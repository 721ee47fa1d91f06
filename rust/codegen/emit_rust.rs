//! Prints the Rust files from the table: `distributions.rs`, and `pointwise_table.rs`, the pointwise operations.
//!
//! The latter is included in a scope with a struct `PointwiseRow`:
//!
//! | field          | type                   | holds                                              |
//! | -------------- | ---------------------- | -------------------------------------------------- |
//! | `op`           | `PointwiseOp`          | the operation, equal to the row's position         |
//! | `name`         | `&'static str`         | `add.Tensor`, for messages                         |
//! | `arity`        | integer                | number of inputs, 0 to 4                           |
//! | `scalars`      | `&'static [&str]`      | names of the scalar parameters                     |
//! | `outputs`      | integer                | number of outputs                                  |
//! | `part`         | integer                | its index in `PARTS`                               |
//! | `expr`         | `Option<&'static str>` | for the first output, for float and double         |
//! | `expr_int`     | same                   | for `long`                                         |
//! | `expr_complex` | same                   | for the complex types                              |
//! | `dtypes`       | `u64`                  | dtypes of the row, bit n for `c10::ScalarType` n   |
//! | `cases`        | `[&'static str; 3]`    | its `case` lines, in the order of `ExprClass`      |
//! | `short`        | `[bool; 3]`            | whether these are a few instructions, same order   |
//! | `narrow`       | `bool`                 | whether `int` suffices for integers of 32 bits     |

use std::collections::BTreeSet;
use std::fmt::Write;

use super::cases::{cases, distribution_case, is_narrow, is_short, Class, OUTPUT_CASES};
use super::plan::{Plan, Pointwise};

/// The content of `pointwise_table.rs`.
pub fn pointwise_table(plan: &Plan) -> String {
    let variants = plan.pointwise().map(|op| format!("    /// `{}`\n    {} = {},\n", op.name, op.rust_name(), op.code));
    let parts: Vec<&str> =
        plan.pointwise().filter_map(|op| op.part.as_deref()).collect::<BTreeSet<_>>().into_iter().collect();
    let rows = plan.pointwise().map(|op| row(op, &parts));
    let texts = parts.iter().map(|part| format!("    include_str!(concat!(env!(\"OUT_DIR\"), \"/cl/{part}.cl\")),\n"));
    format!(
        "// Generated from native_functions.yaml by rust/codegen.

/// Operations of the pointwise kernels; the values are the `case`s of their `switch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointwiseOp {{
{variants}}}

/// Compute classes with separate expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExprClass {{
    /// `float` and `double`
    Float,
    /// `long`
    Int,
    /// `float2` and `double2`
    Complex,
}}

/// The index of an output, times this, is added to a code.
pub const OUTPUT_CASES: u32 = {OUTPUT_CASES};

/// Functions that only the programs of some rows have; the first part is for rows that need none.
pub static PARTS: &[&str] = &[
    \"\",
{texts}];

/// All operations; the position is the code.
pub static POINTWISE: &[PointwiseRow] = &[
{rows}];
",
        variants = variants.collect::<String>(),
        rows = rows.collect::<String>(),
        texts = texts.collect::<String>(),
    )
}

/// The content of `distributions.rs`: the rows' part of the random kernels' source.
pub fn distributions(plan: &Plan) -> String {
    let names: Vec<_> = plan.distributions().map(|distribution| distribution.name.as_str()).collect();
    let codes: String =
        plan.distributions().map(|each| format!("#define RANDOM_{} {}\n", each.identifier(), each.code)).collect();
    let cases: String = plan.distributions().map(distribution_case).collect();
    format!(
        "// Generated from native_functions.yaml by rust/codegen.

/// Ops that draw from a distribution; the position is the code.
pub static NAMES: &[&str] = &{names:?};

/// Their codes as the kernels' macros.
pub const CODES: &str = {codes:?};

/// The `case` lines.
pub const CASES: &str = {cases:?};
"
    )
}

fn row(op: &Pointwise, parts: &[&str]) -> String {
    let mut text = String::from("    PointwiseRow {\n");
    let mut field = |name: &str, value: String| {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "        {name}: {value},");
    };
    field("op", format!("PointwiseOp::{}", op.rust_name()));
    field("name", format!("{:?}", op.name));
    field("arity", op.arity.to_string());
    field("scalars", format!("&{:?}", op.scalars));
    field("outputs", op.exprs.len().to_string());
    let part = op.part.as_deref().and_then(|part| parts.iter().position(|known| *known == part));
    field("part", part.map_or(0, |index| index + 1).to_string());
    let first = op.exprs.first();
    field("expr", format!("{:?}", first.and_then(|exprs| exprs.float.as_ref())));
    field("expr_int", format!("{:?}", first.and_then(|exprs| exprs.int.as_ref())));
    field("expr_complex", format!("{:?}", first.and_then(|exprs| exprs.complex.as_ref())));
    field("dtypes", format!("{:#x}", op.dtypes.mask()));
    field("cases", format!("{:?}", Class::ALL.map(|class| cases(op, class))));
    field("short", format!("{:?}", Class::ALL.map(|class| is_short(op, class))));
    field("narrow", is_narrow(op).to_string());
    text + "    },\n"
}
