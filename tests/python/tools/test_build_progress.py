"""The build's one-line progress, from cargo's output; errors are shown completely."""

import os
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from build_support import progress  # noqa: E402

BAR = "    Building [=====>      ] {}/200: one, two, torch-opencl(build)        \r"
WARNING = "warning: unused variable: `x`\n --> rust/lib.rs:1:1\n"


def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: str, ending: str) -> list[str]:
    """Put a fake cargo into PATH that writes to standard error, then runs Python code; return its command line."""
    tool = tmp_path / "tools" / "cargo"
    tool.parent.mkdir()
    tool.write_text(
        f"#!{sys.executable}\nimport sys, time\nsys.stderr.write({errors!r})\nsys.stderr.flush()\n{ending}\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return ["cargo", "build"]


def read(text: str, target: Path) -> progress.Progress:
    """The progress after an output of cargo."""
    state = progress.Progress(target)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as errors:
        writer = threading.Thread(target=lambda: (os.write(writing, text.encode()), os.close(writing)))
        writer.start()
        state.read(errors)
        writer.join()
    return state


def test_lines_of_crates_and_bars_become_one_line(tmp_path):
    lines = "".join(f"   Compiling crate{number} v1.0.0\n{BAR.format(number)}" for number in range(151))
    state = read(f"    Updating index\n{lines}", tmp_path)
    assert state.messages == [] and state.crates == (150, 200)
    assert state.line().startswith("compiling: 150 of 200 Rust units, ")


def test_a_full_build_has_a_forecast(tmp_path):
    state = read(BAR.format(100), tmp_path)
    out = tmp_path / "build/torch-opencl-1/out"
    (out / "objects").mkdir(parents=True)
    for number in range(9):
        (out / "objects" / f"{number}.o").touch()
    # An object that is still being written.
    (out / "last.o").touch()
    state.start -= 60
    files, all_files = state._cpp_files()
    assert files == 10 and all_files > 50
    computed = 100 * progress.CRATE + 10 * progress.CPP_FILE
    left = 60 / computed * (100 * progress.CRATE + (all_files - 10) * progress.CPP_FILE + progress.LAST)
    assert state.line() == (
        f"compiling: 100 of 200 Rust units, 10 of {all_files} C++ files, 60 s, about {left / 60:.0f} min left"
    )


def test_an_incremental_build_has_no_forecast(tmp_path):
    (tmp_path / "build/torch-opencl-1/out/objects").mkdir(parents=True)
    old = tmp_path / "build/torch-opencl-1/out/objects/old.o"
    old.touch()
    os.utime(old, (1, 1))
    assert "left" not in read(BAR.format(199), tmp_path).line()
    assert "C++" not in read(BAR.format(199), tmp_path).line()


def test_waiting_for_a_lock_is_shown(tmp_path):
    state = read("    Blocking waiting for file lock on build directory\n", tmp_path)
    assert state.line().startswith("Blocking waiting for file lock on build directory, ")


def test_only_warnings_and_the_output_are_shown(tmp_path, monkeypatch, capfd):
    command = cargo(tmp_path, monkeypatch, BAR.format(1) + WARNING, "print({})")
    assert progress.run_cargo(command, os.environ, tmp_path) == "{}\n"
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == WARNING


def test_a_failure_shows_the_whole_error(tmp_path, monkeypatch, capfd):
    error = "".join(f"error: line {number}\n" for number in range(400))
    command = cargo(tmp_path, monkeypatch, BAR.format(1) + error, "sys.exit(101)")
    with pytest.raises(SystemExit, match="`cargo build` failed; its messages are above"):
        progress.run_cargo(command, os.environ, tmp_path)
    assert capfd.readouterr().err == error


def test_a_long_build_prints_few_lines_without_a_terminal(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "INTERVAL", 0.02)
    monkeypatch.setattr(progress, "SELDOM", 0.2)
    command = cargo(tmp_path, monkeypatch, BAR.format(7), "time.sleep(1)")
    progress.run_cargo(command, os.environ, tmp_path)
    lines = capfd.readouterr().out.splitlines()
    assert 2 <= len(lines) < 25  # one line per INTERVAL would be 50
    assert any(line.startswith("==> compiling: 7 of 200 Rust units") for line in lines)
    assert lines[-1].startswith("==> cargo has ended")
