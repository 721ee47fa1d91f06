//! Composites that a row defines as one C++ expression of ATen's functions, or as a Python function.

use std::collections::BTreeSet;

use super::expr::{self, is_identifier};
use super::nearest::nearest;
use super::plan::Declaration;
use super::schema::{Index, Op};

/// Names other than arguments and ATen's functions that an expression may use.
const KNOWN: [&str; 12] =
    ["at", "auto", "bool", "c10", "const", "double", "false", "int64_t", "nullopt", "static_cast", "std", "true"];

/// The function for an expression, or the reason why it is invalid, with a hint.
pub fn expression(name: String, text: &str, op: &Op, index: &Index) -> Result<Declaration, (String, String)> {
    expr::balanced(text).map_err(|reason| (format!("not an expression: {reason}"), STATEMENTS_HINT.to_owned()))?;
    let mut headers = BTreeSet::new();
    for (before, word) in expr::words_in_place(text) {
        if before.ends_with("at::") && is_function(word) {
            let header = index.header_of(word).ok_or_else(|| {
                let hint = match index.suggest_function(word) {
                    Some(known) => format!("did you mean `at::{known}`?"),
                    None => "ATen's functions have the names of its operators".to_owned(),
                };
                (format!("no function `at::{word}`"), hint)
            })?;
            headers.insert(header.to_owned());
            continue;
        }
        // A member, a constant such as `at::kLong`, or a number.
        if before.ends_with(['.', ':']) || !is_identifier(word) || KNOWN.contains(&word) {
            continue;
        }
        if !op.arguments.iter().any(|argument| argument == word) {
            let hint = match nearest(word, op.arguments.iter().map(String::as_str)) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("the arguments of `{}` are: {}", op.name, op.arguments.join(", ")),
            };
            return Err((format!("`{word}` is not an argument"), hint));
        }
    }
    Ok(Declaration::Expression {
        name,
        arguments: op.arguments.clone(),
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        headers,
    })
}

/// Returns true for a name that is neither a type, such as `at::Tensor`, nor a constant, such as `at::kLong`.
fn is_function(name: &str) -> bool {
    let is_upper = |at: usize| name.get(at..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    !(is_upper(0) || name.starts_with('k') && is_upper(1))
}

const STATEMENTS_HINT: &str = "if it needs statements, write an `entry` in cpp/native";
