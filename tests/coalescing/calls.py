"""The calls to measure, in groups; each group runs in its own process.

Rows have at least 256 elements, and no length is a multiple of a tile or a vector, so that small tensors show what
large ones would. Indices are consecutive numbers: a gather is then as coalesced as a copy if its kernel's items are in
order. Tensors of 65536 elements and more run specialised kernels, smaller ones generic kernels.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

Call = tuple[Callable[..., object], list[torch.Tensor]]


def _gradients(function: Callable[..., torch.Tensor]) -> Callable[..., object]:
    def call(*inputs: torch.Tensor) -> object:
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
        result = function(*leaves)
        weights = torch.ones_like(result)
        return torch.autograd.grad(result, [t for t in leaves if t.requires_grad], weights)

    return call


def _in_order(function: Callable[..., object]) -> Callable[..., object]:
    def call(*inputs: torch.Tensor) -> object:
        torch.use_deterministic_algorithms(True)
        try:
            return function(*inputs)
        finally:
            torch.use_deterministic_algorithms(False)

    return call


def r(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor in which no two adjacent values are in order.

    Args:
        sizes: its shape.
        dtype: its dtype.

    Returns:
        A CPU tensor.
    """
    return torch.randn(sizes).to(dtype)


def pointwise() -> dict[str, Call]:
    """Element-wise operators over dense and other layouts."""
    return {
        "add": (torch.add, [r(9, 515), r(9, 515)]),
        "add, specialised": (torch.add, [r(131, 515), r(131, 515)]),
        "add half": (torch.add, [r(9, 515, dtype=torch.half), r(9, 515, dtype=torch.half)]),
        "add int64": (torch.add, [torch.arange(5151), torch.arange(5151)]),
        "add complex": (torch.add, [r(5151, dtype=torch.complex64), r(5151, dtype=torch.complex64)]),
        "mul to float": (torch.mul, [r(5151, dtype=torch.bfloat16), r(5151)]),
        "gt": (torch.gt, [r(5151), r(5151)]),
        "where": (torch.where, [r(5151) > 0, r(5151), r(5151)]),
        "add of a row": (torch.add, [r(19, 515), r(515)]),
        "add of a column": (torch.add, [r(19, 515), r(19, 1)]),
        "add of planes": (lambda a, b: a + b[:, None, None], [r(7, 11, 259), r(7)]),
        "add transposed": (lambda a, b: a.t() + b, [r(261, 77), r(77, 261)]),
        "add permuted": (lambda a, b: a.permute(2, 0, 1) + b, [r(9, 65, 33), r(33, 9, 65)]),
        "add sliced": (lambda a, b: a[:, 1:] + b[:, :-1], [r(19, 515), r(19, 515)]),
        "mul in place": (lambda a: a.mul_(2), [r(5151)]),
        "fill": (lambda a: a.fill_(2), [r(5151)]),
        "convert": (lambda a: a.half(), [r(5151)]),
        "convert to bytes": (lambda a: a.byte(), [r(5151)]),
        "gelu": (_gradients(F.gelu), [r(5151)]),
    }


def copies() -> dict[str, Call]:
    """Copies between layouts, and operators that rearrange tensors."""
    return {
        "transpose": (lambda a: a.t().contiguous(), [r(261, 77)]),
        "transpose, specialised": (lambda a: a.t().contiguous(), [r(261, 259)]),
        "transpose bytes": (lambda a: a.t().contiguous(), [r(261, 77).byte()]),
        "transpose half": (lambda a: a.t().contiguous(), [r(261, 77).half()]),
        "transpose int64": (lambda a: a.t().contiguous(), [r(261, 77).long()]),
        "transpose complex128": (lambda a: a.t().contiguous(), [r(261, 77).to(torch.complex128)]),
        "transpose vectors": (lambda a: a.t().contiguous(), [r(260, 132)]),
        "transpose vectors of bytes": (lambda a: a.t().contiguous(), [r(272, 144).byte()]),
        "transpose vectors of half": (lambda a: a.t().contiguous(), [r(264, 136).half()]),
        "transpose vectors of int64": (lambda a: a.t().contiguous(), [r(258, 70).long()]),
        "transpose batches": (lambda a: a.transpose(1, 2).contiguous(), [r(3, 65, 129)]),
        "to channels_last": (lambda a: a.contiguous(memory_format=torch.channels_last), [r(2, 33, 15, 17)]),
        "from channels_last": (lambda a: a.permute(0, 3, 1, 2).contiguous(), [r(2, 15, 17, 33)]),
        "permute": (lambda a: a.permute(2, 0, 3, 1).contiguous(), [r(5, 9, 17, 33)]),
        "slice": (lambda a: a[:, 3:-3].contiguous(), [r(33, 515)]),
        "flip": (lambda a: a.flip(-1), [r(33, 515)]),
        "roll": (lambda a: a.roll(7, -1), [r(33, 515)]),
        "cat rows": (lambda a, b: torch.cat([a, b]), [r(9, 515), r(5, 515)]),
        "cat columns": (lambda a, b: torch.cat([a, b], 1), [r(9, 515), r(9, 257)]),
        "stack": (lambda a, b: torch.stack([a, b]), [r(9, 515), r(9, 515)]),
        "repeat": (lambda a: a.repeat(3, 2), [r(9, 257)]),
        "tril": (torch.tril, [r(65, 259)]),
        "pad": (lambda a: F.pad(a, (1, 2, 3, 4)), [r(3, 33, 259)]),
        "reflect": (_gradients(lambda a: F.pad(a, (1, 2, 3, 4), "reflect")), [r(3, 33, 259)]),
        "unfold": (lambda a: F.unfold(a, 3), [r(2, 3, 17, 33)]),
        "arange": (lambda a: torch.arange(5151, device=a.device), [r(1)]),
        "linspace": (lambda a: torch.linspace(0, 1, 5151, device=a.device), [r(1)]),
        "eye": (lambda a: torch.eye(65, device=a.device), [r(1)]),
    }


def reductions() -> dict[str, Call]:
    """Reductions along rows, columns, the middle dimension and all dimensions."""
    calls: dict[str, Call] = {}
    shapes = {"rows": ((33, 515), 1), "columns": ((515, 261), 0), "middle": ((3, 259, 131), 1), "all": ((9001,), 0)}
    shapes |= {"few columns": ((3001, 5), 0), "short rows": ((1501, 9), 1), "one long row": ((1, 70001), 1)}
    shapes |= {"rows, specialised": ((131, 515), 1), "few long rows": ((3, 30001), 1)}
    for name, (shape, dim) in shapes.items():
        calls[f"sum of {name}"] = (lambda a, dim=dim: a.sum(dim), [r(*shape)])
    for name in ("rows", "columns", "few columns", "short rows", "one long row"):
        shape, dim = shapes[name]
        calls |= {
            f"argmax of {name}": (lambda a, dim=dim: a.argmax(dim), [r(*shape)]),
            f"max of {name}": (lambda a, dim=dim: a.max(dim), [r(*shape)]),
            f"var of {name}": (lambda a, dim=dim: a.var(dim), [r(*shape)]),
        }
    return calls | {
        "sum of half": (lambda a: a.sum(1), [r(33, 515, dtype=torch.half)]),
        "sum of two dims": (lambda a: a.sum((0, 2)), [r(9, 7, 259)]),
        "sum of complex": (lambda a: a.sum(1), [r(33, 515, dtype=torch.complex64)]),
        "sum of transposed": (lambda a: a.t().sum(1), [r(515, 261)]),
        "norm": (lambda a: a.norm(dim=1), [r(33, 515)]),
        "any": (lambda a: a.any(1), [r(33, 515) > 0]),
        "prod": (lambda a: a.prod(0), [r(515, 261)]),
    }


def normalisation() -> dict[str, Call]:
    """Softmax and normalisations with their gradients."""
    return {
        "softmax of rows": (_gradients(lambda a: a.softmax(1)), [r(33, 515)]),
        "softmax of rows, specialised": (_gradients(lambda a: a.softmax(1)), [r(131, 515)]),
        "softmax of columns": (_gradients(lambda a: a.softmax(0)), [r(259, 131)]),
        "softmax of short rows": (_gradients(lambda a: a.softmax(1)), [r(1501, 9)]),
        "log_softmax of the middle": (_gradients(lambda a: a.log_softmax(1)), [r(3, 259, 65)]),
        "layer_norm": (_gradients(lambda a, w, b: F.layer_norm(a, (515,), w, b)), [r(33, 515), r(515), r(515)]),
        "layer_norm of short rows": (
            _gradients(lambda a, w, b: F.layer_norm(a, (33,), w, b)),
            [r(301, 33), r(33), r(33)],
        ),
        "group_norm": (_gradients(lambda a, w, b: F.group_norm(a, 3, w, b)), [r(3, 9, 17, 19), r(9), r(9)]),
        "batch_norm": (
            _gradients(lambda a, w, b: F.batch_norm(a, None, None, w, b, True)),
            [r(5, 9, 17, 19), r(9), r(9)],
        ),
        "batch_norm of columns": (
            _gradients(lambda a, w, b: F.batch_norm(a, None, None, w, b, True)),
            [r(259, 67), r(67), r(67)],
        ),
        "batch_norm channels_last": (
            _gradients(lambda a, w, b: F.batch_norm(a.permute(0, 3, 1, 2), None, None, w, b, True)),
            [r(3, 17, 9, 35), r(35), r(35)],
        ),
        "batch_norm in evaluation": (lambda a, m, v: F.batch_norm(a, m, v.abs()), [r(3, 9, 17, 19), r(9), r(9)]),
        "rms_norm": (_gradients(lambda a, w: F.rms_norm(a, (515,), w)), [r(33, 515), r(515)]),
    }


def matmuls() -> dict[str, Call]:
    """Matmuls with operands in every order."""
    return {
        "mm": (torch.mm, [r(70, 33), r(33, 77)]),
        "mm, first transposed": (lambda a, b: a.t() @ b, [r(33, 70), r(33, 77)]),
        "mm, second transposed": (lambda a, b: a @ b.t(), [r(70, 33), r(77, 33)]),
        "mm deep": (torch.mm, [r(33, 515), r(515, 35)]),
        "mm half": (torch.mm, [r(70, 33, dtype=torch.half), r(33, 77, dtype=torch.half)]),
        "addmm": (torch.addmm, [r(77), r(70, 33), r(33, 77)]),
        "bmm": (torch.bmm, [r(2, 65, 33), r(2, 33, 71)]),
        "mv": (torch.mv, [r(133, 515), r(515)]),
        "mv transposed": (lambda a, b: a.t() @ b, [r(515, 133), r(515)]),
        "vector by matrix": (torch.mm, [r(1, 515), r(515, 133)]),
        "dot": (torch.dot, [r(9001), r(9001)]),
        "ger": (torch.outer, [r(133), r(259)]),
    }


def convolutions() -> dict[str, Call]:
    """Convolutions with their gradients."""
    last = torch.channels_last
    return {
        "conv2d": (
            _gradients(lambda x, w, b: F.conv2d(x, w, b, padding=1)),
            [r(1, 8, 9, 11), r(12, 8, 3, 3), r(12)],
        ),
        "conv2d 1x1": (_gradients(F.conv2d), [r(1, 35, 9, 11), r(33, 35, 1, 1)]),
        "conv2d channels_last": (
            _gradients(lambda x, w: F.conv2d(x, w, padding=1)),
            [r(1, 8, 9, 11).to(memory_format=last), r(12, 8, 3, 3).to(memory_format=last)],
        ),
        "conv2d depthwise": (
            _gradients(lambda x, w: F.conv2d(x, w, padding=1, groups=9)),
            [r(1, 9, 9, 33), r(9, 1, 3, 3)],
        ),
        "conv2d depthwise channels_last": (
            _gradients(lambda x, w: F.conv2d(x, w, padding=1, groups=35)),
            [r(1, 35, 5, 9).to(memory_format=last), r(35, 1, 3, 3)],
        ),
        "conv2d of few channels": (
            _gradients(lambda x, w: F.conv2d(x, w, padding=1)),
            [r(1, 3, 9, 33), r(5, 3, 3, 3)],
        ),
        "conv1d": (_gradients(lambda x, w: F.conv1d(x, w, padding=1)), [r(1, 8, 131), r(12, 8, 3)]),
        "conv_transpose2d": (
            _gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2)),
            [r(1, 8, 5, 7), r(8, 12, 3, 3)],
        ),
    }


def pooling() -> dict[str, Call]:
    """Pooling with its gradients."""
    last = torch.channels_last
    return {
        "max_pool2d": (_gradients(lambda x: F.max_pool2d(x, 2)), [r(2, 3, 18, 66)]),
        "max_pool2d, overlapping": (_gradients(lambda x: F.max_pool2d(x, 3, 2, 1)), [r(2, 3, 17, 67)]),
        "max_pool2d channels_last": (
            _gradients(lambda x: F.max_pool2d(x, 2)),
            [r(2, 35, 10, 18).to(memory_format=last)],
        ),
        "avg_pool2d": (_gradients(lambda x: F.avg_pool2d(x, 2)), [r(2, 3, 18, 66)]),
        "avg_pool2d, overlapping": (_gradients(lambda x: F.avg_pool2d(x, 3, 1, 1)), [r(2, 3, 17, 67)]),
        "avg_pool2d channels_last": (
            _gradients(lambda x: F.avg_pool2d(x, 2)),
            [r(2, 35, 10, 18).to(memory_format=last)],
        ),
        "avg_pool1d": (_gradients(lambda x: F.avg_pool1d(x, 2)), [r(3, 5, 260)]),
        "adaptive_avg_pool2d": (_gradients(lambda x: F.adaptive_avg_pool2d(x, 1)), [r(2, 9, 17, 19)]),
    }


def attention() -> dict[str, Call]:
    """Scaled dot-product attention with its gradients."""
    attend = F.scaled_dot_product_attention
    return {
        "attention": (_gradients(attend), [r(1, 1, 67, 32), r(1, 1, 41, 32), r(1, 1, 41, 32)]),
        "attention of a batch of tokens": (
            _gradients(lambda q, k, v: attend(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)),
            [r(1, 35, 2, 32), r(1, 35, 2, 32), r(1, 35, 2, 32)],
        ),
        "attention of one query": (
            lambda q, k, v: attend(q, k, v, enable_gqa=True),
            [r(1, 8, 1, 128).half(), r(1, 2, 259, 128).half(), r(1, 2, 259, 128).half()],
        ),
    }


def order() -> dict[str, Call]:
    """Scans, sorts, searches and selections."""
    calls: dict[str, Call] = {}
    for name, shape, dim in (("rows", (9, 515), 1), ("columns", (515, 67), 0), ("a long row", (3001,), 0)):
        calls |= {
            f"cumsum of {name}": (lambda a, dim=dim: a.cumsum(dim), [r(*shape)]),
            f"cummax of {name}": (lambda a, dim=dim: a.cummax(dim), [r(*shape)]),
            f"sort of {name}": (lambda a, dim=dim: a.sort(dim), [r(*shape)]),
            f"topk of {name}": (lambda a, dim=dim: a.topk(5, dim), [r(*shape)]),
            f"kthvalue of {name}": (lambda a, dim=dim: a.kthvalue(7, dim), [r(*shape)]),
        }
    return calls | {
        "sort of short rows": (lambda a: a.sort(1), [r(301, 17)]),
        "nonzero": (torch.nonzero, [r(5151) > 0]),
        "nonzero of a matrix": (torch.nonzero, [r(19, 259)]),
        "masked_select": (torch.masked_select, [r(5151), r(5151) > 0]),
        "searchsorted": (torch.searchsorted, [torch.arange(999.0), torch.arange(0, 999, 0.5)]),
        "bincount": (torch.bincount, [torch.arange(5151) % 300]),
        "unique": (torch.unique, [torch.arange(3151) % 300]),
    }


def indexing() -> dict[str, Call]:
    """Gathers and scatters with indices in order."""
    rows = torch.arange(77)
    each = torch.arange(259).expand(33, 259).contiguous()
    tokens, bags = torch.arange(231) % 101, torch.arange(0, 231, 7)
    return {
        "index_select": (lambda a, i: a.index_select(0, i), [r(101, 259), rows]),
        "index_select of columns": (lambda a, i: a.index_select(1, i), [r(33, 259), rows]),
        "index": (lambda a, i: a[i], [r(101, 259), rows]),
        "index of elements": (lambda a, i: a[:, i], [r(33, 259), torch.arange(259)]),
        "gather of rows": (lambda a, i: a.gather(1, i), [r(33, 259), each]),
        "gather of columns": (
            lambda a, i: a.gather(0, i),
            [r(33, 259), torch.arange(33)[:, None].expand(33, 259).contiguous()],
        ),
        "scatter": (lambda a, i, s: a.scatter(1, i, s), [r(33, 259), each, r(33, 259)]),
        "scatter_add": (lambda a, i, s: a.scatter_add(1, i, s), [r(33, 259), each, r(33, 259)]),
        "index_add": (lambda a, i, s: a.index_add(0, i, s), [r(101, 259), rows, r(77, 259)]),
        "index_add of elements": (lambda a, i, s: a.index_add(0, i, s), [r(5151), torch.arange(3151), r(3151)]),
        "index_add of few places": (lambda a, i, s: a.index_add(0, i, s), [r(7), torch.arange(3151) % 7, r(3151)]),
        "index_add in order": (_in_order(lambda a, i, s: a.index_add(0, i, s)), [r(101, 259), tokens, r(231, 259)]),
        "scatter_add of columns": (
            lambda a, i, s: a.scatter_add(0, i, s),
            [r(33, 259), torch.arange(259)[:, None].expand(259, 259) % 33, r(259, 259)],
        ),
        "backward of an index of elements": (_gradients(lambda a, i: a[i, 0]), [r(3001, 2), torch.arange(2777)]),
        "index_put": (lambda a, i, s: a.index_put((i,), s), [r(101, 259), rows, r(77, 259)]),
        "index_copy": (lambda a, i, s: a.index_copy(0, i, s), [r(101, 259), rows, r(77, 259)]),
        "embedding": (_gradients(lambda w, i: F.embedding(i, w)), [r(101, 259), tokens]),
        "embedding of few columns": (_gradients(lambda w, i: F.embedding(i, w)), [r(101, 5), tokens]),
        "embedding_bag": (_gradients(lambda w, i, o: F.embedding_bag(i, w, o)), [r(101, 131), tokens, bags]),
        "masked_fill": (lambda a, m: a.masked_fill(m, 0), [r(33, 259), r(33, 259) > 0]),
    }


def training() -> dict[str, Call]:
    """Losses, optimizer steps, foreach operators, random values and recurrent cells."""
    classes = torch.arange(301) % 10

    def step(optimizer: type[torch.optim.Optimizer], **options: object) -> Callable[..., object]:
        def call(a: torch.Tensor, b: torch.Tensor) -> None:
            for t in (a, b):
                t.requires_grad_()
                t.grad = torch.ones_like(t)
            optimizer([a, b], **options).step()

        return call

    def cell(kind: type[torch.nn.Module]) -> Callable[..., object]:
        module = kind(19, 67)

        def call(x: torch.Tensor) -> object:
            moved = module.to(x.device)
            result = moved(x)
            return torch.autograd.grad((result[0] if isinstance(result, tuple) else result).sum(), moved.parameters())

        return call

    return {
        "cross_entropy": (_gradients(F.cross_entropy), [r(301, 10), classes]),
        "nll_loss of planes": (
            _gradients(F.nll_loss),
            [r(3, 10, 13, 19), classes[:1].expand(3, 13, 19).contiguous()],
        ),
        "mse_loss": (_gradients(F.mse_loss), [r(5151), r(5151)]),
        "binary_cross_entropy": (
            _gradients(lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x))),
            [r(5151)],
        ),
        "SGD": (step(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True), [r(5151), r(67)]),
        "Adam": (step(torch.optim.Adam, fused=True), [r(5151), r(67)]),
        "AdamW": (step(torch.optim.AdamW, fused=True), [r(5151), r(67)]),
        "Adagrad": (step(torch.optim.Adagrad, fused=True), [r(5151), r(67)]),
        "foreach_add": (lambda a, b: torch._foreach_add([a, b], 1.0), [r(5151), r(67)]),
        "foreach_norm": (lambda a, b: torch._foreach_norm([a, b]), [r(5151), r(67)]),
        "dropout": (_gradients(lambda x: F.dropout(x, 0.5)), [r(5151)]),
        "normal": (lambda a: a.normal_(), [r(5151)]),
        "uniform": (lambda a: a.uniform_(), [r(5151)]),
        "uniform half": (lambda a: a.uniform_(), [r(5151, dtype=torch.half)]),
        "random bytes": (lambda a: a.random_(), [r(5151).byte()]),
        "bernoulli": (torch.bernoulli, [r(5151).sigmoid()]),
        "randint": (lambda a: torch.randint(9, (5151,), device=a.device), [r(1)]),
        "LSTM cell": (cell(torch.nn.LSTMCell), [r(33, 19)]),
        "GRU cell": (cell(torch.nn.GRUCell), [r(33, 19)]),
    }


def interpolation() -> dict[str, Call]:
    """Interpolation and grid sampling."""
    calls: dict[str, Call] = {}
    for mode in ("nearest", "bilinear", "bicubic"):
        calls[f"interpolate {mode}"] = (
            _gradients(lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode)),
            [r(1, 3, 9, 65)],
        )
    grid = F.affine_grid(torch.eye(2, 3)[None], [1, 1, 17, 65], align_corners=False)
    sample = _gradients(lambda x, g: F.grid_sample(x, g, align_corners=False))
    return calls | {"grid_sample": (sample, [r(1, 3, 17, 65), grid])}


GROUPS: dict[str, Callable[[], dict[str, Call]]] = {
    group.__name__: group
    for group in (
        pointwise,
        copies,
        reductions,
        normalisation,
        matmuls,
        convolutions,
        pooling,
        attention,
        order,
        indexing,
        training,
        interpolation,
    )
}
