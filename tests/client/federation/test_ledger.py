"""Each total counts once, whatever is killed, lost or restored; and the terms of a site stay the same."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from calibrant.client.errors import ServiceError, ServiceUnreachable
from calibrant.client.federation.forwarder import FederationError, Ledger
from tests.client.federated import (
    DAY_S,
    NOW,
    Centre,
    Rows,
    Site,
    forwarder,
    ledger_at,
    same_sums,
    terms,
)


def test_each_day_counts_once_whenever_the_forwarder_is_killed(tmp_path):
    """The request or its response is lost, and the forwarder starts again, at every step of a month."""
    rng = np.random.default_rng(11)
    site, centre = Site(), Centre()
    for step in range(12):
        site.put(-14 + step, Rows(60, step))
        centre.fails = [str(each) for each in rng.choice(["before", "after", ""], 5)]
        sent = 1
        while sent:
            try:
                sent = forwarder(site, centre, ledger_at(tmp_path / "ledger")).round()
            except ServiceUnreachable:
                continue
        same_sums(centre.total(), site.total())
    assert len(centre.seen) == 12
    # A response that was lost was not repeated: the watermark had advanced.
    assert len(centre.bodies) == 12


def test_a_request_that_arrives_late_is_not_counted(ledger):
    """The days of a total that was taken for lost are part of a later one."""
    site, centre = Site(), Centre()
    site.put(-3, Rows(30, 1))
    centre.fails = ["before"]
    with pytest.raises(ServiceUnreachable):
        forwarder(site, centre, ledger).round()
    site.hours["", NOW - 3 * DAY_S][0].flip(9)
    assert forwarder(site, centre, ledger).round() == 1
    same_sums(centre.total(), site.total())
    source, mark = next(iter(centre.marks.items()))
    late = centre._take({"source": source, "offsets": [mark - 1, mark], "histograms": []})
    assert late.duplicate


def test_a_centre_that_was_restored_gets_what_it_lost(ledger):
    site, centre = Site(), Centre()
    for day in (-4, -3, -2):
        site.put(day, Rows(30, -day))
    forwarder(site, centre, ledger).round()
    for n in (1, 0):
        centre.restore(n)
        assert forwarder(site, centre, ledger).round() == 3 - n
        same_sums(centre.total(), site.total())


def test_a_total_that_the_centre_rejects_is_made_again_in_the_next_round(ledger):
    site, centre = Site(), Centre()
    site.put(-2, Rows(30, 1))
    take = centre._take
    centre._take = rejected
    with pytest.raises(ServiceError):
        forwarder(site, centre, ledger).round()
    centre._take = take
    assert forwarder(site, centre, ledger).round() == 1
    same_sums(centre.total(), site.total())


def rejected(body):
    raise ServiceError(422, {"type": "/p/validation", "detail": "not so"})


def test_a_lost_ledger_counts_no_day_twice(tmp_path):
    site, centre = Site(), Centre()
    for day in (-4, -3):
        site.put(day, Rows(30, -day))
    first = ledger_at(tmp_path / "first")
    forwarder(site, centre, first).round()
    assert stat.S_IMODE((tmp_path / "first").stat().st_mode) == 0o600
    assert ledger_at(tmp_path / "first").secret == first.secret
    lost = ledger_at(tmp_path / "second")
    assert lost.secret != first.secret
    assert forwarder(site, centre, lost).round() == 0
    with pytest.raises(FederationError, match="site 'north'"):
        Ledger(tmp_path / "second", "south")


def test_other_terms_need_another_ledger(tmp_path):
    """Totals of other rows would count in addition to those that the centre has."""
    site, centre = Site(), Centre()
    site.put(-2, Rows(30, 1))
    site.put(-2, Rows(30, 1), slice_="ward:A")
    book = ledger_at(tmp_path / "ledger")
    forwarder(site, centre, book, terms(minimum=20)).round()
    forwarder(site, centre, book, terms(minimum=50, after="PT9H")).round()
    for other in (terms(slices=["ward:A"]), terms(to="triage-2")):
        with pytest.raises(FederationError, match="all rows to triage, and now is"):
            forwarder(site, Centre(), ledger_at(tmp_path / "ledger"), other).round()
    assert len(centre.bodies) == 1
