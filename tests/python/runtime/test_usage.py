"""Device utilisation, as torch.cuda reports it, if the operating system provides it."""

import pytest
import torch


def test_utilisation_of_a_cpu_device_comes_from_the_operating_system(device):
    properties = torch.opencl.get_device_properties(device)
    if properties.type != "cpu" or not properties.host_unified_memory:
        with pytest.raises(RuntimeError, match="the operating system has it only for devices that are the host's"):
            torch.opencl.utilization(device)
        return
    assert 0 <= torch.opencl.utilization(device) <= 100
    assert 0 <= torch.opencl.memory_usage(device) <= 100
    assert torch.opencl.device_memory_used(device) > 2**20


def test_statistics_have_their_older_names_and_nested_forms(device):
    torch.ones(1000, device=device)
    assert torch.opencl.memory_cached() == torch.opencl.memory_reserved()
    nested = torch.opencl.host_memory_stats_as_nested_dict()
    for name, value in torch.opencl.host_memory_stats().items():
        inner = nested
        for part in name.split("."):
            inner = inner[part]
        assert inner == value
