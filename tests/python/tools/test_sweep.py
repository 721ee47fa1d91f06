"""tests/sweep: mistakes are found, crashes survived, and results kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sweep import page
from sweep.pairs import chosen, every_pair, parse
from sweep.results import Record

SWEEP = Path(__file__).parents[2] / "sweep"


def sweep(results: Path, *arguments: str) -> tuple[int, str]:
    """Run it; return its exit status and output."""
    command = [sys.executable, str(SWEEP), "--results", str(results), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


def records(results: Path) -> dict[str, Record]:
    entries = [json.loads(line) for line in results.read_text().splitlines()[1:]]
    return {entry["pair"]: Record(**entry) for entry in entries}


@pytest.mark.slow
def test_mistakes_are_found_and_the_run_continues_after_crashes_and_hangs(tmp_path: Path) -> None:
    names = ["right", "wrong", "error", "unsupported", "crash", "cpu_crash", "hang", "random", "not_on_cpu"]
    status, text = sweep(tmp_path / "r", "--planted", ",".join(names), "--hang", "20")
    assert status == 1, text
    found = {pair.split()[1]: record for pair, record in records(tmp_path / "r").items()}
    same = ("wrong", "error", "unsupported", "crash", "hang")
    assert {name: record.status for name, record in found.items()} == {
        **{name: name for name in same},
        **{"right": "composed", "random": "composed", "cpu_crash": "none", "not_on_cpu": "none"},
    }
    for record in found.values():
        assert set(record.checks) == {"forward", "after"}, record
    assert "7 pairs work on the CPU, 2 others are not counted" in text


@pytest.mark.slow
def test_a_run_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    assert sweep(tmp_path / "r", "--planted", "right")[0] == 0
    status, text = sweep(tmp_path / "r", "--planted", "right,error")
    assert status == 1, text
    # The header and two pairs: the first pair was not checked again.
    assert len((tmp_path / "r").read_text().splitlines()) == 3
    assert "planted error float32 forward (float32)" in text or "planted error forward (float32)" in text


@pytest.mark.slow
def test_results_of_another_build_are_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "r").write_text('{"library": "other", "torch": "0"}\n{"pair": "planted right float32"}\n')
    assert sweep(tmp_path / "r", "--planted", "right")[0] == 0
    assert (tmp_path / "r.old.jsonl").exists()
    assert records(tmp_path / "r")["planted right float32"].status == "composed"


@pytest.mark.slow
def test_native_host_and_composed_operators_are_distinguished(tmp_path: Path) -> None:
    status, text = sweep(tmp_path / "r", "add", "hstack", "nn.ReLU", "SGD", "float32")
    assert status == 0, text
    statuses = {pair: record.status for pair, record in records(tmp_path / "r").items()}
    assert statuses == {
        "op add float32": "native",
        "op hstack float32": "composed",
        "module nn.ReLU float32": "composed",
        "optim SGD float32": "composed",
    }
    checks = records(tmp_path / "r")["op add float32"].checks
    corners = {"overlap", "pairs", "batches", "vmap_backward", "dims"}
    assert set(checks) == {"forward", "out", "inplace", "backward", "gradgrad", "jvp", "vmap", "errors"} | corners
    # The bad arguments are for CUDA only, and addition has no dimension argument.
    assert {name for name, check in checks.items() if check["kind"] != "right"} == {"errors", "dims"}


def test_pairs_are_those_of_all_databases() -> None:
    every = every_pair()
    counts = {kind: len({pair.name for pair in every if pair.kind == kind}) for kind in ("op", "module", "optim")}
    assert counts["op"] > 600 and counts["module"] > 90 and counts["optim"] > 12
    assert len({pair.dtype for pair in every}) >= 10
    assert [parse(str(pair)) for pair in every] == every


def test_words_and_samples_choose_pairs() -> None:
    every = every_pair()
    few = chosen(every, ["op", "float32", "add", "linalg.s*"], None, 0)
    assert {pair.dtype for pair in few} == {"float32"} and {pair.kind for pair in few} == {"op"}
    assert "add" in {pair.name for pair in few} and "linalg.svd" in {pair.name for pair in few}
    drawn = chosen(every, [], 60, 0)
    assert len(drawn) == 60 and drawn == chosen(every, [], 60, 0) != chosen(every, [], 60, 1)
    # The selection changes little if other pairs change.
    assert len(set(drawn) & set(chosen(every[1:], [], 60, 0))) >= 59


def test_the_page_keeps_lines_of_unmeasured_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "coverage.md")
    page.PAGE.write_text("# Table\n\ntext\n")
    check = {"kind": "right", "text": "", "computed_by": "native"}
    page.write_measured(
        [Record("op add float32", {"forward": check}), Record("module nn.GRU float64", {"forward": check})]
    )
    page.write_measured([Record("op add int8", {"forward": {"kind": "wrong", "text": "1 instead of 2"}})])
    lines = {"add": {"float32": "n", "int8": "w"}, "torch.nn.GRU": {"float64": "n"}}
    assert page.measured_lines(page.PAGE.read_text()) == lines
    (tmp_path / "built").write_text("# Other table\n")
    page.write_table(tmp_path / "built")
    assert page.halves(page.PAGE.read_text())[0] == "# Other table\n"
    assert page.measured_lines(page.PAGE.read_text()) == lines
