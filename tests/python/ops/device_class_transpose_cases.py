"""Like device_class_cases.py, for copies that transpose matrices: tiles of vectors and of elements."""

import pytest
import torch

# Elements before the first matrix, and after each row and each matrix: vectors are whole only in the first two.
LAYOUTS = [(0, 0, 0), (16, 32, 48), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
MATRICES = [(1, 16, 16), (3, 48, 80), (2, 272, 144), (5, 17, 33), (1, 20, 1040), (1, 261, 259), (2, 288, 101)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_transposed_matrices(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Small and large tiles of vectors and of elements; what surrounds the result stays zero."""
    batch, rows, columns = shape
    numbers = torch.arange(batch * rows * columns).remainder(250).add(1).view(shape).to(dtype)

    def zeros(layout: tuple[int, int, int], rows: int, columns: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        offset, gap, apart = layout
        row = columns + gap
        matrix = rows * row + apart
        memory = torch.zeros(offset + batch * matrix, dtype=dtype, device=device)
        return memory, memory.as_strided((batch, rows, columns), (matrix, row, 1), offset)

    def transposed(source_layout: tuple[int, int, int], layout: tuple[int, int, int], device: str) -> torch.Tensor:
        _, source = zeros(source_layout, rows, columns, device)
        memory, result = zeros(layout, columns, rows, device)
        result.copy_(source.copy_(numbers).mT)
        return memory.cpu()

    for layout in LAYOUTS:
        for pair in {(layout, layout), (layout, LAYOUTS[0]), (LAYOUTS[0], layout)}:
            assert transposed(*pair, "opencl").equal(transposed(*pair, "cpu")), pair
