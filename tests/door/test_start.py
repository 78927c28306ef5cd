"""Starting: the settings that are read, and the refusal to be reachable without keys."""

import json
import os
import subprocess
import sys

import pytest

from service.settings import Settings


def start(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m service` where it is expected to refuse."""
    inherited = {name: value for name, value in os.environ.items() if "CALIBRANT" not in name}
    return subprocess.run(
        [sys.executable, "-m", "service"],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_keys_it_listens_on_this_machine_alone(host, tmp_path):
    refused = start(CALIBRANT_HOST=host, CALIBRANT_DATA_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert "no keys are configured" in refused.stderr and host in refused.stderr
    assert "CALIBRANT_KEYS_FILE" in refused.stderr and "Traceback" not in refused.stderr


def test_keys_that_cannot_be_read_are_said_plainly(tmp_path):
    refused = start(CALIBRANT_KEYS=json.dumps({"keys": []}), CALIBRANT_DATA_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert "CALIBRANT_KEYS is not a keys document" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("CALIBRANT_PORT", "http"), ("CALIBRANT_DURABILITY", "maybe")]
)
def test_settings_that_cannot_be_read_are_said_plainly(name, value):
    refused = start(**{name: value})
    assert refused.returncode == 1
    assert name.lower() in refused.stderr.lower() and "Traceback" not in refused.stderr


def test_port_and_data_directory_are_read_plain_and_with_prefix(monkeypatch):
    monkeypatch.delenv("CALIBRANT_PORT", raising=False)
    monkeypatch.delenv("CALIBRANT_DATA_DIR", raising=False)
    monkeypatch.setenv("PORT", "8001")
    monkeypatch.setenv("DATA_DIR", "/plain")
    assert (Settings().port, str(Settings().data_dir)) == (8001, "/plain")
    monkeypatch.setenv("CALIBRANT_PORT", "8002")
    monkeypatch.setenv("CALIBRANT_DATA_DIR", "/prefixed")
    assert (Settings().port, str(Settings().data_dir)) == (8002, "/prefixed")
