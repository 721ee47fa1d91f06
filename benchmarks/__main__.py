"""The command line: ``python -m benchmarks [NAME ...]``."""

import argparse
import os
import sys


def main() -> None:
    """Measure the named cases, or all of them."""
    # PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on
    # it; on a shared machine the CPU's own figures suffer up to fivefold. OpenMP reads this once, when
    # torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from benchmarks.cases import CASES  # noqa: PLC0415
    from benchmarks.report import run  # noqa: PLC0415

    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help="the cases to measure, all by default: " + " ".join(names))
    parser.add_argument("--device", default="opencl", help="the device to compare with the CPU")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each, interleaved")
    options = parser.parse_args()
    if unknown := set(options.name) - set(names):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [case for case in CASES if not options.name or case.name in options.name]
    sys.exit(run(chosen, options.device, options.rounds))


if __name__ == "__main__":
    main()
