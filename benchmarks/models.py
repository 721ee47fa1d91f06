"""The networks of the whole-model rows, in plain ``torch.nn``."""

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut, as in ResNet-18.

    Args:
        inputs: channels in.
        width: channels of the convolutions, and out.
        stride: of the first convolution, and of the shortcut.
    """

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *_convolution(width, width, 3, 1)
        )
        self.shortcut = _shortcut(inputs, width * self.expansion, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return torch.relu(self.body(x) + self.shortcut(x))


class Bottleneck(BasicBlock):
    """A 3x3 convolution between two of 1x1, as in ResNet-50; a quarter as wide as the block's output.

    Args:
        inputs: channels in.
        width: channels of the 3x3 convolution.
        stride: of the 3x3 convolution, and of the shortcut.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.body = nn.Sequential(
            *_convolution(inputs, width, 1, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, width * self.expansion, 1, 1),
        )


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(*_convolution(inputs, outputs, 1, stride))


def resnet18(classes: int = 1000) -> nn.Module:
    """Return a network with the layers of ResNet-18."""
    return _resnet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> nn.Module:
    """Return a network with the layers of ResNet-50."""
    return _resnet(Bottleneck, (3, 4, 6, 3), classes)


def _resnet(block: type[BasicBlock], depths: tuple[int, ...], classes: int) -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            layers.append(block(channels, width, 2 if stage and not index else 1))
            channels = width * block.expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def lenet(classes: int = 10) -> nn.Module:
    """Return LeNet-5 with kernels that suit images of 8x8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 2 * 2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def digits_cnn() -> nn.Module:
    """Return the network of examples/train_digits.py, without its dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class DecoderLayer(nn.Module):
    """Causal attention and a feed-forward part, each with a layer norm before it and a shortcut.

    Args:
        width: features of a token.
        heads: of the attention.
    """

    is_causal = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output for tokens of shape (batch, tokens, width)."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.feed_forward(self.forward_norm(x))


class Decoder(nn.Module):
    """A language model with the layers of the smallest GPT-2.

    Args:
        vocabulary: the number of different tokens.
        tokens: the length of the longest text.
        width: features of a token.
        layers: the number of layers.
        heads: of each layer's attention.
    """

    def __init__(
        self, vocabulary: int = 50257, tokens: int = 1024, width: int = 768, layers: int = 12, heads: int = 12
    ) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.layers = nn.Sequential(*(DecoderLayer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of every next token, (batch, tokens, vocabulary), for a text of (batch, tokens)."""
        positions = torch.arange(text.shape[1], device=text.device)
        return self.head(self.layers(self.embedding(text) + self.position(positions)))


class TextLSTM(nn.Module):
    """An LSTM that classifies texts by its last output.

    Args:
        vocabulary: the number of different tokens.
        width: of the embedding and of the LSTM's state.
        layers: of the LSTM.
        classes: the number of classes.
    """

    def __init__(self, vocabulary: int = 10000, width: int = 256, layers: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the classes' logits, (batch, classes), for texts of (batch, tokens)."""
        return self.head(self.lstm(self.embedding(text))[0][:, -1])
