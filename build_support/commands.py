"""The setuptools commands for the native library; pyproject.toml names them."""

import subprocess
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

from build_support import native
from build_support.checks import torch_release


class EggInfo(egg_info):
    """Sets the version of a build for one release of PyTorch: 0.1.0.post213 needs torch 2.13.

    Files of one version must not differ in a package index, and pip selects a version by its requirements. An sdist
    can become any of them, so it keeps the plain version and the whole range.
    """

    def finalize_options(self) -> None:
        """Set version and requirement."""
        if "sdist" not in self.distribution.commands:
            major, minor = map(int, torch_release().split("."))
            self.tag_build = f".post{major}{minor}"
            requirement = f"torch>={major}.{minor},<{major}.{minor + 1}"
            self.distribution.install_requires = self.distribution.metadata.install_requires = [requirement]
        super().finalize_options()


class BuildPy(build_py):
    """Collects the package's files, including the native library for this PyTorch."""

    def run(self) -> None:
        """Build the native library, then collect."""
        native.build()
        super().run()
        if not self.editable_mode:
            for library in Path(self.build_lib).glob(f"torch_opencl/lib/*/{native.LIBRARY}"):
                # Debug information is two thirds of it.
                subprocess.run(["strip", "--strip-unneeded", library], check=True)

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        """Leave out the libraries that were built for other releases of PyTorch.

        Args:
            package: its name.
            src_dir: the folder of its sources.

        Returns:
            Paths.
        """
        libraries = Path(src_dir) / "lib"
        files = super().find_data_files(package, src_dir)
        others = (Path(file).parent for file in files)
        others = {folder for folder in others if folder.parent == libraries and folder.name != torch_release()}
        return [file for file in files if Path(file).parent not in others]


class BdistWheel(bdist_wheel):
    """Makes one wheel for every Python 3: the native library uses no Python C API."""

    def finalize_options(self) -> None:
        """Mark the wheel as specific to a platform."""
        self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the wheel's tag.

        Returns:
            Python, ABI and platform.
        """
        return "py3", "none", super().get_tag()[2]
