"""The kit for a machine with a GPU: crashes and hangs are survived and named, and the report is always complete."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch

from gpu_kit.check import command, environment, readers, record
from gpu_kit.check.budget import Budget
from gpu_kit.check.commands import CommandPart
from gpu_kit.check.page import page_of
from gpu_kit.check.record import Part, Report
from gpu_kit.check.test_log import rank
from gpu_kit.check.testing import TestPart
from gpu_kit.check.training import complaint

ROOT = Path(__file__).parents[3]
KIT = {"version": "0", "torch": str(torch.__version__)}


@pytest.fixture
def kit(tmp_path) -> Path:
    """A kit that has only the checks, and its own tests."""
    root = tmp_path / "kit"
    (root / "tests" / "python").mkdir(parents=True)
    (root / "kit.json").write_text(json.dumps(KIT))
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    for name in ("gpu_kit", "benchmarks"):
        (root / name).symlink_to(ROOT / name)
    return root


def with_tests(kit: Path, **files: str) -> TestPart:
    for name, text in files.items():
        (kit / "tests" / "python" / f"{name}.py").write_text(text)
    return TestPart(name="tests", title="Tests", weight=1, files={f"{name}.py": 1 for name in files})


def command_part(name: str, code: str, read=lambda part, results, printed: None, weight: float = 1) -> CommandPart:
    return CommandPart(name=name, title=name.title(), weight=weight, arguments=["-c", code], read=read)


def check(kit: Path, parts, *arguments: str, minutes: float = 1) -> int:
    out = ["--out", str(kit / "out"), "--work", str(kit / "work"), "--minutes", str(minutes), "--jobs", "2"]
    return command.main(kit, [*out, *arguments], parts)


def report_of(kit: Path) -> Report:
    return record.load(kit / "out", KIT)


def test_time_is_shared_by_weights_and_unused_time_goes_to_later_parts():
    now = [0.0]
    budget = Budget(100, clock=lambda: now[0])
    assert budget.share(2, [1, 1]) == 50
    now[0] = 10
    assert budget.share(1, [1]) == 45
    assert budget.share(1, []) == 90
    # A part whose share is too small to be useful gets the least time it needs, if there is that much.
    assert budget.share(1, [8], least=30) == 30
    assert budget.share(1, [8], least=100) == 90
    now[0] = 200
    assert budget.share(1, []) == 0


def test_a_test_that_crashes_and_one_that_hangs_are_named_and_those_after_them_run(kit):
    part = with_tests(
        kit,
        test_a="""
import os, signal, time
def test_before(): pass
def test_crash(): os.kill(os.getpid(), signal.SIGSEGV)
def test_leaves(): os._exit(3)
def test_wrong(): assert [1, 2] == [1, 3], "not the CPU's"
def test_hang(): time.sleep(60)
def test_after(): pass
""",
    )
    assert check(kit, [part], "--patience", "3") == 1
    entry = report_of(kit).parts["tests"]
    tests = entry.tests
    assert [name.partition("::")[2] for name in tests.passed] == ["test_before", "test_after"]
    name = "tests/python/test_a.py::test_"
    assert tests.crashed[name + "crash"][0] == "ended by SIGSEGV"
    assert tests.crashed[name + "leaves"][0] == "exit status 3"
    assert list(tests.hung) == [name + "hang"]
    assert "not the CPU's" in tests.failed[name + "wrong"][0]
    assert entry.status == "crashed" and entry.finished
    assert entry.summary == "2 passed, 1 failed, 2 crashed, 1 hung of 6"
    page = (kit / "out" / record.PAGE_NAME).read_text()
    assert "| Tests | **crashed** |" in page and "ended by SIGSEGV" in page and "hung: tests/python/test_a.py" in page


def test_a_file_that_cannot_be_imported_is_an_error_and_others_run(kit):
    part = with_tests(kit, test_bad="import no_such_module\n", test_good="def test_one(): pass\n")
    assert check(kit, [part]) == 1
    entry = report_of(kit).parts["tests"]
    assert len(entry.tests.passed) == 1 and entry.status == "failed"
    assert "No module named 'no_such_module'" in "".join(*entry.tests.failed.values())


def test_processes_left_by_a_part_are_ended(kit):
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("CHILD", child.pid)
"""
    seen = []
    part = command_part("leaver", code, lambda part, results, printed: seen.extend(printed))
    assert check(kit, [part]) == 0
    child = int(seen[-1].split()[1])
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_commands_that_crash_hang_or_fail_do_not_keep_later_ones_from_running(kit):
    parts = [
        command_part("crash", "import os; print('last words', flush=True); os.abort()"),
        command_part("hang", "import time; time.sleep(60)"),
        command_part("wrong", "raise SystemExit('it is wrong')"),
        command_part("right", "print('fine')"),
    ]
    assert check(kit, parts, "--patience", "3") == 1
    entries = report_of(kit).parts
    assert [entry.status for entry in entries.values()] == ["crashed", "hung", "failed", "passed"]
    assert entries["crash"].errors == [{"where": "ended by SIGABRT", "lines": ["last words"]}]
    assert entries["wrong"].errors[0]["lines"] == ["it is wrong"]


def test_a_silent_command_hangs_if_it_spins_but_not_if_it_gets_part_of_a_core(kit):
    # Like a compiler in parallel with other programs: it works a fifth of the time.
    slow = "import time; [sum(range(400_000)) or time.sleep(0.05) for i in range(60) if not time.sleep(0.05)]"
    parts = [command_part("slow", slow), command_part("spins", "while True: pass")]
    assert check(kit, parts, "--patience", "4") == 1
    assert [entry.status for entry in report_of(kit).parts.values()] == ["passed", "hung"]


@pytest.mark.slow
def test_parts_cut_by_the_time_limit_are_resumed_and_finished_ones_are_not_repeated(kit):
    slow = "import time, pytest\n@pytest.mark.parametrize('i', range(4))\ndef test_slow(i): time.sleep(4)\n"
    count = f"from pathlib import Path\nfile = Path({str(kit / 'count')!r})\nwith file.open('a') as f: f.write('x')"
    parts = [command_part("once", count, weight=8), with_tests(kit, test_slow=slow), command_part("last", "pass")]
    # A cut part is not an error.
    assert check(kit, parts, minutes=12 / 60) == 0
    first = report_of(kit)
    assert first.parts["tests"].status == "cut" and not first.parts["tests"].finished
    assert "| Tests | cut |" in (kit / "out" / record.PAGE_NAME).read_text()
    done = set(first.parts["tests"].tests.passed)
    assert len(done) < 4
    assert check(kit, parts, "--resume") == 0
    second = report_of(kit)
    assert second.state == "ended" and len(second.minutes) == 2
    assert {entry.status for entry in second.parts.values()} == {"passed"}
    assert len(second.parts["tests"].tests.passed) == 4 == len(set(second.parts["tests"].tests.passed))
    assert (kit / "count").read_text() == "x"


def test_a_resumed_run_uses_compiled_kernels_of_the_earlier_one_and_a_new_run_does_not(kit):
    where = "import os, pathlib; program = pathlib.Path(os.environ['TORCH_OPENCL_CACHE_DIR'], 'program')"
    code = f"{where}; print('loaded' if program.exists() else 'compiled'); program.touch()"
    seen = []
    first = command_part("first", code, lambda part, results, printed: seen.extend(printed))
    second = command_part("second", code, lambda part, results, printed: seen.extend(printed))
    kept = kit / "work" / "of_the_user"
    kept.parent.mkdir()
    kept.touch()
    assert check(kit, [first, second], "--only", "first") == 0
    assert check(kit, [first, second], "--resume") == 0
    assert check(kit, [first, second]) == 0
    assert seen == ["compiled", "loaded", "compiled", "loaded"]
    assert kept.exists()


def test_tests_that_need_a_module_which_no_kit_has_are_skipped_and_others_run(kit, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(kit / "hidden"))
    (kit / "hidden").mkdir()
    (kit / "hidden" / "sitecustomize.py").write_text("""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda _, name, *others: None if name == "scipy" else find(name, *others))
""")
    part = with_tests(
        kit,
        test_all="import scipy\ndef test_one(): pass\n",
        test_some="def test_two(): import scipy\ndef test_three(): pass\ndef test_four(): import no_such_module\n",
    )
    # In a file that cannot be imported no test can be found.
    part = replace(part, files={**part.files, "test_all.py::test_one": 2})
    assert check(kit, [part]) == 1
    entry = report_of(kit).parts["tests"]
    tests = entry.tests
    assert [name.rpartition("::")[2] for name in tests.passed] == ["test_three"]
    assert [name.rpartition("::")[2] for name in tests.failed] == ["test_four"] and not entry.errors
    assert sorted(name.rpartition("/")[2] for name in tests.skipped) == ["test_all.py", "test_some.py::test_two"]


def test_a_command_that_needs_a_module_which_the_machine_lacks_is_not_run(kit, monkeypatch):
    monkeypatch.setattr(environment, "COMPILED", ["no_such_module"])
    part = CommandPart(
        name="fuzz", title="Calls", weight=1, arguments=["-c", "1 / 0"], read=readers.fuzzed, needs=("no_such_module",)
    )
    check(kit, [part])
    assert "| Calls | not run | 0 | needs no_such_module |" in (kit / "out" / record.PAGE_NAME).read_text()


def test_parts_without_time_are_not_run_and_listed_so(kit):
    parts = [command_part("long", "import time; time.sleep(60)", weight=1000), command_part("never", "pass")]
    check(kit, parts, minutes=4 / 60)
    assert [entry.status for entry in report_of(kit).parts.values()] == ["cut", "not run"]
    assert "| Never | not run |" in (kit / "out" / record.PAGE_NAME).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_a_complete_report_that_can_be_resumed(kit, number):
    part = with_tests(kit, test_it="import time\ndef test_one(): pass\ndef test_two(): time.sleep(8)\n")
    program = f"""
import sys
from pathlib import Path
from gpu_kit.check import command, testing
from gpu_kit.check.testing import TestPart
testing.SAVE_SECONDS = 0.1
sys.exit(command.main(Path({str(kit)!r}), sys.argv[1:], [{part!r}]))
"""
    arguments = ["--out", str(kit / "out"), "--work", str(kit / "work"), "--minutes", "1"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, "-c", program, *arguments], env=variables, cwd=kit)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        path = kit / "out" / record.JSON_NAME
        # The report can be read at every moment, and the page agrees with it.
        if path.exists() and report_of(kit).parts["tests"].summary.startswith("1 passed"):
            break
        time.sleep(0.02)
    running.send_signal(number)
    assert running.wait(10) == (-signal.SIGKILL if number == signal.SIGKILL else command.INTERRUPTED)
    report = report_of(kit)
    assert report.state == ("running" if number == signal.SIGKILL else "interrupted")
    assert len(report.parts["tests"].tests.passed) == 1 and not report.parts["tests"].finished
    assert "1 passed" in (kit / "out" / record.PAGE_NAME).read_text()


def test_without_a_device_nothing_else_is_tried(kit):
    parts = [command_part("self-test", "raise SystemExit('no driver')"), command_part("training", "pass")]
    assert check(kit, parts) == 1
    report = report_of(kit)
    assert report.parts["training"].status == "not run"
    assert any("without a device" in note for note in report.notes)
    assert check(kit, parts, "--device", "opencl:9") == 1
    assert any("opencl:9 was requested (--device)" in note for note in report_of(kit).notes)
    assert report_of(kit).device is None
    # A driver installed later is found.
    parts[0] = command_part("self-test", "pass")
    assert check(kit, parts, "--resume") == 0
    report = report_of(kit)
    assert [entry.status for entry in report.parts.values()] == ["passed", "passed"]
    assert not any("without a device" in note for note in report.notes)


def test_hanging_drivers_end_the_check(kit):
    machine = {"python": "3", "system": "Linux", "processor": "one", "cpus": 1}
    found = [machine, {"platforms": "no answer"}, {"drivers": []}]
    (kit / "found").write_text("".join(json.dumps(line) + "\n" for line in found))
    copy = "import shutil, sys; shutil.copy('found', sys.argv[1])"
    arguments = ["-c", copy, "{results}"]
    info = CommandPart(name="info", title="Machine", weight=1, arguments=arguments, read=readers.described)
    parts = [info, command_part("self-test", "import time; time.sleep(60)"), command_part("training", "pass")]
    assert check(kit, parts, minutes=12 / 60) == 1
    assert [entry.status for entry in report_of(kit).parts.values()] == ["failed", "cut", "not run"]


def test_a_device_is_named_even_if_its_self_test_had_no_time(kit):
    devices = [{"devices": [{"name": "One"}, {"name": "Two"}]}]

    def read(part, results, printed):
        part.data = {"platforms": devices}

    check(kit, [command_part("info", "pass", read)])
    assert (kit / "out" / record.PAGE_NAME).read_text().startswith("# torch-opencl on One or Two\n")


def test_a_page_without_the_vendors_device_has_no_columns_of_it():
    row = {"name": "add", "seconds": 2e-3, "rate": "9 GB/s", "limit_share": 0.9, "bound": "memory"}
    part = Part(title="Speed", status="passed")
    readers.compared(part, [row], [])
    assert part.tables[0]["columns"][-1] == "of the limit" and part.tables[0]["rows"] == [
        ["add", "2 ms", "9 GB/s", "90% memory"]
    ]
    # A row that was not possible shows its error.
    readers.compared(part, [row, {"name": "sum", "unable": "OutOfMemoryError: all of it"}], [])
    assert part.tables[0]["rows"][1][-1] == "OutOfMemoryError: all of it"


def test_a_report_of_another_kit_or_none_is_not_resumed(kit, capsys):
    parts = [command_part("one", "pass")]
    assert check(kit, parts, "--resume") == 2
    assert check(kit, parts) == 0
    (kit / "kit.json").write_text(json.dumps(KIT | {"version": "1"}))
    assert check(kit, parts, "--resume") == 2
    assert "another kit" in capsys.readouterr().err


def test_nothing_is_checked_with_another_torch_or_none(kit, capsys, monkeypatch):
    parts = [command_part("one", "pass")]
    (kit / "kit.json").write_text(json.dumps({"version": "1", "torch": "1.13.1"}))
    assert check(kit, parts) == 2
    message = f"for torch 1.13, and {sys.executable} has torch {metadata.version('torch')}: pip install 'torch==1.13.*'"
    assert message in capsys.readouterr().err
    # Any patch release and any build is accepted.
    release = ".".join(torch.__version__.split(".")[:2])
    assert environment.complaint_about_torch(f"{release}.99+cu999") is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "has no torch: pip install" in environment.complaint_about_torch("2.11.0")


@pytest.mark.parametrize("arguments", [["--minutes", "nan"], ["--minutes", "inf"], ["--patience", "nan"]])
def test_infinite_and_nan_times_are_refused(kit, arguments):
    with pytest.raises(SystemExit, match="2"):
        check(kit, [], *arguments)


def test_the_tests_of_the_most_used_dtypes_come_first():
    names = ["t[add-complex64]", "t[add-int64]", "t[add-float32]", "t[mul-float32]", "t_plain"]
    assert sorted(names, key=rank) == [
        "t[add-float32]",
        "t[mul-float32]",
        "t_plain",
        "t[add-int64]",
        "t[add-complex64]",
    ]


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ([2.0 - 0.0095 * step for step in range(200)], ""),
        ([2.0 - 0.0095 * min(step, 9) for step in range(200)], "decreased only from"),
        ([2.0] * 3 + [float("nan")] * 197, "step 2"),
        ([2.0 - 0.0095 * step for step in range(199)] + [float("nan")], "decreased only from"),
        ([3.0 - 0.0145 * step for step in range(200)], "step 1"),
    ],
)
def test_a_training_whose_loss_differs_from_the_cpus_is_reported(ours, words):
    theirs = [2.0 - 0.0095 * step for step in range(200)]
    assert words in complaint(ours, theirs) and bool(complaint(ours, theirs)) == bool(words)


def test_rows_beside_the_vendors_device_are_a_table_and_wrong_ones_errors():
    row = {"name": "add", "seconds": 2e-3, "rate": "9 GB/s", "limit_share": 0.9, "bound": "memory", "peer": 1e-3}
    part = Part(title="Speed", status="passed")
    readers.compared(part, [{**row, "peer_ratio": 0.5}, {"name": "sum", "error": "WrongResult: far"}], [])
    assert part.tables[0]["rows"][0] == ["add", "2 ms", "9 GB/s", "90% memory", "1 ms", "0.50"]
    assert part.errors == [{"where": "sum", "lines": ["WrongResult: far"]}]
    assert "| add | 2 ms | 9 GB/s | 90% memory | 1 ms | 0.50 |" in page_of(Report(kit=KIT, parts={"gpu": part}))
