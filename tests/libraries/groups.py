"""Where the libraries are, and programs that they start in several processes."""

import os
import subprocess
import sys
from pathlib import Path

# LIBRARIES names another folder where they are installed.
LIBRARIES = os.environ.get("LIBRARIES", str(Path(__file__).parents[2] / ".venv-libraries"))


def run_program(launch: list[str], text: str, folder: Path, *arguments: str) -> None:
    """Run a program that may import the libraries, and the tests beside this file.

    Args:
        launch: what Python is given before the program.
        text: the program.
        folder: where it is written; its first argument.
        arguments: the others.
    """
    program = folder / "program.py"
    program.write_text(text)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH"), LIBRARIES]))
    command = [sys.executable, *launch, str(program), str(folder), *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
