"""Tests of PyTorch that are not run, each with its reason."""

from fnmatch import fnmatch

REFUSED_BFLOAT16 = "asks that bfloat16 is refused by all devices but the CPU and newer GPUs"
ON_CPU = "`map_` and `map2_` are of the CPU alone"
QUANTIZED = "uses quantized tensors too, which the backend does not have"
TAKEN_FOR_CPU = "asks of each device but CUDA for classes of the CPU"
TRITON = "reads Triton's text, or counts the kernels that Inductor makes for it"
NAMED_CHECK = "looks for the check of an index by the name that Triton and C++ give it"
FLOAT16_GRADIENTS = (
    "compares gradients in float16, which the test leaves out for the CPU; those of the CPU differ from its eager mode "
    "as these do"
)
# By a pattern of "file Class::test", without the device: why.
EXCLUSIONS: dict[str, str] = {
    "inductor/*.py *::test_dropout[23]*": TRITON,
    "inductor/*.py *::test_expanded_reduction*": (
        "a sum's tolerance is less than float32 allows where terms are added in sequence, as Inductor's C++ adds them"
    ),
    "inductor/*.py *::test_functionalize_rng_wrappers*": (
        "functionalises random numbers, for which PyTorch knows the states of the CPU's and CUDA's generators alone"
    ),
    "inductor/*.py *::test_inner_fn_str_and_stride*": "calls a function that PyTorch no longer has",
    "inductor/*.py *::test_index_propagation_abs_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_index_propagation_floordiv_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_index_propagation_remainder_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_comprehensive_native_batch_norm_float16": (
        "in evaluation mode, eager mode has no statistics of the batch, as on the CPU; PyTorch's decomposition gives "
        "those of other devices"
    ),
    "inductor/*.py *::test_comprehensive_native_group_norm_float16": (
        "eager mode keeps the statistics in float32, for the gradients; PyTorch's decomposition gives them in float16"
    ),
    "inductor/*.py *::test_comprehensive_nn_functional_group_norm_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_remainder_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_var_unbiased_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_div_trunc_rounding_float16": (
        "a quotient that float16 rounds to a whole number is truncated unrounded by a compiled graph, as on the CPU"
    ),
    "inductor/*.py *::test_max_pool2d_with_indices_backward2*": (
        "compares a gradient in float16 with one in float32, which the test leaves out for the CPU; on CPU devices it "
        "is eager mode's, which rounds each sum to float16 as the CPU does"
    ),
    "inductor/*.py *::test_max_pool2d_with_indices_backward4*": (
        "counts the kernels of a gradient in float16, which the test leaves out for the CPU"
    ),
    "inductor/*.py *::test_linear_float64*": "multiplies float64 by float16, in its part for devices but the CPU",
    "inductor/*.py *::test_neg_index*": TRITON,
    "inductor/*.py *::test_nll_loss_backward*": (
        "a total weight in float32 for float16: other devices refuse it, and PyTorch's decomposition gives float32"
    ),
    "inductor/*.py *::test_randint_kernel_count*": TRITON,
    "inductor/*.py *::test_sort_dynamic_shape_with_check": f"{TRITON}; eager mode sorts here",
    "inductor/*.py *::test_comprehensive_nn_functional_glu_float16": (
        "the compiled gradient is nearer to the one in float64 than that of eager mode, here and on the CPU"
    ),
    "nn/test_convolution.py *::test_conv_backend_*": (
        "asks which of ATen's own convolutions is chosen; for a backend outside of PyTorch that is `Overrideable`"
    ),
    "nn/test_embedding.py *::test_embedding_bag_out_of_bounds_idx_*": (
        "a bag's bad index is raised when the host next waits; PyTorch leaves this test out for CUDA"
    ),
    "nn/test_embedding.py *::test_EmbeddingBag_per_sample_weights_and_offsets_*_float16": (
        "allows less than a unit in the last place, and its reference rounds each sum to float16"
    ),
    "test_autograd.py TestAutogradMultipleDispatch::test_autograd_*dispatch*_registration*": (
        "calls operators that PyTorch registers for tests on its own devices, and on nested tensors"
    ),
    "test_binary_ufuncs.py *::test_reference_numerics_large_values_*pow_complex64": (
        "asks for the signs of infinities, which hang on angles of more than 10^7 radians: in float32 they are noise"
    ),
    "test_linalg.py *::test_addbmm_bfloat16": REFUSED_BFLOAT16,
    "test_linalg.py *::test_addr_float_and_complex_float16": "its reference rounds each product to float16",
    "test_linalg.py *::test_linalg_lstsq_input_checks_*": "asks all devices but the CPU for the words of CUDA's error",
    "test_linalg.py *::test_linalg_solve_triangular_broadcasting_float32": (
        "draws matrices that may be nearly singular: with some of the device's numbers the CPU's residual is as large"
    ),
    "test_linalg.py *::test_baddbmm_bfloat16": REFUSED_BFLOAT16,
    "test_modules.py *::test_memory_format_nn_GroupNorm_*": (
        "asks for results in channels-last memory; PyTorch leaves this test out for CUDA, MPS and XPU"
    ),
    "test_nn.py *::test_TransformerEncoderLayer_empty": "nested tensors, which the backend does not have",
    "test_nn.py *::test_upsamplingBiMode2d_nonsupported_dtypes_*_uint8_uint8": (
        "asks that uint8 is refused, as CUDA does; here it is interpolated, as on the CPU"
    ),
    "test_reductions.py *::test_bucketization": "asks for a warning of a copy that is not made here",
    "test_scatter_gather_ops.py *::test_scatter__reductions_complex64": (
        "asks for products equal in every bit to those of `mul`, which may use FMA"
    ),
    "test_scatter_gather_ops.py *::test_scatter_reduce_prod_complex128": (
        "asks for products equal in every bit to those of `mul`, which may use FMA"
    ),
    "test_shape_ops.py *::test_flip_float32": QUANTIZED,
    "test_sort_and_select.py *::test_stable_sort_against_numpy_*": (
        "fills tensors of the device by indices on the CPU; the test leaves that out for CUDA"
    ),
    "test_sort_and_select.py *::test_unique_dim": "asks for the order in which the CPU's sort leaves several NaN",
    "test_spectral_ops.py TestFFTDocExamples::*": "begins by asserting that the device is the CPU",
    "test_spectral_ops.py *::test_fft_half_and_bfloat16_errors_*_float16": (
        "asks that float16 is refused, as the CPU does; here it is transformed, as on CUDA"
    ),
    "test_torch.py *::test_broadcast_fn_map": ON_CPU,
    "test_torch.py *::test_broadcast_fn_map2": ON_CPU,
    "test_torch.py *::test_grad_scaler_deprecated_warning": TAKEN_FOR_CPU,
    "test_torch.py *::test_grad_scaling_state_dict": TAKEN_FOR_CPU,
    "test_torch.py *::test_shift_mem_overlap": (
        "shifts floats, which is refused on all devices; asks for one of the two errors that this call has"
    ),
    "test_torch.py *::test_tensor_storage_type_*": TAKEN_FOR_CPU,
    "test_transformers.py TestSDPACpuOnly::test_fused_sdp_choice_cpu_*": (
        "asks which attention of the CPU is chosen; for a backend outside of PyTorch that is `OVERRIDEABLE`"
    ),
    "test_transformers.py TestSDPACpuOnly::test_sdpa_backward_with_gradient": (
        "fills gradients in the order of memory, and expects a fused result to lie there as that of a matmul does"
    ),
    "test_view_ops.py *::test_flatten": QUANTIZED,
    "test_view_ops.py *::test_ravel": QUANTIZED,
    "test_tensor_creation_ops.py TestBufferProtocol::*": "takes NumPy's views of tensors, which the CPU alone has",
    "test_tensor_creation_ops.py *::test_float_to_int_conversion_finite_int32": (
        "numbers out of the range of integers, whose conversion C and OpenCL leave undefined"
    ),
}


def reason(test: str) -> str | None:
    """Say why a test is not run.

    Args:
        test: file, class and name.

    Returns:
        The reason; None where it is run.
    """
    return next((why for pattern, why in EXCLUSIONS.items() if fnmatch(test, pattern)), None)
