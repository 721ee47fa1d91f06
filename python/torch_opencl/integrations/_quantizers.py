"""transformers: GPTQ and AWQ checkpoints become layers of :mod:`torch_opencl.quantized` while they are loaded."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers.integrations.awq import AWQ_SCALES_MAPPINGS
from transformers.modeling_utils import load_state_dict
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.quantizers.base import HfQuantizer

from torch_opencl.repack import from_awq, from_gptq

__all__ = ["disable", "enable"]


class _StoredLinear(nn.Module):
    """Receives the tensors of a quantised linear layer from a checkpoint, until they are packed again."""

    def __init__(self, linear: Any, shapes: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, stored in shapes.items():
            # The dtype of the file, which scales keep whatever the dtype of the model is.
            self.register_buffer(name, torch.empty_like(stored, device="meta"))
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
        modules = dict(model.named_modules())
        for name, shapes in stored.items():
            if name not in modules:
                raise ValueError(f"torch_opencl.integrations: the model has no layer {name}, which the checkpoint has")
            model.set_submodule(name, _StoredLinear(modules[name], shapes))

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> None:
        for name, module in list(model.named_modules()):
            if isinstance(module, _StoredLinear):
                try:
                    model.set_submodule(name, self.repacked(module))
                except ValueError as error:
                    raise ValueError(f"layer {name}: {error}") from error

    def repacked(self, stored: Any) -> nn.Module:
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

    def repacked(self, stored: Any) -> nn.Module:
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

    def repacked(self, stored: Any) -> nn.Module:
        return from_awq(stored.qweight, stored.qzeros, stored.scales, stored.bias)


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
    # An integer is an index of the accelerator.
    return device is None or device == "auto" or isinstance(device, int) or torch.device(device).type == "opencl"
