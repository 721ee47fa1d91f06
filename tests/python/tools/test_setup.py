"""scripts/setup.sh continues after an interruption."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout for setup.sh, without packages to install, and with fake build tools."""
    for name in ("scripts/setup.sh", "Cargo.toml", "python/torch_opencl/_embedded_driver.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "requirements-dev.txt").write_text("# none\n")
    for name, output in {"g++": "", "cargo": "cargo 1.999.0"}.items():
        tool = tmp_path / "tools" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\necho {output}\n")
        tool.chmod(0o755)
    return tmp_path


def setup(checkout: Path, **variables: str) -> str:
    """Run setup.sh and return its output."""
    environment = {
        **os.environ,
        "PATH": f"{checkout / 'tools'}:{os.environ['PATH']}",
        "PYTHON": str(Path(sys.base_prefix) / "bin" / "python3"),
        "OCL_ICD_VENDORS": "somewhere",
        "VENV": "",
        "TORCH": "",
        **variables,
    }
    done = subprocess.run(
        [checkout / "scripts" / "setup.sh"], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def has_pip(checkout: Path) -> bool:
    command = [checkout / ".venv" / "bin" / "python", "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def without_pip(checkout: Path) -> Path:
    """An environment before pip is installed into it; returns the folder of packages."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    subprocess.run([python, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    return next((checkout / ".venv" / "lib").glob("python3*")) / "site-packages"


@pytest.mark.slow
def test_pip_is_installed_and_an_incomplete_package_is_reinstalled(checkout):
    packages = without_pip(checkout)
    for name, files in {"torn-1.0": ["METADATA"], "whole-1.0": ["METADATA", "RECORD"]}.items():
        (packages / f"{name}.dist-info").mkdir()
        for file in files:
            (packages / f"{name}.dist-info" / file).write_text("")
    said = setup(checkout)
    assert has_pip(checkout)
    assert "the incomplete installation of torn-1.0" in said
    assert not (packages / "torn-1.0.dist-info").exists() and (packages / "whole-1.0.dist-info").exists()
    assert not (checkout / ".venv" / "unfinished").exists()
    assert setup(checkout) == "", "nothing is left to do"


def test_an_unfinished_environment_is_recreated(checkout):
    packages = without_pip(checkout)
    (packages / "pip").mkdir()
    (packages / "pip" / "__init__.py").write_text("half of it")
    (checkout / ".venv" / "unfinished").write_text("")
    assert "interrupted" in setup(checkout)
    assert has_pip(checkout) and not (checkout / ".venv" / "unfinished").exists()


def test_another_torch_has_a_separate_environment(checkout):
    (checkout / "requirements-dev.txt").write_text("torch==2.13.0\nnumpy==2.4.6\nsetuptools==84.2.1\n")
    # An environment that pretends that every requested package is installed.
    python = checkout / ".venv-2.11" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert "into .venv-2.11" in setup(checkout, VENV=".venv-2.11", TORCH="2.11.0")
    installed = (python.parent.parent / "requirements-installed.txt").read_text()
    assert installed == "torch==2.11.0\nnumpy==2.4.6\nsetuptools>=77\n"
    assert setup(checkout, VENV=".venv-2.11", TORCH="2.11.0") == "", "nothing is left to do"
    assert not (checkout / ".venv").exists()


@pytest.mark.slow
def test_an_installed_torch_without_cuda_is_kept(checkout):
    packages = without_pip(checkout)
    information = packages / "torch-2.13.0+cpu.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n")
    (information / "RECORD").write_text("")
    (information / "INSTALLER").write_text("pip\n")
    (checkout / "requirements-dev.txt").write_text("torch==2.13.0\n")
    # Nothing can be downloaded.
    assert "requirements-dev.txt" in setup(checkout, PIP_NO_INDEX="1")
    assert [path.name for path in packages.glob("torch-*")] == [information.name]
    assert setup(checkout, PIP_NO_INDEX="1") == "", "nothing is left to do"


def test_each_requirement_is_pinned_once_and_installed_by_a_target():
    makefile = (ROOT / "Makefile").read_text()
    pinned = {}
    for path in sorted(ROOT.glob("requirements-*.txt")):
        lines = [line.split("==")[0] for line in path.read_text().splitlines() if "==" in line]
        assert lines, path
        what = path.stem.removeprefix("requirements-")
        assert f"$(call install,{what})" in makefile or f"-r {path.name}" in makefile or what == "dev"
        if what in ("dev", "lint", "wheel", "bench"):
            for name in lines:
                assert pinned.setdefault(name, path.name) == path.name, f"{name} is in two files"


def variables_of_make(*arguments: str, **environment: str) -> dict[str, str]:
    # Without the variables of a make that runs these tests.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "TORCH")}
    command = ["make", "--print-data-base", "--dry-run", "help", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**inherited, **environment}, capture_output=True, text=True, check=True
    )
    return dict(line.split(" := ", 1) for line in done.stdout.splitlines() if " := " in line)


def test_torch_is_chosen_on_the_command_line_and_not_in_the_environment():
    usual = variables_of_make()
    assert variables_of_make(TORCH="1.0.0")["VENV"] == usual["VENV"] == ".venv"
    assert variables_of_make("TORCH=2.11.0")["VENV"] == variables_of_make("TORCH=2.11")["VENV"] == ".venv-2.11"
    assert variables_of_make("TORCH=2.11")["TORCH"] == "2.11.0"
    # The tests that need one release of tch are linted only with the matching torch.
    assert usual["ORACLE"] == "torch-opencl-oracle" and variables_of_make("TORCH=2.11.0")["ORACLE"] == ""


@pytest.mark.parametrize("release", ["2.13", " 2.13.0 ", ""])
def test_spellings_of_the_default_torch_use_its_environment(release: str):
    assert variables_of_make(f"TORCH={release}")["VENV"] == ".venv"


@pytest.mark.parametrize("release", ["2.10.0", "2.16", "3", "nightly", "/usr/local/torch"])
def test_a_torch_that_cannot_be_built_against_is_refused_before_anything_is_made(release: str):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        variables_of_make(f"TORCH={release}")
    assert f"TORCH={release}" in refused.value.stderr and "builds against torch 2.11 to " in refused.value.stderr
