"""Rounds of the forwarder: the centre has the sums of all sites, of days that are due and large enough."""

from __future__ import annotations

import json

from tests.client.federated import (
    DAY_S,
    DEFINITION,
    NOW,
    Centre,
    Rows,
    Site,
    forwarder,
    ledger_at,
    same_sums,
    terms,
)


def test_the_centre_has_the_sums_of_all_sites(tmp_path):
    centre, expected = Centre(), []
    for number, name in enumerate(("north", "south")):
        site = Site()
        for day in (-4, -3, -2):
            for hour in (0, 9):
                site.put(day, Rows(30, 100 * number - 10 * day + hour), hour=hour)
        expected.append(site.total())
        with_ledger = ledger_at(tmp_path / name, name)
        found = forwarder(site, centre, with_ledger, site_name=name).round()
        assert found == 3
    same_sums(centre.total(), sum(expected))
    assert centre.total().counts["n_predictions"] == 360


def test_days_of_few_units_wait_and_are_merged_with_later_ones(ledger):
    site, centre = Site(), Centre()
    site.put(-9, Rows(5, 1))
    site.put(-8, Rows(6, 2))
    assert forwarder(site, centre, ledger).round() == 0 and not centre.bodies
    site.put(-7, Rows(12, 3))
    site.put(-6, Rows(3, 4))
    assert forwarder(site, centre, ledger).round() == 1
    assert centre.starts() == [NOW - 7 * DAY_S]
    sent = [rows for (_, start), rows in site.hours.items() if start < NOW - 6 * DAY_S]
    same_sums(centre.total(), sum(each.pane() for rows in sent for each in rows))
    site.put(-5, Rows(17, 5))
    assert forwarder(site, centre, ledger).round() == 1
    same_sums(centre.total(), site.total())


def test_what_changes_in_a_day_that_was_sent_stays_at_the_site(ledger):
    """Two totals of a day would show the rows that changed."""
    site, centre = Site(), Centre()
    site.put(-3, Rows(30, 1).all_right())
    site.put(-2, Rows(30, 2))
    assert forwarder(site, centre, ledger).round() == 2
    before = centre.total()
    site.hours["", NOW - 3 * DAY_S][0].flip(25)
    site.put(-4, Rows(30, 3))
    assert forwarder(site, centre, ledger).round() == 0
    same_sums(centre.total(), before)


def test_a_day_is_sent_some_hours_after_its_end(ledger):
    site, centre = Site(), Centre()
    for day in (-2, -1):
        site.put(day, Rows(30, -day))
    assert forwarder(site, centre, ledger, now=NOW + 3600).round() == 1
    assert forwarder(site, centre, ledger, now=NOW + 6 * 3600).round() == 1
    assert centre.starts() == [NOW - 2 * DAY_S, NOW - DAY_S]


def test_a_day_of_a_model_with_a_horizon_is_sent_once_it_is_sealed(ledger):
    site, centre = Site({**DEFINITION, "label_horizon": "P2D"}), Centre()
    for day in (-3, -2):
        site.put(day, Rows(30, -day))
    site.sealed_to = NOW - 2 * DAY_S
    assert forwarder(site, centre, ledger, now=NOW + 9 * DAY_S).round() == 1
    site.sealed_to = NOW - DAY_S
    assert forwarder(site, centre, ledger, now=NOW + 9 * DAY_S).round() == 1


def test_one_person_cannot_make_a_day_large_enough(ledger):
    """Many rows of few patients are few units, in one batch or in many."""
    site, centre = Site(), Centre()
    units = [f"p{i % 4}" for i in range(200)]
    site.put(-2, *(Rows(200, seed, units=units) for seed in range(10)))
    assert forwarder(site, centre, ledger).round() == 0
    assert site.total().counts["n_units"] == 40


def test_what_retention_drops_at_the_site_stays_at_the_centre(ledger):
    site, centre = Site({**DEFINITION, "retention": "P5D"}), Centre()
    rows = {day: Rows(30, -day) for day in (-5, -4, -3, -2)}
    for day, each in rows.items():
        site.put(day, each)
    forwarder(site, centre, ledger).round()
    before = centre.total()
    for day in (-5, -4):
        del site.hours["", NOW + day * DAY_S]
    assert forwarder(site, centre, ledger, now=NOW + DAY_S).round() == 0
    same_sums(centre.total(), before)


def test_the_centre_sees_the_slices_of_the_contract_and_no_others(ledger):
    site, centre = Site(), Centre()
    for value in "ABC":
        site.put(-2, Rows(30, ord(value)), slice_=f"ward:{value}")
    site.put(-2, Rows(90, 1))
    forwarder(site, centre, ledger, terms(slices=["ward:A", "ward:B"])).round()
    slices = [json.loads(body)["histograms"][0]["slice"] for body in centre.bodies]
    assert slices == [{"site": "north", "ward": "A"}, {"site": "north", "ward": "B"}]
    same_sums(centre.total(), site.total("ward:A") + site.total("ward:B"))
