"""Cases made from the samples of PyTorch's own test suite: other values, layouts and dtypes for the same calls."""

from itertools import islice
from random import Random

import torch
from op_table import NOT_COMPARABLE, opinfo_dtypes
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map_only

from fuzz.case import Case, Operand
from fuzz.material import laid_out, sprinkled
from fuzz.pointwise import LEFT_OUT, named, special, variant

# The most samples of an OpInfo to choose a case from.
MOST_SAMPLES = 48

# Ops whose results are uninitialised or random on every device.
NOT_DETERMINED = LEFT_OUT | NOT_COMPARABLE | {
    "empty_like", "empty_permuted", "new_empty", "new_empty_strided", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "randperm", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "resize_",
    "resize_as_", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "svd_lowrank",
    "pca_lowrank",
    "nn.functional.multi_head_attention_forward", "to_sparse", "sparse.sampled_addmm", "sparse.mm.reduce",
    "broadcast_shapes", "torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward",
}  # fmt: skip

TABLE = [(info, dtypes) for info, dtypes in opinfo_dtypes() if info.name not in NOT_DETERMINED and dtypes]
OTHERS = [
    info for info in op_db
    if info.name not in NOT_DETERMINED and info.full_name not in {known.full_name for known, _ in TABLE}
]  # fmt: skip


def choose(rng: Random) -> tuple[OpInfo, torch.dtype]:
    """Choose an operator and a dtype.

    Args:
        rng: where choices come from.

    Returns:
        Usually an operator of the op table, seldom one that falls back to the CPU or is composite.
    """
    if rng.random() < 0.9:
        info, dtypes = rng.choice(TABLE)
        return info, rng.choice(dtypes)
    info = rng.choice(OTHERS)
    return info, rng.choice(sorted(info.supported_dtypes("cpu"), key=str) or [torch.float32])


def sample(rng: Random) -> Case | None:
    """Make a case from a sample.

    Args:
        rng: where choices come from.

    Returns:
        The sample's call with other layouts, sometimes with extreme values, `out=`, in place or with gradients; None
        if the OpInfo has no sample for the CPU.
    """
    info, dtype = choose(rng)
    differentiable = rng.random() < 0.35 and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    torch.manual_seed(rng.getrandbits(48))
    every = list(islice(info.sample_inputs("cpu", dtype, differentiable), MOST_SAMPLES))
    # Samples with dropout have random results.
    every = [sample for sample in every if not sample.kwargs.get("dropout_p")]
    if not every:
        return None
    chosen = rng.choice(every)
    share, relayout = special(rng) if rng.random() < 0.4 else 0.0, rng.random() < 0.7

    def as_operand(tensor: torch.Tensor) -> Operand:
        grad = tensor.requires_grad
        plain = tensor.detach().resolve_conj().resolve_neg()
        if plain.layout != torch.strided:
            return Operand(plain, on_cpu=False, requires_grad=grad)
        if plain.dtype == dtype and (dtype.is_floating_point or dtype.is_complex):
            plain = sprinkled(rng, plain.contiguous(), share)
        plain = laid_out(rng, plain, writable=True) if relayout else plain.clone()
        return Operand(plain, on_cpu=plain.dim() == 0 and not grad and rng.random() < 0.1, requires_grad=grad)

    args, kwargs = tree_map_only(torch.Tensor, as_operand, ((chosen.input, *chosen.args), dict(chosen.kwargs)))
    case = Case(named(info), args, kwargs, differentiable)
    if any(
        not isinstance(operand.tensor, torch.Tensor) or operand.tensor.layout != torch.strided
        for operand in case.operands
    ):
        return None
    return variant(rng, case, info) if info.supports_out and not differentiable else case
