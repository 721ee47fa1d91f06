"""Kernels of the GPU class: adjacent work-items access adjacent addresses, and no item does the work of many."""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from coalescing.allowed import ALLOWED
from coalescing.calls import GROUPS
from coalescing.measure import MissingError, Sources, Use, build_plugin, read, run
from coalescing.report import LEAST_EFFICIENCY, Finding, judge, stale

# One work-item per row, one per element, and one for everything.
PLANTED = """\
__kernel void by_row(__global const float *x, __global float *y) {
  float sum = 0;
  for (int i = 0; i < 256; i++) sum += x[get_global_id(0) * 256 + i];
  y[get_global_id(0)] = sum;
}

__kernel void by_column(__global const float *x, __global float *y) {
  float sum = 0;
  for (int i = 0; i < 256; i++) sum += x[i * 64 + get_global_id(0)];
  y[get_global_id(0)] = sum;
}

__kernel void alone(__global const float *x, __global float *y) {
  float sum = 0;
  if (get_global_id(0) == 0)
    for (int i = 0; i < 16384; i++) sum += x[i];
  y[get_global_id(0)] = sum;
}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_plugin(tmp_path_factory.mktemp("plugin"))
    except MissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_adjacent_items_access_adjacent_addresses(group: str, plugin: Path, tmp_path: Path) -> None:
    uses = run(plugin, group, [], tmp_path)
    assert {use.call for use in uses} == set(GROUPS[group]()), "a call has run no kernel"
    findings = judge(uses)
    wrong = [finding.text for finding in findings if not finding.allowed()]
    assert not wrong, "\n".join(wrong)
    assert not stale(group, findings)


@pytest.mark.parametrize(
    ("kernel", "kinds", "where"),
    [("by_row", ["load"], "planted.cl:3"), ("by_column", [], ""), ("alone", ["loop"], "")],
)
def test_kernels_that_waste_memory_are_found(
    kernel: str, kinds: list[str], where: str, plugin: Path, tmp_path: Path
) -> None:
    (tmp_path / "planted.cl").write_text(PLANTED)
    arguments = "<size=65536 fill=0>\n<size=256 fill=0>\n"
    (tmp_path / "planted.sim").write_text(f"planted.cl\n{kernel}\n64 1 1\n64 1 1\n{arguments}")
    log = tmp_path / "log"
    environment = {**os.environ, "OCLGRIND_PLUGINS": str(plugin), "COALESCING_LOG": str(log)}
    subprocess.run(["oclgrind-kernel", "planted.sim"], cwd=tmp_path, env=environment, check=True)
    (use,) = read(log, "planted", Sources(tmp_path))
    findings = judge([use])
    assert [finding.kind for finding in findings] == kinds
    assert where in "".join(finding.text for finding in findings)
    if kernel == "by_row":
        # Each item has a separate sector; four would be enough for all 32.
        assert findings[0].value == pytest.approx(4 / 32)


@pytest.mark.parametrize("group", ALLOWED)
def test_exceptions_are_for_existing_calls(group: str) -> None:
    calls = GROUPS[group]()
    for allowed in ALLOWED[group]:
        assert fnmatch.filter(calls, allowed.call), allowed
        assert "loop" in allowed.kinds or allowed.floor < LEAST_EFFICIENCY, allowed


def test_unneeded_exceptions_are_reported() -> None:
    (allowed, *_) = ALLOWED["interpolation"]
    assert allowed.kinds == "load"
    call = next(iter(fnmatch.filter(GROUPS["interpolation"](), allowed.call)))
    use = Use("interpolation", call, allowed.kernel)
    told = stale("interpolation", [Finding(use, "load", allowed.floor, "")])
    assert len(told) == len(stale("interpolation", [])) - 1
    # An allowed load does not justify an exception for stores, nor does a load that is not allowed.
    assert len(stale("interpolation", [Finding(use, "store", allowed.floor, "")])) == len(told) + 1
    assert len(stale("interpolation", [Finding(use, "load", allowed.floor / 2, "")])) == len(told) + 1


def test_derived_figures_of_a_use() -> None:
    use = Use("", "", "", total=100, longest=50, used=3, fetched=4)
    assert (use.parallel, use.cached) == (2, 0.75)
