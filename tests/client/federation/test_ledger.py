"""The ledger: each total counts once, whatever is killed, lost or restored."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.client.errors import ServiceUnreachable
from calibrant.client.federation.ledger import Ledger, LedgerError
from tests.client.federated import Centre, Rows, Site, forwarder, ledger_at, same_sums, terms


def test_delayed_labels_are_forwarded_exactly_once_whenever_the_forwarder_is_killed(tmp_path):
    """The request or its response is lost, and the forwarder starts again, at every step of a month with corrections."""
    rng = np.random.default_rng(11)
    site, centre = Site(), Centre()
    days: list[Rows] = []
    for step in range(8):
        if step < 4:
            days.append(Rows(60, step).all_right())
            site.put(-9 + step, days[-1])
        for each in days:
            if rng.random() < 0.5:
                each.flip(60)
        centre.fails = [str(each) for each in rng.choice(["before", "after", ""], 5)]
        for _ in range(10):
            book = ledger_at(tmp_path / "ledger")
            try:
                found = forwarder(site, centre, book).round()
            except ServiceUnreachable:
                continue
            finally:
                book.close()
            assert found.waiting_days + found.waiting_corrections + found.rejected == 0
            if not found.sent + found.corrected:
                break
        same_sums(centre.total(), site.total())
    assert centre.mark == len(centre.seen) > 8


def test_a_centre_that_was_restored_gets_every_total_again(ledger):
    site, centre = Site(), Centre()
    for day in (-4, -3, -2):
        site.put(day, Rows(30, -day))
    forwarder(site, centre, ledger).round()
    centre.mark, centre.totals = 1, {}
    forwarder(site, centre, ledger).round()
    same_sums(centre.total(), site.total())
    centre.mark, centre.totals = None, {}
    forwarder(site, centre, ledger).round()
    same_sums(centre.total(), site.total())


def test_an_old_or_lost_ledger_is_not_used(tmp_path):
    site, centre = Site(), Centre()
    for day in (-4, -3):
        site.put(day, Rows(30, -day))
    book = ledger_at(tmp_path / "first")
    forwarder(site, centre, book).round()
    book.close()
    lost = ledger_at(tmp_path / "second")
    with pytest.raises(LedgerError, match="the ledger 0"):
        forwarder(site, centre, lost).round()
    lost.close()
    with pytest.raises(LedgerError, match="site 'north'"):
        Ledger(tmp_path / "second", "south")
    book = ledger_at(tmp_path / "first")
    with pytest.raises(LedgerError, match="another forwarder"):
        Ledger(tmp_path / "first", "north")
    site.generation = "ba9876543210"
    with pytest.raises(LedgerError, match="made again"):
        forwarder(site, centre, book).round()
    book.close()


def test_other_terms_need_another_ledger(tmp_path):
    """Totals of another form, or of other rows, would count in addition to those that the centre has."""
    site, centre = Site(), Centre()
    site.put(-2, Rows(30, 1))
    site.put(-2, Rows(30, 1), slice_="ward:A")
    book = ledger_at(tmp_path / "ledger")
    forwarder(site, centre, book, terms(minimum=20)).round()
    forwarder(site, centre, book, terms(minimum=50, after="PT9H")).round()
    for other in (
        terms(slices=["ward:A"]),
        terms(to="triage-2"),
        terms(share="histogram", bins=3600),
    ):
        with pytest.raises(LedgerError, match="was shared as pane of all rows to triage"):
            forwarder(site, Centre(), book, other).round()
    assert len(centre.bodies) == 1
    book.close()
