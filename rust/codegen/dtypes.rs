//! Dtype words of the table as bit sets over `c10::ScalarType` codes.

/// Single dtypes: the word and its `c10::ScalarType` code.
const DTYPES: [(&str, u32); 21] = [
    ("bool", 11),
    ("u8", 0),
    ("i8", 1),
    ("i16", 2),
    ("i32", 3),
    ("i64", 4),
    ("f16", 5),
    ("bf16", 15),
    ("f32", 6),
    ("f64", 7),
    ("c64", 9),
    ("c128", 10),
    ("c32", 8),
    ("u16", 27),
    ("u32", 28),
    ("u64", 29),
    ("f8e5m2", 23),
    ("f8e4m3fn", 24),
    ("f8e5m2fnuz", 25),
    ("f8e4m3fnuz", 26),
    ("f8e8m0fnu", 44),
];

/// Words for several dtypes, the widest first. `any` is every dtype of PyTorch, including quantised and packed ones:
/// for ops that only use shapes, and no elements.
const GROUPS: [(&str, Dtypes); 8] = [
    // The higher bits are the flags of registration.h.
    ("any", Dtypes((1 << 61) - 1)),
    ("stored", Dtypes(BOOL.0 | INTEGRAL.0 | FLOATING.0 | COMPLEX.0 | UNSIGNED.0 | FLOAT8.0 | 1 << 8)),
    ("all", Dtypes(BOOL.0 | INTEGRAL.0 | FLOATING.0 | COMPLEX.0)),
    ("integral", INTEGRAL),
    ("floating", FLOATING),
    ("complex", COMPLEX),
    ("unsigned", UNSIGNED),
    ("float8", FLOAT8),
];

pub const BOOL: Dtypes = Dtypes(1 << 11);
pub const INTEGRAL: Dtypes = Dtypes(0b1_1111);
pub const FLOATING: Dtypes = Dtypes(1 << 5 | 1 << 6 | 1 << 7 | 1 << 15);
pub const COMPLEX: Dtypes = Dtypes(1 << 9 | 1 << 10);
/// The unsigned dtypes that only some of PyTorch's CPU operators support; uint8 is in `integral`.
const UNSIGNED: Dtypes = Dtypes(1 << 27 | 1 << 28 | 1 << 29);
const FLOAT8: Dtypes = Dtypes(1 << 23 | 1 << 24 | 1 << 25 | 1 << 26 | 1 << 44);

/// A set of dtypes; bit n is the `c10::ScalarType` with code n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dtypes(u64);

impl Dtypes {
    /// The set for a word of the table.
    pub fn parse(word: &str) -> Option<Self> {
        let group = GROUPS.iter().find(|(name, _)| *name == word).map(|(_, set)| *set);
        let single = || DTYPES.iter().find(|(name, _)| *name == word).map(|(_, c)| Self(1 << c));
        group.or_else(single)
    }

    /// Every word that [`Dtypes::parse`] accepts.
    pub fn words() -> impl Iterator<Item = &'static str> {
        GROUPS.iter().map(|(name, _)| *name).chain(DTYPES.iter().map(|(name, _)| *name))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits, for the C++ and Rust tables.
    pub fn mask(self) -> u64 {
        self.0
    }
}
