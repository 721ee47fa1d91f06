//! Kernel sources and the programs built from them.
//!
//! The sources are `.cl` files; those of a family are next to its launchers, and follow `prelude.cl` in a program. A
//! program is built for one compute [`Class`], and has up to two forms: a [`Spec`] turns arguments of the generic
//! form's kernels, ops and dtypes, into constants of the specialised form.

mod ahead_of_time;
mod build;
mod bundle;
mod cache;
mod compile_thread;
mod disk;
mod driver_cache;
mod dtype;
pub mod entry;
mod evict;
mod fma_or_mad;
mod intact;
mod layout;
mod listing;
mod marker;
mod program;
mod progress;
mod recipe;
mod source;
mod spec;
pub mod store;
pub mod structs;
mod tiers;
mod warning;

pub use ahead_of_time::{bundle_path, is_ahead_of_time};
pub use build::compile_binary;
pub use bundle::{bundle_contents, check_bundle, identity as bundle_identity};
pub use cache::{cache_info, generated_program, program, stop_building, wait_for_builds};
pub use disk::{check_cache_folder, folder as cache_folder, Entry as DiskEntry};
pub use driver_cache::{check_driver_cache, driver_cache_obstacle, leave as leave_driver_cache};
pub use dtype::{Class, DType, RARE_DTYPES};
pub use evict::check_cache_size;
pub use layout::{Layout, MAX_DIMS, MAX_OPERANDS};
pub use listing::{is_recording, record_programs, recorded_programs, Listing};
pub use program::CachedProgram;
pub use progress::{check_progress, end as end_progress, show as show_progress};
pub use source::{Family, Switch};
pub use spec::{Constant, Spec, Tier, OPENCL_3};
pub use tiers::{set_eager_builds, Specialisation};
pub use warning::{warn, warn_with};
