"""The setuptools commands for the native library; pyproject.toml names them."""

import functools
import os
import subprocess
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

from build_support import native
from build_support.checks import supported_releases, torch_release


@functools.cache
def packed_releases() -> tuple[str, ...]:
    """Return the releases of PyTorch whose libraries a wheel contains.

    Returns:
        All supported releases if the libraries for the others have been built from these sources; otherwise only that
        of this Python's PyTorch.
    """
    own = torch_release()
    releases = supported_releases()
    others = [release for release in releases if release != own]
    complete = own in releases and all(native.is_current(release) for release in others)
    return tuple(releases) if complete else (own,)


class EggInfo(egg_info):
    """Sets the version and the requirement of a wheel for one release of PyTorch: 0.1.0.post213 needs torch 2.13.

    Files of one version must not differ in a package index, and pip selects a version by its requirements. A wheel for
    all releases has the plain version and the whole range, and so has an sdist, which can become any wheel.
    """

    def finalize_options(self) -> None:
        """Set version and requirement."""
        if "sdist" not in self.distribution.commands and len(packed_releases()) == 1:
            major, minor = map(int, torch_release().split("."))
            self.tag_build = f".post{major}{minor}"
            requirement = f"torch>={major}.{minor},<{major}.{minor + 1}"
            self.distribution.install_requires = self.distribution.metadata.install_requires = [requirement]
        super().finalize_options()


class BuildPy(build_py):
    """Collects the package's files, including the native libraries of the wheel."""

    def run(self) -> None:
        """Build the native library, then collect."""
        packed_releases()  # As the metadata: the build makes one more library current.
        native.build()
        super().run()
        if not self.editable_mode:
            for library in Path(self.build_lib).glob(f"torch_opencl/lib/*/{native.LIBRARY}"):
                # Debug information is two thirds of it.
                subprocess.run([os.environ.get("STRIP", "strip"), "--strip-unneeded", library], check=True)

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        """Leave out libraries for releases of PyTorch that the wheel is not for.

        Args:
            package: its name.
            src_dir: the folder of its sources.

        Returns:
            Paths.
        """
        libraries = Path(src_dir) / "lib"
        files = [Path(file) for file in super().find_data_files(package, src_dir)]
        return [str(file) for file in files if libraries not in file.parents or file.parent.name in packed_releases()]


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
