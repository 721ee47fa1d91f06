"""A recorded program: what the native library asks a GPU to build, and how it launches its kernels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256

from gpu_compile.sources import families


@dataclass(frozen=True)
class Launch:
    """The most that launches of a kernel ask for.

    Attributes:
        group: work-items of a group.
        local: bytes of local memory in its arguments.
    """

    group: int
    local: int


@dataclass
class Program:
    """A program.

    Attributes:
        family: the family of `rust/kernels/source.rs`.
        cases: its cases of operators, empty where the family has none.
        options: the compiler's options.
        launches: by kernel, for those that are launched.
    """

    family: str
    cases: str
    options: str
    launches: dict[str, Launch] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """The family, the class and the constants, which tell it from others."""
        words = self.options.split()
        constants = [word for word in words if "=" in word and not word.startswith("-")]
        device = [] if self.computes_double else ["no-fp64"]
        return " ".join([self.family, *(word for word in words if word.startswith("CLASS_")), *device, *constants])

    @property
    def source(self) -> str:
        """OpenCL C, of the files as they are now."""
        return families()[self.family].source(self.cases)

    @property
    def computes_double(self) -> bool:
        """True if the device it is for computes in float64."""
        return "HAS_FP64" in self.options.split()

    @property
    def is_specialised(self) -> bool:
        """True if operators or dtypes are constants of it."""
        return "SPEC_" in self.options

    @cached_property
    def digest(self) -> str:
        """A hash that tells it from every other program, and from itself before a change."""
        return sha256(f"{self.options}\n{self.source}".encode()).hexdigest()

    @property
    def clang_options(self) -> list[str]:
        """Its options as clang's driver takes them, but `-w`, which would hide that a loop was not unrolled."""
        words = (word for word in self.options.split() if word != "-w")
        return [f"-D{next(words)}" if word == "-D" else word for word in words]

    def is_asked_for(self, words: Sequence[str]) -> bool:
        """Say whether words of a command line select the program.

        Args:
            words: families, kernels, or patterns for names; none for all programs.

        Returns:
            Whether one of them names it.
        """
        if not words:
            return True
        return any(
            word == self.family or word in self.launches or fnmatchcase(self.name, word) or word in self.name.split()
            for word in words
        )
