"""What Inductor, the default backend of ``torch.compile``, finds where it looks for this device's code generator.

Without these names it fails deep inside, in words that say nothing to whom called it.
"""

from typing import NoReturn

__all__ = ["CppWrapperCodegen", "PythonWrapperCodegen", "Scheduling", "WrapperFxCodegen"]


class _Absent:
    """A code generator that does not exist: the first use of it, whichever that is, says so."""

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(
            "torch.compile's default backend, Inductor, does not generate code for opencl. "
            'Use torch.compile(..., backend="aot_eager"), which runs the compiled graph with this device\'s kernels.'
        )


Scheduling = PythonWrapperCodegen = CppWrapperCodegen = WrapperFxCodegen = _Absent()
