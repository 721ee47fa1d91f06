"""Chat with a language model of transformers, with quantised weights, on the device.

The model is a GGUF file, or a folder that `from_pretrained` loads: a GPTQ or AWQ checkpoint, or one whose linear layers
are rounded to 4 bits here.
Without one, a small model with random weights answers with random letters, which shows that everything runs.
Needs transformers and accelerate, and gguf for GGUF files.

    python examples/chat.py llama-8b.Q4_K_M.gguf
    python examples/chat.py folder/of/a/model --prompt "Why is the sky blue?"
"""

import argparse
import os
import time
from typing import Any

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch_opencl
import transformers
from torch_opencl import gguf
from torch_opencl.quantized import quantize_linear_layers


class Letters:
    """A tokenizer for the random model: a token is a byte."""

    chat_template = None
    eos_token_id = None

    def __call__(self, text: str, **options: Any) -> dict[str, torch.Tensor]:
        """Return the bytes of a text, as a batch of one."""
        return {"input_ids": torch.tensor([list(text.encode() or b" ")])}

    def decode(self, ids: Any, **options: Any) -> str:
        """Return the text of bytes."""
        return "".join(chr(97 + int(token) % 26) for token in ids)


class Speed(transformers.TextStreamer):
    """Prints text as it is generated, and times its tokens."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        """Take the next tokens; the first are the prompt."""
        self.times.append(time.perf_counter())
        super().put(value)


def load(path: str | None, device: str) -> tuple[Any, Any]:
    """Return a model and its tokenizer."""
    if path is None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
        config = transformers.LlamaConfig(vocab_size=256, **sizes, bos_token_id=None, eos_token_id=None)
        model, tokenizer = transformers.LlamaForCausalLM(config).to(torch.bfloat16), Letters()
    elif path.endswith(".gguf"):
        folder, name = os.path.split(os.path.abspath(path))
        return gguf.load(path, device=device), transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    else:
        torch_opencl.integrations.enable("transformers")
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        is_packed = hasattr(transformers.AutoConfig.from_pretrained(path), "quantization_config")
        # A model that is rounded here may not fit the device before.
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.bfloat16, device_map=device if is_packed else "cpu"
        )
        if is_packed:
            return model.eval(), tokenizer
    quantize_linear_layers(model)
    return model.to(device).eval(), tokenizer


def copy_bandwidth(device: str) -> float:
    """Return the bytes that the device reads and writes in a second when it copies."""
    source = torch.empty(1 << 26, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        target.copy_(source)
        torch.opencl.synchronize(device)
        times.append(time.perf_counter() - start)
    return 2 * source.numel() / sorted(times)[2]


def answer(model: Any, tokenizer: Any, messages: list[dict[str, str]], tokens: int) -> tuple[str, Speed]:
    """Print the answer to the last of several messages as it is generated, and return it."""
    if tokenizer.chat_template:
        inputs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    else:
        inputs = tokenizer(messages[-1]["content"], return_tensors="pt")
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    speed = Speed(tokenizer)
    ids = model.generate(**inputs, streamer=speed, max_new_tokens=tokens, pad_token_id=tokenizer.eos_token_id)
    return tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True), speed


def main() -> None:
    """Answer one prompt, or those that are typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a GGUF file, or a folder for from_pretrained")
    parser.add_argument("--prompt", help="answer this, and exit")
    parser.add_argument("--tokens", type=int, default=200, help="the most tokens of an answer")
    parser.add_argument("--device", default="opencl:0")
    options = parser.parse_args()
    if torch.device(options.device).type != "opencl":
        parser.error(f"--device is an opencl device, not {options.device}")
    torch_opencl.set_device(options.device)

    model, tokenizer = load(options.model, options.device)
    held = [*model.parameters(), *model.buffers()]
    weights = sum(each.nbytes for each in {each.data_ptr(): each for each in held}.values())
    bandwidth = copy_bandwidth(options.device)
    torch_opencl.empty_cache()
    torch_opencl.reset_peak_memory_stats()
    messages: list[dict[str, str]] = []
    while True:
        try:
            messages.append({"role": "user", "content": input("> ") if options.prompt is None else options.prompt})
        except EOFError:
            break
        text, speed = answer(model, tokenizer, messages, options.tokens)
        messages.append({"role": "assistant", "content": text})
        # The prompt is put first, then the token that follows it.
        seconds = speed.times[-1] - speed.times[1]
        rate = (len(speed.times) - 2) / seconds if seconds > 0 else 0.0
        print(
            f"[{speed.times[1] - speed.times[0]:.2f} s to the first token, then {rate:.1f} tokens/s; "
            f"weights {weights / 1e6:.0f} MB, at most {torch_opencl.max_memory_allocated() / 1e6:.0f} MB in use; "
            f"weights are read at {rate * weights / bandwidth:.1%} of the bandwidth of a copy]"
        )
        if options.prompt is not None:
            break


if __name__ == "__main__":
    main()
