"""The folder of the libraries, and programs that start several processes.

Not with tests/python/process_runner.py, which does not kill the processes that a process has started.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

# LIBRARIES names another installation folder.
LIBRARIES = os.environ.get("LIBRARIES", str(Path(__file__).parents[2] / ".venv-libraries"))


def run_program(launch: list[str], text: str, folder: Path, *arguments: str) -> None:
    """Run a program that may import the libraries, and the tests beside this file.

    Args:
        launch: the arguments of Python before the program.
        text: the program.
        folder: where it is written; the program's first argument.
        arguments: its other arguments.
    """
    program = folder / "program.py"
    program.write_text(text)
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH"), LIBRARIES]))
    command = [sys.executable, *launch, str(program), str(folder), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, start_new_session=True, **pipes) as process:
        try:
            _, errors = process.communicate(timeout=300)
        finally:
            # Also kills the processes that it started.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
