"""The tiling parameters of matmuls: valid values, their use by kernels, and their storage."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from float64 import computed
from processes import output_of, run_python
from torch_opencl.tune.space import groups_of

native = torch.ops.torch_opencl


@pytest.fixture(autouse=True)
def restored(device):
    values = json.loads(native.tuning(device.index))["values"]
    yield
    native.set_tuning(device.index, json.dumps(values))


def state(device) -> dict:
    return json.loads(native.tuning(device.index))


def use(device, **values: int) -> None:
    native.set_tuning(device.index, json.dumps(values))


def only_on(device, device_class: str) -> None:
    if state(device)["header"]["device"]["class"] != device_class:
        pytest.skip(f"a device of another class than {device_class}")


def close(result: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 2e-6 if expected.dtype in (torch.float32, torch.complex64) else 1e-10
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=tolerance * (1 + expected.abs().max().item()))


def check_matmuls(device, dtypes=(torch.float32,)) -> None:
    """Compare matmuls and a convolution of odd sizes, with its gradients, with the CPU's."""
    for dtype in dtypes:
        a, b = (torch.randn(size) * 9 for size in [(67, 301), (301, 131)])
        a, b = a.to(dtype), b.to(dtype)
        close(a.to(device) @ b.to(device), a @ b)
        close(b.to(device).t() @ a.to(device).t(), b.t() @ a.t())
    batch, other = torch.randn(3, 40, 1030), torch.randn(3, 1030, 50)
    close(batch.to(device) @ other.to(device), batch @ other)
    x, weight = torch.randn(2, 13, 11, 9), torch.randn(19, 13, 3, 3)

    def convolution(device):
        leaves = [tensor.to(device).requires_grad_() for tensor in (x, weight)]
        result = F.conv2d(*leaves, padding=1)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), leaves)]

    for ours, expected in zip(convolution(device), convolution("cpu"), strict=True):
        close(ours, expected)


# --- the values


CPU_TUNINGS = [
    {"vector_bytes": 32, "tile_rows": 8, "tile_vectors": 3},
    {"vector_bytes": 64, "tile_rows": 12, "tile_vectors": 2},
    {"vector_bytes": 64, "tile_rows": 16, "tile_vectors": 1, "block_k": 16, "strip_rows": 4},
    {"vector_bytes": 32, "tile_rows": 4, "tile_vectors": 2, "block_bytes": 16384, "kept_bytes": 16384},
]


@pytest.mark.parametrize("values", CPU_TUNINGS, ids=str)
def test_kernels_are_right_with_other_values(device, values):
    only_on(device, "cpu")
    use(device, **values)
    assert values.items() <= state(device)["values"].items()
    check_matmuls(device)


def test_other_dtypes_use_the_values_too(device):
    only_on(device, "cpu")
    use(device, vector_bytes=32, tile_rows=16, tile_vectors=1)
    check_matmuls(device, computed([torch.float64, torch.int64, torch.complex64, torch.complex128]))


def test_another_tile_is_another_program(device):
    only_on(device, "cpu")

    def programs() -> int:
        info = torch.opencl.kernel_cache_info()
        return info["compiled"] + info["loaded"]

    a = torch.randn(50, 60, device=device)
    use(device, tile_rows=12, tile_vectors=1)
    before = programs()
    a @ a.t()
    assert programs() == before + 1
    use(device, tile_rows=12, tile_vectors=1, block_k=100)
    a @ a.t()
    assert programs() == before + 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "a JSON object"),
        ('{"colour": 1}', "has no parameter colour: expected some of"),
        ('{"block_k": 0}', "block_k = 0: expected a multiple of 1 from 16 to 4096"),
        ('{"tile_rows": 6}', "tile_rows = 6: expected a multiple of 4 from 4 to 16"),
        ('{"block_k": "many"}', "expected a whole number"),
    ],
)
def test_invalid_values_are_refused(device, text, reason):
    only_on(device, "cpu")
    before = state(device)["values"]
    with pytest.raises(RuntimeError, match=reason):
        native.set_tuning(device.index, text)
    assert state(device)["values"] == before


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError):
        native.tuning(torch.opencl.device_count())


@pytest.mark.parametrize("quick", [True, False])
def test_every_candidate_has_valid_parameters(device, quick):
    device_class = state(device)["header"]["device"]["class"]
    for group in groups_of(device_class, quick):
        for candidate in group:
            use(device, **candidate)


def test_gpus_have_other_parameters():
    code = f"""
    import sys, torch
    import torch.nn.functional as F
    sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
    import test_tuning
    from float64 import computed
    device = torch.device("opencl", 0)
    torch.manual_seed(0)
    assert set(test_tuning.state(device)["values"]) == {{"side", "item", "step_bytes", "band", "groups_per_unit"}}
    def check(rows, columns, k, dtype=torch.float32):
        a, b = torch.randn(rows, k, dtype=dtype), torch.randn(k, columns, dtype=dtype)
        test_tuning.close(a.to(device) @ b.to(device), a @ b)
    test_tuning.use(device, side=8, item=8, step_bytes=32, band=3)
    check(67, 131, 301)
    check(700, 600, 40)
    x, weight = torch.randn(2, 13, 11, 9), torch.randn(19, 13, 3, 3)
    test_tuning.close(F.conv2d(x.to(device), weight.to(device)), F.conv2d(x, weight))
    test_tuning.use(device, item=4, step_bytes=16, groups_per_unit=9)
    for dtype in computed([torch.complex64, torch.complex128]):
        check(30, 70, 1000, dtype)
    try:
        test_tuning.use(device, side=128)
    except RuntimeError as error:
        print(error)
    """
    assert "side = 128: expected a multiple of 8 from 8 to 32" in output_of(code, TORCH_OPENCL_DEVICE_CLASS="gpu")


def test_a_library_is_chosen_again_for_other_values(tmp_path):
    code = """
    import json, torch
    a = torch.randn(256, 256, device="opencl")
    chosen = []
    for values in ["{}", '{"block_k": 64}', "{}"]:
        torch.ops.torch_opencl.set_tuning(0, values)
        assert torch.backends.opencl.blas_choices() == {}
        a @ a
        chosen.append(len(torch.backends.opencl.blas_choices()))
    print(*chosen)
    """
    environment = {"TORCH_OPENCL_CACHE_DIR": str(tmp_path), "TORCH_OPENCL_BLAS": "auto"}
    chosen = output_of(code, TORCH_OPENCL_DEVICE_CLASS="cpu", **environment)
    if chosen == "0 0 0":
        pytest.skip("a device with one library has no choice")
    assert chosen == "1 1 1"
    # The third run reused the measurements of the first.
    assert len(list(tmp_path.glob("*.note"))) == 2


# --- the file


FILE = """
    import json, torch
    from pathlib import Path
    from torch_opencl.tune import record
    torch.opencl.init()
    native = torch.ops.torch_opencl
    def state():
        return json.loads(native.tuning(0))
    path, defaults = Path(state()["path"]), state()["defaults"]
    name = "block_k" if "block_k" in defaults else "band"
    tuned = defaults | {name: 31}
"""


def test_later_processes_use_the_stored_values(tmp_path):
    environment = {"TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    output_of(FILE + "    record.store(0, record.Record(values=tuned, defaults=defaults))", **environment)
    code = FILE + "    print(state()['values'] == tuned, record.recorded(0).values == tuned)"
    assert output_of(code, **environment) == "True True"
    other_class = {"cpu": "gpu", "gpu": "cpu"}[json.loads(native.tuning(0))["header"]["device"]["class"]]
    code = FILE + "    print(state()['values'] == state()['defaults'], record.recorded(0))"
    assert output_of(code, TORCH_OPENCL_DEVICE_CLASS=other_class, **environment) == "True None"


def test_an_invalid_file_is_ignored_with_a_warning(tmp_path):
    code = """
    record.store(0, record.Record(values=tuned, defaults=defaults))
    whole = path.read_text()
    content = json.loads(whole)
    def changed(**what):
        return json.dumps({**content, **what})
    for text in [
        "",
        whole[:100],
        "[1]",
        changed(format=0),
        changed(device={**content["device"], "driver_version": "0"}),
        changed(device={**content["device"], "name": "another"}),
        changed(values=None),
        changed(values={name: 10**9}),
        changed(values={"colour": 1}),
        # The name of block_k in earlier versions.
        changed(values={"depth": 256}),
    ]:
        path.write_text(text)
        native.set_tuning(0, "")
        assert state()["values"] == defaults, text
    trials = [{"trials": {"a / b": {"512": -1}}}, {"trials": 3}, {"trying": {"block_k": 64}}]
    for damage in [*trials, {"speedup": {"512": "much"}}]:
        path.write_text(changed(**damage))
        assert record.recorded(0) is None, damage
    path.write_text(changed(defaults={name: 1}))
    assert record.recorded(0) is None
    path.write_text(whole)
    native.set_tuning(0, "")
    assert state()["values"] == tuned
    """
    done = run_python(FILE + code, TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    reasons = [
        "it is not JSON",
        "it is not JSON",
        "it is not a JSON object",
        "another version of this package",
        "another device, driver",
        "another device, driver",
        "it has no values",
        "= 1000000000: expected",
        "has no parameter colour",
        "has no parameter depth",
    ]
    warnings = [line for line in done.stderr.splitlines() if "is not used" in line]
    assert len(warnings) == len(reasons)
    for warning, reason in zip(warnings, reasons, strict=True):
        assert reason in warning


def test_one_process_tunes_at_a_time(tmp_path):
    code = """
    import subprocess, sys
    with record.alone(0):
        print(subprocess.run([sys.executable, "-m", "torch_opencl.tune", "--quick"], capture_output=True, text=True))
    """
    output = output_of(FILE + code, TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert "returncode=1" in output and "error: OpenCL: another process is tuning" in output


def test_without_a_folder_there_is_nothing_to_find():
    done = run_python("-m torch_opencl.tune --quick", TORCH_OPENCL_CACHE_DIR="")
    assert done.returncode == 1 and "there is no folder to keep a tuning in" in done.stderr
