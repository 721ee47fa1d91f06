"""The option --sample of the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_a_sample_is_of_the_tests_that_a_word_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "test_cases.py"
    path.write_text("import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_case(n): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--collect-only", "-q", str(path)]
    options = ["--sample", "1", "-k", "test_case[7] or test_case[13]"]
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    run = subprocess.run([*command, *options], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    chosen = [line for line in run.stdout.splitlines() if "::" in line]
    assert chosen in (["test_cases.py::test_case[7]"], ["test_cases.py::test_case[13]"]), run.stdout + run.stderr
