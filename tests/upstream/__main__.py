"""`python tests/upstream PYTORCH FILES...`: see docs/testing.md."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TORCH_OPENCL_BLAS", "opencl")
os.environ.setdefault("TORCH_OPENCL_SMALL_CALLS", "kernels")
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "python")]

if __name__ == "__main__":
    from upstream.runner import main

    sys.exit(main())
