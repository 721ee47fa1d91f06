"""The driver's own cache, damaged: at most one process crashes because of it."""

import shutil
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from processes import output_of, run_python

PROGRAM = """
    import torch
    x = torch.arange(1000.0, device="opencl")
    assert (x * 2 + 1).sum().item() == 1_000_000
    info = torch.opencl.kernel_cache_info()
    print(info["compiled"], info["loaded"])
"""
KILLED = textwrap.dedent(PROGRAM) + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module", autouse=True)
def pocl() -> None:
    if torch.opencl.get_device_properties().platform != "Portable Computing Language":
        pytest.skip("the driver has no cache")


def environment(folder: Path) -> dict[str, str | None]:
    return {
        "POCL_CACHE_DIR": str(folder / "driver"),
        "TORCH_OPENCL_CACHE_DIR": str(folder / "programs"),
        "POCL_KERNEL_CACHE": None,
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """Caches filled by a process."""
    folder = tmp_path_factory.mktemp("caches")
    assert output_of(PROGRAM, **environment(folder)) == "3 0"
    return folder


@pytest.fixture
def caches(filled, tmp_path) -> Path:
    """A copy of the filled caches."""
    return Path(shutil.copytree(filled, tmp_path / "caches"))


def damage(caches: Path, suffix: str, change: Callable[[bytes], bytes]) -> None:
    files = list(caches.glob(f"driver/**/*{suffix}"))
    assert files
    for file in files:
        file.write_bytes(change(file.read_bytes()))


def set_aside(caches: Path) -> list[Path]:
    return list(caches.glob("driver.damaged-*"))


def test_an_intact_cache_is_used_and_leaves_no_marker(caches):
    done = run_python(PROGRAM, **environment(caches))
    assert (done.stdout, done.stderr) == ("0 3\n", "")
    assert list(caches.glob("driver/torch_opencl/*")) == [] == set_aside(caches)


@pytest.mark.parametrize("change", [lambda content: b"", lambda content: bytes(len(content))], ids=["empty", "zeros"])
def test_programs_without_kernels_are_built_once_more(caches, change):
    damage(caches, ".bc", change)
    for _ in range(2):
        done = run_python(PROGRAM, **environment(caches))
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("no kernels") == 1
        assert f"{caches / 'driver'}, which may be damaged: delete it" in done.stderr
        assert "MiB are free" in done.stderr


@pytest.mark.parametrize(
    ("suffix", "change"),
    [(".bc", lambda content: content[: len(content) // 2]), (".so", lambda content: bytes(len(content)))],
    ids=["build", "launch"],
)
def test_a_cache_that_crashed_a_process_is_set_aside(caches, suffix, change):
    damage(caches, suffix, change)
    died = run_python(PROGRAM, **environment(caches))
    assert died.returncode < 0
    again = run_python(PROGRAM, **environment(caches))
    assert again.returncode == 0, again.stderr
    (aside,) = set_aside(caches)
    assert again.stderr.count(str(aside)) == 1 and "compiled again" in again.stderr
    assert f"{suffix} is damaged" in again.stderr
    third = run_python(PROGRAM, **environment(caches))
    assert (third.stdout, third.stderr) == ("0 3\n", "")
    assert set_aside(caches) == [aside]


def test_a_process_killed_while_computing_does_not_invalidate_the_cache(caches):
    for _ in range(2):
        killed = run_python(KILLED, **environment(caches))
        assert killed.returncode == -signal.SIGKILL
        assert len(list(caches.glob("driver/torch_opencl/*.running"))) == 1
    assert output_of(PROGRAM, **environment(caches)) == "0 3"
    assert set_aside(caches) == []


def test_the_cache_is_set_aside_after_two_processes_end_while_loading(caches):
    """The file simulates a process that ended while it loaded programs, as a killed one would."""
    marker = caches / "driver" / "torch_opencl" / "ended.running"

    def after_an_end() -> str:
        marker.parent.mkdir(exist_ok=True)
        marker.write_text("1")
        marker.chmod(0o600)
        return output_of(PROGRAM, **environment(caches))

    assert after_an_end() == "0 3" and not marker.exists()
    assert output_of(PROGRAM, **environment(caches)) == "0 3"
    assert after_an_end() == "0 3" and set_aside(caches) == []
    after_an_end()
    assert len(set_aside(caches)) == 1


def test_a_full_disk_is_an_error_that_names_it(tmp_path):
    disk = tmp_path / "driver"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode != 0:
        pytest.skip("only root can make a small disk")
    try:
        done = run_python(PROGRAM, **environment(tmp_path))
    finally:
        subprocess.run(["umount", disk], check=True)
    assert done.returncode == 1
    assert "no room to compile a kernel: " in done.stderr and "KiB are free" in done.stderr
    assert str(disk) in done.stderr and "POCL_CACHE_DIR" in done.stderr


def test_a_folder_that_is_deleted_while_a_process_runs_is_made_again(caches):
    code = """
        import os, shutil, torch
        x = torch.arange(1000.0, device="opencl")
        assert (x + 1).sum().item() == 500_500
        shutil.rmtree(os.environ["POCL_CACHE_DIR"])
        assert torch.sort(x, descending=True)[0][0].item() == 999 and x.cumsum(0)[-1].item() == 499_500
    """
    output_of(code, **environment(caches))
    assert list(caches.glob("driver/**/*.so"))


def test_a_missing_device_because_of_an_unwritable_folder_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "driver"
    done = run_python("import torch; torch.ones(1, device='opencl')", POCL_CACHE_DIR=str(folder))
    assert done.returncode == 1
    assert f"cannot write to {folder}" in done.stderr and "Set POCL_CACHE_DIR" in done.stderr
