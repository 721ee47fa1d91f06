"""Devices: their number, their properties, the current one, and the filter TORCH_OPENCL_DEVICES."""

import json
from pathlib import Path

import pytest
import torch
from processes import NO_DRIVER, output_of, run_python, two_devices

LIST_DEVICES = """
    import json, torch
    print(json.dumps([torch.opencl.get_device_name(i) for i in range(torch.opencl.device_count())]))
"""


def test_there_is_a_device_with_a_name(device):
    assert torch.opencl.is_available()
    assert torch.opencl.device_count() == torch.accelerator.device_count() >= 1
    assert torch.opencl.get_device_name(device) == torch.opencl.get_device_properties(device).name != ""


def test_properties_are_consistent(device):
    properties = torch.opencl.get_device_properties(device)
    assert (properties.major, properties.minor) == torch.opencl.get_device_capability(device) >= (1, 2)
    assert f"OpenCL {properties.major}.{properties.minor}" in properties.version
    assert properties.type in {"gpu", "cpu", "accelerator"}
    assert 0 < properties.max_alloc_bytes <= properties.total_memory
    assert properties.multi_processor_count == properties.compute_units > 0
    assert properties.fp16 == ("cl_khr_fp16" in properties.extensions)
    assert properties.name in repr(properties)


@pytest.mark.parametrize("spell", [torch.device, str, lambda device: torch.device(device).index])
def test_a_device_may_be_spelled_in_three_ways(device, spell):
    torch.opencl.set_device(spell(device))
    with torch.opencl.device(spell(device)):
        assert torch.opencl.current_device() == device.index
    assert torch.opencl.get_device_name(spell(device)) == torch.opencl.get_device_name()


def test_a_device_without_index_is_the_current_one(device):
    assert torch.empty(1, device="opencl").device == device
    assert torch.empty(1).opencl().device == device
    assert torch.empty(1, device=device).is_opencl


def test_contexts_that_select_no_device(device):
    with torch.opencl.device(None), torch.opencl.device(-1), torch.opencl.device_of(torch.empty(1)):
        assert torch.opencl.current_device() == device.index
    with torch.opencl.device_of(torch.empty(1, device=device)):
        assert torch.opencl.current_device() == device.index


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(1, device="opencl:99"),
        lambda: torch.ones(1).to("opencl:99"),
        lambda: torch.opencl.set_device(99),
        lambda: torch.opencl.device(99).__enter__(),
        lambda: torch.opencl.get_device_name(99),
        lambda: torch.opencl.synchronize(99),
        lambda: torch.opencl.Stream(99),
        lambda: torch.opencl.memory_allocated(99),
        lambda: torch.opencl.get_rng_state(99),
    ],
)
def test_an_index_out_of_range_is_an_error_that_names_it(device, use):
    with pytest.raises(RuntimeError, match="99"):
        use()
    assert torch.opencl.current_device() == device.index


@pytest.mark.parametrize("use", [torch.opencl.set_device, torch.opencl.get_device_name, torch.opencl.synchronize])
def test_a_device_of_another_kind_is_refused(use):
    with pytest.raises(ValueError, match="Expected an opencl device"):
        use("cpu")


def test_devices_do_not_read_each_others_memory(device):
    assert not torch.opencl.can_device_access_peer(device, device)
    with pytest.raises(RuntimeError, match="99"):
        torch.opencl.can_device_access_peer(device, 99)


def test_placeholders_for_functions_of_other_backends(device):
    assert torch.opencl.get_arch_list() == []
    assert not torch.opencl.is_current_stream_capturing()


def test_all_public_names_exist():
    assert [name for name in torch.opencl.__all__ if not hasattr(torch.opencl, name)] == []
    assert torch.opencl.__all__ == sorted(torch.opencl.__all__)


def test_names_that_only_other_devices_have_say_what_to_use():
    for name, reason in {"nvtx": "torch.profiler.record_function", "CUDAGraph": "OpenCLGraph"}.items():
        assert not hasattr(torch.opencl, name)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*{reason}"):
            getattr(torch.opencl, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        torch.opencl.nonsense  # noqa: B018


@pytest.mark.parametrize("other", ["cuda", "xpu"])
def test_names_of_other_devices_exist_or_their_lack_is_explained(other):
    from torch_opencl import _refused

    # Some names come from the module's __getattr__.
    ours, theirs = set(dir(torch.opencl)) | set(torch.opencl.__all__), getattr(torch, other)
    # Other backends also export modules and classes that they use themselves.
    public = {
        name
        for name in theirs.__all__
        if not isinstance(getattr(theirs, name), type(torch)) or name in _refused._REASONS
    }
    assert {name for name in public - ours if not _refused.reason(name)} == set()
    page = (Path(__file__).parents[3] / "docs" / "porting.md").read_text()
    assert [name for name in _refused._REASONS if f"{name}`" not in page] == []


def test_the_filter_orders_devices():
    environment = two_devices()
    names = json.loads(output_of(LIST_DEVICES, **environment))
    turned = json.loads(output_of(LIST_DEVICES, **environment, TORCH_OPENCL_DEVICES="1,0"))
    assert turned == [names[1], names[0]]


def test_the_filter_takes_parts_of_names_and_ends_at_an_unknown_one():
    name = torch.opencl.get_device_name(0)
    assert name in json.loads(output_of(LIST_DEVICES, TORCH_OPENCL_DEVICES=f"{name[:6].upper()},nonsense,0"))


def test_a_filter_without_a_match_says_which_devices_there_are():
    done = run_python("import torch; torch.ones(1, device='opencl')", TORCH_OPENCL_DEVICES="nonsense")
    assert done.returncode == 1
    assert "TORCH_OPENCL_DEVICES=nonsense names no device" in done.stderr
    assert torch.opencl.get_device_name(0) in done.stderr


def test_a_filter_that_is_not_utf8_is_refused():
    done = run_python("import torch; torch.ones(1, device='opencl')", TORCH_OPENCL_DEVICES="\udcff\udcfe")
    assert done.returncode == 1
    assert "is not valid UTF-8" in done.stderr


def test_an_empty_filter_hides_every_device():
    done = run_python("-m torch_opencl.info", TORCH_OPENCL_DEVICES="")
    assert done.returncode == 1
    assert "TORCH_OPENCL_DEVICES is empty and so hides every OpenCL device" in done.stdout
    assert "Unset TORCH_OPENCL_DEVICES" in done.stdout and "apt-get install" not in done.stdout


def test_without_a_driver_torch_works_and_says_that_there_is_no_device():
    code = """
        import torch
        assert not torch.opencl.is_available() and torch.opencl.device_count() == 0
        assert not torch.accelerator.is_available()
        torch.manual_seed(0)
        assert torch.ones(2).sum() == 2
        # It waits for the accelerator at its end.
        with torch.profiler.profile() as profile:
            torch.ones(2) + 1
        assert any(event.name == "aten::add" for event in profile.events())
        torch.ones(1, device="opencl")
    """
    done = run_python(code, **NO_DRIVER)
    assert done.returncode == 1
    assert "AssertionError" not in done.stderr
    assert "No OpenCL device was found" in done.stderr
    assert "Install an OpenCL driver" in done.stderr
    assert "OCL_ICD_VENDORS=/nonexistent" in done.stderr
    assert done.stderr.count("python -m torch_opencl.info") == 1


def test_info_without_a_driver_says_what_to_install():
    done = run_python("-m torch_opencl.info", **NO_DRIVER)
    assert done.returncode == 1
    assert "apt-get install" in done.stdout and "OCL_ICD_VENDORS=/nonexistent" in done.stdout
    assert "Traceback" not in done.stderr


def test_info_tests_every_device():
    report = json.loads(output_of("-m torch_opencl.info", "--json"))
    assert report["ok"]
    assert [test["ok"] for test in report["self_test"]] == [True] * torch.opencl.device_count()
    assert report["devices"][0]["name"] == torch.opencl.get_device_name(0)
    assert report["torch"] == torch.__version__


def test_the_backend_is_built_and_available():
    assert torch.backends.opencl.is_built()
    assert torch.backends.opencl.is_available() is torch.opencl.is_available() is True
