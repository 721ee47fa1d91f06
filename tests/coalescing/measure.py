"""Builds the plugin, runs groups of calls under Oclgrind, and reads what the plugin counted.

Not with tests/python/process_runner.py: a group is one command without a time limit, whose output is shown whole.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As left by `make build`, with packed arguments, and with line numbers of the files in `rust`.
KERNELS = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target")) / "release" / "kernels"
# The folders where Debian and Oclgrind's own build install its ICD.
DRIVERS = [
    Path(folder) / "liboclgrind-rt-icd.so"
    for folder in ("/usr/lib/oclgrind", "/usr/local/lib", "/usr/lib", "/usr/lib64")
]
# Work is divided among as many compute units as a small GPU has, so that small tensors are enough.
COMPUTE_UNITS = 8
# Work-items that a GPU runs in step, as in plugin.cpp.
WARP = 32


class MissingError(Exception):
    """A missing installation; the message says how to get it."""


@dataclass
class Access:
    """Loads or stores of one line of a kernel, in all launches of a call.

    Args:
        stores: whether the line stores.
        where: the lines that led to it, as file:line, outermost first.
        requests: the loads or stores of whole warps.
        sectors: the 32-byte sectors that the requests touch.
        least: the fewest sectors for the bytes that they touch.
    """

    stores: bool
    where: tuple[str, ...]
    requests: int = 0
    sectors: int = 0
    least: int = 0

    @property
    def efficiency(self) -> float:
        """The fewest sectors over the touched ones: 1 is coalesced."""
        return self.least / max(self.sectors, 1)


@dataclass
class Use:
    """One call's use of a kernel.

    Args:
        group: the call's group.
        call: its name.
        kernel: the kernel's name.
        accesses: by line and by load or store.
        total: loads and stores of all work-items.
        longest: loads and stores of the busiest work-item.
        used: the fewest sectors for the bytes that a work-group touches, summed over work-groups.
        fetched: the sectors that the work-groups touch.
        narrow: loads and stores of launches with several work-groups that are smaller than a warp.
    """

    group: str
    call: str
    kernel: str
    accesses: dict[tuple[bool, tuple[str, ...]], Access] = field(default_factory=dict)
    total: int = 0
    longest: int = 0
    used: int = 0
    fetched: int = 0
    narrow: int = 0

    @property
    def sectors(self) -> int:
        """Sectors that all requests touch."""
        return sum(access.sectors for access in self.accesses.values())

    @property
    def cached(self) -> float:
        """The used part of the sectors, if a work-group fetches each only once."""
        return self.used / max(self.fetched, 1)

    @property
    def parallel(self) -> float:
        """The number of work-items the work would keep busy if all had as much as the busiest one."""
        return self.total / max(self.longest, 1)


class Sources:
    """Maps a line of a program, which is made of several files, to its file and line."""

    def __init__(self, folder: Path = KERNELS):
        self.places: dict[tuple[str, ...], str] = {}
        for file in sorted(folder.glob("*.cl")):
            lines = ["", *(line.rstrip() for line in file.read_text().splitlines()), ""]
            for number in range(1, len(lines) - 1):
                self.places.setdefault(tuple(lines[number - 1 : number + 2]), f"{file.name}:{number}")

    def place(self, frame: list[str]) -> str:
        """Find a line.

        Args:
            frame: the line before, the line, and the one after.

        Returns:
            "file:line", or the line itself if no file has it.
        """
        stripped = tuple(line.rstrip() for line in frame)
        return self.places.get(stripped, stripped[1].strip() if len(stripped) > 1 else "?")


def driver() -> Path:
    """Find Oclgrind.

    Returns:
        Its driver for the OpenCL loader.

    Raises:
        MissingError: it is not installed.
    """
    found = next((path for path in DRIVERS if path.exists()), None)
    if found is None:
        raise MissingError("Oclgrind is not installed (Debian: apt-get install oclgrind)")
    return found


def build_plugin(folder: Path) -> Path:
    """Compile the plugin.

    Args:
        folder: where it goes.

    Returns:
        Its path.

    Raises:
        MissingError: the compiler or the headers are missing.
    """
    driver()
    library = folder / "coalescing.so"
    # Oclgrind is built without run-time type information: a plugin with it would not load.
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-fno-rtti"]
    probe = "#include <CL/cl.h>\n#include <oclgrind/Plugin.h>\n"
    try:
        command = [os.environ.get("CXX", "g++"), *flags]
        found = subprocess.run(
            [*command, "-E", "-x", "c++", "-"], input=probe, text=True, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise MissingError("no C++ compiler found (Debian: apt-get install g++)") from None
    if found.returncode != 0:
        raise MissingError(
            "the headers for Oclgrind's plugins are not installed "
            "(Debian: apt-get install liboclgrind-dev opencl-c-headers)"
        )
    subprocess.run([*command, str(HERE / "plugin.cpp"), "-o", str(library), "-loclgrind"], check=True)
    return library


def run(plugin: Path, group: str, names: list[str], folder: Path) -> list[Use]:
    """Run a group of calls.

    Args:
        plugin: what :func:`build_plugin` returned.
        group: a key of ``calls.GROUPS``.
        names: the calls to run; empty for all.
        folder: where its files are written.

    Returns:
        Each call's use of each of its kernels.

    Raises:
        RuntimeError: a call failed.
    """
    (folder / "oclgrind.icd").write_text(f"{driver()}\n")
    log = folder / f"{group}.json"
    log.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_PLUGINS": str(plugin),
        "OCLGRIND_COMPUTE_UNITS": str(COMPUTE_UNITS),
        "COALESCING_LOG": str(log),
        "TORCH_OPENCL_DEVICE_CLASS": "gpu",
        "TORCH_OPENCL_BLAS": "opencl",
        "TORCH_OPENCL_CACHE_DIR": "",
        "TORCH_OPENCL_SPECIALIZE": "eager",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])),
    }
    refused = _work(group, names, environment)
    if refused:
        # With optimisation, clang calls llvm.abs and other functions that Oclgrind 21.10 does not implement.
        refused = _work(group, refused, {**environment, "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable"})
    if refused:
        raise RuntimeError(f"Oclgrind cannot run {', '.join(refused)} of {group}")
    return read(log, group)


def _work(group: str, names: list[str], environment: dict[str, str]) -> list[str]:
    """Run a worker; return the calls whose kernels use a function that Oclgrind does not implement."""
    done = subprocess.run(
        [sys.executable, "-m", "coalescing.worker", group, *names],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the calls of {group} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [line.removeprefix("refused: ") for line in done.stdout.splitlines() if line.startswith("refused: ")]


def read(log: Path, group: str, sources: Sources | None = None) -> list[Use]:
    """Read the plugin's log.

    Args:
        log: its file.
        group: the group of the calls in it.
        sources: maps the kernels' lines to files.

    Returns:
        Each call's use of each of its kernels.
    """
    sources = sources or Sources()
    uses: dict[tuple[str, str], Use] = {}
    call = ""
    for line in log.read_text().splitlines():
        launch = json.loads(line)
        if "call" in launch:
            call = launch["call"]
            # A call that was refused part-way is run again from the start.
            for key in [key for key in uses if key[0] == call]:
                del uses[key]
            continue
        use = uses.setdefault((call, launch["kernel"]), Use(group, call, launch["kernel"]))
        use.total += launch["accesses"]
        use.longest = max(use.longest, launch["longest"])
        use.used += launch["used"]
        use.fetched += launch["fetched"]
        if prod(launch["local"]) < WARP and prod(launch["global"]) > prod(launch["local"]):
            use.narrow += launch["accesses"]
        for site in launch["sites"]:
            where = tuple(sources.place(frame) for frame in site["frames"])
            access = use.accesses.setdefault((site["stores"], where), Access(site["stores"], where))
            access.requests += site["requests"]
            access.sectors += site["sectors"]
            access.least += site["least"]
    return list(uses.values())
