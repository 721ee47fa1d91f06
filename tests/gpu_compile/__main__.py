"""`python tests/gpu_compile [--sample] [WORD...]`: see docs/gpu_checks.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from gpu_compile.main import main

    sys.exit(main())
