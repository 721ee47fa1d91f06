//! Prints the C++ side: dispatcher registrations, stub pointers and the enum of operations.
//!
//! A registration is one call of `entry` in `registration.h`, with a form around the implementation:
//!
//! ```cpp
//! entry<at::_ops::mm, SmallCalls::Cpu, form::Functional<torch_opencl::native::mm_out, 1>>(m, "mm", {...});
//! ```
//!
//! `{...}` is an `OpRow` (`op_row.h`).

use std::collections::{BTreeMap, BTreeSet};

use super::cpu::{CpuCalls, OnCpu};
use super::family::Kind;
use super::layout::Layout;
use super::plan::{ClassFrom, Declaration, Form, Plan, PlannedRow, Pointwise, Registration, StubFill, StubKernel};

const BANNER: &str = "// Generated from native_functions.yaml by rust/codegen.\n";

/// Number of translation units, so that several cores compile them in parallel.
const UNITS: usize = 8;

/// The contents of the `registrations_N.cpp`; fewer than [`UNITS`] if the table is small.
pub fn registrations(plan: &Plan) -> Vec<String> {
    units(&plan.rows).iter().map(|rows| unit(rows)).collect()
}

/// The contents of `entries/FAMILY.h`: our functions and classes in each family that has some, with the types of their
/// ops (`entry.h`). With one header for all of them, a new operator would recompile every file of `cpp/native`.
pub fn entries(plan: &Plan) -> BTreeMap<&str, String> {
    let mut families: BTreeMap<&str, Vec<&Registration>> = BTreeMap::new();
    for row in &plan.rows {
        let ours = row.registrations.iter().filter(|registration| registration.is_ours());
        families.entry(&row.family.name).or_default().extend(ours);
    }
    families.retain(|_, registrations| !registrations.is_empty());
    families.into_iter().map(|(family, registrations)| (family, family_entries(&registrations))).collect()
}

fn family_entries(registrations: &[&Registration]) -> String {
    let (mut headers, mut declarations) = (BTreeSet::new(), BTreeSet::new());
    for Registration { function, header, form, declares, .. } in registrations {
        let outputs = if let Form::Out { outputs } = form { *outputs } else { 0 };
        match declares {
            Some(Declaration::Function(name)) => {
                declarations.insert(format!("Entry<at::_ops::{function}> {name};\n"));
                headers.insert(format!("#include <ATen/ops/{header}_ops.h>\n"));
            }
            Some(Declaration::OfStruct { name, arguments }) => {
                declarations.insert(arguments_struct(function, arguments));
                declarations.insert(format!("TakesStruct<at::_ops::{function}> {name};\n"));
                headers.insert(format!("#include <ATen/ops/{header}_ops.h>\n"));
            }
            Some(Declaration::Class { name, meta, header: class }) => {
                declarations.insert(format!(
                    "struct {name} : at::meta::structured_{meta} {{\n  Impl<at::_ops::{function}, {outputs}> impl;\n}};\n"
                ));
                headers.insert(format!("#include <ATen/ops/{class}_meta.h>\n"));
                headers.insert(format!("#include <ATen/ops/{header}_ops.h>\n"));
            }
            Some(Declaration::Template { header, .. }) => {
                headers.insert(format!("#include <ATen/ops/{header}_meta.h>\n"));
            }
            Some(Declaration::Expression { .. }) | None => {}
        }
    }
    let headers: String = headers.into_iter().collect();
    let declarations: String = declarations.into_iter().collect();
    format!(
        "{BANNER}#pragma once\n\n#include \"dispatch/entry.h\"\n\n{headers}\n\
         namespace torch_opencl::native {{\n\n{declarations}\n}}  // namespace torch_opencl::native\n"
    )
}

/// The struct of an op's arguments, with the names in its schema.
fn arguments_struct(function: &str, arguments: &[String]) -> String {
    let fields =
        arguments.iter().enumerate().map(|(i, name)| format!("  Argument<at::_ops::{function}, {i}> {name};\n"));
    format!("template <>\nstruct Arguments<at::_ops::{function}> {{\n{}}};\n", fields.collect::<String>())
}

/// The content of `python_functions.h`.
pub fn python_functions(plan: &Plan) -> String {
    let registrations = plan.rows.iter().flat_map(|row| &row.registrations);
    let python = registrations.filter(|registration| registration.form == Form::Python);
    let lines: String = python.map(|each| format!("    \"{} {}\",\n", each.op, each.implementation)).collect();
    format!(
        "{BANNER}#pragma once

#include <string>
#include <vector>

namespace torch_opencl {{

// Ops that a Python function composes: the op, and `module:function`.
inline std::vector<std::string> python_functions() {{
  return {{
{lines}  }};
}}

}}  // namespace torch_opencl
"
    )
}

/// The content of `pointwise_op.h`.
pub fn pointwise_op(plan: &Plan) -> String {
    let enumerator = |op: &Pointwise| format!("  {} = {},\n", op.cpp_name(), op.code);
    let enumerators: String = plan.pointwise().map(enumerator).collect();
    let exception =
        |op: &Pointwise| format!("    case PointwiseOp::{}: return ClassFrom::{:?};\n", op.cpp_name(), op.class_from);
    let exceptions: String = plan.pointwise().filter(|op| op.class_from != ClassFrom::Common).map(exception).collect();
    let wide = |op: &Pointwise| format!("    case PointwiseOp::{}: return {:#x};\n", op.cpp_name(), op.opmath);
    let wide: String = plan.pointwise().filter(|op| op.opmath != 0).map(wide).collect();
    let label = |op: &Pointwise| format!("    case PointwiseOp::{}:\n", op.cpp_name());
    // Without a preceding label the statement would be unreachable.
    let returns_true =
        |labels: String| if labels.is_empty() { labels } else { format!("{labels}      return true;\n") };
    let long = returns_true(plan.pointwise().filter(|op| op.part.is_some()).map(label).collect());
    let never = plan.rows.iter().filter(|row| row.is_never_on_cpu()).filter_map(|row| row.pointwise.as_ref());
    let never = returns_true(never.map(label).collect());
    format!(
        "{BANNER}#pragma once

#include <cstdint>

namespace torch_opencl {{

// Operations of the pointwise kernels; the Rust enum of the same name has the same values.
enum class PointwiseOp : uint32_t {{
{enumerators}}};

// The operand whose dtype an operation computes in; Common is the dtype to which PyTorch promoted the inputs.
enum class ClassFrom : uint8_t {{ Common, Out, In0 }};

constexpr ClassFrom class_from(PointwiseOp op) {{
  switch (op) {{
{exceptions}    default: return ClassFrom::Common;
  }}
}}

// Operands that are not rounded to a 16-bit dtype: bit k for input k if it is a single value, bit 4 + k for scalar k.
constexpr uint32_t opmath(PointwiseOp op) {{
  switch (op) {{
{wide}    default: return 0;
  }}
}}

// Whether an operation is a long function, which has a separate part of the kernels' source.
constexpr bool is_long(PointwiseOp op) {{
  switch (op) {{
{long}    default: return false;
  }}
}}

// Returns true if kernels compute all calls of an operation, including small ones.
constexpr bool is_never_on_cpu(PointwiseOp op) {{
  switch (op) {{
{never}    default: return false;
  }}
}}

}}  // namespace torch_opencl
"
    )
}

/// The content of `distribution.h`.
pub fn distribution(plan: &Plan) -> String {
    let enumerators: String =
        plan.distributions().map(|each| format!("  {} = {},\n", each.identifier(), each.code)).collect();
    format!(
        "{BANNER}#pragma once

#include <cstdint>

namespace torch_opencl {{

// Distributions of the random kernels.
enum class Distribution : uint32_t {{
{enumerators}}};

}}  // namespace torch_opencl
"
    )
}

/// Spreads the rows over units: those of the largest families by their op, others by their family. A new row is in one
/// unit, and does not change the others.
fn units(rows: &[PlannedRow]) -> Vec<Vec<&PlannedRow>> {
    let mut units: Vec<Vec<&PlannedRow>> = vec![Vec::new(); UNITS];
    for row in rows {
        let op = row.registrations.first().map(|registration| registration.op.as_str());
        let is_of_large_family = row.pointwise.is_some() || row.family.kind == Kind::Composite;
        let key = if is_of_large_family { op } else { None }.unwrap_or(&row.family.name);
        let hash = key.bytes().fold(0_usize, |hash, byte| (hash * 31 + usize::from(byte)) % 65_537);
        if let Some(unit) = units.get_mut(hash % UNITS) {
            unit.push(row);
        }
    }
    units.retain(|unit| !unit.is_empty());
    units
}

fn unit(rows: &[&PlannedRow]) -> String {
    let stubs: String = rows.iter().copied().filter_map(stub).collect();
    let mut text = format!("{BANNER}\n{}", includes(rows));
    let templates = rows.iter().flat_map(|row| &row.registrations).filter_map(definition);
    let ours: String = rows.iter().copied().filter_map(kernel).chain(templates).collect();
    if !ours.is_empty() {
        text += &format!("\nnamespace torch_opencl::native {{\n\n{ours}\n}}  // namespace torch_opencl::native\n");
    }
    if !stubs.is_empty() {
        text += &format!("\nnamespace at::native {{\n\n{stubs}\n}}  // namespace at::native\n");
    }
    for layout in [Layout::Strided, Layout::SparseCoo, Layout::SparseCsr] {
        let of_layout = |row: &&PlannedRow| -> String {
            let registrations = row.registrations.iter().filter(|registration| registration.layout == layout);
            registrations.map(|each| registration(each, row)).collect()
        };
        let registrations: String = rows.iter().map(of_layout).collect();
        if !registrations.is_empty() {
            let key = layout.dispatch_key();
            let registrations = format!("TORCH_LIBRARY_IMPL(aten, {key}, m) {{\n{registrations}}}\n");
            text += &format!("\nnamespace torch_opencl {{\n\n{registrations}\n}}  // namespace torch_opencl\n");
        }
    }
    text
}

/// Only the headers of the unit's own ops: with `ATen/ATen.h` g++ 12 would parse a unit in 6.8 s instead of 3.9. Our
/// headers come first since some of torch's rely on others that ours include.
fn includes(rows: &[&PlannedRow]) -> String {
    let mut headers = BTreeSet::new();
    for row in rows {
        headers.extend(row.stub.iter().map(|stub| stub.header.clone()));
        for registration in &row.registrations {
            headers.insert(format!("ATen/ops/{}_native.h", registration.header));
            headers.insert(format!("ATen/ops/{}_ops.h", registration.header));
            if registration.implementation.starts_with("at::") && matches!(registration.form, Form::Copied { .. }) {
                headers.insert(format!("ATen/ops/{}.h", registration.header));
            }
            match &registration.declares {
                Some(Declaration::Template { header, .. }) => {
                    headers.insert(format!("ATen/ops/{header}_meta.h"));
                }
                Some(Declaration::Expression { headers: used, .. }) => {
                    headers.insert("ATen/TensorOperators.h".to_owned());
                    headers.extend(used.iter().map(|header| format!("ATen/ops/{header}.h")));
                }
                _ => {}
            }
        }
    }
    let families: BTreeSet<_> = rows
        .iter()
        .filter(|row| row.registrations.iter().any(Registration::is_ours))
        .map(|row| format!("entries/{}.h", row.family.name))
        .collect();
    let ours = ["dispatch/registration.h", "pointwise_op.h", "native/entries.h"]
        .map(str::to_owned)
        .into_iter()
        .chain(families);
    let ours: String = ours.map(|header| format!("#include \"{header}\"\n")).collect();
    let torch = headers.iter().map(|header| format!("#include <{header}>\n"));
    torch.fold(ours + "\n", |text, line| text + &line)
}

fn stub(row: &PlannedRow) -> Option<String> {
    let StubFill { stub, kernel, .. } = row.stub.as_ref()?;
    let kernel = match (kernel, &row.pointwise) {
        (StubKernel::Function(name), _) => format!("&torch_opencl::native::{name}"),
        (StubKernel::Pointwise, Some(op)) => {
            format!("(&torch_opencl::Pointwise<{stub}, torch_opencl::PointwiseOp::{}>::call)", op.cpp_name())
        }
        (StubKernel::Pointwise, None) => return None,
        (StubKernel::Distribution, _) => format!(
            "(&torch_opencl::native::Sample<decltype({stub})::FnPtr, torch_opencl::Distribution::{}>::call)",
            row.distribution.as_ref()?.identifier()
        ),
    };
    Some(format!("REGISTER_PRIVATEUSE1_DISPATCH({stub}, {kernel})\n"))
}

/// Declares our function for a stub.
fn kernel(row: &PlannedRow) -> Option<String> {
    let StubFill { stub, kernel: StubKernel::Function(name), .. } = row.stub.as_ref()? else { return None };
    Some(format!("std::remove_pointer_t<decltype(at::native::{stub})::FnPtr> {name};\n"))
}

/// Defines a name that macros can take, for our class template with its arguments or for a row's expression.
fn definition(registration: &Registration) -> Option<String> {
    match registration.declares.as_ref()? {
        Declaration::Template { name, class, .. } => Some(format!("using {name} = {class};\n")),
        Declaration::Expression { name, arguments, text, .. } => {
            let arguments: Vec<_> =
                arguments.iter().map(|argument| format!("[[maybe_unused]] auto&& {argument}")).collect();
            let (arguments, function) = (arguments.join(", "), &registration.function);
            Some(format!(
                "constexpr auto {name} = []({arguments}) -> Returns<at::_ops::{function}> {{ return {text}; }};\n"
            ))
        }
        _ => None,
    }
}

fn registration(registration: &Registration, row: &PlannedRow) -> String {
    let Registration { op, function, implementation, .. } = registration;
    let callable = format!("TORCH_OPENCL_CALLABLE({implementation})");
    let small = small_calls(registration, row);
    let form = match registration.form {
        Form::Functional { outputs } => format!("Functional<{implementation}, {outputs}>"),
        Form::Inplace => format!("Inplace<{implementation}>"),
        Form::Out { outputs } => format!("Out<{implementation}, {outputs}, {small}>"),
        Form::Function => format!("Function<{callable}>"),
        Form::Python => "Python".to_owned(),
        Form::Copied { outputs } => format!("Copied<{callable}, {outputs}>"),
        Form::Allocating => {
            format!("Allocating<{callable}, decltype(torch_opencl::native::{function}_outputs)>")
        }
        Form::Host => {
            let host = "torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>()";
            return format!("  m.impl(\"{op}\", {host});\n");
        }
    };
    let facts = facts(registration, row);
    format!("  entry<at::_ops::{function}, {small}, form::{form}>(m, \"{op}\", {facts});\n")
}

/// The treatment of small calls on a CPU device: a `SmallCalls` of `op_row.h`.
fn small_calls(registration: &Registration, row: &PlannedRow) -> &'static str {
    let is_out = matches!(registration.form, Form::Out { .. });
    let on_cpu = match row.on_cpu.map(|choice| choice.calls) {
        Some(CpuCalls::Small) => true,
        Some(CpuCalls::Never) => false,
        // Stubs of element-wise iterations choose ATen's CPU kernel themselves.
        _ => row.family.is_small_on_cpu() || registration.op.starts_with("_foreach_"),
    };
    if on_cpu && !(is_out && row.family.restrides_out()) {
        "SmallCalls::Cpu"
    } else {
        "SmallCalls::Kernel"
    }
}

/// The `OpRow` of a registration.
fn facts(registration: &Registration, row: &PlannedRow) -> String {
    let op = registration.op.as_str();
    let mut facts = vec![format!(".dtypes = {:#x}", row.dtypes.mask())];
    // The kernel converts inputs to their promoted dtype. Lists are split before.
    let promotes = matches!(row.family.kind, Kind::Pointwise { arity: 2.. })
        && row.pointwise.as_ref().is_none_or(|op| op.class_from == ClassFrom::Common)
        && !op.starts_with("_foreach_");
    if promotes {
        facts.push(".promotes = true".to_owned());
    }
    if let Some(cost) = row.cost {
        facts.push(format!(".cost = Cost::{cost:?}"));
    }
    if let Some(OnCpu { calls, dtypes }) = row.on_cpu.filter(|choice| choice.calls.may_wait()) {
        facts.push(format!(".cpu = CpuCalls::{calls:?}, .cpu_dtypes = {:#x}", dtypes.mask()));
    }
    format!("{{{}}}", facts.join(", "))
}
