"""`python tests/fuzz --seconds 60 --seed 0`: see docs/testing.md."""

import os
import sys
from pathlib import Path

# As in the tests: large tensors always run specialised kernels, small ones generic kernels.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TORCH_OPENCL_BLAS", "opencl")
os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "python")]

if __name__ == "__main__":
    from fuzz.runner import main

    sys.exit(main())
