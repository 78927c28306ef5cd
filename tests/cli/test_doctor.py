"""`calibrant doctor` on what leaves an installation open, and on the port that the environment names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from calibrant.cli import doctor


@pytest.mark.parametrize(
    ("mode", "state"), [(0o600, doctor.OK), (0o644, doctor.WARNING), (0o620, doctor.WARNING)]
)
def test_others_must_not_have_access_to_the_keys_file(
    mode: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_text("{}")
    path.chmod(mode)
    monkeypatch.setenv("CALIBRANT_KEYS_FILE", str(path))
    [found] = doctor.keys_file()
    assert found.state == state


def test_a_keys_file_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALIBRANT_KEYS_FILE", "/nowhere/keys.json")
    [found] = doctor.keys_file()
    assert found.state == doctor.ERROR
    monkeypatch.delenv("CALIBRANT_KEYS_FILE")
    assert list(doctor.keys_file()) == []


@pytest.mark.parametrize(("status", "state"), [(401, doctor.OK), (200, doctor.WARNING)])
def test_a_service_without_keys_is_named(status: int, state: str) -> None:
    assert doctor._access(status).state == state


def test_commands_use_the_port_of_the_environment() -> None:
    """The same variable starts the service."""
    code = "from calibrant.cli.connection import DEFAULT_URL; print(DEFAULT_URL)"
    for variables, port in (({}, 8000), ({"CALIBRANT_PORT": "18432"}, 18432)):
        found = subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == f"http://127.0.0.1:{port}"
