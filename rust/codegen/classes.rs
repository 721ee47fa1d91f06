//! Assigns a row's expressions to compute classes.

use super::diagnostic::Report;
use super::dtypes::{Dtypes, BOOL, COMPLEX, FLOATING, INTEGRAL};
use super::expr::{float_part, names, real_part, well_formed};
use super::family::{Family, INPUTS};
use super::plan::Exprs;
use super::table::{OutputExprs, Row};
use super::yaml::Text;

/// The expressions of each class in which the kernel computes, one set for each output.
///
/// `expr` is used for every class without a separate expression, `expr_int` also for bool. Integers and complex numbers
/// (pairs in OpenCL C) need a separate one if `expr` would have another meaning for them.
pub fn assign(row: &Row, family: &Family, arity: usize, computes: Dtypes, report: &mut Report) -> Vec<Exprs> {
    check_inputs(row, family, arity, report);
    row.exprs.iter().map(|exprs| assign_output(row, exprs, computes, report)).collect()
}

fn assign_output(row: &Row, exprs: &OutputExprs, computes: Dtypes, report: &mut Report) -> Exprs {
    let float = computes.intersects(FLOATING);
    let int = computes.intersects(INTEGRAL) || computes.intersects(BOOL);
    let complex = computes.intersects(COMPLEX);
    let int_from_expr = int && exprs.int.is_none();
    let complex_from_expr = complex && exprs.complex.is_none();

    let claims = [
        (float, "floating", "`expr`"),
        (int_from_expr, "integers", "`expr_int` or `expr`"),
        (complex_from_expr, "complex", "`expr_complex` or `expr`"),
    ];
    for (claimed, what, keys) in claims {
        if claimed && exprs.expr.is_none() {
            report.error(row.line, format!("the row claims {what} but has no {keys}"));
        }
    }
    let uses = [
        (float || int_from_expr || complex_from_expr, &exprs.expr, "expr"),
        (int, &exprs.int, "expr_int"),
        (complex, &exprs.complex, "expr_complex"),
    ];
    for (used, expr, key) in uses {
        if let (false, Some(expr)) = (used, expr) {
            report.error(expr.line, format!("`{key}` is given but no dtype of the row uses it"));
        }
    }
    if let Some(expr) = &exprs.expr {
        if int_from_expr {
            check_integer_form(expr, report);
        }
        if complex_from_expr {
            check_complex_form(expr, report);
        }
    }

    let expr = exprs.expr.as_ref();
    Exprs {
        float: pick(float, expr),
        int: pick(int, exprs.int.as_ref().or(expr)),
        complex: pick(complex, exprs.complex.as_ref().or(expr)),
    }
}

/// The expression on one line, for any YAML style.
fn pick(used: bool, expr: Option<&Text>) -> Option<String> {
    let expr = expr.filter(|_| used)?;
    Some(expr.value.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn check_integer_form(expr: &Text, report: &mut Report) {
    if let Some(part) = float_part(&expr.value) {
        report.error_with_hint(
            expr.line,
            format!("`{part}` has no integer form, and the row claims integers without `expr_int`"),
            "give `computes: floating` if ATen converts integers before, otherwise `expr_int`",
        );
    }
}

fn check_complex_form(expr: &Text, report: &mut Report) {
    if let Some(part) = real_part(&expr.value) {
        report.error_with_hint(
            expr.line,
            format!("`{part}` works on the parts of a complex number separately"),
            "the row claims complex: give `expr_complex`, or leave complex out of `dtypes`",
        );
    }
}

/// Checks that every input of the family is read, and no other name.
fn check_inputs(row: &Row, family: &Family, arity: usize, report: &mut Report) {
    let (inputs, beyond) = INPUTS.split_at(arity.min(INPUTS.len()));
    let mut read = Vec::new();
    for expr in row.exprs.iter().flat_map(OutputExprs::given) {
        if let Err(reason) = well_formed(&expr.value) {
            report.error(expr.line, format!("not an expression: {reason}"));
        }
        let names = names(&expr.value);
        if let Some(name) = names.iter().find(|name| beyond.contains(name)) {
            let message = format!("`{name}` is not an input of family `{}`", family.name);
            report.error(expr.line, message);
        }
        read.extend(names);
    }
    if let Some(name) = inputs.iter().find(|name| !read.contains(name)) {
        let message = format!("no expression reads input `{name}` of family `{}`", family.name);
        report.error(row.line, message);
    }
}
