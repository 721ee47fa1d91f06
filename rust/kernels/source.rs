//! The sources of each family.

/// A set of kernels that are built together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Element-wise ops of the op table.
    Pointwise,
    /// Element-wise ops on lists of tensors.
    Foreach,
    /// Norms of the tensors of lists.
    ListNorm,
    /// Gathers, scatters and searches.
    Index,
    /// Philox and what is drawn from it.
    Random,
    /// Sequences.
    Factory,
    /// Triangles.
    Copy,
    /// Copies between tensors that are dense along different dimensions.
    Transpose,
    /// Cumulative sums, products and extremes.
    Scan,
    /// Stable sorts of rows, whole, their first elements or one of them.
    Sort,
    /// Matrix products.
    Matmul,
    /// Those that end in a GELU, with the functions that it takes.
    MatmulGelu,
    /// Matrix products and convolutions for many small cores.
    GemmLocal,
    /// Convolutions.
    Conv,
    /// Convolutions by minimal filtering.
    Winograd,
    /// Sums, products, extremes and norms.
    Reduce,
    /// Extremes and their places.
    ArgReduce,
    /// Mean and variance.
    Moments,
    /// Softmax and log-softmax.
    Softmax,
    /// Batch, layer and group normalisation.
    Norm,
    /// Max and average pooling.
    Pool,
    /// Losses that are not arithmetic alone.
    Loss,
    /// Steps of optimizers.
    Optimizer,
    /// Steps of recurrent cells.
    Rnn,
    /// Interpolation and padding.
    Resample,
    /// Interpolation at the places of a grid.
    Grid,
    /// Sums over bags of embeddings.
    Bag,
    /// Scaled dot-product attention.
    Attention,
    /// The same for few queries.
    AttentionQuery,
    /// Its gradients.
    AttentionBackward,
}

const PRELUDE: &str = include_str!("cl/prelude.cl");
const TIER: &str = include_str!("cl/tier.cl");
const VECTOR: &str = include_str!("cl/vector.cl");
const NOTATION: &str = include_str!("cl/notation.cl");
const ELEMENTARY: &str = include_str!("cl/elementary.cl");
const POWER: &str = include_str!("cl/power.cl");
const ROUNDING: &str = include_str!("cl/rounding.cl");
const MATH: &str = include_str!("cl/math.cl");
const COMPLEX: &str = include_str!("cl/complex.cl");
const INDEX: &str = include_str!("cl/index.cl");
const UPDATE: &str = include_str!("cl/update.cl");
const NONZERO: &str = include_str!("cl/nonzero.cl");
const SEARCH: &str = include_str!("cl/search.cl");
const RANDOM: &str = include_str!("cl/random.cl");
const RANDOM_LANES: &str = include_str!("cl/random_lanes.cl");
const RANDOM_GROUPS: &str = include_str!("cl/random_groups.cl");
const FACTORY: &str = include_str!("cl/factory.cl");
const COPY: &str = include_str!("cl/copy.cl");
const TRANSPOSE: &str = include_str!("cl/transpose.cl");
const SCAN: &str = include_str!("cl/scan.cl");
const SORT: &str = include_str!("cl/sort.cl");
const SORT_GROUPS: &str = include_str!("cl/sort_groups.cl");
const RADIX: &str = include_str!("cl/radix.cl");
const SELECT: &str = include_str!("cl/select.cl");
const TOP: &str = include_str!("cl/top.cl");
const MATRIX: &str = include_str!("cl/matrix.cl");
const ACTIVATION: &str = include_str!("cl/activation.cl");
const EPILOGUE: &str = include_str!("cl/epilogue.cl");
const PANEL: &str = include_str!("cl/panel.cl");
const PACK_MATRIX: &str = include_str!("cl/pack_matrix.cl");
const TILE: &str = include_str!("cl/tile.cl");
const GEMM: &str = include_str!("cl/gemm.cl");
const MATMUL: &str = include_str!("cl/matmul.cl");
const GEMM_LOCAL: &str = include_str!("cl/gemm_local.cl");
const PATCH_GRID: &str = include_str!("cl/patch_grid.cl");
const PATCHES: &str = include_str!("cl/patches.cl");
const PACK_PIXELS: &str = include_str!("cl/pack_pixels.cl");
const PACK_FEATURES: &str = include_str!("cl/pack_features.cl");
const CONV: &str = include_str!("cl/conv.cl");
const WINOGRAD_POINTS: &str = include_str!("cl/winograd_points.cl");
const WINOGRAD_TILES: &str = include_str!("cl/winograd_tiles.cl");
const WINOGRAD: &str = include_str!("cl/winograd.cl");
const CONV_CHANNELS: &str = include_str!("cl/conv_channels.cl");
const CONV_WEIGHT: &str = include_str!("cl/conv_weight.cl");
const COLUMNS: &str = include_str!("cl/columns.cl");
const REDUCE: &str = include_str!("cl/reduce.cl");
const ARG_REDUCE: &str = include_str!("cl/arg_reduce.cl");
const MOMENTS: &str = include_str!("cl/moments.cl");
const SOFTMAX: &str = include_str!("cl/softmax.cl");
const BLOCK_SUM: &str = include_str!("cl/block_sum.cl");
const NORM: &str = include_str!("cl/norm.cl");
const BATCH_NORM: &str = include_str!("cl/batch_norm.cl");
const POOL: &str = include_str!("cl/pool.cl");
const POOL_PLANES: &str = include_str!("cl/pool_planes.cl");
const POOL_PIXELS: &str = include_str!("cl/pool_pixels.cl");
const FAULT: &str = include_str!("cl/fault.cl");
const LOSS: &str = include_str!("cl/loss.cl");
const OPTIMIZER: &str = include_str!("cl/optimizer.cl");
const RNN: &str = include_str!("cl/rnn.cl");
const RESAMPLE: &str = include_str!("cl/resample.cl");
const RESAMPLE_ROWS: &str = include_str!("cl/resample_rows.cl");
const GRID: &str = include_str!("cl/grid.cl");
const BAG: &str = include_str!("cl/bag.cl");
const SEGMENTS: &str = include_str!("cl/segments.cl");
const LIST_NORM: &str = include_str!("cl/list_norm.cl");
const FOREACH: &str = include_str!("cl/foreach.cl");
const BLOCK: &str = include_str!("cl/block.cl");
const SCORES: &str = include_str!("cl/scores.cl");
const ATTENTION: &str = include_str!("cl/attention.cl");
const ATTENTION_QUERY: &str = include_str!("cl/attention_query.cl");
const ATTENTION_BACKWARD: &str = include_str!("cl/attention_backward.cl");
const POINTWISE: &str = include_str!("cl/pointwise.cl");

/// Where the generated op switch goes.
const CASES_LINE: &str = "//@CASES@";

impl Family {
    /// All families.
    pub const ALL: &'static [Self] = &[
        Self::Pointwise,
        Self::Foreach,
        Self::ListNorm,
        Self::Index,
        Self::Random,
        Self::Factory,
        Self::Copy,
        Self::Transpose,
        Self::Scan,
        Self::Sort,
        Self::Matmul,
        Self::MatmulGelu,
        Self::GemmLocal,
        Self::Conv,
        Self::Winograd,
        Self::Reduce,
        Self::ArgReduce,
        Self::Moments,
        Self::Softmax,
        Self::Norm,
        Self::Pool,
        Self::Loss,
        Self::Optimizer,
        Self::Rnn,
        Self::Resample,
        Self::Grid,
        Self::Bag,
        Self::Attention,
        Self::AttentionQuery,
        Self::AttentionBackward,
    ];

    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pointwise => "pointwise",
            Self::Foreach => "foreach",
            Self::ListNorm => "list_norm",
            Self::Index => "index",
            Self::Random => "random",
            Self::Factory => "factory",
            Self::Copy => "copy",
            Self::Transpose => "transpose",
            Self::Scan => "scan",
            Self::Sort => "sort",
            Self::Matmul => "matmul",
            Self::MatmulGelu => "matmul_gelu",
            Self::GemmLocal => "gemm_local",
            Self::Conv => "conv",
            Self::Winograd => "winograd",
            Self::Reduce => "reduce",
            Self::ArgReduce => "arg_reduce",
            Self::Moments => "moments",
            Self::Softmax => "softmax",
            Self::Norm => "norm",
            Self::Pool => "pool",
            Self::Loss => "loss",
            Self::Optimizer => "optimizer",
            Self::Rnn => "rnn",
            Self::Resample => "resample",
            Self::Grid => "grid",
            Self::Bag => "bag",
            Self::Attention => "attention",
            Self::AttentionQuery => "attention_query",
            Self::AttentionBackward => "attention_backward",
        }
    }

    const fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Pointwise => &[PRELUDE, VECTOR, NOTATION, ELEMENTARY, POWER, ROUNDING, MATH, COMPLEX, POINTWISE],
            Self::Foreach => {
                &[PRELUDE, VECTOR, NOTATION, ELEMENTARY, POWER, ROUNDING, MATH, COMPLEX, POINTWISE, SEGMENTS, FOREACH]
            }
            Self::ListNorm => &[PRELUDE, TIER, VECTOR, SEGMENTS, LIST_NORM],
            Self::Index => &[PRELUDE, TIER, VECTOR, INDEX, UPDATE, NONZERO, SEARCH],
            Self::Random => &[PRELUDE, TIER, FAULT, RANDOM, RANDOM_LANES, RANDOM_GROUPS],
            Self::Factory => &[PRELUDE, TIER, FACTORY],
            Self::Copy => &[PRELUDE, COPY],
            Self::Transpose => &[PRELUDE, TRANSPOSE],
            Self::Scan => &[PRELUDE, TIER, SCAN],
            Self::Sort => &[PRELUDE, TIER, VECTOR, RADIX, SELECT, SORT, SORT_GROUPS, TOP],
            Self::Matmul => &[
                PRELUDE,
                VECTOR,
                MATRIX,
                PANEL,
                ACTIVATION,
                EPILOGUE,
                PACK_MATRIX,
                PATCH_GRID,
                PATCHES,
                PACK_PIXELS,
                PACK_FEATURES,
                TILE,
                GEMM,
                MATMUL,
            ],
            Self::MatmulGelu => &[
                PRELUDE,
                VECTOR,
                NOTATION,
                ELEMENTARY,
                MATRIX,
                PANEL,
                ACTIVATION,
                EPILOGUE,
                PACK_MATRIX,
                PATCH_GRID,
                TILE,
                GEMM,
                MATMUL,
            ],
            Self::GemmLocal => &[PRELUDE, VECTOR, MATRIX, PANEL, ACTIVATION, EPILOGUE, PATCH_GRID, GEMM_LOCAL],
            Self::Conv => &[PRELUDE, VECTOR, MATRIX, CONV, CONV_CHANNELS, CONV_WEIGHT],
            Self::Winograd => &[PRELUDE, VECTOR, MATRIX, PANEL, TILE, WINOGRAD_POINTS, WINOGRAD_TILES, WINOGRAD],
            Self::Reduce => &[PRELUDE, TIER, VECTOR, COLUMNS, REDUCE],
            Self::ArgReduce => &[PRELUDE, TIER, VECTOR, COLUMNS, ARG_REDUCE],
            Self::Moments => &[PRELUDE, TIER, VECTOR, COLUMNS, MOMENTS],
            Self::Softmax => &[PRELUDE, TIER, VECTOR, COLUMNS, SOFTMAX],
            Self::Norm => &[PRELUDE, TIER, VECTOR, COLUMNS, BLOCK_SUM, NORM, BATCH_NORM],
            Self::Pool => &[PRELUDE, TIER, VECTOR, NOTATION, ROUNDING, POOL, POOL_PLANES, POOL_PIXELS],
            Self::Loss => &[PRELUDE, TIER, VECTOR, FAULT, LOSS],
            Self::Resample => &[PRELUDE, VECTOR, RESAMPLE, RESAMPLE_ROWS],
            Self::Grid => &[PRELUDE, VECTOR, GRID],
            Self::Bag => &[PRELUDE, VECTOR, FAULT, BAG],
            Self::Attention => &[PRELUDE, TIER, VECTOR, BLOCK, SCORES, ATTENTION],
            Self::AttentionQuery => &[PRELUDE, TIER, VECTOR, BLOCK, SCORES, ATTENTION_QUERY],
            Self::AttentionBackward => &[PRELUDE, TIER, VECTOR, BLOCK, SCORES, ATTENTION_BACKWARD],
            Self::Optimizer => &[PRELUDE, VECTOR, SEGMENTS, OPTIMIZER],
            Self::Rnn => &[PRELUDE, VECTOR, NOTATION, ELEMENTARY, POWER, ROUNDING, MATH, RNN],
        }
    }

    /// The whole source, with the op switch put in.
    pub fn source(self, cases: &str) -> String {
        self.parts().concat().replace(CASES_LINE, cases)
    }
}
