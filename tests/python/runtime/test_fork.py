"""Processes: what a forked child may do; a spawned process may do everything."""

from processes import output_of

IN_CHILD = """
    import os, torch
    def in_child(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as error:
                print(f"child: {type(error).__name__}: {error}", flush=True)
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_is_refused_and_the_parent_continues():
    code = (
        IN_CHILD
        + """
    kept = torch.arange(5.0, device="opencl")
    def use():
        assert not torch.opencl.is_available() and not torch.opencl.is_initialized()
        torch.manual_seed(0)
        assert torch.ones(3).sum() == 3
        kept + 1
    assert in_child(use) == 1
    assert in_child(lambda: torch.ones(1, device="opencl")) == 1
    assert in_child(lambda: kept.cpu()) == 1
    assert (kept + 1).sum().item() == 15
    print("parent: ok")
    """
    )
    lines = output_of(code).splitlines()
    assert lines.pop() == "parent: ok"
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("child: RuntimeError: Cannot")
        assert "'spawn' start method" in line


def test_a_child_may_use_devices_if_its_parent_only_imported_the_compiler():
    code = (
        IN_CHILD
        + """
    import torch._dynamo.device_interface
    def use():
        assert torch.ones(3, device="opencl").sum().item() == 3
    assert in_child(use) == 0
    print("ok")
    """
    )
    assert output_of(code) == "ok"


def test_a_forked_child_may_drop_tensors_and_end():
    code = (
        IN_CHILD
        + """
    import gc
    tensors = [torch.ones(5, device="opencl"), torch.ones(5, pin_memory=True)]
    tensors.append(torch.from_dlpack(torch.ones(5, device="opencl").__dlpack__()))
    def drop():
        tensors.clear()
        gc.collect()
    assert in_child(drop) == 0
    assert tensors[0].sum().item() == 5
    print("ok")
    """
    )
    assert output_of(code) == "ok"


def test_a_child_forked_before_the_first_use_may_use_the_device():
    code = (
        IN_CHILD
        + """
    def use():
        assert torch.ones(3, device="opencl").sum().item() == 3
    assert in_child(use) == 0
    use()
    print("ok")
    """
    )
    assert output_of(code) == "ok"


def test_data_loader_workers_feed_the_device():
    code = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        total = torch.zeros((), device="opencl")
        data = TensorDataset(torch.arange(32.0))
        for (batch,) in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
            assert batch.is_pinned()
            total += batch.to("opencl", non_blocking=True).sum()
        print(total.item())
    """
    assert output_of(code) == "496.0"


def test_a_spawned_process_may_use_the_device(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "import torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    assert torch.ones(3, device='opencl').sum().item() == 3\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1, device='opencl')\n"
        "    mp.spawn(work, nprocs=1)\n"
        "    print('ok')\n"
    )
    assert output_of(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')") == "ok"
