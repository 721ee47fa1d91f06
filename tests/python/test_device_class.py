"""TORCH_OPENCL_DEVICE_CLASS: the kernels for many small cores, and those for a few large ones, on whatever there is."""

from pathlib import Path

import pytest
import torch
from processes import run_python

FOLDER = Path(__file__).parent


# In processes of their own, as compiling these kernels for the first time takes most of a minute.
CASES, ORDER_CASES = "device_class_cases.py", "device_class_order_cases.py"
PARTS = [
    (CASES, "product or tiles"),
    (CASES, "convolution"),
    (CASES, "not (product or tiles or convolution)"),
    (ORDER_CASES, "updates or sums"),
    (ORDER_CASES, "not (updates or sums)"),
]


@pytest.mark.parametrize(("cases", "part"), PARTS)
@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_either_class_of_kernels_is_right_on_this_device(device_class: str, cases: str, part: str):
    if torch.opencl.get_device_properties().type == device_class:
        pytest.skip("the class of this device, which all other tests are run with")
    done = run_python("-m pytest -q -x", str(FOLDER / cases), "-k", part, TORCH_OPENCL_DEVICE_CLASS=device_class)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_class_is_refused():
    done = run_python("import torch; torch.ones(1, device='opencl')", TORCH_OPENCL_DEVICE_CLASS="tpu")
    assert done.returncode != 0
    assert "TORCH_OPENCL_DEVICE_CLASS=tpu: expected cpu or gpu" in done.stderr
