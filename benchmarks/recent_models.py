"""Networks of many small operators in eager mode, in plain ``torch.nn``, for which a compiler gains most."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import DecoderLayer


class RotaryLayer(nn.Module):
    """Causal attention with rotary positions, and SwiGLU, each with an RMS norm before it and a shortcut, as in LLaMA.

    Args:
        width: features of a token.
        heads: of the attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.hidden = heads, width * 8 // 3 // 64 * 64
        self.attention_norm, self.forward_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * self.hidden, bias=False)
        self.down = nn.Linear(self.hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for tokens of shape (batch, tokens, width)."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        query, key = (each * cosine + _turned(each) * sine for each in (query, key))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        gate, value = self.up(self.forward_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * value)


def _turned(x: torch.Tensor) -> torch.Tensor:
    """Return each pair of halves rotated by a right angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class RotaryDecoder(nn.Module):
    """A language model of such layers.

    Args:
        vocabulary: the number of different tokens.
        width: features of a token.
        layers: the number of layers.
        heads: of each layer's attention.
        tokens: the length of the longest text.
    """

    def __init__(self, vocabulary: int, width: int = 256, layers: int = 2, heads: int = 4, tokens: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(RotaryLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        frequencies = 10000 ** (-torch.arange(0, size, 2) / size)
        angles = (torch.arange(tokens)[:, None] * frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of every next token, (batch, tokens, vocabulary), for a text of (batch, tokens)."""
        x, count = self.embedding(text), text.shape[1]
        for layer in self.layers:
            x = layer(x, self.cosine[:count], self.sine[:count])
        return self.head(self.norm(x))


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7 convolution and a feed-forward part over channels, with a shortcut, as in ConvNeXt.

    Args:
        width: channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.channels = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = self.channels(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext(widths: tuple[int, ...] = (48, 96, 192, 384), depths: tuple[int, ...] = (2, 2, 6, 2)) -> nn.Module:
    """Return a network with the layers of ConvNeXt, half as wide as the smallest one."""
    layers: list[nn.Module] = []
    channels, kernel = 3, 4
    for width, depth in zip(widths, depths, strict=True):
        if layers:
            layers.append(nn.GroupNorm(1, channels))
        layers.append(nn.Conv2d(channels, width, kernel, stride=kernel))
        layers += [ConvNeXtBlock(width) for _ in range(depth)]
        channels, kernel = width, 2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(channels), nn.Linear(channels, 1000)
    )


class FullLayer(DecoderLayer):
    """A transformer layer without a causal mask."""

    is_causal = False


class VisionTransformer(nn.Module):
    """A transformer over patches of 16x16 pixels, with the layers of ViT.

    Args:
        width: features of a patch.
        layers: the number of layers.
        heads: of each layer's attention.
        size: the side of the images, in pixels.
    """

    def __init__(self, width: int = 192, layers: int = 6, heads: int = 3, size: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.positions = nn.Parameter(torch.randn(1, (size // 16) ** 2, width) * 0.02)
        self.layers = nn.Sequential(*(FullLayer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the classes' logits, (batch, 1000), for images of (batch, 3, size, size)."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.layers(x).mean(1))


class GatedConvolution(nn.Module):
    """A dilated convolution with a gated output and a shortcut, as in WaveNet.

    Args:
        width: channels.
        dilation: of the convolution.
    """

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.dilated = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.projection = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        value, gate = self.dilated(self.norm(x)).chunk(2, dim=1)
        return x + self.projection(torch.tanh(value) * torch.sigmoid(gate))


class AudioNet(nn.Module):
    """Classifies each hundredth of a second of audio of 16 kHz, without recurrence.

    Args:
        width: channels.
        layers: the number of layers, whose dilations are powers of two.
        classes: the number of classes.
    """

    def __init__(self, width: int = 64, layers: int = 6, classes: int = 40) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, width, 16, stride=8, padding=4)
        self.layers = nn.Sequential(*(GatedConvolution(width, 1 << index) for index in range(layers)))
        self.head = nn.Conv1d(width, classes, 20, stride=20)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        """Return logarithms of the classes' probabilities, (batch, classes, frames), for (batch, 1, samples)."""
        return self.head(functional.silu(self.layers(self.encoder(audio)))).log_softmax(1)
