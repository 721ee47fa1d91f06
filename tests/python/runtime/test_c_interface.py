"""torch_opencl.h: the library's interface for extensions in C, C++ and Rust."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import output_of
from shared_libraries import OPENCL, need_headers, shared_library

EXAMPLES = Path(__file__).parents[3] / "examples"

# An extension that multiplies a tensor by a number with its own kernel.
EXTENSION = r"""
#include <CL/cl.h>
#include <torch_opencl.h>

static const char *SOURCE = R"(
__kernel void scale(__global char *x, ulong offset, float factor) {
  ((__global float *)(x + offset))[get_global_id(0)] *= factor;
})";

extern "C" const char *scale(const void *data, size_t count, float factor) {
  int device;
  cl_device_id id;
  cl_context context;
  cl_mem memory;
  size_t offset;
  if (torch_opencl_device_of(data, &device) || torch_opencl_context(device, &id, &context) ||
      torch_opencl_buffer(data, &memory, &offset)) {
    return torch_opencl_last_error();
  }
  static cl_program program = clCreateProgramWithSource(context, 1, &SOURCE, nullptr, nullptr);
  static cl_int built = clBuildProgram(program, 1, &id, "", nullptr, nullptr);
  cl_kernel kernel = clCreateKernel(program, "scale", nullptr);
  const cl_ulong start = offset;
  clSetKernelArg(kernel, 0, sizeof memory, &memory);
  clSetKernelArg(kernel, 1, sizeof start, &start);
  clSetKernelArg(kernel, 2, sizeof factor, &factor);
  const int status = built ? built : torch_opencl_enqueue_kernel(device, kernel, 1, &count, nullptr);
  clReleaseKernel(kernel);
  return status ? torch_opencl_last_error() : nullptr;
}

extern "C" const char *streams(const void *storage) {
  int64_t stream;
  cl_command_queue queue;
  if (torch_opencl_interface_version() < TORCH_OPENCL_INTERFACE_VERSION) return "an old library";
  if (torch_opencl_current_stream(0, &stream) || torch_opencl_queue(0, stream, &queue) ||
      torch_opencl_record_stream(storage, stream)) {
    return torch_opencl_last_error();
  }
  return clFinish(queue) == CL_SUCCESS ? nullptr : "no queue";
}

extern "C" const char *mistake(int which) {
  const size_t sizes[] = {1};
  const int status = which == 0   ? torch_opencl_device_of(sizes, nullptr)
                     : which == 1 ? torch_opencl_context(99, nullptr, nullptr)
                     : which == 2 ? torch_opencl_enqueue_kernel(0, nullptr, 1, sizes, nullptr)
                     : which == 3 ? torch_opencl_queue(0, 12345, nullptr)
                                  : torch_opencl_current_stream(0, nullptr);
  return status == -1 ? torch_opencl_last_error() : "no error";
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension")
    headers = [f"-I{path}" for path in torch.opencl.include_paths()]
    library = ctypes.CDLL(str(shared_library(folder, EXTENSION, *headers, torch.opencl.library_path())))
    library.scale.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float]
    library.streams.argtypes = [ctypes.c_void_p]
    for function in (library.scale, library.streams, library.mistake):
        function.restype = ctypes.c_char_p
    return library


def test_an_extension_launches_its_own_kernel_on_a_tensor(extension, device, side_stream):
    x = torch.arange(1000.0, device=device)
    part = x[10:20]
    assert extension.scale(part.data_ptr(), 10, 3.0) is None
    expected = torch.arange(1000.0)
    expected[10:20] *= 3
    assert torch.equal(x.cpu(), expected)
    assert extension.scale(part.data_ptr(), 0, 3.0) is None
    with torch.opencl.stream(side_stream):
        y = torch.ones(64, device=device) + 1
        assert extension.scale(y.data_ptr(), 64, 0.5) is None
        assert (y * 2).tolist() == [2.0] * 64


def test_streams_are_given_with_their_queues(extension, device):
    x = torch.ones(64, device=device)
    assert extension.streams(x.untyped_storage().data_ptr()) is None
    assert b"is not the start of a storage" in extension.streams(x[1:].data_ptr())


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, b"is not an address of any OpenCL device"),
        (1, b"invalid device index 99"),
        (2, b"takes a kernel and 1 to 3 global sizes"),
        (3, b"12345 is not the id of a stream"),
        (4, b"a pointer for a result is null"),
    ],
)
def test_mistakes_are_errors_with_a_message(extension, device, which, message):
    torch.ones(1, device=device)
    assert message in extension.mistake(which)


def test_a_tensor_without_elements_has_no_memory(extension, device):
    nothing = torch.empty(0, device=device).data_ptr()
    assert b"a tensor without elements has no memory" in extension.scale(nothing, 0, 2.0)


def test_the_header_is_c(tmp_path):
    (tmp_path / "use.c").write_text("#include <torch_opencl.h>\nint main(void) { return 0; }\n")
    folders = [f"-I{path}" for path in torch.opencl.include_paths()]
    assert (Path(torch.opencl.include_paths()[0]) / "torch_opencl.h").exists()
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Wpedantic", "-Werror", "-fsyntax-only", *folders, tmp_path / "use.c"], check=True
    )


@pytest.mark.slow
def test_the_example_of_an_extension_is_built_by_pytorch_and_runs(tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    if any(shutil.which(tool, path=path) is None for tool in ("ninja", "g++")):
        pytest.skip("torch.utils.cpp_extension needs ninja and a C++ compiler")
    need_headers()
    # The name that linkers look for, which distributions provide in a separate package.
    loader = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if OPENCL in line)
    (tmp_path / "libOpenCL.so").symlink_to(loader)
    code = f"import runpy; runpy.run_path({str(EXAMPLES / 'cpp_extension.py')!r}, run_name='__main__')"
    printed = output_of(code, TORCH_EXTENSIONS_DIR=str(tmp_path), PATH=path, LIBRARY_PATH=str(tmp_path))
    assert "[0.0, 2.0, 4.0, 60.0, 80.0]" in printed
