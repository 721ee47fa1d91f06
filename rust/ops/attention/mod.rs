//! Scaled dot-product attention without the matrix of weights.
//!
//! Tensors are [batch, heads, length, head_dim] with dense rows. Equal groups of query heads share a head of keys and
//! values.

pub mod backward;
mod block_sizes;
pub mod query;
pub mod tile;
pub mod tile_backward;
mod tile_check;
mod tile_form;

use std::sync::Arc;

use self::block_sizes::{block_sizes, BlockSizes, Pass};
use crate::error::{Error, Result};
use crate::kernels::entry::{self, Value};
use crate::kernels::structs::attention_arguments::{Attention, RowStrides};
use crate::kernels::{CachedProgram, Class, DType, Family};
use crate::ops::core::forms::Form;
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
            let spec = |bias| sizes.spec(dtype, bias, drops, !target.is_cpu());
            found.extend(biases.map(|bias| (pass.family(), (Class::Float, spec(bias)))));
        }
    }
    found
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

/// Returns true if the vectors of a tensor's rows lie at multiples of their size. An absent tensor has none.
pub(super) fn is_in_vectors(tensor: &Tensor<'_>, lanes: i64) -> bool {
    let is_step = |dim: usize| tensor.size(dim) == 1 || tensor.stride(dim) % lanes == 0;
    !tensor.is_present()
        || tensor.address.is_multiple_of(lanes as usize * tensor.dtype.size())
            && tensor.size(3) % lanes == 0
            && (0..3).all(is_step)
}

/// One call: its target, and the state that its kernels share.
pub(super) struct AttentionLaunch {
    pub target: Target,
    pub class: Class,
    pub block_sizes: BlockSizes,
    pub program: Arc<CachedProgram>,
}

impl AttentionLaunch {
    /// `others` are the tensors that the pass reads or writes besides `inputs`.
    pub fn new(
        pass: Pass,
        inputs: &AttentionInputs<'_>,
        mode: &AttentionMode,
        others: &[Tensor<'_>],
        target: Target,
    ) -> Result<Self> {
        let (query, class) = (&inputs.query, inputs.query.class());
        let widest = query.size(3).max(inputs.value.size(3));
        let block_sizes = block_sizes(&target, pass, class, widest).ok_or_else(|| {
            Error::Unsupported(format!(
                "OpenCL: attention over rows of {widest} elements does not fit the local memory of '{}'",
                target.device.info.name
            ))
        })?;
        let AttentionInputs { key, value, bias, .. } = *inputs;
        let mut all = [*query, key, value, bias].into_iter().chain(others.iter().copied());
        // The logsumexp is stored in vectors of queries: that of each head begins at a whole vector.
        let is_aligned = !target.is_cpu()
            && query.size(2) % block_sizes.lanes == 0
            && all.all(|tensor| is_in_vectors(&tensor, block_sizes.lanes));
        let bias = bias.is_present().then_some(bias.dtype);
        let spec = block_sizes.spec(query.dtype, bias, mode.keep_prob() < 1.0, is_aligned);
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
    if query::forward(&target, inputs, mode, out, logsumexp)? {
        return Ok(());
    }
    if let Some(form) = tile::plan(&target, inputs, mode)?.filter(|form| tile_check::is_right(&target, form)) {
        return tile::forward(&target, &form, inputs, mode, out, logsumexp);
    }
    let launch = AttentionLaunch::new(Pass::Forward, inputs, mode, &[*out], target)?;
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
