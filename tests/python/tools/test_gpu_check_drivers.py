"""The kit's queries to the drivers of a machine: a driver that is broken, crashes or hangs is named."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_kit.check import drivers, environment, readers
from gpu_kit.check.record import Part

ROOT = Path(__file__).parents[3]


def library(folder: Path, name: str, code: str) -> Path:
    """Compile a library that runs code when it is loaded, and register it as a driver."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    made = folder / f"lib{name}.so"
    source = (
        f"#include <cstdlib>\n#include <unistd.h>\n__attribute__((constructor)) static void loaded() {{ {code} }}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", made], input=source, text=True, check=True)
    (folder / f"{name}.icd").write_text(f"{made}\n")
    return made


def test_the_fault_of_each_registered_driver_is_reported(tmp_path, monkeypatch):
    registry = tmp_path / "vendors"
    registry.mkdir()
    (registry / "binary.icd").write_bytes(b"\xff\xfe\x00lib")
    (registry / "dangling.icd").symlink_to(registry / "nothing")
    (registry / "empty.icd").write_text("\n")
    (registry / "folder.icd").mkdir()
    (registry / "missing.icd").write_text("libno_such_driver.so\n")
    (registry / "saved.icd.old").write_text("libno_such_driver.so\n")
    library(registry, "aborts", "abort();")
    library(registry, "hangs", "sleep(60);")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(registry))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(drivers, "SECONDS_ALONE", 2)
    says = {Path(found["file"]).name: found["says"] for found in drivers.drivers()}
    assert says["aborts.icd"] == "ended by SIGABRT" and says["hangs.icd"] == "no answer within 2 s"
    assert says["binary.icd"] == "not a text file" and says["empty.icd"] == "empty: it names no library"
    assert says["dangling.icd"] == "cannot be read: No such file or directory"
    assert says["folder.icd"] == "cannot be read: Is a directory"
    assert says["missing.icd"].startswith("cannot be loaded: libno_such_driver.so")
    assert "not read" in says["saved.icd.old"]


def test_a_crash_with_all_drivers_is_an_error_that_names_a_working_driver(tmp_path, monkeypatch):
    registry = tmp_path / "vendors"
    registry.mkdir()
    library(registry, "aborts", "abort();")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(registry))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    found = drivers.platforms()
    assert found == "The drivers do not list their devices: ended by SIGABRT."
    works = {"file": "good.icd", "library": "libgood.so", "devices": 1, "says": "A GPU"}
    part = Part(title="The machine", status="passed", finished=True)
    machine = {"python": "3", "system": "Linux", "processor": "one", "cpus": 1}
    readers.described(part, [machine, {"platforms": found}, {"drivers": [*drivers.drivers(), works]}], [])
    (error,) = part.errors
    assert "ended by SIGABRT" in error["lines"][0] and "aborts.icd: ended by SIGABRT" in error["lines"][1]
    assert "It works alone: OCL_ICD_VENDORS=libgood.so OCL_ICD_FILENAMES=libgood.so" in error["lines"]
    # After the user has fixed it, --resume checks again.
    assert not part.finished


def test_a_machine_without_any_driver_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "REGISTRY", tmp_path)
    for name in environment.CHOICES:
        monkeypatch.delenv(name, raising=False)
    part = Part(title="The machine", status="passed")
    machine = {"python": "3", "system": "Linux", "processor": "one", "cpus": 1}
    readers.described(part, [machine, {"platforms": []}, {"drivers": list(drivers.drivers())}], [])
    assert part.errors[0]["lines"][0].startswith("No driver is registered in /etc/OpenCL/vendors")
    # A part that was stopped before it queried the drivers reports nothing about them.
    part = Part(title="The machine", status="cut")
    readers.described(part, [machine], [])
    assert not part.errors and part.summary == ""
