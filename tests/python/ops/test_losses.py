"""Losses beyond the OpInfos: all kinds of targets, dtypes that the CPU lacks, and invalid input."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, covers
from torch import Tensor

TIMES, BATCH, CLASSES = 50, 3, 6
LENGTHS, TARGET_LENGTHS = (50, 31, 44), (20, 7, 11)


def log_probs(dtype: torch.dtype = torch.float32, classes: int = CLASSES) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(TIMES, BATCH, classes).log_softmax(-1).to(dtype)


def labels(count: int = max(TARGET_LENGTHS), dtype: torch.dtype = torch.int64) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(1, CLASSES, (BATCH, count), dtype=dtype)


def assert_as_on_cpu(work: Callable[..., Tensor], probs: Tensor, *inputs: Tensor, device: torch.device) -> None:
    """Compare a loss and its gradient with the CPU's in float64."""
    results = []
    for where, dtype in ((torch.device("cpu"), torch.float64), (device, probs.dtype)):
        leaf = probs.detach().to(dtype).to(where).requires_grad_()
        loss = work(leaf, *(tensor.to(where) for tensor in inputs))
        (grad,) = torch.autograd.grad(loss, leaf, torch.linspace(-1, 2, loss.numel()).reshape(loss.shape).to(loss))
        results.append((loss.detach().cpu(), grad.cpu()))
    # Gradients are exponentials of sums as large as the loss.
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if probs.dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours.double(), theirs, equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", computed((torch.float32, torch.float64)), ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@covers("_ctc_loss.Tensor", "_ctc_loss_backward.Tensor")
def test_ctc_loss_of_targets_in_rows_and_one_after_the_other(
    dtype: torch.dtype, reduction: str, device: torch.device
) -> None:
    rows = labels()
    joined = torch.cat([row[:length] for row, length in zip(rows, TARGET_LENGTHS, strict=True)])
    with NoFallback():
        for targets in (rows, joined, rows.int(), rows.t().contiguous().t()):
            for sizes in ((LENGTHS, TARGET_LENGTHS), (torch.tensor(LENGTHS), torch.tensor(TARGET_LENGTHS))):

                def loss(probs: Tensor, targets: Tensor, sizes=sizes) -> Tensor:
                    return F.ctc_loss(probs, targets, *sizes, blank=0, reduction=reduction)

                assert_as_on_cpu(loss, log_probs(dtype), targets, device=device)


def test_ctc_loss_of_other_blanks_and_strides(device: torch.device) -> None:
    def loss(probs: Tensor, targets: Tensor) -> Tensor:
        return F.ctc_loss(probs.transpose(0, 1), targets, LENGTHS, TARGET_LENGTHS, blank=CLASSES - 1, reduction="none")

    with NoFallback():
        assert_as_on_cpu(loss, log_probs().transpose(0, 1).contiguous(), labels() - 1, device=device)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("target_lengths", [(0, 7, 0), (20, 16, 20), (0, 0, 0)])
@pytest.mark.parametrize("input_lengths", [(50, 31, 44), (50, 0, 19)])
def test_ctc_loss_of_empty_and_impossible_targets(
    input_lengths: tuple[int, ...], target_lengths: tuple[int, ...], zero_infinity: bool, device: torch.device
) -> None:
    def loss(probs: Tensor, targets: Tensor) -> Tensor:
        return F.ctc_loss(probs, targets, input_lengths, target_lengths, reduction="none", zero_infinity=zero_infinity)

    with NoFallback():
        # A single repeated label needs a blank between any two.
        for targets in (labels(), torch.ones_like(labels())):
            assert_as_on_cpu(loss, log_probs(), targets, device=device)


def test_ctc_loss_of_strided_targets(device: torch.device) -> None:
    """The CPU reads other elements than the targets here."""
    joined = torch.cat([row[:length] for row, length in zip(labels(), TARGET_LENGTHS, strict=True)]).to(device)
    spread = torch.stack([joined, joined + 9], 1)[:, 0]
    probs = log_probs().to(device)
    expected = F.ctc_loss(probs, joined, LENGTHS, TARGET_LENGTHS, reduction="none")
    assert torch.equal(F.ctc_loss(probs, spread, LENGTHS, TARGET_LENGTHS, reduction="none"), expected)


def test_ctc_loss_of_one_sample(device: torch.device) -> None:
    def loss(probs: Tensor, targets: Tensor) -> Tensor:
        return F.ctc_loss(probs, targets, torch.tensor(TIMES), torch.tensor(9))

    assert_as_on_cpu(loss, log_probs()[:, 0], labels()[0, :9], device=device)


@pytest.mark.parametrize(
    ("sizes", "targets"),
    [
        (((51, 31, 44), TARGET_LENGTHS), labels()),
        (((50, 31), TARGET_LENGTHS), labels()),
        ((LENGTHS, (20, 7)), labels()),
        ((LENGTHS, (20, 7, 21)), labels()),
        ((LENGTHS, (20, 7, -1)), labels()),
        (((50, -1, 44), TARGET_LENGTHS), labels()),
        ((LENGTHS, TARGET_LENGTHS), labels()[0]),
        ((LENGTHS, TARGET_LENGTHS), labels().float()),
    ],
)
def test_ctc_loss_refuses_arguments_as_the_cpu_does(sizes: tuple, targets: Tensor, device: torch.device) -> None:
    with pytest.raises(RuntimeError) as expected:
        torch._ctc_loss(log_probs(), targets, *sizes)
    with pytest.raises(RuntimeError) as raised:
        torch._ctc_loss(log_probs().to(device), targets.to(device), *sizes)
    ours, theirs = (str(error.value).splitlines()[0] for error in (raised, expected))
    assert ours.replace("openclFloatType", "torch.FloatTensor") == theirs


def test_ctc_loss_raises_for_labels_that_are_no_class(device: torch.device) -> None:
    targets = labels()
    targets[1, 3] = CLASSES
    loss = F.ctc_loss(log_probs().to(device), targets.to(device), LENGTHS, TARGET_LENGTHS)
    with pytest.raises(IndexError, match=f"Target {CLASSES} is out of bounds"):
        loss.item()


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (3, 700), (5,), ()])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margin_losses_in_every_dtype(
    shape: tuple[int, ...], reduction: str, dtype: torch.dtype, device: torch.device
) -> None:
    """CUDA supports 16-bit floats, and the CPU does not."""
    torch.manual_seed(0)
    scores = torch.randn(shape).to(dtype)
    classes = shape[-1] if shape else 1
    one = torch.randint(classes, shape[:-1])
    several = torch.randint(-1, classes, shape)
    weight = torch.rand(classes).to(dtype)
    for p in (1, 2):
        losses = [lambda x, t, w, p=p: F.multi_margin_loss(x, t, p=p, margin=0.7, weight=w, reduction=reduction)]
        if len(shape) > 1:
            losses.append(lambda x, t, w: F.multi_margin_loss(x[:0], t[:0], weight=w, reduction="none"))
        for targets, work in [(one, work) for work in losses] + [
            (several, lambda x, t, w: F.multilabel_margin_loss(x, t, reduction=reduction))
        ]:
            results = []
            for where, kind in (("cpu", torch.float64), (device, dtype)):
                leaf = scores.to(kind).to(where).requires_grad_()
                with NoFallback():
                    loss = work(leaf, targets.to(where), weight.to(kind).to(where))
                    (grad,) = torch.autograd.grad(loss.sum(), leaf)
                results.append((loss.detach().cpu().to(dtype), grad.cpu().to(dtype)))
            for ours, theirs in zip(results[1], results[0], strict=True):
                torch.testing.assert_close(ours, theirs)


def test_margin_losses_refuse_arguments_as_the_cpu_does(device: torch.device) -> None:
    x = torch.zeros(3, 4)

    def refused(work: Callable[[Tensor, Tensor], Tensor], x: Tensor, targets: Tensor) -> None:
        with pytest.raises(Exception) as expected:
            work(x, targets)
        with pytest.raises(type(expected.value)) as raised:
            work(x.to(device), targets.to(device)).sum().item()
        assert str(raised.value) == str(expected.value)

    refused(F.multi_margin_loss, x, torch.tensor([0, 1, 4]))
    refused(F.multi_margin_loss, x, torch.tensor([0, -1, 3]))
    refused(F.multi_margin_loss, x, torch.tensor([0, 1]))
    refused(lambda x, t: F.multi_margin_loss(x, t, p=3), x, torch.tensor([0, 1, 2]))
    refused(lambda x, t: F.multi_margin_loss(x, t, weight=x[0, :3]), x, torch.tensor([0, 1, 2]))
    refused(F.multi_margin_loss, x[:, :0], torch.tensor([0, 1, 2]))
    refused(F.multilabel_margin_loss, x, torch.tensor([[0, 1, 4, -1]] * 3))
    refused(F.multilabel_margin_loss, x, torch.tensor([[0, 1, -2, -1]] * 3))
    refused(F.multilabel_margin_loss, x, torch.tensor([[0, 1]] * 3))


def test_negative_log_likelihood_of_integers_is_refused(device: torch.device) -> None:
    for shape in ((2, 3), (2, 3, 2, 2)):
        scores = torch.ones(shape, dtype=torch.int64, device=device)
        classes = torch.zeros((shape[0], *shape[2:]), dtype=torch.int64, device=device)
        with pytest.raises(NotImplementedError, match="\"nll_loss\" not implemented for 'Long'"):
            torch.nn.functional.nll_loss(scores, classes)


@pytest.mark.parametrize("spatial", [(), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_an_empty_batch(reduction, spatial, device):
    def losses(where):
        scores = torch.zeros(0, 3, *spatial, device=where, requires_grad=True)
        target = torch.zeros(0, *spatial, dtype=torch.int64, device=where)
        loss = F.cross_entropy(scores, target, reduction=reduction)
        loss.sum().backward()
        return loss.detach().cpu(), scores.grad.cpu()

    torch.testing.assert_close(losses(device), losses("cpu"), equal_nan=True)
