"""Dead letters and parked entries are bounded by tenant: they stay in its backlog until they are replayed or discarded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis.exceptions import ResponseError

from calibrant_server.workers.ingest.attempts import MAX_ATTEMPTS
from calibrant_server.workers.ingest.dead_letters import dead_letters, discard, replay
from calibrant_server.workers.ingest.inbox_errors import BacklogFullError
from calibrant_server.workers.ingest.orders import delete_model
from tests.workers.driving import delivery
from tests.workers.test_parked import failing, steps
from tests.workers.test_tenant_shares import SHARE, model_of, shared, small, usage
from tests.workers.test_transient_errors import no_pauses

__all__ = ["no_pauses"]


@pytest.fixture
def tenants(bench):
    mine = model_of("a", bench)
    return mine, model_of("b", bench, like=mine)


def dead(batch_id, model):
    return replace(delivery(batch_id, range(40), model=model, trick="raise"), share=SHARE)


def backlog(bench, tenant):
    return usage(bench, tenant).backlog_bytes


def test_dead_letters_of_a_tenant_are_bounded_and_none_is_lost(bench, tenants):
    mine, other = tenants
    one = shared("x", mine).n_bytes
    small(bench, backlog_bytes=8 * one)
    loop = bench.loop(model=mine)
    accepted, rejection = 0, ""
    while not rejection:
        try:
            bench.deliver(dead(f"d{accepted}", mine))
        except BacklogFullError as full:
            rejection = str(full)
        else:
            accepted += 1
            steps(loop)
    assert "dead letters and parked batches included" in rejection
    letters = list(dead_letters(bench.store, loop.partition))
    assert 2 <= accepted <= 5 and len(letters) == accepted
    assert backlog(bench, "a") == sum(each.backlog_bytes for each in letters) <= 4 * one + one

    # Another tenant is not concerned.
    for number in range(4):
        bench.deliver(shared(f"o{number}", other))
        steps(loop)
    assert backlog(bench, "b") == 0

    # What is discarded makes room; what is replayed and fails again takes the same room.
    assert discard(bench.store, loop.partition, letters[0].id)
    assert not discard(bench.store, loop.partition, letters[0].id)
    assert replay(bench.store, loop.partition, letters[1].id)
    steps(loop)
    left = list(dead_letters(bench.store, loop.partition))
    assert backlog(bench, "a") == sum(each.backlog_bytes for each in left)
    bench.deliver(shared("fits", mine))
    steps(loop)
    assert bench.merged("fits", mine).status == "merged"


def test_parked_entries_count_until_they_are_merged_or_their_model_is_deleted(bench, tenants):
    mine, _ = tenants
    loop = bench.loop(model=mine)
    failing(loop, "p", ResponseError("ERR unexpected"), n=1 + MAX_ATTEMPTS)
    bench.deliver(shared("p", mine))
    steps(loop)
    [letter] = dead_letters(bench.store, loop.partition)
    assert letter.state == "parked" and backlog(bench, "a") == letter.backlog_bytes > 0
    assert replay(bench.store, loop.partition, letter.id)
    steps(loop)
    assert bench.merged("p", mine).status == "merged" and backlog(bench, "a") == 0

    bench.deliver(dead("d", mine))
    steps(loop)
    assert backlog(bench, "a") > 0
    loop._housekeeping.remove_model(delete_model(mine.key, mine.generation), lambda: None)
    assert backlog(bench, "a") == 0
    assert list(dead_letters(bench.store, loop.partition)) == []
