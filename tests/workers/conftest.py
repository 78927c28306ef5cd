"""Real servers for the engine's tests: the packaged one, and `redis-server` where it is installed."""

from __future__ import annotations

import os
import shutil
from itertools import count

import pytest

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.server_files import find_binary
from tests.clusters import StoreCluster
from tests.waiting import PATIENCE_S
from tests.workers.driving import QUICK, Bench

SERVERS = {"packaged": find_binary(), "redis-server": shutil.which("redis-server")}
# `CALIBRANT_TEST_CLUSTER=1` runs on three masters what shares one server otherwise.
ON_A_CLUSTER = os.environ.get("CALIBRANT_TEST_CLUSTER", "")
_numbers = count()


def pytest_generate_tests(metafunc):
    """Run on each server program what uses one; on the first alone what is marked `one_server`."""
    if "server_binary" in metafunc.fixturenames:
        found = [name for name, path in SERVERS.items() if path]
        if metafunc.definition.get_closest_marker("one_server"):
            found = found[:1]
        metafunc.parametrize("server_binary", found, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server_binary(request):
    """Path of each server program to be tested with."""
    return SERVERS[request.param]


@pytest.fixture(scope="session")
def server_url(server_binary, tmp_path_factory):
    """A server that the tests of one program share; each test has a namespace of its own."""
    if ON_A_CLUSTER:
        cluster = StoreCluster(str(server_binary), tmp_path_factory.mktemp("cluster"))
        cluster.start()
        yield cluster.url
        cluster.close()
        return
    with EmbeddedServer(tmp_path_factory.mktemp("server") / "store", binary=server_binary) as url:
        yield url


@pytest.fixture(autouse=True)
def _quick_engine(monkeypatch):
    for module, name, value in QUICK:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def settings(server_url, tmp_path):
    """Settings of a small engine: quick where it pauses, patient where a busy machine makes it wait."""
    return EngineSettings(
        redis_url=server_url,
        data_dir=tmp_path,
        namespace=f"t{next(_numbers)}",
        partitions=2,
        lease_s=1.0,
        compact_after_s=0,
        socket_timeout_s=PATIENCE_S,
    )


@pytest.fixture
def bench(settings):
    """An engine bench: an inbox, engines and hand-driven loops that are stopped at the end."""
    with Bench(settings) as bench:
        yield bench
