"""What processes of a group do together: run as a program, once for all cases, by test_distributed.py.

python distributed_cases.py PROCESSES FOLDER CASE... forks that many processes, has each run the cases in this order,
and prints a JSON object: for each case the tracebacks of the processes in which it failed.
"""

import copy
import json
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from distributed_models import Gpt, convolutional, images, losses, text
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = timedelta(seconds=60)
# What gloo moves and reduces by itself; then what is moved as bytes and reduced in another dtype, or not at all.
KNOWN = (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool)
WIDENED = (torch.int16, torch.float8_e4m3fn)
MOVED = (*KNOWN, *WIDENED, torch.uint16, torch.complex64)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Compare a tensor of the device with one of the CPU, bit by bit."""
    assert got.device.type == "opencl"
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


def values(rank: int, dtype: torch.dtype = torch.float32, rows: int = 3) -> torch.Tensor:
    """Return the tensor that a process has, on the CPU."""
    return (torch.arange(rows * 2).view(rows, 2) % 3 + rank).to(dtype)


def everyone(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return what each process has."""
    return [values(rank, dtype) for rank in range(dist.get_world_size())]


def mine(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return what this process has, on the device."""
    return values(dist.get_rank(), dtype).to("opencl")


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor for what another process has."""
    return torch.zeros(3, 2, dtype=dtype, device="opencl")


def collectives_move_every_dtype() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in MOVED:
        theirs = everyone(dtype)
        tensor = mine(dtype)
        dist.broadcast(tensor, src=1)
        same(tensor, theirs[1])

        gathered = torch.cat([empty(dtype) for _ in theirs])
        dist.all_gather_into_tensor(gathered, mine(dtype))
        same(gathered, torch.cat(theirs))
        pieces = [empty(dtype) for _ in theirs]
        dist.all_gather(pieces, mine(dtype))
        same(torch.cat(pieces), torch.cat(theirs))

        pieces = [empty(dtype) for _ in theirs]
        dist.gather(mine(dtype), pieces if rank == 0 else None, dst=0)
        same(torch.cat(pieces), torch.cat(theirs) if rank == 0 else torch.cat([empty(dtype).cpu() for _ in theirs]))
        part = empty(dtype)
        dist.scatter(part, [piece.to("opencl") for piece in theirs] if rank == 1 else None, src=1)
        same(part, theirs[rank])

        # Row by row: process r gets row r of everyone, and the last one also the rows that are left.
        rows = [1] * (world - 1) + [3 - (world - 1)]
        part = torch.zeros(rows[rank] * world, 2, dtype=dtype, device="opencl")
        dist.all_to_all_single(part, mine(dtype), [rows[rank]] * world, rows)
        same(part, torch.cat([piece.split(rows)[rank] for piece in theirs]))
        received = [torch.zeros(rows[rank], 2, dtype=dtype, device="opencl") for _ in theirs]
        dist.all_to_all(received, list(mine(dtype).split(rows)))
        same(torch.cat(received), part.cpu())


def collectives_reduce() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    sums = [(dist.ReduceOp.SUM, lambda x: x.sum(0)), (dist.ReduceOp.MAX, lambda x: x.amax(0))]
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int32, torch.int64, *WIDENED):
        exact = torch.stack(everyone(torch.float64))
        for op, reduce in sums:
            want = reduce(exact).to(dtype)
            tensor = mine(dtype)
            dist.all_reduce(tensor, op)
            same(tensor, want)
            tensor = mine(dtype)
            dist.reduce(tensor, 0, op)
            if rank == 0:
                same(tensor, want)
            blocks = [mine(dtype) for _ in range(world)]
            for block in (empty(dtype), empty(dtype).view(2, 3)):
                dist.reduce_scatter_tensor(block, torch.cat(blocks), op)
                same(block, want.view(block.shape))
            block = empty(dtype)
            dist.reduce_scatter(block, blocks, op)
            same(block, want)
    total = sum(range(1, world + 1))
    factors = (dist.ReduceOp.AVG, 1 / world), (dist._make_nccl_premul_sum(0.5), 0.5)
    for op, factor in factors:
        tensor = torch.full((5,), rank + 1.0, device="opencl")
        dist.all_reduce(tensor, op)
        same(tensor, torch.full((5,), total * factor))
        block = torch.zeros(5, device="opencl")
        dist.reduce_scatter_tensor(block, torch.full((5 * world,), rank + 1.0, device="opencl"), op)
        same(block, torch.full((5,), total * factor))
    wave = torch.full((3,), 1j * rank, device="opencl")
    dist.all_reduce(wave)
    same(wave, torch.full((3,), 1j * sum(range(world))))


def processes_send_and_receive() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    following, preceding = (rank + 1) % world, (rank - 1) % world
    # More than a socket holds: neither side can be waited for alone.
    sent, received = torch.full((1 << 20,), float(rank), device="opencl"), torch.zeros(1 << 20, device="opencl")
    for work in (dist.isend(sent, following), dist.irecv(received, preceding)):
        work.wait()
    same(received, torch.full((1 << 20,), float(preceding)))
    operations = [dist.P2POp(dist.isend, mine(), preceding), dist.P2POp(dist.irecv, part := empty(), following)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(part, values(following))
    if rank > 0:
        dist.send(mine(torch.complex64), 0)
        return
    sources = set()
    for _ in range(world - 1):
        part = empty(torch.complex64)
        sources.add(source := dist.recv(part))
        same(part, values(source, torch.complex64))
    assert sources == set(range(1, world))


def work_is_ordered_with_streams() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((300, 300), 1.0 + rank, device="opencl")
    for _ in range(20):
        tensor = tensor * 1.0
    # The hook of a future runs behind the result, and what comes after the future behind the hook.
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


def collectives_are_coalesced() -> None:
    world = dist.get_world_size()
    parts = [torch.ones(3, device="opencl"), torch.ones(4, device="opencl")]
    wholes = [torch.zeros(3 * world, device="opencl"), torch.zeros(4 * world, device="opencl")]
    with dist._coalescing_manager():
        for part in parts:
            dist.all_reduce(part)
    with dist._coalescing_manager():
        for whole, part in zip(wholes, parts, strict=True):
            dist.all_gather_into_tensor(whole, part)
    with dist._coalescing_manager():
        for whole, part in zip(wholes, parts, strict=True):
            dist.reduce_scatter_tensor(part, whole)
    for whole, part in zip(wholes, parts, strict=True):
        same(whole, torch.full_like(whole, world, device="cpu"))
        same(part, torch.full_like(part, world**2, device="cpu"))


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


def bad_tensors_are_refused() -> None:
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: dist.all_reduce(torch.ones(4, 4, device="opencl")[::2, ::2]), "must be contiguous"),
        (lambda: dist.all_reduce(torch.ones(4, device="opencl").to(torch.uint64)), "cannot be reduced"),
        (lambda: dist.all_gather_into_tensor(torch.ones(3, device="opencl"), torch.ones(2, device="opencl")), "times"),
        (lambda: dist.reduce_scatter_tensor(torch.ones(3, device="opencl"), torch.ones(4, device="opencl")), "times"),
        (lambda: dist.all_gather([torch.ones(3) for _ in range(2)], torch.ones(3, device="opencl")), "opencl"),
    ]
    for call, message in refused:
        try:
            call()
        except (RuntimeError, TypeError, ValueError) as failure:
            assert message in str(failure), failure
        else:
            raise AssertionError(f"not refused: {message}")


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
    """Compare the mean losses of processes that have a part of the data each with those of one process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    alone = losses(single.to("opencl"), inputs.to("opencl"), targets.to("opencl"))
    parts = (whole.chunk(world)[rank].to("opencl") for whole in (inputs, targets))
    together = losses(distributed, *parts)
    dist.all_reduce(together, dist.ReduceOp.AVG)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert alone[-1] < alone[0]


def ddp_with_synchronised_batch_norm_trains_like_one_process() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(convolutional()).to("opencl")
    # Several buckets, which are reduced while the backward pass goes on.
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
    dcp.save(sharded, checkpoint_id=FOLDER / "checkpoint")
    whole = {name: tensor.full_tensor() for name, tensor in sharded.items()}
    # Into another sharding, and into tensors that no other process has a part of.
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
    """Make the default group."""
    store = f"file://{FOLDER}/{str(backend).replace(':', '-')}"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=world, timeout=TIMEOUT)


def run(rank: int, world: int, names: list[str]) -> None:
    """Run cases in one process, and write the failures."""
    failures: dict[str, str] = {}
    join(rank, world, "opencl:gloo")
    for name in names:
        if failures:  # the processes are no longer at the same place
            failures[name] = "not run: a case before it has failed"
            continue
        try:
            globals()[name]()
        except Exception:
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
