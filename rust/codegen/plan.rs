//! The checked table, from which all emitters print.

use std::collections::BTreeSet;

use super::cpu::{Cost, CpuCalls, OnCpu};
use super::dtypes::Dtypes;
use super::family::Family;
use super::layout::Layout;

/// The whole table, in its order.
#[derive(Debug)]
pub struct Plan {
    pub rows: Vec<PlannedRow>,
}

impl Plan {
    /// Distributions in the order of their codes.
    pub fn distributions(&self) -> impl Iterator<Item = &Distribution> {
        self.rows.iter().filter_map(|row| row.distribution.as_ref())
    }

    /// Pointwise operations in the order of their codes.
    pub fn pointwise(&self) -> impl Iterator<Item = &Pointwise> {
        self.rows.iter().filter_map(|row| row.pointwise.as_ref())
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct PlannedRow {
    pub family: Family,
    pub dtypes: Dtypes,
    /// The calls that CPU devices leave to ATen's own function.
    pub on_cpu: Option<OnCpu>,
    /// How to decide if a call is small enough for the CPU, if not by the size of the result.
    pub cost: Option<Cost>,
    /// Overloads to register; none if the row only fills a stub.
    pub registrations: Vec<Registration>,
    /// The operation that the row adds to the pointwise kernels.
    pub pointwise: Option<Pointwise>,
    /// The distribution that the row adds to the random kernels.
    pub distribution: Option<Distribution>,
    /// The stub that the row fills.
    pub stub: Option<StubFill>,
}

impl PlannedRow {
    /// Returns true if no call of the row's ops goes to ATen's CPU function, however small.
    pub fn is_never_on_cpu(&self) -> bool {
        self.on_cpu.is_some_and(|choice| choice.calls == CpuCalls::Never)
    }
}

/// One overload and the C++ that implements it.
#[derive(Debug)]
pub struct Registration {
    /// Name with overload, `add.Tensor`.
    pub op: String,
    /// The op's struct in `at::_ops`, `add_Tensor`.
    pub function: String,
    /// Stem of its headers in `ATen/ops`.
    pub header: String,
    pub form: Form,
    /// Layout of the tensors for which the implementation is registered.
    pub layout: Layout,
    /// Qualified name of a class (structured forms) or function in C++, or `module:function` in Python.
    pub implementation: String,
    /// Declaration of the implementation, if it is ours.
    pub declares: Option<Declaration>,
}

impl Registration {
    /// Returns true if the implementation is our C++, which needs a declaration.
    pub const fn is_ours(&self) -> bool {
        matches!(
            self.declares,
            Some(
                Declaration::Function(_)
                    | Declaration::OfStruct { .. }
                    | Declaration::Class { .. }
                    | Declaration::Template { .. }
            )
        )
    }
}

/// The declaration of our entry.
#[derive(Debug)]
pub enum Declaration {
    /// A function with its op's signature.
    Function(String),
    /// A function that takes its op's arguments, with these names, as one struct.
    OfStruct { name: String, arguments: Vec<String> },
    /// A class derived from ATen's class of the functional op: the name, and that op's struct and header.
    Class { name: String, meta: String, header: String },
    /// An expression of ATen's functions and its op's arguments: the name of the generated function, those arguments,
    /// and the headers of ATen that it needs.
    Expression { name: String, arguments: Vec<String>, text: String, headers: BTreeSet<String> },
    /// A name for our class template with its arguments, the first of which is ATen's class.
    Template { name: String, class: String, header: String },
}

/// How an overload uses its implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Structured, allocates its outputs.
    Functional { outputs: usize },
    /// Structured, writes to its first argument.
    Inplace,
    /// Structured, writes to its `out` arguments.
    Out { outputs: usize },
    /// Not structured: a plain function.
    Function,
    /// Not structured: a Python function, `module:function` in `python/torch_opencl/composites`.
    Python,
    /// The CPU's kernel, called boxed.
    Host,
    /// Not structured: copies the results of the functional variant to its `out` arguments.
    Copied { outputs: usize },
    /// Not structured: allocates its outputs with the registration's expression and calls the plain function of the
    /// out= variant.
    Allocating,
}

/// A `DispatchStub`, the header that declares it and its kernel.
#[derive(Debug)]
pub struct StubFill {
    pub stub: String,
    pub header: String,
    pub kernel: StubKernel,
}

/// The kernel of a stub.
#[derive(Debug)]
pub enum StubKernel {
    /// The pointwise operation of the row.
    Pointwise,
    /// The distribution of the row.
    Distribution,
    /// A C++ function in `torch_opencl::native`.
    Function(String),
}

/// A distribution of the random kernels.
#[derive(Debug)]
pub struct Distribution {
    /// Its number: the value of the C++ enum and of the `case` in the kernels.
    pub code: usize,
    /// Name of the op.
    pub name: String,
    pub scalars: Vec<String>,
    pub expr: String,
}

impl Distribution {
    /// The enumerator in C++, and its name in the kernels: `bernoulli_.float` is `bernoulli__float`.
    pub fn identifier(&self) -> String {
        self.name.replace('.', "_")
    }
}

/// An operation of the pointwise kernels.
#[derive(Debug)]
pub struct Pointwise {
    /// Its number: the value of both enums and of the `case` in the kernels.
    pub code: usize,
    /// Name of the op, or of the stub in a row without one.
    pub name: String,
    pub arity: usize,
    pub scalars: Vec<String>,
    pub class_from: ClassFrom,
    /// Operands that are not rounded to a 16-bit dtype: bit k for input k if it is a single value, bit 4 + k for scalar
    /// k.
    pub opmath: u32,
    /// One set for each output.
    pub exprs: Vec<Exprs>,
    /// Stem of the file with functions that only programs of such rows include.
    pub part: Option<String>,
    pub dtypes: Dtypes,
}

/// The operand whose dtype an operation computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassFrom {
    /// The dtype to which ATen promoted the inputs.
    Common,
    Out,
    In0,
}

/// Expressions by compute class; absent if no dtype of the row needs it.
#[derive(Debug)]
pub struct Exprs {
    pub float: Option<String>,
    pub int: Option<String>,
    pub complex: Option<String>,
}

impl Pointwise {
    /// The enumerator in C++: `add.Tensor` is `add_Tensor`.
    pub fn cpp_name(&self) -> String {
        self.name.replace('.', "_")
    }

    /// The variant in Rust: `add.Tensor` is `AddTensor`, `fill_.Scalar` is `FillInplaceScalar`,
    /// `_conj` is `PrivateConj`, so that no two ops share a name.
    pub fn rust_name(&self) -> String {
        let private = if self.name.starts_with('_') { "Private" } else { "" };
        let name = self.name.replacen("_.", "_inplace.", 1);
        let name = match name.strip_suffix('_') {
            Some(inplace) => format!("{inplace}_inplace"),
            None => name,
        };
        let words = name.split(['_', '.']).filter(|word| !word.is_empty());
        private.chars().chain(words.flat_map(capitalized)).collect()
    }
}

fn capitalized(word: &str) -> impl Iterator<Item = char> + use<'_> {
    word.chars().enumerate().map(|(i, c)| if i == 0 { c.to_ascii_uppercase() } else { c })
}
