"""Assigns PyTorch's tests to workers, restarts them after crashes and hangs, and compares the device with the CPU."""

import argparse
import os
from collections.abc import Iterable
from contextlib import closing
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from journal import Journal
from process_runner import Crew, DiedError, Worker

from upstream.results import BAD, LEAST_PASSED, Result, excluded, lines, passed

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "target" / "upstream" / "results.jsonl"
# The files whose tests PyTorch generates for each device.
FILES = (
    "test_torch.py", "test_ops.py", "test_ops_gradients.py", "test_ops_fwd_gradients.py", "test_nn.py",
    "test_reductions.py", "test_indexing.py", "test_view_ops.py", "test_autograd.py", "test_modules.py",
    "test_optim.py", "test_linalg.py", "test_spectral_ops.py", "test_unary_ufuncs.py", "test_binary_ufuncs.py",
    "test_sort_and_select.py", "test_scatter_gather_ops.py", "test_shape_ops.py", "test_tensor_creation_ops.py",
    "test_type_promotion.py", "test_serialization.py", "test_transformers.py", "nn/*",
)  # fmt: skip
# The PyTorch device types for which a run generates tests, and their names of the device.
DEVICES = {"device": ("privateuse1", "opencl"), "cpu": ("cpu", "cpu")}
HANG_SECONDS = 180.0
# For all tests of a file, on a busy machine.
COLLECT_SECONDS = 600.0
# Collecting the tests of a large file takes a minute.
JOBS_OF_A_WORKER = 4000


def main() -> int:
    """Run the program.

    Returns:
        The exit status: 1 if the device passes too few of the tests that pass on the CPU.
    """
    parser = argparse.ArgumentParser(prog="tests/upstream", description=__doc__)
    parser.add_argument("pytorch", type=Path, help="a checkout of PyTorch, or Debian's source of it")
    parser.add_argument("files", nargs="*", help="patterns of files, test_torch or nn/*; test_torch::sort for tests")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--hang", type=float, default=HANG_SECONDS, help="seconds after which a test hangs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then; another run continues")
    parser.add_argument("--sample", type=int, help="the number of tests of each file, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="which tests")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results, to which runs append")
    parser.add_argument("--failures", action="store_true", help="run tests again that did not pass")
    asked = parser.parse_intermixed_args()
    folder = asked.pytorch / "test"
    if not folder.is_dir():
        parser.error(
            f"{asked.pytorch} has no folder `test`: it must be a checkout of PyTorch, or `apt-get source pytorch`"
        )
    return supervise(asked, folder.resolve())


def supervise(asked: argparse.Namespace, folder: Path) -> int:
    """Run files one after the other, each with several workers.

    Args:
        asked: the command line.
        folder: PyTorch's tests.

    Returns:
        The exit status.
    """
    run = Run(asked, folder, Journal(asked.results, keeps=asked.failures))
    refused: dict[str, str] = {}
    known = [path.relative_to(folder).as_posix() for path in folder.rglob("test_*.py")]
    patterns = [word.partition("::") for word in asked.files] or [(file, "", "") for file in FILES]
    for pattern, _, tests in patterns:
        named = pattern if pattern.endswith(".py") else f"{pattern}.py"
        for file in sorted(file for file in known if fnmatch(file, named)):
            print(f"==> {file}", flush=True)
            if refusal := run.file(file, f"*{tests}*" if tests else "*"):
                refused[file] = refusal
    print(*lines(run.results.values(), refused), *run.left_out, sep="\n")
    return 0 if passed(run.results.values()) >= LEAST_PASSED else 1


class Run:
    """The results so far, and the state of the run."""

    def __init__(self, asked: argparse.Namespace, folder: Path, journal: Journal) -> None:
        self.asked = asked
        self.folder = folder
        self.journal = journal
        self.left_out: list[str] = []
        self.results = {result.name: result for result in (Result(**entry) for entry in journal.entries)}

    def file(self, file: str, pattern: str) -> str:
        """Run a file's tests on the device, and those that do not pass on the CPU.

        Args:
            file: its name.
            pattern: a pattern of tests.

        Returns:
            The import error; empty if the import succeeds.
        """
        tests, refusal = self.collected(file)
        for test, why in excluded(file, tests).items():
            tests.remove(test)
            self.left_out.append(f"excluded: {file} {test}: {why}")
        wanted = self.chosen(file, [test for test in tests if fnmatch(test, pattern)])
        self.work(file, "device", [result for result in wanted if self.is_due(result)])
        ran = [result for result in wanted if "device" in result.runs]
        self.work(file, "cpu", [r for r in ran if r.runs["device"]["outcome"] in BAD and "cpu" not in r.runs])
        return refusal

    def collected(self, file: str) -> tuple[list[str], str]:
        """Get a file's tests for the device from a worker, or its import error."""
        with closing(self.launch(file, "device")) as worker:
            try:
                return worker.receive(COLLECT_SECONDS)
            except DiedError:
                return [], "the process ends during the import"

    def chosen(self, file: str, tests: list[str]) -> list[Result]:
        """Draw a sample, and find the known results."""
        if self.asked.sample is not None:
            tests = sorted(tests, key=lambda test: sha256(f"{self.asked.seed} {test}".encode()).digest())
            tests = tests[: self.asked.sample]
        found = (Result(file, test) for test in tests)
        return [self.results.get(result.name, result) for result in found]

    def is_due(self, result: Result) -> bool:
        """Return true if a test has to run; its earlier result is then dropped."""
        if "device" in result.runs and not (self.asked.failures and result.outcome in BAD):
            return False
        result.runs.pop("device", None)
        return True

    def work(self, file: str, on: str, results: Iterable[Result]) -> None:
        """Run tests of one file on the device or on the CPU."""

        def done(result: Result) -> str:
            self.results[result.name] = result
            self.journal.add(vars(result))
            outcome = result.runs[on]["outcome"]
            return f"{outcome}: {result.test}" if on == "device" and outcome in BAD else ""

        def start() -> Worker:
            worker = self.launch(file, on)
            worker.receive(COLLECT_SECONDS)
            return worker

        todo = list(results)
        if todo:
            crew = Crew(start, lambda *job: self.serve(on, *job), done, min(self.asked.jobs, len(todo)))
            crew.seconds, crew.unit, crew.jobs_of_a_worker = self.asked.seconds, f"test on the {on}", JOBS_OF_A_WORKER
            crew.work(todo)

    def launch(self, file: str, on: str) -> Worker:
        """Start a worker for a file."""
        environment = {
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": DEVICES[on][0],
            # Includes tests that PyTorch generates for the CPU and CUDA only. With the first class of a file, the
            # device type takes the device's name, and is looked up by it from then on.
            "PYTORCH_TESTING_DEVICE_FOR_CUSTOM": ",".join(DEVICES[on]),
            "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
            "PYTHONPATH": os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.asked.jobs)),
        }
        return Worker("upstream.worker:work", self.folder, file, DEVICES[on][1], environment=environment)

    def serve(self, on: str, worker: Worker, result: Result) -> bool:
        """Let a worker run a test; it is always finished."""
        worker.send(result.test)
        try:
            result.runs[on] = worker.receive(self.asked.hang)
        except DiedError as died:
            result.runs[on] = {"outcome": died.kind, "text": str(died)}
        return False
