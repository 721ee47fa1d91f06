"""``python -m torch_opencl.info``: shows this machine's OpenCL drivers and devices, and whether this package works.

Exits with 0 if a device was found and computes correctly, with 1 otherwise.
"""

import argparse
import glob
import json
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

import torch

from torch_opencl import _driver_functions, _embedded_driver, _lazy, _load, backends, diagnostics

NO_DRIVER = """\
OpenCL needs a driver for the device. On Debian and Ubuntu, as root:
  any processor      apt-get install ocl-icd-libopencl1 pocl-opencl-icd
  Intel graphics     apt-get install ocl-icd-libopencl1 intel-opencl-icd
  AMD graphics       apt-get install ocl-icd-libopencl1 mesa-opencl-icd (then set RUSTICL_ENABLE=radeonsi),
                     or the rocm-opencl-runtime of AMD's ROCm
  NVIDIA graphics    comes with the NVIDIA driver; in a container, with the "compute" capability
Without root, on any x86-64 processor: pip install intel-opencl-rt intel-cmplr-lib-rt"""

NO_PERMISSION = """\
This user may not open {nodes}, so OpenCL drivers cannot see that graphics processor.
As root: usermod -a -G {groups} {user}; then log in again. In a container: --device /dev/dri
with --group-add for the same groups."""

_SPECIALISED = {
    "background": "in the background, once they are worth it, and loaded when first used",
    "eager": "when first used (TORCH_OPENCL_SPECIALIZE=eager)",
    "never": "never (TORCH_OPENCL_SPECIALIZE=never)",
}


def main(arguments: list[str] | None = None) -> int:
    """Print the report.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` by default.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_opencl.info", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args(arguments)
    report = collect()
    print(json.dumps(report, indent=2) if options.json else "\n".join(_lines(report)))
    return 0 if report["ok"] else 1


def collect() -> dict[str, Any]:
    """Collect the report.

    Returns:
        A tree of plain values: the versions, the platforms with their devices, the tuned values, the
        kernel cache, the fallbacks, the result of :func:`self_test` for each device, the mathematical functions that
        its driver lacks (None if a kernel bundle is used, as nothing is compiled then), advice, and ``ok``.
    """
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "library": str(_load.LIBRARY),
        "library_error": _load.error(),
        "platforms": [],
        "devices": [],
    }
    if _load.error() is None:
        native = _load.native()
        report["version"] = _load.build_info()["version"]
        report["built_for"] = _load.build_info()["torch"]
        report |= json.loads(native.platforms())
        report["cause"] = _lazy.no_device_reason()
        report["devices"] = [json.loads(native.device_properties(i)) for i in range(_lazy.device_count())]
        report["self_test"] = [self_test(torch.device("opencl", i)) for i in range(_lazy.device_count())]
        report["lacking_functions"] = [_lacking(torch.device("opencl", i)) for i in range(_lazy.device_count())]
        report["matrix_instructions"] = [_matrix(torch.device("opencl", i)) for i in range(_lazy.device_count())]
        report["blas_obstacles"] = [backends.blas_obstacles(i) for i in range(_lazy.device_count())]
        report["tuning"] = [json.loads(native.tuning(i)) for i in range(_lazy.device_count())]
        report["kernel_cache"] = diagnostics.kernel_cache_info()
        report["fallbacks"] = diagnostics.fallbacks()
    report["advice"] = list(_advice(report))
    report["ok"] = bool(report["devices"]) and all(test["ok"] for test in report["self_test"])
    return report


def self_test(device: torch.device) -> dict[str, Any]:
    """Compare an addition, a matmul and a gradient on a device with the CPU's.

    Args:
        device: the device to test.

    Returns:
        The key ``ok``, and the key ``error`` with the message if it is False. If a kernel bundle lacks a needed
        kernel, the key ``left_out`` says so; the device is not at fault then.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(33, 65, generator=generator)
    weight = torch.randn(65, 17, generator=generator)

    def compute(device: torch.device) -> list[torch.Tensor]:
        w = weight.to(device).requires_grad_()
        y = (x.to(device) + 1) @ w
        (gradient,) = torch.autograd.grad(y.sigmoid().sum(), w)
        return [y.detach().cpu(), gradient.cpu()]

    try:
        torch.testing.assert_close(compute(device), compute(torch.device("cpu")), rtol=1e-4, atol=1e-4)
    except NotImplementedError as failure:
        if not diagnostics.kernel_cache_info()["bundle"]:
            return {"ok": False, "error": str(failure)}
        return {"ok": True, "left_out": str(failure)}
    except Exception as failure:
        return {"ok": False, "error": str(failure)}
    return {"ok": True}


def _lacking(device: torch.device) -> dict[str, list[str]] | None:
    return None if diagnostics.kernel_cache_info()["bundle"] else _driver_functions.lacking(device)


def _matrix(device: torch.device) -> dict[str, Any]:
    """Return `backends.matrix_instructions` after a matmul that uses them."""
    try:
        kinds = backends.matrix_instructions(device)["kinds"]
        if "float16" in kinds:
            x = torch.ones(32, 32, dtype=torch.float16, device=device)
            (x @ x).cpu()
        if "int8" in kinds:
            x = torch.ones(32, 32, dtype=torch.int8, device=device)
            torch._int_mm(x, x.t()).cpu()
        return backends.matrix_instructions(device)
    except RuntimeError as failure:  # a wrong setting, or a bundle without the kernel
        return {"kinds": {}, "error": str(failure)}


def _advice(report: dict[str, Any]) -> Iterator[str]:
    if report["library_error"] is None and not report["devices"]:
        if report["platforms"]:
            if "TORCH_OPENCL_DEVICES" in os.environ:
                yield "Unset TORCH_OPENCL_DEVICES to use every device listed above."
        elif _lazy.hiding_setting() != "POCL_CACHE_DIR":
            yield NO_DRIVER
    closed = [node for node in glob.glob("/dev/dri/renderD*") if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        user = os.environ.get("USER", "USER")
        yield NO_PERMISSION.format(nodes=", ".join(closed), groups="render,video", user=user)


def _platform_lines(report: dict[str, Any]) -> Iterator[str]:
    for index, entry in enumerate(report["platforms"]):
        yield ""
        yield f"Platform {index}: {entry['name']} ({entry['vendor']}), {entry['version']}"
        for device in entry["devices"]:
            yield f"  {device['type']}: {device['name']}, driver {device['driver_version']}"
    for duplicate in report.get("left_out", ()):
        yield ""
        yield (
            f"Left out: {duplicate['name']} of {duplicate['platform']}, which is opencl:{duplicate['same_as']}; "
            f'TORCH_OPENCL_DEVICES="{duplicate["platform"]}" selects it'
        )


def _lines(report: dict[str, Any]) -> Iterator[str]:
    yield f"torch {report['torch']}, Python {report['python']}"
    if report["library_error"] is not None:
        yield f"torch_opencl: NOT LOADED: {report['library_error']}"
    else:
        yield f"torch_opencl {report['version']}, built for torch {report['built_for']}: {report['library']}"
    embedded = _embedded_driver.installed_library()
    if embedded is not None and os.environ.get("OCL_ICD_VENDORS") == str(embedded):
        yield f"Driver: Intel's CPU runtime from pip, {embedded}"
    if report.get("cause"):
        yield ""
        yield f"No OpenCL device can be used: {report['cause']}"
    yield from _platform_lines(report)
    for index, device in enumerate(report["devices"]):
        yield ""
        yield f"opencl:{index}"
        yield from (f"  {line}" for line in _device_lines(device))
        yield f"  matmuls: {_tuning(report['tuning'][index])}"
        for library, reason in report["blas_obstacles"][index].items():
            yield f"  {library} cannot be used: {reason}"
        yield f"  matrix instructions: {_instructions(report['matrix_instructions'][index])}"
        yield f"  self-test: {_outcome(report['self_test'][index])}"
        for dtype, faults in (report["lacking_functions"][index] or {}).items():
            yield f"  the driver lacks in {dtype}, which operators may need: {', '.join(faults)}"
    if report["devices"]:
        cache = report["kernel_cache"]
        yield ""
        if cache["bundle"]:
            count, path = cache["bundle_programs"], cache["bundle"]
            yield f"Kernel bundle: {path}, {count} programs, {cache['loaded']} of them loaded; nothing is compiled"
        else:
            kept = f"{cache['entries']} programs, {_mib(cache['bytes'])}"
            # With PoCL, an entry only records that the driver's cache has the program.
            if any(device["platform"] == "Portable Computing Language" for device in report["devices"]):
                kept += "; PoCL keeps its programs' binaries in a separate cache"
            yield f"Kernel cache: {cache['path']}, {kept}"
            yield f"Specialised kernels: built {_SPECIALISED[cache['specialize']]}"
        yield f"CPU fallbacks of the self-test: {report['fallbacks'] or 'none'}"
    for advice in report["advice"]:
        yield ""
        yield advice


def _device_lines(device: dict[str, Any]) -> Iterator[str]:
    yield f"{device['name']} ({device['type']}), {device['vendor']}, platform {device['platform']}"
    yield f"{device['version']}, driver {device['driver_version']}"
    yield f"{device['compute_units']} compute units at up to {device['max_clock_mhz']} MHz"
    yield (
        f"memory {_mib(device['global_mem_bytes'])}, largest allocation {_mib(device['max_alloc_bytes'])}, "
        f"local {device['local_mem_bytes'] // 1024} KiB"
        + (", shared with the host" if device["host_unified_memory"] else "")
    )
    yield f"work-group up to {device['max_work_group_size']}, fp64 {device['fp64']}, fp16 {device['fp16']}"
    yield f"extensions: {' '.join(device['extensions'])}"


def _tuning(tuning: dict[str, Any]) -> str:
    return "as by default" if tuning["values"] == tuning["defaults"] else f"tuned, {tuning['path']}"


def _instructions(matrix: dict[str, Any]) -> str:
    if not matrix["kinds"]:
        return matrix.get("error", "none that matmuls use")
    kinds = ", ".join(f"{kind} for {dtype}" for dtype, kind in matrix["kinds"].items())
    kinds += " (emulated)" if matrix["emulated"] else ""
    return f"{kinds}; {matrix['refused']} kernels refused after a check" if matrix["refused"] else kinds


def _mib(size: int) -> str:
    if size < 2**20:
        return f"{size / 2**10:.0f} KiB"
    return f"{size / 2**20:.{0 if size >= 2**24 else 1}f} MiB"


def _outcome(test: dict[str, Any]) -> str:
    if "left_out" in test:
        return f"not run: {test['left_out']}"
    return "ok" if test["ok"] else f"FAILED: {test['error']}"


if __name__ == "__main__":
    sys.exit(main())
