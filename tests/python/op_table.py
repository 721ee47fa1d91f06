"""Rows of native_functions.yaml, and the OpInfos of PyTorch's own test suite that exercise them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from float64 import computed
from releases import RELEASE, release
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

TABLE = Path(__file__).parents[2] / "native_functions.yaml"

INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (
    torch.float8_e5m2,
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu,
)
DTYPES = {
    "bool": (torch.bool,),
    "integral": INTEGRAL,
    "floating": FLOATING,
    "complex": COMPLEX,
    "all": (torch.bool, *INTEGRAL, *FLOATING, *COMPLEX),
    # Rows for any dtype only change shapes; test_dtypes.py tests the rarer dtypes.
    "any": (torch.bool, *INTEGRAL, *FLOATING, *COMPLEX),
    "stored": (torch.bool, *INTEGRAL, *FLOATING, *COMPLEX, *UNSIGNED, *FLOAT8, torch.complex32),
    "unsigned": UNSIGNED,
    "float8": FLOAT8,
    "c32": (torch.complex32,),
    **{f"{kind}{dtype.itemsize * 8}": (dtype,) for kind, group in (("f", FLOATING), ("c", COMPLEX)) for dtype in group},
    **{f"{'i' if dtype.is_signed else 'u'}{dtype.itemsize * 8}": (dtype,) for dtype in (*INTEGRAL, *UNSIGNED)},
    **{str(dtype).removeprefix("torch.").replace("float8_", "f8"): (dtype,) for dtype in FLOAT8},
    "f16": (torch.float16,),
    "bf16": (torch.bfloat16,),
}

INTERPOLATE = "nn.functional.interpolate"
CONVOLUTIONS = tuple(f"nn.functional.conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3))
# OpInfos of rows whose names differ from the OpInfo's by more than the prefixes and suffixes handled by `_spellings`.
OPINFOS_BY_ROW = {
    "__lshift__": ("bitwise_left_shift",),
    "__rshift__": ("bitwise_right_shift",),
    "_copy_from": ("clone", "contiguous", "to"),
    "_fft_c2c": tuple(f"fft.{name}{dims}" for name in ("fft", "ifft") for dims in ("", "2", "n")),
    "_fft_c2r": (*(f"fft.{name}{dims}" for name in ("irfft", "hfft") for dims in ("", "2", "n")), "istft"),
    "_fft_r2c": (*(f"fft.{name}{dims}" for name in ("rfft", "ihfft") for dims in ("", "2", "n")), "stft"),
    "_index_put_impl_": ("index_put",),
    "_reshape_alias": ("reshape", "flatten"),
    "col2im": ("nn.functional.unfold",),
    "convolution_overrideable": CONVOLUTIONS,
    "convolution_backward_overrideable": CONVOLUTIONS,
    "embedding_bag": ("nn.functional.embedding_bag",),
    "glu_jvp": ("nn.functional.glu",),
    "im2col": ("nn.functional.unfold",),
    "index": ("__getitem__",),
    "max_pool2d_with_indices": ("nn.functional.max_pool2d",),
    "max_pool3d_with_indices": ("nn.functional.max_pool3d",),
    "native_batch_norm": ("nn.functional.batch_norm",),
    "native_group_norm": ("nn.functional.group_norm",),
    "nll_loss2d": ("nn.functional.nll_loss",),
    "prelu_kernel": ("nn.functional.prelu",),
    "unique_dim": ("unique",),
    "unique_dim_consecutive": ("unique_consecutive",),
    "upsample_bicubic2d": (f"{INTERPOLATE}.bicubic",),
    "upsample_bilinear2d": (f"{INTERPOLATE}.bilinear", "nn.functional.upsample_bilinear"),
    "upsample_linear1d": (f"{INTERPOLATE}.linear",),
    "upsample_trilinear3d": (f"{INTERPOLATE}.trilinear",),
    **{f"grid_sampler_{dims}d": (f"grid_sampler_{dims}d", "nn.functional.grid_sample") for dims in (2, 3)},
    **{f"reflection_pad{dims}d": ("nn.functional.pad.reflect",) for dims in (1, 2, 3)},
    **{f"replication_pad{dims}d": ("nn.functional.pad.replicate",) for dims in (1, 2, 3)},
    **{f"upsample_nearest{dims}d": (f"{INTERPOLATE}.nearest", "nn.functional.upsample_nearest") for dims in (1, 2, 3)},
    **{f"upsample_nearest_exact{dims}d": (f"{INTERPOLATE}.nearest-exact",) for dims in (1, 2, 3)},
}

# Their results are uninitialised memory, or random values, which test_random_ops.py tests.
NOT_COMPARABLE = {
    "bernoulli", "cauchy", "empty", "empty_strided", "exponential", "geometric", "log_normal", "multinomial",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "normal", "uniform",
}  # fmt: skip

# Frequently called ops that PyTorch composes from ops of the table: in float32 only.
COMPOSITES = (
    "chunk", "diff", "einsum", "expand", "hstack", "linalg.norm", "logsumexp", "matmul", "movedim", "narrow",
    "nn.functional.adaptive_avg_pool1d", "nn.functional.avg_pool1d", "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.cosine_similarity", "nn.functional.cross_entropy",
    "nn.functional.kl_div", "nn.functional.l1_loss", "nn.functional.layer_norm", "nn.functional.linear",
    "nn.functional.max_pool1d", "nn.functional.normalize", "nn.functional.one_hot", "nn.functional.pad",
    "outer", "permute", "repeat", "select", "split", "squeeze", "stack",
    "std_mean", "tile", "unbind", "unsqueeze", "var", "var_mean", "vstack",
)  # fmt: skip

_PREFIXES = ("", "nn.functional.", "linalg.", "special.")
_SUFFIXES = ("_backward", "_backward_data", "_forward", "_helper")


@dataclass(frozen=True)
class Row:
    """One row of the op table: the overload that names it, and the dtypes that its kernels take."""

    op: str
    family: str
    dtypes: frozenset[torch.dtype]
    # For a row whose kernel is used only on devices other than the CPU: `host`.
    on_cpu: str = ""

    @property
    def base(self) -> str:
        """The op without its overload."""
        return base_name(self.op)


def base_name(op: str) -> str:
    """Strip namespace and overload from an operator's name.

    Args:
        op: a name such as "aten::add.out".

    Returns:
        The name that all overloads share, such as "add".
    """
    return op.rpartition("::")[2].partition(".")[0]


def load_rows() -> tuple[list[Row], list[Row]]:
    """Read the op table.

    Returns:
        The rows that name an op: rows for this PyTorch, and rows for other releases. Rows that only register a stub
        belong to an op of another row, and test_sparse.py tests rows of sparse tensors.
    """
    rows, others = [], []
    # As strings: 2.20 is a release, not the number 2.2.
    for entry in yaml.load(TABLE.read_text(), yaml.BaseLoader):
        if "op" not in entry or "layout" in entry:
            continue
        is_for_others = release(entry.get("since", "0.0")) > RELEASE or release(entry.get("until", "9.9")) < RELEASE
        dtypes = frozenset(dtype for group in _words(entry, "dtypes") for dtype in DTYPES[group])
        given = others if is_for_others else rows
        given.extend(
            Row(op, entry["family"], dtypes, entry.get("on_cpu", "")) for op in (entry["op"], *_words(entry, "out"))
        )
        for name in _words(entry, "foreach"):
            base, dot, overload = name.partition(".")
            derived = (f"_foreach_{base}{place}{dot}{overload}" for place in ("", "_"))
            given.extend(Row(op, "foreach", frozenset(DTYPES["all"])) for op in derived)
    return rows, others


def _words(entry: dict, key: str) -> list[str]:
    """Return a row's value for a key: one word or a list of words."""
    words = entry.get(key, [])
    return words if isinstance(words, list) else [words]


def _spellings(base: str) -> Iterator[str]:
    for stem in _stems(base):
        for prefix in _PREFIXES:
            yield prefix + stem
        # special_entr is special.entr, linalg_vector_norm is linalg.vector_norm
        yield stem.replace("_", ".", 1)


def _stems(base: str) -> list[str]:
    stems = [base, *(base.removesuffix(suffix) for suffix in _SUFFIXES if base.endswith(suffix))]
    return [*stems, *(stem.strip("_") for stem in stems)]


def _opinfos_by_name() -> dict[str, list[OpInfo]]:
    by_name: dict[str, list[OpInfo]] = {}
    for info in op_db:
        for name in {info.name, info.full_name, info.aten_name, *(alias.name for alias in info.aliases or ())}:
            by_name.setdefault(name, []).append(info)
    return by_name


ROWS, ROWS_OF_OTHER_RELEASES = load_rows()
ROW_BASES = frozenset(row.base for row in ROWS)
_BY_NAME = _opinfos_by_name()


def opinfos_of(row: Row) -> list[OpInfo]:
    """Find the OpInfos that call a row's op.

    Args:
        row: a row of the op table.

    Returns:
        The OpInfos of that name, with all their variants; empty for an op that only explicit tests cover.
    """
    for stem in _stems(row.base):
        if stem in OPINFOS_BY_ROW:
            return [info for name in OPINFOS_BY_ROW[stem] for info in _BY_NAME[name]]
    return next((_BY_NAME[name] for name in _spellings(row.base) if name in _BY_NAME), [])


def opinfo_dtypes() -> list[tuple[OpInfo, list[torch.dtype]]]:
    """Pair the OpInfos with the dtypes to test.

    Returns:
        Each comparable OpInfo of the table, with the dtypes of its rows that it supports on the CPU; and COMPOSITES.
    """
    found: dict[str, tuple[OpInfo, set[torch.dtype]]] = {}
    for row in ROWS:
        for info in opinfos_of(row):
            if info.name not in NOT_COMPARABLE:
                found.setdefault(info.full_name, (info, set()))[1].update(row.dtypes)
    for name in COMPOSITES:
        for info in _BY_NAME[name]:
            found.setdefault(info.full_name, (info, {torch.float32}))
    on_device = set(computed(DTYPES["all"]))
    return [
        (info, [dtype for dtype in DTYPES["all"] if dtype in dtypes & on_device & info.supported_dtypes("cpu")])
        for _, (info, dtypes) in sorted(found.items())
    ]


# Tests of rows that have no OpInfo.
COVERED: dict[str, Callable] = {}


def covers(*ops: str) -> Callable:
    """Declare that a test exercises rows for which there is no OpInfo.

    Args:
        ops: the rows, named as in the table.

    Returns:
        The decorator.
    """

    def register(test: Callable) -> Callable:
        COVERED.update(dict.fromkeys(ops, test))
        return test

    return register
