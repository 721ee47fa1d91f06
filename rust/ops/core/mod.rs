//! Shared by the launchers of all families.

pub mod checked;
pub mod forms;
pub mod geometry;
pub mod kept;
pub mod multi_tensor;
pub mod planes;
pub mod scalar;
pub mod space;
pub mod struct_check;
pub mod target;
pub mod tensor;
pub mod tier;
pub mod vectors;
