"""Matmuls by cuBLAS on memory that OpenCL and CUDA share, with a stub of NVIDIA's libraries.

The stub (tests/cuda_stub) keeps memory in RAM, runs CUDA's commands late and in a thread of its own, and simulates
faults. So the allocator, the order of commands and the ways to fail are tested on any driver for CPUs. What NVIDIA's
drivers do is not tested.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from processes import output_of, run_python

SOURCE = Path(__file__).parents[2] / "cuda_stub" / "stub.cpp"

START = """
    import ctypes, os, threading, torch
    stub = ctypes.CDLL(os.environ["OPENCL_LAYERS"])
    blas = torch.backends.opencl
    torch.manual_seed(0)

    def check(result, expected, **tolerances):
        torch.testing.assert_close(result.cpu(), expected.to(result.dtype), **tolerances)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """A folder with the stub under the names of the libraries that it replaces."""
    if shutil.which("g++") is None or not Path("/usr/include/CL/cl_layer.h").exists():
        pytest.skip("the stub needs g++ and OpenCL's headers (Debian: opencl-c-headers)")
    if torch.opencl.get_device_properties().type != "cpu":
        pytest.skip("the stub needs a driver that uses host memory in place")
    folder = tmp_path_factory.mktemp("stub")
    layer = folder / "layer.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", layer, SOURCE], check=True)
    for name in ("libcuda.so", "libcublasLt.so"):
        (folder / name).symlink_to(layer.name)
    code = "import torch; print('cl_khr_external_memory_opaque_fd' in torch.opencl.get_device_properties().extensions)"
    if output_of(code, OPENCL_LAYERS=str(layer)) != "True":
        pytest.skip("this OpenCL loader ignores OPENCL_LAYERS, which loads the stub")
    return folder


@pytest.fixture
def environment(libraries, monkeypatch) -> dict[str, str]:
    """Variables of a process that finds the stub, and uses cuBLAS for every matmul that it supports."""
    # The variable extends what a driver needs.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries), prepend=":")
    return {"OPENCL_LAYERS": str(libraries / "layer.so"), "TORCH_OPENCL_BLAS": "cublas"}


def run(code: str, environment: dict[str, str], **more: str) -> str:
    """The output of a program that starts with START."""
    return output_of(START + code, **(environment | more))


@pytest.mark.slow
def test_the_tests_of_matmul_libraries_pass_with_cublas(environment):
    chosen = f"-m pytest -q -p no:cacheprovider {SOURCE.parents[1] / 'python/ops/test_blas.py'} -k cublas-"
    # Not a worker of the tests that run in parallel.
    no_worker = {"PYTEST_XDIST_WORKER": None, "PYTEST_XDIST_WORKER_COUNT": None}
    done = run_python(chosen, **environment | {"TORCH_OPENCL_BLAS": "auto"} | no_worker)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout


def test_cublas_computes_what_it_supports(environment):
    code = """
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.complex64]
    dtypes += [torch.float64, torch.complex128] if torch.opencl.get_device_properties().fp64 else []
    for dtype in dtypes:
        x, y, z = (torch.randn(shape).to(dtype) for shape in [(3, 40, 50), (3, 50, 60), (3, 40, 60)])
        a, b, c = (tensor.to("opencl") for tensor in (x, y, z))
        x, y, z = (tensor.to(torch.complex128 if dtype.is_complex else torch.float64) for tensor in (x, y, z))
        tolerances = {"rtol": 1e-2, "atol": 1e-1} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
        before = stub.stub_gemms()
        check(a @ b, x @ y, **tolerances)
        check(b.mT @ a.mT, y.mT @ x.mT, **tolerances)
        check(a[0, ::2, 5:45] @ b[0, 5:45, 3:], x[0, ::2, 5:45] @ y[0, 5:45, 3:], **tolerances)
        alpha, beta = (2 - 1j, 1j) if dtype.is_complex else (-2, 0.5)
        check(torch.baddbmm(c, a, b, alpha=alpha, beta=beta), z * beta + alpha * (x @ y), **tolerances)
        check(c[0].clone().addmm_(a[0], b[0]), z[0] + x[0] @ y[0], **tolerances)
        assert stub.stub_gemms() == before + 5, (dtype, stub.stub_gemms() - before)
    # cuBLAS has no such strides and dtypes: our own kernels compute these.
    before = stub.stub_gemms()
    a, x = torch.randn(20, 40).to("opencl"), torch.arange(12).reshape(3, 4)
    check(a[:, ::2] @ a[:, :20].t(), a.cpu()[:, ::2] @ a.cpu()[:, :20].t(), rtol=1e-4, atol=1e-4)
    check(x.to("opencl") @ x.t().to("opencl"), x @ x.t())
    print(stub.stub_gemms() - before)
    """
    assert run(code, environment) == "0"


# Biases, and whether cuBLAS adds them as a value for each column; it has no strides for the last two.
BIASES = """
    def biases(dtype):
        yield torch.randn(60, dtype=dtype), True
        yield torch.randn(65, dtype=dtype)[5:], False  # not at a multiple of 16 bytes
        yield torch.randn(40, 60, dtype=dtype), False
        yield torch.randn(40, 61, dtype=dtype)[:, 1:], False
        yield torch.randn(40, 1, dtype=dtype), False
        yield torch.randn(60, 40, dtype=dtype).t(), False

    def apply(x, weight, bias):
        yield F.linear(x, weight.t(), bias) if bias.dim() == 1 else torch.addmm(bias, x, weight)
        yield torch._addmm_activation(bias, x, weight)
        yield torch._addmm_activation(bias, x, weight, use_gelu=True)
        yield torch.addmm(bias, x, weight, beta=0.5, alpha=2)
        yield torch.baddbmm(bias, torch.stack([x, -x]), torch.stack([weight, weight]))
"""


@pytest.mark.parametrize("fault", [None, "bias", "refused bias"])
def test_cublas_adds_biases(environment, fault):
    code = """
    import torch.nn.functional as F
    dtypes = [torch.float32, torch.float16, torch.bfloat16]
    dtypes += [torch.float64] if torch.opencl.get_device_properties().fp64 else []
    for dtype in dtypes:
        tolerances = {"rtol": 1e-2, "atol": 1e-1} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
        x, weight = torch.randn(40, 50).to(dtype), torch.randn(50, 60).to(dtype)
        for bias, is_vector in biases(dtype):
            before = stub.stub_gemms(), stub.stub_biases()
            on_device = torch.empty(bias.untyped_storage().size() // dtype.itemsize, dtype=dtype, device="opencl")
            on_device = on_device.as_strided(bias.shape, bias.stride(), bias.storage_offset()).copy_(bias)
            results = list(apply(x.to("opencl"), weight.to("opencl"), on_device))
            for result, expected in zip(results, apply(x.double(), weight.double(), bias.double()), strict=True):
                check(result, expected, **tolerances)
            assert stub.stub_gemms() == before[0] + 5
            # A vector is added by all calls but the one with beta.
            print(stub.stub_biases() - before[1] == (4 if is_vector else 0), stub.stub_biases() - before[1])
    # A NaN stays one, and a column-major result gets its bias by rows.
    x, bias = torch.randn(8, 8), torch.randn(8)
    x[0, 0] = float("nan")
    result = torch._addmm_activation(bias.to("opencl"), x.to("opencl"), x.to("opencl"))
    check(result, (x @ x + bias).relu(), equal_nan=True)
    out = torch.empty(60, 40, device="opencl").t()
    x, weight, bias = torch.randn(40, 50), torch.randn(50, 60), torch.randn(40, 1)
    torch.addmm(bias.to("opencl"), x.to("opencl"), weight.to("opencl"), out=out)
    check(out, x @ weight + bias, rtol=1e-4, atol=1e-4)
    print(stub.stub_live_objects())
    """
    lines = run(BIASES + code, environment, **({} if fault is None else {"STUB_FAULT": fault})).splitlines()
    assert lines[-1] == "0" and len(lines) in (19, 25)
    if fault is None:
        assert all(line.startswith("True") for line in lines[:-1]), " ".join(lines)
    else:
        assert all(line.endswith(" 0") for line in lines[:-1])


def test_cublas_multiplies_int8(environment):
    code = """
    x, weight = (torch.randint(-128, 128, (rows, 64), dtype=torch.int8) for rows in (41, 20))
    exact = x.long() @ weight.long().t()
    a, b = x.to("opencl"), weight.to("opencl")
    check(torch._int_mm(a, b.t()), exact.int())
    print(stub.stub_gemms())
    # Other orders and sizes are for our own kernels.
    check(torch._int_mm(a, b.t().contiguous()), exact.int())
    check(torch._int_mm(a[:, :63], b[:, :63].t()), (x[:, :63].long() @ weight[:, :63].long().t()).int())
    print(stub.stub_gemms())
    """
    # Kernels for CPUs leave int8 to ATen.
    assert run(code, environment | {"TORCH_OPENCL_DEVICE_CLASS": "gpu"}).split() == ["1", "1"]


def test_commands_are_in_order_on_every_stream(environment):
    code = """
    x = torch.randint(-3, 4, (256, 256)).double().float()
    a = x.to("opencl")

    def work(results, index):
        # Each value depends on kernels before and after a matmul of CUDA's, whose commands are late; a large tensor
        # makes the kernels later still.
        with torch.opencl.stream(torch.opencl.Stream()):
            own, large = a.clone(), torch.ones(1 << 21, device="opencl")
            for step in range(10):
                large.sin_()
                own = (own + index).remainder(5)
                own = (own @ own).remainder(7)
                own = torch.cumsum(own, 0).remainder(3)
            event = torch.opencl.Event()
            event.record()
        event.wait()
        results[index] = own.cpu()

    def expected(index):
        own = x.clone()
        for step in range(10):
            own = (own + index).remainder(5)
            own = (own @ own).remainder(7)
            own = torch.cumsum(own, 0).remainder(3)
        return own

    results = {}
    threads = [threading.Thread(target=work, args=(results, index)) for index in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for index in range(4):
        check(results[index], expected(index), rtol=0, atol=0)
    # Freed memory is given to the next tensor before the matmul that reads it has run.
    total = torch.zeros(256, 256, device="opencl")
    for step in range(20):
        total = (a + step) @ a + total * 0.5
    host = torch.zeros(256, 256)
    for step in range(20):
        host = (x + step) @ x + host * 0.5
    check(total, host, rtol=1e-5, atol=1e-2)
    print(stub.stub_gemms())
    """
    assert run(code, environment) == "60"


def test_memory_and_descriptors_are_freed(environment):
    code = """
    def use():
        tensors = [torch.ones(1 << 22, device="opencl") for _ in range(4)]
        x = torch.ones(300, 300, device="opencl")
        return (x @ x).sum().item() + sum(tensor[0].item() for tensor in tensors)

    use()
    torch.opencl.empty_cache()
    before = stub.stub_live_allocations(), descriptors()
    print(use() == 300 ** 3 + 4, stub.stub_live_allocations() > before[0])
    torch.opencl.empty_cache()
    print((stub.stub_live_allocations(), descriptors()) == before)
    print(stub.stub_imports_not_acquired(), stub.stub_has_current_context())
    """
    assert run(code, environment).split() == ["True", "True", "True", "0", "0"]


def test_memory_that_is_short_is_found_in_the_cache_or_raises(environment):
    code = """
    tensors = [torch.ones(8 << 20, device="opencl") for _ in range(5)]
    del tensors  # 160 of 256 MiB are in the cache, in pieces
    x = torch.ones(40 << 20, device="opencl")
    print(x[-1].item(), torch.opencl.memory_stats()["num_alloc_retries"])
    try:
        torch.ones(80 << 20, device="opencl")
    except torch.OutOfMemoryError as error:
        print("CUDA_ERROR_OUT_OF_MEMORY" in str(error))
    y = x[: 1 << 20].view(1024, 1024)
    print((y @ y)[0, 0].item(), stub.stub_gemms())
    """
    assert run(code, environment, STUB_FAULT="memory").split() == ["1.0", "1", "True", "1024.0", "1"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("export", "CUDA_ERROR_NOT_SUPPORTED"),
        ("import", "clCreateBufferWithProperties failed with CL_INVALID_OPERATION"),
        ("acquire", "clEnqueueAcquireExternalMemObjectsKHR failed with CL_INVALID_MEM_OBJECT"),
        ("bytes", "CUDA and OpenCL do not see what the other writes to shared memory"),
        ("wait", "CUDA_ERROR_NOT_SUPPORTED"),
        ("early", "or not in order"),
        ("late", "or not in order"),
        ("copy", "CUDA_ERROR_LAUNCH_FAILED"),
        ("private", "commands of OpenCL and CUDA cannot be ordered"),
    ],
)
def test_a_device_that_fails_the_test_has_ordinary_buffers(environment, fault, reason):
    code = """
    x = torch.randn(300, 300)
    a = x.to("opencl")
    check(a @ a, x @ x, rtol=1e-3, atol=1e-3)
    print(stub.stub_gemms(), blas.blas_obstacles()["cublas"])
    print(stub.stub_live_allocations(), stub.stub_has_current_context())
    try:
        blas.preferred_blas_library("cublas")
    except RuntimeError as error:
        print(error)
    """
    lines = run(code, environment, STUB_FAULT=fault, TORCH_OPENCL_BLAS="auto").splitlines()
    assert lines[0].startswith("0 ") and reason in lines[0] and lines[1] == "0 0"
    assert "'cublas' cannot be used on" in lines[2] and reason in lines[2]


def test_a_matmul_that_cublas_refuses_is_an_error(environment):
    code = """
    x = torch.ones(40, 40, device="opencl")
    try:
        x @ x
    except RuntimeError as error:
        print(error)
    print((x + 1).sum().item())
    """
    message, total = run(code, environment, STUB_FAULT="gemm").splitlines()
    assert message.startswith("cuBLAS: ") and total == "3200.0"


@pytest.mark.parametrize("fault", ["unsupported", "refused"])
def test_our_own_kernels_compute_what_cublas_does_not_support(environment, fault):
    code = """
    x, z = torch.randn(40, 40), torch.randn(40)
    a, b = x.to("opencl"), z.to("opencl")
    check(a @ a, x @ x, rtol=1e-4, atol=1e-4)
    check(torch.addmm(b, a, a), torch.addmm(z, x, x), rtol=1e-4, atol=1e-4)
    check(torch._addmm_activation(b, a, a), torch.addmm(z, x, x).relu(), rtol=1e-4, atol=1e-4)
    check(a.clone().addmm_(a, a), x.clone().addmm_(x, x), rtol=1e-4, atol=1e-4)
    c = (x * 10).to(torch.int8)
    check(torch._int_mm(c.to("opencl"), c.to("opencl").t()), torch._int_mm(c, c.t()))
    print(stub.stub_gemms())
    """
    assert run(code, environment, STUB_FAULT=fault) == "0"


def test_a_failure_on_the_device_is_raised_by_the_next_wait(environment):
    code = """
    x = torch.ones(40, 40, device="opencl")
    y = x @ x
    for call in (y.cpu, torch.opencl.synchronize, (y + 1).sum().item):
        try:
            print("no error", call())
        except RuntimeError as error:
            print(error)
    """
    lines = run(code, environment, STUB_FAULT="device").splitlines()
    assert len(lines) == 3 and all("commands failed on the device with error 719" in line for line in lines)


def test_a_graph_holds_our_own_kernels(environment):
    code = """
    x = torch.ones(64, 64, device="opencl")
    (x @ x).cpu()
    before, graph = stub.stub_gemms(), torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        y = x @ x
    x.fill_(2)
    graph.replay()
    print(y[0, 0].item(), before, stub.stub_gemms())
    """
    assert run(code, environment) == "256.0 1 1"


def test_auto_measures_cublas(environment, tmp_path):
    code = """
    x = torch.randn(300, 300)
    a = x.to("opencl")
    check(a @ a, x @ x, rtol=1e-3, atol=1e-3)
    print(stub.stub_gemms() > 0, *blas.blas_choices().values())
    """
    # The stub's loop is slower than any other library; the second process reads the choice.
    more = {"TORCH_OPENCL_BLAS": "auto", "TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    first, second = (run(code, environment, **more).split() for _ in range(2))
    assert first[0] == "True" and second == ["False", first[1]] and first[1] != "cublas"


def test_info_says_why_a_library_is_not_used(environment):
    done = run_python("-m torch_opencl.info", **environment, STUB_FAULT="export")
    assert "cublas cannot be used: CUDA: DriverError(CUDA_ERROR_NOT_SUPPORTED" in done.stdout


def test_users_of_another_library_have_no_cuda_context(environment):
    code = 'torch.ones(2, device="opencl"); print(stub.stub_live_allocations(), blas.blas_obstacles()["cublas"])'
    line = run(f"    {code}\n", environment, TORCH_OPENCL_BLAS="opencl")
    assert line == "0 TORCH_OPENCL_BLAS was 'opencl' at the first use of the device"
