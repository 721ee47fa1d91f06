"""Graphs: work that is captured once and replayed, with its own memory and random values."""

import gc

import pytest
import torch
import torch.nn.functional as F
from threads import in_threads


def captured(function, **options):
    """Capture a function without arguments; return the graph and the function's result."""
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph, **options):
        result = function()
    return graph, result


def test_a_replay_computes_with_the_values_that_its_inputs_have_then(device):
    x = torch.zeros(1000, device=device)
    graph, (y, total) = captured(lambda: (x * 2 + 1, (x * 2 + 1).sum()))
    for value in (0.0, 3.0, -1.5):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y.cpu(), torch.full((1000,), 2 * value + 1))
        assert total.item() == 1000 * (2 * value + 1)


def test_nothing_runs_while_it_is_captured(device):
    x = torch.ones(8, device=device)
    graph, _ = captured(lambda: x.add_(1))
    assert x.tolist() == [1.0] * 8
    graph.replay()
    graph.replay()
    assert x.tolist() == [3.0] * 8


def test_launches_copies_fills_and_work_over_several_kernels_are_captured(device):
    torch.manual_seed(0)
    x = torch.randn(64, 96)
    functions = {
        "matmul": lambda x: x @ x.t(),
        "softmax": lambda x: x.softmax(-1),
        "sort": lambda x: x.sort(dim=1).values,
        "cumsum": lambda x: x.cumsum(0),
        "copies": lambda x: torch.cat([x[:, ::2].clone(), torch.zeros_like(x), x.t().contiguous().t()], 1),
        "conv": lambda x: F.conv2d(x[None, None], x[None, None, :3, :3], padding=1),
        "fft": lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
        "topk": lambda x: x.topk(5, dim=1).values,
        "layer_norm": lambda x: F.layer_norm(x, (96,)),
        "foreach": lambda x: torch.stack(torch._foreach_mul([x, x + 1], 2.0)),
        "gather": lambda x: x.gather(1, (x > 0).long()),
        "scatter": lambda x: torch.zeros_like(x).scatter_add(1, (x > 0).long(), x),
        "numbers of the host": lambda x: torch.where(x > 0, x, 0.5).masked_fill(x > 1, 2.0) * torch.tensor(3.0),
    }
    for name, function in functions.items():
        static = torch.zeros_like(x, device=device)
        function(static)
        graph, result = captured(lambda function=function, static=static: function(static))
        static.copy_(x)
        graph.replay()
        torch.testing.assert_close(
            result.cpu(), function(x), rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_streams_say_whether_they_capture(device, side_stream):
    assert not torch.opencl.is_current_stream_capturing()
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph, stream=side_stream):
        assert torch.opencl.is_current_stream_capturing()
        assert torch.opencl.current_stream() == side_stream
    assert not torch.opencl.is_current_stream_capturing()


def test_work_of_other_streams_continues_and_is_not_captured(device):
    x, y = torch.zeros(8, device=device), torch.zeros(8, device=device)
    default = torch.opencl.current_stream()
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        x.add_(1)
        with torch.opencl.stream(default):
            y.add_(1)
            assert y.tolist() == [1.0] * 8
    graph.replay()
    assert x.tolist() == y.tolist() == [1.0] * 8


def test_a_stream_that_waits_for_a_capture_joins_it(device, side_stream):
    x = torch.arange(8.0, device=device)

    def fork():
        main = torch.opencl.current_stream()
        a = x * 2
        side_stream.wait_stream(main)
        with torch.opencl.stream(side_stream):
            assert torch.opencl.is_current_stream_capturing()
            b = a + 1
        main.wait_stream(side_stream)
        return a * b

    graph, result = captured(fork)
    with torch.opencl.stream(side_stream):
        assert not torch.opencl.is_current_stream_capturing()
    x.fill_(3)
    graph.replay()
    assert result.tolist() == [42.0] * 8


def test_memory_stays_reserved_while_the_graph_lives(device):
    x = torch.ones(1 << 20, device=device)

    def chain():
        y = x
        for _ in range(8):
            y = y + 1
        return y

    torch.opencl.synchronize()
    torch.opencl.empty_cache()
    before = torch.opencl.memory_reserved()
    graph, y = captured(chain)
    held = torch.opencl.memory_reserved() - before
    # Three tensors of 4 MB are enough; eight would be 32 MB.
    assert 0 < held <= 20 << 20
    others = [torch.full((1 << 20,), 7.0, device=device) for _ in range(16)]
    torch.opencl.empty_cache()
    graph.replay()
    assert y[0].item() == 9
    assert all(other.eq(7).all() for other in others)
    del others, y, graph
    gc.collect()
    torch.opencl.empty_cache()
    assert torch.opencl.memory_reserved() <= before


def test_graphs_share_a_pool_by_its_handle(device):
    pool = torch.opencl.graph_pool_handle()
    assert pool != torch.opencl.graph_pool_handle()
    x = torch.ones(1 << 20, device=device)
    torch.opencl.empty_cache()
    first, y = captured(lambda: (x + 1) * 2, pool=pool)
    held = torch.opencl.memory_reserved()
    second, z = captured(lambda: (y + 1) * 2, pool=first.pool())
    assert first.pool() == second.pool() == pool
    assert torch.opencl.memory_reserved() == held
    first.replay()
    second.replay()
    assert (y[0].item(), z[0].item()) == (4, 10)
    other, _ = captured(lambda: x + 1)
    assert other.pool() != pool


def test_replaying_with_freed_inputs_does_not_end_the_process(device):
    x = torch.ones(6 << 20, device=device)
    inputs = [x]
    graph, y = captured(lambda: inputs[0] + 1)
    del x, inputs[:]
    gc.collect()
    torch.opencl.empty_cache()
    graph.replay()
    torch.opencl.synchronize()
    assert y.shape == (6 << 20,)


def test_replays_draw_the_random_values_of_eager_calls(device):
    def draws():
        return torch.rand(100, device=device), torch.randn(7, device=device), torch.randint(0, 99, (50,), device=device)

    torch.manual_seed(5)
    expected = [tuple(drawn.cpu() for drawn in draws()) for _ in range(3)]
    state = torch.opencl.get_rng_state()
    torch.manual_seed(5)
    graph, results = captured(draws)
    for eager in expected:
        graph.replay()
        assert all(torch.equal(result.cpu(), drawn) for result, drawn in zip(results, eager, strict=True))
    assert torch.equal(torch.opencl.get_rng_state(), state)
    torch.manual_seed(5)
    graph.replay()
    assert torch.equal(results[0].cpu(), expected[0][0])


def test_a_generator_lives_as_long_as_the_graphs_that_draw_from_it(device):
    generators = [torch.Generator(device)]
    generators[0].manual_seed(11)
    expected = [torch.rand(9, device=device, generator=generators[0]).cpu() for _ in range(2)]
    generators[0].manual_seed(11)
    graph, result = captured(lambda: torch.rand(9, device=device, generator=generators[0]))
    generators.clear()
    gc.collect()
    for eager in expected:
        graph.replay()
        assert torch.equal(result.cpu(), eager)


def test_dropout_in_attention_is_that_of_the_replay_in_its_backward_pass_too(device):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 16, 8, device=device, requires_grad=True) for _ in range(3))

    def step():
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        return out, *torch.autograd.grad(out.square().sum(), (q, k, v))

    torch.manual_seed(3)
    expected = [[each.detach().cpu() for each in step()] for _ in range(2)]
    torch.manual_seed(3)
    graph, results = captured(step)
    for eager in expected:
        graph.replay()
        for result, each in zip(results, eager, strict=True):
            torch.testing.assert_close(result.detach().cpu(), each)


REFUSED = {
    "item": lambda x: x.sum().item(),
    "copy to the host": lambda x: x.cpu(),
    "copy from the host": lambda x: x.copy_(torch.ones(4, 4)),
    "synchronize": lambda x: torch.opencl.synchronize(),
    "stream": lambda x: torch.opencl.current_stream().synchronize(),
    "query": lambda x: torch.opencl.current_stream().query(),
    "nonzero": lambda x: x.nonzero(),
    "an operator of the host": torch.linalg.eigvals,
    "event": lambda x: torch.opencl.current_stream().record_event().synchronize(),
    "a capture": lambda x: torch.opencl.OpenCLGraph().capture_begin(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_uncapturable_work_is_an_error_and_the_stream_remains_usable(device, name):
    x = torch.eye(4, device=device)
    graph = torch.opencl.OpenCLGraph()
    with pytest.raises(RuntimeError, match="while a graph is captured"), torch.opencl.graph(graph):
        x.add_(1)
        REFUSED[name](x)
    assert not torch.opencl.is_current_stream_capturing()
    assert x.sum().item() == 4
    with pytest.raises(RuntimeError, match="before it has been captured"):
        graph.replay()
    with torch.opencl.graph(graph):
        x.add_(1)
    graph.replay()
    assert x.sum().item() == 20


def test_nested_captures_are_refused(device):
    outer, inner = torch.opencl.OpenCLGraph(), torch.opencl.OpenCLGraph()
    with (
        pytest.raises(RuntimeError, match="another capture began"),
        torch.opencl.graph(outer),
        torch.opencl.graph(inner),
    ):
        pass
    assert not torch.opencl.is_current_stream_capturing()


def test_an_error_that_the_block_catches_is_raised_at_its_end(device):
    x = torch.ones(4, device=device)
    graph = torch.opencl.OpenCLGraph()

    def block():
        with torch.opencl.graph(graph):
            try:
                x.tolist()
            except RuntimeError:
                x.add_(1)

    with pytest.raises(RuntimeError, match="while a graph is captured"):
        block()
    assert x.tolist() == [1.0] * 4


def test_captures_and_replays_out_of_turn_are_refused(device, side_stream):
    graph = torch.opencl.OpenCLGraph()
    for call in (graph.replay, graph.capture_end, graph.pool, graph.instantiate):
        with pytest.raises(RuntimeError, match="OpenCL"):
            call()
    with pytest.raises(RuntimeError, match="default stream"):
        graph.capture_begin()
    with pytest.raises(ValueError, match="capture_error_mode"):
        graph.capture_begin(capture_error_mode="strict")
    x = torch.ones(4, device=device)
    with torch.opencl.graph(graph, stream=side_stream):
        x.add_(1)
    with pytest.raises(RuntimeError, match="captured already"), torch.opencl.stream(side_stream):
        graph.capture_begin()
    with (
        pytest.raises(RuntimeError, match="another graph was replayed"),
        torch.opencl.graph(torch.opencl.OpenCLGraph()),
    ):
        graph.replay()
    graph.reset()
    graph.reset()
    with pytest.raises(RuntimeError, match="captured"):
        graph.replay()


def test_a_graph_that_is_dropped_in_its_capture_ends_it(device, side_stream):
    with torch.opencl.stream(side_stream):
        graph = torch.opencl.OpenCLGraph()
        graph.capture_begin()
        torch.ones(4, device=device)
        del graph
        gc.collect()
        assert not torch.opencl.is_current_stream_capturing()
        assert torch.ones(4, device=device).sum().item() == 4


def test_out_of_memory_in_a_capture_is_an_error_and_leaves_nothing(device):
    x = torch.ones(4, device=device)
    torch.opencl.empty_cache()
    before = torch.opencl.memory_reserved()
    with pytest.raises(RuntimeError), torch.opencl.graph(torch.opencl.OpenCLGraph()):
        x + 1
        torch.empty(1 << 50, device=device)
    torch.opencl.empty_cache()
    assert torch.opencl.memory_reserved() <= before


def test_bad_input_of_a_replay_is_raised_when_the_host_waits(device):
    table, index = torch.arange(10.0, device=device), torch.zeros(4, dtype=torch.long, device=device)
    graph, result = captured(lambda: F.nll_loss(table[None].expand(4, 10), index))
    graph.replay()
    assert result.item() == 0
    index.fill_(12)
    graph.replay()
    with pytest.raises(IndexError, match="12"):
        torch.opencl.synchronize()
    index.fill_(3)
    graph.replay()
    assert result.item() == -3


def test_indices_out_of_range_are_found_in_replays(device):
    table, index = torch.arange(10.0, device=device), torch.zeros(4, dtype=torch.long, device=device)
    graph, result = captured(lambda: table[index])
    index.fill_(7)
    graph.replay()
    assert result.tolist() == [7.0] * 4
    index.fill_(10)
    graph.replay()
    with pytest.raises(IndexError, match="index 10 is out of bounds for dimension with size 10"):
        torch.opencl.synchronize()
    with pytest.raises(IndexError, match="index 10 is out of bounds for dimension 0 with size 10"):
        table[index]


def test_graphs_are_replayed_by_other_threads_and_on_other_streams(device, side_stream):
    x = torch.zeros(100, device=device)
    graph, _ = captured(lambda: x.add_(1))
    torch.opencl.synchronize()

    def replay(_: int) -> None:
        with torch.opencl.stream(side_stream):
            for _ in range(50):
                graph.replay()

    in_threads(3, replay)
    torch.opencl.synchronize()
    assert x.tolist() == [150.0] * 100


def test_long_graphs_and_many_replays(device):
    x = torch.zeros(16, device=device)

    def long():
        for _ in range(1500):
            x.add_(1)

    graph, _ = captured(long)
    for _ in range(20):
        graph.replay()
    assert x.tolist() == [30000.0] * 16


def test_a_graph_is_written_as_text(device, tmp_path):
    x = torch.zeros(16, device=device)
    graph, _ = captured(lambda: (x + 1).clone().zero_())
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.txt"))
    lines = (tmp_path / "graph.txt").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("0: ")
    with pytest.raises(RuntimeError, match="cannot be written"):
        graph.debug_dump(str(tmp_path / "missing" / "graph.txt"))
