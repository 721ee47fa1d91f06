//! Which launches may use a specialised program.

use std::borrow::Borrow;

use crate::kernels::{DType, Spec};

/// Below this many elements both forms of a program take about the same time, as the launch costs more than the kernel.
const LARGE: i64 = measured!("SPECIALISED_ELEMENTS", 1 << 16);

/// Generic for small tensors; for larger ones also the form specialised by these constants, once it is built.
pub fn tier(elements: i64, constants: impl IntoIterator<Item: Borrow<(&'static str, i32)>>) -> Spec {
    if elements < LARGE {
        return Spec::generic();
    }
    constants.into_iter().fold(Spec::generic(), |spec, constant| {
        let (name, value) = *constant.borrow();
        spec.specialise(elements as u64, name, i64::from(value))
    })
}

/// Adds the conversions of rare dtypes if a launch has one.
pub fn with_rare(spec: Spec, dtypes: impl IntoIterator<Item = DType>) -> Spec {
    if dtypes.into_iter().any(DType::is_rare) {
        return spec.define("RARE_DTYPES", 1);
    }
    spec
}
