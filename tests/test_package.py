"""The distribution: what the wheel holds, and what it does where nothing but its three dependencies is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
# Folders of the repository, and where the wheel installs them.
FOLDERS = {
    "calibrant": "calibrant",
    "service": "calibrant_server/service",
    "workers": "calibrant_server/workers",
}
# What pip names each dependency of the library, and what Python does.
NEEDED = ("numpy", "scipy", "zstandard")
INSTALLED = Path(sysconfig.get_paths()["purelib"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = ["sh", str(ROOT / "scripts" / "wheels"), sys.executable, str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=5 * PATIENCE_S)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and its three dependencies, installed without a registry."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in NEEDED:
        for found in INSTALLED.iterdir():
            if re.fullmatch(rf"{name}(\.libs|-[0-9.]+\.dist-info)?", found.name):
                (packages / found.name).symlink_to(found)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    # With `--no-index` a fourth dependency would fail here.
    command = [*pip, "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=5 * PATIENCE_S)
    return python


def run(python: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run outside the repository, of which nothing may be imported."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *arguments],
        cwd=python.parent,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )


def test_wheel_holds_every_file(wheel: Path) -> None:
    wanted = {
        f"{installed}/{file.relative_to(ROOT / folder).as_posix()}"
        for folder, installed in FOLDERS.items()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert wanted - held == set()
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_wheel_claims_two_import_names(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "calibrant",
        "calibrant_server",
    }


def test_three_packages_are_installed_with_the_library(python: Path) -> None:
    listed = (
        "from importlib.metadata import distributions;"
        "print(*sorted(each.name for each in distributions()))"
    )
    assert run(python, "-c", listed).stdout.split() == ["calibrant", *NEEDED]


def test_the_kernel_is_loaded_there(wheel: Path, python: Path) -> None:
    report = "from calibrant import kernel; print(kernel.status())"
    assert run(python, "-c", report, CALIBRANT_KERNEL="").stdout.startswith("kernel (")
    assert re.fullmatch(r"calibrant-[0-9.]+-py3-none-(linux|macosx)_\w+\.whl", wheel.name)


def test_a_wheel_needs_a_compiler(tmp_path: Path) -> None:
    command = ["sh", str(ROOT / "scripts" / "wheels"), sys.executable, str(tmp_path)]
    environment = os.environ | {"CC": "no-such-compiler"}
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=5 * PATIENCE_S, env=environment
    )
    assert found.returncode and "no C compiler: no-such-compiler" in found.stdout + found.stderr
    assert "pip install ziglang" in found.stdout + found.stderr


def test_a_clone_without_a_compiler_builds_with_the_wheel_of_one(tmp_path: Path) -> None:
    """The compiler of the wheel is played by a Python whose `-m ziglang cc` is the system's."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nif [ "$2" = pip ]; then echo "$@" >>"$0.log"; exit; fi\nshift 3; exec cc "$@"\n'
    )
    python.chmod(0o755)
    # By relative paths, as in the Makefile.
    command = ["sh", str(ROOT / "scripts" / "make-kernel"), "./python", "built"]
    environment = os.environ | {"CALIBRANT_CC": "no-such-compiler"}
    environment.pop("CC", None)
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert "ziglang wheel (101 MB)" in found.stdout
    assert "requirements/wheels.txt" in (tmp_path / "python.log").read_text()
    assert list((tmp_path / "built").glob("libcalibrant_kernel.*"))


def test_the_library_computes_there(python: Path) -> None:
    found = run(python, "-W", "error", "-c", "import calibrant; print(calibrant.__file__)")
    assert found.returncode == 0, found.stderr
    assert str(python.parents[1]) in found.stdout


def test_examples_of_the_library_page_run_there(python: Path) -> None:
    page = ROOT / "docs" / "library.md"
    flags = ["-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE"]
    found = run(python, "-W", "error", "-m", "doctest", *flags, str(page))
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_server_names_its_extra(python: Path) -> None:
    found = run(python, str(python.with_name("calibrant")), "serve")
    assert found.returncode == 1
    assert "pip install 'calibrant[server]'" in found.stderr
    assert "Traceback" not in found.stderr


def test_the_command_line_names_its_extra(python: Path) -> None:
    found = run(python, str(python.with_name("calibrant")), "score", "logits.npy", "labels.csv")
    assert found.returncode == 1
    assert "pip install 'calibrant[cli]'" in found.stderr
    assert "Traceback" not in found.stderr


def test_the_client_names_its_extra(python: Path) -> None:
    found = run(python, "-c", "import calibrant; calibrant.Client('http://127.0.0.1:8000')")
    assert found.returncode == 1
    assert "ImportError: The client needs" in found.stderr
    assert "pip install 'calibrant[client]'" in found.stderr


def test_a_clone_loads_no_module_under_two_names() -> None:
    """`python -m service` loads the folder's docstring as `service`, and everything else below `calibrant_server`."""
    listed = (
        "import runpy, sys\n"
        "import calibrant_server.service.main as main\n"
        "main.main = lambda: None\n"
        "runpy.run_module('service', run_name='__main__')\n"
        "names = [name for name in sys.modules if name.split('.')[0] in ('service', 'workers')]\n"
        "print(*names)"
    )
    found = subprocess.run(
        [sys.executable, "-c", listed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["service"]


@pytest.mark.parametrize("folder", ["service", "workers"])
def test_packages_above_a_command_hold_only_a_docstring(folder: str) -> None:
    """`python -m workers.ingest.parked` loads the packages above it as `workers` and `workers.ingest` too."""
    commands = [
        file
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r"^if __name__ == \"__main__\":", file.read_text(), re.MULTILINE)
        or file.name == "__main__.py"
    ]
    assert commands
    for command in commands:
        for parent in command.relative_to(ROOT).parents[:-1]:
            text = (ROOT / parent / "__init__.py").read_text()
            assert re.fullmatch(r'"""[^"]*"""\s*', text), parent
