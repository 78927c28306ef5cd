"""First queries of a tenant that has used its share are further ones, while another tenant has queries too."""

from __future__ import annotations

import time

import pytest

from calibrant_server.workers.queries import first_shares
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.first_shares import ACTIVE_S, BURST_S, SHARE, FirstShares
from calibrant_server.workers.queries.serve import QueryServer


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(first_shares, "time", found)
    return found


def test_a_share_is_used_up_and_grows_again(clock):
    shares = FirstShares()
    assert shares.has("b")
    for _ in range(20):
        assert shares.has("a") or shares._left["a"][0] < 0
        shares.charge("a", 0.05)
    assert not shares.has("a") and shares.has("b")
    clock.now += BURST_S / SHARE + 0.01
    assert shares.has("b") and shares.has("a")


def test_a_tenant_alone_has_all_of_it(clock):
    shares = FirstShares()
    for _ in range(20):
        assert shares.has("a")
        shares.charge("a", 1.0)
    assert shares.has("b") and not shares.has("a")
    clock.now += ACTIVE_S / 2
    assert shares.has("a")
    shares.charge("a", 5.0)
    assert not shares.has("a")
    clock.now += ACTIVE_S / 2 + 0.01
    assert shares.has("a"), "the other one is not active any more"


def test_the_server_moves_a_query_without_a_share(bench, monkeypatch):
    """It is computed with the further ones, and its time counts."""
    server = QueryServer(bench.store, None)
    served = []

    def serve(request):
        served.append(request.digest)
        started = time.thread_time()
        while time.thread_time() < started + 0.01:
            pass

    monkeypatch.setattr(server, "_quick", serve)
    monkeypatch.setattr(first_shares, "BURST_S", 0.001)

    def first_of(tenant, digest):
        return QueryRequest(digest, "sums", {}, Side(f"{tenant}/m", "", (0, 1)), "replies", 5.0)

    for tenant, digest in (("b", "b0"), ("a", "a0"), ("a", "a1"), ("c", "c0")):
        server._first(first_of(tenant, digest))
    assert served == ["b0", "a0", "c0"]
    [further] = bench.client.zrange(server._keys.more_queries, 0, -1)
    assert b'"digest":"a1"' in further
