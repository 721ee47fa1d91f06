//! Checks the keys of a pointwise row that describe its operation.

use super::check::Checker;
use super::classes;
use super::dtypes::Dtypes;
use super::expr::{names, well_formed};
use super::family::{Family, INPUTS};
use super::nearest::nearest;
use super::plan::{ClassFrom, Distribution, Pointwise};
use super::table::Row;

/// Buffers of a pointwise kernel, as in `rust/kernels/layout.rs`.
const MAX_OPERANDS: usize = 5;
/// Outputs that `pointwise.cl` supports.
const MAX_OUTPUTS: usize = 2;
/// Inputs for which every pointwise kernel has parameters.
const FEWEST_SLOTS: usize = 2;

/// Random draws that an expression may use, as `random.cl` defines them.
pub(super) const DRAWS: [&str; 3] = ["UNIFORM", "OPEN_UNIFORM", "NORMAL"];
/// Parameters that a distribution may have.
const MAX_PARAMETERS: usize = 2;

impl Checker<'_> {
    /// The distribution of a random row with an expression.
    pub(super) fn distribution(&mut self, row: &Row) -> Option<Distribution> {
        let (Some(op), [exprs]) = (&row.op, row.exprs.as_slice()) else {
            self.report.error(row.line, "a distribution has an `op` and one expression");
            return None;
        };
        let expr = exprs.expr.as_ref()?;
        if let Err(reason) = well_formed(&expr.value) {
            self.report.error(expr.line, format!("not an expression: {reason}"));
        }
        if !names(&expr.value).iter().any(|name| DRAWS.contains(name)) {
            let hint = format!("these are: {}", DRAWS.join(", "));
            self.report.error_with_hint(expr.line, "the expression has no random draw", hint);
        }
        if let Some(extra) = row.scalars.get(MAX_PARAMETERS) {
            self.report.error(extra.line, format!("a distribution takes at most {MAX_PARAMETERS} scalars"));
        }
        let code = self.distributions;
        self.distributions += 1;
        let scalars = row.scalars.iter().map(|scalar| scalar.value.clone()).collect();
        Some(Distribution { code, name: op.value.clone(), scalars, expr: expr.value.clone() })
    }

    /// The operation of a pointwise row; `None` if the row shares one through its stub.
    pub(super) fn pointwise(&mut self, row: &Row, family: &Family, arity: usize, dtypes: Dtypes) -> Option<Pointwise> {
        if row.exprs.is_empty() {
            if row.entry.is_some() {
                self.report.error(row.line, format!("family `{}` needs an `expr`", family.name));
            }
            let useless = [
                row.scalars.first(),
                row.computes.first(),
                row.class_from.as_ref(),
                row.opmath.first(),
                row.part.as_ref(),
            ];
            if let Some(useless) = useless.into_iter().flatten().next() {
                self.report.error(useless.line, "this key needs an `expr`");
            }
            return None;
        }
        let name = row.op.as_ref().or(row.stub.as_ref())?.value.clone();
        let computes = self.dtypes(&row.computes);
        let computes = if computes.is_empty() { dtypes } else { computes };
        let exprs = classes::assign(row, family, arity, computes, &mut self.report);
        self.outputs(row, arity);
        let part = self.part(row);
        let class_from = self.class_from(row, arity);
        let opmath = self.opmath(row, arity);
        let code = self.operations;
        self.operations += 1;
        let scalars = row.scalars.iter().map(|scalar| scalar.value.clone()).collect();
        Some(Pointwise { code, name, arity, scalars, class_from, opmath, exprs, part, dtypes })
    }

    /// Checks that a stub has one expression for each output of its op, and that a kernel has enough buffers.
    fn outputs(&mut self, row: &Row, arity: usize) {
        let outputs = row.exprs.len();
        let op = row.op.as_ref().and_then(|name| self.index.get(&name.value));
        if let (Some(op), Some(stub)) = (op, &row.stub) {
            if op.outputs != outputs {
                let message = format!("outputs of `{}`: {}, expressions of the row: {outputs}", op.name, op.outputs);
                let hint = "`expr: [first, second]` has one for each output";
                self.report.error_with_hint(stub.line, message, hint);
            }
        }
        if outputs > MAX_OUTPUTS {
            self.report.error(row.line, format!("a pointwise kernel has at most {MAX_OUTPUTS} outputs"));
        } else if outputs + arity.max(FEWEST_SLOTS) > MAX_OPERANDS {
            let message = format!("a pointwise kernel has at most {MAX_OPERANDS} outputs and inputs");
            self.report.error(row.line, message);
        }
        if let (Some(list), true) = (row.foreach.first(), outputs > 1) {
            self.report.error(list.line, "only a row with one output can serve lists");
        }
    }

    /// The file of functions that the row's programs need in addition to the common ones.
    fn part(&mut self, row: &Row) -> Option<String> {
        let part = row.part.as_ref()?;
        if !self.sources.parts.contains(&part.value) {
            let hint = match nearest(&part.value, self.sources.parts.iter().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("rust/ops/pointwise has {}", self.sources.parts.join(", ")),
            };
            self.report.error_with_hint(part.line, format!("no file `{}.cl` with such functions", part.value), hint);
        }
        Some(part.value.clone())
    }

    fn opmath(&mut self, row: &Row, arity: usize) -> u32 {
        let mut mask = 0;
        for name in &row.opmath {
            let input = INPUTS.iter().take(arity).position(|input| *input == name.value);
            let scalar = row.scalars.iter().position(|scalar| scalar.value == name.value);
            match input.or(scalar.map(|index| INPUTS.len() + index)) {
                Some(bit) => mask |= 1 << bit,
                None => self.report.error(name.line, format!("no input or scalar `{}`", name.value)),
            }
        }
        mask
    }

    fn class_from(&mut self, row: &Row, arity: usize) -> ClassFrom {
        match row.class_from.as_ref().map(|operand| (operand.value.as_str(), operand.line)) {
            None => ClassFrom::Common,
            Some(("out", _)) => ClassFrom::Out,
            Some(("in0", _)) if arity > 0 => ClassFrom::In0,
            Some((other, line)) => {
                let hint = "name `out`, or `in0` if there is an input";
                self.report.error_with_hint(line, format!("no operand `{other}`"), hint);
                ClassFrom::Common
            }
        }
    }
}
