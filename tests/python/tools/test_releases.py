"""The supported releases of PyTorch: Cargo.toml has the range, and all other places agree with it."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from build_support import checks  # noqa: E402

OLDEST, NEWEST = checks.supported_torch()
RELEASE = checks.torch_release()


def after(release: str) -> str:
    major, minor = map(int, release.split("."))
    return f"{major}.{minor + 1}"


def test_all_places_have_the_same_range():
    assert f'dependencies = ["torch>={OLDEST},<{after(NEWEST)}"]\n' in (ROOT / "pyproject.toml").read_text()
    readme = (ROOT / "README.md").read_text()
    assert f"PyTorch {OLDEST} to {NEWEST}" in readme


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [(f"{OLDEST}.0", False), (f"{NEWEST}.9", False), (f"{after(NEWEST)}.0", True), ("2.9.1", True), ("1.13.1", True)],
)
def test_a_build_against_a_torch_outside_the_range_is_refused_with_a_fix(monkeypatch, version, is_refused):
    monkeypatch.setattr(checks, "torch_version", lambda: version)
    problem = checks._check_torch()
    assert (problem is not None) == is_refused
    if is_refused:
        assert f"torch {OLDEST} to {NEWEST} and this Python has {version}" in problem
        assert f"pip install torch=={NEWEST}.*" in problem


def test_this_torch_is_in_the_range():
    assert checks.torch_version() == torch.__version__.split("+")[0]
    assert checks._check_torch() is None


@pytest.fixture
def sources(tmp_path) -> Path:
    """The files that describe the package, without the native code."""
    for name in ("pyproject.toml", "Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "build_support", tmp_path / "build_support")
    library = shutil.ignore_patterns("lib", "__pycache__")
    shutil.copytree(ROOT / "python" / "torch_opencl", tmp_path / "python" / "torch_opencl", ignore=library)
    return tmp_path


def run_hook(sources: Path, hook: str) -> None:
    # The native library exists, or is not needed.
    code = (
        "import sys; sys.path[0] = '.'; from build_support import backend, native; "
        f"native.build = lambda: None; backend.{hook}('out')"
    )
    (sources / "out").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=sources, check=True, capture_output=True)


def metadata_of(sources: Path, hook: str, result: str) -> str:
    run_hook(sources, hook)
    return next(sources.glob(result)).read_text()


def test_a_wheel_has_only_the_library_of_its_release(sources):
    for release in ("2.9", RELEASE):
        folder = sources / "python" / "torch_opencl" / "lib" / release
        folder.mkdir(parents=True)
        shutil.copy("/bin/true", folder / "libtorch_opencl.so")
        (folder / "build_info.json").write_text('{"sources": "those of another commit"}')
    run_hook(sources, "build_wheel")
    wheel = next((sources / "out").glob("*.whl"))
    assert "-py3-none-linux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    libraries = {name for name in names if "/lib/" in name}
    assert libraries == {f"torch_opencl/lib/{RELEASE}/{name}" for name in ("libtorch_opencl.so", "build_info.json")}
    assert {"torch_opencl/py.typed", "torch_opencl/tune/tuner.py"} <= set(names)


def test_a_wheel_has_all_libraries_if_all_are_of_these_sources(sources):
    run = [sys.executable, "-c", "from build_support import native; print(native.sources_hash())"]
    current = subprocess.run(run, cwd=sources, check=True, capture_output=True, text=True).stdout.strip()
    releases = checks.supported_releases()
    for release in releases:
        folder = sources / "python" / "torch_opencl" / "lib" / release
        folder.mkdir(parents=True)
        shutil.copy("/bin/true", folder / "libtorch_opencl.so")
        (folder / "build_info.json").write_text(f'{{"sources": "{current}"}}')
    run_hook(sources, "build_wheel")
    wheel = next((sources / "out").glob(f"torch_opencl_rs-{torch.opencl.__version__}-py3-none-linux*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[2] for name in names if name.endswith("libtorch_opencl.so")} == set(releases)


def test_a_wheel_is_named_for_the_release_that_it_is_built_with_and_requires_it(sources):
    text = metadata_of(sources, "prepare_metadata_for_build_wheel", "out/*.dist-info/METADATA")
    assert f"\nVersion: {torch.opencl.__version__}.post{RELEASE.replace('.', '')}\n" in text
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist: torch")]
    assert len(required) == 1
    assert set(required[0].removeprefix("Requires-Dist: torch").split(",")) == {f">={RELEASE}", f"<{after(RELEASE)}"}


def test_an_sdist_can_become_a_wheel_for_any_release(sources):
    text = metadata_of(sources, "build_sdist", "python/*.egg-info/PKG-INFO")
    assert f"\nVersion: {torch.opencl.__version__}\n" in text
    required = [line for line in text.splitlines() if line.startswith("Requires-Dist: torch")]
    assert len(required) == 1
    assert set(required[0].removeprefix("Requires-Dist: torch").split(",")) == {f">={OLDEST}", f"<{after(NEWEST)}"}
