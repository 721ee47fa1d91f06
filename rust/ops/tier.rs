//! Which launches may take a specialised program.

use std::borrow::Borrow;

use crate::kernels::Spec;

/// Below so many elements the two forms of a program take about as long, as starting a kernel costs more than what it does.
const LARGE: i64 = 1 << 16;

/// Generic for small tensors; for larger ones also the form with these constants in it, once it is there.
pub fn tier(elements: i64, constants: impl IntoIterator<Item: Borrow<(&'static str, i32)>>) -> Spec {
    if elements < LARGE {
        return Spec::generic();
    }
    constants.into_iter().fold(Spec::generic(), |spec, constant| {
        let (name, value) = *constant.borrow();
        spec.specialise(elements as u64, name, i64::from(value))
    })
}
