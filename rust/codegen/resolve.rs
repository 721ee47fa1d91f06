//! Finds the overloads that have to be registered for the ops of a row.

use std::collections::BTreeSet;

use super::composite;
use super::diagnostic::Report;
use super::family::{Family, Kind};
use super::layout::Layout;
use super::plan::{Declaration, Form, Registration};
use super::schema::{Group, Index, Op};
use super::table::Row;
use super::yaml::Text;

/// Overloads that the row registers: the whole group of a structured op, otherwise the listed ops. Each has the line of
/// its op.
pub fn registrations(
    row: &Row,
    family: Option<&Family>,
    index: &Index,
    named: &Named,
    report: &mut Report,
) -> Vec<(usize, Registration)> {
    let is_host = family.is_some_and(|family| family.kind == Kind::Host);
    if !row.layout.is_empty() {
        return sparse(row, is_host, index, named, report);
    }
    let mut found = Vec::new();
    for (i, name) in row.op.iter().chain(&row.also).enumerate() {
        let Some(op) = index.get(&name.value) else {
            let message = format!("unknown op `{}`", name.value);
            report.error_with_hint(name.line, message, index.suggest(&name.value));
            continue;
        };
        let resolved = match index.group(op) {
            group if is_host => Ok(host(op, group)),
            Some(_) if row.composition().is_some() => Err(composes_structured(row, op)),
            Some(_) if i > 0 => Err((
                format!("`{}` is structured and cannot be in `also`", op.name),
                "give it a separate row".to_owned(),
            )),
            Some(_) if !row.allocates.is_empty() => Err(allocates_itself(op)),
            Some(group) => structured(row, op, &group),
            None if !row.allocates.is_empty() => allocating(row, op, index).map(Vec::from),
            None => plain(row, op, index).map(|registration| vec![registration]),
        };
        match resolved {
            Ok(list) => found.extend(list.into_iter().map(|r| (name.line, r))),
            Err((message, hint)) => report.error_with_hint(name.line, message, hint),
        }
    }
    for name in row.out.iter().filter(|_| row.allocates.is_empty()) {
        match copied(row, name, index) {
            Ok(registration) => found.push((name.line, registration)),
            Err((message, hint)) => report.error_with_hint(name.line, message, hint),
        }
    }
    found
}

/// Overloads in rows for other layouts, with the words of those layouts.
pub type Named = BTreeSet<(String, String)>;

/// The overloads in rows for other layouts.
pub fn named(rows: &[Row]) -> Named {
    let words = |row: &Row| row.layout.iter().map(|word| word.value.clone()).collect::<Vec<_>>();
    let names =
        |row: &Row| row.op.iter().chain(&row.also).chain(&row.out).map(|name| name.value.clone()).collect::<Vec<_>>();
    rows.iter()
        .flat_map(|row| {
            names(row).into_iter().flat_map(move |name| words(row).into_iter().map(move |w| (name.clone(), w)))
        })
        .collect()
}

/// The overloads of a row for layouts other than strided. None of these is structured. An entry, a Python function or
/// the CPU's kernel serves the listed ones. ATen's functions serve all overloads, except those in another
/// row.
fn sparse(row: &Row, is_host: bool, index: &Index, named: &Named, report: &mut Report) -> Vec<(usize, Registration)> {
    let mut found = Vec::new();
    for word in &row.layout {
        let layout = match Layout::parse(&word.value) {
            Ok(layout) => layout,
            Err(hint) => {
                report.error_with_hint(word.line, format!("unknown layout `{}`", word.value), hint);
                continue;
            }
        };
        for name in row.op.iter().chain(&row.also) {
            let Some(op) = index.get(&name.value) else {
                report.error_with_hint(name.line, format!("unknown op `{}`", name.value), index.suggest(&name.value));
                continue;
            };
            let mut add = |registration| found.push((name.line, Registration { layout, ..registration }));
            if is_host {
                add(registration(op, Form::Host, String::new()));
            } else if !row.allocates.is_empty() {
                match allocating(row, op, index) {
                    Ok(both) => both.into_iter().for_each(add),
                    Err((message, hint)) => report.error_with_hint(name.line, message, hint),
                }
            } else if row.composition().is_some() {
                match plain(row, op, index) {
                    Ok(registration) => add(registration),
                    Err((message, hint)) => report.error_with_hint(name.line, message, hint),
                }
            } else if let Some(entry) = &row.entry {
                add(entry_of(row, &entry.value, op));
            } else {
                let is_other_row = |other: &Op| named.contains(&(other.name.clone(), word.value.clone()));
                let overloads = index.overloads(op, layout);
                let overloads: Vec<_> =
                    overloads.filter(|other| other.name == op.name || !is_other_row(other)).collect();
                if overloads.is_empty() {
                    let message = format!("ATen has no function of `{}` for {} tensors", op.name, word.value);
                    report.error_with_hint(name.line, message, "give an `entry`");
                }
                for op in overloads {
                    add(registration(op, Form::Function, op.sparse_implementation(layout).unwrap_or_default()));
                }
            }
        }
    }
    found
}

/// An out= overload that stores the results of the row's entry, expression or Python function.
fn copied(row: &Row, name: &Text, index: &Index) -> Result<Registration, (String, String)> {
    let op =
        index.get(&name.value).ok_or_else(|| (format!("unknown op `{}`", name.value), index.suggest(&name.value)))?;
    let problem = |message: &str, hint: &str| Err((format!("`{}` {message}", name.value), hint.to_owned()));
    let functional = row.op.as_ref().and_then(|op| index.get(&op.value));
    let (Some(functional), true) = (functional, row.entry.is_some() || row.composition().is_some()) else {
        return problem(
            "needs an `entry`, `returns` or `python` that returns its results",
            "ATen's own functions have their own `out`",
        );
    };
    if index.group(op).is_some() {
        return problem("is structured", "its class serves all variants: name it in `op`");
    }
    let is_variant = functional.outputs == op.outputs && functional.header() == op.header();
    if functional.is_inplace() || !op.is_out || !is_variant {
        return problem(
            "is not an out= variant of the row's op",
            "name one with the same outputs, such as `histc.out` for `histc`",
        );
    }
    let function = match (&row.entry, &row.python) {
        (Some(entry), _) => entry_of(row, &entry.value, functional).implementation,
        (None, Some(_)) => format!("at::{}", functional.base()),
        (None, None) => ours(&expression_name(functional)),
    };
    Ok(registration(op, Form::Copied { outputs: op.outputs }, function))
}

/// An op and its out= variant, which share an entry: the op allocates the outputs for it.
fn allocating(row: &Row, op: &Op, index: &Index) -> Result<[Registration; 2], Problem> {
    let problem = |message: &str, hint: &str| Err((message.to_owned(), hint.to_owned()));
    let ([name], Some(entry), []) = (row.out.as_slice(), &row.entry, row.also.as_slice()) else {
        return problem(
            "`allocates` needs an `entry` and one overload in `out`",
            "the entry has the signature of that out= overload",
        );
    };
    let out =
        index.get(&name.value).ok_or_else(|| (format!("unknown op `{}`", name.value), index.suggest(&name.value)))?;
    let is_variant = out.is_out
        && out.arguments.len() == op.arguments.len() + out.outputs
        && out.arguments.starts_with(&op.arguments);
    if !is_variant || op.is_inplace() {
        return Err((
            format!("`{}` is not an out= variant of `{}`", out.name, op.name),
            format!("name one that takes {} and outputs", op.arguments.join(", ")),
        ));
    }
    let mut texts = row.allocates.iter().map(|text| text.value.as_str()).collect::<Vec<_>>().join(", ");
    if row.allocates.len() != op.outputs {
        let message =
            format!("outputs of `{}`: {}, expressions of `allocates`: {}", op.name, op.outputs, row.allocates.len());
        return problem(&message, "`allocates: [first, second]` has one for each output");
    }
    if op.outputs > 1 {
        texts = format!("{{{texts}}}");
    }
    let entry = entry_of(row, &entry.value, out);
    let outputs = composite::expression(format!("{}_outputs", op.unambiguous_name()), &texts, op, index)?;
    let functional = registration(op, Form::Allocating, entry.implementation.clone());
    Ok([Registration { declares: Some(outputs), ..functional }, entry])
}

fn composes_structured(row: &Row, op: &Op) -> Problem {
    let key = row.composition().map_or("returns", |(key, _)| key);
    (
        format!("`{}` is structured", op.name),
        format!("`{key}` is for other ops: ATen composes this one from its out= variant"),
    )
}

fn allocates_itself(op: &Op) -> Problem {
    (
        format!("`{}` is structured", op.name),
        "`allocates` is for other ops: ATen's meta function allocates these outputs".to_owned(),
    )
}

/// The overloads on lists in a pointwise row's `foreach`, such as `add.List` for `_foreach_add.List`, each with its
/// in-place variant: our template uses the row's operation if it can, otherwise ATen's function.
pub fn foreach(
    row: &Row,
    operation: &str,
    arity: usize,
    index: &Index,
    report: &mut Report,
) -> Vec<(usize, Registration)> {
    let mut found = Vec::new();
    for name in &row.foreach {
        let (base, overload) = name
            .value
            .split_once('.')
            .map_or((&*name.value, String::new()), |(base, overload)| (base, format!(".{overload}")));
        for op in [format!("_foreach_{base}{overload}"), format!("_foreach_{base}_{overload}")] {
            let Some(op) = index.get(&op) else {
                report.error_with_hint(name.line, format!("unknown op `{op}`"), index.suggest(&op));
                break;
            };
            let Some(slow) = op.implementation() else {
                let (message, hint) = no_kernel(op);
                report.error_with_hint(name.line, message, hint);
                break;
            };
            // A scalar that is not a parameter of the operation is its last input.
            let number = if op.tensors < arity { "Input" } else { "Parameter" };
            let call = format!(
                "(torch_opencl::native::foreach::Foreach<\
                 torch_opencl::PointwiseOp::{operation}, torch_opencl::native::foreach::Number::{number}, &{slow}>::call)"
            );
            found.push((name.line, registration(op, Form::Function, call)));
        }
    }
    found
}

/// A problem of an op, and a hint how to fix it.
type Problem = (String, String);

/// The CPU's kernel of an op. All variants of a structured op use it: ATen's own functional variant would allocate
/// outputs on the devices of several inputs before any kernel compares these, which fails with an internal assertion.
fn host(op: &Op, group: Option<Group<'_>>) -> Vec<Registration> {
    let ops = group.map_or(vec![op], |group| group.delegating.into_iter().chain([group.out]).collect());
    ops.into_iter().map(|op| registration(op, Form::Host, String::new())).collect()
}

fn structured(row: &Row, op: &Op, group: &Group<'_>) -> Result<Vec<Registration>, Problem> {
    if row.arguments.is_some() {
        let hint = "the `impl` of a class has the arguments of ATen's".to_owned();
        return Err((format!("`{}` is structured and has no `arguments`", op.name), hint));
    }
    let out = group.out;
    // ATen's class is named after the functional variant.
    let functional = group.delegating.iter().find(|op| !op.is_inplace()).copied().unwrap_or(op);
    let meta = functional.unambiguous_name();
    let class = match (&row.entry, out.implementation()) {
        (Some(entry), _) if template(&entry.value).is_some() => ours(&format!("{meta}_class")),
        (Some(entry), _) => ours(&entry.value),
        (None, _) if out.precomputed => {
            let message = format!("ATen precomputes arguments of `{}`", out.name);
            return Err((message, "give an `entry` whose `impl` takes the original arguments".to_owned()));
        }
        (None, Some(class)) => class,
        (None, None) => return Err(no_kernel(op)),
    };
    let outputs = out.outputs;
    let delegating = group.delegating.iter().map(|op| {
        let form = if op.is_inplace() { Form::Inplace } else { Form::Functional { outputs } };
        registration(op, form, class.clone())
    });
    let mut last = registration(out, Form::Out { outputs }, class.clone());
    let header = functional.header().to_owned();
    last.declares = row.entry.as_ref().map(|entry| match template(&entry.value) {
        Some((class, arguments)) => Declaration::Template {
            name: format!("{meta}_class"),
            class: match arguments {
                "" => format!("{class}<at::meta::structured_{meta}>"),
                _ => format!("{class}<at::meta::structured_{meta}, {arguments}>"),
            },
            header,
        },
        None => Declaration::Class { name: entry.value.clone(), meta, header },
    });
    Ok(delegating.chain([last]).collect())
}

fn plain(row: &Row, op: &Op, index: &Index) -> Result<Registration, Problem> {
    if let Some(text) = &row.returns {
        let name = expression_name(op);
        let declares = composite::expression(name.clone(), &text.value, op, index)?;
        return Ok(Registration { declares: Some(declares), ..registration(op, Form::Function, ours(&name)) });
    }
    if let Some(text) = &row.python {
        return Ok(registration(op, Form::Python, text.value.clone()));
    }
    if row.entry.as_ref().is_some_and(|entry| template(&entry.value).is_some()) {
        return Err((
            format!("`{}` is not structured", op.name),
            "only structured ops take a class template: name a function".to_owned(),
        ));
    }
    match (&row.entry, op.implementation()) {
        (Some(entry), _) => Ok(entry_of(row, &entry.value, op)),
        (None, Some(function)) => Ok(registration(op, Form::Function, function)),
        (None, None) if op.composite => {
            let message = format!("ATen composes `{}` from other ops: it needs no row", op.name);
            Err((message, "give an `entry` to replace ATen's own".to_owned()))
        }
        (None, None) => Err(no_kernel(op)),
    }
}

fn expression_name(op: &Op) -> String {
    format!("{}_expression", op.unambiguous_name())
}

/// Our function, which may take the op's arguments as a struct.
fn entry_of(row: &Row, entry: &str, op: &Op) -> Registration {
    let (name, function) = (entry.to_owned(), ours(entry));
    if row.arguments.is_none() {
        return Registration {
            declares: Some(Declaration::Function(name)),
            ..registration(op, Form::Function, function)
        };
    }
    let call = format!("(torch_opencl::with_struct<at::_ops::{}, &{function}>)", op.unambiguous_name());
    let declares = Some(Declaration::OfStruct { name, arguments: op.arguments.clone() });
    Registration { declares, ..registration(op, Form::Function, call) }
}

fn no_kernel(op: &Op) -> Problem {
    (format!("ATen has no CPU kernel of `{}` to reuse", op.name), "give an `entry`".to_owned())
}

fn ours(entry: &str) -> String {
    format!("torch_opencl::native::{entry}")
}

/// The name and the arguments of an entry such as `Pad<ResampleRule::Reflect>`: our class template, whose first
/// argument is ATen's class.
pub fn template(entry: &str) -> Option<(&str, &str)> {
    entry.strip_suffix('>')?.split_once('<')
}

fn registration(op: &Op, form: Form, implementation: String) -> Registration {
    Registration {
        op: op.name.clone(),
        function: op.unambiguous_name(),
        header: op.header().to_owned(),
        form,
        layout: Layout::Strided,
        implementation,
        declares: None,
    }
}
