"""Tuning of matmuls: the search for better parameters, and python -m torch_opencl.tune."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from processes import run_python
from torch_opencl.tune import search
from torch_opencl.tune.record import Record

# --- the search


class Interrupted(BaseException):
    pass


class ImaginedRig:
    """A simulated device with known best values: each value has a speed, and the time of work is their product."""

    names = ("small", "large")

    def __init__(self, speeds: dict[str, dict[int, float]], wrong: tuple[str, int] | None = None, stop: int = -1):
        self.speeds, self.wrong, self.stop = speeds, wrong, stop
        self.compared: list[tuple[str, str]] = []

    def speed(self, values: dict[str, int]) -> float:
        product = 1.0
        for name, value in values.items():
            product *= self.speeds[name][value]
        return product

    def compare(self, name, candidate, other):
        if len(self.compared) == self.stop:
            raise Interrupted
        if self.speed(candidate) == 0:
            raise RuntimeError("the compiler has crashed\nand says why")
        self.compared.append((name, str(candidate)))
        return self.speed(candidate) / self.speed(other)

    def verify(self, candidate):
        if self.wrong in candidate.items():
            raise RuntimeError("a result is wrong")


SPEEDS = {"a": {1: 1.0, 2: 1.3, 3: 1.5, 4: 0}, "b": {1: 1.0, 2: 0.5, 3: 1.01, 4: 1.2}}
GROUPS = [[{"a": value} for value in (1, 2, 3, 4)], [{"b": value} for value in (1, 2, 3, 4)]]


def found(rig: ImaginedRig, record: Record | None = None) -> Record:
    record = record or Record(values={"a": 1, "b": 1}, defaults={"a": 1, "b": 1})
    assert len(list(search.Search(rig, record, lambda: None).run(GROUPS))) == 8
    return record


def test_the_search_ends_with_the_best():
    rig = ImaginedRig(SPEEDS)
    record = found(rig)
    assert record.values == {"a": 3, "b": 4}
    assert record.speedup == {"small": 1.8, "large": 1.8}
    assert record.trials["a=4 / defaults"] == {"failed": "the compiler has crashed"}
    assert record.trials["a=3 b=2 / a=3"] == {"small": 0.5}, "much slower work is not timed further"


def test_values_with_wrong_results_are_not_chosen():
    record = found(ImaginedRig(SPEEDS, wrong=("a", 3)))
    assert record.values == {"a": 2, "b": 4}
    assert record.trials["again: a=3 / defaults"] == {"failed": "a result is wrong"}


def test_defaults_are_kept_if_nothing_is_faster():
    slow = {"a": {1: 1.0, 2: 0.9, 3: 1.0, 4: 1.01}, "b": {1: 1.0, 2: 1.0, 3: 0.7, 4: 1.015}}
    record = found(ImaginedRig(slow))
    assert record.values == record.defaults and record.speedup == {}


@pytest.mark.parametrize("stop", [0, 3, 7, 10])
def test_an_interrupted_search_continues(stop):
    whole = ImaginedRig(SPEEDS)
    expected = found(whole)
    record = Record(values={"a": 1, "b": 1}, defaults={"a": 1, "b": 1})
    first, second = ImaginedRig(SPEEDS, stop=stop), ImaginedRig(SPEEDS)
    with pytest.raises(Interrupted):
        found(first, record)
    assert record.trying is None and record.values == record.defaults
    assert found(second, record) == expected
    assert first.compared + second.compared == whole.compared


def test_values_that_crashed_a_process_are_not_tried_again():
    record = Record(values={"a": 1, "b": 1}, defaults={"a": 1, "b": 1}, trying="a=3 / defaults")
    assert found(ImaginedRig(SPEEDS), record).values == {"a": 2, "b": 4}
    assert "ended" in record.trials["a=3 / defaults"]["failed"]


# --- the program


@pytest.mark.slow
def test_tuning_can_be_interrupted_and_makes_nothing_slower(tmp_path):
    environment = {**os.environ, "TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "torch_opencl.tune", "--quick"]

    def content() -> dict:
        files = list(tmp_path.glob("tuning/*.json"))
        return json.loads(files[0].read_text()) if files else {"trials": {}}

    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not content()["trials"] and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert "Interrupted" in process.communicate(timeout=60)[1]
        assert process.returncode == 130
    interrupted = content()
    assert interrupted["finished"] is None and interrupted["values"] == interrupted["defaults"]
    listed = run_python("-m torch_opencl.tune --list", TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert "interrupted after 1 comparison" in listed.stdout

    done = run_python("-m torch_opencl.tune --quick", TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0 and "tuned (quick)" in done.stdout, done.stdout + done.stderr
    finished = content()
    first = next(iter(interrupted["trials"]))
    assert interrupted["trials"][first].items() <= finished["trials"][first].items()
    assert search.mean(finished["speedup"]) >= 1
    assert (finished["values"] == finished["defaults"]) == (finished["speedup"] == {})
    shown = run_python("-m torch_opencl.tune --show --device 0", TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert all(f"  {name} = {value}" in shown.stdout for name, value in finished["values"].items())

    reset = run_python("-m torch_opencl.tune --reset", TORCH_OPENCL_CACHE_DIR=str(tmp_path))
    assert "results deleted" in reset.stdout and not list(tmp_path.glob("tuning/*.json"))


@pytest.mark.slow
def test_the_program_refuses_invalid_devices():
    for device in ["cpu", "opencl:99", "nonsense"]:
        done = run_python("-m torch_opencl.tune --show", "--device", device)
        assert done.returncode == 1 and done.stderr.startswith("error: "), done.stderr
