"""Functions of OpenCL C that a driver lacks are named by `python -m torch_opencl.info`."""

import torch
from torch_opencl import _driver_functions, info


def test_this_driver_lacks_none(device):
    assert _driver_functions.lacking(device) == {}


def test_missing_and_wrong_functions_are_named(device, monkeypatch, capfd):
    some = {
        "exp": _driver_functions.FUNCTIONS["exp"],
        "absent": ("absent(x)", torch.sin),
        "sin": ("cos(x)", torch.sin),
    }
    monkeypatch.setattr(_driver_functions, "FUNCTIONS", some)
    found = _driver_functions.lacking(device)
    assert found["float32"] == ["absent (does not compile)", "sin (wrong results)"]
    assert all(faults == found["float32"] for faults in found.values())
    assert info.main([]) == 0
    line = "  the driver lacks in float32, which operators may need: absent (does not compile), sin (wrong results)"
    assert line in capfd.readouterr().out.splitlines()
