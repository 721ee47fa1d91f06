"""`python tests/models [PATTERN ...]`: see docs/testing.md."""

import os
import sys
from pathlib import Path

# Fallbacks are counted here; warnings would only be noise.
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")
# Models run as users run them. `make` sets this variable for test runs, in which one process uses the CPU and a driver
# on it by turns; it makes small models on the CPU about three times slower.
os.environ.pop("OMP_WAIT_POLICY", None)
# Nothing is downloaded: weights are random.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

TESTS = Path(__file__).resolve().parents[1]
# The folder in which `make models` installs the libraries.
LIBRARIES = TESTS.parent / ".venv-models"
sys.path[:0] = [str(TESTS), str(TESTS.parent), str(LIBRARIES), str(TESTS / "python")]

if __name__ == "__main__":
    from models.runner import main

    sys.exit(main())
