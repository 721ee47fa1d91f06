"""The calls whose programs are compiled: `gpu_compile.record` runs them on stub devices that compute nothing."""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves

Call = Callable[[torch.device], object]
# Random calls of tests/fuzz with one seed. More calls would add few programs.
RANDOM_CALLS = 600
EVERY_DTYPE = sorted({dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}, key=str)


def backward(result: object) -> None:
    """Compute gradients of the results that require them, with ones as gradients of the results."""
    roots = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def is_empty(sample: SampleInput) -> bool:
    """Return true if a tensor of a sample has no elements."""
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(leaf, torch.Tensor) and leaf.numel() == 0 for leaf in leaves)


def quantized() -> Iterator[Call]:
    """Yield matmuls with a small and a large weight in each format, and its unpacking."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from torch_opencl.quantized import GGUF_FORMATS, QuantizedWeight

    def call(device: torch.device, name: str, rows: int, size: int) -> None:
        zeros = lambda dtype, *shape: torch.zeros(shape, dtype=dtype, device=device)  # noqa: E731
        if name in GGUF_FORMATS:
            columns, block = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]]
            weight = QuantizedWeight(zeros(torch.uint8, size, 256 // columns * block), name, (size, 256))
        elif name == "table4":
            codes, scales = zeros(torch.uint8, size, 128), zeros(torch.float32, 4 * size)
            weight = QuantizedWeight(codes, name, (size, 256), scales, None, zeros(torch.float32, 16), 64)
        else:
            codes = zeros(torch.int8, size, 128 if name == "affine4" else 256)
            weight = QuantizedWeight(codes, name, (size, 256), zeros(torch.float16, size, 4), group_size=64)
        weight.linear(zeros(torch.float16, rows, 256))
        weight.dequantize(torch.float16)

    for words in product((*GGUF_FORMATS, "table4", "affine4", "affine8"), (1, 4), (64, 4096)):
        yield lambda device, words=words: call(device, *words)


def operators(few: bool = False) -> Iterator[Call]:
    """Yield calls of each operator of the table, with each dtype and PyTorch's samples, and their gradients."""
    from op_samples import call, samples
    from op_table import opinfo_dtypes

    for info, dtypes in opinfo_dtypes():
        for dtype in dtypes if not few else [torch.float32] * (torch.float32 in dtypes):
            has_gradients = info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
            # Empty tensors launch no kernel. Results here are zeros, and for an empty result ATen would raise an error.
            filled = [each for each in samples(info, dtype, has_gradients) if not is_empty(each)]
            for sample in filled[: 3 if few else None]:
                yield lambda device, info=info, sample=sample: backward(call(info.op, sample, device))


def conversions() -> Iterator[Call]:
    """Yield copies between all pairs of dtypes, small and large, and arithmetic of each dtype."""
    for source, target, size in product(EVERY_DTYPE, EVERY_DTYPE, (7, 1 << 17)):
        if size == 7 or torch.float32 in (source, target):
            yield lambda device, a=source, b=target, n=size: torch.empty(n, dtype=a, device=device).to(b)
    for dtype, function in product(EVERY_DTYPE, (torch.add, torch.mul, torch.eq, torch.bitwise_and)):
        yield lambda device, t=dtype, f=function: f(*torch.empty(2, 7, dtype=t, device=device))


LONG_ROWS: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda x: x.sum(-1),
    lambda x: x.sum(0),
    lambda x: x.var(-1),
    lambda x: x.argmax(-1),
    lambda x: x.softmax(-1),
    lambda x: x.log_softmax(-1),
    lambda x: x.cumsum(-1),
    lambda x: x.detach().sort(-1),
    lambda x: x.detach().topk(9, -1),
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda x: torch.nn.functional.batch_norm(x[..., None, None].expand(-1, -1, 9, 9), None, None, training=True),
    lambda x: torch.nn.functional.cross_entropy(x, torch.zeros(len(x), dtype=torch.long, device=x.device)),
    lambda x: x[torch.zeros(700, dtype=torch.long, device=x.device)],
    lambda x: (x + x[0]) * x,
    lambda x: x @ x.t(),
)


def layers() -> Iterator[Call]:
    """Yield layers that no operator's samples cover, forward and backward, and a step of each optimizer."""
    for dtype, (heads, key_heads), queries, keys, width in product(
        (torch.float32, torch.float16), ((1, 1), (3, 3), (8, 2)), (1, 9, 200), (1, 300), (16, 64, 128)
    ):

        def attend(
            device: torch.device, dtype=dtype, shapes=((2, heads, queries, width), (2, key_heads, keys, width))
        ) -> None:
            query, key, value = (torch.zeros(shapes[i], dtype=dtype, device=device) for i in (0, 1, 1))
            attention = partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
            attention(query, key, value)
            backward(attention(query.requires_grad_(), key.requires_grad_(), value.requires_grad_(), is_causal=True))
            backward(attention(query, key, value, torch.zeros(shapes[0][2], shapes[1][2], device=device, dtype=dtype)))

        yield attend
    for function, dtype, rows in product(LONG_ROWS, (torch.float32, torch.bfloat16), (5, 90)):
        yield lambda device, function=function, dtype=dtype, rows=rows: backward(
            function(torch.zeros(rows, 3000, dtype=dtype, device=device, requires_grad=True))
        )
    for dtype in (torch.float32, torch.bfloat16):

        def reduce_columns(device: torch.device, dtype: torch.dtype = dtype) -> None:
            x = torch.zeros(2048, 4096, dtype=dtype, device=device, requires_grad=True)
            weight = torch.ones(4096, dtype=dtype, device=device, requires_grad=True)
            backward((x.sum(0), x.var(0), x.view(4, 512, 4096).softmax(1)))
            x.detach().argmax(0)
            backward(torch.nn.functional.layer_norm(x, (4096,), weight))

        yield reduce_columns
    # Sizes for small and large tiles, of elements and of vectors.
    for dtype, (rows, columns) in product(
        (torch.uint8, torch.float16, torch.float32, torch.float64), ((69, 91), (80, 96), (1027, 1029), (1024, 1040))
    ):
        yield (
            lambda device, shape=(3, rows, columns), dtype=dtype: (
                torch.empty(shape, dtype=dtype, device=device).transpose(1, 2).contiguous()
            )
        )
    for dtype, columns in product((torch.uint8, torch.float16, torch.float32), (3, 64)):
        yield lambda device, dtype=dtype, columns=columns: torch.cat(
            [torch.empty(9, columns, dtype=dtype, device=device)] * 2, 1
        )
    yield lambda device: torch.nn.functional.interpolate(
        torch.zeros(1, 3, 40, 50, dtype=torch.uint8, device=device), (60, 20), mode="bilinear"
    )
    for dtype, shape in product(
        (torch.complex64, torch.complex128), ((3, 8), (3, 4096), (99, 1024), (70, 1021), (1 << 20,))
    ):
        yield lambda device, dtype=dtype, shape=shape: torch.fft.fft(torch.zeros(shape, dtype=dtype, device=device))
    for dtype, rows in product((torch.float16, torch.bfloat16, torch.int8), (1, 90)):

        def multiply(device: torch.device, dtype: torch.dtype = dtype, rows: int = rows) -> None:
            a, b = torch.zeros(rows, 64, dtype=dtype, device=device), torch.zeros(64, 80, dtype=dtype, device=device)
            torch._int_mm(a, b) if dtype == torch.int8 else torch.mm(a, b, out_dtype=torch.float32)

        yield multiply

        def multiply_packed(device: torch.device, dtype: torch.dtype = dtype, rows: int = rows) -> None:
            if dtype == torch.int8:
                return
            x, values = torch.zeros(rows, 64, dtype=dtype, device=device), torch.zeros(80, 32, device=device)
            torch._weight_int8pack_mm(x, values.to(torch.int8).repeat(1, 2), x.new_zeros(80))
            packed = torch._convert_weight_to_int4pack(values.to(torch.uint8), 2)
            torch._weight_int4pack_mm(x, packed, 32, x.new_zeros(2, 80, 2))

        yield multiply_packed
    yield from quantized()
    for dtype, size in product((torch.float32, torch.float64, torch.complex64, torch.complex128), (3, 40)):
        for function in (torch.linalg.inv_ex, torch.linalg.cholesky_ex, torch.linalg.qr, torch.linalg.lu):
            yield lambda device, dtype=dtype, n=size, function=function: function(
                torch.eye(n, dtype=dtype, device=device)
            )
    for cell in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        yield lambda device, cell=cell: backward(cell(5, 7, 2).to(device)(torch.zeros(4, 3, 5, device=device)))
    for name, fused in product(("SGD", "Adam", "AdamW", "Adagrad", "RMSprop"), (False, True)):

        def step(device: torch.device, name: str = name, options=({"fused": True} if fused else {})) -> None:
            parameters = [torch.nn.Parameter(torch.ones(size, device=device)) for size in (9, 70, 1 << 17)]
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            getattr(torch.optim, name)(parameters, lr=0.1, **options).step()

        if not fused or name != "RMSprop":
            yield step


def distributions() -> Iterator[Call]:
    """Yield distributions whose parameters are tensors, their gradients, and other operators without samples."""
    for dtype, size in product((torch.float32, torch.float64, torch.float16), (7, 1 << 17)):

        def draw(device: torch.device, dtype=dtype, size=size) -> None:
            ones = torch.ones(size, dtype=dtype, device=device)
            torch.poisson(ones)
            torch.binomial(ones, ones)
            torch._sample_dirichlet(ones)
            torch._standard_gamma_grad(ones, torch._standard_gamma(ones))
            torch._dirichlet_grad(ones, ones, ones)
            image = ones[:6].view(1, 2, 3).requires_grad_()
            backward(torch.nn.functional.fractional_max_pool2d(image, 1, output_size=2))
            torch._assert_async(ones[0])

        yield draw


def quantization() -> Iterator[Call]:
    """Yield fake quantisation, and matmuls of sparse matrices with each reduction."""
    for dtype, size in product((torch.float32, torch.float64, torch.float16), (7, 1 << 15)):

        def quantize(device: torch.device, dtype=dtype, size=size) -> None:
            x = torch.ones(5, size, dtype=dtype, device=device)
            scale, zero_point = torch.ones(5, device=device), torch.zeros(5, dtype=torch.int32, device=device)
            torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
            state = (scale[:1], scale[:1], scale.clone(), -scale, scale, zero_point)
            torch.fused_moving_avg_obs_fake_quant(x, *state, 0.1, -8, 7, 0, True)

        yield quantize

        def reduce(device: torch.device, dtype=dtype, size=size) -> None:
            starts, columns = torch.arange(5, device=device), torch.arange(4, device=device)
            matrix = torch.sparse_csr_tensor(starts, columns, torch.ones(4, dtype=dtype, device=device), (4, 4))
            for reduction in ("sum", "mean", "amax", "amin"):
                torch.sparse.mm(matrix, torch.ones(4, size, dtype=dtype, device=device), reduction)

            matrix @ torch.ones(4, size, dtype=dtype, device=device)
            matrix.mv(torch.ones(4, dtype=dtype, device=device))

        yield reduce


def convolution(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return 20 channels of an image, made from a matrix of [40, 200] and the weights."""
    images, weight = x.reshape(1, 20, 20, 20), x[:20, : 20 * size * size].reshape(20, 20, size, size)
    return torch.nn.functional.conv2d(images, weight, padding=size // 2)


COMPILED: tuple[Callable[[torch.Tensor], object], ...] = (
    lambda x: torch.nn.functional.gelu(x * 2 + 1).half().tanh(),
    lambda x: torch.nn.functional.gelu(x @ x.t() + x[:, 0]) * x[:, :1],
    # Images of 20 x 20, and kernels of 3 x 3 and 1 x 1.
    lambda x: convolution(x, 3).relu() + x.reshape(1, 20, 20, 20),
    lambda x: torch.nn.functional.silu(convolution(x, 1) * x[:20, 0].view(20, 1, 1)).half(),
    lambda x: x.softmax(-1),
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda x: (x.sum(0), x.amax(1), x.argmax(1), x.var(0), x.any(1)),
    # Clang's NVPTX target lacks the 64-bit atomic operations that NVIDIA's driver has.
    lambda x: torch.zeros_like(x, dtype=torch.float32).index_add(0, (x[:, 0] > 0).long(), x[x[:, 0].long()].float()),
    lambda x: torch.cat([x.tril(), torch.nn.functional.dropout(x, 0.5)], 1).long() // 3,
)


def compiled() -> Iterator[Call]:
    """Yield functions whose kernels torch.compile generates."""
    for function, dtype in product(COMPILED, (torch.float32, torch.float64, torch.bfloat16)):

        def run(device: torch.device, function=function, dtype=dtype) -> None:
            torch._dynamo.reset()
            torch.compile(function)(torch.ones(40, 200, dtype=dtype, device=device))

        yield run
    # The functions of the tests, and training steps of their models.
    sys.path.append(str(Path(__file__).parents[1] / "python" / "runtime"))
    from test_compile import FUNCTIONS, MODELS

    for function in FUNCTIONS.values():

        def call(device: torch.device, function=function) -> None:
            torch._dynamo.reset()
            torch.compile(function)(torch.ones(48, 64, device=device), torch.ones(64, device=device))

        yield call
    for make in MODELS.values():

        def train(device: torch.device, make=make) -> None:
            torch._dynamo.reset()
            model, x = make()
            backward(torch.compile(model.to(device))(x.to(device)))

        yield train


USER_KERNEL = """
__kernel void user(GLOBAL const T *x, GLOBAL T *y, const work_T factor) {
  LOCAL float scratch[64];
  const work_T value = load_T(x, ELEMENT) * factor;
  store_T(y, ELEMENT, group_sum(value, scratch) + group_max(value, scratch));
}
"""


def user_kernels() -> Iterator[Call]:
    """Yield calls of user-defined kernels."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        kernel = torch.opencl.compile_kernel(USER_KERNEL, "user", types={"T": [dtype]})

        def run(device: torch.device, kernel=kernel, dtype=dtype) -> None:
            x = torch.ones(128, dtype=dtype, device=device)
            kernel(x, torch.empty_like(x), 0.5, global_size=128, local_size=64)

        yield run


def workloads(quick: bool) -> Iterator[Call]:
    """Yield the rows of the benchmarks: programs for large tensors and whole models."""
    from benchmarks.cases import all_cases

    for case in all_cases():
        if case.quick or not quick:
            yield lambda device, case=case: case.build(device).run()


def random_calls() -> Iterator[Call]:
    """Yield random calls: layouts, 0-d operands, empty sizes."""
    from fuzz.case import Operand
    from fuzz.generate import make
    from torch.utils._pytree import tree_map_only

    def run(device: torch.device, case) -> None:
        args, kwargs = tree_map_only(Operand, lambda operand: operand.on(str(device)), (case.args, case.kwargs))
        backward(case.function(*args, **kwargs))

    for number in range(RANDOM_CALLS):
        case = make(0, number)
        if case is not None:
            yield lambda device, case=case: run(device, case)


def run_all(calls: Iterator[Call], devices: Sequence[torch.device]) -> Counter[str]:
    """Run calls on devices.

    Args:
        calls: the calls.
        devices: the devices to run each call on.

    Returns:
        The number of calls by outcome: "done", or the type of an exception. Some must raise: results are zeros, dtypes
        have no kernels, a device does not support float64.
    """
    outcome: Counter[str] = Counter()
    for call in calls:
        for device in devices:
            torch.manual_seed(0)
            torch.opencl.set_device(device)
            try:
                call(device)
                outcome["done"] += 1
            except Exception as error:
                outcome[type(error).__name__] += 1
    return outcome


def main() -> None:
    """Run all calls, or with `--sample` the calls of CI's sample; print how they ended."""
    warnings.simplefilter("ignore")
    # The second device lacks float64 and wide atomics.
    devices = [torch.device("opencl", index) for index in range(torch.opencl.device_count())]
    if "--sample" in sys.argv:
        kinds = {
            "operators": (operators(few=True), devices[:1]),
            "layers": (layers(), devices[:1]),
            "distributions": (distributions(), devices[:1]),
            "quantization": (quantization(), devices[:1]),
            "compiled functions": (compiled(), devices[:1]),
            "kernels of the user": (user_kernels(), devices[:1]),
        }
    else:
        kinds = {
            "operators": (operators(), devices),
            "conversions": (conversions(), devices),
            "layers": (layers(), devices),
            "distributions": (distributions(), devices),
            "quantization": (quantization(), devices),
            "compiled functions": (compiled(), devices),
            "kernels of the user": (user_kernels(), devices),
            "random calls": (random_calls(), devices),
            "quick workloads": (workloads(quick=True), devices),
            "workloads": (workloads(quick=False), devices[:1]),
        }
    for kind, (calls, where) in kinds.items():
        outcome = run_all(calls, where)
        print(f"    {kind}:", ", ".join(f"{count} {name}" for name, count in outcome.most_common()), flush=True)
        if not outcome["done"]:
            sys.exit(f"every call of the {kind} failed: the stub driver may lack a function of OpenCL")


if __name__ == "__main__":
    main()
