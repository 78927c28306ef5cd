"""The compiled kernel as a shared library: where it is, whether it loads, and its functions.

`make kernel` and the wheel put it next to this file. The environment variable `CALIBRANT_KERNEL` may be `baseline` (no AVX2), for tests
and for comparison. Tests name a library with sanitizers in `CALIBRANT_KERNEL_LIBRARY`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from calibrant.kernel.declarations import declare

VARIABLE = "CALIBRANT_KERNEL"
BASELINE = "baseline"
# Raised with `KERNEL_ABI` in `source/kernel.h`.
ABI = 19
SUFFIXES = {"darwin": ".dylib", "win32": ".dll"}
NAME = "libcalibrant_kernel" + SUFFIXES.get(sys.platform, ".so")
PATH = Path(os.environ.get(f"{VARIABLE}_LIBRARY") or Path(__file__).with_name(NAME))


_ADVICE = (
    "In a clone, run `make kernel`: it builds the library with the system's C compiler or, without one, with that of the ziglang "
    "wheel. Elsewhere, install a wheel of calibrant for this platform."
)


class KernelError(ImportError):
    """The compiled kernel is missing, does not load, or is of another version."""


@dataclass(frozen=True)
class Status:
    """Which code fills panes.

    Attributes
    ----------
    variant : "avx2" or "baseline"
    """

    variant: str

    def __str__(self) -> str:
        return f"kernel ({self.variant})"


def status() -> Status:
    """Report which variant of the compiled kernel fills panes.

    Examples
    --------
    >>> status().variant in ("avx2", "baseline")
    True
    """
    return _loaded()[1]


def library() -> ctypes.CDLL:
    """Return the library with its functions declared.

    Raises
    ------
    KernelError
        As described.
    """
    return _loaded()[0]


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL, Status]:
    if not PATH.exists():
        raise KernelError(f"The compiled kernel is missing: {PATH}. {_ADVICE}")
    try:
        found = ctypes.CDLL(str(PATH))
        abi = found.calibrant_kernel_abi()
    except (OSError, AttributeError) as error:
        raise KernelError(f"The compiled kernel does not load: {error}. {_ADVICE}") from error
    if abi != ABI:
        raise KernelError(
            f"The compiled kernel {PATH} is of version {abi}; expected {ABI}. {_ADVICE}"
        )
    declare(found)
    has_avx2 = found.calibrant_kernel_avx2(0 if os.environ.get(VARIABLE) == BASELINE else 1)
    return found, Status("avx2" if has_avx2 else "baseline")
