"""TORCH_OPENCL_DEVICE_CLASS: the kernels for many small cores, and the kernels for few large ones, on any device."""

from pathlib import Path

import pytest
import torch
from processes import output_of, run_python
from shared_libraries import OPENCL, shared_library

from benchmarks.caches import caches_in

FOLDER = Path(__file__).parents[1] / "ops"


# In separate processes, as compiling these kernels for the first time takes most of a minute.
CASES, ATTENTION_CASES, ORDER_CASES, DTYPE_CASES, FFT_CASES, LINALG_CASES, TRANSPOSE_CASES, VISION_CASES = (
    f"device_class{kind}_cases.py"
    for kind in ("", "_attention", "_order", "_dtype", "_fft", "_linalg", "_transpose", "_vision")
)
PARTS = [
    (CASES, "matmul or tiles"),
    (CASES, "convolution"),
    (CASES, "not (matmul or tiles or convolution)"),
    (ATTENTION_CASES, ""),
    (ORDER_CASES, "updates or sums"),
    (ORDER_CASES, "not (updates or sums)"),
    (DTYPE_CASES, "test"),
    (FFT_CASES, ""),
    (LINALG_CASES, "lu or qr or triangles"),
    (LINALG_CASES, "not (lu or qr or triangles)"),
    (TRANSPOSE_CASES, ""),
    (VISION_CASES, ""),
    ("test_sixteen_bit_sums.py", "updates"),
    ("test_sixteen_bit_sums.py", "not updates"),
]


@pytest.mark.parametrize(("cases", "part"), PARTS)
@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_either_class_of_kernels_is_right_on_this_device(device_class: str, cases: str, part: str):
    if torch.opencl.get_device_properties().type == device_class:
        pytest.skip("the class of this device, with which all other tests run")
    done = run_python("-m pytest -q -x", str(FOLDER / cases), "-k", part, TORCH_OPENCL_DEVICE_CLASS=device_class)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("part", ["reductions", "not reductions"])
@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_vectors_of_specialised_kernels(device_class: str, part: str):
    if torch.opencl.get_device_properties().type == device_class:
        pytest.skip("the class of this device, with which all other tests run")
    cases = str(FOLDER / "device_class_vectors_cases.py")
    environment = {"TORCH_OPENCL_DEVICE_CLASS": device_class, "TORCH_OPENCL_SPECIALIZE": "eager"}
    done = run_python("-m pytest -q -x", cases, "-k", part, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_class_is_refused():
    done = run_python("import torch; torch.ones(1, device='opencl')", TORCH_OPENCL_DEVICE_CLASS="tpu")
    assert done.returncode != 0
    assert "TORCH_OPENCL_DEVICE_CLASS=tpu: expected cpu or gpu" in done.stderr


def test_drivers_print_nothing_when_kernels_of_gpus_are_built(tmp_path):
    code = """
        import torch
        x = torch.arange(9000, device="opencl") % 7
        assert x.nonzero().shape[0] == 7714 and x.sort().values[-1].item() == 6
    """
    done = run_python(code, TORCH_OPENCL_DEVICE_CLASS="gpu", TORCH_OPENCL_SPECIALIZE="eager", **caches_in(tmp_path))
    assert done.returncode == 0 and not done.stderr, done.stderr


# Wraps the OpenCL loader, and renames the platform, so that it is not recognised as a driver that compiles kernels at
# their launch.
OF_ANOTHER_NAME = f"""
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
extern "C" int clGetPlatformInfo(void *platform, unsigned name, size_t size, void *value, size_t *needed) {{
  void *const theirs = dlsym(dlopen("{OPENCL}", RTLD_NOW), "clGetPlatformInfo");
  const auto info = reinterpret_cast<int (*)(void *, unsigned, size_t, void *, size_t *)>(theirs);
  const int error = info(platform, name, size, value, needed);
  if (name == 0x0902 && value && !error) strncpy(static_cast<char *>(value), "GPUs", size); // CL_PLATFORM_NAME
  return error;
}}
"""
ONE_BY_ONE = """
    import threading
    import torch

    torch.manual_seed(0)
    x = torch.randn(40, 300)
    y = x.to("opencl").requires_grad_()
    compiled = lambda: torch.opencl.kernel_cache_info()["compiled"]
    before = compiled()
    z = y.softmax(1)
    first = compiled() - before
    # The gradient's kernel is another program of the same family.
    z.square().sum().backward()
    w = x.clone().requires_grad_()
    w.softmax(1).square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), w.grad)

    def work(results):
        with torch.no_grad():
            results += [y.var(1).cpu(), y.log_softmax(0).cpu(), y.sort(1).values.cpu(), (y @ y.t()).cpu()]

    results = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(each,)) for each in results]
    for step in (threading.Thread.start, threading.Thread.join):
        list(map(step, threads))
    expected = [x.var(1), x.log_softmax(0), x.sort(1).values, x @ x.t()]
    for each in results:
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-4)
    info = torch.opencl.kernel_cache_info()
    print(first, info["compiled"] > 0, info["loaded"] > 0)
"""


@pytest.mark.slow
def test_programs_have_one_kernel_if_a_driver_compiles_all_kernels_at_once(tmp_path):
    """Also checks that a second process loads them."""
    shim = shared_library(tmp_path, OF_ANOTHER_NAME)
    variables = caches_in(tmp_path) | {"TORCH_OPENCL_DEVICE_CLASS": "gpu", "OPENCL_DYLIB_PATH": str(shim)}
    assert [output_of(ONE_BY_ONE, **variables).split() for _ in range(2)] == [
        ["1", "True", "False"],
        ["0", "False", "True"],
    ]


DRAWN = """
    import torch

    torch.manual_seed(7)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for size in (1, 37, 257, 70001):
            x = torch.empty(size, dtype=dtype, device="opencl")
            kept = torch.nn.functional.dropout(x.fill_(1), 0.3)
            print(*x.uniform_(-1, 2).tolist()[-300:])
            print(*x.bernoulli_(0.3).tolist()[-300:])
            print(*torch.bernoulli(x.uniform_()).tolist()[-300:])
            print(*kept.tolist()[-300:])
            print(*x.random_(9).tolist()[-300:])
    for dtype in (torch.uint8, torch.int16, torch.int64):
        print(*torch.randint(100, (4001,), dtype=dtype, device="opencl").tolist())
    print(*torch.empty(999, dtype=torch.int64, device="opencl").random_(-(2**63), None).tolist())
    print(*torch.empty(4001, device="opencl").normal_().tolist())
    parameters = torch.logspace(-2, 3, 4001, device="opencl")
    print(*torch.poisson(parameters).tolist())
    print(*torch.binomial((parameters * 9).floor(), 1 / (1 + parameters)).tolist())
    print(*torch._standard_gamma(parameters).tolist())
"""


def test_a_seed_gives_the_same_values_in_both_classes():
    drawn = [output_of(DRAWN, TORCH_OPENCL_DEVICE_CLASS=device_class).splitlines() for device_class in ("cpu", "gpu")]
    assert drawn[0][:-4] == drawn[1][:-4]
    # Computed with functions of the device, which may round vectors differently from scalars.
    for lines in zip(drawn[0][-4:], drawn[1][-4:], strict=True):
        first, second = ([float(number) for number in line.split()] for line in lines)
        assert first == pytest.approx(second, rel=1e-5, abs=1e-6)
