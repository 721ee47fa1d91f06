//! The sources of each family.

/// Reads the kernel files from which programs are assembled, as written by `build.rs` (rust/codegen/packed.rs).
macro_rules! texts {
    ($($part:ident)+) => {
        #[allow(non_upper_case_globals)]
        mod text {
            $(pub const $part: &str = include_str!(concat!(env!("OUT_DIR"), "/cl/", stringify!($part), ".cl"));)+
        }
    };
}

/// Declares the families: a variant, the name for messages, and the ordered list of files.
macro_rules! families {
    ($($(#[$doc:meta])* $variant:ident $name:ident: $($part:ident)+;)+) => {
        /// A set of kernels that are built together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Family {
            $($(#[$doc])* $variant,)+
        }

        impl Family {
            /// All families.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name for messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)+
                }
            }

            const fn parts(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$(text::$part,)+],)+
                }
            }
        }
    };
}

texts! {
    prelude tier vector notation elementary power rounding math complex index scatter nonzero searchsorted philox
    philox_lanes random random_lanes random_groups sampling sampling_grad factory copy cat transpose scan sort
    sort_groups radix kthvalue topk
    matrix activation epilogue panel pack_matrix tile gemm matmul gemm_block gemm_local gemm_operands im2col
    tile_layout tile_block tile_emulated tile_nvidia tile_amd tile_intel tile_dot gemm_tile_sizes tile_im2col gemm_tile
    pack_im2col pack_im2col_transposed conv conv_direct_weight winograd_transforms winograd_tiles winograd conv_channels conv_weight
    columns fold reduce arg_reduce var_mean softmax block_sum norm batch_norm pool pool_planes pool_rows
    pool_channels_last fractional_max_pool
    fault loss ctc margin segment_reduce sparse_mm assertion optimizer rnn resample resample_rows resample_bytes grid_sampler embedding_bag
    multi_tensor foreach_norm foreach block attention_arguments scores attention attention_query attention_backward
    attention_tile_sizes attention_tile_blocks attention_tile attention_tile_backward butterfly fft
    formats quantized linalg_panel linalg householder sparse pointwise generated generated_lanes user
}

families! {
    /// Element-wise ops of the op table.
    Pointwise pointwise: prelude vector notation elementary power rounding math complex pointwise;
    /// Discrete Fourier transforms.
    Fft fft: prelude tier butterfly fft;
    /// Factorisations and triangular solves of blocks.
    Linalg linalg: prelude fault linalg_panel linalg;
    /// QR of blocks.
    Householder householder: prelude linalg_panel householder;
    /// Element-wise ops on lists of tensors.
    Foreach foreach: prelude vector notation elementary power rounding math complex pointwise multi_tensor foreach;
    /// Norms of the tensors of lists.
    ForeachNorm foreach_norm: prelude tier vector multi_tensor foreach_norm;
    /// Gathers, scatters, nonzero and searchsorted.
    Index index: prelude tier vector fault index scatter nonzero searchsorted;
    /// Philox and the distributions drawn from it.
    Random random: prelude tier fault philox philox_lanes random random_lanes random_groups;
    /// Distributions with parameters for each element.
    Sampling sampling: prelude tier vector fault philox philox_lanes sampling;
    /// Gradients of samples with respect to their parameters.
    SamplingGrad sampling_grad: prelude tier vector sampling_grad;
    /// Sequences (arange, linspace and similar).
    Factory factory: prelude tier vector factory;
    /// Triangles (tril, triu).
    Copy copy: prelude copy;
    /// Copies of several tensors into one.
    Cat cat: prelude multi_tensor cat;
    /// Copies between tensors that are dense along different dimensions.
    Transpose transpose: prelude transpose;
    /// Cumulative sums, products and extremes.
    Scan scan: prelude tier scan;
    /// Stable sorts of rows: all elements, the first ones or one of them.
    Sort sort: prelude tier vector radix kthvalue sort sort_groups topk;
    /// Matmuls.
    Matmul matmul:
        prelude vector matrix panel activation epilogue pack_matrix gemm_operands im2col pack_im2col
        pack_im2col_transposed tile
        gemm matmul;
    /// Matmuls with a GELU epilogue, with the functions that it needs.
    MatmulGelu matmul_gelu:
        prelude vector notation elementary matrix panel activation epilogue pack_matrix gemm_operands tile gemm matmul;
    /// Matmuls and convolutions for GPUs.
    GemmLocal gemm_local: prelude vector matrix panel activation epilogue gemm_operands gemm_block gemm_local;
    /// Matmuls by matrix instructions.
    GemmTile gemm_tile:
        prelude vector matrix panel activation epilogue gemm_operands gemm_block tile_layout tile_block gemm_tile_sizes
        tile_emulated tile_nvidia tile_amd tile_intel tile_dot tile_im2col gemm_tile;
    /// Matmuls with an epilogue of torch.compile, with the functions that it calls.
    MatmulFused matmul_fused:
        prelude vector notation elementary power rounding math fault philox generated generated_lanes matrix panel
        activation epilogue pack_matrix gemm_operands tile gemm matmul;
    /// Matmuls with an epilogue of torch.compile, for GPUs.
    GemmLocalFused gemm_local_fused:
        prelude vector notation elementary power rounding math fault philox generated generated_lanes matrix panel
        activation epilogue gemm_operands gemm_block gemm_local;
    /// Matmuls by matrix instructions with an epilogue of torch.compile, with the functions that it calls.
    GemmTileFused gemm_tile_fused:
        prelude vector notation elementary power rounding math fault philox generated generated_lanes matrix panel
        activation epilogue gemm_operands gemm_block tile_layout tile_block gemm_tile_sizes tile_emulated tile_nvidia
        tile_amd tile_intel tile_dot tile_im2col gemm_tile;
    /// Matmuls with quantised weights in the formats of other libraries.
    Quantized quantized: prelude tier vector formats quantized;
    /// Convolutions.
    Conv conv: prelude vector matrix conv conv_direct_weight conv_channels conv_weight;
    /// Winograd convolutions.
    Winograd winograd: prelude vector matrix panel tile winograd_transforms winograd_tiles winograd;
    /// Sums, products, extremes and norms.
    Reduce reduce: prelude tier vector notation elementary power columns fold reduce;
    /// Extremes and their indices.
    ArgReduce arg_reduce: prelude tier vector columns arg_reduce;
    /// Mean and variance.
    VarMean var_mean: prelude tier vector columns var_mean;
    /// Softmax and log-softmax.
    Softmax softmax: prelude tier vector columns softmax;
    /// Batch, layer and group normalisation.
    Norm norm: prelude tier vector columns block_sum norm batch_norm;
    /// Max and average pooling.
    Pool pool: prelude tier vector notation rounding pool pool_planes pool_rows pool_channels_last;
    /// Max pooling of windows at random positions.
    FractionalMaxPool fractional_max_pool: prelude tier vector fractional_max_pool;
    /// Losses that need more than arithmetic.
    Loss loss: prelude tier vector fault loss;
    /// Connectionist temporal classification.
    Ctc ctc: prelude tier vector fault ctc;
    /// Margin losses.
    Margin margin: prelude tier vector fault margin;
    /// Reductions of runs of rows.
    SegmentReduce segment_reduce: prelude tier vector segment_reduce sparse_mm;
    /// Assertions.
    Assertion assertion: prelude fault assertion;
    /// Steps of optimizers.
    Optimizer optimizer: prelude vector multi_tensor optimizer;
    /// Steps of recurrent cells.
    Rnn rnn: prelude tier vector notation elementary power rounding math rnn;
    /// Interpolation and padding.
    Resample resample: prelude tier vector resample resample_rows;
    /// Interpolation of images of bytes.
    ResampleBytes resample_bytes: prelude vector resample_bytes;
    /// Interpolation at the positions of a grid.
    GridSampler grid_sampler: prelude tier vector grid_sampler;
    /// Matmuls of sparse matrices.
    Sparse sparse: prelude tier vector sparse;
    /// Sums over bags of embeddings.
    EmbeddingBag embedding_bag: prelude tier vector fault embedding_bag;
    /// Functions for kernels that `torch.compile` generates, whose source follows.
    Generated generated: prelude vector notation elementary power rounding math fault philox
        generated generated_lanes;
    /// Macros and functions for kernels of the user, whose source follows.
    User user: user;
    /// Scaled dot-product attention.
    Attention attention: prelude tier vector philox block attention_arguments scores attention;
    /// Scaled dot-product attention with few queries.
    AttentionQuery attention_query: prelude tier vector philox block attention_arguments scores attention_query;
    /// Gradients of scaled dot-product attention.
    AttentionBackward attention_backward:
        prelude tier vector philox block attention_arguments scores attention_backward;
    /// Attention by matrix instructions.
    AttentionTile attention_tile:
        prelude tier philox attention_arguments attention_tile_sizes tile_layout tile_block tile_emulated tile_nvidia
        tile_amd tile_intel attention_tile_blocks attention_tile;
    /// Gradients of attention by matrix instructions.
    AttentionTileBackward attention_tile_backward:
        prelude tier philox attention_arguments attention_tile_sizes tile_layout tile_block tile_emulated tile_nvidia
        tile_amd tile_intel attention_tile_blocks attention_tile_backward;
}

/// Source that the op table adds to a program.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    /// Functions that only these cases call.
    pub functions: &'static str,
    /// The lines of the switch over ops.
    pub cases: String,
}

/// The lines that they replace.
const FUNCTIONS_LINE: &str = "//@FUNCTIONS@";
const CASES_LINE: &str = "//@CASES@";

impl Family {
    /// The whole source, including the op switch.
    pub fn source(self, switch: &Switch) -> String {
        let source = self.parts().concat();
        source.replace(FUNCTIONS_LINE, switch.functions).replace(CASES_LINE, &switch.cases)
    }
}
