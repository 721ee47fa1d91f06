//! int4 weights in the layout of tensor cores: matmuls with few rows, and unpacking.

use crate::error::Result;
use crate::kernels::{entry, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn int4_few_rows(out: &Tensor, x: &Tensor, weight: &Tensor, scales: &Tensor, q_group_size: i64)
            -> Result<bool>;
        fn int4_unpack(out: &Tensor, weight: &Tensor, scales: &Tensor, q_group_size: i64) -> Result<()>;
    }
}

/// From this many rows on, a matmul with the unpacked weight, which reads every value once, is faster: four times the
/// rows that share what a kernel has read.
const MANY_ROWS: i64 = 16;
/// Items that share a row of the weight on GPUs: two subgroups, which read 256 bytes side by side.
const GPU_GROUP: usize = 64;
/// Groups per compute unit of a CPU, where each group takes several rows.
const CPU_GROUPS: usize = 16;
/// Rows of a packed int4 weight in one tile, and values in an int32, as in the kernels.
const TILE_ROWS: usize = 8;
const VALUES: i64 = 8;

/// The generic programs: to unpack, for few rows, and on CPUs for blocks of 4, 8 and 16 int32.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let mut specs = vec![Spec::generic()];
    if target.is_cpu() {
        specs.extend([4, 8, 16].map(|lanes| Spec::generic().define("VEC", lanes)));
    } else {
        specs.push(few_rows(target, Spec::generic()));
    }
    specs.into_iter().map(|spec| (Class::Float, spec)).collect()
}

fn few_rows(target: &Target, spec: Spec) -> Spec {
    spec.define("LSIZE", GPU_GROUP as i64).define("VEC", native_lanes(target, Class::Float))
}

/// Target, work-groups and constants of the kernels for few rows.
struct FewRows {
    target: Target,
    groups: usize,
    spec: Spec,
}

impl FewRows {
    /// `None` if there are too many rows, or none.
    fn of(out: &Tensor<'_>, x: &Tensor<'_>, weight_elements: i64) -> Result<Option<Self>> {
        let (rows, columns) = (out.size(0), out.size(1));
        if rows == 0 || rows >= MANY_ROWS || columns == 0 {
            return Ok(None);
        }
        let target = Target::of(out.address)?;
        let spec = few_rows(&target, spec(weight_elements, x.dtype));
        Ok(Some(Self { target, groups: columns as usize, spec }))
    }

    fn arguments(
        &self,
        out: &Tensor<'_>,
        x: &Tensor<'_>,
        weight: &Tensor<'_>,
        scales: &Tensor<'_>,
    ) -> Result<entry::FewRowsArguments> {
        Ok(entry::FewRowsArguments {
            x: self.target.tensor(x)?,
            weight: self.target.tensor(weight)?,
            scales: self.target.tensor(scales)?,
            dtype0: x.dtype,
            out: self.target.tensor(out)?,
            rows: out.size(0),
            columns: out.size(1),
            k: x.size(1),
        })
    }
}

/// The logarithm of a power of two.
fn log2(value: i64) -> i32 {
    value.max(1).ilog2() as i32
}

fn spec(elements: i64, dtype: DType) -> Spec {
    tier(elements, &[("SPEC_DTYPE0", dtype.code())])
}

/// `out = x @ weight.T` for a packed int4 weight [columns / 8, outer, 32, pairs], with a scale and a zero for each
/// `q_group_size` columns in `scales`; all dense. Returns false, and computes nothing, if x has too many rows.
///
/// # Errors
/// Errors reported by the driver.
pub fn int4_few_rows(
    out: &Tensor<'_>,
    x: &Tensor<'_>,
    weight: &Tensor<'_>,
    scales: &Tensor<'_>,
    q_group_size: i64,
) -> Result<bool> {
    let target = Target::of(out.address)?;
    if target.is_cpu() {
        return int4_by_vectors(&target, out, x, weight, scales, q_group_size);
    }
    let Some(call) = FewRows::of(out, x, weight.numel())? else { return Ok(false) };
    let program = call.target.program(Family::PackedWeight, Class::Float, &call.spec)?;
    let few_rows = call.arguments(out, x, weight, scales)?;
    let args = entry::Int4FewRows { few_rows, log2_pairs: log2(weight.size(3)), log2_group: log2(q_group_size) };
    let (global, local) = ([call.groups * GPU_GROUP], [GPU_GROUP]);
    call.target.launch(&program, entry::INT4_FEW_ROWS, &args, &global, Some(&local))?;
    Ok(true)
}

/// [`int4_few_rows`] on CPUs, for any number of rows: unpacking takes longer than the products of some hundred rows.
fn int4_by_vectors(
    target: &Target,
    out: &Tensor<'_>,
    x: &Tensor<'_>,
    weight: &Tensor<'_>,
    scales: &Tensor<'_>,
    q_group_size: i64,
) -> Result<bool> {
    let (rows, columns, k) = (out.size(0), out.size(1), x.size(1));
    if out.numel() == 0 || k == 0 {
        return Ok(false);
    }
    // Number of int32 of a row in a block.
    let lanes = 4 * weight.size(3);
    let spec = spec(weight.numel(), x.dtype).define("VEC", lanes);
    let program = target.program(Family::PackedWeight, Class::Float, &spec)?;
    let blocks = rows * k / (lanes * VALUES);
    // A vector of sums follows the values of each block.
    let bytes = blocks * lanes * (VALUES + 1) * DType::F32.size() as i64;
    let ordered = target.workspace(bytes as usize)?;
    let memory = target.memory(ordered.address)?;
    let args = entry::Int4Order { x: target.tensor(x)?, dtype0: x.dtype, ordered: memory };
    target.launch(&program, entry::INT4_ORDER, &args, &[blocks as usize], None)?;
    let few_rows = entry::FewRowsArguments {
        x: memory,
        weight: target.tensor(weight)?,
        scales: target.tensor(scales)?,
        dtype0: x.dtype,
        out: target.tensor(out)?,
        rows,
        columns,
        k,
    };
    let args = entry::Int4OrderedRows { few_rows, log2_group: log2(q_group_size) };
    let items = (target.compute_units() * CPU_GROUPS).min(columns as usize / TILE_ROWS);
    target.launch(&program, entry::INT4_ORDERED_ROWS, &args, &[items], None)?;
    Ok(true)
}

/// The values of a packed int4 weight, [columns, k] and dense.
///
/// # Errors
/// Errors reported by the driver.
pub fn int4_unpack(out: &Tensor<'_>, weight: &Tensor<'_>, scales: &Tensor<'_>, q_group_size: i64) -> Result<()> {
    let words = weight.numel();
    if words == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let program = target.program(Family::PackedWeight, Class::Float, &spec(words, out.dtype))?;
    let args = entry::Int4Unpack {
        weight: target.tensor(weight)?,
        scales: target.tensor(scales)?,
        dtype0: out.dtype,
        out: target.tensor(out)?,
        columns: out.size(0),
        k: out.size(1),
        log2_pairs: log2(weight.size(3)),
        log2_group: log2(q_group_size),
    };
    target.launch(&program, entry::INT4_UNPACK, &args, &[words as usize], None)
}
