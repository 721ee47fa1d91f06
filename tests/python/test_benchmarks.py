"""The table of benchmarks: every row can be found, judged and built."""

from collections import Counter
from pathlib import Path
from sys import path

import pytest
import torch

path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.__main__ import matches
from benchmarks.case import Case, Work
from benchmarks.cases import all_cases
from benchmarks.measure import Row, WrongResult, check
from benchmarks.summary import groups, shortfall
from benchmarks.targets import TARGETS


def row(group: str, name: str, cpu: float, device: float, **others: object) -> Row:
    return Row(group=group, name=name, cpu=[cpu] * 3, device=[device] * 3, **others)
