"""The progress line on standard error while kernels are compiled."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import torch

# Compiles kernels of many statements, which are in no cache, until that has taken clearly more than three seconds.
COMPILE = """
import os, sys, time
import torch

def compile_one():
    seed = int.from_bytes(os.urandom(4), "little") % 1000000
    body = "\\n".join(f"v = v * {1 + i * 1e-6:.7f}f + {seed + i}.5f; x[{i}] = v;" for i in range(20000))
    source = f"__kernel void large(__global float *x) {{ float v = x[0];\\n{body}\\n}}"
    torch.opencl.compile_kernel(source, "large").compile()

torch.zeros(1, device="opencl")
start, compiling = time.perf_counter(), 0.0
while compiling < 4:
    before = time.perf_counter()
    compile_one()
    compiling += time.perf_counter() - before
"""
# Compiles a kernel at its launch, as PoCL does.
LAUNCH = """
import os, time, torch

start = time.perf_counter()
while time.perf_counter() - start < 8:
    seed = int.from_bytes(os.urandom(4), "little") % 1000000
    body = "\\n".join(
        f"v = v * {1 + i * 1e-6:.7f}f + w[{i % 64}] * {seed + i}.5f; w[{i * 7 % 64}] = native_sin(v);"
        for i in range(700)
    )
    source = (
        "__kernel void large(__global float *x) { float v = x[0]; float w[64];\\n"
        "for (int i = 0; i < 64; i++) w[i] = x[i];\\n"
        f"{body}\\n x[0] = v + w[3]; }}"
    )
    torch.opencl.compile_kernel(source, "large")(torch.zeros(64, device="opencl"), elements=1)
    torch.opencl.synchronize()
"""
SHOWN = r"\rcompiling OpenCL kernels, once for this machine; \d+ so far"


def errors_on_terminal(code: str, folder: Path, **environment: str) -> str:
    """Run code whose standard error is a terminal; return its output there."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    variables = {**os.environ, "TORCH_OPENCL_CACHE_DIR": str(folder / "ours"), "POCL_CACHE_DIR": str(folder / "pocl")}
    variables["TORCH_OPENCL_PROGRESS"] = "auto"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, text=True, env={**variables, **environment}
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 300)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.communicate(timeout=600)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def test_a_line_is_updated_and_ends_with_the_total(tmp_path: Path) -> None:
    shown = errors_on_terminal(COMPILE, tmp_path)
    assert re.search(SHOWN, shown), shown
    total = re.search(r"\r\ncompiled (\d+) programs of OpenCL kernels in (\d+) s\r\n", shown)
    assert total, shown
    counts = [int(count) for count in re.findall(r"; (\d+) so far", shown)]
    # Each count is shown once, as nothing else changes, and the last one is the total.
    assert counts == sorted(set(counts)) and int(total[1]) >= counts[-1]
    assert int(total[2]) >= 3


@pytest.mark.slow
def test_it_ends_while_the_program_runs_on(tmp_path: Path) -> None:
    code = f"{COMPILE}\ntime.sleep(5)\nprint('later', file=sys.stderr)"
    assert re.search(r"compiled \d+ programs of OpenCL kernels in \d+ s\r\nlater", errors_on_terminal(code, tmp_path))


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    assert "compiling" not in errors_on_terminal(COMPILE, tmp_path, TORCH_OPENCL_PROGRESS="never")


def test_there_is_none_without_a_terminal(tmp_path: Path) -> None:
    variables = {"TORCH_OPENCL_CACHE_DIR": str(tmp_path / "ours"), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "compil" not in done.stderr


@pytest.mark.slow
def test_compilers_that_work_at_the_first_launch_are_waited_for(tmp_path: Path) -> None:
    if torch.opencl.get_device_properties().platform != "Portable Computing Language":
        pytest.skip("the driver compiles a kernel before it is launched")
    assert re.search(SHOWN, errors_on_terminal(LAUNCH, tmp_path))


def test_an_invalid_value_is_refused() -> None:
    code = "import torch; torch.zeros(1, device='opencl')"
    variables = {**os.environ, "TORCH_OPENCL_PROGRESS": "sometimes"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "expected 'auto' or 'never'" in done.stderr


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_the_bar_of_a_warm_up_lasts_until_its_end(tmp_path: Path, has_tqdm: bool) -> None:
    code = """
    import time, torch
    def step():
        x = torch.randn(1000, device="opencl")
        time.sleep(1)
        x.relu().sum().item()
    statistics = torch.opencl.warmup(step)
    print(statistics.compiled + statistics.loaded)
    """
    prefix = "" if has_tqdm else "import sys; sys.modules['tqdm'] = None\n"
    shown = errors_on_terminal(prefix + "\n".join(line[4:] for line in code.splitlines()), tmp_path)
    assert "compiling" not in shown
    bar, line = r"OpenCL kernels: +\d+%\|.*?\| (\d+)/(\d+) \[(\d+):(\d+)", r"OpenCL kernels: (\d+) of (\d+)"
    lines = re.findall(bar if has_tqdm else line, shown)
    assert lines, shown
    # The bar starts before the first program is built, and ends after the last call.
    assert int(lines[-1][0]) == int(lines[-1][1]) > 0
    if has_tqdm:
        assert len({line[:2] for line in lines}) > 1 and 60 * int(lines[-1][2]) + int(lines[-1][3]) >= 2
