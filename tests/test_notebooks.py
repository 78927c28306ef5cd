"""The notebooks: each is executed with a new kernel, and shows what it shows in the documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.notebooks import FOLDER, differences
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_stores(path: Path) -> None:
    """In a process of its own: the kernel's packages warn about themselves."""
    command = [sys.executable, "-m", "scripts.notebooks", "--check", str(path)]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S
    )
    assert found.returncode == 0, found.stderr


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize(
    ("stored", "found", "n"),
    [
        ("ece 0.0924", "ece 0.0925", 0),
        ("ece 0.0924", "ece 0.2", 1),
        ("ece 0.0924", "brier 0.0924", 1),
        ("ece 0.0924", "", 1),
    ],
)
def test_other_words_and_other_numbers_differ(stored: str, found: str, n: int) -> None:
    assert len(differences([[stored]], [[found]])) == n
