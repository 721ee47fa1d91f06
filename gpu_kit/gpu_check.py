#!/usr/bin/env python3
"""Checks torch-opencl on this machine's OpenCL device: ``python gpu_check.py --minutes 8 --out FOLDER``."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from gpu_kit.check.command import main

if __name__ == "__main__":
    sys.exit(main(ROOT))
