//! Forms of programs, which families list for bundles.

use super::geometry::Geometry;
use crate::kernels::{Class, DType, Spec, RARE_DTYPES};
use crate::ops::Target;

/// The compute class and the constants of a program.
pub(in crate::ops) type Form = (Class, Spec);

pub(in crate::ops) const ALL: [Class; 6] =
    [Class::Float, Class::Integer, Class::Complex, Class::Double, Class::ComplexDouble, Class::Unsigned];
pub(in crate::ops) const SIGNED: [Class; 5] =
    [Class::Float, Class::Integer, Class::Complex, Class::Double, Class::ComplexDouble];
pub(in crate::ops) const FLOATS: [Class; 2] = [Class::Float, Class::Double];
pub(in crate::ops) const REALS: [Class; 3] = [Class::Float, Class::Integer, Class::Double];
pub(in crate::ops) const FLOATS_AND_COMPLEX: [Class; 4] =
    [Class::Float, Class::Complex, Class::Double, Class::ComplexDouble];
/// Dtypes of matmuls, convolutions and attention that are listed.
pub(in crate::ops) const FLOAT_DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

/// The spec of programs that convert rare dtypes.
pub(in crate::ops) fn rare() -> Spec {
    Spec::generic().define(RARE_DTYPES, 1)
}

/// Each class with the geometry of rows, and also of few columns if that differs.
pub(in crate::ops) fn rows_and_columns(target: &Target, classes: &[Class]) -> Vec<(Class, Geometry)> {
    let mut found = Vec::new();
    for class in classes {
        let rows = Geometry::of(target, *class);
        found.push((*class, rows));
        let columns = rows.for_columns(1, 1);
        if columns != rows {
            found.push((*class, columns));
        }
    }
    found
}
