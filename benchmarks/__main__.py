"""The command line: ``python -m benchmarks [WORD ...]``."""

import argparse
import os
import sys
from pathlib import Path

EPILOG = """\
A WORD is a group (pointwise, gemm, conv ...), a row's name, or a pattern for names such as "add *" or "*bf16*".
Eight words are commands:
  growth             time by size; reports adjacent sizes whose times differ more than twofold
  gpu                rows for GPUs, compared with the vendor's device (--against cuda)
  compiled NAME ...  torch.compile compared with eager mode and with Inductor's C++; all rows by default
  first-use          new processes, with and without compiled kernels
  constants NAME ... rows with other values of constants that were chosen by measurement; all by default
  quantized          layers with weights of 2 to 8 bits, compared with bfloat16
  decode             whole decoders, one token at a time, compared with PyTorch's CPU backend
  summary FILE ...   the summary and the plot of earlier results
"""


def main() -> int:
    """Run the command line.

    Returns:
        The exit code: 1 if a result differs from the CPU's or an operator failed.
    """
    # PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on
    # it; on a shared machine the CPU backend itself is up to five times slower. OpenMP reads this once, when
    # torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("word", nargs="*", help="what to measure, everything by default")
    parser.add_argument("--quick", action="store_true", help="one dtype and few sizes")
    parser.add_argument("--list", action="store_true", help="list the rows, and measure nothing")
    parser.add_argument("--device", default="opencl", help="the device to compare with the CPU")
    parser.add_argument("--rows", type=Path, help="a file that gets each row as a line of JSON when it is measured")
    parser.add_argument("--against", default="none", help="with gpu: the vendor's device, such as cuda")
    parser.add_argument("--training", default=None, help="with first-use: the program to time instead of the digits'")
    options = parser.parse_args()
    return _commands().get((options.word or [""])[0], _table)(options)


def _commands() -> dict:
    return {
        "growth": _growth,
        "first-use": _first_use,
        "gpu": _gpu,
        "quantized": _quantized,
        "decode": _decode,
        "compiled": _compiled,
        "constants": _constants,
        "summary": _summary,
    }


def _table(options: argparse.Namespace) -> int:
    from benchmarks.cases import select  # noqa: PLC0415
    from benchmarks.run import run  # noqa: PLC0415

    chosen = select(options.word, options.quick)
    if not chosen:
        print(f"There is no row {' '.join(options.word)}; --list names them.", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{case.group:<14} {case.name}" for case in chosen))
        return 0
    return run(chosen, options.device, options.rows)


def _growth(options: argparse.Namespace) -> int:
    # Measures the specialised kernels, not the time until they are built.
    os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")
    from benchmarks.growth import run  # noqa: PLC0415

    return run(options.device)


def _first_use(options: argparse.Namespace) -> int:
    from benchmarks.first_use import DIGITS, run  # noqa: PLC0415

    return run(options.device, options.training or DIGITS)


def _quantized(options: argparse.Namespace) -> int:
    from benchmarks.quantized import run  # noqa: PLC0415

    return run(options.device)


def _decode(options: argparse.Namespace) -> int:
    from benchmarks.decode import run  # noqa: PLC0415

    return run(options.device, options.quick)


def _gpu(options: argparse.Namespace) -> int:
    from benchmarks.gpu import run  # noqa: PLC0415

    return run(options.device, None if options.against == "none" else options.against, options.rows)


def _compiled(options: argparse.Namespace) -> int:
    # Eager mode and the matmuls of compiled graphs use specialised kernels from the start.
    os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")
    from benchmarks.cases.compiled import select  # noqa: PLC0415
    from benchmarks.compiled import run  # noqa: PLC0415

    chosen = select(options.word[1:], options.quick)
    if options.list:
        print("\n".join(f"{case.group:<14} {case.name}" for case in chosen))
        return 0
    return run(chosen, options.device, options.rows, with_host=not options.word[1:] or "host" in options.word)


def _constants(options: argparse.Namespace) -> int:
    from benchmarks.constants import run  # noqa: PLC0415

    return run(options.device, options.word[1:])


def _summary(options: argparse.Namespace) -> int:
    from benchmarks.plot import plot_ratios  # noqa: PLC0415
    from benchmarks.report import load, print_summary  # noqa: PLC0415

    paths = [Path(word) for word in options.word[1:]]
    rows = load(paths)
    print_summary(rows)
    if rows:
        plot_ratios(rows, paths[-1].with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
