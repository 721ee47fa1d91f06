"""Compares wheels and source distributions with the files that git tracks: none may be missing or superfluous.

    python scripts/check_release.py dist/release/*.whl dist/release/*.tar.gz

Exits with 1 if one is wrong, and prints the problems.
"""

import fnmatch
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from build_support.checks import supported_releases

PACKAGE = "python/torch_opencl"
# The tracked files that a build reads.
FOLDERS = (PACKAGE, "python/launch", "rust", "cpp", "build_support", "tests/rust")
FILES = ("build.rs", "native_functions.yaml", "Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE-*")
# The largest file that a package index accepts by default.
MOST_BYTES = 100 << 20


def tracked(*paths: str) -> set[str]:
    """The tracked files under some paths."""
    listing = subprocess.run(["git", "ls-files", *paths], check=True, capture_output=True, text=True).stdout
    return set(listing.split())


def wheel_problems(path: Path) -> list[str]:
    """Return the problems with the contents of a wheel."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        damaged = archive.testzip()
    problems = [f"{damaged} is damaged"] if damaged else []
    sources = {name.removeprefix("python/") for name in tracked(PACKAGE) if name.endswith((".py", ".h", "py.typed"))}
    problems += [f"lacks {name}" for name in sorted(sources - names)]
    expected = ("torch_opencl/lib/*/libtorch_opencl.so", "torch_opencl/lib/*/build_info.json")
    for pattern in (*expected, "*.dist-info/licenses/LICENSE-*", "*.dist-info/entry_points.txt"):
        if not fnmatch.filter(names, pattern):
            problems.append(f"lacks {pattern}")
    releases = supported_releases()
    packed = {name.split("/")[2] for name in fnmatch.filter(names, expected[0])}
    if ".post" not in path.name and packed != set(releases):
        problems.append(f"has libraries for PyTorch {', '.join(sorted(packed))}, not for {', '.join(releases)}")
    others = {name for name in names if not name.startswith(("torch_opencl/", "torch_opencl_rs"))}
    return problems + [f"has {name}, which belongs to another package" for name in sorted(others)]


def sdist_problems(path: Path) -> list[str]:
    """Return the problems with the contents of a source distribution."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    built = {name for name in names if name.endswith((".so", ".pyc")) or name.startswith("target/")}
    lacking = sorted(tracked(*FOLDERS, *FILES) - names)
    return [f"lacks {name}" for name in lacking] + [f"has {name}, which is generated" for name in sorted(built)]


def main(paths: list[str]) -> int:
    """Check the files, by their suffix."""
    failed = False
    for path in map(Path, paths):
        problems = wheel_problems(path) if path.suffix == ".whl" else sdist_problems(path)
        if path.stat().st_size >= MOST_BYTES:
            problems.append(f"is larger than {MOST_BYTES >> 20} MiB")
        failed |= bool(problems)
        print(f"{path.name}: {'; '.join(problems) or 'ok'}")
    return int(failed or not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
