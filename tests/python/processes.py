"""Runs code in a fresh Python process, for actions that a process can do only once, or does not survive."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

# Each OpenCL loader has its own variable; a path that does not exist hides every driver.
NO_DRIVER = {"OCL_ICD_VENDORS": "/nonexistent", "OCL_ICD_FILENAMES": None, "OPENCL_VENDOR_PATH": "/nonexistent"}


def run_python(code: str, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run code and return its exit status and output.

    Args:
        code: the program; common indentation is removed. "-m ..." runs a module instead.
        arguments: the command line of the program.
        environment: variables to set; None removes one.

    Returns:
        The finished process.
    """
    variables = {**os.environ, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    program = code.split() if code.startswith("-m ") else ["-c", textwrap.dedent(code)]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,  # long enough for Oclgrind, in parallel with other tests
        check=False,
    )


def output_of(code: str, *arguments: str, **environment: str | None) -> str:
    """Run code that must succeed and return its output; see :func:`run_python`.

    Args:
        code: the program.
        arguments: its command line.
        environment: variables to set; None removes one.

    Returns:
        Its output, without the last newline.
    """
    done = run_python(code, *arguments, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.rstrip("\n")


def two_devices() -> dict[str, str]:
    """Return an environment in which a process sees at least two devices; skip the test if that is not possible.

    Returns:
        Variables for :func:`run_python`. PoCL can expose the CPU as two devices with separate memories.
    """
    if torch.opencl.device_count() > 1:
        return {}
    if torch.opencl.get_device_properties().platform == "Portable Computing Language":
        return {"POCL_DEVICES": "pthread basic"}
    pytest.skip("there is one device, and its driver cannot expose it twice")
