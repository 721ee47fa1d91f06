"""Runs each model in its own process, and reports."""

import argparse
import fnmatch
import importlib.util
import json
import os
import sys
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from process_runner import CONTEXT, DiedError, Worker

from models.timing import measure

# Longer than any model that compiles its kernels on two cores.
TIMEOUT_SECONDS = 300.0
# A ratio below this counts as slower than the CPU: ratios of two runs differ by this much.
SLOWER = 0.95
# Modules that models of a library import, and that import slowly. Not diffusers itself: it queries devices on import,
# which a process must not do before it forks, as drivers do not survive that.
PRELOADED = {
    "torchvision": ("torchvision.models",),
    "timm": ("timm.models",),
    "transformers": ("transformers.modeling_utils", "transformers.generation"),
    "diffusers": ("transformers.modeling_utils",),
    "torch_geometric": ("torch_geometric.nn",),
}
# Statuses of models that are right, or cannot run here.
GOOD = {"right", "missing"}


def main() -> int:
    """Run the program.

    Returns:
        The exit status: 1 if a model is wrong, fails, or falls back to the CPU.
    """
    parser = argparse.ArgumentParser(prog="tests/models", description=__doc__)
    parser.add_argument("pattern", nargs="*", help='names of models, "timm/*"; all by default')
    parser.add_argument("--list", action="store_true", help="list the models without running them")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth model only")
    parser.add_argument("--untimed", action="store_true", help="compare without timing")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, help="seconds that a model may take")
    parser.add_argument("--results", type=Path, help="the output file: each model's result as a line of JSON")
    asked = parser.parse_args()
    names = chosen(asked.pattern)[:: max(1, asked.every)]
    if not names:
        print("No such model; --list shows them.", file=sys.stderr)
        return 2
    if asked.list:
        print("\n".join(names))
        return 0
    return all_of(names, asked)


def chosen(patterns: list[str]) -> list[str]:
    """Select models by name.

    Args:
        patterns: patterns of names; empty for all.

    Returns:
        The names that match.
    """
    from models.catalogue import names

    return [name for name in names() if not patterns or any(fnmatch.fnmatch(name, each) for each in patterns)]


def one(results: Connection, name: str) -> None:
    """Compare one model in this process.

    Args:
        results: receives the result.
        name: the model.
    """
    from models.catalogue import case
    from models.compare import run

    results.send(run(case(name)))


def all_of(names: list[str], asked: argparse.Namespace) -> int:
    """Compare models, each in its own process.

    Args:
        names: the models.
        asked: the command line.

    Returns:
        The exit status: 1 if a model is not right.
    """
    results = []
    # Processes are forked from one that has imported the libraries, which takes longer than most models.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    used = {name.partition("/")[0] for name in names}
    modules = [module for library in sorted(used) for module in PRELOADED.get(library, ())]
    CONTEXT.set_forkserver_preload(["models.compare", *modules])
    print(f"{'model':<44} {'result':<9} {'error':>8} {'CPU/ours':>9} {'seconds':>8}", flush=True)
    for name in names:
        result = watched(name, asked)
        results.append(result)
        print(line(result), flush=True)
        if asked.results:
            with asked.results.open("a") as file:
                file.write(json.dumps(result) + "\n")
    counts = {status: sum(result["status"] == status for result in results) for status in sorted(_statuses(results))}
    print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))
    slower = [f"{result['name']} {result['ratio']:.2f}" for result in results if result.get("ratio", 1) < SLOWER]
    if slower:
        print(f"  slower than the CPU: {', '.join(slower)}")
    fallbacks: dict[str, list[str]] = {}
    for result in results:
        for op in result.get("fallbacks", {}):
            fallbacks.setdefault(op, []).append(result["name"])
    for op, models in sorted(fallbacks.items()):
        print(f"  on the CPU: {op} of {', '.join(models)}")
    return 0 if _statuses(results) <= GOOD else 1


def _statuses(results: list[dict[str, Any]]) -> set[str]:
    return {result["status"] for result in results}


def line(result: dict[str, Any]) -> str:
    """Format a result as a line of the table.

    Args:
        result: the result of a model.

    Returns:
        Its name, status, greatest error, speed relative to the CPU's, and error message.
    """
    errors = [error for error in result.get("errors", {}).values() if error is not None]
    error = f"{max(errors):.0e}" if errors else ""
    ratio = f"{result['ratio']:.2f}" if "ratio" in result else ""
    text = f"{result['name']:<44} {result['status']:<9} {error:>8} {ratio:>9} {result['seconds']:>8.1f}"
    return f"{text}  {result['message'][:400]}".rstrip()


def watched(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Compare a model in a process that may crash or hang.

    Args:
        name: the model.
        asked: the command line.

    Returns:
        Its result.
    """
    library = name.partition("/")[0]
    start = time.monotonic()
    if library != "torch" and importlib.util.find_spec(library) is None:
        return {"name": name, "status": "missing", "message": f"{library} is not installed", "seconds": 0.0}
    with closing(Worker("models.runner:one", name)) as worker:
        result = _waited(name, asked, worker)
    if not asked.untimed and result["status"] in {"right", "fallback"}:
        result |= measure(name, asked.timeout)
    return result | {"seconds": time.monotonic() - start}


def _waited(name: str, asked: argparse.Namespace, worker: Worker) -> dict[str, Any]:
    try:
        return worker.receive(asked.timeout)
    except DiedError as died:
        if died.kind == "hang":
            return {"name": name, "status": "timeout", "message": str(died)}
        message = " ".join(died.lines[-3:])
        return {"name": name, "status": "crash", "message": f"exit status {died.status}: {message}"}
