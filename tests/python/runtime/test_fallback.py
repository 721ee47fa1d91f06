"""Operators without a kernel run on the CPU, are counted, warn once, and can be made errors."""

import warnings

import pytest
import torch
from processes import output_of, run_python
from threads import in_threads


@pytest.fixture(autouse=True)
def counted():
    torch.opencl.reset_fallbacks()


def total() -> int:
    return sum(torch.opencl.fallbacks().values())


def test_a_fallback_is_right_and_counted(device):
    matrix = torch.eye(3, device=device) * 2
    # An operator that PyTorch has for tests of fallbacks: it returns a copy.
    assert torch._test_functorch_fallback(matrix, matrix).sum().item() == 6
    assert total() >= 1
    before = total()
    torch._test_functorch_fallback(matrix, matrix)
    assert total() > before
    assert all(name.startswith("aten::") for name in torch.opencl.fallbacks())
    torch.opencl.reset_fallbacks()
    assert torch.opencl.fallbacks() == {}


def test_results_are_on_the_device(device):
    values, vectors = torch.linalg.eigh(torch.eye(3, device=device))
    assert values.device == vectors.device == device
    assert torch.geqrf(torch.eye(2, device=device))[0].device == device


def test_strided_arguments(device):
    matrix = torch.randn(4, 6)
    there = matrix.to(device)[::2].t()[1:4]
    torch.testing.assert_close(torch.linalg.svdvals(there).cpu(), torch.linalg.svdvals(matrix[::2].t()[1:4]))


def test_out_arguments_grow(device):
    out = torch.empty(0, device=device)
    matrix = torch.eye(3, device=device) * 4
    address = out.data_ptr()
    assert torch.linalg.cholesky(matrix, out=out) is out
    assert out.shape == (3, 3) and out.data_ptr() != address
    assert out.diagonal().tolist() == [2, 2, 2]
    again = torch.zeros(3, 3, device=device)
    address = again.data_ptr()
    torch.linalg.cholesky(matrix, out=again)
    assert again.data_ptr() == address and again.diagonal().tolist() == [2, 2, 2]


def test_in_place_ops_change_the_tensor_and_return_it(device):
    tensor = torch.tensor([0.5, 1.0], device=device)
    view = tensor[:]
    assert tensor.digamma_() is tensor or total() == 0
    torch.testing.assert_close(view.cpu(), torch.tensor([0.5, 1.0]).digamma())


def test_lists_of_tensors(device):
    tensors = [torch.full((2, 2), float(i), device=device) for i in range(80)]
    assert torch.linalg.multi_dot(tensors[1:4]).device == device
    joined = torch.block_diag(*tensors)
    assert joined.shape == (160, 160) and joined[-1, -1].item() == 79
    torch._foreach_lgamma_([tensor.add_(1) for tensor in tensors])
    assert tensors[2].cpu().allclose(torch.tensor(3.0).lgamma())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_input_of_functions_that_the_cpu_has_only_in_32_bits(device, dtype):
    x = torch.linspace(-3, 3, 12).to(dtype)
    factor = torch.tensor([[2.0, 0.0], [0.7, 1.0]]).to(dtype)
    expected = torch.cholesky_inverse(factor.float()).to(dtype)
    assert torch.equal(torch.cholesky_inverse(factor.to(device)).cpu(), expected)
    for out in (torch.empty(0, dtype=dtype, device=device), torch.empty(2, 2, dtype=dtype, device=device)):
        assert torch.cholesky_inverse(factor.to(device), out=out) is out
        assert torch.equal(out.cpu(), expected)
    assert total() == 0  # the host computes it by declaration

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.view(3, 4).requires_grad_()
        torch.nn.functional.multi_margin_loss(x, torch.tensor([1, 0, 3], device=x.device)).backward()
        return x.grad

    there = gradient(x.to(device))
    assert there.dtype == dtype
    torch.testing.assert_close(there.cpu().float(), gradient(x.float()).to(dtype).float())


@pytest.mark.parametrize("op", [torch.gcd, torch.bitwise_and], ids=lambda op: op.__name__)
def test_errors_for_unsupported_dtypes_name_the_given_dtype(device, op):
    half = torch.ones(3, dtype=torch.float16)
    with pytest.raises(NotImplementedError) as expected:
        op(half, half)
    with pytest.raises(NotImplementedError) as actual:
        op(half.to(device), half.to(device))
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_dtypes_are_not_mixed_by_it(device):
    half, single = torch.ones(2, 3, device=device).half(), torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match=r"(?i)half|dtype|expected"):
        torch.nn.functional.multi_margin_loss(half, torch.tensor([1, 0], device=device), weight=single[0])


def test_factory_functions(device):
    assert torch.hann_window(5, device=device).device == device
    assert torch.hann_window(5, device=device).cpu().allclose(torch.hann_window(5))
    assert torch.vander(torch.arange(3, device=device)).device == device


def test_gradients_flow_through_fallbacks(device):
    matrix = (torch.eye(3) + 0.1).to(device).requires_grad_()
    torch.linalg.slogdet(matrix).logabsdet.backward()
    torch.testing.assert_close(matrix.grad.cpu(), torch.linalg.inv(matrix.detach().cpu()).t())


def test_an_op_that_raises_leaves_its_arguments_usable(device):
    matrix = torch.ones(2, 2, device=device)
    with pytest.raises(RuntimeError, match="positive-definite"):
        torch.linalg.cholesky(matrix)
    assert (matrix + 1).tolist() == [[2, 2], [2, 2]]


def test_threads_fall_back_at_once(device):
    shared = torch.full((50, 50), 2.0, device=device)
    factor = shared.half()

    def work(_: int) -> None:
        for _ in range(50):
            assert torch.cholesky_inverse(factor).device == device
            assert shared.sum().item() == 5000

    in_threads(4, work)


def test_the_default_is_one_warning_an_op():
    code = """
        import warnings, torch
        x = torch.eye(3, device="opencl")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                torch._test_functorch_fallback(x, x)
        messages = [str(warning.message) for warning in caught]
        assert len(set(messages)) == len(messages) >= 1, messages
        assert all("runs on the CPU" in message for message in messages)
        assert max(torch.opencl.fallbacks().values()) == 3
        print("ok")
    """
    assert output_of(code, TORCH_OPENCL_FALLBACK=None) == "ok"


def test_silent_counts_without_warnings():
    code = """
        import warnings, torch
        warnings.simplefilter("error")
        torch._test_functorch_fallback(torch.eye(3, device="opencl"), torch.eye(3, device="opencl"))
        print(len(torch.opencl.fallbacks()))
    """
    assert int(output_of(code, TORCH_OPENCL_FALLBACK="silent")) >= 1


def test_error_refuses():
    code = """
        import torch
        x = torch.eye(3, device="opencl")
        try:
            torch._test_functorch_fallback(x, x)
        except NotImplementedError as error:
            print(error)
        assert (x + 1).sum().item() == 12
    """
    message = output_of(code, TORCH_OPENCL_FALLBACK="error")
    assert "aten::" in message and "TORCH_OPENCL_FALLBACK=error" in message


def test_operators_declared_for_the_host_are_not_fallbacks():
    code = """
        import warnings, torch
        warnings.simplefilter("error")
        x = torch.eye(3, device="opencl").mul_(2).requires_grad_()
        torch.linalg.det(x).backward()
        print(torch.linalg.svdvals(x).tolist(), x.grad.diagonal().tolist(), torch.opencl.fallbacks())
    """
    assert output_of(code, TORCH_OPENCL_FALLBACK="error") == "[2.0, 2.0, 2.0] [4.0, 4.0, 4.0] {}"


def test_another_value_is_refused_at_the_start_with_the_values_that_exist():
    done = run_python("import torch; torch.opencl.init()", TORCH_OPENCL_FALLBACK="loud")
    assert done.returncode == 1
    assert "TORCH_OPENCL_FALLBACK=loud: expected warn, silent or error" in done.stderr


def test_warnings_as_errors_do_not_break_the_op(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            torch._test_functorch_fallback(torch.eye(4, device=device), torch.eye(4, device=device))
        except UserWarning as warning:
            assert "runs on the CPU" in str(warning)
    assert torch.ones(2, device=device).sum().item() == 2


def test_the_warning_says_whether_dtypes_or_the_op_lack_a_kernel():
    code = """
        import warnings, torch
        x = torch.eye(3, device="opencl")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch._test_functorch_fallback(x, x)
            torch.nan_to_num(x.to(torch.complex64))
        first, second = (str(warning.message) for warning in caught)
        assert "has no OpenCL kernel and runs" in first, first
        assert "has no OpenCL kernel for these dtypes and runs" in second, second
        print("ok")
    """
    assert output_of(code, TORCH_OPENCL_FALLBACK=None) == "ok"


def test_an_op_that_the_cpu_lacks_too(device):
    x = torch.ones(2, 1, 4, 4, device=device)
    with warnings.catch_warnings(), pytest.raises(NotImplementedError, match="no CPU kernel either"):
        warnings.simplefilter("error")
        torch.ops.aten.cudnn_convolution_relu(x, x, None, [1, 1], [0, 0], [1, 1], 1)
    assert total() == 0


def test_bad_arguments_are_neither_counted_nor_warned_about(device):
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match=r'\.to\("opencl'):
        warnings.simplefilter("error")
        torch.cdist(torch.ones(2, 3), torch.ones(2, 3, device=device))
    assert total() == 0


def test_views_do_not_run_on_the_cpu(device):
    # Writes to a copy would be lost.
    with torch.library._scoped_library("torch_opencl_test", "DEF") as library:
        library.define("middle(Tensor(a) x) -> Tensor(a)")
        library.define("shift(Tensor(a!) x) -> Tensor(a!)")
        library.impl("middle", lambda x: x[1:-1], "CPU")
        library.impl("shift", lambda x: x.add_(1), "CPU")
        x = torch.zeros(4, device=device)
        with pytest.raises(NotImplementedError, match="'torch_opencl_test::middle' returns a view of its argument"):
            torch.ops.torch_opencl_test.middle(x)
        assert total() == 0
        torch.ops.torch_opencl_test.shift(x)
        assert x.tolist() == [1] * 4


def test_a_fallback_that_needs_itself_is_an_error(device):
    with torch.library._scoped_library("torch_opencl_test", "DEF") as library:
        library.define("again(Tensor x) -> Tensor")
        library.impl("again", lambda x: torch.ops.torch_opencl_test.again(x.to(device)), "CPU")
        with pytest.raises(NotImplementedError, match=r"'torch_opencl_test::again' .* calls the operator again"):
            torch.ops.torch_opencl_test.again(torch.ones(1, device=device))
    assert torch.linalg.det(torch.eye(3, device=device)).item() == 1


def test_results_that_the_cpu_conjugates_or_transposes_lazily(device):
    torch.manual_seed(0)
    matrix, right = torch.randn(4, 4, dtype=torch.complex64), torch.randn(3, 4, dtype=torch.complex64)
    factors, pivots = torch.linalg.lu_factor(matrix)
    there = (factors.to(device), pivots.to(device), right.to(device))
    for adjoint in (False, True):
        expected = torch.linalg.lu_solve(factors, pivots, right, left=False, adjoint=adjoint)
        actual = torch.linalg.lu_solve(*there, left=False, adjoint=adjoint)
        assert actual.is_conj() == expected.is_conj() and actual.stride() == expected.stride()
        torch.testing.assert_close(actual.cpu(), expected)
        # Outputs of the right shape, of a wrong one, strided, and transposed.
        outs = (torch.empty_like(right), right.new_empty(0), right.new_empty(3, 8)[:, ::2], right.new_empty(4, 3).t())
        for out in outs:
            moved = torch.empty(out.untyped_storage().nbytes() // 8, dtype=out.dtype, device=device)
            moved = moved.as_strided(out.shape, out.stride())
            torch.linalg.lu_solve(*there, left=False, adjoint=adjoint, out=moved)
            torch.linalg.lu_solve(factors, pivots, right, left=False, adjoint=adjoint, out=out)
            torch.testing.assert_close(moved.cpu(), expected)
            assert moved.is_conj() == out.is_conj() and moved.stride() == out.stride()


@pytest.mark.parametrize("lazy", ["plain", "conjugated", "negated"])
@pytest.mark.parametrize("layout", ["dense", "transposed", "strided"])
def test_arguments_and_outputs_of_any_layout(device, layout, lazy):
    torch.manual_seed(0)

    def arranged(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "transposed":
            tensor = tensor.t().contiguous().t()
        elif layout == "strided":
            tensor = torch.stack([tensor, tensor * 0], -1)[..., 0]
        return {"plain": tensor, "conjugated": tensor.conj(), "negated": torch._neg_view(tensor)}[lazy]

    plain = torch.randn(3, 3, dtype=torch.complex64) + 2 * torch.eye(3)
    there, here = arranged(plain.to(device)), arranged(plain)
    calls = (
        torch.linalg.inv,
        torch.linalg.matrix_exp,
        torch.linalg.eigvals,
        lambda x, **out: torch.linalg.solve(x, plain.to(x.device), **out),
        lambda x, **out: torch.linalg.solve(x, plain.to(x.device), left=False, **out),
        lambda x, **out: torch.linalg.solve_triangular(x, plain.to(x.device), upper=True, left=False, **out),
        lambda x, **out: torch.cholesky_solve(x, plain.to(x.device), **out),
    )
    for call in calls:
        expected = call(here)
        torch.testing.assert_close(call(there).cpu(), expected)
        if call is not torch.linalg.matrix_exp and call is not torch.linalg.eigvals:
            out, given = arranged(torch.zeros_like(plain, device=device)), arranged(torch.zeros_like(plain))
            call(there, out=out)
            # Compared with the result rather than the CPU's out=: its solve_triangular ignores the negative bit there.
            torch.testing.assert_close(out.cpu(), expected)
            call(here, out=given)
            assert out.is_conj() == given.is_conj() and out.is_neg() == given.is_neg()
