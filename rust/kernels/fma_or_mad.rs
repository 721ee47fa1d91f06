//! Whether programs call `fma` or `mad` to add products.
//!
//! Before Mesa 26.2 rusticl computes `fma` by a function of many instructions, even where the GPU has one for it: matmuls
//! then take up to a hundred times as long. `mad` may round the product, and a driver without a fast `fma` does. Kernels
//! whose sums need not be exact call `FMA_OR_MAD` (`include/prelude.cl`), for which this module chooses.

use std::time::{Duration, Instant};

use super::disk::Entry;
use crate::cl::{Arg, Buffer, Deferred, Grid, Program, Queue, Start, Untraced};
use crate::error::Result;
use crate::runtime::Device;

const SOURCE: &str = "
#define CHAIN(name, multiply_add) \\
__kernel void name(__global float *out, float a, float b) { \\
  float4 sum = (float4)(a, b, a + b, a - b), factor = (float4)(a), term = (float4)(b); \\
  for (int i = 0; i < 256; i++) sum = multiply_add(sum, factor, term); \\
  out[get_global_id(0)] = sum.x + sum.y + sum.z + sum.w; \\
}
CHAIN(by_fma, fma)
CHAIN(by_mad, mad)
";
/// So few that a slow GPU also ends each launch before a driver stops it.
const ITEMS: usize = 1 << 13;
/// Timed launches of each kernel, in turns, after one that is not timed.
const ROUNDS: usize = 5;
/// A launch takes so long that shorter differences say nothing about the kernels.
const LEAST_DIFFERENCE: Duration = Duration::from_micros(100);

/// Returns true if programs for the device call `mad`. Measured by the first process on a driver, and remembered beside
/// the programs.
pub(super) fn uses_mad(device: &'static Device) -> bool {
    *device.uses_mad.get_or_init(|| {
        // Other drivers use the device's instruction.
        if device.info.platform != "rusticl" {
            return false;
        }
        let note = Entry::note(&device.info, SOURCE, "fma or mad");
        match note.load().as_deref() {
            Some(b"mad") => return true,
            Some(b"fma") => return false,
            _ => {}
        }
        // A signal may not end this, nor does it belong to the user's profile.
        let _deferred = Deferred::new();
        let _untraced = Untraced::begin();
        // If the driver cannot run this, the program that the user waits for reports why.
        let Ok([by_fma, by_mad]) = measure(device) else { return false };
        let is_slow = is_much_slower(by_fma, by_mad);
        note.store(if is_slow { b"mad" } else { b"fma" });
        is_slow
    })
}

fn is_much_slower(by_fma: Duration, by_mad: Duration) -> bool {
    by_fma > by_mad * 2 && by_fma > by_mad + LEAST_DIFFERENCE
}

/// The shortest times of a kernel that calls `fma` and of one that calls `mad`.
fn measure(device: &Device) -> Result<[Duration; 2]> {
    let context = &device.state()?.context;
    let program = Program::from_source(context, SOURCE, "-cl-std=CL1.2 -w", "fma_or_mad", &device.info.name)?;
    let queue = Queue::new(context)?;
    let out = Buffer::new(context, ITEMS * size_of::<f32>(), false)?;
    let kernels = [program.kernel("by_fma")?, program.kernel("by_mad")?];
    let args = [Arg::Buffer(out.handle()), Arg::of(&1e-3_f32), Arg::of(&1.0_f32)];
    let mut times = [Duration::MAX; 2];
    for round in 0..=ROUNDS {
        for (kernel, shortest) in kernels.iter().zip(&mut times) {
            let start = Instant::now();
            queue.launch(kernel, &args, &Grid { first: None, global: &[ITEMS], local: None }, Start::Now)?;
            queue.finish()?;
            if round > 0 {
                *shortest = start.elapsed().min(*shortest);
            }
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_many_instructions_is_recognised() {
        let [short, long] = [50, 1500].map(Duration::from_micros);
        assert!(is_much_slower(long, short));
        assert!(!is_much_slower(short, long) && !is_much_slower(long, long));
        assert!(!is_much_slower(Duration::from_micros(40), Duration::from_micros(10)));
    }
}
