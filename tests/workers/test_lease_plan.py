"""Plans of leases: each worker about the same work, few changes, the same plan for everyone."""

from __future__ import annotations

import random

import pytest

from calibrant_server.workers.store.lease_plan import planned, weights_of


def work_of(plan, loads):
    found = {}
    for number, worker in plan.items():
        found[worker] = found.get(worker, 0.0) + loads[number]
    return found


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(5))
def test_work_is_about_even(n_workers, seed):
    """Sixteen models of unequal rates on 64 partitions: the true work, where the plan knows rounded weights."""
    chance = random.Random(seed)
    loads = dict.fromkeys(range(64), 0.1 / 64)
    for number in chance.sample(range(64), 16):
        loads[number] = chance.uniform(1, 2)
    workers = [f"w{i}" for i in range(n_workers)]
    plan = planned(weights_of(loads), workers)
    assert set(plan) == set(loads) and set(plan.values()) <= set(workers)
    even = sum(loads.values()) / n_workers
    assert all(
        abs(each - even) <= max(0.25 * even, 1.5 * max(loads.values()))
        for each in work_of(plan, loads).values()
    )


@pytest.mark.parametrize("n_workers", [2, 3, 5, 16, 64])
def test_idle_partitions_are_divided_by_number(n_workers):
    plan = planned(weights_of(dict.fromkeys(range(64), 0.0)), [f"w{i}" for i in range(n_workers)])
    counts = work_of(plan, dict.fromkeys(range(64), 1))
    assert max(counts.values()) <= 1.1 * 64 / n_workers + 1


def test_the_order_of_names_and_small_differences_move_nothing():
    even = planned(weights_of(dict.fromkeys(range(40), 1.0)), ["a", "b"])
    loads = {number: 1.05 if number % 2 else 1.0 for number in range(40)}
    assert planned(weights_of(loads), ["b", "a"]) == even


def test_a_worker_that_joins_moves_about_its_share():
    weights = weights_of(dict.fromkeys(range(64), 1.0))
    before, after = (planned(weights, names) for names in ("abc", "abcd"))
    n_moved = sum(before[number] != after[number] for number in weights)
    assert list(after.values()).count("d") <= n_moved <= 32


def test_a_hot_partition_is_alone():
    """It is more than a worker's share: its worker serves nothing else."""
    plan = planned(weights_of({0: 1000.0} | dict.fromkeys(range(1, 8), 1.0)), ["a", "b"])
    assert list(plan.values()).count(plan[0]) == 1
