"""Decoding of one token at a time by whole decoders with random weights: tokens in a second, in each way to run it.

The decoder is LLaMA's: rotary positions, grouped heads, SwiGLU. Its cache of keys and values has a fixed size, so that
a step is always the same kernels. Each way decodes greedily from the same token. In float32 all ways have to give the
tokens of the dense weights of the same values; in 16 bits, roundings may decide between tokens that are nearly equal.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_opencl.quantized import QuantizedLinear, quantize_linear_layers

from benchmarks.clock import share_threads

VOCABULARY = 32_000
CACHE = 256
TOKENS = 16
ROUNDS = 5
# Width, layers, heads, heads of keys and values.
SIZES = ((1024, 8, 16, 4), (2048, 16, 32, 8))
QUICK = ((256, 2, 4, 2),)


class Layer(nn.Module):
    """Attention to the cache, and SwiGLU, each with an RMS norm before it and a shortcut.

    Args:
        width: features of a token.
        heads: of the queries.
        key_heads: of keys and values.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        hidden = width * 8 // 3 // 64 * 64
        self.attention_norm, self.forward_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * self.size, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, key_heads, CACHE, self.size))

    def forward(self, x: Tensor, position: Tensor, rotation: tuple[Tensor, Tensor], seen: Tensor) -> Tensor:
        """Return the layer's output for a token of shape (1, 1, width), and add it to the cache at `position`."""
        qkv = self.qkv(self.attention_norm(x)).view(1, 1, -1, self.size).transpose(1, 2)
        query, key, value = qkv.split([self.heads, self.key_heads, self.key_heads], dim=1)
        query, key = (each * rotation[0] + _turned(each) * rotation[1] for each in (query, key))
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=seen, enable_gqa=True
        )
        x = x + self.projection(attended.transpose(1, 2).reshape(1, 1, -1))
        gate, value = self.up(self.forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * value)


class Decoder(nn.Module):
    """A decoder that keeps its token, its position and the tokens so far on the device.

    Args:
        width: features of a token.
        layers: the number of layers.
        heads: of the queries.
        key_heads: of keys and values.
    """

    token: Tensor
    position: Tensor
    tokens: Tensor
    angles: Tensor

    def __init__(self, width: int, layers: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads, key_heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        size = width // heads
        frequencies = 10_000.0 ** -(torch.arange(0, size, 2) / size)
        self.register_buffer("angles", (torch.arange(CACHE)[:, None] * frequencies).repeat(1, 2))
        for name in ("token", "position"):
            self.register_buffer(name, torch.zeros(1, dtype=torch.long))
        self.register_buffer("tokens", torch.zeros(CACHE, dtype=torch.long))

    def reset(self) -> None:
        """Begin a new text."""
        self.token.fill_(1)
        self.position.zero_()

    def forward(self) -> None:
        """Decode the next token."""
        angles = self.angles.index_select(0, self.position)
        x = self.embedding(self.token[None])
        rotation = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        seen = torch.arange(CACHE, device=x.device) <= self.position
        for layer in self.layers:
            x = layer(x, self.position, rotation, seen[None])
        self.token.copy_(self.head(self.norm(x)).argmax(-1)[0])
        self.tokens.index_copy_(0, self.position, self.token)
        self.position.add_(1)


def _turned(x: Tensor) -> Tensor:
    """Return each pair of halves rotated by a right angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _steps(decoder: Decoder, device: torch.device) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield ways to decode a token."""
    yield "eager", decoder
    if device.type == "cpu":
        return
    yield "compiled", torch.compile(decoder)
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        decoder()
    yield "graph", graph.replay


def _seconds(decoder: Decoder, step: Callable[[], object]) -> float:
    decoder.reset()
    start = time.perf_counter()
    for _ in range(TOKENS):
        step()
    # Waits for the device.
    decoder.tokens.cpu()
    return time.perf_counter() - start


def _dequantised(decoder: Decoder, dtype: torch.dtype) -> Decoder:
    """Return a decoder with dense weights of the same values."""
    dense = deepcopy(decoder)
    for name, module in list(dense.named_modules()):
        if isinstance(module, QuantizedLinear):
            layer = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
            layer.weight = nn.Parameter(module.weight.dequantize(dtype), requires_grad=False)
            dense.set_submodule(name, layer)
    return dense


@torch.no_grad()
def run(name: str, quick: bool) -> int:
    """Print tokens in a second, and their ratio to PyTorch's CPU backend in bfloat16.

    Args:
        name: the device.
        quick: whether to measure a small decoder instead of the usual ones.

    Returns:
        1 if a way in float32 gave other tokens than expected.
    """
    device, cpu = torch.device(name), torch.device("cpu")
    share_threads(device)
    differs = False
    for size in QUICK if quick else SIZES:
        torch.manual_seed(0)
        dense = Decoder(*size).eval()
        # Logits that differ by more than rounding errors.
        dense.head.weight.mul_(4)
        print("width {}, {} layers, {} heads, {} heads of keys:".format(*size))
        on_cpu = None
        for where, dtype, bits in (
            (cpu, torch.bfloat16, 16),
            (cpu, torch.float32, 32),
            (device, torch.float32, 32),
            (device, torch.bfloat16, 16),
            (device, torch.float32, 4),
            (device, torch.bfloat16, 4),
        ):
            decoder = deepcopy(dense).to(where, dtype)
            expected = None
            if bits == 4:
                quantize_linear_layers(decoder, keep=())
                expected = _tokens(_dequantised(decoder, dtype))
            for way, step in _steps(decoder, where):
                for _ in range(2):
                    _seconds(decoder, step)
                if where != cpu:
                    torch.ops.torch_opencl.wait_for_builds(60.0)
                rate = TOKENS / statistics.median(_seconds(decoder, step) for _ in range(ROUNDS))
                on_cpu = on_cpu or rate
                tokens = decoder.tokens[:TOKENS].tolist()
                expected = expected or tokens
                same = sum(mine == right for mine, right in zip(tokens, expected, strict=True))
                differs |= same < TOKENS and dtype == torch.float32
                weights = f"{str(dtype).removeprefix('torch.')}, weights of {bits:2} bits"
                print(
                    f"  {where.type:7} {weights:28} {way:9} {rate:7.1f} tokens/s, {rate / on_cpu:5.2f} of the CPU's in "
                    f"bfloat16; {same} of {TOKENS} tokens as expected",
                    flush=True,
                )
    return int(differs)


def _tokens(decoder: Decoder) -> list[int]:
    _seconds(decoder, decoder)
    return decoder.tokens[:TOKENS].tolist()
