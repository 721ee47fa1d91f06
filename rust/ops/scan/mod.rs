//! Running totals and extremes along one dimension of contiguous tensors.

use crate::error::Result;
use crate::kernels::{entry, Family, Spec};
use crate::ops::core::forms::{Form, SIGNED};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Operator of a scan; as in `scan.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum ScanOp {
        /// Sum.
        Sum,
        /// Product.
        Product,
        /// Logarithm of the sum of exponentials.
        LogSumExp,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn scan(out: &Tensor, input: &Tensor, dim: usize, op: ScanOp) -> Result<()>;
        fn scan_extreme(values: &Tensor, indices: &Tensor, input: &Tensor, dim: usize, largest: bool) -> Result<()>;
    }
}

pub use ffi::ScanOp;

/// Bytes of the widest total, a double2.
const TOTAL_BYTES: usize = 16;
/// Pieces of a row are not made shorter than this: each costs a pass over the totals before it.
const SHORTEST_CHUNK: i64 = 4096;
/// Items of a group that scans a piece together, and the shortest row for such groups.
const GROUP: usize = 128;
const SHORTEST_FOR_GROUP: i64 = 256;

/// Neighbouring rows that an item on a CPU takes, as in `scan.cl`: a cache line of floats.
const SCAN_COLUMNS: i64 = 16;

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let groups = if target.is_cpu() { vec![1] } else { vec![1, GROUP] };
    let specs = groups.into_iter().map(|group| Spec::generic().define("LSIZE", group as i64));
    specs.flat_map(|spec| SIGNED.map(|class| (class, spec.clone()))).collect()
}

/// A tensor viewed as [outer, length, inner] around a dimension.
struct ScanShape {
    length: i64,
    inner: i64,
    count: i64,
}

impl ScanShape {
    fn of(tensor: &Tensor<'_>, dim: usize) -> Self {
        let length = tensor.size(dim);
        let inner = tensor.sizes.iter().skip(dim + 1).product();
        Self { length, inner, count: tensor.numel() / length.max(1) }
    }

    /// Returns true if groups, not items, take pieces: rows are contiguous in memory, and long enough.
    fn by_group(&self, target: &Target) -> bool {
        let fits = target.device.info.max_work_group >= GROUP;
        !target.is_cpu() && fits && self.inner == 1 && self.length >= SHORTEST_FOR_GROUP
    }

    /// Items that scan a piece together.
    fn group(&self, target: &Target) -> usize {
        if self.by_group(target) {
            GROUP
        } else {
            1
        }
    }

    /// Number of pieces of a row, so that every compute unit has some: by the occupancy target of the kernels.
    fn chunks(&self, target: &Target) -> i64 {
        let wanted = target.compute_units() as i64
            * match (target.is_cpu(), self.by_group(target)) {
                (true, _) => 4,
                (false, true) => 16,
                (false, false) => 64,
            };
        let wanted = div_ceil(wanted, self.count.max(1));
        wanted.clamp(1, div_ceil(self.length, SHORTEST_CHUNK).max(1))
    }
}

/// Running totals along `dim`; `out` and `input` are contiguous and have the same shape and dtype.
///
/// # Errors
/// Errors reported by the driver.
pub fn scan(out: &Tensor<'_>, input: &Tensor<'_>, dim: usize, op: ScanOp) -> Result<()> {
    if input.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let rows = ScanShape::of(input, dim);
    // Phases depend on the order of additions, and would otherwise depend on the number of pieces.
    let in_order = op == ScanOp::LogSumExp && input.class().is_complex();
    let (pieces, group) = if in_order { (1, 1) } else { (rows.chunks(&target), rows.group(&target)) };
    if pieces == 1 && target.is_cpu() && rows.inner > 1 {
        return scan_columns(&target, out, input, op, &rows);
    }
    let chunk = div_ceil(rows.length, pieces);
    let chunks = div_ceil(rows.length, chunk);
    let (totals_kernel, apply_kernel) = if group > 1 {
        (entry::SCAN_GROUP_TOTALS, entry::SCAN_GROUP_APPLY)
    } else {
        (entry::SCAN_TOTALS, entry::SCAN_APPLY)
    };
    let spec = tier(input.numel(), &[("SPEC_OP", op.repr), ("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Scan, input.class(), &spec.define("LSIZE", group as i64))?;
    let pieces = (rows.count * chunks) as usize;
    let (global, local) = ([pieces * group], [group]);
    let local = Some(&local[..]).filter(|_| group > 1);
    let scan = entry::ScanArguments {
        op: op.repr,
        dtype0: input.dtype,
        length: rows.length,
        inner: rows.inner,
        chunks,
        chunk,
    };
    let input_memory = target.tensor(input)?;
    let workspace = if chunks > 1 { Some(target.workspace(pieces * TOTAL_BYTES)?) } else { None };
    let totals = target.memory(workspace.as_ref().map_or(0, |memory| memory.address))?;
    if chunks > 1 {
        let args = entry::ScanTotals { input: input_memory, totals, scan };
        target.launch(&program, totals_kernel, &args, &global, local)?;
    }
    let args = entry::ScanApply { out: target.tensor(out)?, input: input_memory, totals, scan };
    target.launch(&program, apply_kernel, &args, &global, local)
}

/// [`scan`] on CPUs whose items take whole neighbouring rows.
fn scan_columns(target: &Target, out: &Tensor<'_>, input: &Tensor<'_>, op: ScanOp, rows: &ScanShape) -> Result<()> {
    let spec = tier(input.numel(), &[("SPEC_OP", op.repr), ("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Scan, input.class(), &spec.define("LSIZE", 1))?;
    let &ScanShape { length, inner, count } = rows;
    let args = entry::ScanColumns {
        out: target.tensor(out)?,
        input: target.tensor(input)?,
        scan: entry::ScanArguments { op: op.repr, dtype0: input.dtype, length, inner, chunks: 1, chunk: length },
    };
    let items = count / inner * div_ceil(inner, SCAN_COLUMNS);
    target.launch(&program, entry::SCAN_COLUMNS, &args, &[items as usize], None)
}

/// Running maximum or minimum along `dim` and its index. All are contiguous, of the same shape; `indices` is int64.
///
/// # Errors
/// Errors reported by the driver.
pub fn scan_extreme(
    values: &Tensor<'_>,
    indices: &Tensor<'_>,
    input: &Tensor<'_>,
    dim: usize,
    largest: bool,
) -> Result<()> {
    if input.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(values.address)?;
    let rows = ScanShape::of(input, dim);
    let group = rows.group(&target);
    let spec = tier(input.numel(), &[("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Scan, input.class(), &spec.define("LSIZE", group as i64))?;
    let args = entry::ScanExtreme {
        values: target.tensor(values)?,
        indices: target.tensor(indices)?,
        input: target.tensor(input)?,
        dtype0: input.dtype,
        length: rows.length,
        inner: rows.inner,
        largest: i32::from(largest),
    };
    let (global, local) = ([rows.count as usize * group], [group]);
    if group > 1 {
        return target.launch(&program, entry::SCAN_GROUP_EXTREME, &args, &global, Some(&local));
    }
    target.launch(&program, entry::SCAN_EXTREME, &args, &global, None)
}
