"""Federation: the centre has the sites' sums, never their rows, and no difference of few units; whatever is killed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.client.errors import ServiceUnreachable
from calibrant.client.federation.change_size import Profile, differs_enough, size_of
from calibrant.client.federation.contract import Contract
from calibrant.client.federation.ledger import Ledger, LedgerError
from calibrant.client.federation.shared_panes import (
    REPLICATED,
    blinded,
    packed_to_share,
    replicate_order,
    total_of,
)
from calibrant.core.errors import CalibrationInputError
from calibrant.core.hashing import hash_names
from calibrant.core.pane import Pane
from tests.client.federated import (
    DAY_S,
    DEFINITION,
    NOW,
    SPEC,
    Centre,
    Rows,
    Site,
    forwarder,
    ledger_at,
    same_sums,
    terms,
    unit_hashes,
)


@pytest.fixture
def ledger(tmp_path):
    found = ledger_at(tmp_path / "ledger")
    yield found
    found.close()


def test_the_centre_has_the_sums_of_all_sites(tmp_path):
    centre, expected = Centre(), []
    for number, name in enumerate(("north", "south")):
        site = Site()
        for day in (-4, -3, -2):
            for hour in (0, 9):
                site.put(day, Rows(30, 100 * number - 10 * day + hour), hour=hour)
        expected.append(site.total())
        centre.mark = None  # each site is a source of its own
        with_ledger = ledger_at(tmp_path / name, name)
        found = forwarder(site, centre, with_ledger, site_name=name).round()
        assert (found.sent, found.waiting_days) == (3, 0)
        with_ledger.close()
    same_sums(centre.total(), sum(expected))
    assert centre.total().counts["n_predictions"] == 360


def test_nothing_that_leaves_the_site_names_or_lists_its_rows(ledger):
    site, centre = Site(), Centre()
    rows = Rows(40, 1, prefix="Lee.Ann.")
    site.put(-2, rows)
    forwarder(site, centre, ledger).round()
    (body,) = centre.bodies
    (sent,) = centre.seen
    assert set(sent.parts()) == set(site.total().parts()) - {"sample", "digest", "cases"}
    assert sent.sample.is_empty and sent.digest() is None
    raw = unit_hashes(sent).tobytes()
    for unit in rows.units:
        assert unit.encode() not in body
        assert hash_names([unit]).tobytes() not in raw
    # Units are known to be named, and how often each was split.
    assert sent.unit_source == "named" and len(unit_hashes(sent)) == 40
    # The same units in another total have other hashes.
    site.put(-3, rows)
    forwarder(site, centre, ledger).round()
    assert not set(unit_hashes(centre.seen[-1])) & set(unit_hashes(sent))


def test_keyed_hashes_stay_below_the_thresholds_of_samples():
    hashes = np.array([0, 1, 2**63, 2**64 - 1, 2**40 + 5, 7], np.uint64)
    found = blinded(hashes, b"k" * 32, "a")
    for halvings in range(64):
        limit = np.uint64((1 << (64 - halvings)) - 1)
        assert ((found <= limit) == (hashes <= limit)).all()
    assert (found == blinded(hashes, b"k" * 32, "a")).all()
    assert (found[2:5] != blinded(hashes, b"k" * 32, "b")[2:5]).all()


def test_only_the_known_blocks_depend_on_the_names_of_units():
    """Two names for each unit: everything that differs is removed, keyed or reordered."""
    rows = Rows(300, 3)
    rows.labels = [[int(each), int(each % 2)] for each in rows.labels]
    one, two = (
        total_of(SPEC, [cal.Pane.fill(rows.probabilities, rows.labels, units=[f"{name}{i}" for i in range(300)], spec=SPEC)])
        for name in "ab"
    )  # fmt: skip
    differ = {
        (name, key)
        for name in one.names
        for key, block in one[name].blocks.items()
        if any(
            part.shape != other.shape or not np.allclose(part, other, rtol=1e-9)
            for part, other in zip(block.filled(), two[name].blocks[key].filled(), strict=True)
        )
    }
    named = {(name, key) for name, keys in REPLICATED.items() for key in keys}
    assert differ == named


def test_replicates_are_in_an_order_of_the_site_and_a_unit_stays_in_one():
    rows = Rows(300, 3)
    total = total_of(SPEC, [rows.pane()])
    one, two, other = (
        Pane.from_bytes(packed_to_share(total, key, subject))
        for key, subject in ((b"a" * 32, "m||1"), (b"a" * 32, "m||2"), (b"b" * 32, "m||1"))
    )
    order = replicate_order(b"a" * 32)
    assert sorted(order) == list(range(64)) and (order != np.arange(64)).sum() > 32
    for name, keys in REPLICATED.items():
        for key in keys:
            plain, found, again, elsewhere = (
                by_replicate(each[name].blocks[key]) for each in (total, one, two, other)
            )
            np.testing.assert_array_equal(found[:, order], plain)
            np.testing.assert_array_equal(found, again)
            if plain.any():
                assert not np.array_equal(found, elsewhere)


def by_replicate(block):
    places, counts, _ = block.filled()
    every = np.zeros((len(counts), block.size), np.int64)
    every[:, places] = counts
    return every.reshape(len(counts), 64, -1)


def test_days_of_few_units_wait_and_are_merged_with_later_ones(ledger):
    site, centre = Site(), Centre()
    site.put(-9, Rows(5, 1).all_right())
    site.put(-8, Rows(6, 2).all_right())
    found = forwarder(site, centre, ledger).round()
    assert (found.sent, found.waiting_days) == (0, 2) and not centre.bodies
    site.put(-7, Rows(12, 3).all_right())
    site.put(-6, Rows(3, 4))
    found = forwarder(site, centre, ledger).round()
    assert (found.sent, found.waiting_days) == (1, 1)
    assert centre.starts() == [NOW - 7 * DAY_S]
    assert centre.total().counts["n_units"] == 23
    # A label of the first day is a correction of the total that has it.
    site.hours["", NOW - 9 * DAY_S][0].flip(5)
    site.hours["", NOW - 7 * DAY_S][0].flip(12)
    assert forwarder(site, centre, ledger).round().waiting_corrections == 1
    site.hours["", NOW - 8 * DAY_S][0].flip(4)
    assert forwarder(site, centre, ledger).round().corrected == 1
    expected = [rows for (_, start), rows in site.hours.items() if start < NOW - 6 * DAY_S]
    same_sums(centre.total(), sum(each.pane() for rows in expected for each in rows))


def test_a_day_is_sent_some_hours_after_its_end(ledger):
    site, centre = Site(), Centre()
    for day in (-2, -1):
        site.put(day, Rows(30, -day))
    assert forwarder(site, centre, ledger, now=NOW + 3600).round().sent == 1
    assert forwarder(site, centre, ledger, now=NOW + 6 * 3600).round().sent == 1
    assert centre.starts() == [NOW - 2 * DAY_S, NOW - DAY_S]


def test_a_day_of_a_model_with_a_horizon_is_sent_once_it_is_sealed(ledger):
    site, centre = Site({**DEFINITION, "label_horizon": "P2D"}), Centre()
    for day in (-3, -2):
        site.put(day, Rows(30, -day))
    site.sealed_to = NOW - 2 * DAY_S
    assert forwarder(site, centre, ledger, now=NOW + 9 * DAY_S).round().sent == 1
    site.sealed_to = NOW - DAY_S
    assert forwarder(site, centre, ledger, now=NOW + 9 * DAY_S).round().sent == 1


def test_one_person_cannot_make_a_day_large_enough(ledger):
    """Many rows of few patients are few units, in one batch or in many."""
    site, centre = Site(), Centre()
    units = [f"p{i % 4}" for i in range(200)]
    site.put(-2, *(Rows(200, seed, units=units) for seed in range(10)))
    assert forwarder(site, centre, ledger).round().waiting_days == 1
    assert site.total().counts["n_units"] == 40


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


@pytest.mark.parametrize(("bins", "error"), [(7, CalibrationInputError), (120, LedgerError)])
def test_bins_that_a_grid_does_not_give_are_rejected_before_anything_is_sent(ledger, bins, error):
    site, centre = Site(), Centre({**DEFINITION, "grid": 50})
    site.put(-2, Rows(30, 1))
    with pytest.raises(error):
        forwarder(site, centre, ledger, terms(share="histogram", bins=bins)).round()
    assert ledger.outstanding("triage") is None


def test_what_retention_drops_at_the_site_stays_at_the_centre(ledger):
    site, centre = Site({**DEFINITION, "retention": "P5D"}), Centre()
    rows = {day: Rows(30, -day) for day in (-5, -4, -3, -2)}
    for day, each in rows.items():
        site.put(day, each)
    forwarder(site, centre, ledger).round()
    before = centre.total()
    for day in (-5, -4):
        del site.hours["", NOW + day * DAY_S]
    found = forwarder(site, centre, ledger, now=NOW + DAY_S).round()
    assert (found.corrected, found.waiting_corrections) == (0, 0)
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


def test_a_histogram_shares_the_scores_and_nothing_else(ledger):
    site, centre = Site(), Centre({**DEFINITION, "grid": 60})
    rows = Rows(50, 4)
    site.put(-2, rows)
    sent = []
    centre._take = lambda body: sent.append(body)
    forwarder(site, centre, ledger, terms(share="histogram", bins=60)).round()
    (update,) = sent[0]["histograms"]
    assert update.keys() == {
        "kind", "raters", "bins", "edges", "count", "sum_confidence", "sum_correct", "n_predictions", "n_units",
        "mode", "source", "epoch", "sequence", "event_time", "slice",
    }  # fmt: skip
    assert sum(update["count"]) == 50 and update["kind"] == "top_label"
    table = cal.reliability(rows.probabilities, rows.labels, bins=60).table
    np.testing.assert_allclose(
        update["sum_confidence"], [each["sum_confidence"] for each in table], atol=1e-12
    )


@pytest.mark.parametrize(("change", "pointer", "rule"), [
    ({"site": "a b"}, "/site", "id"), ({"sites": 1}, "/sites", "unknown_field"), ({"models": []}, "/models", "list"),
    ({"models": [terms(colour=1)]}, "/models/0/colour", "unknown_field"),
    ({"models": [terms(minimum=1)]}, "/models/0/minimum", "minimum"), ({"models": [terms(minimum=20.0)]}, "/models/0/minimum", "minimum"),
    ({"models": [terms(share="rows")]}, "/models/0/share", "value"), ({"models": [terms(bins=60)]}, "/models/0/bins", "bins"),
    ({"models": [terms(share="histogram")]}, "/models/0/bins", "bins"),
    ({"models": [terms(slices=["ward"])]}, "/models/0/slices/0", "slice"),
    ({"models": [terms(slices=["ward:A", "sex:f"])]}, "/models/0/slices", "one_key"),
    ({"models": [terms(slices=["ward:A", "ward:A"])]}, "/models/0/slices", "one_key"),
    ({"models": [terms(slices=["site:A"])]}, "/site_slice", "unique"),
    ({"models": [terms(), terms(to="other")]}, "/models", "unique"), ({"models": [terms(after="soon")]}, "/every", "duration"),
])  # fmt: skip
def test_a_contract_that_is_not_valid_is_rejected(change, pointer, rule):
    with pytest.raises(CalibrationInputError) as found:
        Contract.read({"site": "north", "models": [terms()], **change})
    first = found.value.violations[0]
    assert (first.pointer, first.rule) == (pointer, rule)


def test_models_that_differ_are_not_federated(ledger):
    site, centre = Site(), Centre({**DEFINITION, "grid": 600})
    site.put(-2, Rows(30, 1))
    with pytest.raises(LedgerError, match="differs"):
        forwarder(site, centre, ledger).round()
    assert not centre.bodies
