"""Records the programs that the native library builds for GPUs, with a stub OpenCL driver."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_compile import matrix
from gpu_compile.programs import Launch, Program
from gpu_compile.sources import ROOT, recognise
from gpu_compile.tools import FOLDER

HERE = Path(__file__).parent
DRIVER = HERE / "stub_icd.cpp"
# In the program by which rust/kernels/fma_or_mad.rs measures the device.
PROBE = "CHAIN(fused, fma)"
# Files that the programs and launches depend on. Kernels are not among them: their sources are read at compile time.
ORIGINS = (
    "native_functions.yaml",
    "rust/**/*.rs",
    "cpp/**/*.cpp",
    "cpp/**/*.h",
    "python/**/*.py",
    "benchmarks/**/*.py",
    "tests/fuzz/*.py",
    "tests/python/op_*.py",
    "tests/python/runtime/test_compile.py",
    "tests/gpu_compile/calls.py",
    "tests/gpu_compile/stub_icd.cpp",
    "tests/gpu_compile/matrix.py",
    "tests/gpu_compile/record.py",
)


class RecordError(Exception):
    """The calls could not be recorded."""


def programs(is_sample: bool) -> list[Program]:
    """Return the programs; record them again if a file they depend on has changed.

    Args:
        is_sample: whether to record only the programs of CI's sample.

    Returns:
        The programs, ordered by name.

    Raises:
        RecordError: the calls ended with an error.
    """
    path = FOLDER / ("sample.json" if is_sample else "programs.json")
    key = _key()
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("key") != key:
        print("==> recording the programs built for GPUs", flush=True)
        found = record(["--sample"] if is_sample else []) + matrix.programs(record_calls)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"key": key, "programs": [asdict(program) for program in found]}))
        return found
    return [_from_json(**entry) for entry in known["programs"]]


def _key() -> str:
    """Return a digest of everything that a recording depends on."""
    digest = sha256()
    for pattern in ORIGINS:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _from_json(launches: dict[str, dict[str, int]], **rest: str) -> Program:
    return Program(**rest, launches={kernel: Launch(**launch) for kernel, launch in launches.items()})


def record(arguments: list[str]) -> list[Program]:
    """Run `gpu_compile.calls` on the stub devices.

    Args:
        arguments: its command line.

    Returns:
        The programs that were built, ordered by name.

    Raises:
        RecordError: the process failed, or nothing was built.
    """
    with TemporaryDirectory() as name:
        record_calls(["-m", "gpu_compile.calls", *arguments], Path(name))
        found = read(Path(name))
    if not found:
        raise RecordError("no call built a program")
    return found


def record_calls(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> None:
    """Run Python on the stub devices.

    Args:
        command: the arguments of Python.
        folder: where the driver writes: see `read`.
        variables: additional environment variables.

    Raises:
        RecordError: the process failed.
    """
    paths = (ROOT / "tests", ROOT / "tests" / "python", ROOT, ROOT / "python")
    environment = os.environ | {
        "OPENCL_DYLIB_PATH": str(compile_driver(folder)),
        "STUB_FOLDER": str(folder),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        # Without cached programs and vendor libraries, and with the specialised kernels of large tensors.
        "TORCH_OPENCL_CACHE_DIR": "",
        "POCL_KERNEL_CACHE": "0",
        "TORCH_OPENCL_BLAS": "opencl",
        "TORCH_OPENCL_SPECIALIZE": "eager",
        "TORCH_OPENCL_FALLBACK": "silent",
        "OMP_WAIT_POLICY": "passive",
        **(variables or {}),
    }
    for variable in ("TORCH_OPENCL_DEVICES", "TORCH_OPENCL_DEVICE_CLASS"):
        environment.pop(variable, None)
    status = subprocess.run([sys.executable, *command], env=environment, check=False).returncode
    if status:
        raise RecordError(f"the calls ended with status {status}")


def compile_driver(folder: Path) -> Path:
    """Compile the stub driver.

    Args:
        folder: where to put it.

    Returns:
        The library, for OPENCL_DYLIB_PATH.
    """
    library = folder / "libstub.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", DRIVER, "-o", library], check=True)
    return library


def read(folder: Path) -> list[Program]:
    """Read the output of the stub driver.

    Args:
        folder: its STUB_FOLDER.

    Returns:
        The programs, ordered by name.

    Raises:
        UnknownProgram: a source belongs to no family.
    """
    found: dict[str, Program] = {}
    for path in folder.glob("*.cl"):
        if PROBE not in (source := path.read_text()):
            found[path.stem] = Program(*recognise(source), path.with_suffix(".options").read_text())
    notes = folder / "launches.txt"
    for line in notes.read_text().splitlines() if notes.exists() else []:
        stem, kernel, group, local = line.split()
        if stem not in found:
            continue
        launches = found[stem].launches
        before = launches.get(kernel, Launch(0, 0))
        launches[kernel] = Launch(max(before.group, int(group)), max(before.local, int(local)))
    return sorted(found.values(), key=lambda program: (program.name, program.cases))
