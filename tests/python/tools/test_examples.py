"""Every example runs for a few steps, and ends without errors. Some run in the tests of their feature."""

from pathlib import Path

import pytest
from processes import output_of, two_devices

EXAMPLES = Path(__file__).parents[3] / "examples"
# For each example, its arguments and its output at the end.
RUNS = {
    "train_digits": (["--epochs", "3"], "Operators that fell back to the CPU: none"),
    "train_gpt": (["--steps", "12", "--batch-size", "4"], "step    11: loss"),
    "fine_tune": ([], "fine-tuned"),
    "serve": (["--once"], "an image of 3: {'digit': 3"),
    "two_devices": ([], "weights after a step agree"),
}


def test_every_example_is_named_by_a_test():
    tests = "".join(path.read_text() for path in Path(__file__).parents[2].rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tests] == []


@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs(name, tmp_path):
    arguments, expected = RUNS[name]
    variables = two_devices() if name == "two_devices" else {}
    code = f"import runpy; runpy.run_path({str(EXAMPLES / name)!r} + '.py', run_name='__main__')"
    if name == "train_gpt":
        arguments = [*arguments, "--plot", str(tmp_path / "losses.png")]
    # As users run it, except for builds that are not worthwhile for a few steps.
    assert expected in output_of(code, *arguments, TORCH_OPENCL_SPECIALIZE="never", TORCH_OPENCL_BLAS=None, **variables)
