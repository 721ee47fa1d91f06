"""Lightning: ``Trainer(accelerator="opencl")`` and ``Fabric(accelerator="opencl")``.

The accelerator is added to Lightning's registries when Lightning is imported. For single-device training, sharding and
mixed precision, functions of Lightning have lists of the devices that they know, or treat a device with an index as a
CUDA device. These functions are replaced when the accelerator is first created; for other accelerators they do the same
as before.
"""

import importlib
import sys
import warnings
from functools import cache
from types import ModuleType
from typing import Any

import torch

import torch_opencl
from torch_opencl._utils import _get_device_index
from torch_opencl.integrations._changes import Changes

__all__ = ["accelerator_class", "disable", "enable", "register"]


def enable() -> None:
    """Make Lightning use OpenCL, also for ``accelerator="auto"``; see :func:`torch_opencl.integrations.enable`."""
    for package in _PACKAGES:
        importlib.import_module(f"{package}.accelerators")
        register(sys.modules[f"{package}.accelerators"])
        _changes(package).apply()
        _chosen(package).apply()


def disable() -> None:
    """Undo the changes of :func:`enable`; the accelerator stays in the registries."""
    for package in _PACKAGES:
        _changes(package).undo()
        _chosen(package).undo()


def register(module: ModuleType) -> None:
    """Add the accelerator to Lightning's registry, unless it is there.

    Args:
        module: ``lightning.pytorch.accelerators`` or ``lightning.fabric.accelerators``.
    """
    package = module.__name__.removesuffix(".accelerators")
    registry = getattr(module, _PACKAGES[package]["registry"], None)
    if registry is None:
        warnings.warn(f"{package} has no registry of accelerators that torch_opencl knows", stacklevel=2)
    elif "opencl" not in registry:
        registry.register("opencl", accelerator_class(package), description="OpenCL devices")


@cache
def accelerator_class(package: str = "lightning.pytorch") -> type:
    """Return the class of accelerators, for ``Trainer(accelerator=accelerator_class()())``.

    Args:
        package: ``lightning.pytorch`` or ``lightning.fabric``.

    Returns:
        A subclass of the package's ``Accelerator``.

    Raises:
        ImportError: Lightning is not installed.
    """
    base: Any = importlib.import_module(f"{package}.accelerators.accelerator").Accelerator

    class OpenCLAccelerator(base):
        """OpenCL devices."""

        def __init__(self) -> None:
            super().__init__()
            _changes(package).apply()

        def __reduce__(self) -> Any:
            # Spawned processes unpickle the trainer. Pickle would look up the class by name, but it is a local class.
            return _accelerator, (package,)

        def setup_device(self, device: torch.device) -> None:
            if device.type != "opencl":
                raise ValueError(f"Device should be opencl, got {device} instead.")
            torch_opencl.set_device(device)

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(torch_opencl.memory_stats(device))

        def teardown(self) -> None:
            torch_opencl.empty_cache()

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            return _parsed(devices)

        @staticmethod
        def get_parallel_devices(devices: Any) -> list[torch.device]:
            return [torch.device("opencl", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return torch_opencl.device_count()

        @staticmethod
        def is_available() -> bool:
            return torch_opencl.is_available()

        @staticmethod
        def name() -> str:
            return "opencl"

    OpenCLAccelerator.__qualname__ = "OpenCLAccelerator"
    return OpenCLAccelerator


def _accelerator(package: str) -> Any:
    return accelerator_class(package)()


def _parsed(devices: Any) -> list[int]:
    """The indices for an argument ``devices``: a number of devices, or a list or string of indices."""
    count = torch_opencl.device_count()
    if isinstance(devices, str):
        # A string with a single number gives the number of devices, as for other accelerators.
        devices = [each for each in devices.split(",") if each.strip()] if "," in devices else int(devices)
    if isinstance(devices, int):
        devices = range(count if devices == -1 else devices)
    indices = [each if isinstance(each, int) else _index(each) for each in devices]
    if missing := [index for index in indices if not 0 <= index < count]:
        raise ValueError(f"there are {count} OpenCL devices, and devices {missing} were requested")
    return indices


def _index(device: str | torch.device) -> int:
    text = str(device).strip()
    return int(text) if text.isdigit() else _get_device_index(text, optional=True)


# Names in each package: the registry, the replaced functions, and what the replacements use.
_PACKAGES: dict[str, dict[str, str]] = {
    "lightning.pytorch": {
        "registry": "AcceleratorRegistry",
        "connector": "lightning.pytorch.trainer.connectors.accelerator_connector:_AcceleratorConnector",
        "precision_module": "lightning.pytorch.plugins.precision.amp",
        "single": "lightning.pytorch.strategies.single_device",
        "device_ids": "lightning.pytorch.strategies.ddp:DDPStrategy.determine_ddp_device_ids",
        "precision_name": "_precision_flag",
        "precision_plugin": "_precision_plugin_flag",
    },
    "lightning.fabric": {
        "registry": "ACCELERATOR_REGISTRY",
        "connector": "lightning.fabric.connector:_Connector",
        "precision_module": "lightning.fabric.plugins.precision.amp",
        "single": "lightning.fabric.strategies.single_device",
        "device_ids": "lightning.fabric.strategies.ddp:DDPStrategy._determine_ddp_device_ids",
        "precision_name": "_precision_input",
        "precision_plugin": "_precision_instance",
    },
}


def _is_ours(connector: Any, package: str) -> bool:
    return isinstance(connector.accelerator, accelerator_class(package))


@cache
def _changes(package: str) -> Changes:
    """Return the replacements for the accelerator; other accelerators get the original behaviour."""
    names = _PACKAGES[package]

    def choose_strategy(original: Any) -> Any:
        def replacement(self: Any) -> Any:
            if not _is_ours(self, package) or self._num_nodes_flag > 1 or len(self._parallel_devices) != 1:
                return original(self)
            return importlib.import_module(names["single"]).SingleDeviceStrategy(device=self._parallel_devices[0])

        return replacement

    def init_precision(original: Any) -> Any:
        def replacement(self: Any) -> Any:
            precision = getattr(self, names["precision_name"])
            is_mixed = precision in ("16-mixed", "bf16-mixed")
            if _is_ours(self, package) and is_mixed and not getattr(self, names["precision_plugin"]):
                plugin = importlib.import_module(names["precision_module"]).MixedPrecision(precision, "opencl")
                setattr(self, names["precision_plugin"], plugin)
            return original(self)

        return replacement

    def check_strategy(original: Any) -> Any:
        def replacement(self: Any) -> Any:
            if not _is_ours(self, package):
                return original(self)
            # Lightning allows FSDP only for accelerators that have a GPU's name.
            name, self._accelerator_flag = self._accelerator_flag, "gpu"
            try:
                return original(self)
            finally:
                self._accelerator_flag = name

        return replacement

    def device_ids(original: Any) -> Any:
        # With indices the strategy makes a CUDA stream. DistributedDataParallel needs no indices for a single device.
        return lambda self: None if self.root_device.type == "opencl" else original(self)

    def is_oom_error(original: Any) -> Any:
        # The original looks for "CUDA" in the message.
        return lambda exception: original(exception) or isinstance(exception, torch.OutOfMemoryError)

    def collect_garbage(original: Any) -> Any:
        def replacement() -> None:
            original()
            torch_opencl.empty_cache()

        return replacement

    # The batch size finder calls these functions. Fabric has no batch size finder.
    memory = {
        "lightning.pytorch.utilities.memory:is_oom_error": is_oom_error,
        "lightning.pytorch.utilities.memory:garbage_collection_cuda": collect_garbage,
    }
    connector = names["connector"]
    return Changes(
        "lightning",
        {
            **(memory if package == "lightning.pytorch" else {}),
            f"{connector}._choose_strategy": choose_strategy,
            f"{connector}._check_strategy_and_fallback": check_strategy,
            f"{connector}._check_and_init_precision": init_precision,
            names["device_ids"]: device_ids,
        },
    )


@cache
def _chosen(package: str) -> Changes:
    """Return the replacements for ``accelerator="auto"``."""

    def choose(original: Any) -> Any:
        return lambda: "opencl" if torch_opencl.is_available() else original()

    connector = _PACKAGES[package]["connector"]
    return Changes("lightning", {f"{connector}._choose_auto_accelerator": choose})
