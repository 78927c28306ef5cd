"""A model that may move, for tests of moves between partitions."""

from __future__ import annotations

import pytest

from calibrant_server.workers.lifecycle import housekeeping
from calibrant_server.workers.store import connection
from tests.workers.driving import MODEL


@pytest.fixture(autouse=True)
def _removed_at_once(monkeypatch):
    monkeypatch.setattr(housekeeping, "LEFT_KEEP_S", 0)
    monkeypatch.setattr(connection, "FLUSHED_S", 0.0)


@pytest.fixture
def moved(bench, settings):
    """A model at home in a store with a worker, and the other partition."""
    bench.settings = settings.replace(housekeeping_s=0.1)
    return bench.put_model(), 1 - bench.store.keys.partition_of(MODEL.key)
