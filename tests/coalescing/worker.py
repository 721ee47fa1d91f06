"""Runs a group of calls in a process under Oclgrind; marks in the plugin's log which launches belong to which call."""

import json
import os
import sys
from pathlib import Path

import torch

from .calls import GROUPS


def main() -> None:
    """Run the group that the command line names; further arguments select calls of it."""
    group, *names = sys.argv[1:]
    assert "Oclgrind" in torch.opencl.get_device_name(), torch.opencl.get_device_name()
    torch.manual_seed(0)
    log = Path(os.environ["COALESCING_LOG"])
    for name, (function, inputs) in GROUPS[group]().items():
        if names and name not in names:
            continue
        moved = [t.to("opencl") for t in inputs]
        torch.opencl.synchronize()
        with log.open("a") as file:
            file.write(json.dumps({"call": name}) + "\n")
        try:
            function(*moved)
            torch.opencl.synchronize()
        except RuntimeError as error:
            # Oclgrind reports this when a kernel calls a function that it does not implement.
            if "CL_INVALID_KERNEL_NAME" not in str(error):
                raise
            print(f"refused: {name}", flush=True)


if __name__ == "__main__":
    main()
