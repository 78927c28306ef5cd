"""Starting: the settings that are read, and no start for other machines without keys."""

import json
import logging
import os
import socket
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from calibrant_server.service.security.key_file import KeysUnreadable, load_keyring
from calibrant_server.service.settings import Settings
from calibrant_server.service.startup import (
    CannotListen,
    bound_to,
    print_addresses,
    report_start,
    sentence,
    unread,
)
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.key_names import SCHEMA
from calibrant_server.workers.store.properties import StoreMismatch, check_properties
from calibrant_server.workers.store.server_files import EmbeddedServerError
from tests.forking import ForkedProcess, run_module
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

READY = "Calibrant serves on http://127.0.0.1:{} (pages, and /docs for the API). Ctrl+C stops it."


def start(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m service` where it is expected to fail."""
    inherited = {name: value for name, value in os.environ.items() if "CALIBRANT" not in name}
    with tempfile.NamedTemporaryFile() as log:
        process = ForkedProcess(
            run_module, "service", environment=inherited | environment, log=Path(log.name)
        )
        code = process.wait(PATIENCE_S)
        return subprocess.CompletedProcess("service", code, "", log.read().decode())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_keys_it_listens_on_this_machine_alone(host, tmp_path):
    rejected = start(CALIBRANT_HOST=host, CALIBRANT_DATA_DIR=str(tmp_path))
    assert rejected.returncode == 1
    assert "no keys are configured" in rejected.stderr and host in rejected.stderr
    assert "CALIBRANT_KEYS_FILE" in rejected.stderr and "Traceback" not in rejected.stderr


def test_keys_that_cannot_be_read_are_said_plainly(tmp_path):
    rejected = start(CALIBRANT_KEYS=json.dumps({"keys": []}), CALIBRANT_DATA_DIR=str(tmp_path))
    assert rejected.returncode == 1
    assert "CALIBRANT_KEYS is not a keys document" in rejected.stderr
    assert "Traceback" not in rejected.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("CALIBRANT_PORT", "http"), ("CALIBRANT_DURABILITY", "maybe")]
)
def test_settings_that_cannot_be_read_are_said_plainly(name, value):
    rejected = start(**{name: value})
    assert rejected.returncode == 1
    assert name.lower() in rejected.stderr.lower() and "Traceback" not in rejected.stderr


def test_port_and_data_directory_are_read_plain_and_with_prefix(monkeypatch):
    monkeypatch.delenv("CALIBRANT_PORT", raising=False)
    monkeypatch.delenv("CALIBRANT_DATA_DIR", raising=False)
    monkeypatch.setenv("PORT", "8001")
    monkeypatch.setenv("DATA_DIR", "/plain")
    assert (Settings().port, str(Settings().data_dir)) == (8001, "/plain")
    monkeypatch.setenv("CALIBRANT_PORT", "8002")
    monkeypatch.setenv("CALIBRANT_DATA_DIR", "/prefixed")
    assert (Settings().port, str(Settings().data_dir)) == (8002, "/prefixed")


def test_a_port_in_use_is_said_plainly(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        rejected = start(CALIBRANT_PORT=str(port), CALIBRANT_DATA_DIR=str(tmp_path / "new"))
    assert rejected.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in rejected.stderr
    assert "Traceback" not in rejected.stderr and not (tmp_path / "new").exists()


def test_an_address_of_another_machine_cannot_be_listened_on():
    with pytest.raises(CannotListen, match=r"203\.0\.113\.7:8000"):
        bound_to("203.0.113.7", 8000)


def test_every_address_of_a_name_is_listened_on():
    sockets = bound_to("127.0.0.1", 0)
    assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1"]
    for each in sockets:
        each.close()


def test_a_data_directory_that_cannot_be_made_is_said_plainly(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedServerError, match=r"not a directory.*CALIBRANT_DATA_DIR"):
        EmbeddedServer(tmp_path / "file" / "store").start()


@pytest.mark.parametrize(("found", "word"), [(SCHEMA + 1, "newer"), (SCHEMA - 1, "older")])
def test_a_store_of_another_version_is_said_plainly(found, word):
    with pytest.raises(StoreMismatch, match=rf"by an? {word} version of Calibrant .layout {found}"):
        check_properties({"schema": SCHEMA}, [b"schema", str(found).encode()])


def test_a_store_url_of_another_scheme_is_rejected_without_being_shown():
    with pytest.raises(
        SettingsError, match="CALIBRANT_REDIS_URL: expected a URL that begins with redis://"
    ) as rejected:
        EngineSettings(redis_url="http://user:password@host")
    assert "password" not in str(rejected.value)


def test_a_rejected_setting_is_named_and_its_value_is_not(monkeypatch):
    monkeypatch.setenv("CALIBRANT_TENANT_MODELS", "secret")
    with pytest.raises(ValidationError) as rejected:
        Settings()
    assert sentence(rejected.value).startswith("CALIBRANT_TENANT_MODELS: ")
    assert "secret" not in sentence(rejected.value)


@pytest.mark.parametrize("document", ["a-secret", '{"keys": [{"sha256": "a-secret"}]}'])
def test_the_content_of_a_keys_document_is_not_shown(document, tmp_path):
    with pytest.raises(KeysUnreadable) as rejected:
        load_keyring(Settings(keys=document, data_dir=tmp_path))
    assert "a-secret" not in str(rejected.value)


def test_a_first_key_that_cannot_be_written_is_said_plainly(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(KeysUnreadable, match="cannot be read or made"):
        load_keyring(Settings(keys_file=tmp_path / "file" / "keys", create_key=True))


def test_misspelt_settings_are_noticed(monkeypatch):
    monkeypatch.setenv("CALIBRANT_PROT", "8001")
    monkeypatch.setenv("CALIBRANT_TENANT_MODELS", "5")
    monkeypatch.setenv("CALIBRANT_LEASE", "5")
    monkeypatch.setenv("CALIBRANT_URL", "http://127.0.0.1:8000")
    monkeypatch.setenv("CALIBRANT_KEY", "of-a-client")
    assert unread() == ["CALIBRANT_PROT"]


def test_no_variable_sets_a_constant(monkeypatch):
    monkeypatch.setenv("CALIBRANT_MAX_ROWS", "5")
    monkeypatch.setenv("CALIBRANT_MAX_PANES", "5")
    monkeypatch.setenv("CALIBRANT_MAX_BODY_BYTES", "5")
    assert (Settings().max_rows, EngineSettings().max_panes) == (1_000_000, 64)
    assert (Settings().max_decoded_bytes, Settings(max_rows=7).max_rows) == (10, 7)
    assert unread() == ["CALIBRANT_MAX_PANES", "CALIBRANT_MAX_ROWS"]


def reported(lifespan, sockets):
    """An app with this lifespan, whose start is reported."""
    app = FastAPI()
    app.router.lifespan = lifespan
    report_start(app, sockets)
    return app


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "result"), [(StoreMismatch("why"), "calibrant: why"), (KeyError("why"), "a trace")]
)
async def test_a_start_that_fails_is_reported_in_one_sentence(error, result):
    sent = []

    async def fails(scope, receive, send):
        await send({"type": "lifespan.startup.failed", "message": "a trace"})
        raise error

    async def send(message):
        sent.append(message)

    with pytest.raises(type(error)):
        await reported(fails, [])({"type": "lifespan"}, None, send)
    assert sent == [{"type": "lifespan.startup.failed", "message": result}]


@pytest.mark.anyio
async def test_a_start_says_where_it_serves(caplog):
    async def starts(scope, receive, send):
        await send({"type": "lifespan.startup.complete"})

    async def send(message):
        pass

    [bound] = bound_to("127.0.0.1", 0)
    with bound, caplog.at_level(logging.INFO):
        await reported(starts, [bound])({"type": "lifespan"}, None, send)
        assert f"http://127.0.0.1:{bound.getsockname()[1]}" in caplog.text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_address_is_printed_in_plain_text(is_terminal, monkeypatch, capsys):
    [bound] = bound_to("127.0.0.1", 0)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    with bound:
        print_addresses([bound])
        print_addresses([])  # of a further process
        line = READY.format(bound.getsockname()[1])
    assert capsys.readouterr().out == (f"\n{line}\n\n" if is_terminal else f"{line}\n")


def test_an_output_that_is_closed_prevents_no_start(monkeypatch):
    [bound] = bound_to("127.0.0.1", 0)
    with bound, (Path(os.devnull)).open("w") as closed:
        closed.close()
        for output in (closed, None):
            monkeypatch.setattr("sys.stdout", output)
            print_addresses([bound])


def test_a_port_of_another_service_is_found_before_it_is_shared():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotListen):
            bound_to("127.0.0.1", taken.getsockname()[1])


def test_a_service_whose_output_is_a_file_prints_once_that_it_serves(tmp_path):
    port, log = reserved_port(), tmp_path / "log"
    log.touch()
    changed = {"PORT": str(port), "DATA_DIR": str(tmp_path / "data")}
    environment = os.environ | {f"CALIBRANT_{name}": value for name, value in changed.items()}
    process = ForkedProcess(
        run_module, "service", environment=environment, directory=tmp_path, log=log
    )
    try:
        line = READY.format(port)
        eventually(lambda: line in log.read_text().splitlines(), 3 * PATIENCE_S)
        assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=PATIENCE_S).status_code == 200
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    lines = log.read_text().splitlines()
    assert lines.count(line) == 1
    assert all(json.loads(each)["event"] for each in lines if each != line)
