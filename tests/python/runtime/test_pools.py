"""Memory pools: torch.opencl.MemPool, use_mem_pool."""

import copy
import gc
import pickle
import threading

import pytest
import torch

MiB = 1 << 20


def filled(size: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8, device=device)


def sizes(pool: torch.opencl.MemPool) -> list[int]:
    return [segment["total_size"] for segment in pool.snapshot()]


@pytest.fixture(autouse=True)
def empty(device):
    # An exception caught in an earlier test holds its tensors in a cycle.
    gc.collect()
    torch.opencl.empty_cache()


def test_tensors_made_with_a_pool_use_its_buffers(device):
    pool = torch.opencl.MemPool()
    before = filled(3 * MiB, device)
    with torch.opencl.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = filled(3 * MiB, device)
        with torch.opencl.use_mem_pool(torch.opencl.MemPool(), device):
            other = filled(3 * MiB, device)
        again = filled(3 * MiB, device)
    after = filled(3 * MiB, device)
    assert pool.use_count() == 1 and pool.id != torch.opencl.MemPool().id and pool.allocator is None
    (segment,) = pool.snapshot()
    places = range(segment["address"], segment["address"] + segment["total_size"])
    assert [x.data_ptr() in places for x in (before, inside, other, again, after)] == [False, True, False, True, False]
    assert segment["allocated_size"] == 6 * MiB and segment["segment_pool_id"] == list(pool.id)


def test_allocations_of_other_threads_do_not_use_the_pool(device):
    pool = torch.opencl.MemPool()
    made = []
    with torch.opencl.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: made.append(filled(3 * MiB, device)))
        thread.start()
        thread.join()
    assert made and sizes(pool) == []


def test_a_pool_keeps_its_memory_until_it_is_deleted(device):
    pool = torch.opencl.MemPool()
    reserved = torch.opencl.memory_reserved()
    with torch.opencl.use_mem_pool(pool):
        x = filled(24 * MiB, device)
    place = x.data_ptr()
    del x
    torch.opencl.empty_cache()
    assert sizes(pool) == [24 * MiB]
    with torch.opencl.use_mem_pool(pool):
        x = filled(24 * MiB, device)
        assert x.data_ptr() == place
        del x
        torch.opencl.empty_cache()
        assert sizes(pool) == []
        filled(24 * MiB, device)
    assert torch.opencl.memory_reserved() == reserved + 24 * MiB
    del pool
    gc.collect()
    assert torch.opencl.memory_reserved() == reserved


def test_tensors_outlive_their_pool(device):
    pool = torch.opencl.MemPool()
    reserved = torch.opencl.memory_reserved()
    with torch.opencl.use_mem_pool(pool):
        x = filled(24 * MiB, device).fill_(7)
    del pool
    gc.collect()
    assert (x == 7).all()
    del x
    torch.opencl.empty_cache()
    assert torch.opencl.memory_reserved() <= reserved + 2 * MiB


def test_a_graph_is_captured_into_a_pool(device):
    pool = torch.opencl.MemPool()
    x, graph = torch.ones(1000, device=device), torch.opencl.OpenCLGraph()
    x + 1
    with torch.opencl.graph(graph, pool=pool.id):
        y = x + 1
    assert len(sizes(pool)) == 1
    graph.replay()
    del pool
    gc.collect()
    x.fill_(4)
    graph.replay()
    assert y.sum().item() == 5000


def test_use_on_oom_allows_releasing_a_pools_memory(device):
    total = torch.opencl.mem_get_info()[1]
    pools = {may: torch.opencl.MemPool(use_on_oom=may) for may in (False, True)}
    for may, pool in pools.items():
        with torch.opencl.use_mem_pool(pool):
            filled(40 * MiB, device)
        torch.opencl.set_per_process_memory_fraction((torch.opencl.memory_reserved() + 10 * MiB) / total)
        try:
            if may:
                filled(40 * MiB, device)
            else:
                with pytest.raises(torch.OutOfMemoryError):
                    filled(40 * MiB, device)
        finally:
            torch.opencl.set_per_process_memory_fraction(1.0)
        assert sizes(pool) == ([] if may else [40 * MiB])


def test_an_allocation_in_a_pool_may_replace_the_free_memory_of_that_pool(device):
    total = torch.opencl.mem_get_info()[1]
    pool = torch.opencl.MemPool()
    with torch.opencl.use_mem_pool(pool):
        filled(40 * MiB, device)
        torch.opencl.set_per_process_memory_fraction((torch.opencl.memory_reserved() + 20 * MiB) / total)
        try:
            filled(50 * MiB, device)
        finally:
            torch.opencl.set_per_process_memory_fraction(1.0)
    assert sizes(pool) == [50 * MiB]


def test_a_pool_that_does_not_split_has_a_buffer_for_each_tensor(device):
    pool = torch.opencl.MemPool(no_split=True)
    with torch.opencl.use_mem_pool(pool):
        made = [torch.zeros(10, device=device) for _ in range(3)]
    assert len(sizes(pool)) == len(made)


def test_only_pools_are_used_as_pools(device):
    for pool in (None, 3, (0, 1)):
        with pytest.raises(TypeError, match=r"pool must be a torch.opencl.MemPool"), torch.opencl.use_mem_pool(pool):
            pass


def test_a_pool_is_not_copied(device):
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot copy or pickle a MemPool"):
            take(torch.opencl.MemPool())


def test_other_allocators_are_refused(device):
    for make in (torch.opencl.MemPool, torch.opencl.change_current_allocator):
        with pytest.raises(NotImplementedError, match=r"a cl_mem.*torch.opencl.interop"):
            make(object())
    assert torch.opencl.get_allocator_backend() == "native"


def test_caching_allocator_alloc_and_delete(device):
    used = torch.opencl.memory_allocated()
    stream = torch.opencl.Stream()
    places = [torch.opencl.caching_allocator_alloc(4 * MiB, device, at) for at in (None, stream, stream.stream_id)]
    assert torch.opencl.memory_allocated() == used + 12 * MiB and len(set(places)) == 3
    for place in places:
        torch.opencl.caching_allocator_delete(place)
    assert torch.opencl.memory_allocated() == used
    with pytest.raises(ValueError, match="has allocated nothing at"):
        torch.opencl.caching_allocator_delete(places[0])
