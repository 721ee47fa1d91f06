//! Recorded commands, which can be enqueued repeatedly without preparing their arguments again.
//!
//! Arguments are state of a `cl_kernel`, so each recorded launch has a separate kernel object, whose arguments are set
//! once. A driver reads them when a launch is enqueued: arguments that differ between replays are set again before it.

use std::ffi::c_void;

use opencl3::command_queue as api;
use opencl3::kernel::{create_kernel, get_kernel_info, CL_KERNEL_PROGRAM};
use opencl3::types::{cl_command_queue, cl_event, cl_program};

use super::cache_check::{self, FirstLaunch};
use super::enqueue::KernelCommand;
use super::kernel::{KernelHandle, ProgramReference};
use super::launch_batch::Start;
use super::{check, trace, Arg, Event, Grid, Kernel, MemHandle, Queue, Status};
use crate::error::{Error, Result};

/// Commands that are enqueued in one critical section of the queue.
const CHUNK: usize = 256;

/// A launch with a separate kernel object.
#[derive(Debug)]
struct Launch {
    name: String,
    kernel: KernelHandle,
    /// Released after the kernel object.
    _program: ProgramReference,
    dimensions: u32,
    first: Option<[usize; 3]>,
    global: [usize; 3],
    local: Option<[usize; 3]>,
    starts_now: bool,
}

/// A command as passed to the driver.
#[derive(Debug)]
enum Command {
    Launch(Launch),
    Copy { source: MemHandle, source_offset: usize, target: MemHandle, target_offset: usize, size: usize },
    Fill { target: MemHandle, offset: usize, pattern: Vec<u8>, size: usize },
}

/// A list of commands, in the order of their recording.
#[derive(Debug, Default)]
pub struct Recording {
    commands: Vec<Command>,
    launches: u64,
    /// The driver's actions at launches of shapes that have not run before.
    first_launches: Vec<FirstLaunch>,
}

fn padded(sizes: &[usize]) -> [usize; 3] {
    let mut result = [0; 3];
    for (slot, size) in result.iter_mut().zip(sizes) {
        *slot = *size;
    }
    result
}

impl Launch {
    fn new(kernel: &Kernel, args: &[Arg<'_>], grid: &Grid<'_>, start: Start) -> Result<Self> {
        let copied = kernel.with_args(&[], |handle| {
            let program = check("clGetKernelInfo", get_kernel_info(handle, CL_KERNEL_PROGRAM))?.to_ptr() as cl_program;
            let copy = KernelHandle(check("clCreateKernel", create_kernel(program, kernel.c_name()))?);
            // SAFETY: the program of a live kernel.
            Ok((copy, unsafe { ProgramReference::new(program)? }))
        });
        let (copy, program) = copied?;
        let launch = Self {
            name: kernel.name().to_owned(),
            kernel: copy,
            _program: program,
            dimensions: grid.global.len() as u32,
            first: grid.first.map(padded),
            global: padded(grid.global),
            local: grid.local.map(padded),
            starts_now: start == Start::Now,
        };
        kernel.check_size(args)?;
        let mut index = 0;
        for arg in args {
            index = launch.kernel.set(index, arg)?;
        }
        Ok(launch)
    }

    /// Returns the event, if there is one.
    fn enqueue(&self, queue: cl_command_queue, wait: Option<&cl_event>) -> std::result::Result<Option<cl_event>, i32> {
        let Grid { first, global, local } = self.grid();
        let command = KernelCommand { kernel: self.kernel.0, dimensions: self.dimensions, first, global, local };
        // SAFETY: the grid has as many sizes as dimensions; no other code uses the kernel object, and its arguments are
        // set.
        unsafe { command.enqueue(queue, wait) }
    }

    /// The sizes of the launch's dimensions.
    fn used<'a>(&self, sizes: &'a [usize; 3]) -> &'a [usize] {
        sizes.get(..self.dimensions as usize).unwrap_or_default()
    }

    fn grid(&self) -> Grid<'_> {
        Grid {
            first: self.first.as_ref().map(|sizes| self.used(sizes)),
            global: self.used(&self.global),
            local: self.local.as_ref().map(|sizes| self.used(sizes)),
        }
    }
}

impl Command {
    fn start(&self) -> Start {
        match self {
            Self::Launch(launch) if !launch.starts_now => Start::Batched,
            _ => Start::Now,
        }
    }

    fn call(&self) -> &'static str {
        match self {
            Self::Launch(_) => "clEnqueueNDRangeKernel",
            Self::Copy { .. } => "clEnqueueCopyBuffer",
            Self::Fill { .. } => "clEnqueueFillBuffer",
        }
    }

    /// Returns the event, if there is one.
    fn enqueue(&self, queue: cl_command_queue, wait: Option<&cl_event>) -> Result<Option<Event>> {
        let (count, list) = (u32::from(wait.is_some()), wait.map_or(std::ptr::null(), std::ptr::from_ref));
        let result = match self {
            Self::Launch(launch) => launch.enqueue(queue, wait),
            Self::Copy { source, source_offset, target, target_offset, size } => {
                // SAFETY: the driver checks the ranges against the buffers' sizes.
                let copied = unsafe {
                    api::enqueue_copy_buffer(
                        queue,
                        source.0,
                        target.0,
                        *source_offset,
                        *target_offset,
                        *size,
                        count,
                        list,
                    )
                };
                copied.map(Some).map_err(|error| error.code())
            }
            Self::Fill { target, offset, pattern, size } => {
                let bytes: *const c_void = pattern.as_ptr().cast();
                // SAFETY: the pattern is read before the call returns.
                let filled = unsafe {
                    api::enqueue_fill_buffer(queue, target.0, bytes, pattern.len(), *offset, *size, count, list)
                };
                filled.map(Some).map_err(|error| error.code())
            }
        };
        Ok(check(self.call(), result)?.map(|handle| Event { handle, position: 0 }))
    }

    fn trace(&self, called: i64, queue: usize, event: &Event) {
        match self {
            Self::Launch(launch) => trace::note_launch(called, queue, event, &launch.name, &launch.grid()),
            Self::Copy { size, .. } | Self::Fill { size, .. } => {
                trace::note_transfer(called, queue, event, self.call(), *size);
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Launch(launch) => {
                let sizes = |sizes: &[usize; 3]| format!("{:?}", launch.used(sizes));
                let local = launch.local.as_ref().map_or_else(|| "the driver's".to_owned(), sizes);
                format!("{} over {} in groups of {local}", launch.name, sizes(&launch.global))
            }
            Self::Copy { size, .. } => format!("copy of {size} bytes"),
            Self::Fill { size, pattern, .. } => format!("fill of {size} bytes, {} at a time", pattern.len()),
        }
    }
}

impl Recording {
    /// Kernels among the commands.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// Adds a launch; returns its position.
    pub fn launch(&mut self, kernel: &Kernel, args: &[Arg<'_>], grid: &Grid<'_>, start: Start) -> Result<usize> {
        kernel.check_grid(grid)?;
        let launch = Launch::new(kernel, args, grid, start)?;
        self.first_launches.extend(kernel.first_launch(grid));
        self.launches += 1;
        self.commands.push(Command::Launch(launch));
        Ok(self.commands.len() - 1)
    }

    /// Adds a copy between two buffers of one context.
    pub fn copy(
        &mut self,
        source: MemHandle,
        source_offset: usize,
        target: MemHandle,
        target_offset: usize,
        size: usize,
    ) {
        self.commands.push(Command::Copy { source, source_offset, target, target_offset, size });
    }

    /// Adds a fill; returns its position.
    pub fn fill(&mut self, target: MemHandle, offset: usize, pattern: &[u8], size: usize) -> usize {
        self.commands.push(Command::Fill { target, offset, pattern: pattern.to_vec(), size });
        self.commands.len() - 1
    }

    /// Sets an argument of a launch, or the pattern of a fill, for later replays.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn set(&mut self, position: usize, index: u32, arg: &Arg<'_>) -> Result<()> {
        match (self.commands.get_mut(position), arg) {
            (Some(Command::Launch(launch)), _) => launch.kernel.set(index, arg).map(drop),
            (Some(Command::Fill { pattern, .. }), Arg::Bytes(bytes)) => {
                pattern.clear();
                pattern.extend_from_slice(bytes);
                Ok(())
            }
            _ => Err(Error::Invalid(format!("OpenCL: command {position} of a recording has no argument {index}"))),
        }
    }

    /// For each launch: the `cl_kernel`, the number of dimensions, three global sizes and three local sizes; 0 for
    /// absent ones.
    pub fn kernels(&self) -> Vec<[usize; 8]> {
        let launches = self.commands.iter().filter_map(|command| match command {
            Command::Launch(launch) => Some(launch),
            _ => None,
        });
        let geometry = |launch: &Launch| {
            let ([a, b, c], [d, e, f]) = (launch.global, launch.local.unwrap_or_default());
            [launch.kernel.0 as usize, launch.dimensions as usize, a, b, c, d, e, f]
        };
        launches.map(geometry).collect()
    }

    /// One line for each command.
    pub fn describe(&self) -> String {
        let lines = self.commands.iter().zip(0..).map(|(command, index)| format!("{index}: {}\n", command.describe()));
        lines.collect()
    }
}

/// Replays.
impl Queue {
    /// Enqueues all commands of a recording. Short kernels are held back like other short launches.
    ///
    /// # Errors
    /// See [`Queue::wait`]. Commands before the one that failed still run.
    pub fn replay(&self, recording: &mut Recording) -> Result<()> {
        recording.first_launches.drain(..).for_each(cache_check::expect);
        let commands = &recording.commands;
        let mut begin = 0;
        for (index, command) in commands.iter().enumerate() {
            let is_due = self.throttle.is_due(command.start());
            if is_due || index - begin == CHUNK {
                self.replay_chunk(commands.get(begin..index).unwrap_or_default())?;
                begin = index;
            }
            if is_due {
                self.wait_for_room()?;
            }
        }
        self.replay_chunk(commands.get(begin..).unwrap_or_default())
    }

    fn replay_chunk(&self, chunk: &[Command]) -> Result<()> {
        let mut batch = self.batch();
        let (mut is_due, mut starts) = (false, false);
        let mut enqueue = || -> Result<()> {
            for command in chunk {
                let wait = batch.wait_list(Start::Batched)?;
                let called = trace::about_to_call();
                let event = command.enqueue(self.handle, wait.as_ref())?;
                if let (Some(event), Some(called)) = (event, called) {
                    command.trace(called, self.trace_id(), &event);
                }
                self.advance();
                is_due |= batch.count().is_multiple_of(batch.flush_period());
                starts |= command.start() == Start::Now;
            }
            Ok(())
        };
        let enqueued = enqueue();
        if starts || is_due || enqueued.is_err() {
            batch.submit()?;
        }
        if is_due {
            check("clFlush", api::flush(self.handle))?;
        }
        enqueued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_recording_has_an_empty_description() {
        let recording = Recording::default();
        assert_eq!(recording.launches(), 0);
        assert_eq!(recording.describe(), "");
    }

    #[test]
    fn a_fill_takes_another_pattern_and_a_copy_takes_none() {
        let mut recording = Recording::default();
        let fill = recording.fill(MemHandle::NULL, 0, &[0; 16], 16);
        recording.copy(MemHandle::NULL, 0, MemHandle::NULL, 0, 4);
        assert!(recording.set(fill, 0, &Arg::Bytes(&[1; 8])).is_ok());
        assert!(recording.describe().starts_with("0: fill of 16 bytes, 8 at a time\n1: copy of 4 bytes"));
        assert!(recording.set(fill + 1, 0, &Arg::Bytes(&[1; 8])).is_err());
    }
}
