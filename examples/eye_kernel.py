"""A custom operator from a kernel in OpenCL C: a matrix with ones on a diagonal, as torch.eye makes it.

The kernel is written twice: with one work-item per element, in groups that suit the device, and with work-groups of
explicit size in two dimensions. One source serves all dtypes. torch.library registers the operator for torch.compile.

    python examples/eye_kernel.py
"""

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int64)
GROUP = 8

SIMPLE = """
KERNEL void eye(GLOBAL T *out, const size_t columns, const int diagonal) {
  const long row = ELEMENT / (long)columns, column = ELEMENT % (long)columns;
  store_T(out, ELEMENT, column - row == diagonal);
}
"""

EXPLICIT = """
KERNEL void eye(GLOBAL T *out, const size_t rows, const size_t columns, const int diagonal) {
  const long row = GLOBAL_ID(1), column = GLOBAL_ID(0);
  // Sizes of groups divide the global size, which may be larger than the matrix.
  if (row >= (long)rows || column >= (long)columns) return;
  store_T(out, row * (long)columns + column, column - row == diagonal);
}
"""

simple_eye = torch.opencl.compile_kernel(SIMPLE, "eye", types={"T": DTYPES})
explicit_eye = torch.opencl.compile_kernel(
    EXPLICIT,
    "eye",
    types={"T": DTYPES},
    parameters={"out": "tensor", "rows": "size", "columns": "size", "diagonal": "scalar"},
)


@torch.library.custom_op("opencl_examples::fill_eye", mutates_args=("out",))
def fill_eye(out: torch.Tensor, diagonal: int, explicit: bool) -> None:
    """Write ones on a diagonal of a matrix and zeros elsewhere.

    Args:
        out: the matrix, contiguous, on an OpenCL device.
        diagonal: 0 for the main one, greater above it.
        explicit: which of the two kernels to call.
    """
    rows, columns = out.shape
    if not explicit:
        simple_eye(out, columns, diagonal, elements=rows * columns)
        return
    whole_groups = [-(-size // GROUP) * GROUP for size in (columns, rows)]
    explicit_eye(out, rows, columns, diagonal, global_size=whole_groups, local_size=(GROUP, GROUP))


def eye(
    rows: int, columns: int, diagonal: int = 0, dtype: torch.dtype = torch.float32, explicit: bool = False
) -> torch.Tensor:
    """Return a matrix with ones on a diagonal.

    Args:
        rows: its rows.
        columns: its columns.
        diagonal: 0 for the main one, greater above it.
        dtype: one of ``DTYPES``.
        explicit: which of the two kernels to call.

    Returns:
        The matrix, on the current OpenCL device.
    """
    out = torch.empty(rows, columns, dtype=dtype, device="opencl")
    fill_eye(out, diagonal, explicit)
    return out


def main() -> None:
    """Compare both kernels with torch.eye, and the compiled operator."""
    for dtype in DTYPES:
        for explicit in (False, True):
            torch.testing.assert_close(eye(5, 7, 0, dtype, explicit).cpu(), torch.eye(5, 7, dtype=dtype))
    scaled = torch.compile(lambda: eye(100, 90, 3) * 2, fullgraph=True)
    torch.testing.assert_close(scaled().cpu(), 2 * torch.ones(100, 90).triu(3).tril(3))
    print("eye: both kernels agree with torch.eye in", ", ".join(map(str, DTYPES)))


if __name__ == "__main__":
    main()
