//! A small part of the bridge: what profilers ask for.

use crate::cl::{self, TracedKind};
use crate::error::Result;
use crate::runtime::{self, ProfiledCommand};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    /// What a command does.
    enum CommandKind {
        Kernel,
        Copy,
        Fill,
    }

    /// A command with its times.
    struct DeviceCommand {
        name: String,
        kind: CommandKind,
        device: i32,
        stream: i64,
        /// What `push_correlation` was given last in the thread that enqueued it; 0 where nothing was.
        correlation: u64,
        /// Bytes that are copied or filled.
        bytes: usize,
        /// Work-items, and those of a group; 0 where there are fewer dimensions, or the driver chooses.
        global: [usize; 3],
        local: [usize; 3],
        /// Nanoseconds since 1970.
        start: i64,
        end: i64,
    }

    extern "Rust" {
        fn start_profile();
        fn stop_profile() -> Result<Vec<DeviceCommand>>;
        fn push_correlation(id: u64);
        fn pop_correlation();
    }
}

use ffi::{CommandKind, DeviceCommand};

fn start_profile() {
    runtime::start_profile();
}

fn stop_profile() -> Result<Vec<DeviceCommand>> {
    Ok(runtime::stop_profile()?.into_iter().map(described).collect())
}

fn described(profiled: ProfiledCommand) -> DeviceCommand {
    let ProfiledCommand { device, stream, start, end, command } = profiled;
    DeviceCommand {
        name: command.name,
        kind: match command.kind {
            TracedKind::Kernel => CommandKind::Kernel,
            TracedKind::Copy => CommandKind::Copy,
            TracedKind::Fill => CommandKind::Fill,
        },
        device,
        stream,
        correlation: command.correlation,
        bytes: command.bytes,
        global: command.global,
        local: command.local,
        start,
        end,
    }
}

fn push_correlation(id: u64) {
    cl::push_correlation(id);
}

fn pop_correlation() {
    cl::pop_correlation();
}
