"""bitsandbytes' optimizers on the device, compared with their formulas in float64 and with its CPU backend."""

import io
from math import sqrt

import pytest
import torch
from torch import Tensor

bitsandbytes = pytest.importorskip(
    "bitsandbytes", reason="bitsandbytes is not installed: make libraries", exc_type=ImportError
)
functional = bitsandbytes.functional
operators = torch.ops.bitsandbytes

NAMES = ["adam", "ademamix", "momentum", "rmsprop", "adagrad", "lion", "lamb", "lars"]
TWO_STATES = {"adam", "ademamix", "lamb"}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The relative error of a parameter that is rounded once.
ROUNDING = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SETTINGS = {"beta1": 0.9, "beta2": 0.99, "beta3": 0.999, "alpha": 3.0, "eps": 1e-6, "lr": 0.01, "weight_decay": 0.1}
BLOCK = 256


def reference(name: str, g: Tensor, p: Tensor, states: list[Tensor], step: int, max_unorm: float = 0.0):
    """The parameter and the states after a step, and the norm of the update, in float64."""
    beta1, beta2, beta3, alpha, eps, lr, decay = SETTINGS.values()
    g, p, (first, second, slow) = g.double(), p.double(), states
    norm_before = p.norm()
    if name in TWO_STATES or name == "lion":
        p = p * (1 - lr * decay)
    else:
        g = g + decay * p
    if name in TWO_STATES:
        first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
        mean = first / (1 - beta1**step)
        if name == "ademamix":
            slow = beta3 * slow + (1 - beta3) * g
            mean = mean + alpha * slow
        update = mean / ((second / (1 - beta2**step)).sqrt() + eps)
    elif name in ("momentum", "lars"):
        first = update = g if step == 1 else beta1 * first + g
    elif name == "lion":
        update = (beta1 * first + (1 - beta1) * g).sign()
        first = beta2 * first + (1 - beta2) * g
    else:
        first = first + g * g if name == "adagrad" else beta1 * first + (1 - beta1) * g * g
        update = g / (first.sqrt() + eps)
    norm = update.norm().item()
    limit = max_unorm * norm_before.item() + (0 if name in TWO_STATES else eps)
    scale = limit / norm if max_unorm > 0 and norm > limit else 1
    return p - lr * scale * update, [first, second, slow], norm


def gradients(count: int, dtype: torch.dtype, steps: int) -> list[Tensor]:
    return [(torch.randn(count) * 10.0 ** torch.randint(-3, 1, (count,))).to(dtype) for _ in range(steps)]


def run_32bit(name: str, g: Tensor, p: Tensor, states: list[Tensor | None], step: int, **options) -> None:
    state1, state2 = states
    beta1, beta2, beta3, alpha, eps, lr, decay = SETTINGS.values()
    norm = options.get("unorm_vec")
    limit, param_norm = options.get("max_unorm", 0.0), p.float().norm().item()
    means = (beta1, beta2, beta3, alpha, eps, decay, step, lr)
    last = (options.get("gnorm_scale", 1.0), options.get("skip_zeros", False))
    operators.optimizer_update_32bit(name, g, p, state1, state2, norm, limit, param_norm, *means, *last)


def states_32bit(name: str, count: int, device: str) -> list[Tensor | None]:
    first = torch.zeros((2, count) if name == "ademamix" else (count,), device=device)
    return [first, torch.zeros(count, device=device) if name in TWO_STATES else None]


def in_double(states: list[Tensor | None]) -> list[Tensor]:
    """Three states in float64; a state that the optimizer lacks is 0."""
    first, second = (torch.zeros(1) if state is None else state.cpu() for state in states)
    slow = first[1] if first.dim() > 1 else torch.zeros(1)
    return [state.double() for state in (first[0] if first.dim() > 1 else first, second, slow)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_32bit_updates_follow_the_formulas(name, dtype):
    count = 1000
    p = torch.randn(count).to(dtype)
    given, states = p.to("opencl"), states_32bit(name, count, "opencl")
    for step, g in enumerate(gradients(count, dtype, 3), 1):
        before, old = given.cpu(), in_double(states)
        run_32bit(name, g.to("opencl"), given, states, step)
        expected, expected_states, _ = reference(name, g, before, old, step)
        torch.testing.assert_close(given.cpu().double(), expected, rtol=ROUNDING[dtype], atol=1e-6)
        for found, right, limit in zip(in_double(states), expected_states, (1e-6, 1e-10, 1e-6), strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=limit)
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("max_unorm", [0.02, 100.0])
@pytest.mark.parametrize("name", ["lamb", "lars", "rmsprop"])
def test_max_unorm_limits_the_norm_of_an_update(name, max_unorm):
    count = 70000
    p, norm = torch.randn(count), torch.zeros(1, device="opencl")
    given, states = p.to("opencl"), states_32bit(name, count, "opencl")
    for step, g in enumerate(gradients(count, torch.float32, 2), 1):
        before, old = given.cpu(), in_double(states)
        run_32bit(name, g.to("opencl"), given, states, step, unorm_vec=norm, max_unorm=max_unorm)
        expected, _, expected_norm = reference(name, g, before, old, step, max_unorm)
        torch.testing.assert_close(given.cpu().double(), expected, rtol=1e-5, atol=1e-6)
        assert sqrt(norm.item()) == pytest.approx(expected_norm, rel=1e-4)


class Coded:
    """States in codes, and the tensors that belong to them."""

    def __init__(self, name: str, count: int, device: str) -> None:
        slots, blocks = (2 if name == "ademamix" else 1), -(-count // BLOCK)
        self.count, self.has_second = count, name in TWO_STATES
        self.tables = [functional.create_dynamic_map(signed=signed).to(device) for signed in (True, False)]
        self.codes = [torch.zeros((n, count), dtype=torch.uint8, device=device).squeeze(0) for n in (slots, 1)]
        self.scales = [torch.zeros((n, blocks), device=device).squeeze(0) for n in (slots, 1)]
        if not self.has_second:
            self.tables[1:] = self.codes[1:] = self.scales[1:] = [None]

    def run(self, name: str, g: Tensor, p: Tensor, step: int, **options) -> None:
        beta1, beta2, beta3, alpha, eps, lr, decay = SETTINGS.values()
        numbers = (beta1, beta2, beta3, alpha, eps, step, lr)
        last = (decay, options.get("gnorm_scale", 1.0), options.get("skip_zeros", False))
        tensors = (*self.tables, *self.scales)
        operators.optimizer_update_8bit_blockwise(name, g, p, *self.codes, *numbers, *tensors, *last)

    def decoded(self) -> list[Tensor]:
        """Three states in float64; a state that the optimizer lacks is 0."""
        values = []
        for table, codes, scales in zip(self.tables, self.codes, self.scales, strict=True):
            if table is None:
                values.append(torch.zeros(1, self.count, dtype=torch.double))
                continue
            wide = scales.cpu().double().repeat_interleave(BLOCK, -1)[..., : self.count]
            values.append((table.cpu().double()[codes.cpu().int()] * wide).reshape(-1, self.count))
        return [values[0][0], values[1][0], values[0][-1]]

    def check(self, states: list[Tensor]) -> None:
        for kind, kept in enumerate(([states[0], states[2]], [states[1]])):
            if self.tables[kind] is not None:
                codes = self.codes[kind].cpu().reshape(-1, self.count)
                scales = self.scales[kind].cpu().reshape(len(codes), -1)
                for state, row, tops in zip(kept, codes, scales, strict=False):
                    check_codes(state, self.tables[kind].cpu(), row, tops)


def check_codes(state: Tensor, table: Tensor, codes: Tensor, scales: Tensor) -> None:
    """The scales are the largest magnitudes; a code is the nearest one, or the next one with the state's sign."""
    tops = torch.nn.functional.pad(state, (0, -state.numel() % BLOCK)).view(-1, BLOCK).abs().amax(1)
    torch.testing.assert_close(scales.double(), tops, rtol=1e-5, atol=1e-30)
    share = state / scales.double().repeat_interleave(BLOCK)[: state.numel()].clamp(min=1e-30)
    nearest = (share[:, None] - table.double()).abs().argmin(1)
    steps = (codes.int() - nearest).abs()
    assert steps.max() <= 1
    # The others lie between two values, or are negative and nearest to 0.
    middle = (table.double()[codes.int()] + table.double()[nearest]) / 2
    keeps_sign = (share < 0) & (table[nearest] == 0)
    assert ((steps == 0) | keeps_sign | torch.isclose(share, middle, rtol=1e-4)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_8bit_updates_follow_the_formulas(name, dtype):
    for count in (1, 1000, 1024):
        p = torch.randn(count).to(dtype)
        given, coded = p.to("opencl"), Coded(name, count, "opencl")
        for step, g in enumerate(gradients(count, dtype, 3), 1):
            before, old = given.cpu(), coded.decoded()
            coded.run(name, g.to("opencl"), given, step)
            expected, states, _ = reference(name, g, before, old, step)
            torch.testing.assert_close(given.cpu().double(), expected, rtol=ROUNDING[dtype], atol=1e-6)
            coded.check(states)
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("name", NAMES)
def test_8bit_updates_are_those_of_the_cpu(name):
    count = 5000
    p = torch.randn(count)
    given, expected = p.to("opencl"), p.clone()
    coded, coded_on_cpu = Coded(name, count, "opencl"), Coded(name, count, "cpu")
    g = gradients(count, torch.float32, 1)[0]
    coded.run(name, g.to("opencl"), given, 1)
    coded_on_cpu.run(name, g, expected, 1)
    torch.testing.assert_close(given.cpu(), expected, rtol=1e-5, atol=1e-6)
    for table, *codes in zip(coded_on_cpu.tables, coded.codes, coded_on_cpu.codes, strict=True):
        if table is not None:
            found, right = (each.cpu().int() for each in codes)
            # Near 0 the CPU's codes are not the nearest ones.
            assert (((found - right).abs() <= 1) | ((table[found] - table[right]).abs() < 3e-5)).all()


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("name", ["adam", "ademamix", "momentum", "lion"])
def test_gradients_are_scaled_and_zeros_are_skipped(name, bits):
    count = 512
    g, p = torch.randn(count).to("opencl"), torch.randn(count).to("opencl")
    # Block 0 has no zeros, block 1 has nothing else.
    g[BLOCK:] = 0
    results = []
    for given, scale in ((g, 0.5), (g * 0.5, 1.0)):
        after, options = p.clone(), {"gnorm_scale": scale, "skip_zeros": True}
        if bits == 8:
            Coded(name, count, "opencl").run(name, given, after, 1, **options)
        else:
            run_32bit(name, given, after, states_32bit(name, count, "opencl"), 1, **options)
        results.append(after)
    assert torch.equal(*results)
    assert torch.equal(results[0][BLOCK:], p[BLOCK:])
    assert (results[0][:BLOCK] != p[:BLOCK]).all()


def test_gradients_that_are_not_finite_reset_states_of_adam_and_reach_parameters_of_momentum():
    count = 300
    g, p = torch.randn(count), torch.randn(count)
    bad = torch.tensor([3, 40, 299])
    g[bad] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    after, coded = p.to("opencl"), Coded("adam", count, "opencl")
    coded.run("adam", g.to("opencl"), after, 1)
    assert torch.equal(after.cpu()[bad], p[bad])
    assert all((state[bad] == 0).all() for state in coded.decoded())
    g[bad] = torch.nan
    after, coded = p.to("opencl"), Coded("momentum", count, "opencl")
    coded.run("momentum", g.to("opencl"), after, 1)
    assert after.isnan().nonzero().reshape(-1).tolist() == bad.tolist()


def test_states_with_other_strides_keep_the_order_of_elements():
    shape, results = (16, 8, 5, 5), []
    start, g = torch.randn(shape), torch.randn(shape)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        p = torch.nn.Parameter(start.to("opencl", memory_format=memory_format))
        optimizer = bitsandbytes.optim.Adam([p], lr=0.01)
        for _ in range(2):
            p.grad = g.to("opencl")
            optimizer.step()
        results.append((p.detach().cpu(), optimizer.state[p]["state1"].cpu()))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_wrong_arguments_raise_errors_with_the_optimizer_dtype_and_shape():
    p, g = torch.zeros(300, device="opencl"), torch.zeros(300, device="opencl")
    start = r"bitsandbytes::optimizer_update_8bit_blockwise: adam of a parameter of torch\.float32, shape \(300,\): "
    with pytest.raises(RuntimeError, match=start + r"g is torch\.float16 of shape \(300,\), but has to be"):
        Coded("adam", 300, "opencl").run("adam", g.half(), p, 1)
    with pytest.raises(RuntimeError, match=start + r"state1 is torch\.uint8 of shape \(299,\)"):
        Coded("adam", 299, "opencl").run("adam", g, p, 1)
    with pytest.raises(RuntimeError, match=start + r"state2 is missing"):
        Coded("lion", 300, "opencl").run("adam", g, p, 1)
    with pytest.raises(RuntimeError, match=start + r"state1 is on cpu, and the parameter is on opencl:0"):
        Coded("adam", 300, "cpu").run("adam", g, p, 1)
    with pytest.raises(RuntimeError, match=r"adam of a parameter of torch\.float64, shape \(300,\): parameters are"):
        Coded("adam", 300, "opencl").run("adam", g.double(), p.double(), 1)
    with pytest.raises(RuntimeError, match=r"optimizer_update_32bit: sgd of .*: the optimizers are adam, lamb"):
        run_32bit("sgd", g, p, [g.clone(), None], 1)


def model(has_8bit_layers: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    linear = bitsandbytes.nn.Linear8bitLt if has_8bit_layers else torch.nn.Linear
    return torch.nn.Sequential(linear(64, 128), torch.nn.ReLU(), linear(128, 64)).to("opencl")


def train(layers: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, device: str = "opencl") -> list[float]:
    torch.manual_seed(1)
    x, losses = torch.randn(32, 64).to(device), []
    for _ in range(steps):
        loss = (layers(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


RATES = {
    **{"Adam8bit": 3e-3, "AdamW8bit": 3e-3, "Adam": 3e-3, "LAMB8bit": 3e-3, "LAMB": 3e-2, "PagedAdamW8bit": 3e-3},
    **{"AdEMAMix8bit": 1e-3, "AdEMAMix": 1e-3, "Lion8bit": 1e-3, "Lion": 1e-3, "PagedLion8bit": 1e-3},
    **{"RMSprop8bit": 1e-3, "RMSprop": 1e-3, "Adagrad8bit": 1e-2, "Adagrad": 1e-2},
    **{"SGD8bit": 0.5, "SGD": 0.5, "LARS8bit": 0.5, "LARS": 0.5},
}


@pytest.mark.parametrize("name", RATES)
def test_optimizers_train_on_the_device(name):
    layers = model()
    options = {"momentum": 0.9} if name.startswith(("SGD", "LARS")) else {}
    optimizer = getattr(bitsandbytes.optim, name)(layers.parameters(), lr=RATES[name], **options)
    losses = train(layers, optimizer, 20)
    assert losses[-1] < 0.8 * losses[0]
    assert torch.opencl.fallbacks() == {}


def test_paged_optimizers_keep_their_states_on_the_device():
    p = torch.nn.Parameter(torch.randn(400, 300, device="opencl"))
    for name in ("PagedAdamW8bit", "PagedAdEMAMix8bit"):
        optimizer = getattr(bitsandbytes.optim, name)([p])
        p.grad = torch.randn_like(p)
        with pytest.warns(UserWarning, match=r"paged optimizers keep their states in device memory on opencl devices"):
            optimizer.step()
        assert {state.device for state in optimizer.state[p].values() if isinstance(state, Tensor)} == {p.device}


@pytest.mark.parametrize("name", ["Adam8bit", "AdEMAMix8bit", "Adam"])
def test_saved_states_continue_here_and_on_the_cpu(name):
    layers = model()
    optimizer = getattr(bitsandbytes.optim, name)(layers.parameters(), lr=1e-3)
    train(layers, optimizer, 3)
    file = io.BytesIO()
    torch.save({"layers": layers.state_dict(), "optimizer": optimizer.state_dict()}, file)
    expected = train(layers, optimizer, 3)
    for device, tolerance in (("opencl", 0), ("cpu", 1e-3)):
        file.seek(0)
        saved = torch.load(file, map_location="cpu")
        again = model().to(device)
        again.load_state_dict(saved["layers"])
        other = getattr(bitsandbytes.optim, name)(again.parameters(), lr=1e-3)
        other.load_state_dict(saved["optimizer"])
        assert train(again, other, 3, device) == pytest.approx(expected, rel=tolerance, abs=0)
    # Back from the CPU to the device.
    back, third = model(), None
    back.load_state_dict(again.state_dict())
    third = getattr(bitsandbytes.optim, name)(back.parameters(), lr=1e-3)
    third.load_state_dict(other.state_dict())
    assert train(back, third, 2) == pytest.approx(train(again, other, 2, "cpu"), rel=1e-3)


@pytest.mark.parametrize("threshold", [0.0, 2.0])
def test_linear8bit_with_float16_weights_trains(threshold):
    layers = model(has_8bit_layers=True).half()
    for layer in layers[::2]:
        layer.state.threshold = threshold
    x, losses = torch.randn(32, 64).half().to("opencl"), []
    optimizer = bitsandbytes.optim.Adam8bit(layers.parameters(), lr=3e-3)
    for _ in range(20):
        # The layers quantise a weight again if it has no gradient. The gradients are not checked: bitsandbytes scales
        # rows' codes of the output's gradient by scales of columns.
        optimizer.zero_grad()
        loss = (layers(x) - x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("threshold", [0.0, 2.0])
def test_quantised_rows_and_columns_are_those_of_the_cpu(threshold):
    a = torch.randn(20, 48).half()
    a[3], a[:, 5] = 0, 0
    found = functional.int8_double_quant(a.to("opencl"), threshold=threshold)
    row_codes, row_tops, outliers = functional.int8_vectorwise_quant(a.to("opencl"), threshold=threshold)
    kept = a.float().masked_fill(a.abs() >= threshold, 0) if threshold > 0 else a.float()
    columns = (a.abs() >= threshold).any(0).nonzero().reshape(-1) if threshold > 0 else None
    for codes, tops, axis in ((found[0], found[2], 1), (found[1], found[3], 0), (row_codes, row_tops, 1)):
        expected_tops = kept.abs().amax(axis, keepdim=True)
        torch.testing.assert_close(tops.cpu(), expected_tops.reshape(-1))
        expected = kept * 127 / expected_tops.clamp(min=1e-30)
        if axis == 1 and columns is not None:
            expected[:, columns] = 0
        assert (codes.cpu() - expected).abs().max() <= 0.5 + 1e-4
    for indices in (found[4], outliers):
        assert (indices is None) == (columns is None)
        assert columns is None or indices.tolist() == columns.tolist()
