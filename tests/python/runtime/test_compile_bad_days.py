"""torch.compile after failures: no memory, damaged caches, a fork, a missing device; eager mode continues to work."""

import subprocess
import traceback
import warnings

import pytest
import torch
from processes import NO_DRIVER, output_of, run_python, two_devices
from torch_opencl.inductor import runtime

PROGRAM = """
    import torch
    function = lambda x: (x.sin() * 2 + 1).sum(1)
    x = torch.randn(8, 40, device="opencl")
    torch.testing.assert_close(torch.compile(function)(x), function(x), rtol=1e-5, atol=1e-5)
    from torch._dynamo.utils import counters
    print(counters["inductor"]["fxgraph_cache_hit"], torch.opencl.kernel_cache_info()["compiled"] > 0)
"""


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


@pytest.mark.slow
def test_damaged_caches_are_refilled(tmp_path):
    graphs, programs = tmp_path / "inductor", tmp_path / "programs"
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(graphs), "TORCH_OPENCL_CACHE_DIR": str(programs)}
    assert output_of(PROGRAM, **environment) == "0 True"
    damaged = [
        *programs.iterdir(),
        *(file for name in ("fxgraph", "aotautograd") for file in (graphs / name).rglob("*")),
    ]
    files = [file for file in damaged if file.is_file()]
    assert len(files) > 2
    for file in files:
        file.write_bytes(bytes(file.stat().st_size // 2))
    assert output_of(PROGRAM, **environment) == "0 True"
    assert output_of(PROGRAM, **environment) == "1 False"


def test_programs_that_cannot_be_kept_cost_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    done = run_python(
        PROGRAM,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path / "file" / "folder"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiled kernels cannot be kept in ") == 1


def test_a_full_graph_cache_raises_and_eager_mode_continues(tmp_path):
    disk = tmp_path / "inductor"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], check=False).returncode != 0:
        pytest.skip("only root can make a small disk")
    code = """
        import torch
        function = lambda x: (x.sin() * 2 + 1).sum(1)
        x = torch.ones(8, 40, device="opencl")
        try:
            torch.compile(function)(x)
        except Exception as error:
            print("No space left on device" in str(error))
        assert function(x).shape == (8,)
    """
    try:
        assert output_of(code, TORCHINDUCTOR_CACHE_DIR=str(disk)) == "True"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_forked_child_is_refused_and_the_parent_continues(tmp_path):
    code = """
        import os, torch
        function = torch.compile(lambda x: x.sin() * 2 + 1)
        x = torch.ones(40, device="opencl")
        expected = function(x)
        child = os.fork()
        if child == 0:
            try:
                function(x)
            except RuntimeError as error:
                print(error, flush=True)
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert function(x).equal(expected)
    """
    assert "'spawn' start method" in output_of(code, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_cached_graphs_are_not_used_for_a_missing_device(tmp_path):
    code = """
        import torch
        from torch._dynamo.utils import counters
        function = torch.compile(lambda x: (x.sin() + 1).sum(1))
        try:
            x = torch.ones(8, 40, device="opencl:1")
        except RuntimeError as error:
            print("refused", "invalid device" in str(error).lower())
            x = torch.ones(8, 40, device="opencl")
        assert (function(x).cpu() - function(x.cpu())).abs().max() < 1e-5
        print(counters["inductor"]["fxgraph_cache_hit"])
    """
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert output_of(code, **two_devices(), **inductor) == "0"
    if torch.opencl.device_count() == 1:
        assert output_of(code, **inductor).splitlines() == ["refused True", "0"]
    without = """
        import torch
        x = torch.ones(8, 40)
        assert torch.compile(lambda x: (x.sin() + 1).sum(1))(x).shape == (8,)
        try:
            x.to("opencl")
        except RuntimeError as error:
            print("refused")
    """
    assert output_of(without, **NO_DRIVER, **inductor) == "refused"


def test_out_of_memory_is_pytorchs_error_and_smaller_work_continues(device):
    function = torch.compile(lambda x: torch.cat([x.sin() * 2, x.cos() + 1]).sort()[0] + 1, dynamic=False)
    x = torch.randn(1 << 20, device=device)
    total = torch.opencl.mem_get_info()[1]
    torch.opencl.empty_cache()
    torch.opencl.set_per_process_memory_fraction((torch.opencl.memory_reserved() + (2 << 20)) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            function(x)
        assert (x[:100] + 1).shape == (100,)
    finally:
        torch.opencl.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(function(x)[-1:], torch.cat([x.sin() * 2, x.cos() + 1]).max()[None] + 1)


def test_an_index_out_of_range_names_the_line_that_waits_and_leaves_no_trace(device):
    take = torch.compile(lambda table, index: table[index] * 2)
    table = torch.randn(5, 16, device=device)
    bad, good = (torch.tensor([0, last], device=device) for last in (9, -4))
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension with size 5") as caught:
        take(table, bad).cpu()  # the user's line
    assert "take(table, bad).cpu()  # the user's line" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert take(table, good).equal(table[good] * 2)


def test_a_build_failure_is_reported_and_eager_mode_continues(device, monkeypatch):
    function = lambda x: x.sin() * 2 + 1  # noqa: E731 compiled and not
    x = torch.ones(40, device=device)
    add = runtime.Library.add
    monkeypatch.setattr(
        runtime.Library, "add", lambda self, name, source, device: add(self, name, "?" + source, device)
    )
    with pytest.raises(Exception, match=r"(?s)does not compile for .*: expected"):
        torch.compile(function)(x)
    with torch._dynamo.config.patch(suppress_errors=True):
        torch._dynamo.reset()
        assert torch.compile(function)(x).equal(function(x))
    monkeypatch.undo()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(function)(x), function(x))


def test_an_unsupported_pytorch_warns_once_and_uses_eager_mode():
    code = """
        import warnings, torch
        from torch_opencl.inductor.names import NEEDED
        NEEDED["torch._inductor.scheduler"] += ("Scheduler.of_next_year",)
        function = torch.compile(lambda x: x.sin() + 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for size in (3, 4):
                x = torch.ones(size, device="opencl")
                assert function(x).equal(x.sin() + 1)
                assert function(torch.ones(size)).equal(torch.ones(size).sin() + 1)
        mine = [str(each.message) for each in caught if "of_next_year" in str(each.message)]
        print(len(mine), "torch._inductor.scheduler has no Scheduler.of_next_year" in mine[0], "eager mode" in mine[0])
    """
    assert output_of(code) == "1 True True"


def test_all_needed_names_exist():
    from torch_opencl import _hooks

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        torch.compile(lambda x: x + 1)(torch.ones(3, device="opencl"))
    assert _hooks.failures == []
