//! Constants that were chosen by measurement.

/// A constant that was chosen by measurement. `make bench-constants CASES=NAME` repeats the measurement: it compiles
/// the crate with other values, taken from environment variables, and times what depends on them
/// (`benchmarks/constants.py` has the values and rows).
macro_rules! measured {
    ($name:literal, $value:expr) => {
        match option_env!(concat!("TORCH_OPENCL_CONSTANT_", $name)) {
            Some(text) => $crate::measured::parse(text) as _,
            None => $value,
        }
    };
}

/// Parses an integer; any other string is a compile-time error.
#[allow(clippy::panic, reason = "it is evaluated by the compiler")]
pub const fn parse(text: &str) -> i64 {
    match i64::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a measured constant must be an integer"),
    }
}
