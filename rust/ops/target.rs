//! Where an op runs: a device, its state and this thread's current stream on it.

use std::sync::Arc;

use super::Tensor;
use crate::cl::{Arg, DeviceType, MemHandle, Start};
use crate::error::Result;
use crate::kernels::{program, CachedProgram, Class, Family, Spec};
use crate::runtime::{current_stream, device, device_of_address, Device, DeviceState, Stream};

/// Device and stream of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The device.
    pub device: &'static Device,
    state: &'static DeviceState,
    stream: &'static Stream,
}

impl Target {
    /// The device that holds an address, and this thread's current stream on it.
    pub fn of(address: usize) -> Result<Self> {
        Self::new(device_of_address(address)?)
    }

    /// A device by index, and this thread's current stream on it.
    pub fn at(index: i32) -> Result<Self> {
        Self::new(device(index)?)
    }

    fn new(device: &'static Device) -> Result<Self> {
        Ok(Self { device, state: device.state()?, stream: current_stream(device.index)? })
    }

    /// Whether the device is the host's own cores: no work-group parallelism, wide vectors, large caches.
    pub fn is_cpu(&self) -> bool {
        self.device.info.device_type == DeviceType::Cpu
    }

    /// Compute units of the device.
    pub fn compute_units(&self) -> usize {
        self.device.info.compute_units.max(1) as usize
    }

    /// Buffer and byte offset of an address; the null buffer for address 0.
    pub fn location(&self, address: usize) -> Result<(MemHandle, u64)> {
        if address == 0 {
            return Ok((MemHandle::NULL, 0));
        }
        let location = self.state.resolve(address)?;
        Ok((location.memory, location.offset as u64))
    }

    /// The two arguments for device memory at an address.
    pub fn memory(&self, address: usize) -> Result<Arg<'static>> {
        self.location(address).map(|(memory, offset)| Arg::Memory(memory, offset))
    }

    /// The arguments for a tensor.
    pub fn tensor(&self, tensor: &Tensor<'_>) -> Result<Arg<'static>> {
        self.memory(tensor.address)
    }

    /// The program of a family that has no op switch.
    pub fn program(&self, family: Family, class: Class, spec: &Spec) -> Result<Arc<CachedProgram>> {
        program(self.device, family, class, spec, String::new)
    }

    /// The program of a family with an op switch; `cases` gives its text when the program is built.
    pub fn program_with_cases(
        &self,
        family: Family,
        class: Class,
        spec: &Spec,
        cases: impl FnOnce() -> String,
    ) -> Result<Arc<CachedProgram>> {
        program(self.device, family, class, spec, cases)
    }

    /// Enqueues a kernel; a launch over no work-items is left out.
    pub fn launch(
        &self,
        program: &CachedProgram,
        kernel: &'static str,
        args: &[Arg<'_>],
        global: &[usize],
        local: Option<&[usize]>,
    ) -> Result<()> {
        self.enqueue(program, kernel, args, global, local, Start::Now)
    }

    /// Enqueues a kernel that is short, such as few elements of a pointwise op: it need not start before others do.
    pub fn launch_short(
        &self,
        program: &CachedProgram,
        kernel: &'static str,
        args: &[Arg<'_>],
        global: &[usize],
        local: Option<&[usize]>,
    ) -> Result<()> {
        self.enqueue(program, kernel, args, global, local, Start::Held)
    }

    fn enqueue(
        &self,
        program: &CachedProgram,
        kernel: &'static str,
        args: &[Arg<'_>],
        global: &[usize],
        local: Option<&[usize]>,
        start: Start,
    ) -> Result<()> {
        if global.contains(&0) {
            return Ok(());
        }
        let kernel = program.kernel(kernel)?;
        let chosen = self.group_for(global);
        let local = local.or_else(|| chosen.get(..global.len()).filter(|_| self.is_cpu()));
        self.stream.launch(self.state, &kernel, args, global, local, start)
    }

    /// A group for a launch that leaves it open. PoCL compiles a kernel again for every size of group, and left to
    /// itself takes the largest divisor of each global size: a handful of sizes keeps that from happening.
    fn group_for(&self, global: &[usize]) -> [usize; 3] {
        const LARGEST: usize = 64;
        let inner = global.first().map_or(1, |size| 1 << size.trailing_zeros().min(LARGEST.ilog2()));
        [inner, 1, 1]
    }

    /// Fills device memory with a byte.
    pub fn fill(&self, address: usize, byte: u8, size: usize) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let location = self.state.resolve(address)?;
        self.stream.queue(&self.state.context)?.fill(location.memory, location.offset, &[byte], size)
    }

    /// Fills device memory with a pattern of 1, 2, 4, 8 or 16 bytes.
    pub fn fill_pattern(&self, address: usize, pattern: &[u8], size: usize) -> Result<()> {
        let location = self.state.resolve(address)?;
        self.stream.queue(&self.state.context)?.fill(location.memory, location.offset, pattern, size)
    }

    /// Reads device memory after everything enqueued before; blocks.
    pub fn read(&self, address: usize, target: &mut [u8]) -> Result<()> {
        let location = self.state.resolve(address)?;
        let queue = self.stream.queue(&self.state.context)?;
        // SAFETY: the slice is exclusively borrowed until the command has completed.
        let read = unsafe { queue.read(location.memory, location.offset, target.as_mut_ptr(), target.len())? };
        queue.wait(&read)
    }

    /// Allocates scratch memory that is returned when the value is dropped.
    ///
    /// The stream is in order, so kernels enqueued before the drop finish before the memory is used again.
    pub fn workspace(&self, size: usize) -> Result<Workspace> {
        let address = self.state.allocate(size, self.stream.id())?;
        Ok(Workspace { state: self.state, address })
    }
}

/// Scratch device memory of one op.
#[derive(Debug)]
pub struct Workspace {
    state: &'static DeviceState,
    /// Address of its first byte.
    pub address: usize,
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Freeing a live block of the default use can only fail on marker creation, which it does not need.
        let _ = self.state.free(self.address);
    }
}
