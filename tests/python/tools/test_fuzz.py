"""The random differential cases of tests/fuzz: mistakes are found, shrunk, and repeated."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"


def fuzz(*arguments: str) -> tuple[int, str]:
    """Run it; return its exit status and output."""
    done = subprocess.run(
        [sys.executable, str(FUZZ), *arguments], capture_output=True, text=True, timeout=170, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("add", "value"), ("refuse", "error ValueError/nothing"), ("write", "value"), ("crash", "crash")]
)
def test_mistakes_are_found_and_repeated_by_case_number(name: str, kind: str) -> None:
    status, text = fuzz("--seed", "3", "--seconds", "8", "--shrink", "3", "--only", f"planted.{name}")
    assert status == 1, text
    assert f"planted.{name} {kind}" in text
    number = re.search(rf"--- case (\d+): planted\.{name} {kind}", text)
    assert number, text
    if kind != "crash":
        status, text = fuzz("--seed", "3", "--case", number.group(1), "--only", f"planted.{name}")
        assert status == 1, text
        assert kind.split(maxsplit=1)[0] in text.splitlines()[-1]


@pytest.mark.slow
def test_a_case_is_shrunk() -> None:
    """With any shape and layout, one element of each operand remains."""
    _, text = fuzz("--seed", "3", "--seconds", "8", "--shrink", "30", "--only", "planted.add")
    program = text[text.index("def run") : text.index("for device")]
    assert program.count("torch.tensor(") == 2
    assert "as_strided" not in program
    assert re.search(r"x0 = torch.tensor\(\[*[01].0\]*, dtype", program), program


@pytest.mark.slow
def test_a_case_that_hangs_is_ended() -> None:
    status, text = fuzz("--seed", "3", "--seconds", "12", "--hang", "6", "--only", "planted.hang")
    assert status == 1, text
    assert "planted.hang hang" in text


@pytest.mark.slow
def test_cases_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    code = """
import sys; sys.path[:0] = sys.argv[1:]
from fuzz.generate import make
print([case.code() for seed in (5, 6) for number in range(6) if (case := make(seed, number))])
"""
    arguments = [sys.executable, "-c", code, str(FUZZ.parent), str(FUZZ.parent / "python")]
    first, second = (subprocess.run(arguments, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == second
    programs = eval(first)
    assert len(set(programs)) > 6
