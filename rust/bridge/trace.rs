//! Part of the bridge: functions for profilers.

use crate::cl::{pop_correlation, push_correlation, TracedKind};
use crate::error::Result;
use crate::runtime::{self, start_profile, ProfiledCommand};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    /// Kind of a command.
    enum CommandKind {
        Kernel,
        Copy,
        Fill,
    }

    /// A command with its times.
    struct DeviceCommand {
        name: String,
        kind: CommandKind,
        /// The driver's function that enqueued it, and the host thread that called it.
        call: &'static str,
        thread: i64,
        /// When it was called and when it returned, in nanoseconds since 1970.
        called: i64,
        returned: i64,
        device: i32,
        stream: i64,
        /// The last id passed to `push_correlation` in the thread that enqueued the command; 0 for none.
        correlation: u64,
        /// Bytes copied or filled.
        bytes: usize,
        /// Work-items in total and in a group; 0 for absent dimensions, or if the driver chooses.
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
        call: command.call,
        thread: command.thread,
        called: command.called,
        returned: command.returned,
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
