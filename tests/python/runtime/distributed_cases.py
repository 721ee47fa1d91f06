"""Cases for a group of processes: one program for all cases, started by test_distributed.py.

python distributed_cases.py PROCESSES FOLDER CASE... forks that many processes, each of which runs the cases in this
order, and prints a JSON object: for each case the tracebacks of the processes in which it failed.
"""

import copy
import json
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path

import distributed_collectives
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from distributed_collectives import empty, everyone, mine, same, values
from distributed_models import Gpt, convolutional, images, losses, text
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = timedelta(seconds=300)


def work_is_ordered_with_streams() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((300, 300), 1.0 + rank, device="opencl")
    for _ in range(20):
        tensor = tensor * 1.0
    # The hook of a future runs after the result, and operations on the future's value run after the hook.
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0] / world)
    mean = future.wait()
    same(mean + 1, torch.full((300, 300), (world + 1) / 2 + 1))
    assert work.wait()
    side = torch.Stream(device="opencl")
    with side:
        other = tensor * 0 + rank
        work = dist.all_reduce(other, async_op=True)
        work.wait()
        doubled = other * 2
    torch.accelerator.current_stream().wait_stream(side)
    same(doubled, torch.full((300, 300), float(world * (world - 1))))
    parts = [mine() for _ in range(10)]
    for work in [dist.all_reduce(part, async_op=True) for part in parts]:
        work.wait()
    for part in parts:
        same(part, torch.stack(everyone()).sum(0))


def who_waits_with_a_timeout_waits_no_longer() -> None:
    if dist.get_rank() > 0:
        dist.barrier()
        if dist.get_rank() == 1:
            dist.send(mine(), 0)
        return
    part = empty()
    work = dist.irecv(part, 1)
    other = threading.Thread(target=work.wait)
    other.start()
    # Long enough that the other thread is the one polling gloo.
    time.sleep(2)
    start = time.perf_counter()
    try:
        work.wait(timedelta(milliseconds=200))
    except RuntimeError as failure:
        assert "timed out" in str(failure), failure
    else:
        raise AssertionError("did not time out")
    assert time.perf_counter() - start < TIMEOUT.total_seconds() / 2
    dist.barrier()
    other.join()
    work.wait()
    same(part, values(1))


def objects_and_subgroups_work() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    objects = [{"weight": mine()} if rank == 0 else None]
    dist.broadcast_object_list(objects, src=0)
    same(objects[0]["weight"], values(0))
    ranks = [None] * world
    dist.all_gather_object(ranks, rank)
    assert ranks == list(range(world))
    group = dist.new_group([1])
    if rank == 1:
        tensor = mine()
        dist.all_reduce(tensor, group=group)
        same(tensor, values(1))
    dist.all_reduce(torch.zeros(0, device="opencl"))


def device_is_known_to_every_name_of_gloo() -> None:
    assert dist.get_default_backend_for_device("opencl") == "gloo"
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in ("gloo", "cpu:gloo,opencl:gloo", None):
        dist.destroy_process_group()
        join(rank, world, name)
        for device in ("opencl", "cpu"):
            tensor = torch.ones(3, device=device)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [world] * 3
        assert isinstance(dist.group.WORLD._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)
        assert dist.group.WORLD._get_backend_name() == "gloo"


def trains_like_one_process(
    distributed: nn.Module, single: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> None:
    """Compare the mean losses of processes that have a part of the data each with the losses of one process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    alone = losses(single.to("opencl"), inputs.to("opencl"), targets.to("opencl"))
    parts = (whole.chunk(world)[rank].to("opencl") for whole in (inputs, targets))
    together = losses(distributed, *parts)
    dist.all_reduce(together, dist.ReduceOp.AVG)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert alone[-1] < alone[0]


def ddp_with_synchronised_batch_norm_trains_like_one_process() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(convolutional()).to("opencl")
    # Several buckets, which are reduced while the backward pass continues.
    trains_like_one_process(DistributedDataParallel(model, bucket_cap_mb=0.005), convolutional(), *images())


def fully_sharded_gpt_trains_like_one_process_and_is_saved_and_resharded() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("opencl", (world,))
    model = Gpt().to("opencl")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    trains_like_one_process(model, Gpt(), *text())

    sharded = get_model_state_dict(model)
    # If PyTorch also sees a CUDA device, the default copies ahead only from that one.
    ahead = {"per_thread_copy_ahead": 0} if torch.cuda.is_available() else {}
    dcp.save(sharded, storage_writer=dcp.FileSystemWriter(FOLDER / "checkpoint", **ahead))
    whole = {name: tensor.full_tensor() for name, tensor in sharded.items()}
    # Loads into another sharding, and into tensors that are not sharded.
    placement = lambda tensor: [Shard(1) if tensor.dim() == 2 else Replicate()]  # noqa: E731
    fresh = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    other = {name: distribute_tensor(tensor, mesh, placement(tensor)) for name, tensor in fresh.items()}
    for target in (other, fresh):
        dcp.load(target, checkpoint_id=FOLDER / "checkpoint")
        for name, tensor in target.items():
            assert torch.equal(getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)(), whole[name]), name
    gathered = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert len(gathered) == (len(whole) if rank == 0 else 0)


def fully_sharded_gpt_trains_in_bfloat16() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = Gpt().to("opencl")
    for module in (*model.blocks, model):
        fully_shard(module, mesh=init_device_mesh("opencl", (dist.get_world_size(),)), mp_policy=policy)
    result = losses(model, *(part.to("opencl") for part in text())).tolist()
    assert result[-1] < result[0]


def first_version_of_fsdp_trains_like_one_process() -> None:
    model = FullyShardedDataParallel(Gpt(), device_id=torch.device("opencl", 0), use_orig_params=True)
    trains_like_one_process(model, Gpt(), *text())


def tensor_parallel_linears_compute_like_one_process() -> None:
    mesh = init_device_mesh("opencl", (dist.get_world_size(),))
    torch.manual_seed(0)
    single = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).to("opencl")
    parallel = parallelize_module(copy.deepcopy(single), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = torch.randn(4, 16).to("opencl")
    want, got = single(inputs), parallel(inputs)
    torch.testing.assert_close(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    for ours, theirs in zip(parallel.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), theirs.grad)


def distributed_tensors_on_a_mesh_of_two_dimensions_compute() -> None:
    mesh = init_device_mesh("opencl", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "model"))
    whole = torch.arange(64.0).view(8, 8)
    left = distribute_tensor(whole.to("opencl"), mesh, [Shard(0), Shard(1)])
    assert left.to_local().numel() == 64 // dist.get_world_size()
    right = left.redistribute(mesh, [Replicate(), Shard(0)])
    same((left @ right).full_tensor(), whole @ whole)
    same(left.redistribute(mesh, [Shard(1), Replicate()]).full_tensor(), whole)
    partial = left.sum(0)
    assert any(isinstance(placement, Partial) for placement in partial.placements)
    same(partial.full_tensor(), whole.sum(0))
    tensor = torch.ones(3, device="opencl")
    dist.all_reduce(tensor, group=mesh["model"].get_group())
    same(tensor, torch.full((3,), dist.get_world_size() / 2))


FOLDER = Path()


def join(rank: int, world: int, backend: str | None) -> None:
    """Create the default group."""
    store = f"file://{FOLDER}/{str(backend).replace(':', '-')}"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=world, timeout=TIMEOUT)


def run(rank: int, world: int, names: list[str]) -> None:
    """Run cases in one process, and write the failures."""
    failures: dict[str, str] = {}
    join(rank, world, "opencl:gloo")
    for name in names:
        if failures:  # the processes are no longer synchronised
            failures[name] = "not run: an earlier case failed"
            continue
        try:
            case = getattr(distributed_collectives, name, None) or globals()[name]
            case()
        # Errors of checkpoints do not derive from Exception.
        except BaseException:
            failures[name] = traceback.format_exc()
    (FOLDER / f"{rank}.json").write_text(json.dumps(failures))
    dist.destroy_process_group()


if __name__ == "__main__":
    size, FOLDER, cases = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    # OpenCL has not been used yet, so that children may use it.
    mp.start_processes(run, (size, cases), size, start_method="fork")
    merged: dict[str, list[str]] = {name: [] for name in cases}
    for process in range(size):
        for case, failure in json.loads((FOLDER / f"{process}.json").read_text()).items():
            merged[case].append(f"process {process}: {failure}")
    print(json.dumps(merged))
