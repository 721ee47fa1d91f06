//! From the ops that a row names to the overloads that have to be registered.

use super::diagnostic::Report;
use super::plan::{Form, Registration};
use super::schema::{Group, Index, Op};
use super::table::Row;
use super::yaml::Text;

/// Overloads that the row registers: the whole group of a structured op, else the ops that it names.
/// Each comes with the line of the name that brought it in.
pub fn registrations(row: &Row, index: &Index, report: &mut Report) -> Vec<(usize, Registration)> {
    let mut found = Vec::new();
    for (i, name) in row.op.iter().chain(&row.also).enumerate() {
        let Some(op) = index.get(&name.value) else {
            let message = format!("unknown op `{}`", name.value);
            report.error_with_hint(name.line, message, index.suggest(&name.value));
            continue;
        };
        let resolved = match index.group(op) {
            Some(_) if i > 0 => {
                Err((format!("`{}` is structured and cannot stand in `also`", op.name), "give it a row of its own"))
            }
            Some(group) => structured(row, op, &group),
            None => plain(row, op).map(|registration| vec![registration]),
        };
        match resolved {
            Ok(list) => found.extend(list.into_iter().map(|r| (name.line, r))),
            Err((message, hint)) => report.error_with_hint(name.line, message, hint),
        }
    }
    found
}

/// What is wrong with an op, and how to mend it.
type Problem = (String, &'static str);

fn structured(row: &Row, op: &Op, group: &Group<'_>) -> Result<Vec<Registration>, Problem> {
    let out = group.out;
    let class = match (&row.entry, out.implementation()) {
        (Some(entry), _) => ours(entry),
        (None, _) if out.precomputed => {
            let message = format!("ATen precomputes arguments of `{}`", out.name);
            return Err((message, "give an `entry` whose `impl` takes the arguments as they are"));
        }
        (None, Some(class)) => class,
        (None, None) => return Err(no_kernel(op)),
    };
    let outputs = out.outputs;
    let delegating = group.delegating.iter().map(|op| {
        let form = if op.is_inplace() { Form::Inplace } else { Form::Functional { outputs } };
        registration(op, form, class.clone())
    });
    Ok(delegating.chain([registration(out, Form::Out { outputs }, class.clone())]).collect())
}

fn plain(row: &Row, op: &Op) -> Result<Registration, Problem> {
    let function = match (&row.entry, op.implementation()) {
        (Some(entry), _) => ours(entry),
        (None, Some(function)) => function,
        (None, None) if op.composite => {
            let message = format!("ATen composes `{}` of other ops: it needs no row", op.name);
            return Err((message, "give an `entry` to replace ATen's own"));
        }
        (None, None) => return Err(no_kernel(op)),
    };
    Ok(registration(op, Form::Function, function))
}

fn no_kernel(op: &Op) -> Problem {
    (format!("ATen has no CPU kernel of `{}` to reuse", op.name), "give an `entry`")
}

fn ours(entry: &Text) -> String {
    format!("torch_opencl::native::{}", entry.value)
}

fn registration(op: &Op, form: Form, implementation: String) -> Registration {
    Registration {
        op: op.name.clone(),
        function: op.unambiguous_name(),
        header: op.header().to_owned(),
        form,
        implementation,
    }
}
