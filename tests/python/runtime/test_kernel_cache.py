"""The disk cache of compiled kernels: shared by processes, rebuilt if damaged, off if it cannot be written."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from processes import output_of, run_python

PROGRAM = """
    import json, torch
    x = torch.arange(1000.0, device="opencl")
    assert (x * 2 + 1).sum().item() == 1_000_000
    print(json.dumps(torch.opencl.kernel_cache_info()))
"""


def run(folder: str) -> dict:
    """Compute something in a new process; return its kernel_cache_info."""
    return json.loads(output_of(PROGRAM, TORCH_OPENCL_CACHE_DIR=folder))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder that a process has filled, and that process's kernel_cache_info."""
    folder = tmp_path_factory.mktemp("kernels") / "new" / "deep"
    return folder, run(str(folder))


def test_the_first_process_compiles_and_the_second_loads(filled):
    folder, first = filled
    assert first["path"] == str(folder)
    assert first["compiled"] == first["entries"] == len(list(folder.iterdir())) > 0
    assert first["bytes"] == sum(entry.stat().st_size for entry in folder.iterdir())
    second = run(str(folder))
    assert second["compiled"] == 0
    assert second["loaded"] == first["compiled"]


@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: content[:-7], lambda content: content[:-1] + bytes([content[-1] ^ 1])],
    ids=["empty", "short", "changed"],
)
def test_a_damaged_entry_is_rebuilt(filled, damage):
    folder, first = filled
    entry = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    content = entry.read_bytes()
    entry.write_bytes(damage(content))
    again = run(str(folder))
    assert again["compiled"] == 1
    assert again["loaded"] == first["compiled"] - 1
    assert run(str(folder))["compiled"] == 0


@pytest.mark.slow
def test_processes_may_fill_the_folder_at_once(tmp_path):
    environment = {**os.environ, "TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    reports = [json.loads(process.communicate(timeout=180)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert all(path.suffix == ".clbin" for path in tmp_path.iterdir())
    # Each process compiled what it did not find, and loaded what another had finished.
    entries = len(list(tmp_path.iterdir()))
    assert [report["compiled"] + report["loaded"] for report in reports] == [entries] * 3
    assert run(str(tmp_path))["compiled"] == 0


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "folder")
    done = run_python(PROGRAM, TORCH_OPENCL_CACHE_DIR=folder)
    report = json.loads(done.stdout)
    assert report["compiled"] > 0 and report["entries"] == 0
    assert done.stderr.count("compiled kernels cannot be kept in " + folder) == 1


def test_a_full_folder_drops_the_least_recently_used_entries(tmp_path):
    size = 600 * 1024
    for age in range(4):
        entry = tmp_path / f"{age}.clbin"
        entry.write_bytes(bytes(size))
        os.utime(entry, (1e9 - age, 1e9 - age))
    report = json.loads(output_of(PROGRAM, TORCH_OPENCL_CACHE_DIR=str(tmp_path), TORCH_OPENCL_CACHE_SIZE="2"))
    assert report["compiled"] > 0 and 0 < report["bytes"] <= 2 << 20
    assert not (tmp_path / "3.clbin").exists()
    assert run(str(tmp_path))["loaded"] == report["compiled"]


def test_a_size_that_is_not_a_number_is_refused():
    done = run_python("import torch; torch.opencl.init()", TORCH_OPENCL_CACHE_SIZE="much")
    assert done.returncode == 1
    assert "TORCH_OPENCL_CACHE_SIZE=much: expected how many MiB" in done.stderr


def test_without_a_home_nothing_is_kept(tmp_path):
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + textwrap.dedent(PROGRAM)
    report = json.loads(output_of(code, HOME="", XDG_CACHE_HOME=None, TORCH_OPENCL_CACHE_DIR=None))
    assert report["path"] is None and list(tmp_path.iterdir()) == []


def test_an_empty_name_turns_the_folder_off():
    report = run("")
    assert report["path"] is None
    assert report["compiled"] > 0 and report["loaded"] == 0


# --- other users of the machine


def mode(path) -> int:
    return path.stat().st_mode & 0o7777


def test_folders_and_files_are_private_with_any_umask(tmp_path):
    code = "import os; os.umask(0)\n" + textwrap.dedent(PROGRAM)
    report = json.loads(output_of(code, TORCH_OPENCL_CACHE_DIR=str(tmp_path / "new" / "deep")))
    assert report["entries"] > 0
    assert mode(tmp_path / "new") == mode(tmp_path / "new" / "deep") == 0o700
    assert {mode(entry) for entry in (tmp_path / "new" / "deep").iterdir()} == {0o600}


def test_a_folder_that_others_can_write_is_not_used_with_a_warning(filled, tmp_path):
    folder = tmp_path / "wide"
    shutil.copytree(filled[0], folder)
    folder.chmod(0o777)
    done = run_python(PROGRAM, TORCH_OPENCL_CACHE_DIR=str(folder))
    report = json.loads(done.stdout)
    assert report["path"] is None and report["loaded"] == 0 and report["compiled"] > 0
    assert done.stderr.count("can be changed by other users (mode 777)") == 1
    assert f"chmod go-w '{folder}'" in done.stderr
    assert mode(folder) == 0o777, "the folder may be shared on purpose"
    folder.chmod(0o755)
    assert run(str(folder))["loaded"] == filled[1]["compiled"]


def test_files_that_others_can_write_are_replaced(filled, tmp_path):
    folder = tmp_path / "programs"
    shutil.copytree(filled[0], folder)
    for entry in folder.iterdir():
        entry.chmod(0o666)
    done = run_python(PROGRAM, TORCH_OPENCL_CACHE_DIR=str(folder))
    assert json.loads(done.stdout)["loaded"] == 0
    assert done.stderr.count("can be changed by other users (mode 666)") == 1
    assert run(str(folder))["loaded"] == filled[1]["compiled"]


def test_links_are_replaced_and_their_targets_are_kept(filled, tmp_path):
    folder, precious = tmp_path / "programs", tmp_path / "precious"
    shutil.copytree(filled[0], folder)
    entry = min(folder.iterdir())
    precious.write_bytes(entry.read_bytes())
    entry.unlink()
    entry.symlink_to(precious)
    done = run_python(PROGRAM, TORCH_OPENCL_CACHE_DIR=str(folder))
    assert json.loads(done.stdout)["compiled"] == 1 and "is a symbolic link" in done.stderr
    assert not entry.is_symlink() and precious.read_bytes() == entry.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_not_used(filled, tmp_path):
    folder = tmp_path / "programs"
    shutil.copytree(filled[0], folder)
    os.chown(folder, 12345, -1)
    done = run_python(PROGRAM, TORCH_OPENCL_CACHE_DIR=str(folder))
    assert json.loads(done.stdout)["path"] is None
    assert "belongs to user 12345, and this process runs as user 0" in done.stderr


def test_a_relative_folder_is_refused():
    done = run_python("import torch; torch.opencl.init()", TORCH_OPENCL_CACHE_DIR="kernels")
    assert done.returncode == 1
    assert "TORCH_OPENCL_CACHE_DIR=kernels: expected an absolute path" in done.stderr


def test_a_tuning_that_others_can_write_is_not_used(tmp_path):
    code = """
        import json, os, sys, torch
        from torch_opencl._load import native
        from torch_opencl.tune.record import Record, file_of, recorded, store
        torch.opencl.init()
        os.umask(0)
        state = json.loads(native().tuning(0))
        store(0, Record(values=state["values"], defaults=state["defaults"]))
        path = file_of(0)
        print(oct(path.stat().st_mode & 0o7777), oct(path.parent.stat().st_mode & 0o7777), recorded(0) is not None)
        path.chmod(0o622)
        print(recorded(0))
    """
    done = run_python(code, TORCH_OPENCL_CACHE_DIR=str(tmp_path / "kept"))
    assert done.stdout.splitlines() == ["0o600 0o700 True", "None"], done.stderr
    assert "can be changed by other users (mode 622)" in done.stderr
