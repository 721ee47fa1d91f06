//! Warnings about failures that no call of the user can return.

use std::cell::RefCell;
use std::sync::OnceLock;

static WARN: OnceLock<fn(&str)> = OnceLock::new();

thread_local! {
    static COLLECTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Sets the function that warns the user; standard error until then.
pub fn warn_with(warn: fn(&str)) {
    let _ = WARN.set(warn);
}

/// Warns the user, in the thread whose call is affected.
pub fn warn(message: &str) {
    let is_collected = COLLECTED.with_borrow_mut(|texts| texts.as_mut().map(|texts| texts.push(message.to_owned())));
    if is_collected.is_some() {
        return;
    }
    match WARN.get() {
        Some(warn) => warn(message),
        None => eprintln!("{message}"),
    }
}

/// Runs a function in one of our threads; returns its warnings for the thread that waits for it.
pub(super) fn collect_warnings<R>(function: impl FnOnce() -> R) -> (R, Vec<String>) {
    COLLECTED.set(Some(Vec::new()));
    let result = function();
    (result, COLLECTED.take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_collected_for_another_thread() {
        let (result, warnings) = collect_warnings(|| {
            warn("slow");
            5
        });
        assert_eq!((result, warnings), (5, vec!["slow".to_owned()]));
        assert!(COLLECTED.take().is_none());
    }
}
