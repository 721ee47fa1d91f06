"""``make gpu-kit``, ``python -m gpu_kit.build``: writes the folder that is taken to a machine with a GPU.

The other side needs Python, the torch that the package was built for and an OpenCL driver: no compiler, no pip, no
network. What the tests import and is pure Python travels along: pytest is used always, the rest where the machine
lacks it.
"""

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "torch_opencl"
MOST_BYTES = 48 << 20
# As they lie in a checkout, which the kit imitates: tests find the table of operators beside them.
COPIED = ("tests/python", "tests/fuzz", "benchmarks", "examples", "native_functions.yaml", "pyproject.toml")
COPIED += ("LICENSE-APACHE", "LICENSE-MIT", "gpu_kit/__init__.py", "gpu_kit/check", "docs/porting.md")
# Tests of what only a checkout has: the build, its sources, the kit.
LEFT_OUT = ("test_setup.py", "test_install.py", "test_kernel_sources.py", "test_oclgrind.py")
LEFT_OUT += ("test_gpu_kit.py", "test_gpu_check.py", "test_gpu_check_drivers.py")
LEFT_OUT += ("test_coalescing.py", "test_gpu_compile.py", "test_drivers.py", "test_releases.py", "test_docs.py")
# Tests of programs that are parts of the check themselves, of the other class of kernels, and of PoCL's cache.
LEFT_OUT += ("test_benchmarks.py", "test_fuzz.py", "test_tune.py", "test_device_class.py", "test_damaged_caches.py")
LEFT_OUT += ("test_sweep.py", "test_upstream.py", "test_models.py", "test_fakes.py", "test_examples.py")
# Tests that take a compiler for C++, or libraries that the kit does not have.
LEFT_OUT += ("test_c_interface.py", "test_bundle.py", "test_integrations.py")
# Tests that read the sources, and of scripts for CUDA, which the machine may have.
LEFT_OUT += ("test_settings.py", "test_build_progress.py", "test_cuda_scripts.py")
# Tests of what devices that are CPUs do.
LEFT_OUT += ("test_small_calls.py", "test_small_layers.py", "test_small_work.py")
# By folder of vendor/ (gpu_kit.check.environment): the distributions in it. typing_extensions, of which those of Python
# 3.10 have need, comes with any torch.
VENDORED = {
    "pytest": ("pytest", "pluggy", "iniconfig", "packaging", "Pygments"),
    "python3.10": ("exceptiongroup", "tomli"),
    "yaml": ("PyYAML",),
    "expecttest": ("expecttest",),
    "tqdm": ("tqdm",),
}
LOADER = "libOpenCL.so.1"
LOADER_LICENCES = (Path("/usr/share/doc/ocl-icd-libopencl1/copyright"),)
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "results", "*.tmp", *LEFT_OUT)


class KitError(Exception):
    """The kit cannot be made; the message says why."""


def build(target: Path, torch: str | None, package: Path = PACKAGE, most_bytes: int = MOST_BYTES) -> Path:
    """Write the kit.

    Args:
        target: the folder that gets the kit's folder.
        torch: the version that the package has to be built for; None for whichever it is.
        package: the folder of the built package ``torch_opencl``.
        most_bytes: the most that the kit may have.

    Returns:
        The kit's folder, such as ``gpu-kit-0.1.0-torch2.11``.

    Raises:
        KitError: the package is not built, or for another torch, or the kit is too large.
    """
    described = description_of(package, torch)
    info = json.loads(described.read_text())
    minor = ".".join(info["torch"].split(".")[:2])
    kit = target / f"gpu-kit-{info['version']}-torch{minor}"
    shutil.rmtree(kit, ignore_errors=True)
    kit.mkdir(parents=True)
    for name in COPIED:
        copy(ROOT / name, kit / name)
    add_package(package, described.parent, kit / "python" / "torch_opencl")
    register(kit / "python", info["version"])
    for folder, names in VENDORED.items():
        for name in names:
            vendor(name, kit / "vendor" / folder)
    add_loader(kit / "lib")
    copy(ROOT / "gpu_kit" / "gpu_check.py", kit / "gpu_check.py")
    copy(ROOT / "gpu_kit" / "KIT.md", kit / "README.md")
    (kit / "kit.json").write_text(json.dumps({name: info[name] for name in ("version", "torch")}) + "\n")
    size = size_of(kit)
    if size > most_bytes:
        raise KitError(f"{kit} has {size / 2**20:.1f} MiB, and {most_bytes / 2**20:.1f} MiB are the most.")
    return kit


def description_of(package: Path, torch: str | None) -> Path:
    """Return the ``build_info.json`` of a built package, which may have libraries for several releases of torch.

    Args:
        package: the package's folder.
        torch: the version that is wanted; None for the only one that there is.

    Raises:
        KitError: there is none, none for that version, or several.
    """
    found = {json.loads(path.read_text())["torch"]: path for path in (package / "lib").rglob("build_info.json")}
    if not found:
        raise KitError(f"{package} has not been built: run `make build` first.")
    if torch is None and len(found) == 1:
        return next(iter(found.values()))
    if torch not in found:
        has = f"{package} was built for torch {', '.join(sorted(found))}"
        raise KitError(
            f"{has}: run `make build TORCH={torch}` first." if torch else f"{has}: say for which, by TORCH=."
        )
    return found[torch]


def add_package(package: Path, library: Path, target: Path) -> None:
    """Copy a built package with the library of one folder and no other; see :func:`description_of`."""
    copy(package, target)
    shutil.rmtree(target / "lib")
    inside = target / library.relative_to(package)
    inside.mkdir(parents=True)
    for path in filter(Path.is_file, library.iterdir()):
        copy(path, inside / path.name)
    strip(inside / "libtorch_opencl.so")


def copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder without what running it has left."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=IGNORED)
    else:
        shutil.copy(source, target)


def strip(library: Path) -> None:
    """Take the symbols from a library that nothing but a debugger needs; left as it is without the tool."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", library], check=True)


def register(folder: Path, version: str) -> None:
    """Write what pip would beside the package, so that ``import torch`` finds its entry point there."""
    information = folder / f"torch_opencl_rs-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-opencl-rs\nVersion: {version}\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nopencl = torch_opencl._autoload:autoload\n")


def vendor(name: str, folder: Path) -> None:
    """Copy the pure Python modules of an installed distribution, and its licence.

    Args:
        name: the distribution. What it has compiled for one Python (PyYAML's) it does without.
        folder: where to.

    Raises:
        KitError: it is not installed.
    """
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        raise KitError(f"{sys.executable} has no {name}, which the kit takes along: run `make setup`.") from None
    for file in files:
        outside = ".." in file.parts
        if not outside and file.suffix not in (".pyc", ".so"):
            copy(Path(file.locate()), folder / file)


def add_loader(folder: Path) -> None:
    """Copy this machine's OpenCL loader and its licence; without one the other machine needs its own."""
    path = loaded_path(LOADER)
    if path is None:
        print(f"The kit has no {LOADER}, as this machine has none: the other one needs its own.", file=sys.stderr)
        return
    copy(path, folder / LOADER)
    for licence in filter(Path.exists, LOADER_LICENCES):
        copy(licence, folder / "LICENCE-ocl-icd")


def loaded_path(library: str) -> Path | None:
    """Return the file that the linker loads for a library's name."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return None
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line)
    return next((path for path in paths if path.name.startswith(library)), None)


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpu_kit.build", description=__doc__)
    parser.add_argument("--torch", help="the version that the package has to be built for")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the built package's folder torch_opencl")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder that gets the kit's folder")
    options = parser.parse_args()
    try:
        kit = build(options.to, options.torch, options.package)
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{kit}: {size_of(kit) / 2**20:.1f} MiB; take it to the other machine, and read its README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
