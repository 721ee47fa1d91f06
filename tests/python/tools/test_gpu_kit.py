"""The kit for a machine with a GPU: its contents, and their use on that machine."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_opencl import _load

from gpu_kit import build as kit_build
from gpu_kit.check import environment
from gpu_kit.check.parts import PARTS
from gpu_kit.check.testing import TestPart

ROOT = Path(__file__).parents[3]


def test_only_missing_packages_are_taken_from_the_kit(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "REGISTRY", tmp_path / "none")
    monkeypatch.setattr(environment, "VENDORED", {"tqdm": ["tqdm"], "yaml": ["no_such_module"]})
    monkeypatch.setattr(environment, "COMPILED", ["torch", "no_such_module"])
    monkeypatch.setattr(environment, "_loads", lambda library: library == environment.NVIDIA)
    theirs = {"PYTHONPATH": "/theirs", "LD_LIBRARY_PATH": "/lib", "PYTEST_ADDOPTS": "-x"}
    theirs |= {"TORCH_OPENCL_CACHE_DIR": "/old", "CUDA_CACHE_PATH": "/old", "TORCH_OPENCL_BLAS": "host"}
    variables, notes = environment.prepare(tmp_path, tmp_path / "work", 1, theirs)
    paths = [Path(path) for path in variables["PYTHONPATH"].split(":")]
    # pytest is always the kit's: this Python has one.
    vendored = [tmp_path / "vendor" / name for name in ("pytest", "python3.10", "yaml")]
    vendored = [path for path in vendored if path.name != "python3.10" or sys.version_info < (3, 11)]
    assert paths == [tmp_path / "python", tmp_path, *vendored, Path("/theirs")]
    assert "PYTEST_ADDOPTS" not in variables
    # Compiled kernels are kept separate from the user's.
    for name in ("TORCH_OPENCL_CACHE_DIR", "CUDA_CACHE_PATH"):
        assert Path(variables[name]).is_dir() and Path(variables[name]).is_relative_to(tmp_path / "work")
    assert variables["LD_LIBRARY_PATH"] == f"{tmp_path / 'lib'}:/lib"
    assert variables["OCL_ICD_VENDORS"] == variables["OCL_ICD_FILENAMES"] == "libnvidia-opencl.so.1"
    assert variables["TORCH_OPENCL_DEVICES"] == "1" and len(notes) == 5
    assert "Set by the user: TORCH_OPENCL_BLAS=host." in notes
    assert any("Python has no no_such_module" in note for note in notes)
    # A driver that the user has selected is kept.
    variables, _ = environment.prepare(tmp_path, tmp_path, None, {"OCL_ICD_VENDORS": "mine"})
    assert variables["OCL_ICD_VENDORS"] == "mine" and "OCL_ICD_FILENAMES" not in variables


def package(folder: Path, *releases: str) -> Path:
    for torch in releases:
        library = folder / "lib" / torch.rpartition(".")[0]
        library.mkdir(parents=True)
        (library / "build_info.json").write_text(json.dumps({"version": "9.9", "torch": torch}))
        (library / "libtorch_opencl.so").write_text(torch)
    return folder


def test_a_kit_is_complete_without_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_build, "strip", lambda library: None)
    kit = kit_build.build(tmp_path, "2.11.0", package(tmp_path / "package", "2.11.0", "2.12.1"))
    assert kit.name == "gpu-kit-9.9-torch2.11"
    # A package may have libraries for several releases of torch.
    (library,) = kit.rglob("libtorch_opencl.so")
    assert library.read_text() == "2.11.0" and library.parent == kit / "python" / "torch_opencl" / "lib" / "2.11"
    for name in ("gpu_check.py", "README.md", "kit.json", "tests/python/ops/test_ops.py", "vendor/pytest/pytest"):
        assert (kit / name).exists(), name
    assert not list(kit.rglob("test_setup.py")) and not list(kit.rglob("*.pyc"))
    # The compiled part of PyYAML is for one Python only.
    assert (kit / "vendor" / "yaml" / "yaml").is_dir() and not list((kit / "vendor").rglob("*.so"))
    # It starts without any installed package: without pytest, torch and numpy.
    command_line = [sys.executable, "-I", "-S", kit / "gpu_check.py", "--help"]
    done = subprocess.run(command_line, capture_output=True, text=True, check=True)
    assert "--minutes" in done.stdout


def test_each_test_file_is_in_a_part_or_left_out():
    """A new file belongs in gpu_kit/check/parts.py, or in LEFT_OUT of gpu_kit/build.py if GPUs make no difference."""
    in_parts = {file.partition("::")[0] for part in PARTS if isinstance(part, TestPart) for file in part.files}
    patterns = ("test_*.py", "device_class_*cases.py")
    tests = ROOT / "tests" / "python"
    there = {path.relative_to(tests).as_posix() for pattern in patterns for path in tests.rglob(pattern)}
    left_out = {file for file in there if file.rpartition("/")[2] in kit_build.LEFT_OUT}
    assert in_parts == there - left_out
    assert len(left_out) == len(kit_build.LEFT_OUT)


def test_vendored_packages_support_all_pythons_of_the_kit(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_build, "strip", lambda library: None)
    kit = kit_build.build(tmp_path, None, package(tmp_path / "package", "2.11.0"))
    sources = list(kit.rglob("*.py"))
    assert {"tomli", "exceptiongroup", "_pytest", "pluggy", "yaml", "gpu_kit"} <= {path.parent.name for path in sources}
    for path in sources:
        ast.parse(path.read_text(encoding="utf-8"), path, feature_version=(3, 10))
    for folder in (kit / "vendor").iterdir():
        for information in folder.glob("*.dist-info/METADATA"):
            wanted = re.search(r"^Requires-Python:.*>= ?3\.(\d+)", information.read_text(encoding="utf-8"), re.M)
            assert wanted is None or int(wanted[1]) <= 10, information


@pytest.mark.skipif(not kit_build.PACKAGE.joinpath("lib").is_dir(), reason="the package is not built in the checkout")
@pytest.mark.slow
def test_the_tests_of_a_kit_need_nothing_of_the_checkout(tmp_path):
    kit = kit_build.build(tmp_path, _load.build_info()["torch"])
    theirs = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables, _ = environment.prepare(kit, tmp_path / "work", None, theirs)
    code = """
import sys, pytest
status = pytest.main([*sys.argv[2:], "-c", "pyproject.toml", "-p", "no:cacheprovider", "--collect-only", "-qq"])
paths = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
strays = [path for path in paths if path.startswith(sys.argv[1]) and "site-packages" not in path]
print("STRAYS", strays, pytest.__file__)
sys.exit(status)
"""
    files = ["tests/python/ops/device_class_cases.py", "tests/python"]
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command_line = [sys.executable, "-c", code, str(ROOT), *files]
    done = subprocess.run(command_line, cwd=kit, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"STRAYS [] {kit / 'vendor' / 'pytest'}" in done.stdout


def test_a_kit_that_is_too_large_or_for_another_torch_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kit_build, "strip", lambda library: None)
    built = package(tmp_path / "package", "2.11.0")
    with pytest.raises(kit_build.KitError, match="MiB are allowed"):
        kit_build.build(tmp_path, None, built, most_bytes=1 << 20)
    with pytest.raises(kit_build.KitError, match=r"for torch 2\.11\.0: run `make build TORCH=2\.12\.0` first"):
        kit_build.build(tmp_path, "2.12.0", built)
    with pytest.raises(kit_build.KitError, match="choose one with TORCH"):
        kit_build.build(tmp_path, None, package(tmp_path / "both", "2.11.0", "2.12.1"))
    with pytest.raises(kit_build.KitError, match="has not been built"):
        kit_build.build(tmp_path, None, tmp_path / "nothing")
