"""Errors of torch.opencl.compile_kernel and its kernels."""

import re

import pytest
import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32)

AXPY = """
__kernel void axpy(__global const T *x, __global T *y, const work_T alpha) {
  store_T(y, ELEMENT, load_T(y, ELEMENT) + alpha * load_T(x, ELEMENT));
}
"""


@pytest.fixture(scope="module")
def axpy():
    return torch.opencl.compile_kernel(AXPY, "axpy", types={"T": FLOATS})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("float *x", "lacks __global"),
        ("__global float4 *x", "does not point to an element type"),
        ("__global float **x", "not a pointer to global memory"),
        ("__local float *x", "declare local memory within the kernel"),
        ("image2d_t x", "neither a pointer nor a scalar"),
        ("ARGUMENTS", "cannot be read"),
        ("__global float *x, int x", "two parameters have the same name"),
    ],
)
def test_parameters_that_no_argument_fits_are_refused(parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        torch.opencl.compile_kernel(f"__kernel void f({parameters}) {{}}", "f")


def test_the_error_for_a_missing_kernel_lists_the_existing_ones():
    with pytest.raises(ValueError, match="'g'; its kernels are: f, h"):
        torch.opencl.compile_kernel("kernel void f(int a) {} kernel void h(int a) {}", "g")
    for name, types in [("f;", {}), ("f", {"T;": FLOATS})]:
        with pytest.raises(ValueError, match="not a valid name in OpenCL C"):
            torch.opencl.compile_kernel("kernel void f(int a) {}", name, types=types)


def test_a_kernel_with_the_name_of_a_function_of_opencl_c_is_refused(device):
    if torch.opencl.get_device_properties(device).platform != "Portable Computing Language":
        pytest.skip("other compilers refuse the name themselves, or accept it")
    rotate = torch.opencl.compile_kernel("kernel void rotate(global float *x) { x[0] = 3; }", "rotate")
    with pytest.raises(RuntimeError, match=r"no kernel 'rotate'.*choose another name"):
        rotate(torch.ones(4, device=device))


def test_the_list_of_parameters_must_agree_with_the_kernel():
    source = "kernel void f(global float *x, float a, int n) {}"
    right = {"x": "tensor", "a": "scalar", "n": "size"}
    torch.opencl.compile_kernel(source, "f", parameters=right)
    for wrong in ({"x": "tensor", "n": "size", "a": "scalar"}, right | {"a": "size"}, right | {"a": "tensor"}):
        with pytest.raises(ValueError, match="kernel f"):
            torch.opencl.compile_kernel(source, "f", parameters=wrong)


def test_sizes_are_not_negative(device):
    f = torch.opencl.compile_kernel(
        "kernel void f(global float *x, int n) {}", "f", parameters={"x": "tensor", "n": "size"}
    )
    with pytest.raises(ValueError, match="kernel f: n: -1 is not a size"):
        f(torch.zeros(1, device=device), -1)


def test_arguments_that_do_not_fit_are_refused(axpy, device):
    x, y = torch.ones(8, device=device), torch.ones(8, device=device)
    for error, message, arguments in [
        (TypeError, r"takes 3 arguments \(x, y, alpha\), not 2", (x, y)),
        (TypeError, "x is a tensor, not int", (1, y, 1)),
        (TypeError, "alpha is a number; pass tensor.item", (x, y, x[0])),
        (ValueError, "x is on cpu", (x.cpu(), y, 1)),
        (ValueError, "x is not contiguous", (torch.ones(8, 2, device=device)[:, 0], y, 1)),
        (TypeError, "torch.float16, and T is already torch.float32", (x, y.half(), 1)),
        (TypeError, "T may be torch.float16", (x.int(), y.int(), 1)),
        (ValueError, "y is written and requires gradients", (x, y.clone().requires_grad_(), 1)),
    ]:
        with pytest.raises(error, match=message):
            axpy(*arguments)
    with pytest.raises(TypeError, match=r"x is a tensor of torch.float32 \(float\), not of torch.int32"):
        torch.opencl.compile_kernel("kernel void f(global float *x) {}", "f")(x.int())


def test_invalid_launch_sizes_are_refused(axpy, device):
    x = torch.ones(8, device=device)
    for sizes in (
        {"global_size": 8, "elements": 8},
        {"local_size": 8},
        {"elements": -1},
        {"global_size": 8, "local_size": 3},
        {"global_size": (8, 1), "local_size": 8},
        {"global_size": 8, "local_size": 0},
        {"global_size": -8},
        {"global_size": ()},
        {"global_size": (1, 1, 1, 1)},
    ):
        with pytest.raises(ValueError, match="kernel axpy"):
            axpy(x, x.clone(), 1, **sizes)
    most = torch.opencl.get_device_properties().max_work_group_size
    with pytest.raises(NotImplementedError, match="groups of"):
        axpy(x, x.clone(), 1, global_size=most * 64, local_size=most * 64)
    with pytest.raises(TypeError):
        axpy(x, x.clone(), 1, elements=2.5)


def test_groups_are_of_the_size_that_the_kernel_requires(device):
    source = """__kernel __attribute__((reqd_work_group_size(G, 2, 1))) void f(GLOBAL float *x) {
      x[ELEMENT + 16 * GLOBAL_ID(1)] = LOCAL_SIZE(0);
    }"""
    kernel = torch.opencl.compile_kernel(source, "f", constants={"G": 4})
    x = torch.zeros(64, device=device)
    kernel(x, global_size=(16, 4), local_size=(4, 2))
    assert x.tolist() == [4.0] * 64
    for sizes in ({}, {"elements": 8}, {"global_size": 64, "local_size": 4}, {"global_size": (16, 4)}):
        with pytest.raises(ValueError, match=r"kernel f has reqd_work_group_size\(4, 2, 1\).*local_size=\(4, 2\)"):
            kernel(x, **sizes)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("kernel void f(global float *packed_) {}", {}),
        ("kernel void f(global float *x, int x_buffer_) {}", {}),
        ("kernel void f(global float *x) {}", {"constants": {"ELEMENT": 1}}),
        ("kernel void f(global float *x) {}", {"types": {"float": [torch.float32]}}),
    ],
)
def test_names_that_are_taken_are_refused(source, options):
    with pytest.raises(ValueError, match=r"the name '\w+' is taken"):
        torch.opencl.compile_kernel(source, "f", **options)


def test_a_type_parameter_has_dtypes():
    with pytest.raises(ValueError, match="the type parameter T has no dtypes"):
        torch.opencl.compile_kernel(AXPY, "axpy", types={"T": []})


def test_numbers_beyond_float_are_refused(device):
    kernel = torch.opencl.compile_kernel("kernel void f(global float *x, float a) { x[0] = a; }", "f")
    x = torch.zeros(1, device=device)
    kernel(x, float("inf"))
    assert x.item() == float("inf")
    with pytest.raises(ValueError, match=r"1e\+300 does not fit its type float"):
        kernel(x, 1e300)
    source = "kernel void f(global float *x) { x[0] = C; }"
    with pytest.raises(ValueError, match="does not fit a float"):
        torch.opencl.compile_kernel(source, "f", constants={"C": 1e300})(x)


def test_more_local_memory_than_the_device_has_is_refused(device):
    source = """KERNEL void k(GLOBAL float *x) {
      LOCAL float s[1 << 22];
      s[LOCAL_ID(0)] = 1;
      LOCAL_BARRIER();
      x[0] = s[0];
    }"""
    # NVIDIA's compiler refuses it; other drivers refuse the launch.
    is_nvidia = "NVIDIA" in torch.opencl.get_device_properties(device).platform
    message = "does not compile" if is_nvidia else "bytes of local memory, and this device has"
    with pytest.raises(RuntimeError, match=message):
        torch.opencl.compile_kernel(source, "k")(torch.zeros(4, device=device))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("__kernel void scale(__global float *x, float a) { x[0] = a; x[1] = nowhere; }", 1),
        (
            "__kernel void scale(__global float *x,\n\t\t\tfloat a)\n{\tfloat b = a;\n"
            "  x[0] = b;\n    x[1] = nowhere;\n}\n",
            5,
        ),
        ("__kernel void scale(\n  __global float *x,\n  float a) { x[1] = nowhere; }", 3),
        ("// One line\n/* \u00e9 */ kernel void scale(global float *x, float a) { x[1] = nowhere; }", 2),
        (
            "kernel void other(global float *y) { y[0] = 1; }\n"
            "kernel void scale(global float *x, float a) { x[0] = a; } "
            "kernel void last(global float *z) { z[0] = nowhere; }",
            2,
        ),
        ("kernel void scale(global float *x, float a) { x[0] = a; }\nfloat f(void) { return nowhere; }", 2),
    ],
)
def test_compiler_messages_have_the_kernels_name_and_the_users_lines_and_columns(source, line, device):
    with pytest.raises(RuntimeError, match="the kernel program scale does not compile for") as raised:
        torch.opencl.compile_kernel(source, "scale")(torch.zeros(2, device=device), 1.0)
    found = re.search(r"(\d+):(\d+):[^\n]*nowhere", str(raised.value))
    if found is None:
        pytest.skip("the driver's compiler uses another message format")
    text = source.split("\n")[line - 1].encode()
    assert (int(found[1]), int(found[2])) == (line, text.index(b"nowhere") + 1)


def test_kernels_that_macros_define_compile(device):
    source = "#define MAKE(name, type) \\\n  kernel void name(global type *x, float a) { \\\n    x[0] = a; }\n"
    source += "kernel void f(global float *x) { x[0] = 2; }"
    x = torch.zeros(1, device=device)
    torch.opencl.compile_kernel(source, "f")(x)
    assert x.item() == 2
