"""Cases of operators with geometry arguments, which PyTorch's samples cover little; also calls that must be refused."""

from random import Random
from typing import Any

import torch

from fuzz.case import Case, Operand
from fuzz.material import ALL, FLOATING, INTEGRAL, REAL, elements, laid_out, operand, shape
from fuzz.pointwise import special

COMPUTED = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
MATMUL = (*COMPUTED, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.uint8)


def several(rng: Random, dims: int, low: int, high: int) -> Any:
    """Choose an integer for each dimension, or one for all.

    Args:
        rng: where choices come from.
        dims: how many dimensions.
        low: the least integer.
        high: the greatest.

    Returns:
        An integer or a tuple.
    """
    return rng.randint(low, high) if rng.random() < 0.5 else tuple(rng.randint(low, high) for _ in range(dims))


def given(rng: Random, sizes: tuple[int, ...], dtype: torch.dtype, grad: bool, share: float = 0.0) -> Operand:
    """Make an operand that stays on the device.

    Args:
        rng: where choices come from.
        sizes: its shape.
        dtype: its dtype.
        grad: whether its gradient is wanted.
        share: the probability of extreme elements.

    Returns:
        An operand with any layout.
    """
    one = operand(rng, sizes, dtype, share)
    return Operand(one.tensor, False, one.view, grad and (dtype.is_floating_point or dtype.is_complex))


def indices(rng: Random, sizes: tuple[int, ...], bound: int, dtype: torch.dtype = torch.int64) -> Operand:
    """Make a tensor of indices.

    Args:
        rng: where choices come from.
        sizes: its shape.
        bound: their exclusive upper bound.
        dtype: their dtype.

    Returns:
        Indices; seldom one of them is out of bounds.
    """
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    tensor = torch.randint(0, max(bound, 1), sizes, generator=generator).to(dtype)
    if tensor.numel() and rng.random() < 0.06:
        tensor.view(-1)[rng.randrange(tensor.numel())] = rng.choice((bound, -1, -bound - 1, bound + 100))
    return Operand(laid_out(rng, tensor))


def convolution(rng: Random) -> Case:
    """A convolution, transposed or not, of 1 to 3 dimensions."""
    dims, transposed, grad = rng.randint(1, 3), rng.random() < 0.5, rng.random() < 0.6
    groups = rng.choice((1, 1, 1, 2, 4))
    inputs, outputs = groups * rng.choice((1, 2, 3, 8)), groups * rng.choice((1, 2, 5, 16))
    kernel = tuple(rng.randint(1, 4) for _ in range(dims))
    pixels = tuple(rng.choice((0, 1, 3, 5, 8, 9)) if rng.random() < 0.3 else rng.randint(3, 9) for _ in range(dims))
    batch = rng.choice((0, 1, 1, 2, 3)) if rng.random() < 0.9 else None
    dtype, share = rng.choice(COMPUTED), rng.choice((0.0, 0.0, 0.0, 0.05))
    weight = (inputs, outputs // groups, *kernel) if transposed else (outputs, inputs // groups, *kernel)
    shape_ = (inputs, *pixels) if batch is None else (batch, inputs, *pixels)
    kwargs = {
        "stride": several(rng, dims, 1, 3),
        "padding": several(rng, dims, 0, 3),
        "dilation": several(rng, dims, 1, 2),
        "groups": groups,
    }
    if transposed:
        kwargs["output_padding"] = several(rng, dims, 0, 1)
    bias = given(rng, (outputs,), dtype, grad) if rng.random() < 0.5 else None
    name = f"F.conv{'_transpose' if transposed else ''}{dims}d"
    args = (given(rng, shape_, dtype, grad, share), given(rng, weight, dtype, grad), bias)
    return Case(name, args, kwargs, grad)


def pooling(rng: Random) -> Case:
    """A pooling of 1 to 3 dimensions."""
    dims, grad = rng.randint(1, 3), rng.random() < 0.6
    kind = rng.choice(("avg_pool", "max_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool"))
    sizes = (*((rng.choice((0, 1, 2)),) if rng.random() < 0.8 else ()), rng.choice((1, 3, 8)))
    sizes += tuple(rng.randint(1, 12) for _ in range(dims))
    dtype = rng.choice(COMPUTED)
    x = given(rng, sizes, dtype, grad, rng.choice((0.0, 0.0, 0.1)))
    if kind.startswith("adaptive"):
        return Case(f"F.{kind}{dims}d", (x, several(rng, dims, 1, 6)), {}, grad)
    kwargs: dict[str, Any] = {"stride": several(rng, dims, 1, 3), "ceil_mode": rng.random() < 0.4}
    if kind == "lp_pool":
        return Case(f"F.lp_pool{dims}d", (x, rng.choice((1.0, 2.0, 3.0)), several(rng, dims, 1, 3)), kwargs, grad)
    kwargs["padding"] = several(rng, dims, 0, 1) if rng.random() < 0.9 else 3
    if kind == "max_pool":
        kwargs["dilation"] = several(rng, dims, 1, 2)
        kwargs["return_indices"] = rng.random() < 0.3
    else:
        kwargs["count_include_pad"] = rng.random() < 0.5
    return Case(f"F.{kind}{dims}d", (x, several(rng, dims, 1, 4)), kwargs, grad)


def product(rng: Random) -> Case:
    """A matrix product, with and without an added term."""
    dtype = rng.choice(MATMUL)
    grad = rng.random() < 0.4 and (dtype.is_floating_point or dtype.is_complex)
    b, m, k, n = rng.choice((0, 1, 2, 5)), *(rng.choice((0, 1, 2, 3, 8, 17, 64, 65)) for _ in range(3))
    share = rng.choice((0.0, 0.0, 0.0, 0.1))
    shapes = {
        "torch.mm": ((m, k), (k, n)), "torch.bmm": ((b, m, k), (b, k, n)), "torch.mv": ((m, k), (k,)),
        "torch.dot": ((k,), (k,)), "torch.vdot": ((k,), (k,)), "torch.matmul": ((b, m, k), (k, n)),
        "torch.outer": ((m,), (n,)), "F.linear": ((b, m, k), (n, k), (n,)), "torch.addmm": ((m, n), (m, k), (k, n)),
        "torch.addmv": ((m,), (m, k), (k,)), "torch.addr": ((m, n), (m,), (n,)),
        "torch.addbmm": ((m, n), (b, m, k), (b, k, n)), "torch.baddbmm": ((b, m, n), (b, m, k), (b, k, n)),
    }  # fmt: skip
    name = rng.choice(sorted(shapes))
    operands = [given(rng, sizes, dtype, grad, share) for sizes in shapes[name]]
    kwargs: dict[str, Any] = {}
    if name in ("torch.addmm", "torch.addmv", "torch.addr", "torch.addbmm", "torch.baddbmm"):
        whole = not dtype.is_floating_point and not dtype.is_complex
        numbers = (0, 1, 2, -1) if whole else (0, 1, 2, 0.5)
        kwargs = {key: rng.choice(numbers) for key in ("alpha", "beta") if rng.random() < 0.6}
        if rng.random() < 0.4 and len(shapes[name][0]) > 1:
            operands[0] = given(rng, rng.choice(((n,), (1, n), (m, 1), (m, n + 1))), dtype, grad, share)
    return Case(name, tuple(operands), kwargs, grad)


def indexing(rng: Random) -> Case:
    """A function that takes indices along a dimension."""
    sizes = shape(rng, 3, 1)
    dim = rng.randrange(len(sizes))
    bound, dtype, count = sizes[dim], rng.choice(ALL), rng.choice((0, 1, 3, 8))
    grad = rng.random() < 0.3 and dtype.is_floating_point
    x = given(rng, sizes, dtype, grad, special(rng))
    picked = (*sizes[:dim], count, *sizes[dim + 1 :])
    kind = rng.choice(("index_select", "index_add", "index_copy", "index_fill", "gather", "scatter", "scatter_add",
                       "scatter_reduce", "take", "index_put", "index", "take_along_dim", "index_reduce"))  # fmt: skip
    index_dtype = torch.int64 if rng.random() < 0.9 else torch.int32
    flat = () if rng.random() < 0.15 else (count,)
    source = given(rng, picked, dtype, grad)
    if kind == "index_select":
        return Case("torch.index_select", (x, dim, indices(rng, flat, bound, index_dtype)), {}, grad)
    if kind in ("index_add", "index_copy"):
        return Case(f"torch.{kind}", (x, dim, indices(rng, (count,), bound, index_dtype), source), {}, grad)
    if kind == "index_fill":
        value = rng.choice((0, 2, 1e5, Operand(elements(rng, (), dtype), on_cpu=rng.random() < 0.5)))
        return Case("torch.index_fill", (x, dim, indices(rng, flat, bound), value))
    if kind == "index_reduce":
        reduce = rng.choice(("prod", "mean", "amax", "amin"))
        return Case("torch.index_reduce", (x, dim, indices(rng, (count,), bound), source, reduce))
    if kind in ("gather", "take_along_dim"):
        return Case(f"torch.{kind}", (x, *((dim, indices(rng, picked, bound)) if kind == "gather" else
                                           (indices(rng, picked, bound), dim))), {}, grad)  # fmt: skip
    if kind in ("scatter", "scatter_add"):
        # Only the order of sums is free, so scatter must not write an element twice.
        where = Operand(torch.rand(picked).argsort(dim)) if kind == "scatter" else indices(rng, picked, bound)
        return Case(f"torch.{kind}", (x, dim, where, source), {}, grad)
    if kind == "scatter_reduce":
        kwargs = {"reduce": rng.choice(("sum", "prod", "mean", "amax", "amin")), "include_self": rng.random() < 0.5}
        return Case("torch.scatter_reduce", (x, dim, indices(rng, picked, bound), source), kwargs, grad)
    total = x.tensor.numel()
    if kind == "take":
        return Case("torch.take", (x, indices(rng, (count, 2)[: rng.randint(0, 2)], total)), {}, grad)
    where = indices(rng, flat, sizes[0])
    if kind == "index":
        return Case("torch.Tensor.__getitem__", (x, where), {}, grad)
    values = given(rng, (*where.tensor.shape, *sizes[1:]), dtype, False)
    if rng.random() < 0.3:
        values = Operand(elements(rng, (), dtype), on_cpu=rng.random() < 0.3)
    return Case("torch.index_put", (x, (where,), values), {"accumulate": True})


def embedding(rng: Random) -> Case:
    """An embedding, or a bag of them."""
    rows, width, grad = rng.choice((1, 3, 10)), rng.choice((0, 1, 4, 17)), rng.random() < 0.5
    weight = given(rng, (rows, width), rng.choice(COMPUTED), grad)
    padding = rng.choice((None, None, 0, rows - 1))
    if rng.random() < 0.4:
        return Case("F.embedding", (indices(rng, shape(rng, 2), rows), weight), {"padding_idx": padding}, grad)
    kwargs: dict[str, Any] = {"mode": rng.choice(("sum", "mean", "max")), "padding_idx": padding}
    count = rng.choice((0, 1, 5, 12))
    if rng.random() < 0.5:
        return Case("F.embedding_bag", (indices(rng, (rng.randint(0, 4), count), rows), weight), kwargs, grad)
    offsets = sorted(rng.randint(0, count) for _ in range(rng.randint(0, 5)))
    offsets = [0, *offsets] if rng.random() < 0.95 else offsets
    kwargs["include_last_offset"] = rng.random() < 0.2
    found = indices(rng, (count,), rows)
    return Case("F.embedding_bag", (found, weight, Operand(torch.tensor(offsets, dtype=torch.int64))), kwargs, grad)


def attention(rng: Random) -> Case:
    """Scaled dot product attention."""
    grad, dtype = rng.random() < 0.5, rng.choice(COMPUTED)
    batch, heads = rng.choice((1, 2)), rng.choice((1, 2, 4))
    queries, keys, width = (rng.choice((1, 2, 4, 7, 16, 33)) for _ in range(3))
    share = rng.choice((0.0, 0.0, 0.0, 0.02))
    q, k, v = (given(rng, (batch, heads, rows, width), dtype, grad, share) for rows in (queries, keys, keys))
    kwargs: dict[str, Any] = {}
    if rng.random() < 0.3:
        kwargs["is_causal"] = True
    elif rng.random() < 0.5:
        mask = rng.choice(((queries, keys), (batch, 1, queries, keys), (1, 1, 1, keys)))
        kwargs["attn_mask"] = given(rng, mask, rng.choice((torch.bool, dtype)), False)
    if rng.random() < 0.3:
        kwargs["scale"] = rng.choice((0.5, 2.0))
    return Case("F.scaled_dot_product_attention", (q, k, v), kwargs, grad)


def normalisation(rng: Random) -> Case:
    """A layer, group, batch or instance norm."""
    grad, dtype = rng.random() < 0.6, rng.choice(COMPUTED)
    channels = rng.choice((1, 2, 4, 8))
    sizes = (rng.choice((0, 1, 2, 3)), channels, *(rng.randint(1, 6) for _ in range(rng.randint(0, 3))))
    x = given(rng, sizes, dtype, grad, rng.choice((0.0, 0.0, 0.05)))
    scale = [given(rng, (channels,), dtype, grad) if rng.random() < 0.7 else None for _ in range(2)]
    kind = rng.choice(("layer", "group", "batch", "instance", "rms"))
    if kind in ("layer", "rms"):
        tail = sizes[rng.randint(1, len(sizes) - 1) :]
        weight = given(rng, tail, dtype, grad) if rng.random() < 0.7 else None
        if kind == "rms":
            return Case("F.rms_norm", (x, tail, weight), {}, grad)
        return Case("F.layer_norm", (x, tail, weight, given(rng, tail, dtype, grad) if weight else None), {}, grad)
    if kind == "group":
        return Case("F.group_norm", (x, rng.choice((1, 2, channels)), *scale), {}, grad)
    if kind == "instance":
        return Case("F.instance_norm", (x, None, None, *scale), {}, grad)
    training = rng.random() < 0.6
    mean, var = given(rng, (channels,), dtype, False), Operand(torch.rand(channels).to(dtype) + 0.5)
    running = (
        (Operand(laid_out(rng, mean.tensor, writable=True)), var)
        if not training or rng.random() < 0.5
        else (None, None)
    )
    return Case("F.batch_norm", (x, *running, *scale, training), {}, grad)


def resampling(rng: Random) -> Case:
    """Interpolation, grids and padding."""
    grad, dtype = rng.random() < 0.5, rng.choice(COMPUTED)
    kind = rng.choice(("interpolate", "grid_sample", "pad"))
    if kind == "pad":
        dims = rng.randint(1, 3)
        sizes = (rng.choice((1, 2)), rng.choice((1, 3)), *(rng.randint(1, 6) for _ in range(dims)))
        mode = rng.choice(("constant", "reflect", "replicate", "circular"))
        amounts = tuple(rng.randint(-1 if mode == "constant" else 0, 3) for _ in range(2 * dims))
        one = given(rng, sizes, rng.choice(REAL) if mode == "constant" else dtype, grad)
        return Case("F.pad", (one, amounts, mode), {}, one.requires_grad)
    if kind == "grid_sample":
        dims = rng.choice((2, 3))
        sizes = (rng.choice((1, 2)), rng.choice((1, 3)), *(rng.randint(1, 6) for _ in range(dims)))
        grid = (sizes[0], *(rng.randint(1, 5) for _ in range(dims)), dims)
        mode = rng.choice(("bilinear", "nearest", "bicubic")[: 3 if dims == 2 else 2])
        dtype = rng.choice((torch.float32, torch.float64))
        args = (given(rng, sizes, dtype, grad), given(rng, grid, dtype, grad, rng.choice((0.0, 0.0, 0.2))))
        kwargs = {"mode": mode, "padding_mode": rng.choice(("zeros", "border", "reflection")),
                  "align_corners": rng.random() < 0.5}  # fmt: skip
        return Case("F.grid_sample", args, kwargs, grad)
    dims = rng.randint(1, 3)
    sizes = (rng.choice((1, 2)), rng.choice((1, 3, 8)), *(rng.randint(1, 9) for _ in range(dims)))
    linear = ("linear", "bilinear", "trilinear")[dims - 1]
    mode = rng.choice(("nearest", "nearest-exact", linear, *(("bicubic",) if dims == 2 else ())))
    kwargs = {"mode": mode}
    if rng.random() < 0.5:
        kwargs["size"] = tuple(rng.randint(1, 12) for _ in range(dims))
    else:
        kwargs["scale_factor"] = rng.choice((0.5, 1.5, 2.0, 2.7))
    if "nearest" not in mode:
        kwargs["align_corners"] = rng.random() < 0.5
        kwargs["antialias"] = mode in ("bilinear", "bicubic") and rng.random() < 0.2
    return Case("F.interpolate", (given(rng, sizes, dtype, grad),), kwargs, grad)


def ordering(rng: Random) -> Case:
    """Sorting, scans and functions that compare elements."""
    x = given(rng, shape(rng, 3), rng.choice((*REAL, *FLOATING)), False, special(rng))
    dims = x.tensor.dim()
    dim = rng.randint(-dims, dims - 1) if dims else rng.choice((0, -1))
    size = x.tensor.shape[dim] if dims else 1
    kind = rng.choice(("sort", "topk", "kthvalue", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "unique",
                       "searchsorted", "bincount", "histc", "isin", "softmax", "log_softmax"))  # fmt: skip
    if kind == "sort":
        return Case("torch.sort", (x,), {"dim": dim, "descending": rng.random() < 0.5, "stable": rng.random() < 0.5})
    if kind == "topk":
        return Case(
            "torch.topk", (x, rng.randint(0, size + rng.choice((0, 0, 0, 1))), dim), {"largest": rng.random() < 0.5}
        )
    if kind == "kthvalue":
        return Case("torch.kthvalue", (x, rng.randint(0, size + 1), dim))
    if kind == "unique":
        return Case("torch.unique", (x,), {"return_counts": rng.random() < 0.5, "return_inverse": rng.random() < 0.5})
    if kind == "searchsorted":
        line = given(rng, (rng.choice((0, 1, 5, 9)),), x.tensor.dtype, False)
        line = Operand(line.tensor.sort().values)
        return Case("torch.searchsorted", (line, x), {"right": rng.random() < 0.5})
    if kind == "bincount":
        return Case("torch.bincount", (indices(rng, (rng.choice((0, 1, 9)),), 6, rng.choice(INTEGRAL)),))
    if kind == "histc":
        low, high = rng.choice(((0, 0), (-1, 2), (3, 3)))
        return Case("torch.histc", (x,), {"bins": rng.randint(1, 5), "min": low, "max": high})
    if kind == "isin":
        return Case("torch.isin", (x, given(rng, (rng.choice((0, 1, 5, 30)),), rng.choice(REAL), False)))
    name = f"F.{kind}" if "softmax" in kind else f"torch.{kind}"
    grad = x.tensor.dtype.is_floating_point and rng.random() < 0.4
    return Case(name, (Operand(x.tensor, requires_grad=grad), dim), {}, grad)


def losses(rng: Random) -> Case:
    """Losses."""
    grad, dtype = rng.random() < 0.6, rng.choice(COMPUTED)
    rows, classes = rng.choice((0, 1, 2, 5)), rng.choice((1, 2, 7))
    reduction = {"reduction": rng.choice(("none", "mean", "sum"))}
    kind = rng.choice(("nll_loss", "cross_entropy", "two", "two", "multi_margin_loss"))
    if kind == "two":
        name = rng.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits",
                           "soft_margin_loss", "poisson_nll_loss", "kl_div"))  # fmt: skip
        sizes, share = shape(rng, 3), special(rng)
        args = (given(rng, sizes, dtype, grad, share), given(rng, sizes, dtype, False, share))
        return Case(f"F.{name}", args, reduction, grad)
    tail = tuple(rng.randint(1, 3) for _ in range(rng.choice((0, 0, 1, 2)))) if kind != "multi_margin_loss" else ()
    x = given(rng, (rows, classes, *tail), dtype, grad, rng.choice((0.0, 0.0, 0.1)))
    target = indices(rng, (rows, *tail), classes)
    kwargs: dict[str, Any] = dict(reduction)
    if kind != "multi_margin_loss" and rng.random() < 0.4:
        kwargs["ignore_index"] = rng.choice((0, 1, -100))
    if rng.random() < 0.4:
        kwargs["weight"] = Operand(torch.rand(classes).to(dtype))
    return Case(f"F.{kind}", (x, target), kwargs, grad)


FAMILIES = (
    convolution, pooling, product, indexing, indexing, embedding, attention, normalisation, resampling, ordering,
    ordering, losses,
)  # fmt: skip


def family(rng: Random) -> Case:
    """Make a case of one of the families.

    Args:
        rng: where choices come from.

    Returns:
        A call.
    """
    # Some families draw values from torch without a generator.
    torch.manual_seed(rng.getrandbits(48))
    return rng.choice(FAMILIES)(rng)
