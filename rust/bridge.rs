//! What crosses between C++ and Rust: here most kernel families, in `bridge/fused.rs` those that do the work of several,
//! in `bridge/runtime.rs` devices and memory (docs/decisions/006).
//!
//! C++ speaks ATen and knows no OpenCL; Rust speaks OpenCL and knows no ATen. What crosses is plain data: an
//! address, a dtype code, slices of sizes and strides. Every function returns a `Result` whose error text carries
//! its kind (see `error.rs`); nothing reachable from here panics, as a panic across the bridge ends the process.

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A tensor: address of its first element (0: absent), dtype code, sizes and strides in elements.
    #[derive(Clone, Copy)]
    struct TensorArg<'a> {
        address: usize,
        dtype: i32,
        sizes: &'a [i64],
        strides: &'a [i64],
    }

    /// One operand of an iteration: strides in bytes, innermost dimension first.
    ///
    /// A zero-dimensional host tensor has `address` 0 and its value in `value`.
    #[derive(Clone, Copy)]
    struct Operand<'a> {
        address: usize,
        dtype: i32,
        strides: &'a [i64],
        value: Scalar,
    }

    /// A number in every form a compute class may need it.
    #[derive(Clone, Copy)]
    struct Scalar {
        real: f64,
        imag: f64,
        integer: i64,
    }

    /// An index tensor of the shape of a move, and the dimension it walks: size, stride in bytes, number (for messages),
    /// whether negative indices count from the end, and which error one out of range is (`ops::index::BadIndex`).
    #[derive(Clone, Copy)]
    struct IndexAxis<'a> {
        index: TensorArg<'a>,
        size: i64,
        stride: i64,
        dim: i64,
        wraps: bool,
        bad: i32,
    }

    /// The part of a generator's stream that a launch reads: its key and its first counter.
    #[derive(Clone, Copy)]
    struct RandomStream {
        seed: u64,
        offset: u64,
    }

    /// Where pooling windows lie, one number for each spatial dimension, outermost first; empty lists mean that they
    /// adapt to the sizes of input and output.
    #[derive(Clone, Copy)]
    struct Windows<'a> {
        spatial: usize,
        kernel_size: &'a [i64],
        stride: &'a [i64],
        padding: &'a [i64],
        dilation: &'a [i64],
    }

    /// Rows that layer and group norm normalise one by one: `ops::norm::Rows`.
    #[derive(Clone, Copy)]
    struct NormRows {
        count: i64,
        length: i64,
        groups: i64,
        inner: i64,
    }

    /// Weight and bias, or their gradients.
    #[derive(Clone, Copy)]
    struct Affine<'a> {
        weight: TensorArg<'a>,
        bias: TensorArg<'a>,
    }

    /// Mean, and reciprocal deviation or (where running statistics are meant) variance.
    #[derive(Clone, Copy)]
    struct Statistics<'a> {
        mean: TensorArg<'a>,
        spread: TensorArg<'a>,
    }

    /// How much running statistics move, and what is added to the variance.
    #[derive(Clone, Copy)]
    struct NormHyper {
        momentum: f64,
        eps: f64,
    }

    /// What a batch-norm backward pass goes by: in training the saved statistics, else the running ones and eps.
    #[derive(Clone, Copy)]
    struct BatchNormMode<'a> {
        statistics: Statistics<'a>,
        training: bool,
        eps: f64,
    }

    /// A dense tensor seen as [outer, channels, inner].
    #[derive(Clone, Copy)]
    struct NormShape {
        outer: i64,
        channels: i64,
        inner: i64,
    }

    /// What selects a likelihood for each target: `ops::loss::Classes`.
    #[derive(Clone, Copy)]
    struct Classes<'a> {
        target: TensorArg<'a>,
        weight: TensorArg<'a>,
        ignored: i64,
        count: i64,
        inner: i64,
    }

    /// How one dimension is interpolated or padded: `ops::resample::Step`.
    #[derive(Clone, Copy)]
    struct ResampleStep {
        rule: i32,
        align_corners: bool,
        scale: f64,
        shift: i64,
    }

    /// How a grid is read: `ops::grid::Sampler`.
    #[derive(Clone, Copy)]
    struct GridSampler {
        interpolation: i32,
        padding: i32,
        align_corners: bool,
    }

    /// What bags of embeddings are looked up in, and with: `ops::bag::Bags`.
    #[derive(Clone, Copy)]
    struct Bags<'a> {
        weight: TensorArg<'a>,
        indices: TensorArg<'a>,
        offsets: TensorArg<'a>,
        scales: TensorArg<'a>,
        padding: i64,
        mode: i32,
    }

    /// Geometry of a convolution, outermost dimension first.
    #[derive(Clone, Copy)]
    struct ConvolutionArgs<'a> {
        stride: &'a [i64],
        padding: &'a [i64],
        dilation: &'a [i64],
        groups: i64,
    }

    extern "Rust" {
        fn pointwise(
            op: u32,
            compute: i32,
            shape: &[i64],
            outputs: usize,
            operands: &[Operand],
            scalars: &[Scalar],
            casts: u32,
        ) -> Result<()>;
        fn index_get(dst: &TensorArg, src: &TensorArg, axes: &[IndexAxis]) -> Result<()>;
        fn index_set(dst: &TensorArg, src: &TensorArg, axes: &[IndexAxis], op: i32, in_order: bool) -> Result<()>;
        fn nonzero_count(input: &TensorArg, counts: &TensorArg) -> Result<()>;
        fn nonzero_write(input: &TensorArg, ends: &TensorArg, out: &TensorArg) -> Result<()>;
        fn searchsorted(
            out: &TensorArg,
            values: &TensorArg,
            boundaries: &TensorArg,
            sorter: &TensorArg,
            right: bool,
        ) -> Result<()>;
        fn triangle(dst: &TensorArg, src: &TensorArg, diagonal: i64, upper: bool) -> Result<()>;
        fn random_counters(elements: i64) -> u64;
        fn random_sample(out: &TensorArg, distribution: i32, parameters: [f64; 2], stream: RandomStream) -> Result<()>;
        fn random_integers(out: &TensorArg, range: u64, base: i64, stream: RandomStream) -> Result<()>;
        fn random_bernoulli(out: &TensorArg, probabilities: &TensorArg, stream: RandomStream) -> Result<()>;
        fn dropout(out: &TensorArg, mask: &TensorArg, input: &TensorArg, keep: f64, stream: RandomStream)
            -> Result<()>;
        fn dropout_backward(grad_in: &TensorArg, grad_out: &TensorArg, mask: &TensorArg, scale: f64) -> Result<()>;
        fn arange(out: &TensorArg, start: Scalar, step: Scalar) -> Result<()>;
        fn linspace(out: &TensorArg, start: Scalar, end: Scalar) -> Result<()>;
        fn scan(out: &TensorArg, input: &TensorArg, dim: usize, op: i32) -> Result<()>;
        fn scan_extreme(
            values: &TensorArg,
            indices: &TensorArg,
            input: &TensorArg,
            dim: usize,
            largest: bool,
        ) -> Result<()>;
        fn reduce(op: i32, power: f64, shape: &[i64], output: Operand, input: Operand) -> Result<()>;
        fn variance(
            correction: f64,
            take_root: bool,
            shape: &[i64],
            variance: Operand,
            mean: Operand,
            input: Operand,
        ) -> Result<()>;
        fn arg_reduce(
            values: &TensorArg,
            indices: &TensorArg,
            input: &TensorArg,
            dim: usize,
            largest: bool,
        ) -> Result<()>;
        fn softmax(input: &TensorArg, output: &TensorArg, dim: usize, log: bool) -> Result<()>;
        fn softmax_backward(
            grad: &TensorArg,
            output: &TensorArg,
            grad_input: &TensorArg,
            dim: usize,
            log: bool,
        ) -> Result<()>;
        fn norm_rows(
            input: &TensorArg,
            affine: Affine,
            output: &TensorArg,
            statistics: Statistics,
            rows: NormRows,
            eps: f64,
        ) -> Result<()>;
        fn norm_rows_backward(
            grad: &TensorArg,
            input: &TensorArg,
            weight: &TensorArg,
            statistics: Statistics,
            grad_input: &TensorArg,
            grad_affine: Affine,
            rows: NormRows,
        ) -> Result<()>;
        fn batch_norm_training(
            input: &TensorArg,
            affine: Affine,
            output: &TensorArg,
            saved: Statistics,
            running: Statistics,
            shape: NormShape,
            hyper: NormHyper,
        ) -> Result<()>;
        fn batch_norm_evaluation(
            input: &TensorArg,
            affine: Affine,
            output: &TensorArg,
            running: Statistics,
            shape: NormShape,
            eps: f64,
        ) -> Result<()>;
        fn batch_norm_backward(
            grad: &TensorArg,
            input: &TensorArg,
            weight: &TensorArg,
            mode: BatchNormMode,
            grad_input: &TensorArg,
            grad_affine: Affine,
            shape: NormShape,
        ) -> Result<()>;
        fn max_pool(windows: Windows, output: &TensorArg, indices: &TensorArg, input: &TensorArg) -> Result<()>;
        fn max_pool_backward(
            windows: Windows,
            grad_input: &TensorArg,
            grad: &TensorArg,
            indices: &TensorArg,
        ) -> Result<()>;
        fn avg_pool(
            windows: Windows,
            output: &TensorArg,
            input: &TensorArg,
            count_padding: bool,
            divisor: i64,
        ) -> Result<()>;
        fn avg_pool_backward(
            windows: Windows,
            grad_input: &TensorArg,
            grad: &TensorArg,
            count_padding: bool,
            divisor: i64,
        ) -> Result<()>;
        fn nll_loss(
            input: &TensorArg,
            classes: Classes,
            reduction: i64,
            output: &TensorArg,
            total_weight: &TensorArg,
        ) -> Result<()>;
        fn nll_loss_backward(
            grad: &TensorArg,
            classes: Classes,
            reduction: i64,
            total_weight: &TensorArg,
            grad_input: &TensorArg,
        ) -> Result<()>;
        fn binary_cross_entropy(
            input: &TensorArg,
            target: &TensorArg,
            weight: &TensorArg,
            output: &TensorArg,
        ) -> Result<()>;
        fn binary_cross_entropy_backward(
            grad: &TensorArg,
            input: &TensorArg,
            target: &TensorArg,
            weight: &TensorArg,
            grad_input: &TensorArg,
            scale: f64,
        ) -> Result<()>;
        fn matmul(
            out: &TensorArg,
            a: &TensorArg,
            b: &TensorArg,
            addend: &TensorArg,
            alpha: Scalar,
            beta: Scalar,
            activation: i32,
        ) -> Result<bool>;
        fn preferred_blas_library() -> Result<String>;
        fn set_preferred_blas_library(name: &str) -> Result<()>;
        fn blas_choices_json(device: i32) -> String;
        fn dot(out: &TensorArg, a: &TensorArg, b: &TensorArg) -> Result<()>;
        fn convolve(
            out: &TensorArg,
            source: &TensorArg,
            weight: &TensorArg,
            bias: &TensorArg,
            window: ConvolutionArgs,
            transposed: bool,
        ) -> Result<()>;
        fn convolve_weights(
            out: &TensorArg,
            source: &TensorArg,
            gradient: &TensorArg,
            window: ConvolutionArgs,
        ) -> Result<()>;
        fn resample(output: &TensorArg, input: &TensorArg, steps: &[ResampleStep], transposed: bool) -> Result<()>;
        fn grid_sample(sampler: GridSampler, output: &TensorArg, input: &TensorArg, grid: &TensorArg) -> Result<()>;
        fn grid_padded_channels(grad: &TensorArg) -> Result<i64>;
        fn grid_sample_input_gradient(
            sampler: GridSampler,
            sums: &TensorArg,
            grad: &TensorArg,
            grid: &TensorArg,
            in_any_order: bool,
        ) -> Result<()>;
        fn grid_has_any_order(grad: &TensorArg) -> Result<bool>;
        fn grid_sample_grid_gradient(
            sampler: GridSampler,
            grad_grid: &TensorArg,
            grad: &TensorArg,
            input: &TensorArg,
            grid: &TensorArg,
        ) -> Result<()>;
        fn embedding_bag(bags: Bags, output: &TensorArg, sizes: &TensorArg, rows: &TensorArg) -> Result<()>;
        fn sort(values: &TensorArg, indices: &TensorArg, input: &TensorArg, descending: bool) -> Result<()>;
        fn select(values: &TensorArg, indices: &TensorArg, input: &TensorArg, ranks: &TensorArg) -> Result<()>;
    }
}

mod args;
mod attention;
mod builds;
mod device;
mod fused;
mod index;
mod loss;
mod matrix;
mod memory;
mod norm;
mod optimizer;
mod order;
mod pointwise;
mod pool;
mod random;
mod reduce;
mod rnn;
mod runtime;
mod sample;
mod tuning;

use index::*;
use loss::*;
use matrix::*;
use norm::*;
use order::*;
use pointwise::*;
use pool::*;
use random::*;
use reduce::*;
use sample::*;
