//! Which launches may use a specialised program.

use std::borrow::Borrow;

use crate::kernels::{DType, Spec, RARE_DTYPES};

/// Below this many elements both forms of a program take about the same time, as the launch costs more than the kernel.
const LARGE: i64 = measured!("SPECIALISED_ELEMENTS", 1 << 16);

/// Generic for small tensors; for larger ones also the form specialised by these constants, once it is built. Both
/// convert rare dtypes if a constant `SPEC_DTYPE...` is one.
pub fn tier(elements: i64, constants: impl IntoIterator<Item: Borrow<(&'static str, i32)>>) -> Spec {
    let (mut spec, mut has_rare) = (Spec::generic(), false);
    for constant in constants {
        let (name, value) = *constant.borrow();
        has_rare |= name.starts_with("SPEC_DTYPE") && DType::is_rare_code(value);
        if elements >= LARGE {
            spec = spec.specialise(elements as u64, name, i64::from(value));
        }
    }
    if has_rare {
        spec.define(RARE_DTYPES, 1)
    } else {
        spec
    }
}

/// Converts also a dtype that is no constant of the specialised form.
pub fn with_rare(spec: Spec, dtype: DType) -> Spec {
    if dtype.is_rare() && !spec.shared().contains(&(RARE_DTYPES, 1)) {
        return spec.define(RARE_DTYPES, 1);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_convert_rare_dtypes_of_their_constants() {
        let constants = |dtype: DType| [("SPEC_OP", DType::U16.code()), ("SPEC_DTYPE1", dtype.code())];
        for elements in [1, LARGE] {
            assert_eq!(tier(elements, constants(DType::F32)).shared(), []);
            let rare = tier(elements, constants(DType::F8E8M0FNU));
            assert_eq!(rare.shared(), [(RARE_DTYPES, 1)]);
            assert_eq!(rare.specialised().is_some(), elements == LARGE);
            assert_eq!(with_rare(rare.clone(), DType::U16), rare);
        }
        assert_eq!(with_rare(Spec::generic(), DType::C32).shared(), [(RARE_DTYPES, 1)]);
    }
}
