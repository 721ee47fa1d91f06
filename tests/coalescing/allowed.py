"""Kernels whose memory access may be less efficient, by group of calls, each with the reason."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """An exception.

    Args:
        kernel: a pattern for the kernel's name.
        call: a pattern for the call's name.
        kinds: what is allowed: "load", "store", "loop", "group", with spaces between.
        floor: the least efficiency (for loops, the least number of work-items that share the work).
        reason: why.
    """

    kernel: str
    call: str
    kinds: str
    floor: float
    reason: str

    def covers(self, kernel: str, call: str, kind: str, value: float) -> bool:
        """Tell whether this exception covers a finding.

        Args:
            kernel: the kernel's name.
            call: the call's name.
            kind: "load", "store", "loop" or "group".
            value: the measured value, in the unit of ``floor``.

        Returns:
            True if it does.
        """
        named = fnmatchcase(kernel, self.kernel) and fnmatchcase(call, self.call)
        return named and kind in self.kinds.split() and value >= self.floor


LANES = "an item takes a vector of neighbours, and takes neighbours at an edge one by one"
WINDOWS = "windows are apart by their stride; the elements between them are read from the cache by the next step"
ACROSS = "an operand is read across the rows that the result is written along"
STRIDED = "output positions that read the same kernel elements are apart by the stride"
WEIGHTS = "weights are few, and the kernel elements of a channel are adjacent in memory, not its channels"
SCALED = "the reads of adjacent items are apart by the scale; the elements between them are in the group's cache"
ROWS = "rows of pixels are short and begin between sectors"
SELECTED = "the elements that a mask selects are not adjacent"

ALLOWED: dict[str, list[Allowed]] = {
    "pointwise": [
        Allowed("pointwise_strided", "add transposed", "load", 0.18, ACROSS),
        Allowed("pointwise_strided", "add permuted", "load", 0.23, ACROSS),
    ],
    "copies": [
        Allowed("pointwise_strided", "eye", "store", 0.13, "a diagonal has one element per row"),
        Allowed("pointwise_strided", "permute", "load", 0.32, ACROSS),
    ],
    "pooling": [
        Allowed("*_pool", "*pool*", "load", 0.28, WINDOWS),
        Allowed("*_pool*", "*channels_last", "load store", 0.25, LANES),
    ],
    "order": [
        Allowed("sort_p*", "*", "load", 0.12, "a few elements of each row are kept, and rows are apart"),
        Allowed("pointwise_strided", "topk of columns", "load", 0.17, ACROSS),
        Allowed("index_get", "masked_select", "load", 0.44, SELECTED),
        Allowed("index_get", "unique", "load", 0.24, SELECTED),
    ],
    "training": [
        Allowed("nll_loss_*", "cross_entropy", "load store", 0.13, "one element of each row of classes is read"),
        Allowed("gemm_local", "* cell", "load", 0.26, LANES),
    ],
    "interpolation": [
        Allowed("resample", "interpolate *", "load", 0.43, SCALED),
        Allowed("grid_sample*", "grid_sample", "load", 0.45, "rows of samples are short and begin between sectors"),
    ],
    "convolutions": [
        Allowed("gemm_local", "conv_transpose2d", "load store", 0.15, STRIDED),
        Allowed("conv_channel_weights", "*channels_last", "load", 0.12, WEIGHTS),
        Allowed("gemm_local_finish", "*depthwise channels_last", "store", 0.12, WEIGHTS),
        Allowed("conv_channels", "*channels_last", "load", 0.45, LANES),
        Allowed("conv_direct*", "*", "load", 0.37, ROWS),
    ],
}
