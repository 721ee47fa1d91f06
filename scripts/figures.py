"""Draws the README's images from tables in docs: `make figures`.

docs/images/coverage.svg counts the cells of the measured table of docs/coverage.md; docs/images/speed.svg shows the
table in docs/performance.md that `make speed` writes. This file has no figures.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from sweep import page  # noqa: E402

# Letters of the measured table with their meanings and colours, in the order of a bar's parts.
KINDS = (
    ("nc", "on the device", "#2a7f9e"),
    ("h", "on the host, by declaration", "#8fc1d4"),
    ("f", "CPU fallback", "#e0b252"),
    ("uwex", "refused or not right", "#b5443c"),
)
WIDTH, LABEL, ROW = 760, 190, 22


def text(x: float, y: float, content: str, anchor: str = "start", size: int = 13) -> str:
    """Return a text element whose baseline begins, or ends, at a point."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(content)}</text>'


def bar(x: float, y: float, width: float, colour: str) -> str:
    """Return a horizontal bar of one row."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}"/>'


def picture(title: str, height: float, elements: list[str]) -> str:
    """Return an SVG with a title; the white background is for pages with a dark theme."""
    size = f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>'
    body = [f"<title>{escape(title)}</title>", f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>']
    return "\n".join([head, *body, text(10, 22, title, size=15), *elements, "</svg>\n"])


def coverage(document: str) -> str:
    """Draw the shares of operators by dtype.

    Args:
        document: docs/coverage.md.

    Returns:
        The SVG's text.
    """
    lines = page.measured_lines(document)
    elements, y = [], 70.0
    x = 10.0
    for _, name, colour in KINDS:
        elements += [bar(x, 34, 16, colour), text(x + 22, 47, name)]
        x += 45 + 7.2 * len(name)
    for dtype in page.DTYPES:
        counted = Counter(letters[dtype] for letters in lines.values() if dtype in letters)
        whole = counted.total()
        elements.append(text(LABEL - 10, y + 13, f"{dtype} ({whole})", "end"))
        x, most = float(LABEL), WIDTH - LABEL - 70
        for letters, _, colour in KINDS:
            share = sum(counted[letter] for letter in letters) / max(1, whole) * most
            if share:
                elements.append(bar(x, y, share, colour))
                x += share
        served = sum(counted[letter] for letter in "nch") / max(1, whole)
        elements.append(text(WIDTH - 60, y + 13, f"{served:.1%}"))
        y += ROW
    title = f"Operators, modules and optimizers of PyTorch's test databases: {len(lines)}, by dtype"
    return picture(title, y + 10, elements)


def speed(document: str) -> str:
    """Draw the speed of groups of operators, and of models, against PyTorch's CPU backend.

    Args:
        document: docs/performance.md.

    Returns:
        The SVG's text.

    Raises:
        ValueError: there is no table of groups.
    """
    found = re.search(r"^(Commit .*)\.\n\n\| group \| rows \| default .*\n\|.*\n((?:\|.*\n)+)", document, re.M)
    if found is None:
        raise ValueError("docs/performance.md has no table from `make speed`")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[2].splitlines()]
    ratios = {name.replace("`", ""): float(default) for name, _, default, *_ in rows}
    left, scale = 240, (WIDTH - 310) / max(ratios.values())
    elements, y = (
        [
            text(10, 44, "The CPU's time divided by the device's, PoCL; the line is the CPU's speed"),
            text(10, 62, found[1], size=11),
        ],
        80.0,
    )
    for name, ratio in ratios.items():
        elements += [
            text(left - 10, y + 13, name, "end"),
            bar(left, y, ratio * scale, KINDS[0][2] if ratio >= 1 else KINDS[2][2]),
            text(left + max(1, ratio) * scale + 6, y + 13, f"{ratio:.2f}"),
        ]
        y += ROW
    elements.append(f'<path d="M{left + scale:.1f} 74V{y:.0f}" stroke="black" stroke-dasharray="4 3"/>')
    return picture("Speed against PyTorch's CPU backend on the same processor", y + 10, elements)


def main() -> None:
    """Write both images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "docs/images", help="the folder, docs/images by default")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coverage.svg").write_text(coverage(page.PAGE.read_text()))
    (folder / "speed.svg").write_text(speed((ROOT / "docs/performance.md").read_text()))


if __name__ == "__main__":
    main()
