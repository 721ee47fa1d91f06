"""Streams and events: order, waiting, timing."""

import ctypes
import threading

import pytest
import torch


def slow_work(device: torch.device) -> torch.Tensor:
    """Enqueue some milliseconds of work; the result is all ones."""
    x = torch.ones(1 << 20, device=device)
    for _ in range(8):
        x = x.sqrt()
    return x


def test_the_current_stream_is_the_default_one_at_first(device):
    assert torch.opencl.current_stream() == torch.opencl.default_stream()
    assert torch.opencl.current_stream().device == device
    assert torch.opencl.current_stream().stream_id == 0


def test_a_context_selects_a_stream_and_restores_the_one_before(device, side_stream):
    before = torch.opencl.current_stream()
    with torch.opencl.stream(side_stream):
        assert torch.opencl.current_stream() == side_stream
        with torch.opencl.stream(None):
            assert torch.opencl.current_stream() == side_stream
    assert torch.opencl.current_stream() == before
    with side_stream:
        assert torch.accelerator.current_stream() == side_stream
    assert torch.opencl.current_stream() == before


def test_set_stream(side_stream):
    before = torch.opencl.current_stream()
    torch.opencl.set_stream(side_stream)
    torch.opencl.set_stream(None)
    assert torch.opencl.current_stream() == side_stream
    torch.opencl.set_stream(before)
    assert torch.opencl.current_stream() == before


def test_every_thread_has_its_own_current_stream(side_stream):
    seen = []
    with torch.opencl.stream(side_stream):
        thread = threading.Thread(target=lambda: seen.append(torch.opencl.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.opencl.default_stream()]


def test_streams_are_objects_with_a_device_and_an_id(device):
    first, second = torch.opencl.Stream(), torch.opencl.Stream(device)
    assert first != second
    assert first.device == second.device == device
    assert isinstance(first, torch.Stream) and isinstance(torch.opencl.current_stream(), torch.opencl.Stream)
    same = torch.opencl.Stream(
        stream_id=first.stream_id, device_index=first.device_index, device_type=first.device_type
    )
    assert same == first and hash(same) == hash(first)


def test_a_stream_that_waits_for_another_sees_its_work(device, side_stream):
    with torch.opencl.stream(side_stream):
        x = slow_work(device)
    torch.opencl.current_stream().wait_stream(side_stream)
    assert (x + 1).sum().item() == 2 << 20


def test_a_stream_that_waits_for_an_event_sees_the_work_before_it(device, side_stream):
    x = slow_work(device)
    event = torch.opencl.current_stream().record_event()
    side_stream.wait_event(event)
    with torch.opencl.stream(side_stream):
        assert (x * 3).sum().item() == 3 << 20


def test_query_tells_when_a_stream_is_done(device, side_stream):
    with torch.opencl.stream(side_stream):
        slow_work(device)
    side_stream.synchronize()
    assert side_stream.query()
    assert torch.opencl.Stream().query()


def test_an_event_is_done_when_the_work_before_it_is(device):
    slow_work(device)
    event = torch.opencl.Event()
    event.record()
    event.synchronize()
    assert event.query()
    assert event.device == device


def test_an_event_can_be_recorded_again(device):
    event = torch.opencl.Event()
    for _ in range(3):
        slow_work(device)
        event.record(torch.opencl.current_stream())
        event.wait()
        event.synchronize()
        assert event.query()


def test_events_measure_the_time_between_them(device):
    events = [torch.opencl.Event(enable_timing=True) for _ in range(3)]
    events[0].record()
    slow_work(device)
    events[1].record()
    slow_work(device)
    events[2].record()
    torch.opencl.synchronize()
    first, second = events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2])
    assert first > 0 and second > 0
    assert events[0].elapsed_time(events[2]) == pytest.approx(first + second)
    assert first < 60_000


def test_time_needs_events_that_were_recorded(device):
    start, end = torch.opencl.Event(enable_timing=True), torch.opencl.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    with pytest.raises(ValueError, match="cannot be shared"):
        torch.opencl.Event(interprocess=True)


def test_an_event_that_was_never_recorded_is_done(device):
    event = torch.opencl.Event()
    assert event.query()
    event.synchronize()


def test_synchronize_waits_for_all_streams(device):
    streams = [torch.opencl.Stream() for _ in range(3)]
    for stream in streams:
        with torch.opencl.stream(stream):
            slow_work(device)
    torch.opencl.synchronize()
    assert all(stream.query() for stream in streams)


def test_the_host_is_held_back_when_it_is_far_ahead(device):
    """There is no wait here: without a limit, enqueued work would fill the memory."""
    values = torch.ones(200_000, device=device)
    early = torch.opencl.Event()
    for launch in range(8000):
        values.add_(1)
        if launch == 2000:
            early.record()
    assert early.query()
    assert values[0].item() == 8001


def test_short_launches_of_one_thread_do_not_hold_up_another(device, side_stream):
    # Short launches may be delayed to be submitted together. A wait must cover everything submitted before it, and must
    # not wait for later submissions of another thread.
    stop = threading.Event()

    def launch_now_and_then():
        x = torch.zeros(4, device=device)
        while not stop.is_set():
            x.add_(1)
            stop.wait(0.001)

    other = threading.Thread(target=launch_now_and_then)
    other.start()
    try:
        x = torch.zeros(4, device=device)
        for step in range(1, 200):
            x.add_(1)
            torch.opencl.synchronize()
            assert x.sum().item() == 4 * step
            event = torch.opencl.current_stream().record_event()
            side_stream.wait_event(event)
            side_stream.synchronize()
            assert event.query()
    finally:
        stop.set()
        other.join()


def test_streams_have_native_handles(side_stream):
    assert side_stream.native_handle != 0
    assert side_stream.native_handle != torch.opencl.default_stream().native_handle


class ForeignWork:
    """A command that other code enqueues with a stream's native handle, and that completes on request."""

    QUEUE_CONTEXT, EXECUTION_STATUS, COMPLETE = 0x1090, 0x11D3, 0

    def __init__(self, queue: int) -> None:
        self.opencl = ctypes.CDLL("libOpenCL.so.1")
        context, status = ctypes.c_void_p(), ctypes.c_int()
        size, pointer = ctypes.c_size_t(ctypes.sizeof(context)), ctypes.c_void_p
        assert (
            self.opencl.clGetCommandQueueInfo(pointer(queue), self.QUEUE_CONTEXT, size, ctypes.byref(context), None)
            == 0
        )
        self.opencl.clCreateUserEvent.restype = pointer
        self.go = pointer(self.opencl.clCreateUserEvent(context, ctypes.byref(status)))
        assert status.value == 0
        self.event = pointer()
        command = self.opencl.clEnqueueMarkerWithWaitList
        assert command(pointer(queue), 1, ctypes.byref(self.go), ctypes.byref(self.event)) == 0

    def finish(self) -> None:
        """Let the command complete."""
        assert self.opencl.clSetUserEventStatus(self.go, self.COMPLETE) == 0

    def is_complete(self) -> bool:
        """Return whether the command is complete."""
        status = ctypes.c_int(-1)
        size = ctypes.c_size_t(ctypes.sizeof(status))
        assert self.opencl.clGetEventInfo(self.event, self.EXECUTION_STATUS, size, ctypes.byref(status), None) == 0
        return status.value == self.COMPLETE


def test_waiting_for_a_stream_includes_work_enqueued_with_its_native_handle(device):
    stream = torch.opencl.Stream()
    with torch.opencl.stream(stream):
        values = torch.ones(16, device=device)
    stream.synchronize()
    assert stream.query()
    for wait in (stream.synchronize, torch.opencl.synchronize):
        work = ForeignWork(stream.native_handle)
        assert not stream.query()
        later = threading.Timer(0.05, work.finish)
        later.start()
        wait()
        assert work.is_complete()
        later.join()
    # A copy also waits, although the stream has no pending work itself.
    work = ForeignWork(stream.native_handle)
    later = threading.Timer(0.05, work.finish)
    later.start()
    with torch.opencl.stream(stream):
        assert values.sum().item() == 16
    assert work.is_complete()
    later.join()
    stream.synchronize()


def test_streams_of_other_devices_are_refused():
    with pytest.raises(RuntimeError):
        torch.opencl.set_stream(torch.Stream(stream_id=0, device_index=0, device_type=0))


def test_many_streams_share_the_work(device):
    parts = []
    for index in range(40):
        with torch.opencl.stream(torch.opencl.Stream()):
            parts.append(torch.full((1000,), index, device=device))
    torch.opencl.synchronize()
    assert [part[999].item() for part in parts] == list(range(40))


def test_reads_raise_faults_of_their_thread_and_synchronize_raises_all(device):
    torch.opencl.synchronize()
    likelihoods, wrong = torch.zeros(1, 3, device=device), torch.tensor([3], device=device)
    losses = []
    thread = threading.Thread(target=lambda: losses.append(torch.nn.functional.nll_loss(likelihoods, wrong)))
    thread.start()
    thread.join()
    # The default stream is shared: a read does not raise faults of another thread.
    assert torch.ones(2, device=device).tolist() == [1, 1]
    assert losses[0].isnan().item()
    with pytest.raises(IndexError, match=r"Target 3 is out of bounds.*another thread"):
        torch.opencl.synchronize()
    torch.opencl.synchronize()
    torch.nn.functional.nll_loss(likelihoods, wrong)
    with pytest.raises(IndexError, match=r"Target 3 is out of bounds\.$"):
        likelihoods.tolist()


# From cl.h.
OUT_OF_ORDER, PROFILING = 1, 2


def new_queue(context: int, properties: int = 0) -> int:
    """Create a command queue of the current device, as other code would."""
    opencl = ctypes.CDLL("libOpenCL.so.1")
    make = opencl.clCreateCommandQueue
    make.restype = ctypes.c_void_p
    native = torch.ops.torch_opencl
    status = ctypes.c_int()
    queue = make(
        ctypes.c_void_p(context),
        ctypes.c_void_p(native.native_device(0)),
        ctypes.c_ulong(properties),
        ctypes.byref(status),
    )
    if status.value == -35:
        pytest.skip("the driver has no such queues")
    assert status.value == 0
    return queue


def test_a_queue_of_other_code_is_a_stream(device):
    handle = new_queue(torch.ops.torch_opencl.native_context(0), PROFILING)
    stream = torch.opencl.ExternalStream(handle, device)
    assert stream == torch.opencl.get_stream_from_external(handle) != torch.opencl.default_stream()
    assert stream.native_handle == handle and isinstance(stream, torch.opencl.Stream)
    start, end = (torch.opencl.Event(enable_timing=True) for _ in range(2))
    with torch.opencl.stream(stream):
        start.record()
        x = slow_work(device)
        end.record()
        assert torch.opencl.current_stream() == stream
    torch.opencl.current_stream().wait_stream(stream)
    assert x.sum().item() == 1 << 20
    torch.opencl.synchronize()
    assert stream.query() and start.elapsed_time(end) > 0


def test_a_queue_that_this_package_has_lent_is_the_stream_it_was(device):
    for stream in (torch.opencl.Stream(), torch.opencl.default_stream()):
        assert torch.opencl.ExternalStream(stream.native_handle) == stream


def test_an_out_of_order_queue_is_refused(device):
    queue = new_queue(torch.ops.torch_opencl.native_context(0), OUT_OF_ORDER)
    with pytest.raises(RuntimeError, match="out of order"):
        torch.opencl.ExternalStream(queue)


def test_queues_that_tensors_cannot_use_are_refused(device):
    for pointer in (None, "a", 1.5, -1, 2**64):
        with pytest.raises(TypeError, match="a cl_command_queue as an integer"):
            torch.opencl.ExternalStream(pointer)
    with pytest.raises(RuntimeError, match="is null"):
        torch.opencl.ExternalStream(0)
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.opencl.ExternalStream(0, 100)
    opencl = ctypes.CDLL("libOpenCL.so.1")
    opencl.clCreateContext.restype = ctypes.c_void_p
    devices = (ctypes.c_void_p * 1)(torch.ops.torch_opencl.native_device(0))
    other = opencl.clCreateContext(None, 1, devices, None, None, None)
    with pytest.raises(RuntimeError, match=r"another OpenCL context.*torch.opencl.interop.context\(\)"):
        torch.opencl.ExternalStream(new_queue(other))
