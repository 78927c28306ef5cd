"""Restore of the embedded store from a snapshot, and no empty start next to one."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from calibrant_server.workers import restore
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.server_files import EmbeddedServerError
from tests.waiting import eventually
from tests.workers.driving import MODEL, Bench, delivery
from tests.workers.ledger import pane_of

pytestmark = pytest.mark.one_server


def settings_of(directory, binary, **changed):
    return EngineSettings(
        data_dir=directory, server_binary=binary, partitions=2, lease_s=1.0, **changed
    )


@pytest.fixture
def snapshot(tmp_path, server_binary):
    """A snapshot of a store with one merged and one waiting batch."""
    settings = settings_of(tmp_path / "first", server_binary)
    server = EmbeddedServer(settings.store_dir, binary=server_binary)
    with server as url, Bench(settings.with_url(url)) as bench:
        bench.put_model()
        loop = bench.loop()
        bench.deliver(delivery("b1", [1]))
        loop.step()
        bench.deliver(delivery("b2", [2]))
        before = bench.client.lastsave()
        time.sleep(1.1)  # the server tells whole seconds
        bench.client.bgsave()
        eventually(lambda: bench.client.lastsave() != before)
    return shutil.copy(settings.store_dir / "dump.rdb", tmp_path / "copy.rdb")


@pytest.mark.parametrize("stray", ["dump.rdb", "appendonly.aof.1.incr.aof"])
def test_a_store_does_not_start_empty_beside_data(tmp_path, server_binary, stray):
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / stray).write_bytes(b"data")
    with pytest.raises(EmbeddedServerError, match=stray):
        EmbeddedServer(directory, binary=server_binary).start()
    (directory / stray).unlink()
    with EmbeddedServer(directory, binary=server_binary):
        # A snapshot in a directory that has a store is a copy for someone else.
        (directory / stray).write_bytes(b"data")
    with EmbeddedServer(directory, binary=server_binary):
        pass


def test_one_command_restores_a_snapshot(tmp_path, server_binary, snapshot, monkeypatch, capsys):
    monkeypatch.setenv("CALIBRANT_DATA_DIR", str(tmp_path / "second"))
    monkeypatch.setenv("CALIBRANT_SERVER_BINARY", server_binary)
    monkeypatch.setenv("CALIBRANT_PARTITIONS", "2")
    monkeypatch.delenv("CALIBRANT_REDIS_URL", raising=False)
    assert restore.main([str(snapshot)]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == 1
    settings = settings_of(tmp_path / "second", server_binary)
    for _ in range(2):  # durable again: a second start has the same
        with (
            EmbeddedServer(settings.store_dir, binary=server_binary) as url,
            Bench(settings.with_url(url)) as bench,
        ):
            bench.engine()
            assert bench.merged("b2").status == "merged"
            assert bench.pane().numbers == pane_of([1, 2]).numbers
            assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "merged"
    # An existing store is never replaced.
    assert restore.main([str(snapshot)]) == 1
    assert "not replaced" in json.loads(capsys.readouterr().out)["error"]
    assert not (tmp_path / "second" / "store.restoring").exists()


def test_what_cannot_be_restored_leaves_nothing(tmp_path, server_binary, snapshot):
    target = tmp_path / "third"
    (tmp_path / "bad.rdb").write_bytes(b"no snapshot")
    with pytest.raises(EmbeddedServerError):
        restore.restore(tmp_path / "bad.rdb", settings_of(target, server_binary))
    with pytest.raises(EmbeddedServerError, match="no file"):
        restore.restore(tmp_path / "absent.rdb", settings_of(target, server_binary))
    with pytest.raises(EmbeddedServerError, match="REDIS_URL"):
        restore.restore(snapshot, settings_of(target, server_binary, redis_url="redis://x"))
    assert not list(target.glob("*"))
    # The snapshot keeps its number of partitions.
    assert restore.restore(snapshot, settings_of(target, server_binary).replace(partitions=3)) == 1
