"""Request and response of an inference: the later one receives the earlier one, on real stores."""

from __future__ import annotations

import asyncio

import pytest

from calibrant_server.workers.store import event_halves
from calibrant_server.workers.store.event_halves import HalvesFull


def test_the_second_half_receives_the_first_in_either_order(bench):
    config, halves = bench.put_model(), bench.inbox.event_halves
    for first in (True, False):
        name = f"e{first}"
        assert bench.run(halves.exchange(config, name, first, b"first")) is None
        assert bench.run(halves.exchange(config, name, first, b"again")) is None
        assert bench.run(halves.exchange(config, name, not first, b"second")) == b"first"
        assert bench.run(halves.exchange(config, name, not first, b"second")) == b"first"


def test_halves_that_come_at_once_are_not_both_left(bench):
    config, halves = bench.put_model(), bench.inbox.event_halves

    async def both(name: str) -> list[bytes | None]:
        return await asyncio.gather(
            halves.exchange(config, name, True, b"response"),
            halves.exchange(config, name, False, b"request"),
        )

    for i in range(50):
        assert bench.run(both(f"e{i}")) in ([None, b"response"], [b"request", None])


def test_halves_expire_and_their_bytes_are_bounded(bench, monkeypatch):
    config, halves = bench.put_model(), bench.inbox.event_halves
    keys = bench.store.keys.of(config)
    assert bench.run(halves.exchange(config, "e0", True, b"x" * 1000)) is None
    own = keys.event_half(config.key, config.generation, "e0", event_halves.RESPONSE)
    assert 0 < bench.client.ttl(own) <= event_halves.WAIT_S
    assert 0 < bench.client.ttl(keys.event_bytes) <= event_halves.WAIT_S + 120
    n_bytes = sum(map(int, bench.client.hvals(keys.event_bytes)))
    assert n_bytes >= 1000
    monkeypatch.setattr(event_halves, "MAX_WAITING_BYTES", n_bytes + 1000)
    with pytest.raises(HalvesFull):
        bench.run(halves.exchange(config, "e1", True, b"x" * 1000))
    # The other half of one that waits needs no room.
    assert bench.run(halves.exchange(config, "e0", False, b"x" * 1000)) == b"x" * 1000
    # A minute that has passed is forgotten.
    bench.client.delete(keys.event_bytes)
    bench.client.hset(keys.event_bytes, "1", n_bytes + 2000)
    assert bench.run(halves.exchange(config, "e1", True, b"x")) is None
    assert b"1" not in bench.client.hkeys(keys.event_bytes)
