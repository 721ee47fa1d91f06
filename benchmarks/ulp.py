"""The greatest error of a function over all bit patterns of float32: ``python -m benchmarks.ulp special.erfcx``.

The reference is PyTorch's float64 on the CPU. Next to a function's zeros, the error comes from the rounding of its
argument: ``--floor 1`` counts units in the last place of the larger of the value and 1.
"""

import argparse
import math
import operator

import torch
from tqdm import tqdm

CHUNK = 1 << 22


def errors(actual: torch.Tensor, expected: torch.Tensor, floor: float) -> torch.Tensor:
    """Return errors in units in the last place; infinite if a result has another kind (NaN, infinity)."""
    _, exponent = torch.frexp(expected.abs().clamp(min=floor))
    place = torch.ldexp(torch.ones_like(expected), (exponent - 24).clamp(min=-149))
    same = (actual == expected.float()) | (actual.isnan() & expected.isnan())
    distance = (actual.double() - expected).abs() / place
    return torch.where(same, distance.nan_to_num(0, 0, 0).clamp(max=0.5), distance.nan_to_num(math.inf))


def main() -> None:
    """Go through the patterns, and print the greatest error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ulp", description=__doc__.split("\n")[0])
    parser.add_argument("op", help="a function of torch, such as special.bessel_j0")
    parser.add_argument("--floor", type=float, default=0.0, help="the least value whose last place counts")
    parser.add_argument("--most", type=float, default=math.inf, help="the greatest |x|")
    parser.add_argument("--stride", type=int, default=1, help="test one pattern of this many")
    args = parser.parse_args()
    function = operator.attrgetter(args.op)(torch)
    worst, where = -1.0, math.nan
    for first in tqdm(range(-(1 << 31), 1 << 31, CHUNK * args.stride), unit="chunk"):
        last = min(first + CHUNK * args.stride, 1 << 31)
        x = torch.arange(first, last, args.stride).int().view(torch.float32)
        x = x[x.abs() <= args.most] if args.most < math.inf else x
        if x.numel() == 0:
            continue
        found = errors(function(x.to("opencl")).cpu(), function(x.double()), args.floor)
        index = found.argmax()
        if found[index] > worst:
            worst, where = found[index].item(), x[index].item()
    print(f"{args.op}: {worst:.3g} ulp at {where!r}")


if __name__ == "__main__":
    main()
