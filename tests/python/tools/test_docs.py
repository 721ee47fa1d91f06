"""The documents: generated parts are up to date, links and names are valid, and examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from op_table import ROWS, opinfos_of
from processes import output_of, two_devices
from releases import RELEASE, release
from sweep import page

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = ("benchmarks", "build_support", "cpp", "gpu_kit", "python", "rust", "scripts", "tests")
FILES = {path.relative_to(ROOT) for folder in SOURCES for path in (ROOT / folder).rglob("*.*")}
NAMES = {path.name for path in FILES}
# A comment before a Python block excludes it, with the reason.
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?^```python\n(.*?)^```$", re.M | re.S)
PROGRAMS = {path: [code for skipped, code in BLOCK.findall(path.read_text()) if not skipped] for path in DOCUMENTS}
TROUBLESHOOTING = ROOT / "docs/troubleshooting.md"
# Rows of the op table may be for some releases of PyTorch only: the page describes the release that the tests use.
PINNED = re.search(r"^torch==(\d+\.\d+)", (ROOT / "requirements-dev.txt").read_text(), re.M)[1]


@pytest.mark.skipif(release(PINNED) != RELEASE, reason=f"docs/coverage.md is for torch {PINNED}")
def test_the_table_of_supported_operators_is_the_one_that_the_build_makes():
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "coverage.md"
    is_current = page.halves(page.PAGE.read_text())[0] == built.read_text()
    assert is_current, "docs/coverage.md differs from native_functions.yaml: run `make docs`"


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


@pytest.mark.parametrize(
    "document",
    [path for path, blocks in PROGRAMS.items() if blocks and path.name != "devices.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_blocks_of_a_document_run_in_order(document):
    names = {"__name__": "__main__"}
    for block in PROGRAMS[document]:
        exec(compile(block, document.name, "exec"), names)


def test_the_page_on_several_devices_runs_with_two():
    output_of("\n".join(PROGRAMS[ROOT / "docs/devices.md"]), **two_devices())


def test_messages_of_the_troubleshooting_page_are_in_the_sources():
    kinds = ("python/**/*.py", "rust/**/*.rs", "cpp/**/*.cpp")
    sources = "".join(path.read_text() for kind in kinds for path in ROOT.glob(kind))
    # Messages continue in the next line: with a backslash in Rust, as adjacent literals in Python and C++.
    joined = re.sub(r'\\\n\s+|"\s*\n\s*f?"', "", sources)
    lines = re.findall(r"^(?:### |- `).*", TROUBLESHOOTING.read_text(), re.M)
    told = [message for line in lines for message in re.findall(r"`([^`]+)`", line.partition("`: ")[0] + "`")]
    assert len(told) > 30
    assert not [message for message in told if message not in joined and message not in "TargetIndexError"]


def test_the_pictures_of_the_readme_are_drawn_from_the_tables(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts/figures.py", "--to", tmp_path], check=True)
    for name in ("coverage.svg", "speed.svg"):
        bars = ElementTree.parse(tmp_path / name).getroot().findall("{*}rect")
        assert len(bars) > 12
        assert (ROOT / "docs/images" / name).exists()


def headings(document: Path) -> set[str]:
    """Anchors of a document's headings, as code hosts generate them."""
    titles = re.findall(r"^#+ (.*)", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
