"""Uses of kernels that may do worse, by the group of their calls, each with its reason."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """An exception.

    Args:
        kernel: a pattern for the kernel's name.
        call: a pattern for the call's name.
        kinds: what is allowed: "load", "store", "loop", "group", with spaces between.
        floor: the least efficiency (or, for loops, number of work-items that share the work).
        reason: why.
    """

    kernel: str
    call: str
    kinds: str
    floor: float
    reason: str

    def covers(self, kernel: str, call: str, kind: str, value: float) -> bool:
        """Tell whether a finding is this exception.

        Args:
            kernel: the kernel's name.
            call: the call's name.
            kind: "load", "store", "loop" or "group".
            value: what was measured, in the unit of ``floor``.

        Returns:
            Whether it is.
        """
        named = fnmatchcase(kernel, self.kernel) and fnmatchcase(call, self.call)
        return named and kind in self.kinds.split() and value >= self.floor


SHORT = "an item takes a whole row of fewer than 64: its neighbours' are a row apart, but a group's are in its cache"
LANES = "an item takes a vector of neighbours, and those of an edge one by one"
CHAINS = "an item takes several vectors of neighbours, one after the other"
WINDOWS = "windows are apart by their stride: what lies between, the next step reads from the cache"
COLUMNS = "an item takes a column whatever its length: the columns are all that items share"
SORTED = "an item sorts or merges a run of neighbours; the group's runs are in its cache"
SCANNED = "an item takes a run of neighbours, one by one, which the group's cache holds"
ACROSS = "an operand is read across the rows that the result is written along"
STORES = "an item holds neighbouring columns and stores them one by one"
PAIRS = "real and imaginary parts are two loads"

ALLOWED: dict[str, list[Allowed]] = {
    "pointwise": [
        Allowed("pointwise_strided", "add transposed", "load", 0.18, ACROSS),
        Allowed("pointwise_strided", "add permuted", "load", 0.35, ACROSS),
        Allowed("pointwise_dense", "convert to bytes", "store", 0.24, "bytes of a vector are stored one by one"),
    ],
    "copies": [
        Allowed("triangle", "tril", "load store", 0.13, "an item takes a row"),
        Allowed("transpose_tiles", "transpose bytes", "load store", 0.32, "rows of a tile are 16 elements"),
        Allowed("pointwise_strided", "transpose complex128", "load store", 0.24, ACROSS),
        Allowed("pointwise_strided", "roll", "load store", 0.14, LANES),
        Allowed("pointwise_strided", "permute", "load store", 0.18, ACROSS),
    ],
    "reductions": [
        Allowed(
            "arg_rows", "*", "load", 0.17, "an item that has found a better vector looks for its element in memory"
        ),
        Allowed("*_columns", "*short rows", "load store", 0.12, SHORT),
        Allowed("*_columns", "*few columns", "load store", 0.17, LANES),
        Allowed("reduce_columns", "sum of *", "load", 0.35, CHAINS),
        Allowed("reduce_columns", "sum of *", "loop", 25, COLUMNS),
        Allowed("reduce_rows", "sum of complex", "load", 0.45, PAIRS),
    ],
    "normalisation": [
        Allowed("softmax*_columns", "softmax of short rows", "load store", 0.12, SHORT),
        Allowed("softmax*_columns", "softmax of columns", "loop", 11, COLUMNS),
        Allowed("norm_sums_columns", "*", "load", 0.29, LANES),
        Allowed("moments_columns", "batch_norm*", "loop", 3, COLUMNS),
    ],
    "products": [
        Allowed("gemm_local", "*", "load store", 0.21, STORES),
        Allowed("gemm_dot", "dot", "group", 0, "an item takes a part of the sum alone"),
    ],
    "pooling": [
        Allowed("*_pool", "*pool2d*", "load", 0.28, WINDOWS),
        Allowed("*_pool*", "*channels_last", "load store", 0.25, LANES),
    ],
    "order": [
        Allowed("sort_blocks", "*", "load store", 0.12, SORTED),
        Allowed("sort_merge", "*", "load store", 0.12, SORTED),
        Allowed("sort_p*", "*", "load store", 0.12, "of each row a few elements are kept, and rows lie apart"),
        Allowed("pointwise_strided", "topk of columns", "load", 0.17, ACROSS),
        Allowed("scan_group_*", "*", "load store", 0.24, SCANNED),
        Allowed("scan_*", "cum* of columns", "loop", 30, COLUMNS),
        Allowed("nonzero_*", "*", "load store", 0.16, SCANNED),
        Allowed("nonzero_*", "*", "loop", 5, "an item takes a run of neighbours, and few of them fill a small tensor"),
        Allowed("index_get", "masked_select", "load", 0.44, "what a mask selects lies apart"),
    ],
    "indexing": [
        Allowed("index_set", "scatter*", "load store", 0.14, "an item takes a run of neighbours, one by one"),
        Allowed("index_set", "index_add of elements", "loop", 1, "up to 4096 sums are made in order, by one item"),
    ],
    "training": [
        Allowed("softmax*_columns", "cross_entropy", "load store", 0.12, SHORT),
        Allowed("nll_loss_*", "cross_entropy", "load store", 0.13, "of each row of classes it is one"),
        Allowed("random_*", "*", "load store", 0.12, "an item takes a run of numbers, which the group's cache holds"),
        Allowed("dropout", "dropout", "store", 0.24, "an item takes a run of numbers, which the group's cache holds"),
        Allowed("gemm_local", "* cell", "load store", 0.21, STORES),
    ],
    "convolutions": [
        Allowed("gemm_local", "*", "load store", 0.21, STORES),
    ],
}
