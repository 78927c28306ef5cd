"""What an import of the library loads: a notebook and an edge client pay for it before they compute anything."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PATIENCE_S

# scipy loads each of its subpackages on first use; `scipy.stats` alone takes half a second.
EVERYTHING = """
import importlib, pkgutil, sys
import calibrant
for found in pkgutil.walk_packages(calibrant.__path__, "calibrant."):
    # The kernel is loaded with ctypes; adapters import packages that are not installed here.
    if not found.name.endswith("libcalibrant_kernel") and not found.name.startswith(("calibrant.torch", "calibrant.contrib")):
        importlib.import_module(found.name)
subpackages = {"fft", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "special", "stats"}
print(sorted(name for name in subpackages if f"scipy.{name}" in sys.modules))
"""


def test_no_module_of_the_library_loads_a_subpackage_of_scipy() -> None:
    command = [sys.executable, "-c", EVERYTHING]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.stdout.strip() == "[]"


def test_an_import_loads_neither_numpy_nor_scipy() -> None:
    """`import calibrant` takes some hundredths of a second: names are imported when they are first used."""
    loaded = "import calibrant, sys; print(*{'numpy', 'scipy', 'zstandard'} & sys.modules.keys())"
    command = [sys.executable, "-c", loaded]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.stdout.strip() == ""


def test_the_first_metric_loads_no_subpackage_of_scipy_and_no_maps() -> None:
    """`scipy.special` takes several times as long as the metric, its interval and its null reference."""
    program = """
import sys
import numpy as np
import calibrant
p = np.linspace(0.01, 0.99, 500)
found = calibrant.ece(np.stack([p, 1.0 - p], axis=1), (p < 0.4).astype(int))
assert found.interval and found.null
print(*{"scipy.special", "scipy.optimize", "calibrant.calibrators.fitting"} & sys.modules.keys())
"""
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.stdout.strip() == ""


def test_naming_the_client_does_not_load_httpx() -> None:
    """They are loaded when a client is made: without the extra, the names exist and say what to install."""
    loaded = "import calibrant, sys; calibrant.Client; print(*{'httpx'} & sys.modules.keys())"
    command = [sys.executable, "-c", loaded]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert found.stdout.strip() == ""
