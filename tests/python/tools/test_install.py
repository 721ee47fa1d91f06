"""Installations that are broken: `import torch` works all the same, and one warning names the cure."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_opencl
from processes import output_of, run_python

# Relative to the package's parent.
LIBRARY = Path("torch_opencl", "lib", torch_opencl._load.RELEASE, "libtorch_opencl.so")

IMPORT = """
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch
    print(*(str(warning.message) for warning in caught if "opencl" in str(warning.message)), sep="\\n")
    assert torch.ones(2).sum() == 2
    assert not torch.opencl.is_available() and torch.opencl.device_count() == 0
    torch.manual_seed(0)
    # PyTorch would send these to an accelerator, if there were one by this name.
    with torch.profiler.profile() as profile:
        torch.ones(2) + 1
    assert any(event.name == "aten::add" for event in profile.events())
    torch.get_device_module()
    torch.Event()
    torch.distributed.init_process_group(store=torch.distributed.HashStore(), rank=0, world_size=1)
    torch.distributed.barrier()
"""


@pytest.fixture
def copy_of_package(tmp_path) -> Path:
    """A copy of the installed package that comes first in the path, with the entry point that torch uses."""
    package = Path(torch_opencl.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (tmp_path / LIBRARY).symlink_to(package.parent / LIBRARY)
    distribution = tmp_path / "torch_opencl_rs-0.0.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-opencl-rs\nVersion: 0.0.0\n")
    (distribution / "entry_points.txt").write_text("[torch.backends]\nopencl = torch_opencl._autoload:autoload\n")
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    # After the copy comes the path of the tests: torch may not be in the standard location.
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def for_another_torch(library: Path) -> None:
    library.parent.rename(library.parent.with_name("2.9"))


def described_as_for_another_torch(library: Path) -> None:
    (library.parent / "build_info.json").write_text(json.dumps({"version": "0.1.0", "torch": "2.9.1"}))


def without_description(library: Path) -> None:
    (library.parent / "build_info.json").unlink()


def missing(library: Path) -> None:
    library.unlink()


def corrupt(library: Path) -> None:
    library.unlink()
    library.write_bytes(b"\x7fELF" + bytes(1000))


def test_an_intact_copy_works(copy_of_package):
    code = "import torch, torch_opencl; print(torch_opencl.__file__, torch.ones(3, device='opencl').sum().item())"
    assert output_of(code, **environment(copy_of_package)) == f"{copy_of_package}/torch_opencl/__init__.py 3.0"


def for_two_others(library: Path) -> None:
    shutil.copytree(library.parent, library.parent.with_name("2.9"), symlinks=True)
    library.parent.rename(library.parent.with_name("2.10"))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            for_another_torch,
            ["built for torch 2.9, and", "pip install torch==2.9.*", "`pip install --no-build-isolation .`"],
        ),
        # The newest one, which is not the last one when compared as strings.
        (for_two_others, ["built for torch 2.9 and 2.10, and", "pip install torch==2.10.*"]),
        (described_as_for_another_torch, ["built for torch 2.9.1, and", "pip install torch==2.9.*"]),
        (without_description, ["build_info.json cannot be read", "Reinstall"]),
        (missing, ["does not exist", "make build"]),
        (corrupt, ["Reinstall torch-opencl-rs"]),
    ],
)
@pytest.mark.slow
def test_a_broken_installation_warns_once_with_a_fix(copy_of_package, damage: Callable[[Path], None], says: list[str]):
    damage(copy_of_package / LIBRARY)
    output = output_of(IMPORT, **environment(copy_of_package))
    assert output.count("torch.device('opencl') is not available") == 1
    for part in says:
        assert part in output


@pytest.mark.slow
def test_use_of_a_broken_installation_says_why(copy_of_package):
    for_another_torch(copy_of_package / LIBRARY)
    done = run_python("import torch; torch.opencl.init()", **environment(copy_of_package))
    assert done.returncode == 1
    assert "LibraryError: torch-opencl-rs was built for torch 2.9, and" in done.stderr
    done = run_python("-m torch_opencl.info", **environment(copy_of_package))
    assert done.returncode == 1
    assert "NOT LOADED: torch-opencl-rs was built for torch 2.9, and" in done.stdout


def test_warnings_as_errors_do_not_break_the_import(copy_of_package):
    missing(copy_of_package / LIBRARY)
    done = run_python(
        "import torch; print(torch.ones(2).sum().item())", PYTHONWARNINGS="error::RuntimeWarning",
        **environment(copy_of_package),
    )  # fmt: skip
    assert done.stdout == "2.0\n"
    assert "torch.device('opencl') is not available" in done.stderr


def test_an_earlier_backend_is_not_replaced(copy_of_package):
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_opencl
        assert torch.device("other").type == "other"
    """
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **environment(copy_of_package))
    assert done.returncode == 0, done.stderr
    assert "'other' has taken it" in done.stderr


def test_autoload_can_be_turned_off():
    code = """
        import sys, torch
        assert "torch_opencl" not in sys.modules
        import torch_opencl
        print(torch.ones(3, device="opencl").sum().item())
    """
    assert output_of(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "3.0"


def test_the_package_may_be_imported_first():
    assert output_of("import torch_opencl, torch; print(torch.ones(3, device='opencl').sum().item())") == "3.0"


def test_a_library_serves_all_patches_of_its_release(copy_of_package):
    info = (copy_of_package / LIBRARY).with_name("build_info.json")
    info.write_text(json.dumps({"version": "0.1.0", "torch": f"{torch_opencl._load.RELEASE}.99"}))
    code = "import torch; print(torch.ones(3, device='opencl').sum().item())"
    assert output_of(code, **environment(copy_of_package)) == "3.0"


def test_the_library_of_the_installed_torch_is_chosen(copy_of_package):
    shutil.copytree((copy_of_package / LIBRARY).parent, copy_of_package / "torch_opencl" / "lib" / "2.9")
    corrupt(copy_of_package / "torch_opencl" / "lib" / "2.9" / LIBRARY.name)
    code = "import torch; print(torch.ones(3, device='opencl').sum().item())"
    assert output_of(code, **environment(copy_of_package)) == "3.0"


def test_the_version_is_that_of_the_library():
    info = torch_opencl._load.build_info()
    assert info["version"] == torch_opencl.__version__
    assert info["torch"].split(".")[:2] == torch.__version__.split(".")[:2]
