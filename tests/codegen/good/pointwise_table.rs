// Generated from native_functions.yaml by rust/codegen.

/// Operations of the pointwise kernels; the values are the `case`s of their `switch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointwiseOp {
    /// `add.Tensor`
    AddTensor = 0,
    /// `exp`
    Exp = 1,
    /// `bitwise_and.Tensor_out`
    BitwiseAndTensorOut = 2,
    /// `where.self`
    WhereSelf = 3,
    /// `fill_.Scalar`
    FillInplaceScalar = 4,
    /// `frexp_stub`
    FrexpStub = 5,
    /// `isnan`
    Isnan = 6,
    /// `div_trunc_stub`
    DivTruncStub = 7,
}

/// Compute classes with separate expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExprClass {
    /// `float` and `double`
    Float,
    /// `long`
    Int,
    /// `float2` and `double2`
    Complex,
}

/// The index of an output, times this, is added to a code.
pub const OUTPUT_CASES: u32 = 1000;

/// Functions that only the programs of some rows have; the first part is for rows that need none.
pub static PARTS: &[&str] = &[
    "",
    include_str!(concat!(env!("OUT_DIR"), "/cl/special.cl")),
];

/// All operations; the position is the code.
pub static POINTWISE: &[PointwiseRow] = &[
    PointwiseRow {
        op: PointwiseOp::AddTensor,
        name: "add.Tensor",
        arity: 2,
        scalars: &["alpha"],
        outputs: 1,
        part: 0,
        expr: Some("a + alpha * b"),
        expr_int: Some("a + alpha * b"),
        expr_complex: Some("a + cmul(alpha, b)"),
        dtypes: 0x8eff,
        cases: ["case 0: { const T alpha = s0; return a + alpha * b; }\n", "case 0: { const T alpha = s0; return a + alpha * b; }\n", "case 0: { const T alpha = s0; return a + cmul(alpha, b); }\n"],
        short: [true, true, true],
        narrow: true,
    },
    PointwiseRow {
        op: PointwiseOp::Exp,
        name: "exp",
        arity: 1,
        scalars: &[],
        outputs: 1,
        part: 0,
        expr: Some("exp(a * 0.5 + 1e-7 - 2.5e+3) + 1.5f * 3"),
        expr_int: None,
        expr_complex: None,
        dtypes: 0x88ff,
        cases: ["case 1: return exp(a * LIT(0.5) + LIT(1e-7) - LIT(2.5e+3)) + 1.5f * 3;\n", "", ""],
        short: [false, true, true],
        narrow: false,
    },
    PointwiseRow {
        op: PointwiseOp::BitwiseAndTensorOut,
        name: "bitwise_and.Tensor_out",
        arity: 2,
        scalars: &[],
        outputs: 1,
        part: 0,
        expr: None,
        expr_int: Some("a & b"),
        expr_complex: None,
        dtypes: 0x81f,
        cases: ["", "case 2: return a & b;\n", ""],
        short: [true, true, true],
        narrow: true,
    },
    PointwiseRow {
        op: PointwiseOp::WhereSelf,
        name: "where.self",
        arity: 3,
        scalars: &[],
        outputs: 1,
        part: 0,
        expr: Some("a != 0 ? b : c"),
        expr_int: Some("a != 0 ? b : c"),
        expr_complex: None,
        dtypes: 0x850,
        cases: ["case 3: return a != 0 ? b : c;\n", "case 3: return a != 0 ? b : c;\n", ""],
        short: [true, true, true],
        narrow: true,
    },
    PointwiseRow {
        op: PointwiseOp::FillInplaceScalar,
        name: "fill_.Scalar",
        arity: 0,
        scalars: &["value"],
        outputs: 1,
        part: 0,
        expr: Some("value"),
        expr_int: Some("value"),
        expr_complex: Some("value"),
        dtypes: 0x8eff,
        cases: ["case 4: { const T value = s0; return value; }\n", "case 4: { const T value = s0; return value; }\n", "case 4: { const T value = s0; return value; }\n"],
        short: [true, true, true],
        narrow: true,
    },
    PointwiseRow {
        op: PointwiseOp::FrexpStub,
        name: "frexp_stub",
        arity: 1,
        scalars: &[],
        outputs: 2,
        part: 1,
        expr: Some("mantissa(a)"),
        expr_int: None,
        expr_complex: None,
        dtypes: 0x80e8,
        cases: ["case 5: return mantissa(a);\ncase 1005: return exponent_of(a);\n", "", ""],
        short: [false, true, true],
        narrow: false,
    },
    PointwiseRow {
        op: PointwiseOp::Isnan,
        name: "isnan",
        arity: 1,
        scalars: &[],
        outputs: 1,
        part: 0,
        expr: Some("a != a"),
        expr_int: None,
        expr_complex: None,
        dtypes: 0x80e0,
        cases: ["case 6: return a != a;\n", "", ""],
        short: [true, true, true],
        narrow: false,
    },
    PointwiseRow {
        op: PointwiseOp::DivTruncStub,
        name: "div_trunc_stub",
        arity: 2,
        scalars: &[],
        outputs: 1,
        part: 0,
        expr: Some("trunc( a / b)"),
        expr_int: None,
        expr_complex: None,
        dtypes: 0x80e0,
        cases: ["case 7: return trunc( a / b);\n", "", ""],
        short: [true, true, true],
        narrow: false,
    },
];
