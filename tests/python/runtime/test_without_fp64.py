"""Devices without float64: its tensors can be stored there, and everything else is refused."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from float64 import has_fp64
from processes import run_python

TESTS = Path(__file__).parents[2]

without_fp64 = pytest.mark.skipif(
    has_fp64(), reason="the device computes in float64 (`make test DRIVER=rusticl` has one that does not)"
)

# Calls that need float64 or complex128, and the operator that PyTorch runs for each.
REFUSED = {
    "to": ("_copy_from", lambda x: x.to(torch.float64)),
    "to, from integers": ("_copy_from", lambda x: x.int().to(torch.float64)),
    "to, of a number in memory": ("_copy_from", lambda x: x[0].to(torch.complex128)),
    "to, of columns": ("_copy_from", lambda x: x.expand(3, 4).t().to(torch.float64)),
    "copy_": ("_copy_from", lambda x: torch.empty_like(x, dtype=torch.float64).copy_(x)),
    "copy_, from float64": ("_copy_from", lambda x: x.copy_(doubles().to(x.device))),
    "comparison": ("lt", lambda x: doubles().to(x.device) < x),
    "add": ("add", lambda x: x + doubles().to(x.device)),
    "complex product": ("mul", lambda x: doubles().to(torch.complex128).to(x.device) * 2),
    "in place": ("mul_", lambda x: doubles().to(x.device).mul_(2)),
    "into a tensor": ("exp", lambda x: torch.exp(doubles().to(x.device), out=doubles().to(x.device))),
    "sum": ("sum", lambda x: x.sum(dtype=torch.float64)),
    "any": ("any", lambda x: doubles().to(x.device).any()),
    "matmul": ("mm", lambda x: doubles().view(2, 2).to(x.device) @ doubles().view(2, 2).to(x.device)),
    "_foreach_copy_": ("_foreach_copy_", lambda x: torch._foreach_copy_([x.new_empty(4, dtype=torch.float64)], [x])),
    "random_": ("random_", lambda x: torch.empty_like(x, dtype=torch.float64).random_(9)),
    "bernoulli_": ("bernoulli_", lambda x: torch.empty_like(x, dtype=torch.float64).bernoulli_(x)),
    "softmax": ("_copy_from", lambda x: x.softmax(0, dtype=torch.float64)),
    "arange": ("arange", lambda x: torch.arange(4, dtype=torch.float64, device=x.device)),
}


# Python scalars are float64 in PyTorch, which is not a reason to compute in it.
TAKEN = {
    "a number to the power of floats": lambda x: 2.5**x,
    "a number to the power of halves": lambda x: torch.pow(2.5, x.half(), out=torch.empty_like(x, dtype=torch.half)),
    "a number to the power of complex numbers": lambda x: 2.5 ** torch.complex(x, x),
    "logspace": lambda x: torch.logspace(0, 2, 5, dtype=torch.bfloat16, device=x.device),
    "a product": lambda x: x.half() * 2.5 + torch.tensor(0.1, dtype=torch.float64),
}


def doubles() -> torch.Tensor:
    return torch.ones(4, dtype=torch.float64)


@without_fp64
@pytest.mark.parametrize("name", REFUSED)
def test_conversions_and_arithmetic_are_refused_by_name(device: torch.device, name: str) -> None:
    op, call = REFUSED[name]
    with pytest.raises(NotImplementedError) as raised:
        call(torch.full((4,), 0.5, device=device))
    dtype, instead = ("complex128", "complex64") if "complex128" in str(raised.value) else ("float64", "float32")
    on = torch.opencl.get_device_properties().name
    expected = f"aten::{op}: OpenCL: '{on}' does not compute in torch.{dtype}. Use torch.{instead} instead."
    assert str(raised.value).splitlines()[0] == expected


@without_fp64
@pytest.mark.parametrize("name", TAKEN)
def test_scalars_of_the_host_need_no_float64(device: torch.device, name: str) -> None:
    assert TAKEN[name](torch.full((4,), 0.5, device=device)).device == device


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64, torch.int64], ids=str)
def test_tensors_are_printed_as_those_of_the_cpu(device: torch.device, dtype: torch.dtype) -> None:
    for host in ((torch.randn(5, 3) * 1000).to(dtype), torch.full((), 1.5).to(dtype), torch.ones(2000).to(dtype)):
        assert str(host.to(device)).startswith(str(host).partition(", dtype")[0].removesuffix(")"))


@without_fp64
def test_compiled_graphs_take_cpu_scalars(device: torch.device) -> None:
    x = torch.randn(70)
    compiled = torch.compile(lambda x, number: x * number)
    for number in (2.5, -1e-30, 1 / 3, -0.0, 1e38):
        for scale in (torch.tensor(number), torch.tensor(number, dtype=torch.float64)):
            torch.testing.assert_close(compiled(x.to(device), scale).cpu(), x * scale)


# As strings: a refused test with such a dtype as parameter would be skipped.
@without_fp64
@pytest.mark.parametrize("name", ("float64", "complex128"))
def test_elements_are_kept(device: torch.device, name: str) -> None:
    host = torch.randn(5, 7, dtype=getattr(torch, name))
    there = host.to(device)
    assert torch.equal(there.cpu(), host)
    assert torch.equal(there[1:, 2].cpu(), host[1:, 2])
    assert torch.equal(there.clone().cpu(), host)


@without_fp64
@pytest.mark.parametrize("name", ("float64", "complex128"))
def test_fill(device: torch.device, name: str) -> None:
    dtype = getattr(torch, name)
    number = -0.1 if dtype == torch.float64 else complex(-0.1, 0.3)
    full = torch.full((5, 7), number, dtype=dtype, device=device)
    assert torch.equal(full.cpu(), torch.full((5, 7), number, dtype=dtype))
    host, there = torch.zeros(5, 7, dtype=dtype), torch.zeros(5, 7, dtype=dtype, device=device)
    for tensor in (host, there):
        tensor[1:, 2::2].fill_(number)
        tensor.t()[-1].fill_(torch.inf)
        tensor[0, :2].zero_()
    assert torch.equal(there.cpu(), host)


@without_fp64
@pytest.mark.parametrize("name", ("float64", "complex128"))
def test_deterministic_algorithms_fill_new_memory(device: torch.device, name: str) -> None:
    host = torch.randn(5, 7, dtype=getattr(torch, name))
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(host.to(device).t().cpu(), host.t())
        assert torch.empty(3, dtype=host.dtype, device=device).cpu().isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def stub_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process with a stub device without fp64: calls are refused before kernels run."""
    if not (TESTS / "gpu_compile").is_dir() or shutil.which("g++") is None:
        pytest.skip("needs the stub driver of tests/gpu_compile, and g++")
    sys.path.insert(0, str(TESTS))
    from gpu_compile.record import compile_driver

    folder = tmp_path_factory.mktemp("stub")
    return {
        "OPENCL_DYLIB_PATH": str(compile_driver(folder)),
        "STUB_FOLDER": str(folder),
        "TORCH_OPENCL_DEVICES": "Stub GPU without fp64",
        "TORCH_OPENCL_CACHE_DIR": "",
    }


def test_a_stub_device_refuses_and_accepts_the_same(stub_device: dict[str, str]) -> None:
    done = run_python("-m pytest -q -p no:cacheprovider -k", "refused_by_name or of_the_host", __file__, **stub_device)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(REFUSED) + len(TAKEN)} passed" in done.stdout


OF_ONE_DTYPE = """
import pytest, torch
x = torch.zeros(4, device="opencl")

@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_parameter(dtype): x.to(dtype)

@pytest.mark.needs_float64
def test_mark(): x.double()

def test_float64_and_no_mark(): x.double()

@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_wrong(dtype): assert x.double is None

@pytest.mark.needs_float64
def test_other_refusal(): raise NotImplementedError("no kernel")
"""


def test_only_tests_that_declare_float64_are_skipped(stub_device: dict[str, str], tmp_path: Path) -> None:
    for name in ("conftest.py", "float64.py"):
        shutil.copy(TESTS / "python" / name, tmp_path)
    (tmp_path / "test_skips.py").write_text(OF_ONE_DTYPE)
    done = run_python("-m pytest -rA -p no:cacheprovider", str(tmp_path), **stub_device)
    assert set(re.findall(r"^(PASSED|FAILED) \S+::(\S+)", done.stdout, re.M)) == {
        ("PASSED", "test_parameter[torch.float32]"),
        ("FAILED", "test_float64_and_no_mark"),
        ("FAILED", "test_wrong[torch.float64]"),
        ("FAILED", "test_wrong[torch.complex128]"),
        ("FAILED", "test_other_refusal"),
    }, done.stdout
    assert "2 skipped" in done.stdout
