"""The offline bundle: installed into an empty environment without any index, and rejected if a file was changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as it arrives: unpacked from its archive, with a site of one page."""
    folder = tmp_path_factory.mktemp("bundle")
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>Calibrant</h1>")
    command = [sys.executable, "-m", "scripts.bundle", str(folder / "dist"), "--site", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=10 * PATIENCE_S)
    (archive,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "arrived", filter="data")
    (found,) = (folder / "arrived").iterdir()
    return found


def install(bundle: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the install script where pip knows no index and no network is reachable by a proxy."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    nowhere = {
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHON": sys.executable,
        "https_proxy": "http://127.0.0.1:9",
    }
    return subprocess.run(
        ["sh", str(bundle / "install.sh"), str(folder)],
        env=clean | nowhere, cwd="/", capture_output=True, text=True, timeout=10 * PATIENCE_S,
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed") / "environment"
    found = install(bundle, folder)
    assert found.returncode == 0, found.stderr
    assert "files have their digests" in found.stdout
    return folder


def test_every_file_has_its_digest_and_every_wheel_is_in_the_bill(bundle: Path) -> None:
    sums = dict(
        reversed(line.split("  ", 1)) for line in (bundle / "SHA256SUMS").read_text().splitlines()
    )
    files = {
        path.relative_to(bundle).as_posix(): path for path in bundle.rglob("*") if path.is_file()
    }
    assert sums.keys() == files.keys() - {"SHA256SUMS"}
    assert all(
        hashlib.sha256(files[name].read_bytes()).hexdigest() == each for name, each in sums.items()
    )
    bill = json.loads((bundle / "sbom.cdx.json").read_text())
    known = {
        digest["content"]
        for each in bill["components"]
        for file in each["externalReferences"]
        for digest in file["hashes"]
    }
    wheels = [name for name in sums if name.startswith("wheels/")]
    ours = [name for name in wheels if re.match(r"wheels/calibrant-", name)]
    assert len(ours) == 1 and len(wheels) > 50
    assert {sums[name] for name in wheels} - known == {sums[ours[0]]}
    assert "@" not in (bundle / "README.md").read_text()
    assert (bundle / "documentation" / "index.html").is_file()


def test_the_installation_validates_itself(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin" / "calibrant"), "validate", "--data-dir", str(tmp_path)]
    clean = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=10 * PATIENCE_S
    )
    assert found.returncode == 0, found.stdout + found.stderr
    content = json.loads((tmp_path / "validation.json").read_text())["content"]
    results = {each["check"]: each for each in content["results"]}
    assert results["files of calibrant"]["verdict"] == "pass"
    assert re.fullmatch("[0-9a-f]{64}", content["files_sha256"])
    changed = next(installed.glob("lib/*/site-packages/calibrant/metrics/ece.py"))
    changed.write_text(changed.read_text() + "\n# changed\n")
    again = subprocess.run(
        command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=10 * PATIENCE_S
    )
    assert again.returncode == 1 and "calibrant/metrics/ece.py" in " ".join(again.stdout.split())


def test_the_installed_service_has_all_its_packages(installed: Path, tmp_path: Path) -> None:
    modules = "calibrant_server.service.main, calibrant.cli.app, calibrant.client.transport, pyarrow, nanoarrow, nibabel, highdicom"
    command = [str(installed / "bin" / "python"), "-c", f"import {modules}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE_S)


def test_a_changed_and_a_foreign_wheel_are_not_installed(bundle: Path, tmp_path: Path) -> None:
    wheel = next(bundle.glob("wheels/click-*.whl"))
    original = wheel.read_bytes()
    foreign = bundle / "wheels" / "evil-1.0-py3-none-any.whl"
    try:
        wheel.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        found = install(bundle, tmp_path / "environment")
        assert found.returncode == 1 and wheel.name in found.stderr
        wheel.write_bytes(original)
        foreign.write_bytes(original)
        found = install(bundle, tmp_path / "environment")
        assert found.returncode == 1 and foreign.name in found.stderr
    finally:
        wheel.write_bytes(original)
        foreign.unlink(missing_ok=True)
    assert not (tmp_path / "environment").exists()
