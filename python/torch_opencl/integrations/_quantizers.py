"""transformers: GPTQ and AWQ checkpoints become layers of :mod:`torch_opencl.quantized` while they are loaded."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers.integrations.awq import AWQ_SCALES_MAPPINGS
from transformers.modeling_utils import load_state_dict
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.quantizers.base import HfQuantizer

from torch_opencl.quantized import QuantizedLinear
from torch_opencl.repack import from_awq, from_gptq

__all__ = ["disable", "enable"]


class _StoredLinear(nn.Module):
    """Receives the tensors of a quantised linear layer from a checkpoint, until they are packed again."""

    def __init__(self, linear: Any, shapes: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, stored in shapes.items():
            # The dtype of the file, which scales keep whatever the dtype of the model is.
            self.register_buffer(name, torch.empty_like(stored, device="meta"))
        self.shape = (linear.out_features, linear.in_features) if isinstance(linear, nn.Linear) else None
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)
        self.register_parameter("bias", bias)


class _Quantizer(HfQuantizer):
    requires_calibration = True
    # The names of a layer's tensors in files.
    stored_names: tuple[str, ...] = ()

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        devices = device_map.values() if isinstance(device_map, dict) else [device_map]
        others = {str(device) for device in devices if not _is_opencl(device)}
        if others:
            raise ValueError(
                f"torch_opencl.integrations: a {self.quantization_config.quant_method.value} checkpoint would be "
                f"loaded to {', '.join(sorted(others))}: use device_map='opencl', or call "
                "torch_opencl.integrations.disable('transformers') for other devices"
            )

    def update_device_map(self, device_map: Any) -> Any:
        return "opencl" if device_map is None else device_map

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Iterable[str] = (), **kwargs: Any
    ) -> None:
        stored: dict[str, dict[str, torch.Tensor]] = {}
        for file in checkpoint_files or ():
            for name, tensor in load_state_dict(file, map_location="meta").items():
                layer, _, attribute = name.rpartition(".")
                if attribute in self.stored_names:
                    stored.setdefault(layer, {})[attribute] = tensor
        modules, prefix = dict(model.named_modules()), f"{model.base_model_prefix}."
        tied = model.get_output_embeddings() if model.config.get_text_config().tie_word_embeddings else None
        for stored_name, tensors in stored.items():
            # A model may be loaded without its head, or from a file of one.
            names = stored_name, stored_name.removeprefix(prefix), prefix + stored_name
            name = next((name for name in names if name in modules), None)
            if name is None and ".experts." in stored_name:
                raise ValueError(f"layer {stored_name}: experts in one tensor are not supported")
            # transformers reports other tensors that the model does not expect.
            if name is None:
                continue
            module = modules[name]
            if not isinstance(module, nn.Linear | Conv1D) or module is tied:
                kind = "a layer that shares its weight" if module is tied else type(module).__name__
                raise ValueError(f"layer {name}: expected a linear layer for quantised weights, got {kind}")
            missing = [each for each in self.stored_names if each not in tensors and each != "g_idx"]
            if missing:
                raise ValueError(f"layer {name}: the checkpoint lacks {', '.join(missing)}")
            model.set_submodule(name, _StoredLinear(module, tensors))

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> None:
        for name, module in list(model.named_modules()):
            if isinstance(module, _StoredLinear):
                try:
                    packed = self.repacked(module)
                except ValueError as error:
                    raise ValueError(f"layer {name}: {error}") from error
                if module.shape not in (None, packed.weight.shape):
                    raise ValueError(f"layer {name}: the file has {packed.weight.shape}, the model {module.shape}")
                model.set_submodule(name, packed)

    def repacked(self, stored: Any) -> QuantizedLinear:
        raise NotImplementedError

    def is_serializable(self) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def is_compileable(self) -> bool:
        return True


class _GptqQuantizer(_Quantizer):
    stored_names = ("qweight", "qzeros", "scales", "g_idx")

    def repacked(self, stored: Any) -> QuantizedLinear:
        config = self.quantization_config
        return from_gptq(
            stored.qweight,
            stored.qzeros,
            stored.scales,
            getattr(stored, "g_idx", None),
            stored.bias,
            bits=config.bits,
            checkpoint_format=config.format,
        )


class _AwqQuantizer(_Quantizer):
    stored_names = ("qweight", "qzeros", "scales")

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Iterable[str] = (), **kwargs: Any
    ) -> None:
        config, kind = self.quantization_config, model.config.model_type
        if config.format != "gemm" or config.bits != 4 or kind in AWQ_SCALES_MAPPINGS:
            raise ValueError(
                f"torch_opencl.integrations: expected an AWQ checkpoint of version gemm and 4 bits without scaled "
                f"activations, got version {config.format}, {config.bits} bits, model type {kind}"
            )
        super()._process_model_before_weight_loading(model, checkpoint_files, **kwargs)

    def repacked(self, stored: Any) -> QuantizedLinear:
        return from_awq(stored.qweight, stored.qzeros, stored.scales, stored.bias)


_CHOSEN_BY_ACCELERATE = ("auto", "balanced", "balanced_low_0", "sequential")
_QUANTIZERS = {"awq": _AwqQuantizer, "gptq": _GptqQuantizer}
_originals: dict[str, type[HfQuantizer]] = {}


def enable() -> None:
    """Load these checkpoints into this package's layers."""
    if not _originals:
        _originals.update({name: AUTO_QUANTIZER_MAPPING[name] for name in _QUANTIZERS})
        AUTO_QUANTIZER_MAPPING.update(_QUANTIZERS)


def disable() -> None:
    """Restore transformers' quantizers."""
    AUTO_QUANTIZER_MAPPING.update(_originals)
    _originals.clear()


def _is_opencl(device: Any) -> bool:
    # An integer is an index of the accelerator, and accelerate chooses devices for the names.
    is_chosen = device is None or isinstance(device, int) or device in _CHOSEN_BY_ACCELERATE
    return is_chosen or torch.device(device).type == "opencl"
