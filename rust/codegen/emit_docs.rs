//! Prints `coverage.md`: which operators the backend implements, and for which dtypes.

use std::collections::BTreeMap;

use super::dtypes::Dtypes;
use super::family::Family;
use super::layout::Layout;
use super::plan::{Plan, PlannedRow};

/// Columns of the tables: a heading, and the word of [`Dtypes::parse`] for its dtypes.
const COLUMNS: [(&str, &str); 7] = [
    ("bool", "bool"),
    ("integer", "integral"),
    ("floating point", "floating"),
    ("complex", "complex"),
    ("uint16 to 64", "unsigned"),
    ("float8", "float8"),
    ("complex32", "c32"),
];

const INTRODUCTION: &str = "\
An operator without a line, or a dtype without a mark, runs on the CPU, with a warning. Operators that PyTorch composes
from these, such as `linear`, `einsum` or `cross_entropy`, have no line, and run on the device if their parts do. For
element-wise operators with several tensors, the table shows the dtypes to which these are promoted.

An operator has one line for all its overloads, including in-place and `out=` variants. If overloads support different
dtypes, each set of dtypes has a line with its overloads. Gradients are separate operators (`..._backward`).

`x` marks all dtypes of a column. Otherwise the cell has the supported dtypes: `f16`, `bf16` and `f32` are float16,
bfloat16 and float32, and so on. The columns with several dtypes are integer (uint8, int8 to int64), floating point
(float16, bfloat16, float32, float64) and complex (complex64, complex128). float64 and complex128 need a device with
`cl_khr_fp64`.
";

/// The content of `coverage.md`: a section for each family that has operators, in alphabetical order.
pub fn coverage(plan: &Plan) -> String {
    let overloads: usize = plan.rows.iter().map(|row| row.registrations.len()).sum();
    let mut text = format!(
        "# Supported operators\n\n\
         Generated from `native_functions.yaml` by `make docs`: {overloads} overloads, for the PyTorch of\n\
         requirements-dev.txt. Some operators exist only in some releases.\n\n\
         {INTRODUCTION}"
    );
    let mut families: Vec<&Family> = Vec::new();
    for row in &plan.rows {
        if !families.contains(&&row.family) {
            families.push(&row.family);
        }
    }
    let sections = families.into_iter().map(|family| {
        let rows = plan.rows.iter().filter(|row| row.family == *family).collect::<Vec<_>>();
        (title(&family.name), Layout::Strided, rows)
    });
    let of_layouts = [
        ("Sparse tensors in COO layout", Layout::SparseCoo),
        ("Sparse tensors in CSR, CSC, BSR and BSC layouts", Layout::SparseCsr),
    ];
    let of_layouts = of_layouts.into_iter().map(|(title, layout)| (title, layout, plan.rows.iter().collect()));
    for (title, layout, rows) in sections.chain(of_layouts) {
        let lines = lines(&rows, layout);
        if !lines.is_empty() {
            text += &format!("\n## {title}\n\n{}", heading());
            text.extend(lines);
        }
    }
    text
}

/// The heading of a family's section; its name if that is clear enough.
fn title(family: &str) -> &str {
    match family {
        "nullary" => "Element-wise, no input",
        "unary" => "Element-wise, one input",
        "binary" => "Element-wise, two inputs",
        "ternary" => "Element-wise, three inputs",
        "quaternary" => "Element-wise, four inputs",
        "reduce" => "Reductions",
        "scan" => "Cumulative operators",
        "sort" => "Sorting and searching",
        "softmax" => "Softmax",
        "matmul" => "Matrix multiplication",
        "convolution" => "Convolution",
        "pool" => "Pooling",
        "norm" => "Normalization",
        "index" => "Indexing",
        "embedding_bag" => "Embedding",
        "copy" => "Copies and concatenation",
        "factory" => "Factory functions",
        "random" => "Random numbers",
        "loss" => "Losses",
        "optimizer" => "Fused optimizers",
        "rnn" => "Recurrent networks",
        "resample" => "Interpolation and padding",
        "grid_sampler" => "Grid sampling",
        "attention" => "Attention",
        "linalg" => "Linear algebra",
        "foreach" => "Lists of tensors",
        "view" => "Views and memory, which touch no element",
        "host" => "On the host: PyTorch's functions for the CPU, on mapped memory",
        "composite" => "PyTorch's own compositions",
        other => other,
    }
}

fn heading() -> String {
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    format!("| operator | {} |\n|{}\n", names.join(" | "), " --- |".repeat(COLUMNS.len() + 1))
}

/// A line for each operator and set of dtypes.
fn lines(rows: &[&PlannedRow], layout: Layout) -> Vec<String> {
    let mut operators: BTreeMap<&str, BTreeMap<Vec<String>, Vec<String>>> = BTreeMap::new();
    for row in rows {
        for registration in row.registrations.iter().filter(|registration| registration.layout == layout) {
            let sets = operators.entry(&registration.header).or_default();
            sets.entry(cells(row.dtypes)).or_default().push(format!("`{}`", registration.op));
        }
    }
    let mut lines = Vec::new();
    for (operator, sets) in operators {
        let is_one = sets.len() == 1;
        for (cells, overloads) in sets {
            let name = if is_one { format!("`{operator}`") } else { overloads.join(", ") };
            lines.push(format!("| {name} | {} |\n", cells.join(" | ")));
        }
    }
    lines
}

/// The cells of a set of dtypes, one for each column.
fn cells(dtypes: Dtypes) -> Vec<String> {
    COLUMNS.iter().map(|(_, column)| cell(dtypes.mask(), column)).collect()
}

/// `x` if a set has all dtypes of a column, otherwise the names of those in the set.
fn cell(dtypes: u64, column: &str) -> String {
    let column = Dtypes::parse(column).map_or(0, Dtypes::mask);
    if dtypes & column == column {
        return "x".to_owned();
    }
    let singles = Dtypes::words().filter_map(|word| Dtypes::parse(word).map(|set| (word, set.mask())));
    let found = singles.filter(|(_, mask)| mask.count_ones() == 1 && mask & column & dtypes != 0);
    found.map(|(word, _)| word).collect::<Vec<_>>().join(", ")
}
