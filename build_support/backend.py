"""The PEP 517 backend: setuptools, after a check of the build's requirements.

pip calls the metadata hooks first, so these do the check.
"""

import shutil

from setuptools import build_meta

from build_support.checks import ROOT, check_toolchain

get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Make the wheel's metadata."""
    check_toolchain()
    return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Make the editable wheel's metadata."""
    check_toolchain()
    return build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the wheel, without modules from an earlier build."""
    shutil.rmtree(ROOT / "target" / "python", ignore_errors=True)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
