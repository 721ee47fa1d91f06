"""A linear layer with a quantised weight, in each format, compared with bfloat16 in the same run."""

import statistics
from collections.abc import Callable

import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch_opencl.quantized import GGUF_FORMATS, QuantizedWeight

from benchmarks.case import Work
from benchmarks.clock import mean_seconds, warm_up

SIZE = 4096
ROWS = (1, 4, 16)
ROUNDS = 7
# Calls after which the specialised program is worth its build.
WARM_UPS = 20


def weights(device: str) -> dict[str, QuantizedWeight]:
    """Return a random weight in each format.

    Args:
        device: where they are.

    Returns:
        Weights by name.
    """
    shape = SIZE, SIZE
    codes = torch.randint(0, 256, (SIZE, SIZE // 2), dtype=torch.uint8, device=device)
    scales = torch.rand(SIZE, SIZE // 64, device=device)
    zeros = torch.randint(0, 16, scales.shape, dtype=torch.uint8, device=device)
    bytes_of = torch.randint(-127, 128, shape, dtype=torch.int8, device=device)
    table = torch.randn(16, device=device)
    found = {
        "int8, a scale for each row": QuantizedWeight(bytes_of, "affine8", shape, scales[:, 0], group_size=SIZE),
        "int4, groups of 64": QuantizedWeight(codes, "affine4", shape, scales, group_size=64, bias=8),
        "int4 with zeros": QuantizedWeight(codes, "affine4", shape, scales, zeros, None, 64, 0, "codes"),
        "NF4, blocks of 64": QuantizedWeight(codes, "table4", shape, scales.flatten(), None, table, 64),
    }
    for name in GGUF_FORMATS:
        columns, size = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]]
        # Random scales may be infinite or NaN. The kernels take the same time for them.
        blocks = torch.randint(0, 256, (SIZE * SIZE // columns * size,), dtype=torch.uint8, device=device)
        found[name] = QuantizedWeight(blocks, name, shape)
    return found


def median(work: Callable[[], torch.Tensor], device: str) -> float:
    """Return the median of the seconds of several measurements, with the kernels that later calls use.

    Args:
        work: what is measured.
        device: the device that computes it.

    Returns:
        Seconds.
    """
    on = torch.device(device)
    for _ in range(WARM_UPS):
        work()
    torch.ops.torch_opencl.wait_for_builds(60.0)
    timed = Work(run=work)
    repeats = warm_up(timed, on)
    return statistics.median(mean_seconds(timed, on, repeats) for _ in range(ROUNDS))


def run(device: str) -> int:
    """Print times, and speeds as multiples of bfloat16's.

    Args:
        device: the device.

    Returns:
        0.
    """
    packed = weights(device)
    dense = torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device=device)
    for rows in ROWS:
        x = torch.randn(rows, SIZE, dtype=torch.bfloat16, device=device)
        usual = median(lambda x=x: torch.nn.functional.linear(x, dense), device)
        print(f"{rows} rows: bfloat16 {usual * 1e3:.2f} ms")
        for name, weight in packed.items():
            seconds = median(lambda x=x, weight=weight: weight.linear(x), device)
            unpacked = median(
                lambda x=x, weight=weight: torch.nn.functional.linear(x, weight.dequantize(x.dtype)), device
            )
            print(
                f"  {name:27} {seconds * 1e3:6.2f} ms, {usual / seconds:4.2f} of bfloat16's speed, "
                f"{unpacked / seconds:4.1f} of that of unpacking and multiplying"
            )
    return 0
