"""User-defined kernels: torch.opencl.compile_kernel."""

import copy
import pickle
import re
from pathlib import Path

import pytest
import torch
from processes import output_of, run_python, two_devices

EXAMPLES = Path(__file__).parents[3] / "examples"
FLOATS = (torch.float16, torch.bfloat16, torch.float32)

AXPY = """
// y += alpha * x, and __kernel void axpy(int wrong) in a comment is none.
static work_T product(work_T a, work_T b) { return a * b; }
__kernel void axpy(__global const T *x, /* , */ __global T *restrict y,
                   const work_T alpha) {
  store_T(y, ELEMENT, load_T(y, ELEMENT) + product(alpha, load_T(x, ELEMENT)));
}
"""


@pytest.fixture(scope="module")
def axpy():
    return torch.opencl.compile_kernel(AXPY, "axpy", types={"T": FLOATS})


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_source_serves_dtypes_at_any_offset_of_a_buffer(axpy, device, dtype):
    base = torch.randn(1003, device=device).to(dtype)
    x, y = base[3:503], torch.ones(503, dtype=dtype, device=device)[3:]
    expected = (y.float() + 2.5 * x.float()).to(dtype)
    axpy(x, y, 2.5)
    # A compiler may fuse the multiplication and the addition.
    torch.testing.assert_close(y, expected)


def test_memory_types_match_pytorchs_dtypes(device):
    source = """KERNEL void twice(GLOBAL const T *x, GLOBAL T *y) {
      store_T(y, ELEMENT, load_T(x, ELEMENT) + load_T(x, ELEMENT));
    }"""
    dtypes = [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.complex64,
    ]
    twice = torch.opencl.compile_kernel(source, "twice", types={"T": dtypes})
    for dtype in dtypes:
        x = torch.tensor([0, 1, 3, 60], device=device).to(dtype)
        y = torch.empty_like(x)
        twice(x, y)
        assert torch.equal(y, x if dtype == torch.bool else x + x), dtype


@pytest.mark.needs_float64
def test_kernels_compute_in_float64(device):
    x = torch.randn(9, dtype=torch.float64, device=device)
    source = "kernel void f(global double *x, double a, size_t n) { x[get_global_id(0)] += a / n; }"
    expected = x + 1e-12 / 3
    torch.opencl.compile_kernel(source, "f")(x, 1e-12, 3)
    assert torch.equal(x, expected)


def test_scalars_arrive_as_their_types(device):
    source = """kernel void write(global long *out, const float f, int i, uint u, long l, unsigned long w,
                                  size_t n, bool b, uchar c) {
      out[0] = as_int(f); out[1] = i; out[2] = u; out[3] = l; out[4] = w; out[5] = n; out[6] = b; out[7] = c;
    }"""
    write = torch.opencl.compile_kernel(source, "write")
    out = torch.empty(8, dtype=torch.int64, device=device)
    write(out, 1, -7, 2**32 - 1, -(2**63), 2**64 - 1, 5, True, 255, elements=1)
    assert out.tolist() == [0x3F800000, -7, 2**32 - 1, -(2**63), -1, 5, 1, 255]
    kinds = [(parameter.name, parameter.kind, parameter.type) for parameter in write.parameters]
    assert kinds[0] == ("out", "tensor", "long") and kinds[6] == ("n", "size", "size_t")
    for position, wrong, error in [
        (2, 2**31, ValueError),
        (3, -1, ValueError),
        (2, 1.5, TypeError),
        (1, "1", TypeError),
    ]:
        arguments = [out, 1, -7, 1, 1, 1, 5, True, 255]
        arguments[position] = wrong
        with pytest.raises(error, match="kernel write: "):
            write(*arguments, elements=1)


def test_the_number_of_work_items_is_that_of_elements_or_global_size(device):
    source = """KERNEL void place(GLOBAL int *out) {
      const long i = GLOBAL_ID(0) + GLOBAL_SIZE(0) * (GLOBAL_ID(1) + GLOBAL_SIZE(1) * GLOBAL_ID(2));
      out[i] = 1 + LOCAL_ID(0) + 10 * LOCAL_ID(1) + 100 * (int)GROUP_ID(2);
    }"""
    place = torch.opencl.compile_kernel(source, "place")
    for count in (1, 7, 64, 997, 4099):
        out = torch.zeros(count, dtype=torch.int32, device=device)
        place(out)
        assert out.gt(0).all()
    out = torch.zeros(2, 4, 6, dtype=torch.int32, device=device)
    place(out, elements=1)
    assert out.count_nonzero() == 1
    place(out, elements=0)
    place(out, global_size=(6, 4, 2), local_size=(3, 2, 1))
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(4), torch.arange(6), indexing="ij")
    assert torch.equal(out.cpu(), (1 + x % 3 + 10 * (y % 2) + 100 * z).int())
    place(out.zero_(), global_size=out.numel())
    assert out.gt(0).all()


def test_work_groups_reduce_values_in_local_memory(device):
    source = """KERNEL void joins(GLOBAL const float *x, GLOBAL float *out) {
      LOCAL float scratch[SIZE];
      const float value = x[ELEMENT];
      const float sum = group_sum(value, scratch), most = group_max(value, scratch), least = group_min(value, scratch);
      GLOBAL float *row = out + 3 * GROUP_ID(0);
      if (LOCAL_ID(0) == 0) { row[0] = sum; row[1] = most; row[2] = least; }
    }"""
    for size in (1, 13, 32):
        joins = torch.opencl.compile_kernel(source, "joins", constants={"SIZE": size})
        x, out = torch.randn(4, size, device=device), torch.empty(4, 3, device=device)
        joins(x, out, global_size=4 * size, local_size=size)
        torch.testing.assert_close(out, torch.stack([x.sum(1), x.amax(1), x.amin(1)], 1))


def test_constants_are_macros(device):
    source = "kernel void f(global float *x) { x[0] = A + B; x[1] = C; x[2] = D ? INFINITY_TOO : 0; }"
    constants = {"A": 3, "B": 0.5, "C": -1e-30, "D": True, "INFINITY_TOO": float("-inf")}
    x = torch.zeros(3, device=device)
    torch.opencl.compile_kernel(source, "f", constants=constants)(x, elements=1)
    assert x.tolist() == [3.5, pytest.approx(-1e-30), float("-inf")]
    with pytest.raises(TypeError, match="constant A"):
        torch.opencl.compile_kernel(source, "f", constants={"A": "x"})


def test_compilers_name_lines_of_the_users_source(device):
    source = (
        "\n\nkernel void broken(global float *x,\n                   int n) {\n  x[0] = n;\n  x[1] = no_such_name;\n}"
    )
    broken = torch.opencl.compile_kernel(source, "broken")
    with pytest.raises(RuntimeError, match="no_such_name") as caught:
        broken(torch.zeros(2, device=device), 1)
    assert re.search(r"broken:6\b|line 6\b|:6:", str(caught.value))


@pytest.mark.needs_float64
def test_constants_are_doubles_in_kernels_with_doubles(device):
    source = "kernel void f(global T *x) { x[0] = C; x[1] = sizeof(C); }"
    kernel = torch.opencl.compile_kernel(source, "f", types={"T": [torch.float32, torch.float64]}, constants={"C": 0.1})
    for dtype, size in ((torch.float32, 4), (torch.float64, 8)):
        x = torch.zeros(2, dtype=dtype, device=device)
        kernel(x)
        assert x.tolist() == [torch.tensor(0.1, dtype=dtype).item(), size]


def test_tensors_without_elements_launch_nothing(axpy, device):
    empty = torch.empty(0, 5, device=device)
    before = torch.opencl.launches()
    axpy(empty, empty.clone(), 1)
    assert torch.opencl.launches() == before
    # Empty tensors may also be passed together with others.
    count = torch.opencl.compile_kernel("kernel void f(global const float *x, global int *n) { n[0] += x != 0; }", "f")
    n = torch.zeros(1, dtype=torch.int32, device=device)
    count(empty, n, elements=1)
    assert n.item() in (0, 1)


def test_tensors_of_two_devices_are_refused():
    code = """
        import torch
        f = torch.opencl.compile_kernel("kernel void f(global float *x, global float *y) { y[0] = x[0] + 1; }", "f")
        for device in ("opencl:0", "opencl:1"):
            x, y = torch.ones(1, device=device), torch.zeros(1, device=device)
            f(x, y)
            assert y.item() == 2
        try:
            f(torch.ones(1, device="opencl:0"), y)
        except ValueError as error:
            print(error)
    """
    found = output_of(code, **two_devices())
    assert found == "kernel f: all tensors must be on one device, not x on opencl:0, y on opencl:1"


def test_autograd_sees_that_a_saved_tensor_was_written(axpy, device):
    x = torch.ones(4, device=device, requires_grad=True)
    y = x * 2
    z = y.square()
    with torch.no_grad():
        axpy(torch.ones(4, device=device), y, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_kernels_run_on_the_current_stream(axpy, device, side_stream):
    x = torch.ones(1 << 16, device=device)
    side_stream.wait_stream(torch.opencl.current_stream())
    with torch.opencl.stream(side_stream):
        y = torch.zeros(1 << 16, device=device)
        for _ in range(20):
            axpy(x, y, 1)
    side_stream.synchronize()
    assert y.eq(20).all()


def test_kernels_are_built_once_and_kept_on_disk(tmp_path):
    code = """
        import torch
        f = torch.opencl.compile_kernel("kernel void f(global T *x) { store_T(x, ELEMENT, 3); }", "f",
                                        types={"T": [torch.float32, torch.float16]})
        f.compile(T=torch.float16)
        x = torch.zeros(5, device="opencl")
        for _ in range(3):
            f(x)
        assert x.eq(3).all()
        info = torch.opencl.kernel_cache_info()
        print(info["compiled"] > 0, info["loaded"] > 0)
    """
    variables = {"TORCH_OPENCL_CACHE_DIR": str(tmp_path), "TORCH_OPENCL_SPECIALIZE": "never"}
    assert output_of(code, **variables) == "True False"
    assert output_of(code, **variables) == "False True"


def test_kernels_are_copied_and_pickled_with_their_owners(axpy, device):
    x = torch.ones(5, device=device)
    for copied in (copy.deepcopy(axpy), pickle.loads(pickle.dumps(axpy))):
        y = torch.zeros(5, device=device)
        copied(x, y, 3)
        assert y.eq(3).all() and copied.parameters == axpy.parameters


def test_compiling_ahead_asks_for_all_dtypes(axpy):
    axpy.compile(T=torch.bfloat16)
    with pytest.raises(TypeError, match="has the type parameters"):
        axpy.compile()
    with pytest.raises(TypeError, match="T may be"):
        axpy.compile(T=torch.int8)


def test_importing_a_module_with_kernels_starts_no_driver_or_compiler():
    code = """
        import sys
        import torch
        torch.opencl.compile_kernel("kernel void f(global float *x) {}", "f")
        print(torch.opencl.is_initialized(), "torch._inductor" in sys.modules)
    """
    assert output_of(code) == "False False"


def test_custom_operators_of_kernels_are_compiled_without_graph_breaks(axpy, device):
    @torch.library.custom_op("test_user_kernels::axpy", mutates_args=("y",), device_types="opencl")
    def custom(x: torch.Tensor, y: torch.Tensor, alpha: float) -> None:
        axpy(x, y, alpha)

    @torch.compile(fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        custom(x, y, 0.5)
        return y + 1

    x = torch.randn(100, device=device)
    torch.testing.assert_close(compiled(x), x * 3.5 + 1)


def test_a_kernel_itself_breaks_the_graph_and_still_runs(axpy, device):
    @torch.compile
    def compiled(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        axpy(x, y, 0.5)
        return y + 1

    x = torch.randn(100, device=device)
    torch.testing.assert_close(compiled(x), x * 3.5 + 1)


@pytest.mark.parametrize("name", ["eye_kernel", "rms_norm_kernel"])
@pytest.mark.slow
def test_examples_run_in_the_other_device_class(name):
    device_class = "gpu" if torch.opencl.get_device_properties().type == "cpu" else "cpu"
    done = run_python(
        f"import runpy; runpy.run_path({str(EXAMPLES / (name + '.py'))!r}, run_name='__main__')",
        TORCH_OPENCL_DEVICE_CLASS=device_class,
    )
    assert done.returncode == 0, done.stderr
    assert "agree" in done.stdout
