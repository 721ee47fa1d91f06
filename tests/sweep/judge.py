"""Computes a call on both devices, and judges the device's result."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from op_checks import CPU, Case
from op_samples import MOST_SAMPLES, WIDER, assert_as_cpu, assert_near_exact, widened
from op_table import NOT_COMPARABLE, ROWS, base_name, opinfos_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sweep.subjects import Subject

DEVICE = torch.device("opencl", 0)
# By operator: the families of its rows, or `host` if the host computes it for this device.
FAMILIES: dict[str, set[str]] = {}
for row in ROWS:
    is_on_host = row.on_cpu == "always" and torch.opencl.get_device_properties().type == "cpu"
    FAMILIES.setdefault(row.base, set()).add("host" if is_on_host else row.family)
# Split sizes of tensor_split must be a CPU tensor, on all devices.
WANTS_CPU = "to be on cpu"
# The factor for tolerances of second derivatives.
SECOND = 4
# The maximum length of the error message in a finding.
TEXT = 300


@dataclass
class Verdict:
    """The result of a check of a pair.

    Attributes:
        kind: `right`, `wrong`, `error`, `unsupported`, or `none` if the CPU accepts no call.
        text: for a finding, the shortened error.
        case: for a finding, the number of the call.
        cases: how many calls the CPU accepts.
        fallbacks: operators that ran on the CPU because they have no kernel.
        operators: operators that the dispatcher called on the device, in the first call.
    """

    kind: str = "none"
    text: str = ""
    case: int = -1
    cases: int = 0
    fallbacks: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()


def judge(subject: Subject, check: str, enter: Callable[[str], None]) -> Verdict:
    """Run a check, up to the first call that is wrong.

    Args:
        subject: the subject to check.
        check: one of its checks.
        enter: called with the name of the device that computes next, so that a crash is attributed to it.

    Returns:
        Its result.
    """
    verdict = Verdict()
    fallbacks: set[str] = set()
    enter("cpu")
    try:
        for number, case in enumerate(islice(subject.checks[check](), 3 * MOST_SAMPLES)):
            found = _judge_case(subject, check, case, enter)
            fallbacks |= set(torch.opencl.fallbacks())
            if found is None:
                continue
            if not verdict.cases and check == "forward":
                verdict.operators = frozenset(_operators(case, DEVICE).names)
            verdict.cases += 1
            verdict.kind, verdict.text = found
            if verdict.kind != "right":
                verdict.case = number
                break
    except Exception as error:
        # The error is in the samples themselves, which are made on the CPU.
        if verdict.kind == "none":
            verdict.text = _short(error)
    verdict.fallbacks = frozenset(fallbacks)
    return verdict


def _judge_case(subject: Subject, check: str, case: Case, enter: Callable[[str], None]) -> tuple[str, str] | None:
    """Compare one call; None if the CPU does not accept it."""
    torch.opencl.reset_fallbacks()
    enter("cpu")
    try:
        torch.manual_seed(0)
        expected = case.compute(case.sample, CPU)
    except Exception:
        return None
    enter("opencl")
    try:
        torch.manual_seed(0)
        actual = case.compute(case.sample, DEVICE)
        torch.opencl.synchronize()
    except Exception as error:
        _forget_faults()
        if WANTS_CPU in str(error):
            return None
        return "unsupported" if isinstance(error, NotImplementedError) else "error", _short(error)
    try:
        assert_as_cpu(
            actual,
            lambda sample: expected if sample is case.sample else case.compute(sample, CPU),
            case.sample,
            subject.dtype,
            **_tolerances(subject, check),
        )
    except Exception as error:
        enter("cpu")
        if not _is_determined(subject, case, expected):
            return _judge_form(actual, expected)
        if not _is_as_exact_as_the_cpu(subject, case, actual, expected):
            return "wrong", _short(error)
    return "right", ""


def _tolerances(subject: Subject, check: str) -> dict[str, Any]:
    """Return the tolerances of a check: second derivatives multiply the errors of the first."""
    factor = SECOND if check == "gradgrad" else 1
    given = subject.tolerances
    return {**given, "rtol": factor * given.get("rtol", 0.0), "atol": factor * given.get("atol", 0.0)}


def _is_as_exact_as_the_cpu(subject: Subject, case: Case, actual: Any, expected: Any) -> bool:
    """Return true if differences are no larger than a few errors of the CPU: large sums cancel in derivatives."""
    if subject.dtype not in WIDER:
        return False
    try:
        torch.manual_seed(0)
        assert_near_exact(actual, expected, case.compute(widened(case.sample, subject.dtype), CPU))
    except Exception:
        return False
    return True


def _operators(case: Case, device: torch.device) -> "_Operators":
    """Record the operators of a call by repeating it."""
    seen = _Operators()
    try:
        with seen:
            case.compute(case.sample, device)
    except Exception:
        _forget_faults()
    return seen


class _Operators(TorchDispatchMode):
    """Records the operators that the dispatcher calls below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.are_random = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(base_name(func.name()))
        self.are_random |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def computed_by(subject: Subject, operators: frozenset[str]) -> str:
    """Tell how an operator without wrong results and fallbacks is computed.

    Args:
        subject: the operator, or a module.
        operators: the operators that its first call ran.

    Returns:
        `host` if a part runs there by declaration, `native` if the operator has a row with a kernel itself, else
        `composed`.
    """
    bases = {name.rstrip("_") or name for name in operators} | set(operators)
    families = {base: FAMILIES[base] for base in bases if base in FAMILIES}
    if any("host" in found for found in families.values()):
        return "host"
    own = _own_rows(subject)
    return "native" if any(base in own and found != {"composite"} for base, found in families.items()) else "composed"


def _own_rows(subject: Subject) -> set[str]:
    """The rows that the tests match with an OpInfo."""
    if subject.info is None:
        return set()
    name = subject.info.full_name
    return {row.base for row in ROWS if any(info.full_name == name for info in opinfos_of(row))}


def _is_determined(subject: Subject, case: Case, expected: Any) -> bool:
    """Return true if the CPU draws no random values and its result repeats: uninitialised memory does not."""
    info = subject.info
    if info is not None and (info.name in NOT_COMPARABLE or getattr(info, "has_nondeterministic_output", False)):
        return False
    if _operators(case, CPU).are_random:
        return False
    # Memory that the next call may reuse.
    junk = [torch.full((2**power,), 77, dtype=torch.uint8) for power in range(4, 16)]
    del junk
    torch.manual_seed(1)
    try:
        assert_same_cpu(case.compute(case.sample, CPU), expected)
    except Exception:
        return False
    return True


def assert_same_cpu(again: Any, expected: Any) -> None:
    """Compare two results of the CPU exactly; NaN equals NaN.

    Args:
        again: the second one.
        expected: the first one.
    """
    torch.testing.assert_close(tree_leaves(again), tree_leaves(expected), rtol=0, atol=0, equal_nan=True)


def _judge_form(actual: Any, expected: Any) -> tuple[str, str]:
    """Compare everything except values, if these are random."""
    mine, theirs = tree_leaves(actual), tree_leaves(expected)
    forms = [
        [(leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves]
        for leaves in (mine, theirs)
    ]
    # If the shape depends on random or uninitialised data, it may differ.
    return ("right", "") if forms[0] == forms[1] else ("wrong", f"{forms[0]} instead of {forms[1]}"[:TEXT])


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"[:TEXT]


def _forget_faults() -> None:
    """Wait for the device, so that an error of one call is not raised in the next."""
    try:
        torch.opencl.synchronize()
    except Exception:
        return
