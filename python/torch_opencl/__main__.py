"""``python -m torch_opencl``: the report of ``python -m torch_opencl.info``."""

import sys

from torch_opencl.info import main

if __name__ == "__main__":
    sys.exit(main())
