"""Settings under which every day is old, and a loop with sealed days, for tests of old days in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant_server.workers.lifecycle import cold_moves
from tests.workers.cold_days.moving import HORIZON, filled


@pytest.fixture
def settings(settings, tmp_path):
    """Everything is old at once, and nothing rests."""
    return settings.replace(
        cold_url=str(tmp_path / "days"), cold_after_s=3600, cold_keep_s=0, compact_after_s=3600, housekeeping_s=0.0, sample_bytes=20_000
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _restless(monkeypatch):
    monkeypatch.setattr(cold_moves, "REST_S", 0)


@pytest.fixture
def root(settings) -> Path:
    return Path(settings.cold_url)


@pytest.fixture
def loop(bench):
    return filled(bench, HORIZON)[0]
