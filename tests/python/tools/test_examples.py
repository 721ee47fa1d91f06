"""Every example runs, for a few steps, and ends well. Those with kernels of the user's own: test_user_kernels.py."""

from pathlib import Path

import pytest
from processes import output_of, two_devices

EXAMPLES = Path(__file__).parents[3] / "examples"
# For each the arguments, and what it prints when it has done its work.
RUNS = {
    "train_digits": (["--epochs", "3"], "Operators that fell back to the CPU: none"),
    "train_gpt": (["--steps", "12", "--batch-size", "4"], "step    11: loss"),
    "fine_tune": ([], "fine-tuned"),
    "serve": (["--once"], "an image of 3: {'digit': 3"),
    "two_devices": ([], "weights after a step agree"),
}
KERNELS = {"eye_kernel", "rms_norm_kernel"}


def test_every_example_is_run_by_a_test():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(RUNS) | KERNELS


@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs(name, tmp_path):
    arguments, expected = RUNS[name]
    variables = two_devices() if name == "two_devices" else {}
    code = f"import runpy; runpy.run_path({str(EXAMPLES / name)!r} + '.py', run_name='__main__')"
    if name == "train_gpt":
        arguments = [*arguments, "--plot", str(tmp_path / "losses.png")]
    # As users have it, but for builds that a few steps do not repay.
    assert expected in output_of(code, *arguments, TORCH_OPENCL_SPECIALIZE="never", TORCH_OPENCL_BLAS=None, **variables)
