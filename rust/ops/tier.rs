//! Which tier a launch takes.

use crate::kernels::Spec;

/// Elements from which a specialised program is worth its build, as for pointwise ops.
const SPECIALISE_FROM: i64 = 1 << 16;

/// The generic program for small tensors; for larger ones the program with these constants in it.
pub fn tier(elements: i64, constants: &[(&'static str, i32)]) -> Spec {
    if elements < SPECIALISE_FROM {
        return Spec::generic();
    }
    constants.iter().fold(Spec::generic(), |spec, (name, value)| spec.define(name, i64::from(*value)))
}
