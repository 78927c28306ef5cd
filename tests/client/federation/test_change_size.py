"""Corrections: a total is sent only if it differs from each earlier one by enough units."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.client.federation.change_size import Profile, differs_enough, size_of
from calibrant.client.federation.shared_panes import total_of
from tests.client.federated import SPEC, Centre, Rows, Site, forwarder


@pytest.mark.parametrize(("n_flipped", "corrected"), [(19, 0), (20, 1)])
def test_corrections_of_few_units_wait(ledger, n_flipped, corrected):
    site, centre = Site(), Centre()
    rows = Rows(200, 5)
    site.put(-2, rows)
    forwarder(site, centre, ledger).round()
    before = centre.total()
    rows.flip(n_flipped)
    found = forwarder(site, centre, ledger).round()
    # Flips in both directions cancel in part: the bound may be too low, never too high.
    assert found.corrected <= corrected
    assert found.corrected + found.waiting_corrections == 1
    if not found.corrected:
        assert centre.total() is not before and len(centre.bodies) == 1


def test_a_change_that_the_scores_do_not_show_waits(ledger):
    """Another wrong class as label: the calibration of the top class is the same, the sums by class are not."""
    site, centre = Site(), Centre()
    rows = Rows(200, 5)
    top = rows.probabilities.argmax(axis=1)
    rows.labels = [int((each + 1) % 3) for each in top]
    site.put(-2, rows)
    forwarder(site, centre, ledger).round()
    rows.labels[0] = int((top[0] + 2) % 3)
    assert forwarder(site, centre, ledger).round().waiting_corrections == 1


def test_no_two_totals_that_the_centre_has_seen_differ_by_few_units(ledger):
    """A total is compared with all earlier ones: a change that is taken back leaves a small difference to the first."""
    site, centre = Site(), Centre()
    rows = Rows(300, 7)
    top = rows.probabilities.argmax(axis=1)
    rows.labels = top.tolist()  # all right: flips go in one direction
    site.put(-2, rows)
    forwarder(site, centre, ledger).round()
    rows.labels[:40] = ((top[:40] + 1) % 3).tolist()
    assert forwarder(site, centre, ledger).round().corrected == 1
    rows.labels[1:40] = top[1:40].tolist()  # 39 of the 40 are taken back: one is left
    found = forwarder(site, centre, ledger).round()
    assert (found.corrected, found.waiting_corrections) == (0, 1)
    rows.labels[0] = int(top[0])  # the very first total again
    assert forwarder(site, centre, ledger).round().corrected == 1
    rng = np.random.default_rng(2)
    for _ in range(12):
        some = rng.integers(0, 300, int(rng.integers(1, 60)))
        for i in some:
            rows.labels[i] = int(rng.integers(0, 3))
        forwarder(site, centre, ledger).round()
    profiles = [(each.pack(), Profile.of(each)) for each in centre.seen]
    for i, (packed, one) in enumerate(profiles):
        for other_packed, other in profiles[:i]:
            assert packed == other_packed or differs_enough(one, other, 20)
    assert len(profiles) > 4


def test_a_bound_of_the_changed_units_is_never_too_high():
    rng = np.random.default_rng(3)
    for n_changed in (1, 5, 19, 20, 60):
        rows = Rows(100, n_changed, units=[f"u{i % 50}" for i in range(100)])
        old = Profile.of(total_of(SPEC, [rows.pane()]))
        changed = rng.permutation(50)[:n_changed]
        for i in range(100):
            if i % 50 in changed:
                rows.labels[i] = int(rng.integers(0, 3))
        new = Profile.of(total_of(SPEC, [rows.pane()]))
        assert not differs_enough(new, old, len(changed) + 1)
    grown = total_of(SPEC, [Rows(30, 1).pane(), Rows(20, 2).pane()])
    first = total_of(SPEC, [Rows(30, 1).pane()])
    assert differs_enough(Profile.of(grown), Profile.of(first), 20)
    assert not differs_enough(Profile.of(grown), Profile.of(first), 21)
    assert size_of(grown) == 50


def test_a_unit_of_many_batches_is_one_changed_unit():
    several = [Rows(25, seed, units=[f"u{i}" for i in range(25)]).all_right() for seed in range(10)]
    old = Profile.of(total_of(SPEC, [each.pane() for each in several]))
    for each in several:
        each.flip(5)
    new = Profile.of(total_of(SPEC, [each.pane() for each in several]))
    assert new.n_batches == 10
    assert differs_enough(new, old, 5) and not differs_enough(new, old, 6)
