"""Build the kernel into the wheel, which then is of one platform and of every Python version.

The kernel is required: without a compiler nothing is built. In a clone, `make kernel` builds it for the editable installation.
`scripts/wheels` sets `CALIBRANT_WHEEL_PLATFORM` to compile for another platform.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PLATFORM = os.environ.get("CALIBRANT_WHEEL_PLATFORM", "")
COMPILER = os.environ.get("CC", "cc").split()[0]


class BuildWithKernel(build_py):
    """Compile the kernel next to the modules that load it; in a clone, `make kernel` does."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            if shutil.which(COMPILER) is None:
                raise SystemExit(
                    f"no C compiler: {COMPILER}. Install one, or `pip install ziglang` and set CC='python -m ziglang cc'."
                )
            folder = Path(self.build_lib) / "calibrant" / "kernel"
            command = ["sh", "scripts/build-kernel", str(folder), *PLATFORM.split("_")[:1]]
            subprocess.run(command, check=True)


class PlatformWheel(bdist_wheel):
    """Name the platform and no Python version: the kernel is loaded with ctypes."""

    def finalize_options(self) -> None:
        if PLATFORM:
            self.plat_name = PLATFORM
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithKernel(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=WithKernel,
    cmdclass={"build_py": BuildWithKernel, "bdist_wheel": PlatformWheel},
)
