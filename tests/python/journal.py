"""A file of results to which later runs append."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch_opencl


class Journal:
    """A file of JSON lines to which runs append; the first line names the build that the others are about."""

    def __init__(self, path: Path, keeps: bool) -> None:
        """Read the existing lines.

        Args:
            path: the file; it need not exist. A truncated last line is ignored.
            keeps: whether lines about another build are kept; otherwise that file is renamed.
        """
        self.path = path
        self.entries: list[dict[str, Any]] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self.entries.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        header = self.entries.pop(0) if self.entries else None
        if header is not None and header != build() and not keeps:
            aside = path.with_suffix(".old.jsonl")
            print(f"{path} is about another build: renamed to {aside.name}")
            path.rename(aside)
            header, self.entries = None, []
        if header is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(build()) + "\n")

    def add(self, entry: dict[str, Any]) -> None:
        """Write a line.

        Args:
            entry: its contents.
        """
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def build() -> dict[str, str]:
    """Identify a build.

    Returns:
        A hash of the native library, and the release of torch.
    """
    libraries = sorted((Path(torch_opencl.__file__).parent / "lib").rglob("*.so"))
    digest = sha256(b"".join(path.read_bytes() for path in libraries)).hexdigest()[:16]
    return {"library": digest, "torch": torch.__version__}
