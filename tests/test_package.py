"""The wheel, of which the image is built, holds everything that runs: modules, scripts, pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
FLOORS = ("calibrant", "calibrant_server")


def test_wheel_holds_every_file_of_the_three_floors(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for floor in FLOORS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / floor, source / floor, ignore=ignored)
    wanted = {
        file.relative_to(source).as_posix()
        for floor in FLOORS
        for file in (source / floor).rglob("*")
        if file.is_file()
    }
    build = ["wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", *build, "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=5 * PATIENCE_S)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = set(wheel.namelist())
    assert wanted - held == set()
    assert any(name.endswith("licenses/LICENSE") for name in held)
