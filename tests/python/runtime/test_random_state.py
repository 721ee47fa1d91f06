"""Random state: seeds, states, generators. (The operators' tests check the drawn values.)"""

import pytest
import torch
from processes import output_of


def draw(device: torch.device, generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.rand(100, device=device, generator=generator).cpu()


def test_a_seed_repeats_the_values(device):
    torch.manual_seed(5)
    first = draw(device)
    assert not draw(device).equal(first)
    torch.manual_seed(5)
    assert draw(device).equal(first)
    torch.opencl.manual_seed(5)
    assert draw(device).equal(first)
    torch.opencl.manual_seed_all(6)
    assert torch.opencl.initial_seed() == 6
    assert not draw(device).equal(first)


def test_a_random_seed_changes_the_values(device):
    seed = torch.opencl.seed()
    assert torch.opencl.initial_seed() == seed
    first = draw(device)
    torch.opencl.seed_all()
    assert not draw(device).equal(first)


def test_a_restored_state_repeats_the_values(device):
    draw(device)
    state = torch.opencl.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = draw(device)
    torch.opencl.set_rng_state(state, device)
    assert draw(device).equal(first)
    states = torch.opencl.get_rng_state_all()
    second = draw(device)
    torch.opencl.set_rng_state_all(states)
    assert draw(device).equal(second)


def test_an_invalid_state_is_refused(device):
    with pytest.raises(RuntimeError, match="RNG state"):
        torch.opencl.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        torch.opencl.set_rng_state(torch.zeros(16))


def test_fork_rng_leaves_no_trace(device):
    state = torch.opencl.get_rng_state()
    with torch.random.fork_rng(devices=[device.index], device_type="opencl"):
        torch.manual_seed(99)
        draw(device)
    assert torch.opencl.get_rng_state().equal(state)


def test_generators_are_independent(device):
    first = torch.Generator(device=device).manual_seed(1)
    second = torch.Generator(device="opencl").manual_seed(1)
    assert first.device == device and second.initial_seed() == 1
    state = torch.opencl.get_rng_state()
    numbers = draw(device, first)
    assert draw(device, second).equal(numbers)
    assert torch.opencl.get_rng_state().equal(state)
    assert not draw(device, first).equal(numbers)
    first.set_state(torch.Generator(device=device).manual_seed(1).get_state())
    assert draw(device, first).equal(numbers)


def test_a_generator_can_be_cloned_and_moved_to_an_offset(device):
    generator = torch.Generator(device=device).manual_seed(3)
    draw(device, generator)
    twin = generator.clone_state()
    assert draw(device, twin).equal(draw(device, generator))
    generator.set_offset(0)
    assert generator.get_offset() == 0
    assert draw(device, generator).equal(draw(device, torch.Generator(device=device).manual_seed(3)))


def test_the_default_generators_are_a_tuple(device):
    generators = torch.opencl.default_generators
    assert len(generators) == torch.opencl.device_count()
    assert generators[device.index].device == device
    generators[device.index].manual_seed(8)
    assert torch.opencl.initial_seed() == 8


def test_a_generator_of_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        draw(device, torch.Generator())


def test_seeds_set_before_the_first_use_apply():
    code = """
        import torch
        torch.manual_seed(11)
        assert not torch.opencl.is_initialized()
        first = torch.rand(5, device="opencl").cpu()
        assert torch.opencl.is_initialized()
        torch.opencl.manual_seed(11)
        assert torch.rand(5, device="opencl").cpu().equal(first)
        print("ok")
    """
    assert output_of(code) == "ok"
