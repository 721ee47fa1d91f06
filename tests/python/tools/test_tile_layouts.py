"""Layouts of matrix instructions: as vendors document them, and without conflicts of banks in local memory."""

import subprocess
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[3] / "rust" / "kernels" / "include"

# The (lane, element) that holds A[row][k], B[k][column] and C[row][column]: the reverse of tile_layout.cl. Where None,
# A and B may have any order of k that they share.
DOCUMENTED = {
    # PTX ISA, "Matrix Fragments for mma.m16n8k16": a tile has the fragments of two neighbouring instructions.
    "TILE_MMA": (
        lambda row, k: (row % 8 * 4 + k // 2 % 4, k % 2 + row // 8 * 2 + k // 8 * 4),
        lambda k, column: (column % 8 * 4 + k // 2 % 4, k % 2 + k // 8 * 2 + column // 8 * 4),
        lambda row, column: (row % 8 * 4 + column % 8 // 2, column % 2 + row // 8 * 2 + column // 8 * 4),
    ),
    # AMD, "How to accelerate AI applications on RDNA 3 using WMMA"; lanes 16 to 31 hold the same of A and B as 0 to 15.
    "TILE_WMMA": (
        lambda row, k: (row, k),
        lambda k, column: (column, k),
        lambda row, column: (row % 2 * 16 + column, row // 2),
    ),
    # AMD, RDNA 4 instruction set architecture.
    "TILE_WMMA12": (None, None, lambda row, column: (row // 8 * 16 + column, row % 8)),
    # AMD, "Matrix cores": v_mfma_f32_16x16x16.
    "TILE_MFMA": (
        lambda row, k: (k // 4 * 16 + row, k % 4),
        lambda k, column: (k // 4 * 16 + column, k % 4),
        lambda row, column: (row // 4 * 16 + column, row % 4),
    ),
    # cl_intel_subgroup_matrix_multiply_accumulate: component r of A is row r, of which a lane has 16 bits in sub-groups
    # of 16 and 32 bits in those of 8; component i of B is k = 2 i and 2 i + 1 of the lane's column.
    "TILE_DPAS16": (
        lambda row, k: (k, row),
        lambda k, column: (column, k),
        lambda row, column: (column, row),
    ),
    "TILE_DPAS8": (
        lambda row, k: (k // 2, row * 2 + k % 2),
        lambda k, column: (column % 8, column // 8 * 16 + k),
        lambda row, column: (column % 8, (row // 8 * 2 + column // 8) * 8 + row % 8),
    ),
}

# Prints the macros' values for each lane and element, and for ldmatrix the rows that lanes give.
PROGRAM = """
#include <cstdio>
typedef unsigned uint;
typedef unsigned short ushort;
#define __local
#define INLINE static inline
#define UNROLL
#define DT_I8 1
#define DT_F16 5
#define DT_F32 6
#include "tile_layout.cl"
#include "tile_block.cl"
int main() {
  for (int lane = 0; lane < TILE_LANES; ++lane) {
    for (int e = 0; e < 2 * TILE_A_WORDS; ++e)
      printf("A %d %d %d %d\\n", lane, e, TILE_A_ROW(lane, e), TILE_A_K(lane, e));
    for (int e = 0; e < 2 * TILE_B_WORDS; ++e)
      printf("B %d %d %d %d\\n", lane, e, TILE_B_K(lane, e), TILE_B_COLUMN(lane, e));
    for (int i = 0; i < TILE_C_ITEMS; ++i)
      printf("C %d %d %d %d\\n", lane, i, TILE_C_ROW(lane, i), TILE_C_COLUMN(lane, i));
  }
#if TILE_KIND == TILE_MMA
  // Each word of float32 in rows along the outer index, and where its k and outer index are.
  if (INPUT_DTYPE == DT_F32)
    for (uint lane = 0; lane < 32; ++lane)
      for (uint w = 0; w < 4; ++w)
        for (uint outer = 0; outer < 64; outer += 16) {
          const uint a_row = (16 + TILE_A_K(lane, 2 * w)) / 2, a_column = (outer + TILE_A_ROW(lane, 2 * w)) * 2;
          const uint b_row = (16 + TILE_B_K(lane, 2 * w)) / 2, b_column = (outer + TILE_B_COLUMN(lane, 2 * w)) * 2;
          const uint a = WORD_INDEX(256, outer, 16, lane, w, TILE_A_ROW, TILE_A_K);
          const uint b = WORD_INDEX(256, outer, 16, lane, w, TILE_B_COLUMN, TILE_B_K);
          printf("x %u %u %u\\n", outer + w, a, INDEX_IN_ROWS(256, a_row, a_column));
          printf("y %u %u %u\\n", outer + w, b, INDEX_IN_ROWS(256, b_row, b_column));
        }
  for (int along_k = 0; along_k < 2; ++along_k)
    for (int outer = 0; outer < 32; outer += 16)
      for (int k = 0; k < 32; k += 16)
        for (int lane = 0; lane < 32; ++lane) {
          const uint width = along_k ? 32 : 128;
          printf("a %d %d %u\\n", along_k, outer + k * 100 + lane / 8, matrix_row_a(along_k, width, outer, k, lane));
          printf("b %d %d %u\\n", along_k, outer + k * 100 + lane / 8, matrix_row_b(along_k, width, outer, k, lane));
        }
#endif
}
"""


def printed_by(kind: str, folder: Path, dtype: str = "DT_F16") -> list[list[str]]:
    """The words of each line that the program prints for a kind."""
    source, program = folder / "layout.cpp", folder / "layout"
    source.write_text(PROGRAM)
    defines = [f"-DTILE_KIND={kind}", f"-DINPUT_DTYPE={dtype}"]
    subprocess.run(["g++", "-w", f"-I{INCLUDE}", *defines, source, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_layouts_are_the_documented_ones(kind: str, tmp_path: Path) -> None:
    owners: dict[str, dict] = defaultdict(lambda: defaultdict(list))
    for matrix, *numbers in printed_by(kind, tmp_path):
        if matrix in "ABC":
            lane, element, row, column = map(int, numbers)
            owners[matrix][row, column].append((lane, element))
    for matrix, document in zip("ABC", DOCUMENTED[kind], strict=True):
        assert set(owners[matrix]) == set(product(range(16), range(16)))
        copies = 2 if kind == "TILE_WMMA" and matrix != "C" else 1
        for position, holders in owners[matrix].items():
            assert len(holders) == copies
            assert document is None or document(*position) in holders
    # Both operands have one order of k.
    if kind == "TILE_WMMA12":
        a = {holder: k for (_, k), holders in owners["A"].items() for holder in holders}
        b = {holder: k for (k, _), holders in owners["B"].items() for holder in holders}
        assert a == b


def test_matrix_loads_of_nvidia_have_no_conflicts_of_banks(tmp_path: Path) -> None:
    """ldmatrix reads 8 rows of 16 bytes at a time: all 32 banks of 4 bytes once."""
    rows = defaultdict(list)
    for name, order, matrix, *rest in printed_by("TILE_MMA", tmp_path):
        if name in "ab":
            rows[name, order, matrix].append(int(rest[0]))
    assert len(rows) == 2 * 2 * 4 * 4
    for indices in rows.values():
        banks = Counter(index // 2 % 32 for index in indices)
        assert len(banks) == 8
        assert all(bank % 4 == 0 for bank in banks)


def test_words_of_float32_are_read_without_conflicts_of_banks(tmp_path: Path) -> None:
    """The 32 lanes read all 32 banks once."""
    loads = defaultdict(list)
    for name, word, found, *expected in printed_by("TILE_MMA", tmp_path, "DT_F32"):
        if name in "xy":
            assert expected == [found]
            loads[name, word].append(int(found))
    assert len(loads) == 2 * 4 * 4
    for elements in loads.values():
        assert {element // 2 % 32 for element in elements} == set(range(32))
