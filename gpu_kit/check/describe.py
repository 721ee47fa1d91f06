"""``python -m gpu_kit.check.describe FILE``: describes the machine; needs neither torch nor OpenCL.

Writes objects as lines of JSON, each as soon as it is known. torch is queried in separate processes, with and without
this backend.
"""

import glob
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu_kit.check.drivers import answer, drivers, platforms
from gpu_kit.check.environment import NVIDIA_FOLDERS

SECONDS = 60
# Prints the vendor's device, "none" if PyTorch has none, and whether it computes.
ACCELERATOR = """
import json, torch
kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
name = getattr(torch, kind.type).get_device_name() if kind else None
works = bool((torch.ones(4, device=kind) + 1).sum().item() == 8) if kind else None
print(json.dumps({"torch": torch.__version__, "accelerator": kind.type if kind else "none", "name": name,
                  "works": works, "cuda": torch.version.cuda, "hip": torch.version.hip}))
"""
# Tests the vendor's device together with this backend, which is then PyTorch's accelerator.
BESIDE = """
import json, sys, torch
kind = sys.argv[1]
ours = (torch.ones(4, device="opencl") + 1).sum().item()
theirs = (torch.ones(4, device=kind) + 1).sum().item()
found = {"works": [ours, theirs] == [8, 8], "results": [ours, theirs]}
try:
    found["moved"] = torch.ones(4, device=kind).to("opencl").to(kind).sum().item() == 4
except Exception as error:
    found["moved"] = str(error)[:300]
print(json.dumps(found))
"""


def describe() -> Iterator[dict[str, Any]]:
    """Yield the description in parts."""
    yield {
        "python": sys.version,
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "nvidia_libraries": sorted(path for folder in NVIDIA_FOLDERS for path in glob.glob(f"{folder}/libnvidia-*")),
        "variables": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("TORCH", "OCL", "OPENCL", "CUDA", "NVIDIA", "RUSTICL", "POCL", "LD_", "OMP"))
        },
        "nvidia_smi": _output(["nvidia-smi"]),
    }
    yield {"platforms": platforms()}
    yield {"drivers": list(drivers())}
    vendor = answer(["-c", ACCELERATOR], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, SECONDS)
    yield {"vendor": vendor}
    kind = vendor.get("accelerator", "none")
    if kind != "none":
        yield {"beside": answer(["-c", BESIDE, kind], {}, SECONDS)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", buffering=1) as file:
        for found in describe():
            file.write(json.dumps(found) + "\n")
            # Output shows the parent process that this one does not hang.
            print(*found, flush=True)
