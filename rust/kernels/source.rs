//! The sources of each family.

/// A set of kernels that are built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Element-wise ops of the op table.
    Pointwise,
}

const PRELUDE: &str = include_str!("cl/prelude.cl");
const VECTOR: &str = include_str!("cl/vector.cl");
const MATH: &str = include_str!("cl/math.cl");
const POINTWISE: &str = include_str!("cl/pointwise.cl");

/// Where the generated op switch goes.
const CASES_LINE: &str = "//@CASES@";

impl Family {
    /// All families.
    pub const ALL: &'static [Self] = &[Self::Pointwise];

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pointwise => "pointwise",
        }
    }

    const fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Pointwise => &[PRELUDE, VECTOR, MATH, POINTWISE],
        }
    }

    /// The whole source, with the op switch put in.
    pub fn source(self, cases: &str) -> String {
        self.parts().concat().replace(CASES_LINE, cases)
    }
}
