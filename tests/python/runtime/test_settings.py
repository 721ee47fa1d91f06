"""Environment variables: wrong names and values, and settings that hide all devices, always cause a message."""

import os
import re
from pathlib import Path

import pytest
import torch
from processes import NO_DRIVER, output_of, run_python
from torch_opencl import _embedded_driver, _settings

ROOT = Path(__file__).parents[3]
WORDS = {name: words for name, words in _settings.VARIABLES.items() if words}
USE = "import torch; x = torch.ones(400, 400, device='opencl'); (x @ x).sum().item()"
ASK = "import torch; print(torch.opencl.is_available()); torch.opencl.device_count()"


def test_the_list_the_sources_and_the_page_name_the_same_variables():
    files = [
        path for folder in ("rust", "cpp") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".rs", ".cpp")
    ]
    # Source files contain the whole name as a literal where they read a variable.
    literal = re.compile(r'(?<!define )"(TORCH_OPENCL_[A-Z_]+[A-Z])"')
    read = {name for path in files for name in literal.findall(path.read_text())}
    page = (ROOT / "docs/options.md").read_text()
    rows = set(re.findall(r"^\| `(TORCH_OPENCL_\w+)` \|", page, re.M))
    assert read == rows == set(_settings.VARIABLES)
    for name, words in WORDS.items():
        row = re.search(rf"^\| `{name}` \|.*", page, re.M)[0]
        assert [word for word in words if f"`{word}`" not in row] == []
    for name in _settings.BUILD_VARIABLES:
        assert f"`{name}`" in page and name in (ROOT / "build.rs").read_text()


def test_documents_name_no_other_variable():
    known = {*_settings.VARIABLES, *_settings.BUILD_VARIABLES}
    named = re.compile(r"`(TORCH_OPENCL_[A-Z_]*[A-Z])\b")
    header = (ROOT / "python/torch_opencl/include/torch_opencl.h").read_text()
    macros = set(re.findall(r"\b(TORCH_OPENCL_[A-Z_]+)\b", header))
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert set(named.findall(path.read_text())) - known - macros == set(), path


@pytest.mark.parametrize("name", WORDS)
def test_a_word_that_is_not_in_the_list_is_warned_about_and_refused(name):
    done = run_python(USE, **{name: "nonsense"})
    assert done.returncode == 1
    assert f"RuntimeWarning: {name}=nonsense: expected " in done.stderr
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("RuntimeError") and [word for word in WORDS[name] if word not in message] == []


def test_the_words_of_the_list_are_accepted():
    for position in range(3):
        # All except "cublas", which needs the library.
        chosen = {name: words[position % len(words)] for name, words in WORDS.items()}
        done = run_python(USE, **chosen)
        assert (done.returncode, done.stderr) == (0, ""), chosen


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TORCH_OPENCL_DEVCIE_CLASS", "Did you mean TORCH_OPENCL_DEVICE_CLASS?"),
        ("TORCH_OPENCL_DEVICE", "Did you mean TORCH_OPENCL_DEVICES?"),
        ("TORCH_OPENCL_X", "There are: TORCH_OPENCL_BLAS, "),
    ],
)
def test_an_unknown_variable_is_warned_about_once_with_the_nearest_one(name, says):
    done = run_python(ASK, **{name: "gpu"})
    assert done.stdout == "True\n"
    assert done.stderr.count(f"{name} is not a variable of torch_opencl. {says}") == 1


def test_variables_of_the_build_are_known():
    done = run_python(ASK, TORCH_OPENCL_PYTHON="/usr/bin/python3", TORCH_OPENCL_CONSTANT_LAUNCH_BATCH="2")
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"TORCH_OPENCL_DEVICES": "nonsense"},
            "TORCH_OPENCL_DEVICES=nonsense names no device of this machine. Known: 0:",
        ),
        ({"TORCH_OPENCL_DEVICE_CLASS": "GPU"}, "TORCH_OPENCL_DEVICE_CLASS=GPU: expected cpu or gpu"),
        (NO_DRIVER, "The environment has OCL_ICD_VENDORS=/nonexistent"),
    ],
)
def test_a_setting_that_leaves_no_device_is_warned_about_once(variables, says):
    done = run_python(f"{ASK}; print(torch.accelerator.is_available())", **variables)
    assert done.stdout == "False\nFalse\n"
    assert done.stderr.count("RuntimeWarning") == 1 and says in done.stderr


@pytest.mark.parametrize("name", ["TORCH_OPENCL_DEVICES", "TORCH_OPENCL_DEVICE_CLASS"])
def test_import_and_is_available_do_not_raise_if_warnings_are_errors(name):
    done = run_python(ASK, **{name: "nonsense"}, PYTHONWARNINGS="error::RuntimeWarning")
    assert done.stdout == "False\n" and f"{name}=nonsense" in done.stderr


def test_hiding_all_devices_on_purpose_warns_of_nothing():
    done = run_python(ASK, TORCH_OPENCL_DEVICES="")
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize(
    ("variables", "cause", "has_list_of_drivers"),
    [
        ({"TORCH_OPENCL_DEVICES": "nonsense"}, "TORCH_OPENCL_DEVICES=nonsense names no device", False),
        ({"TORCH_OPENCL_DEVICE_CLASS": "GPU"}, "TORCH_OPENCL_DEVICE_CLASS=GPU: expected cpu or gpu", False),
        (NO_DRIVER, "The environment has OCL_ICD_VENDORS=/nonexistent", True),
    ],
)
def test_info_names_the_cause_before_the_cure(variables, cause, has_list_of_drivers):
    done = run_python("-m torch_opencl.info", **variables)
    assert done.returncode == 1
    before, found, after = done.stdout.partition(f"\nNo OpenCL device can be used: {cause}")
    assert found and "OpenCL needs a driver" not in before
    assert ("OpenCL needs a driver" in after) == has_list_of_drivers


def test_a_right_setting_is_not_blamed_for_a_missing_driver():
    for variables in ({"TORCH_OPENCL_DEVICES": "cpu"}, {"TORCH_OPENCL_DEVICE_CLASS": "gpu"}):
        done = run_python("-m torch_opencl.info", **variables, **NO_DRIVER)
        assert "No OpenCL device can be used: The environment has OCL_ICD_VENDORS=/nonexistent" in done.stdout
    drivers = os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")
    done = run_python(ASK, TORCH_OPENCL_DEVICES="", OCL_ICD_VENDORS=drivers)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_info_says_that_pocl_cannot_write_its_cache():
    if torch.opencl.get_device_properties().platform != "Portable Computing Language":
        pytest.skip("this is about PoCL")
    if not any(_embedded_driver.REGISTRY.glob("*pocl*.icd")):
        pytest.skip("PoCL is not registered")
    variables = {"POCL_CACHE_DIR": "/dev/null/cache"}
    cause = "If PoCL is installed: it offers no device if it cannot write to /dev/null/cache"
    done = run_python("-m torch_opencl", **variables)
    assert f"No OpenCL device can be used: {cause}" in done.stdout
    assert "Set POCL_CACHE_DIR" in done.stdout and "OpenCL needs a driver" not in done.stdout
    assert cause in run_python(ASK, **variables).stderr


def test_info_of_the_package_is_that_of_the_module():
    assert output_of("-m torch_opencl", "--json").startswith("{")
