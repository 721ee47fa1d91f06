//! The sources of each family.

/// A set of kernels that are built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Element-wise ops of the op table.
    Pointwise,
    /// Gathers, scatters and searches.
    Index,
    /// Philox and what is drawn from it.
    Random,
    /// Sequences.
    Factory,
    /// Transposes and triangles.
    Copy,
    /// Cumulative sums, products and extremes.
    Scan,
    /// Stable merge sort of rows.
    Sort,
}

const PRELUDE: &str = include_str!("cl/prelude.cl");
const VECTOR: &str = include_str!("cl/vector.cl");
const MATH: &str = include_str!("cl/math.cl");
const INDEX: &str = include_str!("cl/index.cl");
const RANDOM: &str = include_str!("cl/random.cl");
const FACTORY: &str = include_str!("cl/factory.cl");
const COPY: &str = include_str!("cl/copy.cl");
const SCAN: &str = include_str!("cl/scan.cl");
const SORT: &str = include_str!("cl/sort.cl");
const POINTWISE: &str = include_str!("cl/pointwise.cl");

/// Where the generated op switch goes.
const CASES_LINE: &str = "//@CASES@";

impl Family {
    /// All families.
    pub const ALL: &'static [Self] = &[Self::Pointwise, Self::Index, Self::Random, Self::Factory, Self::Copy, Self::Scan, Self::Sort];

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pointwise => "pointwise",
            Self::Index => "index",
            Self::Random => "random",
            Self::Factory => "factory",
            Self::Copy => "copy",
            Self::Scan => "scan",
            Self::Sort => "sort",
        }
    }

    const fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Pointwise => &[PRELUDE, VECTOR, MATH, POINTWISE],
            Self::Index => &[PRELUDE, INDEX],
            Self::Random => &[PRELUDE, RANDOM],
            Self::Factory => &[PRELUDE, FACTORY],
            Self::Copy => &[PRELUDE, COPY],
            Self::Scan => &[PRELUDE, SCAN],
            Self::Sort => &[PRELUDE, SORT],
        }
    }

    /// The whole source, with the op switch put in.
    pub fn source(self, cases: &str) -> String {
        self.parts().concat().replace(CASES_LINE, cases)
    }
}
