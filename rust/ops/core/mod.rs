//! Shared by the launchers of all families.

pub mod geometry;
pub mod planes;
pub mod scalar;
pub mod segments;
pub mod space;
pub mod struct_check;
pub mod target;
pub mod tensor;
pub mod tier;
