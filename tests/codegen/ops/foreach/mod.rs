//! A family.
