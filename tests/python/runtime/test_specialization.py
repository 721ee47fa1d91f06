"""Generic and specialised kernels: the generic one runs until the specialised one is on disk; both agree."""

import json
import re
import shutil
import time

import pytest
import torch
from processes import output_of, run_python

# `heat` launches over so many elements that a specialised program is worthwhile.
START = """
    import json, time, torch
    info = torch.opencl.kernel_cache_info
    def settle():
        assert torch.ops.torch_opencl.wait_for_builds(100) == 0
    def heat(call):
        for _ in range(1030):
            result = call()
        return result
    torch.manual_seed(0)
    x = torch.randn(1 << 20)
    y = x.to("opencl")
"""


@pytest.fixture
def environment(tmp_path):
    """Empty kernel caches, the driver's own included."""
    for name in ("programs", "pocl"):
        (tmp_path / name).mkdir()
    return {
        "TORCH_OPENCL_SPECIALIZE": "background",
        "TORCH_OPENCL_CACHE_DIR": str(tmp_path / "programs"),
        "POCL_CACHE_DIR": str(tmp_path / "pocl"),
    }


def test_the_generic_program_answers_until_the_specialised_one_is_there(environment):
    code = """
    results, states = [], []
    def note(result):
        results.append(result.cpu())
        states.append((info()["specialized"], info()["failed"]))
    note(torch.exp(y))
    assert info()["pending"] == 0
    heat(lambda: torch.exp(y))
    assert info()["pending"] + info()["specialized"] == 1
    settle()
    note(torch.exp(y))
    note(heat(lambda: torch.exp(y)))
    print(json.dumps([states, info()["specialize"]]))
    for result in results:
        torch.testing.assert_close(result, x.exp())
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=0)
    """
    assert json.loads(output_of(START + code, **environment)) == [[[0, 0], [1, 0], [1, 0]], "background"]


def test_eager_mode_waits_for_specialised_programs(environment):
    code = START + "    torch.exp(y).sum().item(); print(json.dumps(info()))"
    report = json.loads(output_of(code, **{**environment, "TORCH_OPENCL_SPECIALIZE": "eager"}))
    assert report["specialized"] == 2 and report["pending"] == 0 and report["specialize"] == "eager"


def test_specialisation_can_be_turned_off(environment):
    code = START + "    heat(lambda: torch.exp(y)); print(json.dumps(info()))"
    report = json.loads(output_of(code, **{**environment, "TORCH_OPENCL_SPECIALIZE": "never"}))
    assert report["specialized"] == report["pending"] == 0 and report["compiled"] > 0


def test_an_unknown_setting_is_refused():
    done = run_python("import torch; torch.opencl.init()", TORCH_OPENCL_SPECIALIZE="sometimes")
    assert done.returncode == 1
    assert "TORCH_OPENCL_SPECIALIZE=sometimes: expected 'background', 'eager' or 'never'" in done.stderr


@pytest.mark.slow
def test_a_later_process_has_the_specialised_program_from_its_first_large_launch_on(environment):
    first = json.loads(
        output_of(START + "    heat(lambda: torch.exp(y)); settle(); print(json.dumps(info()))", **environment)
    )
    assert first["compiled"] == first["entries"] == 2 and first["specialized"] == 1
    code = """
    result = torch.exp(y)
    print(json.dumps(info()))
    torch.testing.assert_close(result.cpu(), x.exp())
    """
    # The generic program is not needed, and a new signature is not specialised before it is worthwhile.
    second = json.loads(output_of(START + code, **environment))
    assert (second["loaded"], second["compiled"], second["specialized"], second["pending"]) == (1, 0, 1, 0)
    third = json.loads(output_of(START + "    torch.sin(y)" + code, **environment))
    assert (third["loaded"], third["compiled"], third["specialized"], third["pending"]) == (2, 0, 1, 0)


def test_threads_that_want_a_stored_program_at_once_load_it_once(environment):
    output_of(START + "    heat(lambda: torch.exp(y)); settle()", **environment)
    code = """
    import threading
    begin, results = threading.Barrier(4), []
    def work():
        begin.wait()
        results.append(torch.exp(y))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(info()["loaded"], info()["specialized"], all(torch.allclose(r.cpu(), x.exp()) for r in results))
    """
    assert output_of(START + code, **environment) == "1 1 True"


@pytest.mark.slow
def test_a_process_waits_once_if_the_driver_lost_its_programs(environment, tmp_path):
    output_of(START + "    heat(lambda: torch.exp(y)); heat(lambda: torch.sin(y)); settle()", **environment)
    if torch.opencl.get_device_properties().platform != "Portable Computing Language":
        pytest.skip("how to make another driver forget is not known")
    shutil.rmtree(tmp_path / "pocl")
    (tmp_path / "pocl").mkdir()
    code = """
    start = time.perf_counter()
    results = [torch.exp(y)]
    first, seconds = info()["specialized"], time.perf_counter() - start
    results.append(torch.sin(y))
    second, pending = info()["specialized"], info()["pending"]
    settle()
    results.append(torch.sin(y))
    print(json.dumps([seconds, first, second, pending, info()["specialized"]]))
    for result, expected in zip(results, (x.exp(), x.sin(), x.sin())):
        torch.testing.assert_close(result.cpu(), expected)
    """
    seconds, *programs = json.loads(output_of(START + code, **environment))
    # If compiling takes no longer than loading, the second build is not deferred.
    assert programs == [1, 1, 1, 2] or (seconds < 1 and programs == [1, 2, 0, 2])


@pytest.mark.slow
def test_less_used_signatures_are_specialised_when_the_process_is_idle(environment):
    code = """
    for _ in range(40):
        torch.exp(y)
    pending, start = info()["pending"], time.perf_counter()
    while info()["specialized"] == 0 and time.perf_counter() - start < 60:
        time.sleep(0.1)
    print(pending, info()["specialized"], time.perf_counter() - start > 3)
    """
    assert output_of(START + code, **environment) == "1 1 True"


def test_a_process_ends_soon_with_builds_under_way(environment):
    code = """
    ops = "exp log1p sin cos tanh erf sqrt abs asin acos atan sinh cosh log log2 expm1 tan erfc asinh atanh"
    # Few elements, because the process also waits for its launches.
    few = y[:65536]
    for op in ops.split():
        heat(lambda: getattr(torch, op)(few))
    torch.opencl.synchronize()
    print(info()["pending"], time.time())
    """
    pending, end = output_of(START + code, **environment).split()
    assert int(pending) > 2
    # At most one build, and Python's own exit; twenty builds would take longer.
    assert time.time() - float(end) < 10


@pytest.mark.slow
def test_a_forked_child_ends_with_builds_under_way(environment):
    code = """
    import os
    torch.ops.torch_opencl.set_eager_builds(True)
    for op in (torch.exp, torch.log1p, torch.sin, torch.tanh):
        op(y)
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            info()
            raise SystemExit(0)
        children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        time.sleep(0.1)
    settle()
    print(children, info()["specialized"], torch.equal(torch.abs(y).cpu(), x.abs()))
    """
    assert output_of(START + code, **environment) == "[0, 0, 0, 0, 0] 4 True"


def test_launches_of_several_threads_are_right_while_programs_are_built(environment):
    code = """
    import threading
    torch.ops.torch_opencl.set_eager_builds(True)
    ops = [torch.exp, torch.sin, torch.tanh, torch.abs, torch.neg, torch.square, torch.sigmoid, torch.relu]
    x, y = x[: 1 << 16], y[: 1 << 16]
    expected, wrong = [op(x) for op in ops], []
    def work(offset):
        for turn in range(400):
            which = (turn + offset) % len(ops)
            if not torch.allclose(ops[which](y).cpu(), expected[which], rtol=1.3e-6, atol=1e-6):
                wrong.append((turn, ops[which].__name__))
    threads = [threading.Thread(target=work, args=(3 * number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle()
    print(wrong, info()["specialized"], info()["failed"])
    """
    assert output_of(START + code, **environment) == "[] 8 0"


@pytest.mark.slow
def test_warming_up_leaves_nothing_to_build(environment):
    code = """
    def step():
        return torch.softmax(y.view(1024, 1024).exp() + 1, 1).sum()
    statistics = torch.opencl.warmup(step, progress=False)
    done = info()
    assert done["pending"] == 0 and done["specialized"] == statistics.specialized == 4
    assert statistics.compiled == done["compiled"] and 2 <= statistics.calls <= 5 and statistics.seconds > 0
    heat(step)
    assert info()["compiled"] == done["compiled"]
    again = torch.opencl.warmup(step, progress=False)
    print(again.compiled, again.specialized, again.failed, again.calls)
    """
    assert output_of(START + code, **environment) == "0 0 0 2"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", r"OpenCL kernels: 100%.* (\d)/\1 "),
        ("sys.modules['tqdm'] = None", r"OpenCL kernels: (\d) of \1 programs"),
    ],
    ids=["bar", "text"],
)
@pytest.mark.slow
def test_warming_up_shows_its_progress(environment, before, shown):
    code = f"""
    import sys
    {before}
    torch.opencl.warmup(lambda: [op(y) for op in (torch.exp, torch.sin, torch.tanh, torch.sqrt, torch.abs)])
    """
    done = run_python(START + code, **environment)
    assert done.returncode == 0 and re.search(shown, done.stderr), done.stderr


@pytest.mark.slow
def test_warming_up_raises_errors_of_the_function(environment):
    code = """
    def fail():
        raise KeyError("mine")
    try:
        torch.opencl.warmup(fail)
    except KeyError as error:
        print(error)
    torch.exp(y)
    print(info()["pending"] + info()["specialized"])
    """
    assert output_of(START + code, **environment) == "'mine'\n0"


@pytest.mark.parametrize("use", ["heat(lambda: torch.exp(y))", "torch.exp(y)"], ids=["hot", "stored"])
@pytest.mark.slow
def test_a_program_that_cannot_be_specialised_is_reported_once(use, environment, tmp_path):
    if torch.opencl.get_device_properties().platform != "Portable Computing Language":
        pytest.skip("how to make another driver fail is not known")
    if "heat" not in use:
        output_of(START + "    heat(lambda: torch.exp(y)); settle()", **environment)
    code = f"""
    import os, shutil, warnings
    warnings.simplefilter("always")
    folder = {str(tmp_path / "pocl")!r}
    # The generic program of both functions.
    torch.sin(y).cpu()
    # Without its cache folder PoCL cannot build.
    shutil.rmtree(folder)
    open(folder, "w").close()
    with warnings.catch_warnings(record=True) as caught:
        {use}
        settle()
        results = [torch.exp(y) for _ in range(3)]
    assert len(caught) == 1 and "stays in use" in str(caught[0].message), [str(w.message) for w in caught]
    print(info()["failed"], info()["specialized"])
    for result in results:
        torch.testing.assert_close(result.cpu(), x.exp())
    """
    assert output_of(START + code, **environment) == "1 0"
