"""The compiled kernel as a shared library: where it is, whether it loads, and its functions.

`make kernel` and the wheel put it next to this file. The environment variable `CALIBRANT_KERNEL` may be `off` (numpy fills) or
`baseline` (no AVX2), for tests and for comparison. Tests name a library with sanitizers in `CALIBRANT_KERNEL_LIBRARY`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VARIABLE = "CALIBRANT_KERNEL"
OFF, BASELINE = "off", "baseline"
# Raised with `KERNEL_ABI` in `source/kernel.h`.
ABI = 15
NAME = "libcalibrant_kernel" + (".dylib" if sys.platform == "darwin" else ".so")
PATH = Path(os.environ.get(f"{VARIABLE}_LIBRARY") or Path(__file__).with_name(NAME))


@dataclass(frozen=True)
class Status:
    """Which code fills panes.

    Attributes
    ----------
    filled_by : "kernel" or "numpy"
    variant : "avx2" or "baseline"; None where numpy fills
    reason : why the kernel does not fill; None where it does
    """

    filled_by: str
    variant: str | None
    reason: str | None

    def __str__(self) -> str:
        return f"kernel ({self.variant})" if self.reason is None else f"numpy ({self.reason})"


def status() -> Status:
    """Report which code fills panes: the compiled kernel or numpy.

    Returns
    -------
    Status

    Examples
    --------
    >>> status().filled_by in ("kernel", "numpy")
    True
    """
    return _loaded()[1]


def library() -> ctypes.CDLL | None:
    """Return the library with its functions declared, or None where numpy fills."""
    return _loaded()[0]


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL | None, Status]:
    wanted = os.environ.get(VARIABLE, "")
    if wanted == OFF:
        return None, Status("numpy", None, f"{VARIABLE}={OFF}")
    if not PATH.exists():
        return None, Status("numpy", None, f"no {NAME}; build it with `make kernel`")
    try:
        found = ctypes.CDLL(str(PATH))
        abi = found.calibrant_kernel_abi()
    except (OSError, AttributeError) as error:
        return None, Status("numpy", None, f"{NAME} does not load: {error}")
    if abi != ABI:
        return None, Status("numpy", None, f"{NAME} is of another version; run `make kernel`")
    _declare(found)
    has_avx2 = found.calibrant_kernel_avx2(0 if wanted == BASELINE else 1)
    return found, Status("kernel", "avx2" if has_avx2 else "baseline", None)


def _declare(found: ctypes.CDLL) -> None:
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    found.calibrant_kernel_avx2.argtypes, found.calibrant_kernel_avx2.restype = [int64], int64
    found.calibrant_kernel_new.argtypes = [pointer, pointer]
    found.calibrant_kernel_new.restype = pointer
    found.calibrant_kernel_free.argtypes, found.calibrant_kernel_free.restype = [pointer], None
    found.calibrant_kernel_fill.argtypes = [pointer, pointer, pointer]
    found.calibrant_kernel_fill.restype = int64
    found.calibrant_kernel_single_labels.argtypes = [pointer]
    found.calibrant_kernel_single_labels.restype = int64
    found.calibrant_kernel_flush.argtypes = [pointer, pointer]
    found.calibrant_kernel_flush.restype = None
    found.calibrant_kernel_numbers.argtypes = [pointer, pointer, pointer, int64]
    found.calibrant_kernel_numbers.restype = None
    found.calibrant_kernel_gains.argtypes = [pointer, pointer]
    found.calibrant_kernel_gains.restype = int64
    found.calibrant_kernel_divide.argtypes = [pointer, pointer]
    found.calibrant_kernel_divide.restype = None
    found.calibrant_kernel_noisy_sums.argtypes = [pointer, pointer]
    found.calibrant_kernel_noisy_sums.restype = None
    found.calibrant_kernel_json.argtypes, found.calibrant_kernel_json.restype = [pointer], int64
    found.calibrant_kernel_json_size.argtypes = [pointer]
    found.calibrant_kernel_json_size.restype = None
    found.calibrant_kernel_json_lines.argtypes = [pointer]
    found.calibrant_kernel_json_lines.restype = int64
    found.calibrant_kernel_small_batch.argtypes = [pointer]
    found.calibrant_kernel_small_batch.restype = int64
    found.calibrant_kernel_digests.argtypes = [ctypes.c_char_p, pointer, int64, int64, pointer]
    found.calibrant_kernel_digests.restype = None
    found.calibrant_kernel_narrow.argtypes = [pointer, pointer, pointer, pointer]
    found.calibrant_kernel_narrow.restype = None
    found.calibrant_kernel_hash_rows.argtypes = [pointer, int64, int64, pointer]
    found.calibrant_kernel_hash_rows.restype = None
