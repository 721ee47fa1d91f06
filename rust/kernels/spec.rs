//! Constants with which a program is built.

use std::fmt::Write;

/// The two forms of a program (docs/decisions/003).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Op and dtypes are arguments of the kernels.
    Generic,
    /// Op and dtypes are constants.
    Specialised,
}

/// A constant of a program: the name of a macro, and its value.
pub type Constant = (&'static str, i64);

/// A program with this constant is compiled as OpenCL C 3.0. Others are OpenCL C 1.2, which all drivers compile.
pub const OPENCL_3: Constant = ("OPENCL_3", 1);

/// Constants of a program, and the additional ones of its specialised form.
///
/// Names are the `SPEC_*` macros of the sources and their tuning parameters (`VEC`, `LSIZE`, ...).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Constants of both forms come first.
    constants: Vec<Constant>,
    shared: usize,
    elements: u64,
}

impl Spec {
    /// A program that has only a generic form.
    pub fn generic() -> Self {
        Self::default()
    }

    /// Adds a constant of both forms.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: i64) -> Self {
        self.constants.insert(self.shared, (name, value));
        self.shared += 1;
        self
    }

    /// Adds a constant of the specialised form, which this launch over `elements` elements may then use.
    #[must_use]
    pub fn specialise(mut self, elements: u64, name: &'static str, value: i64) -> Self {
        self.constants.push((name, value));
        self.elements = elements;
        self
    }

    /// Constants of the generic form.
    pub fn shared(&self) -> &[Constant] {
        self.constants.get(..self.shared).unwrap_or_default()
    }

    /// Constants of the specialised form, if this launch may use it.
    pub fn specialised(&self) -> Option<&[Constant]> {
        (self.constants.len() > self.shared).then_some(&self.constants)
    }

    /// Elements of a launch that may use the specialised form.
    pub fn elements(&self) -> u64 {
        self.elements
    }
}

/// Compiler options for constants.
pub fn options(constants: &[Constant]) -> String {
    constants.iter().fold(String::new(), |mut options, (name, value)| {
        // Writing to a String cannot fail.
        let _ = write!(options, " -D {name}={value}");
        options
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_options_in_their_order() {
        assert_eq!(options(&[]), "");
        assert_eq!(options(Spec::generic().define("TILE", 7).define("VEC", -1).shared()), " -D TILE=7 -D VEC=-1");
    }

    #[test]
    fn the_generic_form_lacks_the_constants_of_the_specialised_form() {
        let spec = Spec::generic().specialise(9, "SPEC_OP", 3).define("VEC", 8);
        assert_eq!(spec.shared(), [("VEC", 8)]);
        assert_eq!(spec.specialised(), Some(&[("VEC", 8), ("SPEC_OP", 3)][..]));
        assert_eq!(spec.elements(), 9);
        assert_eq!(Spec::generic().define("VEC", 8).specialised(), None);
    }
}
