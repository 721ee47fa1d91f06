//! Rows of the op table that have an expression, and their programs.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec, Switch, Tier};
use crate::ops::core::forms::{rare, Form, ALL};
use crate::ops::Target;

mod table {
    //! The op enum and its rows, generated from `native_functions.yaml`.
    #![allow(missing_docs, dead_code)]

    /// One pointwise row of the op table.
    #[derive(Debug)]
    pub struct PointwiseRow {
        pub op: PointwiseOp,
        pub name: &'static str,
        pub arity: usize,
        pub outputs: usize,
        pub part: usize,
        pub scalars: &'static [&'static str],
        pub expr: Option<&'static str>,
        pub expr_int: Option<&'static str>,
        pub expr_complex: Option<&'static str>,
        pub dtypes: u64,
        pub cases: [&'static str; 3],
        pub short: [bool; 3],
        pub narrow: bool,
    }

    include!(concat!(env!("OUT_DIR"), "/pointwise_table.rs"));
}

pub(super) use table::PointwiseOp;
pub(in crate::ops) use table::PointwiseRow;
use table::{ExprClass, OUTPUT_CASES, PARTS, POINTWISE};

/// How the dense kernel reads an input; two bits each in its `sources` argument.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Source {
    Dense = 0,
    One = 1,
    Value = 2,
}

/// A row of the op table.
pub(in crate::ops) fn row(op: u32) -> Result<&'static PointwiseRow> {
    let row = POINTWISE.get(op as usize);
    row.ok_or_else(|| Error::Invalid(format!("OpenCL: pointwise op {op} is not in the op table")))
}

/// The program of a row, in a family with the switch over ops.
pub(in crate::ops) fn program(
    target: &Target,
    family: Family,
    class: Class,
    row: &PointwiseRow,
    spec: Spec,
) -> Result<Arc<CachedProgram>> {
    let spec = form(family, class, row, spec);
    target.program_with_switch(family, class, &spec, |tier| switch(family, class, row, tier))
}

/// The constants of a row's programs.
fn form(family: Family, class: Class, row: &PointwiseRow, spec: Spec) -> Spec {
    let expr = expr_class(class);
    let mut spec = spec.define("ARITY", row.slots(family) as i64).define("SHORT_OPS", i64::from(row.is_short(expr)));
    if row.outputs > 1 {
        spec = spec.define("OUTPUTS", row.outputs as i64).define("OUTPUT_CASES", i64::from(OUTPUT_CASES));
    }
    if row.part > 0 {
        spec = spec.define("PART_OF_OP", row.op as i64);
    }
    spec
}

/// The cases of a row's programs, and the functions that they call.
fn switch(family: Family, class: Class, row: &PointwiseRow, tier: Tier) -> Switch {
    let cases = match tier {
        Tier::Generic => row.cases_alike(family, class),
        Tier::Specialised => row.case_text(expr_class(class)).to_owned(),
    };
    Switch { functions: PARTS.get(row.part).copied().unwrap_or_default(), cases }
}

/// The generic programs of a class, for the rows of a family that `is_wanted` accepts.
pub(in crate::ops) fn forms_of(
    family: Family,
    class: Class,
    spec: &Spec,
    is_wanted: impl Fn(&PointwiseRow) -> bool,
) -> Vec<(Family, Form, Switch)> {
    let mut found: Vec<(Family, Form, Switch)> = Vec::new();
    let is_there = |row: &&PointwiseRow| !row.case_text(expr_class(class)).is_empty() && row.is_meant_for(class);
    for row in POINTWISE.iter().filter(is_there).filter(|row| is_wanted(row)) {
        let form = (class, form(family, class, row, spec.clone()));
        if !found.iter().any(|(_, known, _)| *known == form) {
            found.push((family, form, switch(family, class, row, Tier::Generic)));
        }
    }
    found
}

/// The generic programs of pointwise ops; for conversions and other short ops also those for rare dtypes.
pub(in crate::ops) fn forms(target: &Target) -> Vec<(Family, Form, Switch)> {
    let mut found = Vec::new();
    for (class, lanes) in ALL.into_iter().flat_map(|class| lanes(target, class).into_iter().map(move |n| (class, n))) {
        let spec = |spec: Spec| spec.define("VEC", lanes as i64);
        found.extend(forms_of(Family::Pointwise, class, &spec(Spec::generic()), |_| true));
        let is_common = |row: &PointwiseRow| row.part == 0 && row.outputs == 1 && row.arity <= 2;
        found.extend(forms_of(Family::Pointwise, class, &spec(rare()), is_common));
    }
    found
}

/// Vector widths that launches may use.
fn lanes(target: &Target, class: Class) -> Vec<usize> {
    match class {
        Class::Complex | Class::ComplexDouble => vec![1],
        _ if target.is_cpu() => vec![super::CPU_VECTOR / class.size()],
        _ => vec![1, super::GPU_VECTOR / class.size()],
    }
}

const fn expr_class(class: Class) -> ExprClass {
    match class {
        Class::Float | Class::Double => ExprClass::Float,
        Class::Integer | Class::Unsigned => ExprClass::Int,
        Class::Complex | Class::ComplexDouble => ExprClass::Complex,
    }
}

impl PointwiseRow {
    /// The expression for a dtype.
    pub(in crate::ops) fn expr_for(&self, compute: DType) -> Option<&'static str> {
        match expr_class(compute.class()) {
            ExprClass::Float => self.expr,
            ExprClass::Int => self.expr_int,
            ExprClass::Complex => self.expr_complex,
        }
    }

    fn case_text(&self, class: ExprClass) -> &'static str {
        self.cases.get(class as usize).copied().unwrap_or_default()
    }

    fn is_short(&self, class: ExprClass) -> bool {
        self.short.get(class as usize).copied().unwrap_or_default()
    }

    /// Inputs of a family's programs for this row: ops with few inputs share programs, which saves compilation. Lists
    /// take equally many buffers for all ops, but elsewhere every buffer takes time.
    pub(in crate::ops) fn slots(&self, family: Family) -> usize {
        self.arity.max(if family == Family::Foreach { 3 } else { 2 })
    }

    /// The `sources` of the inputs that the row's programs have but the row lacks: scalars, so that nothing is read.
    pub(in crate::ops) fn absent_sources(&self, family: Family) -> i32 {
        (self.arity..self.slots(family)).fold(0, |sources, index| sources | (Source::Value as i32) << (2 * index))
    }

    /// The cases of a generic program: of all ops that share it and are as short, or as long, as this one. Ops of a
    /// few instructions have a separate program, which PoCL compiles in 0.2 s, not 0.5 to 0.7 s, and which contains
    /// most of what a first step runs. An op with a part shares no program: these take long to compile, and few models
    /// call two.
    fn cases_alike(&self, family: Family, class: Class) -> String {
        let (slots, expr) = (self.slots(family), expr_class(class));
        let alike = |row: &&Self| {
            if self.part > 0 {
                return row.op == self.op;
            }
            let is_kin = (row.slots(family), row.outputs, row.part) == (slots, self.outputs, 0);
            is_kin && row.is_short(expr) == self.is_short(expr)
        };
        POINTWISE.iter().filter(alike).filter(|row| row.is_meant_for(class)).map(|row| row.case_text(expr)).collect()
    }

    /// Expressions for signed integers only may be invalid for unsigned ones.
    fn is_meant_for(&self, class: Class) -> bool {
        class != Class::Unsigned || self.dtypes >> DType::U64.code() & 1 == 1
    }
}
