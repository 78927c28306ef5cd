"""The private server: one on a directory, found again, stopped by its last user."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis

from calibrant_server.workers import health
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.server_files import EmbeddedServerError, find_binary
from calibrant_server.workers.store.store_of_settings import store_of
from calibrant_server.workers.supervisor import Supervisor
from tests.workers.driving import eventually

ROOT = Path(__file__).parents[2]


def client_of(url):
    return redis.Redis.from_url(url, protocol=2)


def pid_of(url):
    return client_of(url).info("server")["process_id"]


@pytest.fixture
def server(tmp_path, server_binary):
    server = EmbeddedServer(tmp_path / "store", binary=server_binary)
    yield server
    server.stop()


def test_it_is_private_and_keeps_its_settings(server):
    url = server.start()
    client = client_of(url)
    client.set("a", "1")
    result = client.config_get("*")
    assert (
        result["appendonly"] == "yes"
        and result["appendfsync"] == "everysec"
        and result["port"] == "0"
    )
    assert result["maxmemory-policy"] == "noeviction"
    mode = stat.S_IMODE(server.directory.stat().st_mode)
    assert (
        mode == 0o700 and stat.S_IMODE((server.directory / "server.sock").stat().st_mode) == 0o700
    )
    server.stop()
    assert client_of(server.start()).get("a") == b"1"


def test_the_fsync_tier_is_what_the_server_runs(tmp_path, server_binary):
    with EmbeddedServer(tmp_path, "fsync", binary=server_binary) as url:
        assert client_of(url).config_get("appendfsync") == {"appendfsync": "always"}


def test_an_orphan_is_adopted(tmp_path, server_binary):
    """Its parent is killed, and the next start finds the server alive with its data."""
    script = (
        "import sys, time; from pathlib import Path; from calibrant_server.workers.store.embedded import EmbeddedServer\n"
        "print(EmbeddedServer(Path(sys.argv[1]), binary=sys.argv[2]).start(), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), server_binary],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with parent:
        url = parent.stdout.readline().decode().strip()
        client_of(url).set("a", "1")
        pid = pid_of(url)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    server = EmbeddedServer(tmp_path, "fsync", binary=server_binary)
    assert client_of(server.start()).get("a") == b"1"
    assert server.adopted and pid_of(server.url) == pid
    assert client_of(server.url).config_get("appendfsync") == {"appendfsync": "always"}
    server.stop()
    eventually(lambda: not _lives(pid))


def _lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan whose new parent does not collect it stays as a zombie.
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_the_last_user_stops_it(tmp_path, server_binary):
    first, second = (EmbeddedServer(tmp_path, binary=server_binary) for _ in range(2))
    url = first.start()
    assert second.start() == url and second.adopted and not first.adopted
    pid = pid_of(url)
    first.stop()
    assert pid_of(url) == pid
    second.stop()
    with pytest.raises(redis.ConnectionError):
        client_of(url).ping()


def test_of_many_starts_at_once_one_makes_a_server(tmp_path, server_binary):
    servers = [EmbeddedServer(tmp_path, binary=server_binary) for _ in range(6)]
    threads = [threading.Thread(target=each.start) for each in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.adopted for each in servers].count(False) == 1
    assert len({pid_of(each.url) for each in servers}) == 1
    for each in servers:
        each.stop()


def test_a_long_directory_gets_a_short_socket(tmp_path, server_binary):
    long = tmp_path / ("d" * 60) / ("e" * 60) / "store"
    server = EmbeddedServer(long, binary=server_binary)
    url = server.start()
    assert client_of(url).ping() and len(url) < 110
    other = EmbeddedServer(long, binary=server_binary)
    assert other.start() == url and other.adopted
    other.stop()
    server.stop()
    assert not Path(url.removeprefix("unix://")).parent.exists()


def test_it_has_its_own_process_group_in_the_session_of_the_service(server):
    with server as url:
        pid = pid_of(url)
        assert os.getpgid(pid) == pid, "an interrupt goes to the process group of the service"
        assert os.getsid(pid) == os.getsid(0)


def test_it_comes_back_when_it_dies(tmp_path, server_binary):
    server = EmbeddedServer(tmp_path, "fsync", binary=server_binary)
    url = server.start()
    client_of(url).set("a", "1")
    pid = pid_of(url)
    os.kill(pid, signal.SIGKILL)

    def back():
        try:
            return client_of(url).ping() and pid_of(url) != pid
        except redis.ConnectionError:
            return False

    eventually(back)
    assert client_of(url).get("a") == b"1"
    server.stop()


def test_what_hinders_it_is_said(tmp_path):
    with pytest.raises(EmbeddedServerError, match="no such program"):
        EmbeddedServer(tmp_path, binary="no-such-server").start()
    with pytest.raises(EmbeddedServerError, match="did not start"):
        EmbeddedServer(tmp_path, binary=sys.executable).start()
    # Neither attempt leaves a lock behind.
    with EmbeddedServer(tmp_path) as url:
        assert client_of(url).ping()


def test_an_operators_server_is_used_as_it_is(tmp_path):
    settings = EngineSettings(redis_url="redis://elsewhere", data_dir=tmp_path)
    with store_of(settings) as same:
        assert same is settings
    assert list(tmp_path.iterdir()) == []
    assert find_binary(sys.executable) == sys.executable


def test_the_health_command_reads_the_store_of_the_running_service(
    tmp_path, server_binary, monkeypatch, capsys
):
    monkeypatch.delenv("CALIBRANT_REDIS_URL", raising=False)
    monkeypatch.setenv("CALIBRANT_DATA_DIR", str(tmp_path))
    assert health.main() == 1
    assert "no server responds" in capsys.readouterr().out
    assert not (tmp_path / "store").exists()  # it starts none
    with store_of(EngineSettings(server_binary=server_binary)) as settings:
        assert health.main() == 1
        assert json.loads(capsys.readouterr().out)["workers_here"] == 0
        engine = Supervisor(settings)
        engine.start()
        try:
            assert health.main() == 0
            assert json.loads(capsys.readouterr().out)["workers_here"] == 1
        finally:
            engine.stop()
