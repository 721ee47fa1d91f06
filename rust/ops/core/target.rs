//! The target of an op: a device, its state and this thread's current stream on it.

use std::sync::Arc;

use crate::abi::Tensor;
use crate::cl::{Arg, Grid, Kernel, Memory, Read, Start};
use crate::error::Result;
use crate::kernels::entry::{Arguments, EntryPoint};
use crate::kernels::{program, CachedProgram, Class, DType, Family, Spec, Switch, Tier};
use crate::runtime::{
    before_wait, current_stream, device, device_of_address, BadIndexRecord, Device, DeviceClass, DeviceState, Stream,
};

/// A core computes this many elements in about the time of waking it, some 5 us (`make bench CASES="enqueue
/// round-trip"`).
const SHORT: i64 = 1 << 12;

/// Bytes of an output above which CPUs write it with non-temporal stores. A copy gains already with 4 MB (0.18 instead
/// of 0.24 ms, PoCL on 2 cores), a copy and a sum over its result with 32 MB (2.2 instead of 2.8 ms), but scattered
/// access to the result becomes slower: zeros and a `scatter_add_` of 16 MB take 4.1 instead of 3.2 ms (`make bench
/// CASES="'clone *' 'scatter_add *'"`).
const SMALLEST_NON_TEMPORAL: usize = measured!("NON_TEMPORAL_BYTES", 16 << 20);

/// Items of a group on GPUs in kernels whose items work alone.
pub const ITEM_GROUP: usize = 64;

/// Device and stream of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The device.
    pub device: &'static Device,
    pub(in crate::ops) state: &'static DeviceState,
    pub(in crate::ops) stream: &'static Stream,
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

    /// Checks that the device can convert elements of some dtypes to another class: kernels of devices without float64
    /// have no conversion from it or to it.
    ///
    /// # Errors
    /// [`crate::error::Error::NoFloat64`] for float64 and complex128 on such a device.
    pub fn converts(&self, dtypes: impl IntoIterator<Item = DType>) -> Result<()> {
        dtypes.into_iter().try_for_each(|dtype| dtype.class().check(&self.device.info))
    }

    /// Returns true if kernels are built for CPUs: no work-group parallelism, wide vectors, large caches.
    pub fn is_cpu(&self) -> bool {
        self.device.class == DeviceClass::Cpu
    }

    /// Compute units of the device.
    pub fn compute_units(&self) -> usize {
        self.device.info.compute_units.max(1) as usize
    }

    /// Returns true if an output of this many bytes, none of which is read, should be written with non-temporal stores,
    /// by programs built with `SPEC_NON_TEMPORAL`.
    pub fn writes_non_temporal(&self, bytes: usize) -> bool {
        self.is_cpu() && bytes > SMALLEST_NON_TEMPORAL
    }

    /// Buffer and byte offset of an address; the null buffer for address 0.
    pub fn memory(&self, address: usize) -> Result<Memory> {
        if address == 0 {
            return Ok(Memory::ABSENT);
        }
        let location = self.state.resolve(address)?;
        Ok(Memory { handle: location.memory, offset: location.offset as u64 })
    }

    /// Buffer and byte offset of a tensor.
    pub fn tensor(&self, tensor: &Tensor<'_>) -> Result<Memory> {
        self.memory(tensor.address)
    }

    /// The program of a family that has no op switch.
    pub fn program(&self, family: Family, class: Class, spec: &Spec) -> Result<Arc<CachedProgram>> {
        program(self.device, family, class, spec, |_| Switch::default())
    }

    /// The program of a family with an op switch; `switch` is called when a program is built.
    pub fn program_with_switch(
        &self,
        family: Family,
        class: Class,
        spec: &Spec,
        switch: impl Fn(Tier) -> Switch,
    ) -> Result<Arc<CachedProgram>> {
        program(self.device, family, class, spec, switch)
    }

    /// Enqueues a kernel; does nothing without work-items.
    pub fn launch<A: Arguments>(
        &self,
        program: &CachedProgram,
        kernel: EntryPoint<A>,
        args: &A,
        global: &[usize],
        local: Option<&[usize]>,
    ) -> Result<()> {
        program.check(kernel.name, args)?;
        args.bind(|args| self.enqueue_of(program, kernel.name, args, global, local, Start::Now))
    }

    /// Enqueues an element-wise kernel over `count` elements; a small launch may wait to start together with later
    /// ones.
    pub fn launch_elements<A: Arguments>(
        &self,
        program: &CachedProgram,
        kernel: EntryPoint<A>,
        args: &A,
        count: i64,
        global: &[usize],
        local: Option<&[usize]>,
    ) -> Result<()> {
        let start = if count <= SHORT { Start::Batched } else { Start::Now };
        program.check(kernel.name, args)?;
        args.bind(|args| self.enqueue_of(program, kernel.name, args, global, local, start))
    }

    fn enqueue_of(
        &self,
        program: &CachedProgram,
        kernel: &'static str,
        args: &[Arg<'_>],
        global: &[usize],
        local: Option<&[usize]>,
        start: Start,
    ) -> Result<()> {
        let kernel = program.kernel(kernel)?;
        self.launch_generated(&kernel, args, global, local, start)
    }

    /// Enqueues a kernel, which may have been generated at run time.
    pub fn launch_generated(
        &self,
        kernel: &Kernel,
        args: &[Arg<'_>],
        global: &[usize],
        local: Option<&[usize]>,
        start: Start,
    ) -> Result<()> {
        if global.contains(&0) {
            return Ok(());
        }
        let launch = |first: Option<&[usize]>, global: &[usize], local: Option<&[usize]>| {
            self.stream.launch(&self.state.context, kernel, args, &Grid { first, global, local }, start)
        };
        match (local, global) {
            (None, _) if self.is_cpu() => launch(None, global, Self::group_for(global).get(..global.len())),
            // By default a driver divides the items evenly, into groups of one if their number is prime.
            (None, &[items]) => {
                // A power of two divides ITEM_GROUP, so launches of whole groups leave no remainder.
                let group = ITEM_GROUP.min(1 << kernel.largest_group().ilog2());
                let rest = items % group;
                if items > rest {
                    launch(None, &[items - rest], Some(&[group]))?;
                }
                if rest > 0 {
                    launch(Some(&[items - rest]), &[rest], Some(&[rest]))?;
                }
                Ok(())
            }
            _ => launch(None, global, local),
        }
    }

    /// The local size of a launch that does not give one. PoCL compiles a kernel again for every local size, and by
    /// default takes the largest divisor of each global size: three sizes are few enough. With few items each is a
    /// group, so that all cores get equally many.
    fn group_for(global: &[usize]) -> [usize; 3] {
        const FEW: usize = 512;
        let first = global.first().copied().unwrap_or(1);
        let group = match first.trailing_zeros() {
            _ if global.iter().product::<usize>() < FEW => 1,
            0..=2 => 1,
            3..=5 => 8,
            _ => 64,
        };
        [group, 1, 1]
    }

    /// Fills device memory with a byte.
    pub fn fill(&self, address: usize, byte: u8, size: usize) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        let location = self.state.resolve(address)?;
        self.stream.fill(&self.state.context, location.memory, location.offset, &[byte], size)
    }

    /// Fills device memory with a pattern of 1, 2, 4, 8 or 16 bytes.
    pub fn fill_pattern(&self, address: usize, pattern: &[u8], size: usize) -> Result<()> {
        let location = self.state.resolve(address)?;
        self.stream.fill(&self.state.context, location.memory, location.offset, pattern, size)
    }

    /// Memory where the next launch may record faults in its input: an argument of kernels with `fault.cl`.
    pub fn faults(&self) -> Result<Memory> {
        Ok(Memory { handle: self.stream.fault_record(&self.state.context)?, offset: 0 })
    }

    /// Memory where kernels report an index out of range, for [`Self::take_index_record`].
    pub fn index_record(&self) -> Result<Memory> {
        Ok(Memory { handle: self.stream.index_record(&self.state.context)?, offset: 0 })
    }

    /// Waits for kernels, and returns the index out of range that they have reported.
    pub fn take_index_record(&self) -> Result<Option<BadIndexRecord>> {
        before_wait()?;
        self.stream.take_index_record(&self.state.context)
    }

    /// Reads device memory after all commands enqueued before; blocks.
    pub fn read(&self, address: usize, target: &mut [u8]) -> Result<()> {
        before_wait()?;
        let location = self.state.resolve(address)?;
        let queue = self.stream.queue(&self.state.context)?;
        let (pointer, size) = (target.as_mut_ptr(), target.len());
        let read = Read { source: location.memory, offset: location.offset, target: pointer, size };
        // SAFETY: the slice is exclusively borrowed during the call.
        unsafe { queue.read_now(&[read]) }
    }

    /// Memory with a table that kernels read. It is written only once, even during a capture, when it blocks: it is not
    /// part of the graph's pool, whose memory is overwritten by replays.
    pub fn constants(&self, source: Vec<u8>) -> Result<Workspace> {
        let address = self.state.allocate_outside(source.len(), self.stream.id())?;
        let workspace = Workspace { state: self.state, address };
        let location = self.state.resolve(address)?;
        self.stream.write_outside(&self.state.context, location.memory, location.offset, source)?;
        Ok(workspace)
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
    pub(in crate::ops) state: &'static DeviceState,
    /// Address of its first byte.
    pub address: usize,
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Freeing a live block of the default use can only fail on marker creation, which it does not need.
        let _ = self.state.free(self.address);
    }
}
