//! Checks the scalars of a row: an expression must use those that the stub passes, each by the name that the row gives.

use super::check::Checker;
use super::expr::{called, is_identifier, names};
use super::family::{Family, Kind, INPUTS};
use super::nearest::nearest;
use super::operation::DRAWS;
use super::table::{OutputExprs, Row};

/// Scalar parameters that a pointwise kernel takes (`s0` to `s3`); elu_backward needs all four.
const MAX_SCALARS: usize = 4;

/// Names with another meaning in a kernel's `case`.
const RESERVED: [&str; 7] = ["T", "TV", "TI", "s0", "s1", "s2", "s3"];

/// Types, constants and the result's dtype; the kernels' sources define further constants as macros.
const WORDS: &str = "DTYPE INFINITY NAN T TI TR TV bool char double false float int long short true uchar uint ulong \
    ushort";

impl Checker<'_> {
    /// Checks the names of a row's scalars, and that expressions, row and stub agree on them.
    pub(super) fn scalars(&mut self, row: &Row, family: &Family) {
        let mut seen = Vec::new();
        for scalar in &row.scalars {
            let name = scalar.value.as_str();
            if !is_identifier(name) {
                self.report.error(scalar.line, format!("`{name}` is not an identifier"));
            }
            if INPUTS.contains(&name) || RESERVED.contains(&name) || seen.contains(&name) {
                self.report.error(scalar.line, format!("the name `{name}` is taken"));
            }
            seen.push(name);
        }
        if let Some(extra) = row.scalars.get(MAX_SCALARS) {
            let message = format!("a pointwise kernel takes at most {MAX_SCALARS} scalars");
            self.report.error(extra.line, message);
        }
        if row.exprs.is_empty() || !matches!(family.kind, Kind::Pointwise { .. } | Kind::Random) {
            return;
        }
        self.used_scalars(row, family);
        self.passed_scalars(row);
    }

    /// Checks that expressions use all scalars of the row, and no other names.
    fn used_scalars(&mut self, row: &Row, family: &Family) {
        let scalars: Vec<_> = row.scalars.iter().map(|scalar| scalar.value.as_str()).collect();
        let draws = if family.kind == Kind::Random { DRAWS.as_slice() } else { &[] };
        let mut used = Vec::new();
        for expr in row.exprs.iter().flat_map(OutputExprs::given) {
            let names = names(&expr.value);
            let is_known = |name: &str| {
                [&INPUTS, draws, &scalars].concat().contains(&name)
                    || WORDS.split_whitespace().chain(self.sources.macros()).any(|known| known == name)
                    || called(&expr.value).any(|function| function == name)
            };
            if let Some(name) = names.iter().find(|name| !is_known(name)) {
                let hint = match nearest(name, scalars.iter().copied().chain(WORDS.split_whitespace())) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => "name the stub's parameters in `scalars`, in their order".to_owned(),
                };
                self.report.error_with_hint(expr.line, format!("`{name}` is no input, scalar or constant"), hint);
            }
            used.extend(names);
        }
        for scalar in row.scalars.iter().filter(|scalar| !used.contains(&scalar.value.as_str())) {
            let message = format!("no expression uses the scalar `{}`", scalar.value);
            self.report.error_with_hint(
                scalar.line,
                message,
                "use it in an expression, or remove it from `scalars` if it is not passed",
            );
        }
    }

    /// Checks that the row names as many scalars as its stub passes: a kernel would read others as zeros.
    fn passed_scalars(&mut self, row: &Row) {
        let Some(stub) = &row.stub else { return };
        let Some(passed) = self.stubs.get(&stub.value).and_then(|declared| declared.scalars.as_ref()) else { return };
        if passed.len() != row.scalars.len() {
            let (passes, names) = (passed.len(), row.scalars.len());
            let message = format!("scalars that `{}` passes: {passes}, that the row names: {names}", stub.value);
            let hint = match passed.as_slice() {
                [] => "the stub passes none: remove `scalars`".to_owned(),
                _ => format!("`scalars` names the stub's parameters in their order: {}", passed.join(", ")),
            };
            self.report.error_with_hint(stub.line, message, hint);
        }
    }
}
