"""A small GPT with autocast and a gradient scaler, in the style of scripts for CUDA; else float32 on the CPU."""

import json
import sys
from contextlib import nullcontext

import torch
from torch import nn
from torch.cuda.amp import GradScaler
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if "--bf16" in sys.argv else torch.float16
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=dtype)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=32, length=16, width=32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], dtype=torch.long, device=tokens.device)
        logits = self.head(self.blocks(self.tokens(tokens) + self.positions(places)))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


text = torch.randint(32, (17,)).repeat(40)


def get_batch(step):
    starts = [(step * 7 + 5 * row) % 600 for row in range(8)]
    x = torch.stack([text[start : start + 16] for start in starts])
    y = torch.stack([text[start + 1 : start + 17] for start in starts])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


model = GPT().to(device)
scaler = GradScaler(enabled=device_type == "cuda" and dtype == torch.float16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=device_type == "cuda")
losses = []
for step in range(12):
    with context:
        loss = model(*get_batch(step))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
devices = sorted({parameter.device.type for parameter in model.parameters()})
print(json.dumps({"losses": losses, "scale": scaler.get_scale(), "devices": devices}))
