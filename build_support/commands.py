"""The two setuptools commands that know of the native library; pyproject.toml names them."""

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

from build_support import native


class BuildPy(build_py):
    """Collects the package's files, the native library among them."""

    def run(self) -> None:
        """Build the native library, then collect."""
        native.build()
        super().run()


class BdistWheel(bdist_wheel):
    """Makes one wheel for every Python 3: the native library uses no Python C API."""

    def finalize_options(self) -> None:
        """Say that the wheel belongs to one platform."""
        self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag.

        Returns:
            Python, ABI and platform.
        """
        return "py3", "none", super().get_tag()[2]
