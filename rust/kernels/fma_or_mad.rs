//! Whether `fma` or `mad` is the faster way to compute a product and a sum.
//!
//! Before Mesa 26.2 rusticl computes `fma` by a function of many instructions, even where the GPU has one for it: matmuls
//! then take up to a hundred times as long. `mad` may round the product, and drivers without a fast `fma` do. Kernels
//! whose sums need not be exact call `FMA_OR_MAD` (`include/prelude.cl`), for which this module chooses.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::{ahead_of_time::is_ahead_of_time, disk, store};
use crate::cl::{Arg, Buffer, DeviceType, Grid, Program, Queue, Start};
use crate::error::Result;
use crate::runtime::Device;

const SOURCE: &str = "
#define CHAIN(name, multiply_add) \\
__kernel void name(__global float *out, float a, float b) { \\
  float4 sum = (float4)(a, b, a + b, a - b), factor = (float4)(a), term = (float4)(b); \\
  for (int i = 0; i < 256; i++) sum = multiply_add(sum, factor, term); \\
  out[get_global_id(0)] = sum.x + sum.y + sum.z + sum.w; \\
}
CHAIN(fused, fma)
CHAIN(either, mad)
";
const ITEMS: usize = 1 << 16;
/// Timed launches of each kernel, after one that is not timed.
const ROUNDS: usize = 3;
/// Shorter differences are differences between launches.
const LEAST_DIFFERENCE: Duration = Duration::from_micros(200);

/// Returns true if programs for the device call `mad`. Measured once for a driver, which takes some milliseconds, and
/// remembered beside the programs.
pub(super) fn uses_mad(device: &'static Device) -> bool {
    *device.uses_mad.get_or_init(|| {
        // PoCL's and Intel's compilers for CPUs use the processor's instruction. Nothing can be compiled for an FPGA, or
        // beside a bundle.
        let info = &device.info;
        if info.has_clang_builtins() || info.device_type == DeviceType::Accelerator || is_ahead_of_time() {
            return false;
        }
        let identity = [&info.platform, &info.name, &info.version, &info.driver_version].map(String::as_str).join("\n");
        let name: String = Sha256::digest(identity).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let file = disk::folder().map(|folder| folder.join("fma_or_mad").join(name));
        let known = file.as_deref().and_then(|file| store::read(file).ok().flatten());
        match known.as_deref() {
            Some(b"mad") => return true,
            Some(b"fma") => return false,
            _ => {}
        }
        // A driver that cannot run this will say so for the program that the user waits for.
        let Ok([fused, either]) = measure(device) else { return false };
        let is_slow = is_emulated(fused, either);
        if let Some((file, folder)) = file.as_deref().and_then(|file| Some((file, file.parent()?))) {
            // Measured again in the next process if it cannot be kept.
            let content: &[u8] = if is_slow { b"mad" } else { b"fma" };
            let _ = store::make_folder(folder).and_then(|()| store::replace(file, content));
        }
        is_slow
    })
}

fn is_emulated(fused: Duration, either: Duration) -> bool {
    fused > either * 2 && fused > either + LEAST_DIFFERENCE
}

/// The shortest times of a kernel that calls `fma` and of one that calls `mad`.
fn measure(device: &Device) -> Result<[Duration; 2]> {
    let context = &device.state()?.context;
    let program = Program::from_source(context, SOURCE, "-cl-std=CL1.2 -w", "fma_or_mad", &device.info.name)?;
    let queue = Queue::new(context)?;
    let out = Buffer::new(context, ITEMS * size_of::<f32>(), false)?;
    let mut times = [Duration::MAX; 2];
    for (name, shortest) in ["fused", "either"].into_iter().zip(&mut times) {
        let kernel = program.kernel(name)?;
        let args = [Arg::Buffer(out.handle()), Arg::of(&1e-3_f32), Arg::of(&1.0_f32)];
        for round in 0..=ROUNDS {
            let start = Instant::now();
            queue.launch(&kernel, &args, &Grid { first: None, global: &[ITEMS], local: None }, Start::Now)?;
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
        assert!(is_emulated(long, short));
        assert!(!is_emulated(short, long) && !is_emulated(long, long));
        // Too short to tell from the launch.
        assert!(!is_emulated(Duration::from_micros(150), short));
    }
}
