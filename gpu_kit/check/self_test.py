"""``python -m gpu_kit.check.self_test FILE``: the report of ``python -m torch_opencl.info`` as one line of JSON.

Exits with 0 if a device was found and computes correctly.
"""

import json
import sys
from pathlib import Path

from torch_opencl.info import collect

if __name__ == "__main__":
    report = collect()
    Path(sys.argv[1]).write_text(json.dumps(report) + "\n")
    for advice in report["advice"]:
        print(advice)
    sys.exit(not report["ok"])
