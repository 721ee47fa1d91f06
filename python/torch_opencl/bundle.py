"""``python -m torch_opencl.bundle``: kernels compiled ahead of time, for devices whose drivers have no compiler.

``export FOLDER`` writes the sources of the kernels, ``build FOLDER FILE`` compiles them for a device into one file, and
a process with ``TORCH_OPENCL_KERNEL_BUNDLE=FILE`` loads its kernels from there and compiles none. docs/bundles.md
describes all steps, also with the compilers of FPGA vendors.
"""

import argparse
import hashlib
import json
import os
import runpy
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_opencl import _load
from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._progress import progress_bar
from torch_opencl._utils import DeviceLike, _get_device_index

__all__ = ["build", "export", "main"]

# The format of listings, which are for any device; binaries are for one.
LISTING_FORMAT = "torch-opencl kernel sources 2"
LISTING = "programs.json"


class BundleError(Exception):
    """Raised if a command cannot be carried out; the message says why."""


def export(folder: str | os.PathLike[str], run: Sequence[str] = (), device: DeviceLike = None) -> tuple[int, int]:
    """Write the sources of the kernels that a device may need.

    Args:
        folder: gets a file per program, and ``programs.json`` with the options of each. Created if missing. The
            programs of an earlier export are kept, so that several scripts can share a folder.
        run: a script and its arguments: it is run, and only the programs that it compiles are written. The process
            must not have used the device before: programs that are already loaded are not recorded.
        device: the device; the current one by default.

    Returns:
        The number of programs in the folder, and of kernels in them.

    Raises:
        BundleError: the folder has programs of another version or device.
        RuntimeError: there is no OpenCL device.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if run:
        native().record_programs()
        # The recorded programs must not depend on which small calls the host happens to compute.
        before = native().small_calls()
        native().set_small_calls("kernels")
        try:
            _run(run)
        finally:
            native().set_small_calls(before)
        programs = json.loads(native().recorded_programs())
    else:
        programs = json.loads(native().kernel_catalogue(index))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made_of = _identity(index, ("version", "sources", "device_class"))
    known: dict[str, Any] = {"made_of": made_of, "programs": {}}
    if (target / LISTING).exists():
        known = _read_listing(target)
    if known["made_of"] != made_of:
        raise BundleError(f"{target} has kernels of another version or class of devices: choose an empty folder")
    for program in programs:
        source, key = program.pop("source"), program.pop("key")
        before = known["programs"].get(key)
        merged = _merged(before, program)
        # Another name if the program gets more kernels: a binary beside it is then not used any more.
        kernels = hashlib.sha256(merged["build_options"].encode()).hexdigest()
        name = f"{program['name'].split()[0]}-{key[:16]}-{kernels[:8]}.cl"
        if before is not None and before["file"] != name:
            (target / before["file"]).unlink(missing_ok=True)
        (target / name).write_text(source)
        known["programs"][key] = merged | {"file": name}
    text = json.dumps({"format": LISTING_FORMAT, **known}, indent=1)
    (target / LISTING).write_text(text + "\n")
    return len(known["programs"]), sum(len(each["kernels"]) for each in known["programs"].values())


def build(
    folder: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    binaries: str | None = None,
    device: DeviceLike = None,
    progress: bool = True,
) -> list[str]:
    """Compile the programs of a folder for a device into a bundle.

    Args:
        folder: written by :func:`export`.
        file: the bundle, a zip file; it is replaced at the end.
        binaries: the suffix of binaries that another compiler has made, such as ``".xclbin"``: the file
            ``NAME.xclbin`` of the folder is used for the source ``NAME.cl``, and nothing is compiled.
        device: the device, the current one by default: the bundle is for it and its driver only.
        progress: whether to show the progress on standard error.

    Returns:
        The errors of programs that do not compile or have no binary; the bundle lacks these.

    Raises:
        BundleError: the folder has no programs, programs of another version, or none that compiles.
        RuntimeError: there is no OpenCL device.
    """
    _lazy_init()
    index, source = _get_device_index(device, optional=True), Path(folder)
    listing = _read_listing(source)
    identity = _identity(index)
    for name, value in listing["made_of"].items():
        if identity[name] != value:
            raise BundleError(f"{source} was exported for the {name} {value!r}, and here it is {identity[name]!r}")
    programs: dict[str, dict[str, Any]] = listing["programs"]
    show = progress_bar(len(programs), "OpenCL kernels", "programs") if progress else lambda left: None
    failures: list[str] = []
    contents: dict[str, dict[str, Any]] = {}
    target = Path(file).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".bundle-") as name:
        whole = Path(name) / "bundle"
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            for done, (key, program) in enumerate(programs.items(), 1):
                try:
                    if binaries:
                        kernels = program["kernels"]
                        content = (source / program["file"]).with_suffix(binaries).read_bytes()
                    else:
                        text = _source(source / program["file"], key, program["options"])
                        scratch = Path(name) / "binary"
                        arguments = program["name"], text, program["build_options"], str(scratch)
                        kernels = native().compile_binary(index, *arguments).split(";")
                        content = scratch.read_bytes()
                except (RuntimeError, OSError) as failure:
                    failures.append(f"{program['name']}: {str(failure).strip()}")
                else:
                    archive.writestr(f"programs/{key}.bin", content)
                    digest = hashlib.sha256(content).hexdigest()
                    contents[key] = {"sha256": digest, "name": program["name"], "kernels": kernels}
                show(len(programs) - done)
            archive.writestr("manifest.json", json.dumps(identity | {"programs": contents}, indent=1))
        if not contents:
            raise BundleError("no program has a binary: " + "; ".join(failures[:3]))
        os.replace(whole, target)
    return failures


def _merged(known: dict[str, Any] | None, program: dict[str, Any]) -> dict[str, Any]:
    """A program with the kernels of an earlier export too."""
    if known is None:
        return program
    if "-D ONE_KERNEL" not in known["build_options"]:
        return known
    if "-D ONE_KERNEL" not in program["build_options"]:
        return program
    kernels = sorted({*known["kernels"], *program["kernels"]})
    guards = "".join(f" -D KERNEL_{kernel}=1" for kernel in kernels)
    return program | {"kernels": kernels, "build_options": f"{program['options']} -D ONE_KERNEL{guards}"}


def _source(path: Path, key: str, options: str) -> str:
    """A source, unchanged since its export: a process finds a program by the hash of its source and options."""
    text = path.read_text()
    if hashlib.sha256(options.encode() + b"\0" + text.encode()).hexdigest() != key:
        raise RuntimeError(f"{path.name} has changed since its export: export again")
    return text


def _identity(index: int, names: Sequence[str] = ()) -> dict[str, str]:
    everything = json.loads(native().bundle_identity(index))
    return {name: everything[name] for name in names or everything}


def _read_listing(folder: Path) -> dict[str, Any]:
    try:
        listing = json.loads((folder / LISTING).read_text())
    except (OSError, ValueError) as failure:
        raise BundleError(
            f"cannot read {LISTING} in {folder} ({failure}): `python -m torch_opencl.bundle export` writes it"
        ) from failure
    if listing.pop("format", None) != LISTING_FORMAT:
        raise BundleError(f"{folder / LISTING} does not have the format {LISTING_FORMAT!r}: choose an empty folder")
    return listing


def _run(command: Sequence[str]) -> None:
    """Run a script as Python would, in this process."""
    before, sys.argv = sys.argv, list(command)
    sys.path.insert(0, str(Path(command[0]).resolve().parent))
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise BundleError(f"{command[0]} exited with status {end.code}") from end
    finally:
        sys.argv = before
        sys.path.pop(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` by default.

    Returns:
        The exit code: 1 if a program could not be compiled, 2 if the command failed.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_opencl.bundle", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="write the kernels' sources, and list their entry points")
    exporting.add_argument("folder", help="the folder to write to")
    exporting.add_argument("--device", help="such as opencl:1; the first by default")
    exporting.add_argument(
        "--max-kernels", type=int, metavar="N", help="fail if there are more, and list them by family of operators"
    )
    exporting.add_argument(
        "--run",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="SCRIPT",
        help="a script and its arguments: write only the kernels that it uses",
    )
    building = commands.add_parser("build", help="compile them for a device into a bundle")
    building.add_argument("folder", help="the folder that export has written")
    building.add_argument("file", help="the bundle")
    building.add_argument("--device", help="such as opencl:1; the first by default")
    building.add_argument("--binaries", metavar="SUFFIX", help="use NAME.SUFFIX next to NAME.cl, and compile nothing")
    options = parser.parse_args(arguments)
    try:
        return _export(options) if options.command == "export" else _build(options)
    except (BundleError, _load.LibraryError, OSError) as failure:
        print(f"{parser.prog}: {failure}", file=sys.stderr)
        return 2


def _export(options: argparse.Namespace) -> int:
    programs, kernels = export(options.folder, options.run, options.device)
    print(f"{options.folder}: {programs} programs with {kernels} kernels")
    if options.max_kernels is None or kernels <= options.max_kernels:
        return 0
    print(f"More than {options.max_kernels} kernels. By family of operators, the smallest first:", file=sys.stderr)
    for family, names in _by_family(Path(options.folder)):
        print(f"  {family}: {', '.join(names)}", file=sys.stderr)
    return 1


def _by_family(folder: Path) -> list[tuple[str, list[str]]]:
    """The kernels of each family of operators, families with few kernels first."""
    families: dict[str, list[str]] = {}
    for program in _read_listing(folder)["programs"].values():
        families.setdefault(program["name"].split()[0], []).extend(program["kernels"])
    found = [(family, sorted(names)) for family, names in families.items()]
    return sorted(found, key=lambda each: (len(each[1]), each))


def _build(options: argparse.Namespace) -> int:
    ending = f".{options.binaries.removeprefix('.')}" if options.binaries else None
    failures = build(options.folder, options.file, binaries=ending, device=options.device)
    print(f"{options.file}: {os.path.getsize(options.file) / 2**20:.1f} MiB")
    for failure in failures:
        print(f"left out: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
