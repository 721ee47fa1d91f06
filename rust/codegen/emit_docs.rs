//! Prints `coverage.md`: what the table covers, for people.

use std::collections::BTreeMap;

use super::family::FAMILIES;
use super::plan::{Plan, PlannedRow};

/// The text of `coverage.md`: a section for each family that has ops, ops in alphabetical order.
pub fn coverage(plan: &Plan) -> String {
    let overloads: usize = plan.rows.iter().map(|row| row.registrations.len()).sum();
    let mut text = format!(
        "# Supported operations\n\n\
         Generated from `native_functions.yaml`: {overloads} overloads. An op that is not listed, or a \
         dtype outside its list, falls back to the CPU.\n"
    );
    for family in FAMILIES {
        let rows: Vec<_> = plan.rows.iter().filter(|row| row.family == family).collect();
        let lines = lines(&rows);
        if !lines.is_empty() {
            text += &format!("\n## {}\n\n| op | overloads | dtypes |\n| --- | --- | --- |\n", family.name);
            text.extend(lines);
        }
    }
    text
}

/// One line for each op and set of dtypes.
fn lines(rows: &[&PlannedRow]) -> Vec<String> {
    let mut ops: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for row in rows {
        for registration in &row.registrations {
            let key = (registration.header.as_str(), row.dtypes.describe());
            ops.entry(key).or_default().push(format!("`{}`", registration.op));
        }
    }
    let line = |((op, dtypes), overloads): ((&str, String), Vec<String>)| {
        format!("| `{op}` | {} | {dtypes} |\n", overloads.join(", "))
    };
    ops.into_iter().map(line).collect()
}
