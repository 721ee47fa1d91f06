"""tests/upstream: failures of the device only are found, and crashes survived."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from upstream.exclusions import EXCLUSIONS
from upstream.results import excluded

UPSTREAM = Path(__file__).parents[2] / "upstream"
SMALL = """
import os
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, dtypes, onlyCPU
from torch.testing._internal.common_mkldnn import bf32_on_and_off
from torch.testing._internal.common_utils import TestCase

def is_cpu(device):
    return torch.device(device).type == "cpu"

class TestSmall(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_right(self, device, dtype):
        self.assertEqual(torch.ones(2, device=device, dtype=dtype).sum().item(), 2)

    def test_crash(self, device):
        if not is_cpu(device):
            os.abort()

    def test_hang(self, device):
        import time
        time.sleep(0 if is_cpu(device) else 300)

    def test_wrong(self, device):
        self.assertTrue(is_cpu(device), "planted")

    def test_wrong_everywhere(self, device):
        self.fail("planted")

    @onlyCPU
    def test_cpu(self, device):
        pass

class TestNone(TestCase):
    def test_without_a_device(self):
        self.fail("not run")

class TestSecond(TestCase):
    # As tests of PyTorch 2.6 do.
    def setUp(self):
        super(self.__class__, self).setUp()

    @bf32_on_and_off()
    def test_of_a_second_class(self, device):
        pass

    def test_error_that_is_not_read(self, device):
        target = torch.tensor([7], device=device)
        if not is_cpu(device):
            torch.nn.functional.nll_loss(torch.zeros(1, 3, device=device), target)

instantiate_device_type_tests(TestSmall, globals())
instantiate_device_type_tests(TestSecond, globals())
"""


@pytest.fixture
def pytorch(tmp_path: Path) -> Path:
    """A checkout with two files."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_small.py").write_text(SMALL)
    (tmp_path / "test" / "test_new.py").write_text("from torch.testing import no_such_function\n")
    return tmp_path


def upstream(pytorch: Path, *arguments: str) -> tuple[int, str]:
    """Run it; return its exit status and output."""
    command = [sys.executable, str(UPSTREAM), str(pytorch), "--results", str(pytorch / "r"), "--hang", "30", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_failures_crashes_and_hangs_of_the_device_are_found(pytorch: Path) -> None:
    status, text = upstream(pytorch, "test_small", "test_new")
    assert status == 1, text
    assert "test_small.py: 3 passed" in text and "1 skipped" in text
    assert "failed  test_small.py TestSmall::test_wrong: AssertionError" in text
    assert "failed  test_small.py TestSecond::test_error_that_is_not_read: an error that the test does not read" in text
    assert "crash   test_small.py TestSmall::test_crash: the process ends with status -6" in text
    assert "hang    test_small.py TestSmall::test_hang: no result after 30 s" in text
    assert "1 not on the CPU" in text and "; 42.86 %\n" in text
    assert "42.86 % of the tests that pass on the CPU" in text
    assert "not imported: test_new.py" in text and "no_such_function" in text
    assert "without_a_device" not in text
    # Another run has nothing to do, and adds no lines.
    lines = (pytorch / "r").read_text()
    assert upstream(pytorch, "test_small")[0] == 1
    assert (pytorch / "r").read_text() == lines


@pytest.mark.slow
def test_tests_are_chosen_by_name_and_number(pytorch: Path) -> None:
    assert upstream(pytorch, "test_small::right")[0] == 0
    entries = [json.loads(line) for line in (pytorch / "r").read_text().splitlines()[1:]]
    assert {entry["test"] for entry in entries} == {"TestSmall::test_right_float32", "TestSmall::test_right_int64"}
    _, text = upstream(pytorch, "test_small::right", "--sample", "1")
    assert "2 passed" in text


def test_exclusions_are_by_file_class_and_name() -> None:
    pattern = "test_sort_and_select.py *::test_unique_dim"
    found = excluded("test_sort_and_select.py", ["TestSortAndSelect::test_unique_dim", "TestSortAndSelect::test_sort"])
    assert found == {"TestSortAndSelect::test_unique_dim": EXCLUSIONS[pattern]}
    assert excluded("test_torch.py", ["TestSortAndSelect::test_unique_dim"]) == {}


def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    status, text = upstream(tmp_path)
    assert status == 2 and "apt-get source pytorch" in text
