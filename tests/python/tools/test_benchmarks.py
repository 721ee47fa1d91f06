"""The benchmarks: each row can be selected and judged, and a wrong result is not timed."""

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from processes import output_of

from benchmarks import constants, gpu, models
from benchmarks.case import Case, Work
from benchmarks.cases import all_cases, compiled as compiled_rows, gpu as gpu_rows, measured as constants_rows, select
from benchmarks.cases.networks import Network, image, text
from benchmarks.compiled import CompiledRow
from benchmarks.growth import cliffs
from benchmarks.limits import Limits
from benchmarks.measure import Row, WrongResult, build, measure
from benchmarks.report import print_summary
from benchmarks.summary import groups, shortfall
from benchmarks.targets import COMPILED, TARGETS
from build_support import native

DEVICE = torch.device("opencl")


@pytest.fixture(scope="module")
def limits():
    return Limits(DEVICE)


def row(group="softmax", cpu=1.0, **others):
    return Row(group=group, name="a row", cpu=[cpu] * 3, device=[1.0] * 3, **others)


def test_each_row_has_a_name_and_each_group_a_target():
    cases = [*all_cases(), *gpu_rows.cases()]
    names = Counter((case.group, case.name) for case in cases)
    assert [name for name, count in names.items() if count > 1] == []
    assert {case.group for case in cases} == set(TARGETS)


def test_each_compiled_row_has_a_name_and_each_of_their_groups_a_target():
    cases = list(compiled_rows.cases())
    assert len({case.name for case in cases}) == len(cases)
    assert {case.group for case in cases} == set(COMPILED)
    assert {case.group for case in compiled_rows.select([], quick=True)} == set(COMPILED)
    assert {case.name for case in compiled_rows.select(["softmax"])} == {
        "softmax f32",
        "softmax, forward and backward f32",
    }


@pytest.mark.parametrize(("judged", "lacks"), [(0, "eager 2"), (1, "inductor 1")])
def test_a_compiled_row_is_short_of_eager_mode_or_of_inductor(judged, lacks):
    sides = {"eager": [(1.9, 2.1)] * 3, "compiled": [(1.0, 1.0)] * 3, "inductor": [(1.1, 0.9)] * 3}
    row = CompiledRow(group="compiled-chain", name="a row", **sides, least=2.0, judged=judged)
    assert row.shortfall == lacks


def test_each_measured_constant_has_other_values_and_rows_and_each_row_for_constants_a_constant():
    declared = constants.declared()
    assert set(declared) == set(constants.CONSTANTS)
    for name, constant in constants.CONSTANTS.items():
        assert declared[name][1] not in constant.others and constant.others
        assert {case.name for case in constants.rows_of(constant)} == set(constant.rows)
    wanted = {row for constant in constants.CONSTANTS.values() for row in constant.rows}
    assert {case.name for case in constants_rows.cases()} <= wanted


def test_an_unknown_constant_is_refused(capsys):
    assert constants.run("opencl", ["GATE_LEAST"]) == 2
    assert "no constant GATE_LEAST; there are LAUNCH_BATCH" in capsys.readouterr().err


def test_a_package_with_another_library_is_the_one_that_is_imported(tmp_path):
    constants.make_package(tmp_path, native.package_folder() / native.LIBRARY)
    code = """
    import torch, torch_opencl._load
    print(torch.ones(3, device="opencl").sum().item(), torch_opencl._load.LIBRARY)
    """
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    total, library = output_of(code, PYTHONPATH=path).split()
    assert total == "3.0" and Path(library).is_relative_to(tmp_path)


def test_quick_measures_something_of_every_group():
    assert {case.group for case in select([], quick=True)} == set(TARGETS)


def test_rows_are_selected_by_group_name_and_pattern():
    chosen = select(["gemm-f64", "exp f32 dense", "add bf16 *"])
    assert {case.group for case in chosen} == {"gemm-f64", "pointwise", "pointwise-out"}
    assert {case.name.split()[0] for case in chosen if case.group == "pointwise"} == {"exp", "add"}


def test_a_small_row_is_measured_against_its_limit(limits):
    def build(device):
        x = torch.arange(1024.0).to(device)
        return Work(run=lambda: x + 1, reads=[x])

    measured = measure(Case(group="pointwise", name="small", build=build), DEVICE, limits)
    assert min(measured.cpu + measured.device + measured.limit) > 0
    assert measured.bound == "cache"
    assert measured.fallbacks == []


@pytest.mark.slow
def test_a_row_is_also_measured_in_eager_mode_with_programs_from_disk(tmp_path):
    code = """
    import json, torch
    from benchmarks.cases import select
    from benchmarks.eager import EagerProcess
    from benchmarks.limits import Limits
    from benchmarks.measure import measure
    eager, device = EagerProcess("opencl"), torch.device("opencl")
    measured = [measure(case, device, Limits(device), eager) for case in select(["exp f32 dense"])]
    eager.close()
    assert all(len(row.eager) == len(row.device) and min(row.eager) > 0 and row.over_eager > 0 for row in measured)
    print(json.dumps(torch.opencl.kernel_cache_info()))
    """
    root = str(Path(__file__).parents[3])
    variables = {"TORCH_OPENCL_SPECIALIZE": "background", "TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    report = json.loads(output_of(code, PYTHONPATH=f"{root}:{os.environ.get('PYTHONPATH', '')}", **variables))
    # The other process built the program; this one compiles nothing, and does not even load the generic program.
    assert report["specialize"] == "background" and report["compiled"] == 0 and report["loaded"] > 0
    assert report["specialized"] == report["loaded"]


def test_a_gpu_row_is_measured_with_another_backend_and_its_limit(tmp_path, monkeypatch):
    """PyTorch's CPU backend stands for the vendor's."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    (case,) = (case for case in gpu_rows.cases() if case.name == "add of 4, a chain to its end")
    path = tmp_path / "rows"
    assert gpu.run("opencl", "cpu", path, [case]) == 0
    measured = json.loads(path.read_text())
    assert measured["peer_ratio"] > 0 and measured["peer"] > 0 and measured["seconds"] > 0
    assert len(measured["device"]) == len(measured["vendor"]) == 5 and measured["fallbacks"] == []


def test_a_row_of_gpus_has_a_rate_and_a_share_of_the_limit(limits):
    def add(device):
        x = torch.arange(4096.0).to(device)
        return Work(run=lambda: x + 1, reads=[x])

    def product(device):
        x = torch.eye(64).to(device)
        return Work(run=lambda: x @ x)

    moving, computing = (
        gpu.measure(Case(group="gemm", name="small", build=build), DEVICE, limits) for build in (add, product)
    )
    assert moving["bound"] == "cache" and moving["limit_share"] > 0 and moving["rate"].endswith(" GB/s")
    assert computing["bound"] == "arithmetic" and computing["rate"].endswith(" GFLOP/s")
    assert moving["peer"] is None and moving["peer_ratio"] is None


def test_a_wrong_gpu_row_is_recorded_and_fails_the_run(tmp_path):
    case = Case(
        group="pointwise",
        name="wrong",
        build=lambda device: Work(run=lambda: torch.full((4,), float(device.type == "cpu"), device=device)),
    )
    assert gpu.run("opencl", None, tmp_path / "rows", [case]) == 1
    assert "not close" in json.loads((tmp_path / "rows").read_text())["error"]


SMALL = gpu_rows.Sizes(
    side=72,
    matmuls={"f32": (40,), "f16": (40,), "bf16": (40,)},
    images=(2, 8, 9, 9),
    heads=(1, 2, 40, 64),
    parameters=1000,
    layer=(128, 96),
    networks=(
        Network("LeNet", models.lenet, image(4, 1, 8, 8), 4, 10),
        Network("decoder", partial(models.Decoder, 50, 16, 32, 1, 2), text(50, 2, 16), 32, 50),
    ),
)


@pytest.mark.parametrize("case", list(gpu_rows.cases(SMALL)), ids=lambda case: case.name)
def test_the_work_of_a_gpu_row_is_right(case):
    gpu.check_on_cpu(case, build(case, DEVICE).run())


def test_a_gpu_row_that_exceeds_the_memory_is_not_an_error(tmp_path):
    most = torch.opencl.get_device_properties(DEVICE).max_alloc_bytes
    case = Case(
        group="pointwise", name="huge", build=lambda device: torch.empty(most + 1, dtype=torch.int8, device=device)
    )
    assert gpu.run("opencl", None, tmp_path / "rows", [case]) == 0
    assert "out of memory" in json.loads((tmp_path / "rows").read_text())["unable"]


def test_rows_that_are_slower_than_in_eager_mode_are_named(capsys):
    rows = [row(eager=[0.5] * 3), row("norm", cpu=3.0, eager=[1.0] * 3), row("conv", cpu=2.0)]
    assert [each.over_eager for each in rows] == [2.0, 1.0, None]
    assert [each.eager_ratio for each in rows] == [2.0, 3.0, None]
    print_summary(rows)
    text = capsys.readouterr().out
    assert "The time over eager mode's: mean 1.414, above 1.05 in 1 of 2\n  softmax" in text


def test_a_wrong_result_is_not_timed(limits):
    case = Case(
        group="pointwise",
        name="wrong",
        build=lambda device: Work(run=lambda: torch.full((4,), float(device.type == "cpu"), device=device)),
    )
    with pytest.raises(WrongResult, match="not close"):
        measure(case, DEVICE, limits)


def test_an_arithmetic_limit_takes_no_longer_in_float32_than_in_float64(limits):
    if not torch.opencl.get_device_properties(DEVICE).fp64:
        pytest.skip("the device has no float64")
    assert limits.flops(torch.float32) > limits.flops(torch.float64) > 1e8


@pytest.mark.parametrize(
    ("measured", "lacks"),
    [
        (row(cpu=0.9), "ratio"),
        (row(cpu=1.1, limit=[0.5] * 3, bound="memory"), "share"),
        (row(cpu=1.1, limit=[0.8] * 3, bound="memory"), ""),
        (row("enqueue"), "time"),
        (row("gemm", cpu=1.1, limit=[0.8] * 3, bound="arithmetic", share=0.85), "share"),
    ],
)
def test_a_row_below_its_target_is_named(measured, lacks):
    assert shortfall(measured) == lacks


def test_a_group_is_judged_by_its_geometric_mean_and_its_rows():
    (group,) = groups([row(cpu=4.0), row(cpu=1.0)])
    assert group.mean == pytest.approx(2.0)
    assert group.passes
    (group,) = groups([row(cpu=4.0), row(cpu=0.9)])
    assert group.mean > TARGETS["softmax"].mean
    assert not group.passes


def test_a_cliff_is_a_unit_that_takes_twice_as_long_as_at_the_next_smaller_size():
    assert cliffs([(1, 9.0), (2, 3.0), (3, 5.0), (4, 10.5), (5, 1.0)]) == [(3, 4, pytest.approx(2.1))]
