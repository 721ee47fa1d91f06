//! What a program is specialised for.

use std::fmt::Write;

/// Constants that a tier-1 program is built with; empty for tier 0.
///
/// Keys are the `SPEC_*` macros of the sources and their tuning parameters (`VEC`, `LSIZE`, ...).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spec {
    defines: Vec<(&'static str, i64)>,
    /// Text that replaces the `//@CASES@` line of a source: the switch of a pointwise family.
    cases: Option<String>,
}

impl Spec {
    /// The generic program of a family.
    pub fn generic() -> Self {
        Self::default()
    }

    /// Adds a constant.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: i64) -> Self {
        self.defines.push((name, value));
        self
    }

    /// Sets the text of the op switch.
    #[must_use]
    pub fn cases(mut self, text: String) -> Self {
        self.cases = Some(text);
        self
    }

    /// The op switch, empty where the family has none.
    pub fn case_text(&self) -> &str {
        self.cases.as_deref().unwrap_or_default()
    }

    /// Compiler options.
    pub fn options(&self) -> String {
        self.defines.iter().fold(String::new(), |mut options, (name, value)| {
            // Writing to a String cannot fail.
            let _ = write!(options, " -D {name}={value}");
            options
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_become_options_in_their_order() {
        assert_eq!(Spec::generic().options(), "");
        assert_eq!(Spec::generic().define("SPEC_OP", 7).define("VEC", -1).options(), " -D SPEC_OP=7 -D VEC=-1");
    }
}
