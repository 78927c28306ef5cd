"""A short storm on a cluster in the slow suite; and that a storm finds what a missing guard does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.storms.cluster.mutants import NO_LEASE, NO_TOKEN, NO_WAIT
from tests.storms.cluster.network import reason_to_skip
from tests.storms.cluster.node_faults import FAULTS_OF_THE_NETWORK
from tests.storms.cluster.nodes import MAX_LAG_S
from tests.storms.cluster.round import Plan, cluster_storm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
LATE_REPLICA = Plan(n_faults=1, kills=0, only=("late replica, kill of its master",), reshards=False)
# Leases are advisory: with every worker on every partition, only the token prevents that batches count twice.
NO_LEASES = Plan(
    n_faults=1, kills=1, only=("kill of a master",), mutants=(NO_LEASE,), reshards=False
)

needs_network = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())


def test_what_is_acknowledged_counts_once(tmp_path):
    """Masters are killed, stopped and cut off, and slots move; without root, those that need no namespaces."""
    found = cluster_storm(Plan(n_faults=3), 0, tmp_path)
    assert found.is_exact, found
    assert found.failovers >= 3
    assert set(found.skipped) == (set(FAULTS_OF_THE_NETWORK) if reason_to_skip() else set())
    assert found.minority_accepted_s <= MAX_LAG_S
    assert {"labels", "deletions", "running totals"} < found.acknowledged.keys()


@needs_network
def test_a_replica_that_lags_loses_nothing(tmp_path):
    found = cluster_storm(LATE_REPLICA, 0, tmp_path)
    assert found.is_exact, found
    assert found.failovers == 3


@needs_network
def test_the_storm_finds_that_nothing_waits_for_a_replica(tmp_path):
    found = cluster_storm(replace(LATE_REPLICA, mutants=(NO_WAIT,)), 0, tmp_path)
    assert found.lost_batches > 0
    assert found.is_exact, found  # what is not lost counts once


def test_without_leases_the_token_suffices(tmp_path):
    found = cluster_storm(NO_LEASES, 0, tmp_path)
    assert found.is_exact, found


def test_the_storm_finds_that_commits_lack_their_token(tmp_path):
    found = cluster_storm(replace(NO_LEASES, mutants=(NO_LEASE, NO_TOKEN)), 0, tmp_path)
    assert found.lost + found.twice > 0, found
