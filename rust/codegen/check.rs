//! Checks every row against ATen and against the other rows, and converts valid rows to the plan.

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostic::{Diagnostic, Report};
use super::dtypes::Dtypes;
use super::expr::is_identifier;
use super::family::{Family, Kind};
use super::layout::Layout;
use super::nearest::nearest;
use super::plan::{Form, Plan, PlannedRow, Pointwise, Registration, StubFill, StubKernel};
use super::release::{Release, Supported};
use super::resolve;
use super::schema::Index;
use super::sources::Sources;
use super::stubs::Stubs;
use super::table::Row;
use super::yaml::Text;

/// The torch that is built against, and the releases that rows may specify.
pub struct Releases {
    pub torch: Release,
    pub supported: Supported,
}

/// The plan of a valid table, or all of its problems.
pub fn check(
    file: &Path,
    rows: &[Row],
    index: &Index,
    stubs: &Stubs,
    families: &[Family],
    sources: &Sources,
    releases: Releases,
) -> Result<Plan, Vec<Diagnostic>> {
    let mut checker = Checker {
        index,
        stubs,
        families,
        sources,
        releases,
        named: resolve::named(rows),
        report: Report::new(file),
        filled: BTreeMap::new(),
        registered: BTreeMap::new(),
        composites: BTreeMap::new(),
        operations: 0,
        distributions: 0,
    };
    let rows = rows.iter().flat_map(|row| checker.row(row)).collect();
    checker.report.finish(Plan { rows })
}

pub(super) struct Checker<'a> {
    pub(super) index: &'a Index,
    pub(super) stubs: &'a Stubs,
    families: &'a [Family],
    pub(super) sources: &'a Sources,
    releases: Releases,
    named: resolve::Named,
    pub(super) report: Report<'a>,
    /// Stubs filled so far, with the line of the row.
    filled: BTreeMap<String, usize>,
    /// Overloads registered so far, by layout, each with the line of its op.
    registered: BTreeMap<(String, Layout), usize>,
    /// Python functions so far, by overload: one serves all layouts.
    composites: BTreeMap<String, String>,
    /// Number of pointwise operations so far.
    pub(super) operations: usize,
    /// Number of distributions so far.
    pub(super) distributions: usize,
}

impl Checker<'_> {
    /// The row's part of the plan, and that of its ops on lists; none if its family is unknown or it is for other
    /// releases of torch. A row with a problem may return a part, which [`Report::finish`] then drops with the rest of
    /// the plan.
    fn row(&mut self, row: &Row) -> Vec<PlannedRow> {
        let planned = if self.is_for_this_torch(row) { self.single(row) } else { None };
        let lists = planned.as_ref().and_then(|planned| self.foreach(row, planned.pointwise.as_ref()));
        planned.into_iter().chain(lists).collect()
    }

    fn foreach(&mut self, row: &Row, operation: Option<&Pointwise>) -> Option<PlannedRow> {
        let first = row.foreach.first()?;
        let Some(Pointwise { arity, .. }) = operation else {
            self.report.error(first.line, "`foreach` needs an `expr`");
            return None;
        };
        let name = operation?.cpp_name();
        let found = resolve::foreach(row, &name, *arity, self.index, &mut self.report);
        let registrations = self.unique(found);
        // Lists of other dtypes go to ATen's function, which calls the ops of single tensors.
        let (family, dtypes) = (self.family_named("foreach")?, Dtypes::parse("all")?);
        Some(PlannedRow {
            family,
            dtypes,
            on_cpu: None,
            cost: None,
            registrations,
            pointwise: None,
            distribution: None,
            stub: None,
        })
    }

    fn single(&mut self, row: &Row) -> Option<PlannedRow> {
        let family = self.family(row);
        if row.dtypes.is_empty() {
            self.report.error(row.line, "the row has no `dtypes`");
        }
        let dtypes = self.dtypes(&row.dtypes);
        let registrations = self.registrations(row, family.as_ref());
        let family = family?;
        self.keys(row, &family);
        self.identifiers(row);
        self.scalars(row, &family);
        self.functions(row, &registrations);
        let mut distribution = None;
        let (pointwise, stub) = match family.kind {
            Kind::Pointwise { arity } => {
                let operation = self.pointwise(row, &family, arity, dtypes);
                let kernel = operation.as_ref().map(|_| StubKernel::Pointwise);
                (operation, self.stub(row, kernel, "expr"))
            }
            Kind::Kernel => {
                let kernel = row.kernel.as_ref().map(|k| StubKernel::Function(k.value.clone()));
                (None, self.stub(row, kernel, "kernel"))
            }
            Kind::Random if !row.exprs.is_empty() => {
                distribution = self.distribution(row);
                (None, self.stub(row, Some(StubKernel::Distribution), "expr"))
            }
            Kind::Random => {
                let kernel = row.kernel.as_ref().map(|k| StubKernel::Function(k.value.clone()));
                (None, self.stub(row, kernel, "expr` or `kernel"))
            }
            Kind::Composite | Kind::Host => (None, None),
        };
        let on_cpu = self.on_cpu(row, dtypes);
        Some(PlannedRow { family, dtypes, on_cpu, cost: self.cost(row), registrations, pointwise, distribution, stub })
    }

    pub(super) fn bad_value<T>(&mut self, key: &str, value: &Text, hint: &str) -> Option<T> {
        self.report.error_with_hint(value.line, format!("bad value `{}` of `{key}`", value.value), hint);
        None
    }

    fn is_for_this_torch(&mut self, row: &Row) -> bool {
        let Supported { oldest, newest } = self.releases.supported;
        let since = self.release("since", row.since.as_ref()).unwrap_or(oldest);
        let until = self.release("until", row.until.as_ref()).unwrap_or(newest);
        if let (Some(last), true) = (&row.until, since > until) {
            self.report.error(last.line, format!("no release is in the range from {since} to {until}"));
        }
        (since..=until).contains(&self.releases.torch)
    }

    /// The value of a row's `since` or `until`; it must exclude some of the supported releases, but not all.
    fn release(&mut self, key: &str, text: Option<&Text>) -> Option<Release> {
        let text = text?;
        let Supported { oldest, newest } = self.releases.supported;
        let Some(release) = Release::parse(&text.value) else {
            let hint = format!("a minor version of torch, as `{key}: {newest}`");
            self.report.error_with_hint(text.line, format!("bad release `{}`", text.value), hint);
            return None;
        };
        let sensible =
            if key == "since" { oldest < release && release <= newest } else { oldest <= release && release < newest };
        if !sensible {
            let hint = format!("this package is built against {oldest} to {newest} (Cargo.toml); without the key a row is for all releases");
            self.report.error_with_hint(
                text.line,
                format!("`{key}: {release}` excludes no release or all releases"),
                hint,
            );
        }
        Some(release)
    }

    fn family_named(&self, name: &str) -> Option<Family> {
        self.families.iter().find(|family| family.name == name).cloned()
    }

    fn family(&mut self, row: &Row) -> Option<Family> {
        let Some(name) = &row.family else {
            self.report.error(row.line, "the row has no `family`");
            return None;
        };
        let found = self.family_named(&name.value);
        if found.is_none() {
            let names: Vec<_> = self.families.iter().map(|family| family.name.as_str()).collect();
            let hint = match nearest(&name.value, names.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("the families are: {}", names.join(", ")),
            };
            let message = format!("unknown family `{}`", name.value);
            self.report.error_with_hint(name.line, message, hint);
        }
        found
    }

    pub(super) fn dtypes(&mut self, words: &[Text]) -> Dtypes {
        let mut set = Dtypes::default();
        for word in words {
            if let Some(dtypes) = Dtypes::parse(&word.value) {
                set = set.union(dtypes);
            } else {
                let hint = format!("the dtypes are: {}", Dtypes::words().collect::<Vec<_>>().join(", "));
                self.report.error_with_hint(word.line, format!("bad dtype `{}`", word.value), hint);
            }
        }
        set
    }

    fn registrations(&mut self, row: &Row, family: Option<&Family>) -> Vec<Registration> {
        if row.op.is_none() && (row.stub.is_none() || !row.also.is_empty()) {
            let hint = "`op` is optional only in a row that fills a `stub` for ops of other rows";
            self.report.error_with_hint(row.line, "the row has no `op`", hint);
        }
        let found = resolve::registrations(row, family, self.index, &self.named, &mut self.report);
        self.unique(found)
    }

    /// The overloads that no earlier row has registered.
    fn unique(&mut self, found: Vec<(usize, Registration)>) -> Vec<Registration> {
        let mut clash = None;
        for (line, registration) in &found {
            let earlier = self.registered.insert((registration.op.clone(), registration.layout), *line);
            clash = clash.or(earlier.map(|earlier| (*line, &registration.op, earlier)));
        }
        // One message per row: if one overload of a group clashes, all of them do.
        if let Some((line, op, earlier)) = clash {
            let hint = format!("by line {earlier}");
            self.report.error_with_hint(line, format!("`{op}` is already registered"), hint);
        }
        for (line, Registration { op, implementation, .. }) in
            found.iter().filter(|(_, each)| each.form == Form::Python)
        {
            let first = self.composites.entry(op.clone()).or_insert_with(|| implementation.clone());
            if first != implementation {
                let message = format!("`{op}` has another Python function, `{first}`");
                self.report.error_with_hint(*line, message, "one function serves all layouts");
            }
        }
        found.into_iter().map(|(_, registration)| registration).collect()
    }

    /// Checks that the row's keys fit together and fit the kind of the family.
    fn keys(&mut self, row: &Row, family: &Family) {
        let [stub, kernel, on_cpu] =
            [("stub", &row.stub), ("kernel", &row.kernel), ("on_cpu", &row.on_cpu)].map(|(k, v)| (k, v.as_ref()));
        let operation = [
            ("scalars", row.scalars.first()),
            ("expr", row.exprs.iter().find_map(|exprs| exprs.expr.as_ref())),
            ("expr_int", row.exprs.iter().find_map(|exprs| exprs.int.as_ref())),
            ("expr_complex", row.exprs.iter().find_map(|exprs| exprs.complex.as_ref())),
            ("part", row.part.as_ref()),
            ("class_from", row.class_from.as_ref()),
            ("opmath", row.opmath.first()),
            ("computes", row.computes.first()),
        ];
        let [entry, returns, python] =
            [("entry", &row.entry), ("returns", &row.returns), ("python", &row.python)].map(|(k, v)| (k, v.as_ref()));
        let foreign: Vec<_> = match family.kind {
            Kind::Pointwise { .. } => vec![kernel, returns, python],
            Kind::Kernel => operation.to_vec(),
            Kind::Random if row.exprs.is_empty() => operation.to_vec(),
            Kind::Random => operation.into_iter().filter(|(key, _)| !["expr", "scalars"].contains(key)).collect(),
            Kind::Composite => [stub, kernel].into_iter().chain(operation).collect(),
            Kind::Host => {
                let out = [("out", row.out.first()), ("allocates", row.allocates.first())];
                [stub, kernel, entry, returns, python, on_cpu].into_iter().chain(out).chain(operation).collect()
            }
        };
        let layout = row.layout.first().filter(|_| !matches!(family.kind, Kind::Composite | Kind::Host));
        let copied = row.out.first().filter(|_| row.allocates.is_empty());
        let of_layout = [("returns", row.returns.as_ref()), ("out", copied)];
        if let (Some(layout), Some((key, value))) =
            (row.layout.first(), of_layout.iter().find_map(|(key, value)| Some((key, (*value)?))))
        {
            let message = format!("a row for {} tensors has no `{key}`", layout.value);
            self.report.error_with_hint(value.line, message, "name the overload in `op` or `also`");
        }
        for (key, value) in foreign.into_iter().chain([("layout", layout)]) {
            if let Some(value) = value {
                self.report.error(value.line, format!("family `{}` has no `{key}`", family.name));
            }
        }
        for ((first, value), (second, other)) in [(entry, returns), (entry, python), (python, returns)] {
            if let (Some(value), Some(_)) = (value, other) {
                self.report.error(value.line, format!("`{first}` and `{second}` exclude each other"));
            }
        }
        if let Some(arguments) = &row.arguments {
            if arguments.value != "struct" {
                self.bad_value::<()>("arguments", arguments, "`arguments: struct`, or no such key");
            }
            if row.entry.is_none() {
                self.report.error(arguments.line, "`arguments` needs an `entry`");
            }
        }
        let needs_body = !matches!(family.kind, Kind::Composite | Kind::Host) && row.composition().is_none();
        match (&row.stub, &row.entry) {
            (None, None) if needs_body => {
                let message = format!("family `{}` needs a `stub` or an `entry`", family.name);
                self.report.error(row.line, message);
            }
            (Some(_), Some(entry)) => {
                let hint = "ATen's function calls the stub, an entry replaces that function";
                let message = "`entry` and `stub` exclude each other";
                self.report.error_with_hint(entry.line, message, hint);
            }
            _ => {}
        }
        if let (Kind::Kernel, Some(kernel), None) = (family.kind, &row.kernel, &row.stub) {
            self.report.error(kernel.line, "`kernel` needs a `stub`");
        }
    }

    /// Checks names that are used in C++.
    fn identifiers(&mut self, row: &Row) {
        let entry = row.entry.iter().map(|entry| (entry, resolve::template(&entry.value).map(|(name, _)| name)));
        for (name, template) in entry.chain(row.kernel.iter().map(|name| (name, None))) {
            if !is_identifier(template.unwrap_or(&name.value)) {
                self.report.error(name.line, format!("`{}` is not an identifier", name.value));
            }
        }
    }

    /// The row's stub and its kernel, if it fills one; `key` is the key that can specify a kernel.
    fn stub(&mut self, row: &Row, kernel: Option<StubKernel>, key: &str) -> Option<StubFill> {
        let stub = row.stub.as_ref()?;
        let Some(declared) = self.stubs.get(&stub.value) else {
            self.no_such_stub(stub);
            return None;
        };
        match (kernel, self.filled.get(&stub.value).copied()) {
            (Some(kernel), None) => {
                self.filled.insert(stub.value.clone(), row.line);
                return Some(StubFill { stub: stub.value.clone(), header: declared.header.clone(), kernel });
            }
            (Some(_), Some(line)) => {
                let message = format!("`{}` is already filled by line {line}'s row", stub.value);
                self.report.error_with_hint(stub.line, message, "name only the `stub` to share it");
            }
            (None, None) => {
                let message = format!("neither this row nor an earlier one fills `{}`", stub.value);
                self.report.error_with_hint(stub.line, message, format!("give a value for `{key}`"));
            }
            (None, Some(_)) => {}
        }
        None
    }

    fn no_such_stub(&mut self, stub: &Text) {
        let hint = match nearest(&stub.value, self.stubs.keys().map(String::as_str)) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "stubs are those that torch's headers declare with DECLARE_DISPATCH".to_owned(),
        };
        self.report.error_with_hint(stub.line, format!("no such stub `{}`", stub.value), hint);
    }
}
