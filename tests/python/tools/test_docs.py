"""The documents: what is generated is up to date, and links and names of files lead somewhere."""

import os
import re
from pathlib import Path

import pytest
from op_table import ROWS, opinfos_of
from releases import RELEASE, release
from sweep import page

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = ("benchmarks", "build_support", "cpp", "gpu_kit", "python", "rust", "scripts", "tests")
FILES = {path.relative_to(ROOT) for folder in SOURCES for path in (ROOT / folder).rglob("*.*")}
NAMES = {path.name for path in FILES}
# Rows of the op table may be for some releases of PyTorch only: the page is for the one that the tests use.
PINNED = re.search(r"^torch==(\d+\.\d+)", (ROOT / "requirements-dev.txt").read_text(), re.M)[1]


@pytest.mark.skipif(release(PINNED) != RELEASE, reason=f"docs/coverage.md is for torch {PINNED}")
def test_the_table_of_supported_operators_is_the_one_that_the_build_makes():
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "coverage.md"
    is_current = page.halves(page.PAGE.read_text())[0] == built.read_text()
    assert is_current, "docs/coverage.md differs from what native_functions.yaml says: run `make docs`"


@pytest.mark.skipif(release(PINNED) != RELEASE, reason=f"docs/coverage.md is for torch {PINNED}")
def test_operators_that_a_sweep_found_to_have_kernels_have_rows():
    measured = page.measured_lines(page.PAGE.read_text())
    with_rows = {info.full_name for row in ROWS for info in opinfos_of(row)}
    native = {subject for subject, letters in measured.items() if "n" in letters.values()}
    assert native <= with_rows, "docs/coverage.md is out of date: run `make sweep` for these operators"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document):
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text()):
        path, _, heading = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists() or (heading and heading not in headings(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_exist(document):
    text = document.read_text()
    paths = re.findall(rf"`((?:{'|'.join(SOURCES)})/[\w/]+\.\w+)`", text)
    names = re.findall(r"`(\w+\.(?:cl|rs|cpp|h|py))`", text)
    missing = [path for path in paths if Path(path) not in FILES]
    missing += [name for name in names if name not in NAMES and not (ROOT / name).exists()]
    assert not missing


def headings(document: Path) -> set[str]:
    """Anchors of a document's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
