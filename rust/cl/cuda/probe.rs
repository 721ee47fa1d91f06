//! The test of a device at its first use: is memory shared, and is the order of commands kept?

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use cudarc::driver::result::{memcpy_dtod_async, memset_d8_async};

use super::{failed, Link};
use crate::cl::{Buffer, Context, Event, Queue};
use crate::error::{Error, Result};

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

/// What one queue and its stream do.
struct Trial {
    queue: Queue,
    /// OpenCL writes the first part, CUDA copies it to the part of the round, and overwrites the first.
    buffer: Buffer,
    read: Vec<u8>,
    /// All commands of the queue wait for it.
    gate: Event,
    last: Option<Event>,
}

/// Enqueues some rounds on two queues, lets them run, and checks what they have written.
///
/// # Errors
/// The reason why the link cannot be used.
pub(super) fn run(link: &Link, context: &Context) -> Result<()> {
    let trial = || -> Result<Trial> {
        let buffer = link.allocate(context, PARTS * SIZE)?;
        let (queue, gate) = (Queue::new(context)?, Event::user(context.handle)?);
        Ok(Trial { queue, buffer, read: vec![0; PARTS * SIZE], gate, last: None })
    };
    // Freed only after everything enqueued is known to have completed.
    let mut trials = ManuallyDrop::new((0..QUEUES).map(|_| trial()).collect::<Result<Vec<_>>>()?);
    let started = trials.iter_mut().try_for_each(|trial| start(link, context, trial));
    std::thread::sleep(DELAY);
    trials.iter().try_for_each(|trial| trial.gate.complete())?;
    let is_complete = started.is_ok() && wait(&trials);
    if !is_complete {
        // The streams may wait forever, and PyTorch's own CUDA code waits for all streams of the process.
        link.release_streams()?;
        if !wait(&trials) {
            return started.and(refuse("commands of OpenCL and CUDA do not end"));
        }
    }
    // A callback that came too early does not tell that the commands have ended.
    link.synchronize_streams()?;
    let trials = ManuallyDrop::into_inner(trials);
    link.failure.check()?;
    started?;
    if !is_complete {
        return refuse("commands of OpenCL and CUDA cannot be ordered");
    }
    let expected = |part: usize| if part == 0 { of_cuda(ROUNDS) } else { of_opencl(part as u8) };
    let is_right = |trial: &Trial| {
        let mut parts = trial.read.chunks(SIZE).enumerate();
        parts.all(|(part, bytes)| bytes.iter().all(|byte| *byte == expected(part)))
    };
    if trials.iter().all(is_right) {
        Ok(())
    } else {
        refuse("CUDA and OpenCL do not see what the other writes to shared memory, or not in order")
    }
}

fn refuse(reason: &str) -> Result<()> {
    Err(Error::Invalid(reason.to_owned()))
}

/// The bytes that the drivers write in a round.
fn of_opencl(round: u8) -> u8 {
    0x50 + round
}

fn of_cuda(round: u8) -> u8 {
    0xA0 + round
}

/// Enqueues the commands of a trial.
fn start(link: &Link, context: &Context, trial: &mut Trial) -> Result<()> {
    let (queue, memory) = (&trial.queue, trial.buffer.handle());
    let address = trial.buffer.cuda_address().unwrap_or_default();
    let stream = link.stream(queue)?;
    queue.fill(memory, 0, &[0], PARTS * SIZE)?;
    queue.finish()?;
    queue.wait_for(&trial.gate)?;
    for round in 1..=ROUNDS {
        queue.fill(memory, 0, &[of_opencl(round)], SIZE)?;
        link.run(context, queue, || {
            let stream = stream.cu_stream();
            // SAFETY: the buffer has as many parts.
            unsafe {
                memcpy_dtod_async(address + (usize::from(round) * SIZE) as u64, address, SIZE, stream)
                    .map_err(failed)?;
                for byte in std::iter::repeat_n(0, EARLIER).chain([of_cuda(round)]) {
                    memset_d8_async(address, byte, SIZE, stream).map_err(failed)?;
                }
            }
            Ok(())
        })?;
    }
    // SAFETY: the vector has as many bytes, and is not freed before the command has completed.
    trial.last = Some(unsafe { queue.read(memory, 0, trial.read.as_mut_ptr(), PARTS * SIZE)? });
    queue.flush()
}

/// Waits for the commands of all trials; returns false if that takes too long.
fn wait(trials: &[Trial]) -> bool {
    let start = Instant::now();
    let is_pending = |trial: &Trial| trial.last.as_ref().is_none_or(|event| !matches!(event.is_complete(), Ok(true)));
    while trials.iter().any(is_pending) {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}
