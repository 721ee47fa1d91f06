"""Memory shared with other libraries: DLPack, NumPy and PyOpenCL."""

import gc

import numpy as np
import pytest
import torch
from processes import output_of
from torch.utils.dlpack import DLDeviceType

DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.complex64)


@pytest.fixture(scope="module")
def cl():
    """PyOpenCL, with its arrays."""
    pyopencl = pytest.importorskip("pyopencl", reason="needs PyOpenCL: pip install pyopencl")
    pytest.importorskip("pyopencl.array")
    return pyopencl


class Producer:
    """An object as another library would pass it: a capsule of OpenCL memory."""

    def __init__(self, tensor: torch.Tensor, **options: object) -> None:
        self.tensor, self.options = tensor, options

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__(**(options | self.options))

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(map(int, self.tensor.__dlpack_device__()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_and_cpu_tensors_come_from_and_go_to_dlpack(device, dtype):
    host = torch.randn(3, 4).mul(9).to(dtype)
    for source in (host.numpy(), host):
        ours = torch.from_dlpack(source, device="opencl")
        assert ours.device == device and torch.equal(ours.cpu(), host)
    assert torch.equal(torch.from_dlpack(ours.t(), device="cpu"), host.t())
    assert np.array_equal(np.from_dlpack(ours.t(), device="cpu"), host.t().numpy())


def test_dlpack_device_of_device_tensors(device):
    x = torch.ones(3, device=device)
    assert x.__dlpack_device__() == (DLDeviceType.kDLOpenCL, device.index)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)
    with pytest.raises((BufferError, ValueError), match="cop"):
        torch.from_dlpack(x, device="cpu", copy=False)
    for tensor in (x.clone().requires_grad_(), torch.ones(2, device=device) * 1j):
        with pytest.raises(BufferError):
            tensor.conj().__dlpack__() if tensor.is_complex() else tensor.__dlpack__()
    # Tensors of other devices are exported by PyTorch as before.
    assert torch.ones(2).__dlpack_device__()[0] == DLDeviceType.kDLCPU
    assert torch.from_dlpack(torch.ones(2).__dlpack__()).sum() == 2


def test_device_tensors_are_dlpack_producers(device):
    x = torch.arange(6.0, device=device)
    same = torch.from_dlpack(x)
    same[0] = 7
    assert x[0].item() == 7 and same.data_ptr() == x.data_ptr()
    copied = torch.from_dlpack(x, copy=True)
    copied[0] = 1
    assert x[0].item() == 7


@pytest.mark.parametrize("options", [{}, {"max_version": None}, {"stream": None}])
def test_capsules_of_opencl_memory_become_tensors_over_it(device, options):
    x = torch.arange(24, device=device).view(2, 3, 4)[:, 1:].transpose(0, 1)
    y = torch.from_dlpack(Producer(x, **options))
    assert torch.equal(x, y) and y.stride() == x.stride() and y.dtype == x.dtype
    y.mul_(10)
    assert torch.equal(x, y) and x[0, 0, 0].item() == 40
    assert torch.equal(torch.from_dlpack(Producer(x), device="cpu"), x.cpu())
    assert torch.from_dlpack(x.__dlpack__()).sum() == x.sum()
    for few in (x[:0], x[0, 0, 0]):
        assert torch.equal(torch.from_dlpack(Producer(few)), few)


def test_capsules_keep_memory_until_they_and_their_tensors_are_gone(device):
    gc.collect()
    before = torch.opencl.memory_allocated()

    def used() -> int:
        gc.collect()
        return torch.opencl.memory_allocated() - before

    x = torch.ones(1 << 20, device=device)
    size = used()
    capsule = x.__dlpack__()
    del x
    assert used() == size
    y = torch.from_dlpack(capsule)
    view = y[5:]
    del y, capsule
    assert used() == size and view.sum().item() == (1 << 20) - 5
    del view
    assert used() == 0
    capsule = torch.ones(1 << 20, device=device).__dlpack__()
    assert used() == size
    del capsule
    assert used() == 0


def test_a_graph_keeps_memory_that_other_code_has_lent(device):
    x = torch.ones(1 << 20, device=device)
    lent = [torch.from_dlpack(x.__dlpack__())]
    del x
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        y = lent[0] + 1
    lent.clear()
    gc.collect()
    torch.opencl.empty_cache()
    graph.replay()
    torch.opencl.synchronize()
    assert y.shape == (1 << 20,)


def test_memory_that_is_given_back_in_a_capture_does_not_spoil_it(device):
    lent = [torch.from_dlpack(torch.ones(8, device=device).__dlpack__())]
    x = torch.ones(8, device=device)
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        lent.clear()
        gc.collect()
        y = x + 1
    graph.replay()
    assert y.tolist() == [2.0] * 8


def test_memory_that_is_not_our_buffer_is_refused(device):
    x = torch.ones(4, device=device)
    capsule = x.__dlpack__()
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(Producer(x), device="cpu", copy=False)
    with pytest.raises(BufferError, match="cannot be exported"):
        x.__dlpack__(dl_device=(2, 0))
    assert torch.from_dlpack(capsule).sum() == 4
    with pytest.raises((RuntimeError, BufferError, SystemError, ValueError)):
        torch.from_dlpack(capsule)


def test_arrays_share_memory_with_their_tensors(cl, device):
    x = torch.arange(12.0, device=device).view(3, 4)
    array = torch.opencl.interop.to_pyopencl(x)
    assert array.shape == (3, 4) and array.dtype == np.float32
    assert np.array_equal(array.get(), x.cpu().numpy())
    array += 1
    assert x.sum().item() == 78
    x.mul_(2)
    assert array.get().sum() == 156
    # Views with an offset and other strides.
    part = torch.opencl.interop.to_pyopencl(x[1:, 2:])
    assert part.strides == (16, 4)
    assert np.array_equal(
        cl.array.to_device(array.queue, part.get()).get() if part.flags.forc else part.map_to_host(),
        x[1:, 2:].cpu().numpy(),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_have_the_dtypes_of_tensors_and_go_back(cl, device, dtype):
    x = torch.randn(40).mul(9).to(dtype).to(device)
    array = torch.opencl.interop.to_pyopencl(x)
    back = torch.opencl.interop.from_pyopencl(array)
    assert back.dtype == dtype and torch.equal(back, x)


def test_tensors_share_memory_with_arrays(cl, device):
    interop = torch.opencl.interop
    array = cl.array.arange(interop.queue(), 100, dtype=np.int32)
    x = interop.from_pyopencl(array[10:].reshape(9, 10).T)
    assert x.shape == (10, 9) and x.stride() == (1, 10)
    x.add_(1)
    assert array.get()[10:13].tolist() == [11, 12, 13] and array.get()[:2].tolist() == [0, 1]
    assert x.sum(0)[0].item() == sum(range(11, 21))
    torch.testing.assert_close((x.float() @ x.float().t()).cpu(), x.cpu().float() @ x.cpu().float().t())


def test_arrays_and_tensors_keep_each_other(cl, device):
    interop = torch.opencl.interop
    gc.collect()
    before = torch.opencl.memory_allocated()
    view = interop.to_pyopencl(torch.ones(1 << 18, device=device))[7:]
    gc.collect()
    assert torch.opencl.memory_allocated() > before
    others = [torch.zeros(1 << 18, device=device) for _ in range(4)]
    assert view.get().sum() == (1 << 18) - 7 and sum(other.sum() for other in others) == 0
    del view
    gc.collect()
    del others
    assert torch.opencl.memory_allocated() == before

    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(interop.queue()))
    x = interop.from_pyopencl(cl.array.zeros(interop.queue(), 1 << 16, np.float32, allocator=pool) + 3)
    gc.collect()
    assert pool.active_blocks == 1
    cl.array.zeros(interop.queue(), 1 << 16, np.float32, allocator=pool)
    assert x.sum().item() == 3 << 16
    half = x[: 1 << 15]
    del x
    assert pool.active_blocks == 1 and half.sum().item() == 3 << 15
    del half
    gc.collect()
    assert pool.active_blocks == 0


def test_shared_arrays_wait_for_work_of_other_queues(cl, device):
    interop = torch.opencl.interop
    context = interop.context(device)
    other = cl.CommandQueue(context)
    gate = cl.UserEvent(context)
    array = cl.array.zeros(other, 1 << 16, np.float32)
    other.finish()
    cl.enqueue_barrier(other, wait_for=[gate])
    array.fill(5)
    x = interop.from_pyopencl(array)
    total = x.sum()
    assert not torch.opencl.current_stream().query()
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert total.item() == 5 << 16


def test_operations_of_arrays_run_in_the_streams_of_tensors(cl, device, side_stream):
    interop = torch.opencl.interop
    with torch.opencl.stream(side_stream):
        x = torch.zeros(1 << 18, device=device)
        array = interop.to_pyopencl(x)
        for _ in range(30):
            x.add_(1)
            array += 1
        assert x.eq(60).all()
    assert array.queue.int_ptr == side_stream.native_handle


def test_programs_of_pyopencl_take_tensors(cl, device):
    interop = torch.opencl.interop
    text = "__kernel void f(__global float *x, float a) { x[get_global_id(0)] *= a; }"
    program = cl.Program(interop.context(), text).build()
    for _ in range(3):
        x = torch.ones(300, device=device)
        program.f(interop.queue(), (300,), None, interop.to_pyopencl(x).data, np.float32(3))
        assert x.eq(3).all()


def test_tensors_that_cannot_be_shared_are_refused(cl, device):
    interop = torch.opencl.interop
    with pytest.raises(ValueError, match="on cpu"):
        interop.to_pyopencl(torch.ones(2))
    with pytest.raises(ValueError, match="with elements"):
        interop.to_pyopencl(torch.ones(0, device=device))
    with pytest.raises(ValueError, match="detach"):
        interop.to_pyopencl(torch.ones(2, device=device, requires_grad=True))
    with pytest.raises(TypeError, match=r"NumPy has no torch\.bfloat16"):
        interop.to_pyopencl(torch.ones(2, dtype=torch.bfloat16, device=device))
    foreign = cl.Context(interop.context().devices)
    with pytest.raises(RuntimeError, match="belongs to another OpenCL context"):
        interop.from_pyopencl(cl.array.zeros(cl.CommandQueue(foreign), 4, np.float32))
    host = np.zeros(64, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    over_host = cl.array.Array(
        interop.queue(), (64,), np.float32, data=cl.Buffer(interop.context(), flags, hostbuf=host)
    )
    with pytest.raises(RuntimeError, match="memory of the host"):
        interop.from_pyopencl(over_host)


def test_without_pyopencl_an_error_says_what_to_install():
    code = """
        import sys
        import torch
        sys.modules["pyopencl"] = None
        try:
            torch.opencl.interop.queue()
        except ModuleNotFoundError as error:
            print(error)
    """
    assert output_of(code) == "torch.opencl.interop needs PyOpenCL: pip install pyopencl"


def test_processes_end_well_with_shared_memory_alive(cl):
    code = """
        import torch
        x = torch.ones(100, device="opencl")
        array = torch.opencl.interop.to_pyopencl(x)
        back = torch.opencl.interop.from_pyopencl(array)
        capsule = x.__dlpack__()
        y = torch.from_dlpack(x.__dlpack__())
        print(back.sum().item())
    """
    assert output_of(code) == "100.0"
