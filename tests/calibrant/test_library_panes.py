"""Panes in the public surface of `calibrant`: their sums, differences, bytes and bounds."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import calibrant as cal
from tests.calibrant.test_library import N, data


def parts(n_parts: int) -> list[cal.Pane]:
    p, y = data()
    return [
        cal.Pane.fill(p[i::n_parts], y[i::n_parts], ids=np.arange(N)[i::n_parts])
        for i in range(n_parts)
    ]


def test_panes_add_in_any_order_and_subtract() -> None:
    p, y = data()
    complete = cal.Pane.fill(p, y, ids=np.arange(N))
    first, second, third = parts(3)
    for total in (
        sum([first, second, third]),
        third + (first + second),
        sum([second, third, first]),
    ):
        assert isinstance(total, cal.Pane)
        assert total == complete and total.isclose(complete) and complete.isclose(total)
        assert total - second == first + third
        assert repr(total) == repr(complete)
    assert first != second and not first.isclose(second) and first != "pane"
    assert repr(first) == repr(parts(3)[0]), "adding changes neither pane"
    assert complete - complete == cal.Pane(complete.spec)
    with pytest.raises(ValueError, match="cannot be added"):
        first + cal.Pane.fill([0.5], [1])
    with pytest.raises(TypeError):
        first + 1


def test_panes_survive_bytes_and_pickle() -> None:
    total = sum(parts(4))
    for again in (
        cal.Pane.from_bytes(total.to_bytes()),
        pickle.loads(pickle.dumps(total)),
        copy.deepcopy(total),
    ):
        assert again == total and again.isclose(total)
        assert (
            again.evaluate(["ece", "brier"]).to_dict() == total.evaluate(["ece", "brier"]).to_dict()
        )


def test_a_pane_that_was_read_in_part_stays_so() -> None:
    complete = parts(1)[0]
    some = cal.Pane.from_parts(complete.spec, complete.parts(), ["scores", "counts"])
    again = pickle.loads(pickle.dumps(some))
    assert again.names == ["counts", "scores"] and again == some and some.digest() is None
    assert repr(again) == repr(complete)
    assert (
        repr(cal.Pane.from_parts(complete.spec, complete.parts(), ["scores"]))
        == "Pane(multiclass: scores)"
    )


def test_a_large_sum_is_stored_within_the_bound_of_a_pane() -> None:
    rng = np.random.default_rng(1)
    panes = [
        cal.Pane.fill(p := rng.dirichlet(np.ones(10), 150), p.argmax(axis=1)) for _ in range(3)
    ]
    total = sum(panes)
    assert total.sample.n == 450
    stored = cal.Pane.from_bytes(total.to_bytes())
    assert 0 < stored.sample.n < 450 and stored == total and stored.isclose(total)


def test_a_pane_of_a_models_own_specification() -> None:
    spec = cal.PaneSpec("binary", 2, grid=60)
    pane = cal.Pane.fill([[0.2, 0.8]], [1], spec=spec)
    assert (
        pane.spec == spec
        and repr(pane) == "Pane(binary: 1 predictions, 1 labelled, 1 ratings, 1 units)"
    )
    assert pane.evaluate(["ece"])["ece"].extra["scope"] == "positive"
    assert cal.Pane.fill([0.8]).counts["n_labelled"] == 0
    assert cal.Pane.fill([], spec=spec) == cal.Pane(spec)


def test_a_unit_that_is_split_over_panes_is_reported() -> None:
    p, y = data()
    units = np.arange(N) // 10
    cut = 35
    panes = [
        cal.Pane.fill(p[part], y[part], units=units[part])
        for part in (slice(cut), slice(cut, None))
    ]
    report = sum(panes).evaluate(["ece", "brier"])
    assert report.n_units_split == 1 and report.n_units == N // 10 + 1
    assert all(estimate.n_units_split == 1 for estimate in report.values())
    for printed in (repr(report), report._repr_html_()):
        assert "units split over batches or panes: 1;" in printed
    assert "13 units (1 split over batches or panes)" in repr(sum(panes))
    many = np.arange(3000)
    twice = sum([cal.Pane.fill(np.full(3000, 0.5), many % 2, units=many)] * 2).evaluate(["brier"])
    assert "panes: about " in repr(twice) and twice.n_units_split == pytest.approx(3000, rel=0.2)
    complete = cal.evaluate(p, y, ["ece"], units=units)
    assert (complete.n_units_split, complete.n_units) == (0, N // 10) and "split" not in repr(
        complete
    )


def test_a_pane_and_its_rows_give_the_same_sums_and_bins() -> None:
    p, y = data()
    pane = cal.Pane.fill(p, y)
    table = pane.reliability(bins=12)
    np.testing.assert_allclose(table.bin_weight, cal.reliability(p, y, bins=12).bin_weight)
    slugs = ["ece", "mce", "ace", "classwise_ece", "brier", "nll", "accuracy"]
    ours, rows = pane.evaluate(slugs, raters="mean"), cal.evaluate(p, y, slugs, raters="mean")
    for slug in slugs:
        assert ours[slug].value == pytest.approx(rows[slug].value, abs=1e-12)
        assert ours[slug].null == pytest.approx(rows[slug].null, abs=1e-9)
    assert pane.temperature().value == pytest.approx(cal.fit_temperature(p, y).value, rel=1e-6)
    assert pane.evaluate(["lp_ece"], order=1)["lp_ece"].value == pytest.approx(
        ours["ece"].value, abs=1e-12
    )
