"""Keys of callers and audit logs in a real store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from calibrant_server.workers.store import access_keys, audit_log
from calibrant_server.workers.store.access_keys import TooManyKeys


def entry(tenant: str, name: str = "x") -> dict:
    return {"tenant": tenant, "name": name, "sha256": "0" * 64}


def test_every_change_is_counted(bench):
    keys = bench.inbox.access_keys
    assert bench.run(keys.changes()) == 0
    bench.run(keys.add("a", "k_1", entry("a")))
    bench.run(keys.add("a", "k_1", entry("a")))  # the same again, after a lost reply
    assert bench.run(keys.all()) == (1, {"k_1": entry("a")})
    assert bench.run(keys.revoke("a", "k_1"))
    assert bench.run(keys.changes()) == 2
    assert bench.run(keys.all()) == (2, {})


def test_only_its_tenant_revokes_a_key(bench):
    keys = bench.inbox.access_keys
    bench.run(keys.add("a", "k_1", entry("a")))
    assert not bench.run(keys.revoke("b", "k_1"))
    assert not bench.run(keys.revoke("a", "k_2"))
    assert not bench.run(keys.revoke("a", access_keys.CHANGES))
    assert list(bench.run(keys.all())[1]) == ["k_1"]


def test_the_maximum_is_per_tenant_and_holds_under_concurrency(bench, monkeypatch):
    monkeypatch.setattr(access_keys, "MAX_KEYS", 3)
    keys = bench.inbox.access_keys

    async def add_many() -> list:
        adding = [keys.add("a", f"k_{i}", entry("a", '","tenant":"b"')) for i in range(9)]
        return await asyncio.gather(*adding, return_exceptions=True)

    outcomes = bench.run(add_many())
    assert sum(isinstance(each, TooManyKeys) for each in outcomes) == 6
    for i in range(3):
        bench.run(keys.add("b", f"kb_{i}", entry("b")))
    with pytest.raises(TooManyKeys):
        bench.run(keys.add("b", "kb_9", entry("b")))


async def _exported(log, tenant: str) -> list[int]:
    return [each["n"] async for each in log.oldest_first(tenant)]


def test_a_log_keeps_the_newest_entries_of_each_tenant(bench, monkeypatch):
    monkeypatch.setattr(audit_log, "MAX_ENTRIES", 7)
    monkeypatch.setattr(audit_log, "_BLOCK", 2)
    log = bench.inbox.audit
    changes: list[Any] = [{"n": n} for n in range(10)]
    for change in changes:
        bench.run(log.append("a", change))
    other: Any = {"n": -1}
    bench.run(log.append("b", other))
    assert bench.run(_exported(log, "a")) == [3, 4, 5, 6, 7, 8, 9]
    assert bench.run(_exported(log, "b")) == [-1]
    page: Any = bench.run(log.newest("a", None, 3))
    assert [each["n"] for each in page] == [9, 8, 7]
    following: Any = bench.run(log.newest("a", page[-1]["id"], 9))
    assert [each["n"] for each in following] == [6, 5, 4, 3]


def test_the_documented_maximum():
    assert audit_log.MAX_ENTRIES == 100_000
