"""The registry: optimistic changes, and what cannot change."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.settings import EngineSettings, SettingsError, parse_size, variables
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.properties import StoreMismatch, durability_of
from calibrant_server.workers.store.registry import FixedProperty, Registry, RevisionConflict
from tests.workers.driving import MODEL


@pytest.fixture
def registry(bench):
    return Registry(bench.inbox.client, bench.inbox.keys)


def test_a_configuration_reads_as_it_was_written():
    full = replace(
        MODEL, classes=["a", "b", "c"], retention_s=9, slices={"site": {}}, listed_classes=[0, 2],
        alarm={"delta": 0.02}, created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )  # fmt: skip
    assert ModelConfig.from_json(full.to_json()) == full
    assert full.spec().n_classes == 3 and full.spec().stored_classes == (0, 2)


def test_models_of_one_tenant_by_name(bench, registry):
    for tenant, model in (("a", "m2"), ("b", "m1"), ("a", "m1")):
        bench.run(registry.put(replace(MODEL, tenant=tenant, model=model), None))
    assert [each.model for each in bench.run(registry.list("a"))] == ["m1", "m2"]
    assert bench.run(registry.get("a", "m3")) is None


def test_a_change_needs_the_revision_it_was_made_from(bench, registry):
    first = bench.run(registry.put(MODEL, None))
    assert first.revision == 1 and first.created_at is not None
    second = bench.run(registry.put(replace(first, retention_s=5), 1))
    assert (second.revision, second.generation, second.retention_s) == (2, first.generation, 5)
    for expected in (None, 1, 3):
        with pytest.raises(RevisionConflict) as conflict:
            bench.run(registry.put(first, expected))
        assert conflict.value.current == second


def test_of_many_changes_at_once_one_is_made(bench, registry):
    first = bench.run(registry.put(MODEL, None))

    async def race():
        changes = (registry.put(replace(first, retention_s=i), 1) for i in range(1, 11))
        return await asyncio.gather(*changes, return_exceptions=True)

    results = bench.run(race())
    assert sum(isinstance(each, ModelConfig) for each in results) == 1
    assert all(isinstance(each, ModelConfig | RevisionConflict) for each in results)


def test_what_panes_are_made_of_stays(bench, registry):
    first = bench.run(registry.put(MODEL, None))
    with pytest.raises(FixedProperty) as error:
        bench.run(registry.put(replace(first, pane_s=60, grid=360), 1))
    assert error.value.names == ["grid", "pane_s"]


def test_partitions_are_fixed_when_a_store_is_made(bench, settings):
    bench.store.fix_properties()
    other = settings.replace(partitions=3)
    store = Store(other)
    with pytest.raises(StoreMismatch, match="partitions=2"):
        store.fix_properties()
    store.close()

    async def opens():
        inbox = Inbox(other)
        try:
            await inbox.open()
        finally:
            await inbox.close()

    with pytest.raises(StoreMismatch):
        asyncio.run(opens())


def test_no_more_durability_is_promised_than_kept():
    always = {"appendonly": "yes", "appendfsync": "always"}
    everysec = {"appendonly": "yes", "appendfsync": "everysec"}
    assert durability_of(always, "fsync") == durability_of(always, "everysec") == "fsync"
    assert durability_of(everysec, "everysec") == "everysec"
    assert durability_of({"appendonly": "no"}, "everysec") == "none"
    assert durability_of(None, "fsync") == "fsync"
    with pytest.raises(StoreMismatch):
        durability_of(everysec, "fsync")


def settings_of(monkeypatch, environ):
    """The settings that an environment gives."""
    for name in variables(EngineSettings):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return EngineSettings()


def test_settings_come_from_the_environment(monkeypatch):
    read = settings_of(
        monkeypatch,
        {
            "DATA_DIR": "plain", "CALIBRANT_IDEMPOTENCY_TTL": "PT1H", "CALIBRANT_BACKLOG_BYTES": "3MB",
            "CALIBRANT_CREATE_MODELS": "off", "CALIBRANT_LEASE": "2.5", "CALIBRANT_REDIS_URL": "",
        }
    )  # fmt: skip
    assert (read.data_dir.name, read.idempotency_ttl_s, read.backlog_bytes) == (
        "plain",
        3600,
        3 << 20,
    )
    assert (read.create_models, read.lease_s, read.redis_url) == (False, 2.5, None)
    both = {"CALIBRANT_DATA_DIR": "ours", "DATA_DIR": "plain"}
    assert settings_of(monkeypatch, both).data_dir.name == "ours"


@pytest.mark.parametrize(
    "environ",
    [
        {"CALIBRANT_PARTITIONS": "0"}, {"CALIBRANT_PARTITIONS": "many"}, {"CALIBRANT_DURABILITY": "total"},
        {"CALIBRANT_NAMESPACE": "a{b}"}, {"CALIBRANT_CREATE_MODELS": "perhaps"}, {"CALIBRANT_LEASE": "P1M"},
        {"CALIBRANT_SOCKET_TIMEOUT": "0.1"}, {"CALIBRANT_BACKLOG_BYTES": "1 TB"}, {"CALIBRANT_REDIS_URL": "http://x"},
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_named(environ, monkeypatch):
    with pytest.raises(SettingsError, match=next(iter(environ))):
        settings_of(monkeypatch, environ)


def test_unknown_settings_are_rejected_in_calls():
    with pytest.raises(SettingsError, match="READ_BLOCK_S"):
        EngineSettings(read_block_s=1.0)


def test_sizes():
    assert [parse_size(text) for text in ("7", "2k", "1 MiB", "1gb")] == [7, 2048, 1 << 20, 1 << 30]
    with pytest.raises(ValueError):
        parse_size("1 TB")
