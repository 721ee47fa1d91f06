"""``make gpu-kit``, ``python -m gpu_kit.build``: writes the folder to copy to a machine with a GPU.

That machine needs Python, the torch that the package was built for and an OpenCL driver: no compiler, no pip, no
network. The kit has the pure Python modules that the tests import: its pytest is always used, the others if the
machine lacks them.
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
# The kit has the folders of a checkout, because tests look for the table of operators there.
COPIED = ("tests/python", "tests/fuzz", "benchmarks", "examples", "native_functions.yaml", "pyproject.toml")
COPIED += ("LICENSE-APACHE", "LICENSE-MIT", "gpu_kit/__init__.py", "gpu_kit/check", "docs/porting.md")
# Tests of parts that only a checkout has: the build, its sources, the kit.
LEFT_OUT = ("test_setup.py", "test_install.py", "test_kernel_sources.py", "test_oclgrind.py")
LEFT_OUT += ("test_gpu_kit.py", "test_gpu_check.py", "test_gpu_check_drivers.py")
LEFT_OUT += ("test_coalescing.py", "test_gpu_compile.py", "test_drivers.py", "test_releases.py", "test_docs.py")
LEFT_OUT += ("test_house.py", "test_tile_layouts.py")
# Tests of programs that are parts of the check, of the other class of kernels, and of PoCL's cache.
LEFT_OUT += ("test_benchmarks.py", "test_fuzz.py", "test_tune.py", "test_device_class.py", "test_damaged_caches.py")
LEFT_OUT += ("test_process_runner.py", "test_sample.py")
LEFT_OUT += ("test_sweep.py", "test_upstream.py", "test_models.py", "test_fakes.py", "test_examples.py")
# Tests that need a C++ compiler, or libraries that the kit does not have.
LEFT_OUT += ("test_c_interface.py", "test_cublas.py", "test_bundle.py", "test_integrations.py", "test_quantized.py")
# Tests that read the sources, and tests of scripts for CUDA, which the machine may have.
LEFT_OUT += ("test_settings.py", "test_build_progress.py", "test_cuda_scripts.py")
# A test of networks.
LEFT_OUT += ("test_distributed_hosts.py",)
# Tests of CPU devices.
LEFT_OUT += ("test_small_calls.py", "test_small_layers.py", "test_small_work.py", "test_attention_instructions.py")
# The distributions in each folder of vendor/ (gpu_kit.check.environment). typing_extensions, which the
# distributions for Python 3.10 need, comes with any torch.
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
        torch: the version that the package must be built for; None for any.
        package: the folder of the built package ``torch_opencl``.
        most_bytes: the most bytes of the kit.

    Returns:
        The kit's folder, such as ``gpu-kit-0.1.0-torch2.11``.

    Raises:
        KitError: the package is not built, or built for another torch, or the kit is too large.
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
        raise KitError(f"{kit} has {size / 2**20:.1f} MiB, but at most {most_bytes / 2**20:.1f} MiB are allowed.")
    return kit


def description_of(package: Path, torch: str | None) -> Path:
    """Return the ``build_info.json`` of a built package, which may have libraries for several releases of torch.

    Args:
        package: the package's folder.
        torch: the requested version; None for the only one.

    Raises:
        KitError: there is none, none for that version, or several without a requested version.
    """
    found = {json.loads(path.read_text())["torch"]: path for path in (package / "lib").rglob("build_info.json")}
    if not found:
        raise KitError(f"{package} has not been built: run `make build` first.")
    if torch is None and len(found) == 1:
        return next(iter(found.values()))
    if torch not in found:
        has = f"{package} was built for torch {', '.join(sorted(found))}"
        raise KitError(f"{has}: run `make build TORCH={torch}` first." if torch else f"{has}: choose one with TORCH=.")
    return found[torch]


def add_package(package: Path, library: Path, target: Path) -> None:
    """Copy a built package with only the library of one folder; see :func:`description_of`."""
    copy(package, target)
    shutil.rmtree(target / "lib")
    inside = target / library.relative_to(package)
    inside.mkdir(parents=True)
    for path in filter(Path.is_file, library.iterdir()):
        copy(path, inside / path.name)
    strip(inside / "libtorch_opencl.so")


def copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder without generated files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=IGNORED)
    else:
        shutil.copy(source, target)


def strip(library: Path) -> None:
    """Remove a library's symbols that only a debugger needs; does nothing without the tool."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", library], check=True)


def register(folder: Path, version: str) -> None:
    """Write the metadata that pip would write, so that ``import torch`` finds the entry point."""
    information = folder / f"torch_opencl_rs-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-opencl-rs\nVersion: {version}\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nopencl = torch_opencl._autoload:autoload\n")


def vendor(name: str, folder: Path) -> None:
    """Copy the pure Python modules of an installed distribution, and its licence.

    Args:
        name: the distribution. It must work without its modules compiled for one Python, as PyYAML does.
        folder: the target folder.

    Raises:
        KitError: it is not installed.
    """
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        raise KitError(f"{sys.executable} lacks {name}, which the kit contains: run `make setup`.") from None
    for file in files:
        outside = ".." in file.parts
        if not outside and file.suffix not in (".pyc", ".so"):
            copy(Path(file.locate()), folder / file)


def add_loader(folder: Path) -> None:
    """Copy this machine's OpenCL loader and its licence; without one the other machine needs its own."""
    path = loaded_path(LOADER)
    if path is None:
        print(f"The kit has no {LOADER}, because this machine has none: the other machine needs one.", file=sys.stderr)
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
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpu_kit.build", description=__doc__)
    parser.add_argument("--torch", help="the version that the package must be built for")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the built package's folder torch_opencl")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder that gets the kit's folder")
    options = parser.parse_args()
    try:
        kit = build(options.to, options.torch, options.package)
    except KitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{kit}: {size_of(kit) / 2**20:.1f} MiB; copy it to the other machine, and read its README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
