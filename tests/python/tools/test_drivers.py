"""scripts/driver.sh runs a command with one OpenCL driver, and installs it only inside the checkout."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "driver.sh"
HAS_RUSTICL = Path("/etc/OpenCL/vendors/rusticl.icd").exists()

needs_no_rusticl = pytest.mark.skipif(HAS_RUSTICL, reason="this machine has rusticl, which is used directly")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script, and with tools that only record their arguments."""
    (tmp_path / "scripts").mkdir()
    for name in (SCRIPT.name, "requirements-intel.txt", "requirements-fpga.txt"):
        shutil.copy(SCRIPT.with_name(name), tmp_path / "scripts")
    tool(tmp_path, "id", "echo 0")
    tool(tmp_path, "debootstrap", 'echo "$@"; for place; do [ "${place%.partial}" = "$place" ] || mkdir "$place"; done')
    tool(tmp_path, "unshare", 'echo "$OCL_ICD_VENDORS $RUSTICL_ENABLE $@"')
    return tmp_path


def tool(checkout: Path, name: str, script: str) -> None:
    path = checkout / "tools" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def run_with(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{checkout / 'tools'}:{os.environ['PATH']}", **variables}
    for name in ("OCL_ICD_VENDORS", "RUSTICL_ENABLE", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    script = str(checkout / "scripts" / "driver.sh")
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("rusticl",), ("cuda", "true")])
def test_invalid_arguments_are_refused(checkout: Path, arguments: tuple[str, ...]) -> None:
    done = run_with(checkout, *arguments)
    assert done.returncode == 1 and "intel" in done.stderr and "rusticl" in done.stderr


from_pip = pytest.mark.parametrize("driver, name", [("intel", "libintelocl.so"), ("fpga", "libintelocl_emu.so")])


@from_pip
def test_a_command_sees_the_driver_and_separate_caches(checkout: Path, driver: str, name: str) -> None:
    library = checkout / ".drivers" / driver / "lib" / name
    library.parent.mkdir(parents=True)
    library.touch()
    done = run_with(checkout, driver, "env")
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert variables["OCL_ICD_VENDORS"] == variables["OCL_ICD_FILENAMES"] == str(library)
    assert variables["LD_LIBRARY_PATH"] == str(library.parent)
    assert variables["XDG_CACHE_HOME"] == str(checkout / ".drivers" / "cache" / driver)
    assert run_with(checkout, driver, "sh", "-c", "exit 7").returncode == 7


@from_pip
def test_the_versions_installed_by_pip_are_pinned(checkout: Path, driver: str, name: str) -> None:
    # A fake pip, which creates the library and records its arguments.
    tool(checkout, "python", f'echo "$@"; mkdir -p "${{8}}/lib" && touch "${{8}}/lib/{name}"')
    done = run_with(checkout, driver, "true", RUN=str(checkout / "tools" / "python"))
    assert done.returncode == 0, done.stderr
    wanted = Path(done.stdout.split(" -r ")[1].strip())
    names = [line for line in wanted.read_text().splitlines() if not line.startswith("#")]
    assert any(name.startswith("intel-opencl-rt==") for name in names) and all("==" in name for name in names)
    assert (checkout / ".drivers" / driver / "lib" / name).exists()


@needs_no_rusticl
def test_a_root_is_made_once_and_an_incomplete_one_is_removed(checkout: Path) -> None:
    torn = checkout / ".drivers" / "trixie.partial" / "torn"
    torn.mkdir(parents=True)
    done = run_with(checkout, "rusticl", "true")
    assert done.returncode == 0, done.stderr
    assert "making a chroot" in done.stderr and not torn.exists()
    assert (checkout / ".drivers" / "trixie").is_dir()
    assert done.stdout.startswith("/etc/OpenCL/vendors/rusticl.icd llvmpipe --mount --propagation private")
    assert "trixie" in (checkout / ".drivers" / "debootstrap.log").read_text()
    assert run_with(checkout, "rusticl", "true").stderr == ""


@needs_no_rusticl
def test_a_failed_download_leaves_no_root_and_says_where_to_look(checkout: Path) -> None:
    tool(checkout, "debootstrap", "exit 3")
    done = run_with(checkout, "rusticl", "true")
    assert done.returncode == 1 and "debootstrap.log" in done.stderr
    assert not (checkout / ".drivers" / "trixie").exists()


@needs_no_rusticl
def test_without_root_it_says_what_to_install(checkout: Path) -> None:
    tool(checkout, "id", "echo 1000")
    done = run_with(checkout, "rusticl", "true")
    assert done.returncode == 1 and "apt-get install mesa-opencl-icd" in done.stderr
