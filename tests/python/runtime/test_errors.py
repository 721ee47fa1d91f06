"""Invalid input: the exceptions of PyTorch's own backends, with the wrong value; later work is not affected."""

import pytest
import torch
from processes import output_of, run_python, two_devices


@pytest.fixture(autouse=True)
def alive(device):
    """Check that the device still computes after every error."""
    kept = torch.arange(4.0, device=device)
    yield
    assert (kept + 1).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3) + x,
        lambda x: x.add_(torch.ones(3)),
        lambda x: torch.add(x, x, out=torch.empty(3)),
        lambda x: torch.ones(3).copy_(x) + x,
        lambda x: torch.where(x > 0, x, torch.ones(3)),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: x.view(1, 3) @ torch.ones(3, 1),
        lambda x: torch.nn.functional.linear(x, torch.ones(2, 3)),
        lambda x: x.lerp(torch.ones(3), 0.5),
        lambda x: torch.special.bessel_j1(x, out=torch.empty(3)),
        lambda x: torch.nonzero(x, out=torch.empty((), dtype=torch.int64)),
        lambda x: torch.masked_select(x, x > 0, out=torch.empty(())),
        lambda x: torch.scatter_reduce(torch.ones(()), 0, x[0].long() - 1, x[0], "amax"),
        lambda x: torch.scatter(torch.ones(()), 0, x[0].long() - 1, x[0]),
        lambda x: torch.gather(torch.ones(()), 0, x[0].long() - 1),
        lambda x: torch.index_select(torch.ones(()), 0, x[0].long() - 1),
        lambda x: torch.special.gammainc(torch.ones(3), x),
    ],
)
def test_tensors_of_two_devices(device, use):
    with pytest.raises(RuntimeError, match=r"(?s)device.*(opencl.*cpu|cpu.*opencl)"):
        use(torch.ones(3, device=device))


@pytest.mark.parametrize("probability", [1.25, -0.25, torch.nan])
def test_probabilities_of_bernoulli_are_checked(device, probability):
    probabilities = torch.full((40,), 0.5, device=device)
    probabilities[33] = probability
    with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
        torch.bernoulli(probabilities).sum().item()


def test_scalar_lists_need_one_value_per_tensor(device):
    tensors = [torch.ones(2, device=device), torch.ones(3, device=device)]
    for numbers in ([], [2.0], [2.0, 3.0, 4.0]):
        for name in ("_foreach_add", "_foreach_mul", "_foreach_sub_", "_foreach_div_"):
            with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
                getattr(torch, name)(tensors, numbers)
    assert all((tensor == 1).all() for tensor in tensors)


def test_a_0d_host_tensor_is_accepted(device):
    x = torch.ones(3, device=device)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (torch.tensor(2.0) * x).device == device


@pytest.mark.parametrize(
    ("use", "error", "says"),
    [
        (lambda x: x + torch.ones(4, device=x.device), RuntimeError, "must match the size"),
        (lambda x: x.view(1, 3) @ torch.ones(4, 2, device=x.device), RuntimeError, "1x3 and 4x2"),
        (lambda x: x.view(2), RuntimeError, "invalid for input of size"),
        (lambda x: x.sum(5), IndexError, "Dimension out of range"),
        (lambda x: x[7], IndexError, "out of bounds"),
        (lambda x: x & x, (RuntimeError, NotImplementedError), "(?i)float"),
        (lambda x: x.long().add_(0.5), RuntimeError, "can't be cast"),
        (lambda x: torch.empty(-1, device=x.device), RuntimeError, "negative"),
        (lambda x: torch.arange(0, 1, 0, device=x.device), RuntimeError, "step"),
        (lambda x: x.max(1), IndexError, "Dimension out of range"),
        (lambda x: x.normal_(0, -1), RuntimeError, "std"),
        (lambda x: x.dot(x.half()), RuntimeError, "both vectors to have same dtype, but found Float and Half"),
        (lambda x: x.masked_fill_(x.byte(), 1), RuntimeError, "only supports boolean masks"),
        (torch.bincount, NotImplementedError, "Float"),
        (lambda x: torch.randint(5, 3, (2,), device=x.device), RuntimeError, "from"),
    ],
)
def test_wrong_arguments(device, use, error, says):
    with pytest.raises(error, match=says):
        use(torch.ones(3, device=device))


@pytest.mark.parametrize("index", [3, -4, 2**40])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, index: x[index],
        lambda x, index: x.index_select(0, index),
        lambda x, index: x.gather(0, index),
        lambda x, index: x.clone().index_put_((index,), torch.zeros(1, device=x.device)),
        lambda x, index: x.clone().scatter_(0, index, 1.0),
        lambda x, index: x.take(index),
        lambda x, index: torch.nn.functional.embedding(index, x.view(3, 1)),
    ],
)
def test_an_index_out_of_range_is_found(device, use, index):
    with pytest.raises((IndexError, RuntimeError), match=r"(?i)out of (bounds|range)") as raised:
        use(torch.ones(3, device=device), torch.tensor([index], device=device))
        torch.opencl.synchronize()
    assert str(index) in str(raised.value)


def image_loss(where, target):
    return torch.nn.functional.nll_loss(torch.zeros(2, 3, 2, 2, device=where), target.view(1, 1, 1).expand(2, 2, 2))


@pytest.mark.parametrize("wrong", [3, -1, 2**40])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_class_out_of_range_is_found(device, wrong, reduction):
    likelihoods = torch.zeros(3, 3, device=device, requires_grad=True)
    target = torch.tensor([0, wrong, 2], device=device)
    # The kernel records the error; the first wait for the device raises it, once.
    loss = torch.nn.functional.cross_entropy(likelihoods, target, reduction=reduction)
    loss.sum().backward()
    with pytest.raises(IndexError, match=rf"Target {wrong} is out of bounds\."):
        loss.cpu()
    assert loss.isnan().any().item()
    assert torch.nn.functional.cross_entropy(likelihoods, target, ignore_index=wrong).isfinite().item()
    image_loss(device, target[1:2])
    with pytest.raises(IndexError, match="out of bounds"):
        torch.opencl.synchronize()


def test_a_fault_stays_with_its_stream(device, side_stream):
    torch.opencl.synchronize()
    with torch.opencl.stream(side_stream):
        torch.nn.functional.nll_loss(torch.zeros(1, 3, device=device), torch.tensor([3], device=device))
    assert torch.ones(2, device=device).tolist() == [1, 1]
    with pytest.raises(IndexError, match="Target 3"):
        side_stream.synchronize()


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_values_that_are_not_probabilities_are_refused(device, dtype, wrong):
    right = torch.full((40,), 0.5, dtype=dtype, device=device)
    bad = right.index_fill(0, torch.tensor([33], device=device), wrong)
    for arguments, name in (((bad, right), "input"), ((right, bad), "target")):
        loss = torch.nn.functional.binary_cross_entropy(*arguments)
        with pytest.raises(RuntimeError, match=f"all elements of {name} should be between 0 and 1"):
            loss.item()
    assert torch.nn.functional.binary_cross_entropy(right, right).item() == pytest.approx(0.6931, abs=1e-2)


def test_an_embedding_out_of_range_is_found(device):
    weight, offsets = torch.ones(4, 2, device=device), torch.tensor([0], device=device)
    for wrong in (4, -1):
        rows = torch.nn.functional.embedding_bag(torch.tensor([1, wrong], device=device), weight, offsets)
        with pytest.raises((IndexError, RuntimeError), match=f"{wrong}"):
            rows.cpu()


def test_the_bias_of_a_convolution_has_the_dtype_of_its_input(device):
    image, weight = torch.ones(1, 1, 4, 4, device=device), torch.ones(2, 1, 3, 3, device=device)
    with pytest.raises(RuntimeError, match=r"(?i)bias.*(same|dtype)"):
        torch.nn.functional.conv2d(image, weight, torch.ones(2, device=device, dtype=torch.float16))


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning")
def test_quantized_tensors_are_refused(device):
    with pytest.raises((RuntimeError, NotImplementedError), match="quantize"):
        torch.quantize_per_tensor(torch.ones(2, device=device), 1.0, 0, torch.qint8)


def test_dtypes_without_kernels_can_be_copied_and_run_on_the_cpu(device):
    x = torch.ones(3, device=device).to(torch.float8_e4m3fn)
    assert x.float().tolist() == [1, 1, 1]
    wide = torch.arange(70000, 70006).to(torch.uint32).to(device).view(2, 3).t()
    assert wide.cpu().tolist() == [[70000, 70003], [70001, 70004], [70002, 70005]]
    assert wide[1, 1].item() == 70004
    assert wide.to(torch.int64).sum().item() == 420015
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)float8"):
        x.sqrt()


def test_a_file_as_cache_folder_is_not_an_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    code = "import torch; assert torch.ones(3, device='opencl').sum().item() == 3"
    done = run_python(code, TORCH_OPENCL_CACHE_DIR=str(file))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: x.add_(1),
        lambda x: x @ x,
        lambda x: x.sum(),
        lambda x: x.softmax(0),
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.ones(3, 3)),
        torch.linalg.svdvals,
    ],
)
def test_a_tensor_whose_storage_was_freed(device, use):
    x = torch.ones(3, 3, device=device)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="its storage was freed"):
        use(x)


aten = torch.ops.aten
ONES, NO_MASK = [1, 1], [True, True, True]


def convolve(x, weight, bias=None, *, stride=ONES, dilation=ONES, transposed=False, output_padding=(0, 0), groups=1):
    """Call the backend's convolution without the checks of the public function."""
    return aten.convolution_overrideable(
        x, weight, bias, stride, [0, 0], dilation, transposed, list(output_padding), groups
    )


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda x, w, f: convolve(x, w, stride=[0, 1]), "stride"),
        (lambda x, w, f: convolve(x, w, dilation=[1, 0]), "dilation"),
        (lambda x, w, f: convolve(x, w, stride=[1]), "expected 2 values"),
        (lambda x, w, f: convolve(x, w, groups=0), "groups"),
        (lambda x, w, f: convolve(x, w, groups=3), "groups"),
        (lambda x, w, f: convolve(x, f(4, 9, 3, 3)), "channels"),
        (lambda x, w, f: convolve(x, f(4, 4, 0, 3)), "kernel size"),
        (lambda x, w, f: convolve(x, f(4, 4, 9, 9)), "does not fit"),
        (lambda x, w, f: convolve(x, f(4, 4, 3)), "number of dimensions"),
        (lambda x, w, f: convolve(x, w, f(2)), "bias"),
        (lambda x, w, f: convolve(x, w, f(4).half()), "bias"),
        (lambda x, w, f: convolve(x, w, transposed=True, output_padding=(1, 0)), "output padding"),
        (lambda x, w, f: convolve(x, w, transposed=True, output_padding=(-1, 0)), "output_padding"),
        (
            lambda x, w, f: aten.convolution_backward_overrideable(
                f(2, 4, 1, 1), x, w, ONES, [0, 0], ONES, False, [0, 0], 1, NO_MASK
            ),
            "grad_output",
        ),
        (lambda x, w, f: aten.native_group_norm(x, None, None, 20, 4, 36, 2, 1e-5), "input"),
        (lambda x, w, f: aten.native_group_norm(x, None, None, 2, 40, 36, 2, 1e-5), "input"),
        (lambda x, w, f: aten.native_group_norm(x, None, None, 2, 4, 360, 2, 1e-5), "input"),
        (lambda x, w, f: aten.native_group_norm(x, f(2), None, 2, 4, 36, 2, 1e-5), "weight"),
        (
            lambda x, w, f: aten.native_group_norm_backward(x, x, f(1, 1), f(2, 2), None, 2, 4, 36, 2, NO_MASK),
            "mean",
        ),
        (lambda x, w, f: aten.native_layer_norm_backward(x, x, [6], f(2, 4, 6), f(1), None, None, NO_MASK), "rstd"),
        (
            lambda x, w, f: aten.native_layer_norm_backward(f(2), x, [6], f(2, 4, 6), f(2, 4, 6), None, None, NO_MASK),
            "grad_out",
        ),
        (lambda x, w, f: aten.native_batch_norm(x, f(2), None, f(4), f(4), True, 0.1, 1e-5), "weight"),
        (lambda x, w, f: aten.native_batch_norm(x, f(4), None, f(1), f(4), True, 0.1, 1e-5), "statistics"),
        (
            lambda x, w, f: aten.native_batch_norm_backward(x, x, None, None, None, f(4), f(1), True, 0, NO_MASK),
            "statistics",
        ),
        (
            lambda x, w, f: aten.native_batch_norm_backward(x, x, None, None, None, None, None, True, 0, NO_MASK),
            "must be given",
        ),
        (lambda x, w, f: aten.native_dropout_backward(f(5), f(2).bool(), 2.0), "mask"),
        (lambda x, w, f: aten.native_dropout_backward(f(5), f(5), 2.0), "mask"),
    ],
)
def test_shapes_that_would_be_read_out_of_bounds(device, use, says):
    with pytest.raises(RuntimeError, match=says):
        use(
            torch.ones(2, 4, 6, 6, device=device),
            torch.ones(4, 4, 3, 3, device=device),
            lambda *sizes: torch.ones(sizes, device=device),
        )


@pytest.mark.parametrize("index", [-5, 99, 2**32, 2**40])
def test_device_indices_are_not_truncated(index):
    for function in (torch.ops.torch_opencl.synchronize, torch.ops.torch_opencl.memory_stats):
        with pytest.raises(RuntimeError, match=f"invalid device index {index}"):
            function(index)


def test_tensors_of_two_opencl_devices():
    code = """
        import torch
        first, second = (torch.arange(3.0, device=f"opencl:{i}") for i in range(2))
        index = torch.tensor([0], device="opencl:1")
        for use in (
            lambda: first + second,
            lambda: torch.cat([first, second]),
            lambda: torch.cdist(first[None], second[None]),
            lambda: first[index],
            lambda: first.clone().index_put_((index,), first[0]),
            lambda: first.gather(0, index),
            lambda: torch.ones(3) + first,
            lambda: torch.cdist(torch.ones(1, 3), first[None]),
        ):
            try:
                use()
            except RuntimeError as error:
                assert '.to("opencl:' in str(error), error
            else:
                raise AssertionError("tensors of two devices met")
        assert first[torch.tensor([2])].item() == 2
        assert first.index_put((torch.tensor([2]),), first[0]).tolist() == [0, 1, 0]
        print("ok")
    """
    assert output_of(code, **two_devices()) == "ok"


@pytest.mark.parametrize("wrong", [3, -1])
@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)])
def test_a_class_out_of_range_is_found_by_the_gradient(device, shape, wrong):
    backward = aten.nll_loss_backward if len(shape) == 2 else aten.nll_loss2d_backward
    for where in ("cpu", device):
        one, target = torch.ones((), device=where), torch.tensor([wrong], device=where).view(shape[:1] + shape[2:])
        with pytest.raises(IndexError, match=rf"Target {wrong} is out of bounds"):
            backward(one, torch.zeros(shape, device=where), target, None, 1, -100, one).cpu()


@pytest.mark.parametrize(
    ("targets", "lengths", "wrong"),
    [([[1, 3]], [2], 3), ([[-1, 1]], [2], -1), ([1, 2**33], [2], 2**33), ([[1, 9]], [1], None)],
)
def test_a_label_out_of_range_is_found(device, targets, lengths, wrong):
    likelihoods = torch.zeros(4, 1, 3, device=device).log_softmax(-1)
    arguments = torch.tensor(targets, device=device), torch.tensor([4]), torch.tensor(lengths)
    if wrong is None:  # labels after the length are ignored
        assert torch.nn.functional.ctc_loss(likelihoods, *arguments).isfinite().item()
        return
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        torch.nn.functional.ctc_loss(likelihoods, *arguments).item()
