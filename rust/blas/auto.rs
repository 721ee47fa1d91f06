//! `auto`: the fastest library, measured once for each device, dtype and class of size, and remembered.
//!
//! The first large matmul of a class times the candidates on the caller's own operands. That waits for the device, so
//! it is done once: the result is kept next to the compiled kernels, for later processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{host, Library, Matmul, MatmulSize};
use crate::cl::{Deferred, Untraced};
use crate::error::{Error, Result};
use crate::kernels::{is_ahead_of_time, DType, DiskEntry, Family, Switch};
use crate::ops::matmul::gemm_tile::allows_tf32;
use crate::ops::tuning::Tuning;
use crate::runtime::{current_stream, device_of_address, Device, Stream};

/// Smaller matmuls (fewer multiplications than 256^3) are never worth waiting for: our kernels take 0.3 to 0.7 ms for
/// that many on two cores (PoCL; `make bench-growth`).
const SMALLEST: i64 = 1 << 24;
/// Measured matmuls are limited to this size in every direction, which bounds the time; larger ones share the result.
const LARGEST: i64 = 2048;
/// Size of a corner of the matmul that a library must first compute fast enough: for dtypes that a processor does not
/// support, PyTorch has plain loops.
const CORNER: i64 = 256;
/// If the estimate from the corner is more than this many times slower than our kernels, a library is not measured.
const HOPELESS: u32 = 4;
/// Number of measurements of a matmul, unless they take longer than [`BUDGET`] in total.
const ROUNDS: usize = 3;
const BUDGET: Duration = Duration::from_millis(300);
/// Time that the host must save: the caller waits for it, and enqueues nothing meanwhile. An enqueue and a wait
/// take 34 us on PoCL, and the kernels after the matmul, 2 us each to enqueue, start late (`make bench CASES="enqueue
/// round-trip"`).
const LOST_TIME: Duration = Duration::from_micros(50);

/// Matmuls that share one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SizeClass {
    device: i32,
    dtype: &'static str,
    /// True if float32 may be rounded to TF32.
    is_tf32: bool,
    /// Binary logarithms of batches, rows, columns and K.
    logarithms: [u32; 4],
    /// Threads of the host; other processes may use fewer.
    threads: i32,
}

impl SizeClass {
    fn of(device: &Device, dtype: DType, size: &MatmulSize) -> Self {
        Self {
            device: device.index,
            dtype: dtype.name(),
            is_tf32: matches!(dtype, DType::F32 | DType::C64) && allows_tf32(),
            logarithms: logarithms(size),
            threads: host::threads(),
        }
    }

    /// "torch.float32 1x1024x512x1024 on 8 threads": the smallest matmul of the class, as batches, rows, columns, K.
    fn describe(&self) -> String {
        let [batches, rows, columns, k] = self.logarithms.map(|logarithm| 1_u64 << logarithm);
        let rounded = if self.is_tf32 { " as TF32" } else { "" };
        format!("{}{rounded} {batches}x{rows}x{columns}x{k} on {} threads", self.dtype, self.threads)
    }
}

fn logarithms(size: &MatmulSize) -> [u32; 4] {
    let MatmulSize { batches, rows, columns, k } = size.clamped(LARGEST);
    [batches, rows, columns, k].map(|size| size.max(1).ilog2())
}

static CHOICES: RwLock<BTreeMap<SizeClass, Library>> = RwLock::new(BTreeMap::new());
/// One measurement at a time, as two would disturb each other.
static MEASURING: Mutex<()> = Mutex::new(());

/// Returns true if another library than ours may be faster. Ahead of time, our own kernels are recorded.
pub fn is_worth(size: &MatmulSize) -> bool {
    size.volume() >= SMALLEST && !is_ahead_of_time()
}

/// The library for a matmul.
///
/// # Errors
/// Errors of the candidates while they are measured.
pub fn library(matmul: &Matmul<'_>) -> Result<Library> {
    let size = matmul.size();
    if !is_worth(&size) {
        return Ok(Library::OpenCl);
    }
    let device = device_of_address(matmul.out.address)?;
    let is_usable = |library: &Library| library.obstacle(device).is_none() && library.serves(matmul);
    let candidates: Vec<_> = [Library::Host, Library::Cublas].into_iter().filter(is_usable).collect();
    let Some(dtype) = matmul.dtype().filter(|_| !candidates.is_empty()) else {
        return Ok(Library::OpenCl);
    };
    let class = SizeClass::of(device, dtype, &size);
    // A library may support one matmul of a class and not another, which has other strides.
    let usable = |library: Library| if is_usable(&library) { library } else { Library::OpenCl };
    if let Some(library) = known(&class) {
        return Ok(usable(library));
    }
    // Measuring computes the matmul several times, which would corrupt one that adds in place.
    if matmul.adds_in_place() {
        return Ok(Library::OpenCl);
    }
    // A signal may end this wait, but not the measurement, which holds a lock.
    current_stream(device.index)?.synchronize()?;
    let _deferred = Deferred::new();
    let _untraced = Untraced::begin();
    let _measuring = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = known(&class) {
        return Ok(usable(library));
    }
    // Measured again for new kernels and launchers, for a new driver, for tuned kernels, and for other libraries.
    let tuning = Value::Object(Tuning::of(device).values());
    let question = format!(
        "BLAS library of {} among {candidates:?} for {} by {tuning}",
        env!("CARGO_PKG_VERSION"),
        class.describe()
    );
    let note = DiskEntry::note(&device.info, &Family::Matmul.source(&Switch::default()), &question);
    let library = match recall(&note) {
        Some(library) => library,
        None => {
            let library =
                matmul.with_corner(&size.clamped(LARGEST), |part| Trial::new(device, part)?.winner(&candidates))?;
            note.store(library.name().as_bytes());
            library
        }
    };
    CHOICES.write().unwrap_or_else(PoisonError::into_inner).insert(class, library);
    Ok(usable(library))
}

fn known(class: &SizeClass) -> Option<Library> {
    CHOICES.read().unwrap_or_else(PoisonError::into_inner).get(class).copied()
}

/// The choice that an earlier process stored, if it can be parsed.
fn recall(note: &DiskEntry) -> Option<Library> {
    let content = note.load()?;
    Library::ALL.into_iter().find(|library| library.name().as_bytes() == content)
}

/// Forgets the choices of this process for a device.
pub fn forget(device: i32) {
    CHOICES.write().unwrap_or_else(PoisonError::into_inner).retain(|class, _| class.device != device);
}

/// The choices of this process so far for a device, with descriptions of their classes.
pub fn choices(device: i32) -> Vec<(String, Library)> {
    let choices = CHOICES.read().unwrap_or_else(PoisonError::into_inner);
    let of_device = choices.iter().filter(|(class, _)| class.device == device);
    of_device.map(|(class, library)| (class.describe(), *library)).collect()
}

/// Measurements of one matmul, whose result is left undefined.
struct Trial<'a> {
    matmul: &'a Matmul<'a>,
    stream: &'static Stream,
}

impl<'a> Trial<'a> {
    fn new(device: &Device, matmul: &'a Matmul<'a>) -> Result<Self> {
        Ok(Self { matmul, stream: current_stream(device.index)? })
    }

    fn winner(&self, candidates: &[Library]) -> Result<Library> {
        self.on_corner(Library::OpenCl)?;
        let ours = self.best(Library::OpenCl)?;
        // A candidate that fails loses.
        let time = |library: &Library| Some((*library, self.within(*library, ours * HOPELESS).ok()??));
        let times: Vec<_> = candidates.iter().filter_map(time).collect();
        Ok(fastest(ours, &times))
    }

    /// Time of the matmul by a library, unless the estimate from the corner is over `limit`.
    fn within(&self, library: Library, limit: Duration) -> Result<Option<Duration>> {
        self.on_corner(library)?;
        let expected = self.on_corner(library)?;
        if expected > limit {
            return Ok(None);
        }
        self.best(library).map(Some)
    }

    /// Time of the matmul, estimated from a corner. The first call of a library compiles kernels, or starts threads.
    fn on_corner(&self, library: Library) -> Result<Duration> {
        let size = self.matmul.size();
        let corner = size.clamped(CORNER);
        let time = self.matmul.with_corner(&corner, |part| self.time(library, part))?;
        Ok(time.mul_f64(size.volume() as f64 / corner.volume() as f64))
    }

    /// The shortest of a few times.
    fn best(&self, library: Library) -> Result<Duration> {
        let start = Instant::now();
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(self.time(library, self.matmul)?);
            if start.elapsed() > BUDGET {
                break;
            }
        }
        Ok(best)
    }

    /// Time of a matmul, from an idle stream to an idle stream.
    fn time(&self, library: Library, matmul: &Matmul<'_>) -> Result<Duration> {
        self.stream.synchronize()?;
        let start = Instant::now();
        if !library.run(matmul)? {
            return Err(Error::Unsupported(format!("{} does not support this matmul", library.name())));
        }
        self.stream.synchronize()?;
        Ok(start.elapsed())
    }
}

/// The library with the lowest cost. Another library than ours wins only if it saves a fifth, which is more than the
/// noise of a shared machine, and for the host the cost of waiting for it.
fn fastest(ours: Duration, others: &[(Library, Duration)]) -> Library {
    let cost = |&(library, time): &(Library, Duration)| {
        let lost = if library == Library::Host { LOST_TIME } else { Duration::ZERO };
        (time + time / 4 + lost, library)
    };
    let best = others.iter().map(cost).min_by_key(|(cost, _)| *cost);
    best.filter(|(cost, _)| *cost < ours).map_or(Library::OpenCl, |(_, library)| library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_must_save_more_than_waiting_costs() {
        let us = Duration::from_micros;
        let of_host = |ours, host| fastest(us(ours), &[(Library::Host, us(host))]);
        assert_eq!(of_host(1000, 700), Library::Host);
        assert_eq!(of_host(1000, 770), Library::OpenCl);
        assert_eq!(of_host(100, 60), Library::OpenCl);
    }

    #[test]
    fn the_caller_does_not_wait_for_cublas() {
        let us = Duration::from_micros;
        assert_eq!(fastest(us(100), &[(Library::Host, us(60)), (Library::Cublas, us(70))]), Library::Cublas);
        assert_eq!(fastest(us(100), &[(Library::Cublas, us(90))]), Library::OpenCl);
    }

    #[test]
    fn matmuls_of_like_sizes_share_a_class() {
        let size = |batches, rows, columns, k| MatmulSize { batches, rows, columns, k };
        let class = |size: MatmulSize| SizeClass {
            device: 0,
            dtype: "",
            is_tf32: false,
            threads: 1,
            logarithms: logarithms(&size),
        };
        assert_eq!(class(size(1, 512, 1000, 256)), class(size(1, 1023, 512, 300)));
        assert_ne!(class(size(1, 512, 512, 256)), class(size(1, 512, 512, 512)));
        assert_eq!(class(size(1, 2048, 2048, 2048)), class(size(1, 9000, 2048, 4096)));
    }
}
