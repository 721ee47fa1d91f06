"""Tests of PyTorch that are not run, each with its reason."""

from fnmatch import fnmatch

REFUSED_BFLOAT16 = "requires that all devices except the CPU and newer GPUs refuse bfloat16"
ON_CPU = "`map_` and `map2_` exist only for the CPU"
QUANTIZED = "uses quantized tensors too, which the backend does not have"
TAKEN_FOR_CPU = "requires classes of the CPU from each device except CUDA"
TRITON = "reads Triton's source, or counts the kernels that Inductor makes for it"
NAMED_CHECK = "looks for the index check by its name in Triton and C++"
FLOAT16_GRADIENTS = (
    "compares gradients in float16, which the test skips for the CPU; the CPU's differ from its eager mode as these do"
)
# Reasons by a pattern of "file Class::test", without the device.
EXCLUSIONS: dict[str, str] = {
    "inductor/*.py *::test_dropout[23]*": TRITON,
    "inductor/*.py *::test_expanded_reduction*": (
        "a sum's tolerance is too small for float32 terms added in sequence, as Inductor's C++ adds them"
    ),
    "inductor/*.py *::test_functionalize_rng_wrappers*": (
        "functionalises random numbers, for which PyTorch supports only the states of the CPU's and CUDA's generators"
    ),
    "inductor/*.py *::test_inner_fn_str_and_stride*": "calls a function that PyTorch no longer has",
    "inductor/*.py *::test_index_propagation_abs_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_index_propagation_floordiv_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_index_propagation_remainder_dynamic_shapes": NAMED_CHECK,
    "inductor/*.py *::test_comprehensive_native_batch_norm_float16": (
        "in evaluation mode, eager mode has no statistics of the batch, as on the CPU; PyTorch's decomposition gives "
        "the statistics of other devices"
    ),
    "inductor/*.py *::test_comprehensive_native_group_norm_float16": (
        "eager mode keeps the statistics in float32, for the gradients; PyTorch's decomposition gives them in float16"
    ),
    "inductor/*.py *::test_comprehensive_nn_functional_group_norm_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_remainder_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_var_unbiased_float16": FLOAT16_GRADIENTS,
    "inductor/*.py *::test_comprehensive_div_trunc_rounding_float16": (
        "a compiled graph truncates a quotient before float16 would round it to an integer, as on the CPU"
    ),
    "inductor/*.py *::test_max_pool2d_with_indices_backward2*": (
        "compares a gradient in float16 with one in float32, which the test skips for the CPU; on CPU devices it "
        "is eager mode's, which rounds each sum to float16 as the CPU does"
    ),
    "inductor/*.py *::test_max_pool2d_with_indices_backward4*": (
        "counts the kernels of a gradient in float16, which the test skips for the CPU"
    ),
    "inductor/*.py *::test_linear_float64*": "multiplies float64 by float16, in its part for non-CPU devices",
    "inductor/*.py *::test_neg_index*": TRITON,
    "inductor/*.py *::test_nll_loss_backward*": (
        "a total weight in float32 for float16: which other devices refuse, and PyTorch's decomposition gives float32"
    ),
    "inductor/*.py *::test_randint_kernel_count*": TRITON,
    "inductor/*.py *::test_sort_dynamic_shape_with_check": f"{TRITON}; eager mode sorts here",
    "inductor/*.py *::test_comprehensive_nn_functional_glu_float16": (
        "the compiled gradient is closer to the float64 one than the gradient of eager mode, here and on the CPU"
    ),
    "nn/test_convolution.py *::test_conv_backend_*": (
        "checks which of ATen's convolutions is chosen; for out-of-tree backends that is `Overrideable`"
    ),
    "nn/test_embedding.py *::test_embedding_bag_out_of_bounds_idx_*": (
        "a bag's bad index is raised when the host next waits; PyTorch skips this test for CUDA"
    ),
    "nn/test_embedding.py *::test_EmbeddingBag_per_sample_weights_and_offsets_*_float16": (
        "allows less than one ulp, and its reference rounds each sum to float16"
    ),
    "test_autograd.py TestAutogradMultipleDispatch::test_autograd_*dispatch*_registration*": (
        "calls operators that PyTorch registers for tests on its own devices, and on nested tensors"
    ),
    "test_binary_ufuncs.py *::test_reference_numerics_large_values_*pow_complex64": (
        "checks the signs of infinities, which depend on angles of more than 10^7 radians: noise in float32"
    ),
    "test_linalg.py *::test_addbmm_bfloat16": REFUSED_BFLOAT16,
    "test_linalg.py *::test_addr_float_and_complex_float16": "its reference rounds each product to float16",
    "test_linalg.py *::test_linalg_lstsq_input_checks_*": "requires CUDA's error message of all devices but the CPU",
    "test_linalg.py *::test_linalg_solve_triangular_broadcasting_float32": (
        "draws matrices that may be nearly singular: with some of the device's values the CPU's residual is as large"
    ),
    "test_linalg.py *::test_baddbmm_bfloat16": REFUSED_BFLOAT16,
    "test_modules.py *::test_memory_format_nn_GroupNorm_*": (
        "requires channels-last results; PyTorch skips this test for CUDA, MPS and XPU"
    ),
    "test_nn.py *::test_TransformerEncoderLayer_empty": "nested tensors, which the backend does not have",
    "test_nn.py *::test_upsamplingBiMode2d_nonsupported_dtypes_*_uint8_uint8": (
        "requires that uint8 is refused, as by CUDA; here it is interpolated, as on the CPU"
    ),
    "test_reductions.py *::test_bucketization": "requires a warning about a copy that is not made here",
    "test_scatter_gather_ops.py *::test_scatter__reductions_complex64": (
        "requires products that are bitwise equal to products of `mul`, which may use FMA"
    ),
    "test_scatter_gather_ops.py *::test_scatter_reduce_prod_complex128": (
        "requires products that are bitwise equal to products of `mul`, which may use FMA"
    ),
    "test_shape_ops.py *::test_flip_float32": QUANTIZED,
    "test_sort_and_select.py *::test_stable_sort_against_numpy_*": (
        "fills device tensors with CPU indices; the test skips that for CUDA"
    ),
    "test_sort_and_select.py *::test_unique_dim": "requires the order of several NaN in the CPU's sort",
    "test_spectral_ops.py TestFFTDocExamples::*": "begins by asserting that the device is the CPU",
    "test_spectral_ops.py *::test_fft_half_and_bfloat16_errors_*_float16": (
        "requires that float16 is refused, as by the CPU; here it is transformed, as on CUDA"
    ),
    "test_torch.py *::test_broadcast_fn_map": ON_CPU,
    "test_torch.py *::test_broadcast_fn_map2": ON_CPU,
    "test_torch.py *::test_grad_scaler_deprecated_warning": TAKEN_FOR_CPU,
    "test_torch.py *::test_grad_scaling_state_dict": TAKEN_FOR_CPU,
    "test_torch.py *::test_shift_mem_overlap": (
        "shifts floats, which all devices refuse; requires one of the two possible errors"
    ),
    "test_torch.py *::test_tensor_storage_type_*": TAKEN_FOR_CPU,
    "test_transformers.py TestSDPACpuOnly::test_fused_sdp_choice_cpu_*": (
        "checks which attention of the CPU is chosen; for out-of-tree backends that is `OVERRIDEABLE`"
    ),
    "test_transformers.py TestSDPACpuOnly::test_sdpa_backward_with_gradient": (
        "fills gradients in memory order, and expects a fused result to have the layout of a matmul's"
    ),
    "test_view_ops.py *::test_flatten": QUANTIZED,
    "test_view_ops.py *::test_ravel": QUANTIZED,
    "test_tensor_creation_ops.py TestBufferProtocol::*": "uses NumPy views of tensors, which only the CPU supports",
    "test_tensor_creation_ops.py *::test_float_to_int_conversion_finite_int32": (
        "converts values outside the range of integers, which is undefined in C and OpenCL"
    ),
}


def reason(test: str) -> str | None:
    """Return why a test is not run.

    Args:
        test: file, class and name.

    Returns:
        The reason, or None if it is run.
    """
    return next((why for pattern, why in EXCLUSIONS.items() if fnmatch(test, pattern)), None)
