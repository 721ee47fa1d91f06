"""torch.compile: topics of PyTorch's own tests of Inductor beyond plain functions: bounds, dtypes, mutation, sizes."""

import pytest
import torch


def close(actual, expected, **limits):
    torch.testing.assert_close(actual, expected, equal_nan=True, **(limits or {"rtol": 1e-5, "atol": 1e-5}))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def same(function, *args, **limits):
    close(torch.compile(function)(*args), function(*args), **limits)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[torch.arange(10, device=x.device)] + 1,
        lambda x: torch.nn.functional.pad(x[torch.arange(3, device=x.device) + 3], (0, 0, 1, 1)),
        lambda x: x.index_put((torch.arange(10, device=x.device) - 2,), x.new_ones(10, x.shape[1])),
    ],
    ids=["gather", "masked", "scatter"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_positions_out_of_range_raise_as_in_eager_mode(device, function, dynamic):
    compiled = torch.compile(function, dynamic=dynamic)
    with pytest.raises(IndexError, match="out of bounds for dimension with size 5"):
        compiled(torch.randn(5, 40, device=device)).cpu()
    x = torch.randn(20, 40, device=device)
    close(compiled(x), function(x))


def test_positions_that_a_mask_leaves_out_are_not_checked(device):
    grad, x = torch.randn(1, 2, 10, 10, device=device), torch.randn(1, 2, 8, 8, device=device)
    with torch._inductor.config.patch(debug_index_asserts=True):
        same(lambda grad, x: torch.ops.aten.reflection_pad2d_backward(grad, x, [1, 1, 1, 1]), grad, x)


def test_an_index_for_a_whole_row_is_checked(device):
    rows, table = torch.randn(30, 64, device=device), torch.randn(9, device=device)
    index = torch.arange(30, device=device) % 9
    function = lambda rows, table, index: rows + table[index][:, None]  # noqa: E731 compiled and not
    same(function, rows, table, index)
    with pytest.raises(IndexError, match="index 29 is out of bounds for dimension with size 9"):
        torch.compile(function)(rows, table, torch.full_like(index, 29)).cpu()


def test_a_negative_index_out_of_range_is_named_as_it_was_given(device):
    x, index = torch.randn(5, 40, device=device), torch.tensor([0, -7, 4, -5], device=device)
    with pytest.raises(IndexError, match="index -7 is out of bounds for dimension with size 5"):
        torch.compile(lambda x, index: x[index] + 1)(x, index).cpu()
    flat = torch.arange(40, device=device) - 41
    with pytest.raises(IndexError, match="index -41 is out of bounds for dimension with size 40"):
        torch.compile(lambda x, index: x[0][index] + 1)(x, flat).cpu()


@pytest.mark.parametrize("divisor", [3, 7.7, 2.0**-130, 1e-45, float("inf"), 0.0], ids=str)
def test_a_quotient_by_a_constant_is_that_of_eager_mode(device, divisor):
    x = torch.arange(-50.0, 50, device=device)
    same(lambda x: (x / divisor, x / torch.full_like(x, divisor), x.int() / divisor), x, rtol=0, atol=0)


def test_sums_in_narrow_dtypes_wrap(device):
    x = torch.full((3, 50), 77, dtype=torch.uint8, device=device)
    same(lambda x: x.sum(1, dtype=torch.uint8).int() + 1, x)
    same(lambda x: x.sum(0, dtype=torch.int8).int() + 1, x)
    same(lambda x: x.prod(1, dtype=torch.int16).float(), x)


def test_dtypes_without_kernels_run_in_eager_mode(device):
    x = torch.randn(20, device=device)
    same(lambda x: (x + 1).to(torch.float8_e4m3fn).float() * 2, x)


def test_indices_of_extremes_are_those_of_the_tensor_not_of_its_memory(device):
    x, y = torch.randn(7, 40, device=device), torch.randn(40, 7, device=device)
    same(lambda x, y: (x.t().argmax(), (x + y.t()).argmin(), x.t().contiguous().argmax(), y.argmax()), x, y)
    images = torch.randn(2, 3, 5, 20, device=device).to(memory_format=torch.channels_last)
    same(lambda x: (x.argmax(), (x * 2).argmin(), x.transpose(0, 3).argmax(), x.argmax(1)), images)


@pytest.mark.parametrize("selected", [0, 5, 40], ids=["none", "some", "all"])
def test_sizes_that_depend_on_data_may_be_zero(device, selected):
    x = torch.arange(40.0, device=device)

    def function(x):
        chosen = x[x < selected] * 2
        rows = x[:, None].expand(-1, 3)[x < selected]
        return chosen + 1, rows.tanh() + 1, torch.cat([chosen, x.exp()]), rows.softmax(0), rows.sum(1)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        close(torch.compile(function, fullgraph=True)(x), function(x))


def test_python_round_with_digits(device):
    x = torch.zeros(3, device=device)

    def function(x, i):
        number = i / 2 * 123.4567
        return x + round(number, -1), x + round(number, 0), x + round(number, 1)

    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for i in (2, 3, 7):
        close(compiled(x, i), function(x, i))


def test_rows_of_one_element(device):
    function = torch.compile(lambda x: torch.nn.functional.pad(x, (0, 0, 0, 1)).transpose(1, 2) * 2, dynamic=True)
    view = torch.compile(lambda x: torch.nn.functional.pad(x, (0, 0, 0, 1)).view(x.shape[0], x.shape[2], -1))
    for shape in ((3, 5, 7), (2, 9, 20)):
        x = torch.randn(shape, device=device)
        padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
        close(function(x), padded.transpose(1, 2) * 2)
        close(view(x), padded.view(x.shape[0], x.shape[2], -1))


def test_attention_of_sizes_that_change(device):
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))

    compiled = torch.compile(attend, dynamic=True, fullgraph=True)
    for length in (9, 13):
        results = []
        tensors = torch.randn(3, 2, length, 4, 16, device=device).unbind()
        for function in (compiled, attend):
            inputs = [tensor.clone().requires_grad_() for tensor in tensors]
            out = function(*inputs)
            results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
        close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(128, 128), (33, 33)])
def test_tensors_are_replaced_by_their_own_elements_in_another_order(device, shape):
    for function in (lambda x: x.copy_(x.t().contiguous()), lambda x: x.add_(x.flip(0)), lambda x: x.mul_(x.sum(0))):
        x = torch.randn(shape, device=device)
        expected = function(x.clone())
        torch.compile(function)(x)
        close(x, expected, rtol=1e-4, atol=1e-4)


def test_operators_of_several_devices_are_refused(device):
    on_host, there = torch.tensor(3.0), torch.tensor(2.0, device=device)
    with pytest.raises(Exception, match="Expected all tensors to be on the same device"):
        torch.compile(lambda a, b: torch._foreach_mul_([a], [b]))(on_host, there)


def test_relu_keeps_the_sign_of_zero_and_nan(device):
    x = torch.tensor([0.0, -0.0, -1, 1, float("nan")] * 20, device=device)
    same(lambda x: (1 / x.relu(), 1 / x[:5].relu()), x)


@pytest.mark.needs_float64
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers_in_vectors_are_those_of_single_lanes(device, dtype):
    base, exponent = torch.randint(-9, 10, (2, 1000)).to(dtype)
    base[::7], exponent[::11], base[5] = 0, torch.inf, torch.nan
    power = torch.compile(torch.pow)(base.to(device), exponent.to(device))
    torch.testing.assert_close(power.cpu(), torch.pow(base, exponent), equal_nan=True)
