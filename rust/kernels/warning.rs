//! Warnings to users of failures that no call of theirs can return.

use std::sync::OnceLock;

static WARN: OnceLock<fn(&str)> = OnceLock::new();

/// Says how the user is told; standard error until then.
pub fn warn_with(warn: fn(&str)) {
    let _ = WARN.set(warn);
}

/// Tells the user, in the thread whose call it concerns.
pub fn warn(message: &str) {
    match WARN.get() {
        Some(warn) => warn(message),
        None => eprintln!("{message}"),
    }
}
