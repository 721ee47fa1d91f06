//! Which launches may take a specialised program.

use std::borrow::Borrow;

use crate::kernels::{DType, Spec};

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

/// With the conversions of rare dtypes, where a launch meets one.
pub fn with_rare(spec: Spec, dtypes: impl IntoIterator<Item = DType>) -> Spec {
    if dtypes.into_iter().any(DType::is_rare) {
        return spec.define("RARE_DTYPES", 1);
    }
    spec
}
