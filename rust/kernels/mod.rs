//! Kernel sources and the programs built from them.
//!
//! The sources are `cl/*.cl`, one file a family, behind `cl/prelude.cl`. A program is built for one compute
//! [`Class`]; a [`Spec`] turns the run-time op and dtypes of tier 0 into the constants of tier 1.

mod cache;
mod disk;
mod dtype;
mod evict;
mod layout;
mod source;
mod spec;

pub use cache::{cache_info, program, CachedProgram};
pub use disk::Entry as DiskEntry;
pub use dtype::{Class, DType};
pub use evict::check_cache_size;
pub use layout::{Layout, MAX_DIMS, MAX_OPERANDS};
pub use source::Family;
pub use spec::Spec;
