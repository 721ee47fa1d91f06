//! Scaled dot-product attention without the matrix of weights.
//!
//! Tensors are [batch, heads, length, head_dim] with dense rows. Equal groups of query heads share a head of keys and
//! values.

pub mod backward;
pub mod query;
pub mod tile;
pub mod tile_backward;
mod tile_check;
mod tile_form;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Value};
use crate::kernels::structs::attention_arguments::{Attention, RowStrides};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::geometry::{native_lanes, Geometry};
use crate::ops::core::space::div_ceil;
use crate::ops::{Target, Tensor};
use crate::runtime::drawn;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Inputs of attention.
    #[derive(Clone, Copy, Debug)]
    pub struct AttentionInputs<'a> {
        /// Queries.
        pub query: Tensor<'a>,
        /// Keys.
        pub key: Tensor<'a>,
        /// Values; their head_dim may differ.
        pub value: Tensor<'a>,
        /// Added to the scores: [batch, heads, queries, keys], of any strides; may be absent.
        pub bias: Tensor<'a>,
    }

    /// Parameters of attention.
    #[derive(Clone, Copy, Debug)]
    pub struct AttentionMode {
        /// Scale of the scores.
        pub scale: f64,
        /// True if query i sees keys 0 to i only.
        pub is_causal: bool,
        /// Probability by which dropout sets a weight to 0; 0 without dropout.
        pub dropout_p: f64,
        /// Random stream of dropout.
        pub stream: RandomStream,
    }

    /// Gradients of the inputs, to be written. The bias gradient is dense, in the compute dtype, 0 where a causal mask
    /// hides keys, and may be absent.
    #[derive(Clone, Copy, Debug)]
    pub struct AttentionGradients<'a> {
        /// Gradient of the queries.
        pub query: Tensor<'a>,
        /// Gradient of the keys.
        pub key: Tensor<'a>,
        /// Gradient of the values.
        pub value: Tensor<'a>,
        /// Gradient of the bias.
        pub bias: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type DType = crate::kernels::DType;
        type RandomStream = crate::abi::RandomStream;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn attention_fits(device: i32, dtype: DType, head_dim: i64, value_head_dim: i64) -> Result<bool>;
        fn attention_counters(batch: i64, heads: i64, queries: i64, keys: i64) -> u64;
        fn attention(inputs: &AttentionInputs, mode: &AttentionMode, out: &Tensor, logsumexp: &Tensor) -> Result<()>;
    }
}

pub use ffi::{AttentionGradients, AttentionInputs, AttentionMode};

impl AttentionMode {
    /// Probability by which dropout keeps a weight: 1 without dropout.
    fn keep_prob(&self) -> f64 {
        1.0 - self.dropout_p
    }
}

/// Maximum number of queries, and of keys, of a block. Blocks of 128 queries are as fast for 12 heads of width 64 and
/// 512 x 512 scores, up to a third slower with a causal mask, and faster from 2048 on (PoCL, Xeon; `make bench
/// CASES=attention`).
const LARGEST_BLOCK: i64 = measured!("ATTENTION_BLOCK", 64);
/// A block holds at least one part of a matmul.
const SMALLEST_BLOCK: i64 = 4;
/// Vectors and rows that an item keeps in registers: `BLOCK_VECTORS` and `BLOCK_ROWS` of `block.cl`. CPUs whose vectors
/// have 64 bytes have 32 registers for them, others 16.
const WIDE_CPU_PART: (i64, i64) = (2, 8);
const CPU_PART: (i64, i64) = (2, 4);
const GPU_PART: (i64, i64) = (1, 4);
/// Local memory that all GPUs have; some have room for several groups of this size. CPUs' drivers report host memory.
const GPU_LOCAL: i64 = 32 << 10;
/// Items of a group on GPUs: a block of 32 x 32 scores has 64 parts of 4 x 4.
const GPU_GROUP: usize = 64;
/// Banks of local memory on GPUs, of 4 bytes: rows of as many elements, one below the other, begin in the same one.
const BANKS: i64 = 32;
/// Value on GPUs, equal to that in `scores.cl`.
const SLICES: i64 = 8;

/// The two passes, which keep different blocks in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Backward,
}

impl Pass {
    const fn family(self) -> Family {
        match self {
            Self::Forward => Family::Attention,
            Self::Backward => Family::AttentionBackward,
        }
    }

    /// Elements of local memory, for square blocks and rows of `width`.
    const fn elements(self, block: i64, width: i64) -> i64 {
        match self {
            Self::Forward => block * (3 * width + block + 3 + SLICES),
            Self::Backward => block * (8 * width + 2 * block + 3),
        }
    }
}

/// Block sizes of the kernels of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSizes {
    /// Queries, and keys, of a block.
    pub block: i64,
    /// Elements of a row in a block.
    width: i64,
    lanes: i64,
    part: (i64, i64),
    group: usize,
}

impl BlockSizes {
    /// The largest blocks that local memory holds; `None` if not even the smallest fit.
    fn of(pass: Pass, is_cpu: bool, lanes: i64, local_bytes: i64, size: i64, width: i64) -> Option<Self> {
        let (vectors, rows) = match is_cpu {
            true if lanes * size >= 64 => WIDE_CPU_PART,
            true => CPU_PART,
            false => GPU_PART,
        };
        let mut block = LARGEST_BLOCK;
        while block >= SMALLEST_BLOCK {
            let lanes = lanes.min(block);
            // A matmul whose rows are a head's elements writes whole parts of rows.
            let step = lanes.max(rows.min(block));
            let width = div_ceil(width.max(1), step) * step;
            let padded = if !is_cpu && width % BANKS == 0 { width + step } else { width };
            let width = if pass.elements(block, padded) * size <= local_bytes { padded } else { width };
            if pass.elements(block, width) * size <= local_bytes {
                let part = (if block > lanes { vectors } else { 1 }, rows.min(block));
                return Some(Self { block, width, lanes, part, group: if is_cpu { 1 } else { GPU_GROUP } });
            }
            block /= 2;
        }
        None
    }

    /// Always built for its dtype, whatever the size: the kernels are mostly matmuls of a few constant shapes.
    fn spec(&self, dtype: DType, bias: Option<DType>, drops: bool) -> Spec {
        let spec = Spec::generic()
            .define("LSIZE", self.group as i64)
            .define("VEC", self.lanes)
            .define("BLOCK_VECTORS", self.part.0)
            .define("BLOCK_ROWS", self.part.1)
            .define("WIDTH", self.width)
            .define("QUERIES", self.block)
            .define("KEYS", self.block)
            .define("SPEC_DTYPE0", i64::from(dtype.code()))
            .define("BIASED", i64::from(bias.is_some()))
            .define("DROPS", i64::from(drops));
        bias.into_iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())))
    }
}

/// Widths of heads whose programs are listed, and their dtypes.
pub(super) const LISTED_WIDTHS: [i64; 4] = [32, 64, 96, 128];
pub(super) const LISTED_DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The usual programs: without and with a bias of the same dtype, without and with dropout.
pub(in crate::ops) fn forms(target: &Target) -> Vec<(Family, Form)> {
    let mut found = Vec::new();
    for (pass, width) in [Pass::Forward, Pass::Backward].into_iter().flat_map(|pass| LISTED_WIDTHS.map(|w| (pass, w))) {
        let Some(sizes) = block_sizes(target, pass, Class::Float, width) else { continue };
        for (dtype, drops) in LISTED_DTYPES.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            let biases = [None, Some(dtype)];
            found.extend(biases.map(|bias| (pass.family(), (Class::Float, sizes.spec(dtype, bias, drops)))));
        }
    }
    found
}

/// The plan of a pass for a device.
fn block_sizes(target: &Target, pass: Pass, class: Class, width: i64) -> Option<BlockSizes> {
    let lanes = if target.is_cpu() { native_lanes(target, class) } else { Geometry::of(target, class).lanes as i64 };
    let local = i64::try_from(target.device.info.local_mem).unwrap_or(i64::MAX);
    let of = |local| BlockSizes::of(pass, target.is_cpu(), lanes, local, class.size() as i64, width);
    // Rows that are too wide for that use all local memory.
    let modest = if target.is_cpu() { None } else { of(local.min(GPU_LOCAL)) };
    modest.or_else(|| of(local))
}

/// Returns true if both passes fit the local memory of a device, for rows of queries and of values of these widths.
///
/// # Errors
/// [`Error::NoDevice`], and errors of starting the device.
pub fn attention_fits(device: i32, dtype: DType, head_dim: i64, value_head_dim: i64) -> Result<bool> {
    let target = Target::at(device)?;
    let widest = head_dim.max(value_head_dim);
    Ok(block_sizes(&target, Pass::Backward, dtype.class(), widest).is_some())
}

/// One call: its target, and the state that its kernels share.
pub(super) struct AttentionLaunch {
    pub target: Target,
    pub class: Class,
    pub block_sizes: BlockSizes,
    pub program: Arc<CachedProgram>,
}

impl AttentionLaunch {
    pub fn new(pass: Pass, inputs: &AttentionInputs<'_>, mode: &AttentionMode, target: Target) -> Result<Self> {
        let (query, class) = (&inputs.query, inputs.query.class());
        let widest = query.size(3).max(inputs.value.size(3));
        let block_sizes = block_sizes(&target, pass, class, widest).ok_or_else(|| {
            Error::Unsupported(format!(
                "OpenCL: attention over rows of {widest} elements does not fit the local memory of '{}'",
                target.device.info.name
            ))
        })?;
        let bias = inputs.bias.is_present().then_some(inputs.bias.dtype);
        let spec = block_sizes.spec(query.dtype, bias, mode.keep_prob() < 1.0);
        let program = target.program(pass.family(), class, &spec)?;
        Ok(Self { target, class, block_sizes, program })
    }

    pub fn groups(&self, count: i64) -> ([usize; 1], [usize; 1]) {
        ([count.max(0) as usize * self.block_sizes.group], [self.block_sizes.group])
    }
}

/// The random stream of a call, and the probability of a weight to be kept.
pub(super) fn dropout(target: &Target, class: Class, mode: &AttentionMode) -> entry::DropoutArguments {
    // The forward pass may have been captured, and this may be the backward pass of its last replay.
    let is_captured = target.stream.capture().is_some();
    let number = |value| if is_captured { value } else { drawn(value) };
    entry::DropoutArguments {
        seed: number(mode.stream.seed),
        offset: number(mode.stream.offset),
        keep_prob: Value::real(class, mode.keep_prob()),
    }
}

/// Encodes the sizes of a call and the layouts of its tensors as a kernel argument.
pub(super) fn encode(
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    gradients: Option<(&AttentionGradients<'_>, &Tensor<'_>)>,
) -> Attention {
    let AttentionInputs { query, key, value, bias } = inputs;
    let step = |tensor: &Tensor<'_>, dim: usize| tensor.stride(dim) * tensor.dtype.size() as i64;
    let rows = |tensor: &Tensor<'_>| RowStrides { batch: step(tensor, 0), head: step(tensor, 1), row: step(tensor, 2) };
    Attention {
        heads: query.size(1),
        group: query.size(1) / key.size(1).max(1),
        queries: query.size(2),
        keys: key.size(2),
        head_dim: query.size(3),
        value_head_dim: value.size(3),
        is_causal: i64::from(mode.is_causal),
        query: rows(query),
        key: rows(key),
        value: rows(value),
        out: rows(out),
        grad_query: gradients.map_or_else(RowStrides::default, |(gradients, _)| rows(&gradients.query)),
        grad_key: gradients.map_or_else(RowStrides::default, |(gradients, _)| rows(&gradients.key)),
        grad_value: gradients.map_or_else(RowStrides::default, |(gradients, _)| rows(&gradients.value)),
        grad_out: gradients.map_or_else(RowStrides::default, |(_, grad_out)| rows(grad_out)),
        bias: rows(bias),
        bias_column: step(bias, 3),
    }
}

/// Arguments of every kernel that computes scores.
pub(super) fn arguments(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    attention: Attention,
) -> Result<entry::AttentionArguments> {
    let AttentionInputs { query, key, value, bias } = inputs;
    Ok(entry::AttentionArguments {
        p: attention,
        query: target.tensor(query)?,
        key: target.tensor(key)?,
        value: target.tensor(value)?,
        dtype0: query.dtype,
        bias: target.tensor(bias)?,
        dtype1: bias.dtype,
        scale: Value::real(query.class(), mode.scale),
    })
}

/// Random counters that dropout uses: `DROPOUT_HEAD` of `attention_arguments.cl` for each head.
pub fn attention_counters(batch: i64, heads: i64, queries: i64, keys: i64) -> u64 {
    (batch * heads * div_ceil(keys, 2) * div_ceil(queries, 16) * 8).max(0) as u64
}

/// Writes the output of attention into `out`, and the logarithm of each query's sum of weights, for the backward pass,
/// into `logsumexp` [batch, heads, queries], dense and in the compute dtype.
///
/// # Errors
/// [`Error::Unsupported`] for rows that do not fit the local memory of the device.
pub fn attention(
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    if query::takes(&target, inputs, mode) {
        return query::forward(&target, inputs, mode, out, logsumexp);
    }
    if let Some(form) = tile::plan(&target, inputs, mode)?.filter(|form| tile_check::is_right(&target, form)) {
        return tile::forward(&target, &form, inputs, mode, out, logsumexp);
    }
    let launch = AttentionLaunch::new(Pass::Forward, inputs, mode, target)?;
    let (target, query) = (&launch.target, &inputs.query);
    let attention = encode(inputs, mode, out, None);
    let args = entry::Attention {
        attention: arguments(target, inputs, mode, attention)?,
        out: target.tensor(out)?,
        logsumexp: target.tensor(logsumexp)?,
        dropout: dropout(target, launch.class, mode),
    };
    let (global, local) =
        launch.groups(query.size(0) * query.size(1) * div_ceil(query.size(2), launch.block_sizes.block));
    target.launch(&launch.program, entry::ATTENTION, &args, &global, Some(&local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_take_large_blocks() {
        let block_sizes = BlockSizes::of(Pass::Backward, true, 16, 2 << 20, 4, 64);
        assert_eq!(block_sizes, Some(BlockSizes { block: 64, width: 64, lanes: 16, part: (2, 8), group: 1 }));
        let block_sizes = BlockSizes::of(Pass::Backward, true, 8, 2 << 20, 4, 64);
        assert_eq!(block_sizes, Some(BlockSizes { block: 64, width: 64, lanes: 8, part: (2, 4), group: 1 }));
    }

    #[test]
    fn blocks_shrink_until_they_fit() {
        let block_sizes = BlockSizes::of(Pass::Backward, false, 4, 48 << 10, 4, 256);
        assert_eq!(block_sizes, Some(BlockSizes { block: 4, width: 260, lanes: 4, part: (1, 4), group: GPU_GROUP }));
        let narrow = BlockSizes::of(Pass::Forward, true, 16, 32 << 10, 4, 250);
        assert_eq!(narrow, Some(BlockSizes { block: 8, width: 256, lanes: 8, part: (1, 8), group: 1 }));
    }

    #[test]
    fn some_rows_are_too_wide() {
        assert_eq!(BlockSizes::of(Pass::Backward, false, 4, 32 << 10, 4, 512), None);
    }
}
