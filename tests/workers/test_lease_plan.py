"""Plans of leases: each worker about the same work, few changes, the same plan for everyone."""

from __future__ import annotations

import random

import pytest

from calibrant_server.workers.store.lease_plan import TOLERANCE, planned, weights_of


def work_of(plan, weights):
    found = {}
    for number, worker in plan.items():
        found[worker] = found.get(worker, 0.0) + weights[number]
    return found


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(5))
def test_work_is_within_a_quarter_of_even(n_workers, seed):
    """Sixteen models of unequal rates on 64 partitions, none above a quarter of the work of one worker."""
    chance = random.Random(seed)
    loads = dict.fromkeys(range(64), 0.0)
    for number in chance.sample(range(64), 16):
        loads[number] = chance.uniform(1, 2)
    weights = weights_of(loads)
    workers = [f"w{i}" for i in range(n_workers)]
    owners = {number: chance.choice([None, "gone", *workers]) for number in loads}
    plan = planned(weights, owners, workers)
    assert set(plan) == set(loads) and set(plan.values()) <= set(workers)
    even = 1 / n_workers
    found = work_of(plan, weights)
    largest = max(weights.values())
    assert all(
        abs(found.get(worker, 0.0) - even) <= max(0.25 * even, largest) for worker in workers
    )


def test_a_good_plan_is_kept():
    weights = weights_of({number: float(number % 3) for number in range(64)})
    plan = planned(weights, dict.fromkeys(range(64)), ["a", "b", "c"])
    assert planned(weights, plan, ["c", "b", "a"]) == plan


def test_small_differences_move_nothing():
    owners = {number: "ab"[number % 2] for number in range(40)}
    weights = {number: 1.05 if number % 2 else 1.0 for number in range(40)}
    assert TOLERANCE > 0.05
    assert planned(weights, owners, ["a", "b"]) == owners


def test_a_hot_partition_moves_no_further_than_it_helps():
    """It is more than a worker's share: its worker serves nothing else, and keeps it."""
    weights = weights_of({0: 1000.0} | dict.fromkeys(range(1, 8), 1.0))
    plan = planned(weights, dict.fromkeys(range(8), "a"), ["a", "b"])
    assert len([number for number, worker in plan.items() if worker == plan[0]]) == 1
    assert planned(weights, plan, ["a", "b"]) == plan
