//! Parses the backend's op table into rows with line numbers.
//!
//! Only the structure of the YAML is checked here: known keys, and strings where they are expected. [`super::check`]
//! checks the values.

use std::path::Path;

use marked_yaml::types::MarkedMappingNode;
use marked_yaml::Node;

use super::diagnostic::{Diagnostic, Report};
use super::nearest::nearest;
use super::yaml::{line_of, load_list, text, words, Text};

/// Keys of rows.
const KEYS: [&str; 27] = [
    "op",
    "family",
    "layout",
    "stub",
    "kernel",
    "entry",
    "arguments",
    "returns",
    "python",
    "scalars",
    "expr",
    "expr_int",
    "expr_complex",
    "class_from",
    "opmath",
    "part",
    "dtypes",
    "computes",
    "on_cpu",
    "cpu_dtypes",
    "cost",
    "also",
    "foreach",
    "out",
    "allocates",
    "since",
    "until",
];

/// A row of the table.
#[derive(Debug, Default)]
pub struct Row {
    /// Line of the row's first key.
    pub line: usize,
    /// Any overload of the op; absent in a row that only fills a stub for ops of other rows.
    pub op: Option<Text>,
    pub family: Option<Text>,
    /// Layouts of the tensors, if they are not strided.
    pub layout: Vec<Text>,
    /// The ATen `DispatchStub` that the row fills.
    pub stub: Option<Text>,
    /// Our C++ function for the stub.
    pub kernel: Option<Text>,
    /// Our C++ class or function that replaces ATen's.
    pub entry: Option<Text>,
    /// `struct` if the entry takes its arguments as one struct.
    pub arguments: Option<Text>,
    /// C++ expression that composes the op from others.
    pub returns: Option<Text>,
    /// `module:function` in `python/torch_opencl/composites`, which composes the op from others.
    pub python: Option<Text>,
    /// Names of the stub's scalar parameters, in order.
    pub scalars: Vec<Text>,
    /// Expressions, one set for each output.
    pub exprs: Vec<OutputExprs>,
    /// Stem of the file with functions that only the programs of some rows include.
    pub part: Option<Text>,
    /// The operand whose dtype is the compute dtype, if that is not the iterator's common dtype.
    pub class_from: Option<Text>,
    /// Scalars that are not rounded to a 16-bit dtype, and inputs that are not if they are a single value.
    pub opmath: Vec<Text>,
    /// Supported dtypes.
    pub dtypes: Vec<Text>,
    /// Dtypes that reach the kernel, if ATen converts or handles the others before.
    pub computes: Vec<Text>,
    /// Calls that CPU devices leave to ATen's own function: `always`, `large`, `small` or `never`.
    pub on_cpu: Option<Text>,
    /// The dtypes of these calls, if not all.
    pub cpu_dtypes: Vec<Text>,
    /// How to decide if a call is small enough for the CPU: `matmul` or `elements`.
    pub cost: Option<Text>,
    /// Further overloads for the same kernel.
    pub also: Vec<Text>,
    /// Out= overloads that store the entry's results.
    pub out: Vec<Text>,
    /// C++ expressions for the outputs, one each, if the entry is that of the out= overload.
    pub allocates: Vec<Text>,
    /// Ops on lists of tensors that use the row's operation: `add.List` for `_foreach_add.List` and
    /// `_foreach_add_.List`.
    pub foreach: Vec<Text>,
    /// The first and the last release of torch for the row, if it is not for all.
    pub since: Option<Text>,
    pub until: Option<Text>,
}

/// The expressions of one output.
#[derive(Debug, Default)]
pub struct OutputExprs {
    /// The expression for floats, and for other classes that have no separate expression.
    pub expr: Option<Text>,
    pub int: Option<Text>,
    pub complex: Option<Text>,
}

impl Row {
    /// The key, other than `entry`, that composes the op from others.
    pub fn composition(&self) -> Option<(&'static str, &Text)> {
        let returns = self.returns.as_ref().map(|text| ("returns", text));
        returns.or_else(|| self.python.as_ref().map(|text| ("python", text)))
    }
}

impl OutputExprs {
    /// The expressions that are present.
    pub fn given(&self) -> impl Iterator<Item = &Text> {
        [&self.expr, &self.int, &self.complex].into_iter().flatten()
    }
}

/// Reads all rows, or reports every malformed row.
pub fn parse(file: &Path, source: &str) -> Result<Vec<Row>, Vec<Diagnostic>> {
    let mut report = Report::new(file);
    let rows = load_list(file, source)?.iter().map(|row| parse_row(row, &mut report)).collect();
    report.finish(rows)
}

fn parse_row(mapping: &MarkedMappingNode, report: &mut Report) -> Row {
    let mut row = Row { line: line_of(mapping.span()), ..Row::default() };
    for (key, value) in mapping.iter() {
        let (line, key) = (line_of(key.span()), key.as_str());
        match set(&mut row, key, value) {
            Ok(()) => {}
            Err(Problem::NotText) => report.error(line, format!("`{key}` must be text")),
            Err(Problem::NotWords) => {
                report.error(line, format!("`{key}` must be a word or a list of words"));
            }
            Err(Problem::UnknownKey) => {
                let hint = match nearest(key, KEYS) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => format!("the keys are: {}", KEYS.join(", ")),
                };
                report.error_with_hint(line, format!("unknown key `{key}`"), hint);
            }
        }
    }
    row
}

/// The reason why a key or its value is invalid.
enum Problem {
    UnknownKey,
    NotText,
    NotWords,
}

fn set(row: &mut Row, key: &str, value: &Node) -> Result<(), Problem> {
    match key {
        "op" => row.op = Some(scalar(value)?),
        "family" => row.family = Some(scalar(value)?),
        "layout" => row.layout = words(value).ok_or(Problem::NotWords)?,
        "stub" => row.stub = Some(scalar(value)?),
        "kernel" => row.kernel = Some(scalar(value)?),
        "entry" => row.entry = Some(scalar(value)?),
        "arguments" => row.arguments = Some(scalar(value)?),
        "returns" => row.returns = Some(scalar(value)?),
        "python" => row.python = Some(scalar(value)?),
        "expr" => set_exprs(row, value, |exprs| &mut exprs.expr)?,
        "expr_int" => set_exprs(row, value, |exprs| &mut exprs.int)?,
        "expr_complex" => set_exprs(row, value, |exprs| &mut exprs.complex)?,
        "part" => row.part = Some(scalar(value)?),
        "class_from" => row.class_from = Some(scalar(value)?),
        "opmath" => row.opmath = words(value).ok_or(Problem::NotWords)?,
        "scalars" => row.scalars = words(value).ok_or(Problem::NotWords)?,
        "dtypes" => row.dtypes = words(value).ok_or(Problem::NotWords)?,
        "computes" => row.computes = words(value).ok_or(Problem::NotWords)?,
        "since" => row.since = Some(scalar(value)?),
        "until" => row.until = Some(scalar(value)?),
        "on_cpu" => row.on_cpu = Some(scalar(value)?),
        "cpu_dtypes" => row.cpu_dtypes = words(value).ok_or(Problem::NotWords)?,
        "cost" => row.cost = Some(scalar(value)?),
        "also" => row.also = words(value).ok_or(Problem::NotWords)?,
        "out" => row.out = words(value).ok_or(Problem::NotWords)?,
        "allocates" => row.allocates = words(value).ok_or(Problem::NotWords)?,
        "foreach" => row.foreach = words(value).ok_or(Problem::NotWords)?,
        _ => return Err(Problem::UnknownKey),
    }
    Ok(())
}

/// One expression, or a list with one for each output.
fn set_exprs(row: &mut Row, value: &Node, field: fn(&mut OutputExprs) -> &mut Option<Text>) -> Result<(), Problem> {
    let texts = match value {
        Node::Scalar(_) => vec![scalar(value)?],
        _ => words(value).filter(|list| !list.is_empty()).ok_or(Problem::NotText)?,
    };
    row.exprs.resize_with(row.exprs.len().max(texts.len()), OutputExprs::default);
    for (exprs, text) in row.exprs.iter_mut().zip(texts) {
        *field(exprs) = Some(text);
    }
    Ok(())
}

fn scalar(node: &Node) -> Result<Text, Problem> {
    node.as_scalar().map(text).filter(|text| !text.value.is_empty()).ok_or(Problem::NotText)
}
