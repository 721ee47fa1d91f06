//! The test of a device at its first use: is memory shared, and is the order of commands kept?

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{memcpy_dtod_async, memset_d8_async};
use cudarc::driver::CudaStream;

use super::{failed, Link};
use crate::cl::{Buffer, Context, Event, Queue};
use crate::error::{catch_panic, Error, Result};

/// Bytes that each driver writes in a step.
const SIZE: usize = 1 << 20;
/// Commands of CUDA's before the last one: they take some hundred microseconds, so that a queue that does not wait for
/// them comes too early.
const EARLIER: usize = 100;
/// Time for which OpenCL's commands are held back, so that a stream that does not wait for them comes too early.
const DELAY: Duration = Duration::from_millis(10);
const QUEUES: usize = 2;
const ROUNDS: u8 = 2;
/// One for OpenCL, and one for each round's copy.
const PARTS: usize = 1 + ROUNDS as usize;
/// A working device needs less than a hundredth of this.
const PATIENCE: Duration = Duration::from_secs(5);

/// A queue and its stream, with the commands that the test enqueues on them.
struct Trial {
    stream: Arc<CudaStream>,
    queue: Queue,
    /// OpenCL writes the first part, CUDA copies it to the part of the round, and overwrites the first.
    buffer: Buffer,
    read: Vec<u8>,
    /// All commands of the queue wait for it.
    gate: Arc<Event>,
    last: Option<Event>,
}

/// Enqueues some rounds on two queues, lets them run, and checks what they have written.
///
/// # Errors
/// The reason why the link cannot be used; it is freed, if nothing can be using it.
pub(super) fn run(link: Link, context: &Context) -> Result<Link> {
    let trials = (0..QUEUES).map(|_| Trial::new(&link, context)).collect::<Result<Vec<_>>>()?;
    // Another thread, as calls of CUDA's may wait for all of its streams.
    let gates: Vec<_> = trials.iter().map(|trial| Arc::clone(&trial.gate)).collect();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(DELAY);
        gates.iter().for_each(|gate| drop(gate.complete()));
    });
    // Freed only after everything enqueued is known to have ended.
    let mut used = ManuallyDrop::new((link, trials));
    let (link, trials) = &mut *used;
    let started = catch_panic("CUDA", || trials.iter_mut().try_for_each(|trial| trial.start(link, context)));
    drop(opener.join());
    for trial in trials.iter_mut().filter(|trial| trial.last.is_none()) {
        trial.last = Some(trial.queue.marker()?);
        trial.queue.flush()?;
    }
    let is_in_time = wait(trials);
    if !is_in_time {
        // PyTorch's own CUDA code waits for all streams of the process.
        link.release_streams()?;
        if !wait(trials) {
            return Err(refused("commands of OpenCL and CUDA do not end"));
        }
    }
    // A callback that came too early does not tell that the commands have ended.
    let ended = link.synchronize_streams();
    let (link, trials) = ManuallyDrop::into_inner(used);
    link.failure.check()?;
    started.and(ended)?;
    if !is_in_time {
        return Err(refused("commands of OpenCL and CUDA cannot be ordered"));
    }
    if !trials.iter().all(Trial::is_right) {
        return Err(refused("CUDA and OpenCL do not see what the other writes to shared memory, or not in order"));
    }
    Ok(link)
}

fn refused(reason: &str) -> Error {
    Error::Invalid(reason.to_owned())
}

/// The bytes that the drivers write in a round.
fn of_opencl(round: u8) -> u8 {
    0x50 + round
}

fn of_cuda(round: u8) -> u8 {
    0xA0 + round
}

impl Trial {
    fn new(link: &Link, context: &Context) -> Result<Self> {
        let (queue, buffer) = (Queue::new(context)?, link.allocate(context, PARTS * SIZE)?);
        queue.fill(buffer.handle(), 0, &[0], PARTS * SIZE)?;
        queue.finish()?;
        let gate = Arc::new(Event::user(context.handle)?);
        let trial = Self { stream: link.stream(&queue)?, queue, buffer, read: vec![0; PARTS * SIZE], gate, last: None };
        // CUDA loads its kernels when they are first used.
        let _bound = link.bind()?;
        trial.write_by_cuda(1, 0)?;
        trial.stream.synchronize().map_err(failed)?;
        Ok(trial)
    }

    /// Copies the first part to the part of a round, and overwrites the first.
    fn write_by_cuda(&self, round: u8, byte: u8) -> Result<()> {
        let (address, stream) = (self.buffer.cuda_address().unwrap_or_default(), self.stream.cu_stream());
        // SAFETY: the buffer has as many parts.
        unsafe {
            memcpy_dtod_async(address + (usize::from(round) * SIZE) as u64, address, SIZE, stream).map_err(failed)?;
            for earlier in std::iter::repeat_n(0, EARLIER).chain([byte]) {
                memset_d8_async(address, earlier, SIZE, stream).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Enqueues all commands.
    fn start(&mut self, link: &Link, context: &Context) -> Result<()> {
        let (queue, memory) = (&self.queue, self.buffer.handle());
        queue.wait_for(&self.gate)?;
        for round in 1..=ROUNDS {
            queue.fill(memory, 0, &[of_opencl(round)], SIZE)?;
            link.run(context, queue, || self.write_by_cuda(round, of_cuda(round)))?;
        }
        // SAFETY: the vector has as many bytes, and is not freed before the command has ended.
        self.last = Some(unsafe { queue.read(memory, 0, self.read.as_mut_ptr(), PARTS * SIZE)? });
        queue.flush()
    }

    /// Returns true if the bytes that were read are those of the last round, and those that each round copied.
    fn is_right(&self) -> bool {
        let expected = |part: usize| if part == 0 { of_cuda(ROUNDS) } else { of_opencl(part as u8) };
        let mut parts = self.read.chunks(SIZE).enumerate();
        parts.all(|(part, bytes)| bytes.iter().all(|byte| *byte == expected(part)))
    }
}

/// Waits until the last commands of all trials have ended or failed; returns false if that takes too long.
fn wait(trials: &[Trial]) -> bool {
    let start = Instant::now();
    let is_pending = |trial: &Trial| trial.last.as_ref().is_some_and(|event| matches!(event.is_complete(), Ok(false)));
    while trials.iter().any(is_pending) {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}
