"""Kernels compiled ahead of time: python -m torch_opencl.bundle, TORCH_OPENCL_KERNEL_BUNDLE."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from processes import output_of, run_python
from shared_libraries import shared_library

EXAMPLES = Path(__file__).parents[3] / "examples"

# Prints the accuracy, and the numbers of loaded and compiled programs.
TRAINING = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import torch, train_digits
result = train_digits.train(torch.device("opencl"), train_digits.Digits.load(), 2, 64)
info = torch.opencl.kernel_cache_info()
print(result.accuracy, info["loaded"], info["compiled"], info["specialized"], torch.opencl.fallbacks())
"""

# The loader's functions, except that building fails: a process with this library cannot compile.
NO_COMPILER = """
#include <cstddef>
extern "C" void *clCreateProgramWithSource(void *, unsigned, const char **, const size_t *, int *status) {
  if (status) *status = -3;
  return nullptr;
}
"""

# Prints the outcome of each case, a bundle and a statement, in a separate process.
CASES = """
import os, sys, warnings
import torch
import torch_opencl.inductor.registration
warnings.simplefilter("ignore")
for path, code in zip(sys.argv[1::2], sys.argv[2::2]):
    sys.stdout.flush()
    if os.fork() == 0:
        os.environ["TORCH_OPENCL_KERNEL_BUNDLE"] = path
        try:
            print("RESULT", eval(code))
        except Exception as error:
            print("RESULT", type(error).__name__, str(error).replace("\\n", " "))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
ADD = "(torch.ones(5, device='opencl') + 1).tolist()"


@pytest.fixture(scope="module")
def no_caches(tmp_path_factory) -> dict[str, str]:
    """Variables with which a process finds no cached programs."""
    return {
        "TORCH_OPENCL_CACHE_DIR": "",
        "POCL_CACHE_DIR": str(tmp_path_factory.mktemp("pocl")),
        "TORCH_OPENCL_SPECIALIZE": None,
    }


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory) -> dict[str, str]:
    """Variables with which every build from source fails."""
    return {"OPENCL_DYLIB_PATH": str(shared_library(tmp_path_factory.mktemp("loader"), NO_COMPILER))}


@pytest.fixture(scope="module")
def small(tmp_path_factory, no_caches) -> Path:
    """A bundle for an addition, next to the folder it was built from."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "script.py").write_text(f"import torch\n{ADD}\n")
    output_of("-m torch_opencl.bundle", "export", str(folder / "sources"), "--run", str(folder / "script.py"))
    output_of("-m torch_opencl.bundle", "build", str(folder / "sources"), str(folder / "small.bundle"))
    return folder


def changed(bundle: Path, name: str, **fields: str) -> Path:
    """A copy of a bundle with other fields in its manifest."""
    target = bundle.with_name(f"{name}.bundle")
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.namelist():
            content = source.read(entry)
            if entry == "manifest.json":
                content = json.dumps(json.loads(content) | fields).encode()
            copy.writestr(entry, content)
    return target


def results(*cases: tuple[Path, str], **environment: str | None) -> list[str]:
    words = [str(word) for case in cases for word in case]
    output = output_of(CASES, *words, **environment)
    return [line.removeprefix("RESULT ") for line in output.splitlines() if line.startswith("RESULT ")]


@pytest.mark.slow
def test_training_from_a_bundle_is_as_accurate_and_compiles_nothing(tmp_path, no_caches, no_compiler):
    script, sources, bundle = tmp_path / "train.py", tmp_path / "sources", tmp_path / "digits.bundle"
    script.write_text(TRAINING)
    told = output_of("-m torch_opencl.bundle", "export", str(sources), "--run", str(script)).splitlines()
    accuracy = float(told[0].split()[0])
    assert accuracy > 0.9
    counts = re.search(r"(\d+) programs with (\d+) kernels", told[-1])
    assert counts is not None
    if torch.opencl.get_device_properties().type == "accelerator":
        assert int(counts[2]) <= 40  # each takes a part of an FPGA
    done = run_python("-m torch_opencl.bundle", "build", str(sources), str(bundle))
    assert done.returncode == 0, done.stderr
    assert "programs" in done.stderr or "program" in done.stderr  # the progress
    # The rest of the test relies on builds failing there.
    assert "clCreateProgramWithSource" in run_python(TRAINING, **no_caches, **no_compiler).stderr
    told = output_of(TRAINING, TORCH_OPENCL_KERNEL_BUNDLE=str(bundle), **no_caches, **no_compiler).split(maxsplit=4)
    loaded, compiled, specialised = map(int, told[1:4])
    assert float(told[0]) == pytest.approx(accuracy, abs=0.02)
    assert loaded > 5
    assert (compiled, specialised, told[4]) == (0, 0, "{}")


def test_bundles_of_other_devices_and_damaged_ones_are_refused(small, no_caches):
    bundle = small / "small.bundle"
    content = bundle.read_bytes()
    (small / "truncated.bundle").write_bytes(content[: len(content) // 2])
    (small / "text.bundle").write_text("no bundle")
    with zipfile.ZipFile(bundle) as archive:
        entry = archive.getinfo(next(name for name in archive.namelist() if name != "manifest.json"))
    flipped = bytearray(content)
    flipped[entry.header_offset + len(entry.filename) + 30 + entry.compress_size // 2] ^= 0xFF
    (small / "flipped.bundle").write_bytes(flipped)
    expected = {
        bundle: r"\[2.0, 2.0, 2.0, 2.0, 2.0\]",
        small / "missing.bundle": r"missing.bundle: it cannot be read",
        small / "truncated.bundle": "is not a kernel bundle, or is truncated or damaged",
        small / "text.bundle": "is not a kernel bundle, or is truncated or damaged",
        small / "flipped.bundle": "the program 'pointwise .*' of the kernel bundle .* is damaged",
        changed(bundle, "device", device="Another GPU"): "was built for the device 'Another GPU', and",
        changed(bundle, "driver", driver_version="0.1"): "was built for the driver version '0.1', and",
        changed(bundle, "class", device_class="fpga"): "was built for the device class 'fpga', and",
        changed(bundle, "version", version="0.0.1"): r"was made by torch_opencl 0\.0\.1 from other kernel sources",
        changed(bundle, "sources", sources="0"): "other kernel sources",
        changed(bundle, "format", format="bundle 9"): "its format is 'bundle 9'",
    }
    told = results(*((path, ADD) for path in expected), **no_caches)
    for path, line, pattern in zip(expected, told, expected.values(), strict=True):
        assert re.search(pattern, line), (path.name, line)


def test_the_programs_of_a_run_are_in_the_list_of_all_kernels(small, tmp_path):
    listing = json.loads((small / "sources" / "programs.json").read_text())["programs"]
    told = output_of("-m torch_opencl.bundle", "export", str(tmp_path / "all"))
    everything = json.loads((tmp_path / "all" / "programs.json").read_text())["programs"]
    assert {program["name"] for key, program in listing.items() if key not in everything} == set()
    assert len(everything) < 1000
    assert f"{len(everything)} programs" in told


def test_for_an_fpga_a_program_has_the_kernels_of_all_runs_and_no_others(small, tmp_path, no_caches):
    if torch.opencl.get_device_properties().type != "accelerator":
        pytest.skip("for other devices programs have all kernels: make test-python DRIVER=fpga")
    sources = tmp_path / "sources"
    for name, line in (("columns", "x.sum(0)"), ("all", "x.sum().reshape(1)")):
        script = tmp_path / f"{name}.py"
        script.write_text(f"import torch\nx = torch.ones(300, 5, device='opencl')\nprint({line}.tolist()[:2])\n")
        done = run_python("-m torch_opencl.bundle", "export", str(sources), "--max-kernels", "1", "--run", str(script))
    assert done.returncode == 1
    assert re.search(r"More than 1 kernels.*\n  reduce: reduce_columns, reduce_rows", done.stderr, re.S)
    output_of("-m torch_opencl.bundle", "build", str(sources), str(tmp_path / "sums.bundle"))
    case = "torch.ones(300, 5, device='opencl').sum({}).tolist()"
    told = results(*((tmp_path / "sums.bundle", case.format(dim)) for dim in ("0", "")), **no_caches)
    assert told == ["[300.0, 300.0, 300.0, 300.0, 300.0]", "1500.0"]
    lacks = results((tmp_path / "sums.bundle", "torch.ones(300, 5, device='opencl').argmax(1)"), **no_caches)
    assert re.search("has no (program|kernel) .*export FOLDER --run SCRIPT", lacks[0])


@pytest.mark.slow
def test_the_error_for_a_missing_program_says_how_to_add_it(small, no_caches):
    bundle = small / "small.bundle"
    kernel = "torch.opencl.compile_kernel('kernel void f(global float *x) { x[0] = 2; }', 'f')"
    lacks, user, compiled = results(
        (bundle, "torch.ones(5, device='opencl').cumsum(0)"),
        (bundle, f"{kernel}(torch.ones(5, device='opencl'))"),
        (bundle, "torch.compile(lambda x: x + 1)(torch.ones(5, device='opencl')).tolist()"),
        **no_caches,
    )
    assert re.search(r"has no program 'scan .*' \(kernels .*scan_apply.*\).*export FOLDER --run SCRIPT", lacks)
    assert re.search("compile_kernel and torch.compile have to be compiled, and with TORCH_OPENCL_KERNEL_BUNDLE", user)
    assert compiled == "[2.0, 2.0, 2.0, 2.0, 2.0]"


def test_binaries_of_another_compiler_make_a_bundle(small, tmp_path, no_caches):
    sources = shutil.copytree(small / "sources", tmp_path / "sources")
    with zipfile.ZipFile(small / "small.bundle") as archive:
        for key, program in json.loads((sources / "programs.json").read_text())["programs"].items():
            (sources / program["file"]).with_suffix(".aocx").write_bytes(archive.read(f"programs/{key}.bin"))
    from torch_opencl import bundle

    assert bundle.main(["build", str(sources), str(tmp_path / "fpga.bundle"), "--binaries", "aocx"]) == 0
    assert results((tmp_path / "fpga.bundle", ADD), **no_caches) == ["[2.0, 2.0, 2.0, 2.0, 2.0]"]


def test_info_names_the_bundle_and_the_missing_programs_of_its_self_test(small, no_caches):
    bundle = small / "small.bundle"
    told = output_of("-m torch_opencl.info", TORCH_OPENCL_KERNEL_BUNDLE=str(bundle), **no_caches)
    assert re.search(rf"Kernel bundle: {re.escape(str(bundle))}, \d+ programs, \d+ of them loaded", told)
    assert re.search(r"self-test: not run: .*has no (program|kernel)", told)


def test_sources_that_were_changed_are_left_out(small, tmp_path, capsys):
    sources = shutil.copytree(small / "sources", tmp_path / "sources")
    for path in sources.glob("*.cl"):
        path.write_text("__kernel void other(int x) {}\n")
    from torch_opencl import bundle

    assert bundle.main(["build", str(sources), str(tmp_path / "changed.bundle")]) == 2
    assert "has changed since its export" in capsys.readouterr().err
    assert not (tmp_path / "changed.bundle").exists()
    assert bundle.main(["build", str(tmp_path / "nothing"), "x"]) == 2
    assert "export` writes it" in capsys.readouterr().err
