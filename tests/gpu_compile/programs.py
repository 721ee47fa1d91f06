"""A recorded program: its source and options as the native library builds it for a GPU, and its kernel launches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256

from gpu_compile.sources import families


@dataclass(frozen=True)
class Launch:
    """The greatest sizes among the launches of a kernel.

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
        cases: its cases of operators; empty if the family has none.
        options: the compiler's options.
        launches: by kernel, for launched kernels.
        targets: the targets that can run it; empty for all.
    """

    family: str
    cases: str
    options: str
    launches: dict[str, Launch] = field(default_factory=dict)
    targets: Sequence[str] = ()

    @cached_property
    def name(self) -> str:
        """The family, the class and the constants, which identify the program."""
        words = self.options.split()
        constants = [word for word in words if "=" in word and not word.startswith("-")]
        device = [] if self.computes_double else ["no-fp64"]
        return " ".join([self.family, *(word for word in words if word.startswith("CLASS_")), *device, *constants])

    @property
    def source(self) -> str:
        """The OpenCL C source, from the current files."""
        return families()[self.family].source(self.cases)

    @property
    def computes_double(self) -> bool:
        """True if its device supports float64."""
        return "HAS_FP64" in self.options.split()

    @property
    def is_specialised(self) -> bool:
        """True if operators or dtypes are compile-time constants."""
        return "SPEC_" in self.options

    @cached_property
    def digest(self) -> str:
        """A hash of the options and the current source."""
        return sha256(f"{self.options}\n{self.source}".encode()).hexdigest()

    @property
    def clang_options(self) -> list[str]:
        """Its options for clang's driver, without `-w`, which would hide that a loop was not unrolled."""
        words = (word for word in self.options.split() if word != "-w")
        return [f"-D{next(words)}" if word == "-D" else word for word in words]

    def is_asked_for(self, words: Sequence[str]) -> bool:
        """Tell whether words of a command line select the program.

        Args:
            words: families, kernels, or patterns for names; empty for all programs.

        Returns:
            True if one of them matches it.
        """
        if not words:
            return True
        return any(
            word == self.family or word in self.launches or fnmatchcase(self.name, word) or word in self.name.split()
            for word in words
        )
