"""`python tests/coalescing`: see docs/gpu_checks.md."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS)]

if __name__ == "__main__":
    from coalescing.report import main

    sys.exit(main())
