"""`Retry-After` of a full backlog and of full ids is close to the true time."""

from __future__ import annotations

import pytest

from calibrant_server.workers.ingest.drain_rates import DrainRates
from calibrant_server.workers.store.batch_records import (
    expiry_bucket,
    living_bytes,
    seconds_to_room,
)

MB = 1 << 20


def result(samples, n_bytes):
    """What is reported after samples of (second, bytes consumed, backlog)."""
    rates = DrainRates()
    for at_s, consumed, backlog in samples:
        rates.note(0, int(consumed), int(backlog), now=at_s)
    return rates.seconds_to_drain(0, int(n_bytes))


def test_a_constant_rate_gives_the_true_time():
    samples = [(at / 2, at / 2 * MB, 50 * MB - at / 2 * MB) for at in range(20)]
    for seconds in (1, 7, 40):
        assert result(samples, seconds * MB) in (seconds, seconds + 1)


def test_work_that_came_back_counts_from_its_return():
    """A worker was away for eight seconds, then consumes 10 MB/s: 58 was reported for a backlog that drained in 2 s."""
    away = [(at / 2, 0.1 * MB, 60 * MB) for at in range(16)]
    back = [(8 + at / 2, 0.1 * MB + at * 5 * MB, 60 * MB - at * 5 * MB) for at in range(4)]
    assert result(away + back, 20 * MB) in (2, 3)


def test_steps_of_large_commits_are_averaged():
    """Commits of 8 MB every second, sampled ten times a second."""
    samples = [(at / 10, at // 10 * 8 * MB, 99 * MB) for at in range(60)]
    assert result(samples, 40 * MB) in range(4, 9)


@pytest.mark.parametrize("samples", [
    [],
    [(0.0, 5, 9)],
    [(at / 2, 5.0, 60 * MB) for at in range(20)],  # nothing advances
    [(0.0, 0, 9 * MB), (1.0, 1 * MB, 8 * MB), *((1 + at / 2, 1 * MB, 60 * MB) for at in range(1, 16))],  # it has stopped
    [(0.0, 0, 100), (9.0, 2 * MB, 60 * MB)],  # it waited for entries most of that time
    [(0.0, 9 * MB, 60 * MB), (0.5, 0, 60 * MB)],  # another store
])  # fmt: skip
def test_without_a_rate_a_short_time_is_told(samples):
    assert result(samples, 20 * MB) == 5


def test_ids_have_room_when_enough_of_them_have_expired():
    ttl_s, now = 24 * 600, 1_000_000.0
    first = int(now // 600)
    buckets = {b"%d" % (first + at): b"%d" % size for at, size in enumerate((0, 10, 50, 40))}
    for limit in (100, 95, 45, 1):
        wait_s = seconds_to_room(buckets, now, ttl_s, limit)
        assert living_bytes(buckets, now + wait_s, ttl_s) < limit
        assert living_bytes(buckets, now + wait_s - 3, ttl_s) >= limit
    assert expiry_bucket(now, ttl_s) == first + 24
