//! Checks that the driver hands structs to kernels as the host lays them out.

use super::target::Target;
use crate::cl::{Arg, Grid, Memory, Program, Start};
use crate::error::Result;
use crate::kernels::entry::PACKED;
use crate::kernels::structs::{SharedStruct, SHARED};
use crate::runtime::copy_device_to_host;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    extern "Rust" {
        fn struct_mismatches(device: i32) -> Result<String>;
    }
}

/// Passes every struct that kernels take by value to a kernel, each field with a different value, and compares the
/// values that the kernel reads.
///
/// Returns the fields that are read wrongly, one per line; empty if there are none.
///
/// # Errors
/// [`crate::error::Error::NoDevice`], and as the driver reports.
pub fn struct_mismatches(device: i32) -> Result<String> {
    let target = Target::at(device)?;
    let mismatches =
        SHARED.iter().chain(PACKED).map(|shared| mismatches(&target, shared)).collect::<Result<Vec<_>>>()?;
    Ok(mismatches.concat())
}

/// A value that no other field of the struct has, as wide as its type. A read from a wrong position gives another
/// value.
fn number(index: usize, kind: &str) -> u64 {
    let base = if is_wide(kind) { 0x1122_3344_5566_0000 } else { 0x7788_0000 };
    base + index as u64 + 1
}

fn is_wide(kind: &str) -> bool {
    matches!(kind, "long" | "ulong" | "double")
}

fn mismatches(target: &Target, shared: &SharedStruct) -> Result<String> {
    let SharedStruct { file, name, size, declarations, scalars } = shared;
    let mut value = vec![0; *size];
    let mut reads = String::new();
    for (index, (path, kind, offset)) in scalars.iter().enumerate() {
        let bytes = number(index, kind).to_le_bytes();
        let width = if is_wide(kind) { 8 } else { 4 };
        for (slot, byte) in value.iter_mut().skip(*offset).zip(bytes.iter().take(width)) {
            *slot = *byte;
        }
        let read = match *kind {
            "float" => format!("as_uint(value.{path})"),
            "double" => format!("as_ulong(value.{path})"),
            "int" | "uint" => format!("(uint)value.{path}"),
            _ => format!("(ulong)value.{path}"),
        };
        reads.push_str(&format!("  ((__global ulong *)(out + offset))[{index}] = {read};\n"));
    }
    let source = format!(
        "{declarations}\n__kernel void read_scalars(__global uchar *out, ulong offset, {name} value) {{\n{reads}}}\n"
    );
    let context = &target.state.context;
    let program = Program::from_source(context, &source, "", &format!("struct {name}"), &target.device.info.name)?;
    let kernel = program.kernel("read_scalars")?;
    let out = target.workspace(scalars.len() * size_of::<u64>())?;
    let Memory { handle, offset } = target.memory(out.address)?;
    let args = [Arg::Buffer(handle), Arg::of(&offset), Arg::Bytes(&value)];
    let grid = Grid { first: None, global: &[1], local: None };
    target.stream.launch(context, &kernel, &args, &grid, Start::Now)?;
    let mut read = vec![0_u64; scalars.len()];
    // SAFETY: the vector has as many bytes as the workspace, and this waits for them.
    unsafe { copy_device_to_host(read.as_mut_ptr().cast(), out.address, size_of_val(&*read), false)? };
    let wrong =
        scalars.iter().zip(read).enumerate().filter(|(index, ((_, kind, _), read))| *read != number(*index, kind));
    Ok(wrong.map(|(_, ((path, ..), read))| format!("{file}.cl: {name}.{path} is read as {read:#x}\n")).collect())
}
