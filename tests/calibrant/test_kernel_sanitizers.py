"""The kernel under AddressSanitizer and UndefinedBehaviorSanitizer, over the same generated batches as without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("cc")
TESTS = (
    "tests/calibrant/test_kernel.py",
    "tests/calibrant/test_single_labels.py",
    "tests/calibrant/test_tempered_rows.py",
    "tests/calibrant/test_gap_sums.py",
    "tests/calibrant/test_isotonic_gains.py",
    "tests/service/test_plain_columns.py",
    "tests/service/test_plain_lines.py",
)
SANITIZERS = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of this machine, built with sanitizers."""
    folder = tmp_path_factory.mktemp("sanitized")
    command = ["sh", str(ROOT / "scripts" / "build-kernel"), str(folder)]
    made = subprocess.run(command, env=os.environ | {"CFLAGS": SANITIZERS}, capture_output=True)
    if made.returncode:
        pytest.skip(f"the compiler has no sanitizers: {made.stderr.decode()[-300:]}")
    return next(folder.glob("libcalibrant_kernel.*"))


def runtime_of_sanitizers() -> str:
    """The sanitizer's runtime, which must be loaded before Python's memory is allocated."""
    asked = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def run_tests(library: Path, *chosen: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {
        "LD_PRELOAD": runtime_of_sanitizers(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own; the library's memory is freed with its workspaces
        "CALIBRANT_KERNEL_LIBRARY": str(library),
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=1000,
    )


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs cc on Linux")
@pytest.mark.parametrize("variant", ["", "baseline"])
def test_no_sanitizer_reports_anything(library: Path, variant: str) -> None:
    found = run_tests(library, *TESTS, CALIBRANT_KERNEL=variant)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs cc on Linux")
def test_a_sanitizer_would_report(tmp_path: Path) -> None:
    """The preloaded runtime is active in Python: a library that reads beyond its memory ends it."""
    source = tmp_path / "beyond.c"
    source.write_text(
        "#include <stdlib.h>\nint beyond(int n) { char *a = calloc(n, 1); return a[n]; }\n"
    )
    made = tmp_path / "beyond.so"
    subprocess.run(
        ["cc", *SANITIZERS.split(), "-fPIC", "-shared", str(source), "-o", str(made)], check=True
    )
    program = f"import ctypes; ctypes.CDLL({str(made)!r}).beyond(8)"
    environment = os.environ | {
        "LD_PRELOAD": runtime_of_sanitizers(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert found.returncode != 0 and "heap-buffer-overflow" in found.stderr
