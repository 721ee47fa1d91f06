//! The structs that kernels take by value, which `build.rs` reads from `.cl` files (rust/codegen/structs.rs): a module
//! for each file.

/// A struct, and the offsets of all its scalars in a kernel.
#[derive(Debug)]
pub struct SharedStruct {
    /// The kernel file that declares it.
    pub file: &'static str,
    /// Its name in that file.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its declaration and those of the structs in it, in OpenCL C.
    pub declarations: &'static str,
    /// Each scalar: its expression in a kernel, its type, and its offset in bytes.
    pub scalars: &'static [(&'static str, &'static str, usize)],
}

include!(concat!(env!("OUT_DIR"), "/kernel_structs.rs"));
