"""What a process loads of scipy: its largest subpackage takes longer to import than all of this project."""

from __future__ import annotations

import subprocess
import sys

import pytest

EVALUATION = """
import calibrant as cal
cal.evaluate([0.9, 0.2, 0.7, 0.4], [1, 0, 1, 0])
cal.reliability([0.9, 0.2, 0.7, 0.4], [1, 0, 1, 0])
cal.fit_temperature([0.9, 0.2, 0.7, 0.4], [1, 0, 0, 1])
"""
SERVICE = "import calibrant_server.service.app, calibrant_server.workers.main"


@pytest.mark.parametrize("code", [EVALUATION, SERVICE], ids=["library", "service"])
def test_neither_library_nor_service_loads_the_statistics_of_scipy(code):
    check = f"import sys\n{code}\nassert 'scipy.stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)
