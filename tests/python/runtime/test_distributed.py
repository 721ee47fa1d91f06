"""torch.distributed with device tensors: groups of processes on one machine, with gloo."""

import json
import os
import signal
from pathlib import Path

import pytest
from processes import output_of, run_python
from shared_libraries import OPENCL, shared_library

from benchmarks.caches import caches_in

EXAMPLES = Path(__file__).parents[3] / "examples"
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2 --monitor-interval 0.1"

OF_TWO = [
    "collectives_move_every_dtype",
    "collectives_reduce",
    "processes_send_and_receive",
    "collectives_write_inference_tensors",
    "work_is_ordered_with_streams",
    "collectives_are_coalesced",
    "sparse_tensors_are_summed",
    "tensors_that_are_not_contiguous_are_moved",
    "who_waits_with_a_timeout_waits_no_longer",
    "objects_and_subgroups_work",
    "bad_tensors_are_refused",
    "ddp_with_synchronised_batch_norm_trains_like_one_process",
    "fully_sharded_gpt_trains_like_one_process_and_is_saved_and_resharded",
    "fully_sharded_gpt_trains_in_bfloat16",
    "first_version_of_fsdp_trains_like_one_process",
    "tensor_parallel_linears_compute_like_one_process",
    "device_is_known_to_every_name_of_gloo",
]
OF_FOUR = ["distributed_tensors_on_a_mesh_of_two_dimensions_compute"]


# Wraps the OpenCL loader, and hides that the device shares the host's memory.
OF_ITS_OWN = f"""
#include <dlfcn.h>
#include <stddef.h>
extern "C" int clGetDeviceInfo(void *device, unsigned name, size_t size, void *value, size_t *needed) {{
  void *const theirs = dlsym(dlopen("{OPENCL}", RTLD_NOW), "clGetDeviceInfo");
  const auto info = reinterpret_cast<int (*)(void *, unsigned, size_t, void *, size_t *)>(theirs);
  const int error = info(device, name, size, value, needed);
  if (name == 0x1035 && value && !error) *static_cast<unsigned *>(value) = 0; // CL_DEVICE_HOST_UNIFIED_MEMORY
  return error;
}}
"""


def failures_of(processes: int, cases: list[str], folder: Path, **environment: str) -> dict[str, list[str]]:
    """Run cases in a group of processes, all cases in the same processes."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = run_python(f"-m distributed_cases {processes} {folder}", *cases, PYTHONPATH=path, **environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    return failures_of(2, OF_TWO, tmp_path_factory.mktemp("group"))


@pytest.mark.parametrize("case", OF_TWO)
def test_in_two_processes(failures, case):
    assert not failures[case], "\n".join(failures[case])


def test_in_four_processes(tmp_path):
    failed = failures_of(4, OF_FOUR, tmp_path)
    assert failed == {case: [] for case in OF_FOUR}, failed


def test_devices_with_separate_memory_send_copies(tmp_path):
    shim = shared_library(tmp_path, OF_ITS_OWN)
    cases = ["collectives_move_every_dtype", "collectives_reduce", "processes_send_and_receive"]
    failed = failures_of(2, cases, tmp_path, OPENCL_DYLIB_PATH=str(shim))
    assert failed == {case: [] for case in cases}, failed


def test_a_killed_process_is_an_error_of_its_group(tmp_path):
    # Within the timeout: a closed connection is noticed earlier.
    lines = output_of(
        """
        import os, signal, sys, time
        from datetime import timedelta
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank):
            url = f"file://{sys.argv[1]}/store"
            dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2, timeout=timedelta(seconds=20))
            tensor = torch.ones(1 << 20, device="opencl")
            dist.all_reduce(tensor)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            start = time.monotonic()
            for call in (lambda: dist.all_reduce(tensor), lambda: dist.recv(tensor, 1)):
                try:
                    call()
                except RuntimeError as failure:
                    print(type(failure).__name__, "after", time.monotonic() - start, failure, flush=True)
            # The device goes on.
            print((torch.ones(3, device="opencl") * 2).tolist(), flush=True)
            os._exit(0)

        if __name__ == "__main__":
            children = [mp.get_context("fork").Process(target=work, args=(rank,)) for rank in range(2)]
            for child in children:
                child.start()
            for child in children:
                child.join()
            print([child.exitcode for child in children])
        """,
        str(tmp_path),
        # A killed process leaves its driver's cache suspect; this keeps it separate from the cache of other tests.
        **caches_in(tmp_path),
    ).splitlines()
    first, second, alive, codes = lines
    for line in (first, second):
        assert "gloo" in line.lower() or "connection" in line.lower(), line
        assert float(line.split()[2]) < 30
    assert alive == "[2.0, 2.0, 2.0]"
    assert codes == f"[0, {-signal.SIGKILL}]"


@pytest.mark.slow
def test_torchrun_restarts_the_processes_after_one_was_killed(tmp_path):
    program = tmp_path / "worker.py"
    program.write_text(
        """
import os, signal
import torch
import torch.distributed as dist

dist.init_process_group()
tensor = torch.ones(3, device="opencl")
dist.all_reduce(tensor)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
# One write, as both processes have one output.
os.write(1, f"done {dist.get_rank()} {tensor.tolist()}\\n".encode())
dist.destroy_process_group()
"""
    )
    # Otherwise torchrun of these releases gives the new processes the addresses of the old ones, on any device.
    unshared = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = run_python(f"{TORCHRUN} --max-restarts 1 {program}", **unshared, **caches_in(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("done")) == [
        "done 0 [4.0, 4.0, 4.0]",
        "done 1 [4.0, 4.0, 4.0]",
    ]


@pytest.mark.slow
def test_example_trains_with_torchrun(tmp_path):
    program = EXAMPLES / "ddp_digits.py"
    # As users run it: the other tests wait for specialised kernels.
    words = f"{TORCHRUN} {program} --epochs 2 --checkpoint {tmp_path / 'digits.pt'}"
    done = run_python(words, TORCH_OPENCL_SPECIALIZE=None)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "2 processes" in done.stdout
    assert "Test accuracy" in done.stdout
