"""Fixtures for everybody: real servers, started for one test and killed after it.

Tests of the store run on the server of the embedded wheel and, where one is installed, on
`redis-server`: both are supported for real, so neither is replaced by a fake.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.stores import SERVERS, StoreServer

# Read when numpy is first imported, for tests that are run without make; see the Makefile.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Some images forbid compiled files. Each process of the tests would then compile every module that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# On a busy machine neither an example nor its making is too slow.
hypothesis_settings.register_profile(
    "calibrant", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("calibrant")


# Files of whole deployments take longest and wait most: they come first, and many short files share the end.
FIRST = ("tests/end_to_end", "tests", "tests/workers")


def pytest_configure(config: pytest.Config) -> None:
    # xdist would begin with the files of most tests, which are the quickest.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.partition("::")[0].rpartition("/")[0]
        return FIRST.index(folder) if folder in FIRST else len(FIRST)

    items.sort(key=rank)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def start_store(tmp_path: Path) -> Iterator[Callable[..., StoreServer]]:
    """Start as many servers as a test wants: `start_store(binary, appendfsync="always")`."""
    servers: list[StoreServer] = []

    def start(binary: str = SERVERS["embedded"] or "", **options: str) -> StoreServer:
        server = StoreServer(binary, tmp_path / f"store-{len(servers)}", **options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture(params=sorted(SERVERS))
def store_server(
    request: pytest.FixtureRequest, start_store: Callable[..., StoreServer]
) -> StoreServer:
    """A running server, once per kind; `@pytest.mark.store(maxmemory="9mb")` sets directives."""
    binary = SERVERS[request.param]
    if binary is None:
        pytest.skip(f"{request.param} is not installed here")
    marker = request.node.get_closest_marker("store")
    return start_store(binary, **(marker.kwargs if marker else {}))


@pytest.fixture
def chromium() -> str:
    """Path of a browser without a window."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed here")
    return found
