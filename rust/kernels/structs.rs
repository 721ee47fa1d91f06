//! The structs that kernels take by value, as `build.rs` reads them from `.cl` files (rust/codegen/structs.rs): a
//! module for each file.

/// A struct, and how a kernel reads every scalar of it.
#[derive(Debug)]
pub struct SharedStruct {
    /// The file of the kernels that declares it.
    pub file: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// Its bytes.
    pub size: usize,
    /// It and the structs that it holds, in OpenCL C.
    pub declarations: &'static str,
    /// Each scalar as a kernel names it, its type, and its offset in bytes.
    pub scalars: &'static [(&'static str, &'static str, usize)],
}

include!(concat!(env!("OUT_DIR"), "/kernel_structs.rs"));
