"""Language models from GGUF files, with weights as they are in the file."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torch_opencl.quantized import GGUF_FORMATS, GGUFEmbedding, GGUFLinear

__all__ = ["load"]


def load(
    path: str | os.PathLike[str], dtype: torch.dtype = torch.bfloat16, device: torch.device | str = "opencl"
) -> nn.Module:
    """Load a language model of transformers from a GGUF file, with its weights as they are in the file.

    ``nn.Linear`` becomes :class:`torch_opencl.quantized.GGUFLinear` and ``nn.Embedding``
    :class:`torch_opencl.quantized.GGUFEmbedding`. Weights of other layers are dequantised (subclasses such as Gemma's
    scaled embedding, experts in one tensor), and so are weights in formats without a kernel.
    ``AutoTokenizer.from_pretrained(folder, gguf_file=name)`` loads the tokenizer.

    Args:
        path: a GGUF file of an architecture that transformers can load.
        dtype: float32, float16 or bfloat16: the dtype of activations and of all weights that are not packed.
        device: the device of the model.

    Returns:
        The model, in evaluation mode.

    Raises:
        ImportError: transformers, accelerate or gguf is not installed.
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, lacks weights of the model, or has one of another shape; the device or the
            dtype is not supported; or transformers cannot load the architecture.

    Example::

        from torch_opencl import gguf

        model = gguf.load("models/llama-8b.Q4_K_M.gguf")
        tokenizer = AutoTokenizer.from_pretrained("models", gguf_file="llama-8b.Q4_K_M.gguf")
        ids = tokenizer("Once upon a time", return_tensors="pt").input_ids.to("opencl")
        print(tokenizer.decode(model.generate(ids, max_new_tokens=50)[0]))
    """
    device = torch.device(device)
    if device.type != "opencl" or dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(
            f"gguf.load: expected an opencl device and float32, float16 or bfloat16, got {device}, {dtype}"
        )
    gguf, accelerate, transformers, support = (
        importlib.import_module(name)
        for name in ("gguf", "accelerate", "transformers", "transformers.modeling_gguf_pytorch_utils")
    )
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"gguf.load: there is no file {path}")
    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError) as error:
        raise ValueError(f"gguf.load: {path} is not a GGUF file, or is truncated: {error}") from error
    parsed = support.load_gguf_checkpoint(str(path))
    config = transformers.AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
    with accelerate.init_empty_weights(include_buffers=False):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    [architecture] = support.read_field(reader, "general.architecture")
    processor = support.TENSOR_PROCESSORS.get(architecture, support.TensorProcessor)(config=parsed["config"])
    names = support.get_gguf_hf_weights_map(model, processor)
    # Processors store tensors here that they merge or split, under the names of the model.
    parsed["tensors"] = {}
    for tensor in reader.tensors:
        if _pack(model, tensor, names, processor, dtype, device):
            continue
        result = processor.process(
            weights=gguf.dequantize(tensor.data, tensor.tensor_type),
            name=tensor.name,
            tensor_key_mapping=names,
            parsed_parameters=parsed,
        )
        if result.name in names:
            _set(model, names[result.name], torch.from_numpy(result.weights.copy()), dtype, device)
    for name, value in parsed["tensors"].items():
        _set(model, name, value, dtype, device)
    _tie(model, config)
    if missing := [name for name, parameter in model.named_parameters() if parameter.is_meta]:
        raise ValueError(f"gguf.load: {path} lacks {len(missing)} weights of the model: {', '.join(missing[:5])}")
    return model.to(device).eval()


def _pack(
    model: nn.Module, tensor: Any, names: dict[str, str], processor: Any, dtype: torch.dtype, device: torch.device
) -> bool:
    """Replace the layer of a weight by one that keeps it packed; return whether that was possible."""
    name, _, attribute = names.get(tensor.name, "").rpartition(".")
    if attribute != "weight" or tensor.tensor_type.name.lower() not in GGUF_FORMATS:
        return False
    module = model.get_submodule(name)
    # Subclasses do more than the layers that replace them.
    if type(module) not in (nn.Linear, nn.Embedding):
        return False
    columns, rows = (int(size) for size in tensor.shape)
    _check_shape(f"{name}.weight", (rows, columns), module.get_parameter("weight"))
    order = _row_order(processor, tensor.name, rows, names)
    if order is None:
        return False
    data = torch.from_numpy(tensor.data.reshape(rows, -1)[order]).to(device)
    packed: nn.Module
    if isinstance(module, nn.Linear):
        packed = GGUFLinear(data, tensor.tensor_type, rows, columns, module.bias)
    else:
        packed = GGUFEmbedding(data, tensor.tensor_type, rows, columns, dtype)
    model.set_submodule(name, packed)
    return True


def _row_order(processor: Any, name: str, rows: int, names: dict[str, str]) -> Any:
    """Return the rows of the file in the model's order, or None if the processor changes more than the order."""
    indices = torch.arange(rows).view(rows, 1)
    try:
        result = processor.process(
            weights=indices.numpy(), name=name, tensor_key_mapping=names, parsed_parameters={"tensors": {}}
        )
    except ValueError:
        # It needs the columns.
        return None
    order = torch.from_numpy(result.weights.copy())
    if result.name != name or order.shape != indices.shape or not torch.equal(order.sort(0).values, indices):
        return None
    return order[:, 0].numpy()


def _set(model: nn.Module, name: str, value: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    module_name, _, attribute = name.rpartition(".")
    module = model.get_submodule(module_name)
    present = getattr(module, attribute)
    _check_shape(name, tuple(value.shape), present)
    value = value.to(device=device, dtype=dtype)
    if isinstance(present, nn.Parameter):
        setattr(module, attribute, nn.Parameter(value, requires_grad=False))
    else:
        setattr(module, attribute, value)


def _check_shape(name: str, shape: tuple[int, ...], present: Tensor) -> None:
    if shape != present.shape:
        raise ValueError(f"gguf.load: {name} has shape {shape}, the model's has {tuple(present.shape)}")


def _tie(model: Any, config: Any) -> None:
    """Let the last layer use the embedding's table if the model shares them and the file has one table."""
    table, output = model.get_input_embeddings(), model.get_output_embeddings()
    # Configurations of some architectures say so of files with two tables.
    is_absent = isinstance(output, nn.Linear) and output.weight.is_meta
    if not config.get_text_config().tie_word_embeddings or not is_absent:
        return
    if not isinstance(table, GGUFEmbedding):
        model.tie_weights()
        return
    [name] = [name for name, module in model.named_modules() if module is output]
    model.set_submodule(
        name, GGUFLinear(table.data, table.format, table.num_embeddings, table.embedding_dim, output.bias)
    )
