// Generated from native_functions.yaml by rust/codegen.

/// Ops that draw from a distribution; the position is the code.
pub static NAMES: &[&str] = &["exponential_"];

/// Their codes as the kernels' macros.
pub const CODES: &str = "#define RANDOM_exponential_ 0\n";

/// The `case` lines.
pub const CASES: &str = "case 0: { const T lambd = s0; return -log(OPEN_UNIFORM) / (lambd * LIT(1.0)); }\n";
