"""The tool that compares models with the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "models"


def run(*arguments: str) -> subprocess.CompletedProcess:
    """Run the tool."""
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.slow
def test_a_sample_of_models_is_as_on_the_cpu(tmp_path):
    done = run("torch/recommender", "torch/gcn_*", "torch/gpt", "--untimed", "--results", str(tmp_path / "results"))
    results = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert [result["status"] for result in results] == ["right"] * 4, done.stdout
    assert done.returncode == 0
    assert "4 right" in done.stdout


def test_models_are_listed_and_unknown_ones_refused():
    listed = run("--list", "torch/*").stdout.split()
    assert "torch/resnet18" in listed
    assert run("nothing/at_all").returncode == 2


@pytest.mark.slow
def test_a_model_that_takes_too_long_is_reported(tmp_path):
    done = run("torch/lenet", "--timeout", "0.5")
    assert done.returncode == 1
    assert "timeout" in done.stdout
