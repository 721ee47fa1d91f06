"""Cases of distributed_cases.py: collectives, and which tensors they move, reduce or refuse."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Dtypes that gloo supports itself; then dtypes moved as bytes and reduced in another dtype, or not reduced at all.
KNOWN = (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool)
WIDENED = (torch.int16, torch.float8_e4m3fn)
MOVED = (*KNOWN, *WIDENED, torch.uint16, torch.complex64)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Compare a device tensor with a CPU tensor, bit by bit."""
    assert got.device.type == "opencl"
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


def values(rank: int, dtype: torch.dtype = torch.float32, rows: int = 3) -> torch.Tensor:
    """Return the tensor of a process, on the CPU."""
    return (torch.arange(rows * 2).view(rows, 2) % 3 + rank).to(dtype)


def everyone(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the tensors of all processes."""
    return [values(rank, dtype) for rank in range(dist.get_world_size())]


def mine(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the tensor of this process, on the device."""
    return values(dist.get_rank(), dtype).to("opencl")


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor to receive another process's tensor."""
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

        # Row by row: process r gets row r of every process; the last process also gets the remaining rows.
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
    truth = torch.tensor([rank == 0, False, True], device="opencl")
    dist.all_reduce(truth)
    # A byte of 2 is not a valid bool.
    assert truth.view(torch.uint8).tolist() == [1, 0, 1]
    large = torch.tensor([2**63 + 1, rank], dtype=torch.uint64).to("opencl")
    sums = [(2**63 + 1) * world % 2**64, sum(range(world))]
    for op, want in ((dist.ReduceOp.BOR, [2**63 + 1, world - 1]), (dist.ReduceOp.SUM, sums)):
        reduced = large.clone()
        dist.all_reduce(reduced, op)
        assert reduced.tolist() == want
    wave = torch.full((3,), 1j * rank, device="opencl")
    dist.all_reduce(wave)
    same(wave, torch.full((3,), 1j * sum(range(world))))


def processes_send_and_receive() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    following, preceding = (rank + 1) % world, (rank - 1) % world
    # More than a socket buffers: each side can only finish together with the other.
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
    # Listed per device, collectives of different kinds are waited for together.
    rank = dist.get_rank()
    first, second, third = mine(), torch.zeros(world, device="opencl"), torch.tensor([1.0], device="opencl")
    with dist._coalescing_manager(device=first.device, async_ops=True) as coalesced:
        dist.broadcast(first, 1)
        dist.all_to_all_single(second, torch.full((world,), float(rank), device="opencl"))
    coalesced.wait()
    same(first, values(1))
    same(second, torch.arange(float(world)))
    with dist._coalescing_manager(device=first.device):
        dist.all_reduce(third)
        dist.all_reduce(first)
    same(third, torch.tensor([float(world)]))
    same(first, values(1) * world)


def sparse_tensors_are_summed() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    row = torch.sparse_coo_tensor([[rank, world]], torch.ones(2, 3), (world + 1, 3)).to("opencl")
    work = dist.all_reduce(row, async_op=True)
    work.wait()
    want = torch.ones(world + 1, 3)
    want[world] = world
    same(row.to_dense(), want)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 1)).to("opencl"))
    model(torch.tensor([rank, 7], device="opencl")).sum().backward()
    gradient = model.module[0].weight.grad
    assert gradient.is_sparse
    weight = model.module[1].weight.detach().cpu()
    rows = torch.zeros(8, 4)
    rows[:world] = weight / world
    rows[7] = weight
    torch.testing.assert_close(gradient.to_dense().cpu(), rows)


def tensors_that_are_not_contiguous_are_moved() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    columns = torch.zeros(4, world + 1, device="opencl")
    dist.all_gather(list(columns.unbind(1))[:world], torch.full((4,), rank + 1.0, device="opencl"))
    same(columns, torch.arange(1.0, world + 2).where(torch.arange(world + 1) < world, 0).expand(4, -1))
    alternate = torch.zeros(2 * world, 2, device="opencl")
    dist.all_gather_into_tensor(alternate[:, 1], torch.full((2, 2), rank + 1.0, device="opencl")[:, 0])
    same(alternate, torch.tensor([[0, rank + 1.0] for rank in range(world) for _ in range(2)]))
    whole = torch.full((3, 4), float(rank), device="opencl")
    dist.broadcast(whole[:, ::2], 1)
    same(whole, torch.tensor([1.0, rank, 1.0, rank]).expand(3, -1))


def collectives_write_inference_tensors() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    with torch.inference_mode():
        # Results that the thread that finds the exchange complete copies, whichever it is.
        part, turned = empty(), torch.zeros(2, 3, device="opencl").t()
        for _ in range(10):
            dist.reduce_scatter_tensor(part, torch.cat([mine() for _ in range(world)]))
            dist.broadcast(turned if rank else mine(), src=0)
    same(part, torch.stack(everyone()).sum(0))
    if rank:
        same(turned, values(0))


def bad_tensors_are_refused() -> None:
    shared = torch.zeros(1, device="opencl").expand(dist.get_world_size())
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: dist.all_gather_into_tensor(shared, torch.ones(1, device="opencl")), "share memory"),
        (lambda: dist.all_reduce(torch.ones(4, 4, device="opencl")[::2, ::2]), "must be contiguous"),
        (lambda: dist.all_reduce(mine(torch.uint64), dist.ReduceOp.MAX), "cannot be reduced by MIN or MAX"),
        (lambda: dist.all_reduce(mine(torch.int32), dist.ReduceOp.AVG), "of Int cannot be reduced by AVG"),
        (lambda: dist.broadcast(torch.ones(2, 2, device="opencl").to_sparse(), 0), "expected dense opencl tensors"),
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
