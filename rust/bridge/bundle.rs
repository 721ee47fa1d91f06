//! Bundles of binaries for C++: the sources of programs, and the contents of bundles.

use serde_json::{json, Value};

use crate::error::{Error, Result};
use crate::kernels::{self, record_programs, Listing};
use crate::ops::catalogue::catalogue;
use crate::runtime::device;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    extern "Rust" {
        fn bundle_path() -> String;
        fn bundle_identity(index: i32) -> Result<String>;
        fn kernel_catalogue(index: i32) -> Result<String>;
        fn record_programs();
        fn recorded_programs() -> String;
        fn compile_binary(index: i32, name: &str, source: &str, options: &str, path: &str) -> Result<String>;
    }
}

/// The value of `TORCH_OPENCL_KERNEL_BUNDLE`; empty if it is not set.
fn bundle_path() -> String {
    kernels::bundle_path().map(|path| path.display().to_string()).unwrap_or_default()
}

/// The identity of a device and of this library, which a bundle must match, in JSON.
fn bundle_identity(index: i32) -> Result<String> {
    Ok(kernels::bundle_identity(device(index)?).to_string())
}

fn describe(programs: &[Listing]) -> String {
    let program = |listing: &Listing| {
        json!({
            "key": listing.key,
            "name": listing.name,
            "options": listing.options,
            "build_options": listing.build_options(),
            "kernels": listing.kernels(),
            "source": listing.source,
        })
    };
    Value::from(programs.iter().map(program).collect::<Vec<_>>()).to_string()
}

/// The generic programs that a device may request, in JSON.
fn kernel_catalogue(index: i32) -> Result<String> {
    Ok(describe(&catalogue(index)?))
}

/// The generic programs requested since `record_programs`, in JSON.
fn recorded_programs() -> String {
    describe(&kernels::recorded_programs())
}

/// Compiles a program into a file; returns the names of its kernels, separated by semicolons.
fn compile_binary(index: i32, name: &str, source: &str, options: &str, path: &str) -> Result<String> {
    let (binary, kernels) = kernels::compile_binary(device(index)?, name, source, options)?;
    let failed = |error| Error::Invalid(format!("OpenCL: {path} cannot be written ({error})"));
    std::fs::write(path, binary).map_err(failed)?;
    Ok(kernels)
}
