"""Calibration maps: where there is none, held-out numbers, options, any rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.calibrators import MAPS, Options, apply, fit
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from tests.calibrant.map_rows import (
    ONE_SCORE,
    binary,
    fitted,
    many_classes,
    naive_losses,
    pane_of,
    plain,
    scores_and_labels,
)

# Where there is no map


@pytest.mark.parametrize("method", list(MAPS))
@pytest.mark.parametrize("raw", [False, True])
def test_edges_of_what_can_be_fitted(method, raw):
    certain = binary(
        [0.0] * 40 + [1.0] * 40 + [0.4] * 40, [0] * 30 + [1] * 10 + [1] * 35 + [0] * 5 + [0, 1] * 20
    )
    cases = {
        "unlabelled": Batch.from_columns({"confidences": [0.2, 0.7]}).batch,
        "three": binary([0.2, 0.5, 0.9], [0, 1, 1]),
        "one_class": binary([0.2, 0.5, 0.9] * 20, [1] * 60),
        "constant": binary([0.3] * 60, [0, 0, 1] * 20),
        "separable": binary([0.2, 0.3, 0.8, 0.9] * 20, [0, 0, 1, 1] * 20),
        "touching": binary([0.2, 0.5, 0.5, 0.9] * 20, [0, 0, 1, 1] * 20),
        "certain": certain,
        "weightless": binary([0.2, 0.8] * 20, [0, 1] * 20, weights=[0.0] * 40),
    }
    for name, batch in cases.items():
        answer = fitted(method, batch, raw=raw)
        assert plain(answer) and json.dumps(answer, allow_nan=False)
        assert (answer["parameters"] is None) == (answer["reason"] is not None), name
        if answer["parameters"] is not None:
            mapped = apply(answer, batch)
            assert ((mapped >= 0) & (mapped <= 1)).all()
        elif name not in ("unlabelled", "weightless"):
            assert answer["detail"]
    assert fitted(method, cases["unlabelled"], raw=raw)["reason"] == "no_labels"
    assert fitted(method, cases["weightless"], raw=raw)["reason"] == "no_labels"
    three = fitted(method, cases["three"], raw=raw)
    assert "few_units" in three["warnings"] or three["reason"] in ("separable", "few_rows")


@pytest.mark.parametrize("method", ["platt", "beta", "scaling_binning"])
def test_curves_name_the_reason(method):
    reasons = {
        "one_class": binary([0.2, 0.5, 0.9] * 20, [1] * 60),
        "constant_scores": binary([0.3] * 60, [0, 0, 1] * 20),
        "separable": binary([0.2, 0.5, 0.5, 0.9] * 20, [0, 0, 1, 1] * 20),
        "no_labels": Batch.from_columns({"confidences": [0.2]}).batch,
    }
    for reason, batch in reasons.items():
        answer = fitted(method, batch)
        assert answer["parameters"] is None and answer["reason"] == reason and answer["detail"]
        assert answer["heldout"] is None and answer["heldout_reason"] == reason


def test_an_empty_pane_is_no_data_not_zero():
    for method in MAPS:
        answer = fit(method, View(Pane(PaneSpec("multiclass", 3)), PaneQuery()))
        assert answer["n"] == 0 and answer["reason"] == "no_labels" and answer["before"] is None


def test_platt_may_fall_and_says_so():
    p, y = scores_and_labels(2000, slope=-0.8)
    assert "decreasing" in fitted("platt", binary(p, y))["warnings"]
    assert fitted("scaling_binning", binary(p, y))["reason"] == "decreasing"
    assert fitted("beta", binary(p, y))["parameters"]["a"] == 0.0


def test_histogram_bins_without_data_keep_their_middle():
    answer = fitted("histogram", binary([0.05] * 30, [0, 1, 1] * 10), options=Options(bins=15))
    assert answer["parameters"]["values"][0] == pytest.approx(2 / 3)
    assert answer["parameters"]["values"][7] == pytest.approx(0.5)
    assert answer["n_empty_bins"] == 14 and "empty_bins" in answer["warnings"]


def test_plain_histograms_feed_histogram_binning_and_nothing_else():
    spec = PaneSpec("binary", 2)
    pane = Pane(spec)
    columns = {
        "count": [10.0] * 3600,
        "sum_confidence": [10 * (k + 0.5) / 3600 for k in range(3600)],
    }
    columns["sum_correct"] = [10 * ((k + 0.5) / 3600) ** 2 for k in range(3600)]
    fields = {"kind": "positive", "bins": 3600, "edges": "right", "raters": "pooled"}
    pane.fill_histogram(Histogram.from_fields(fields | columns, spec))
    for method in MAPS:
        answer = fit(method, View(pane, PaneQuery()))
        if method == "histogram":
            assert answer["parameters"]["values"][14] == pytest.approx((14.5 / 15) ** 2, abs=1e-3)
            assert answer["heldout_reason"] == "not_in_histogram"
        else:
            assert answer["reason"] == "not_in_histogram" and answer["n_excluded"] == 36000.0


def test_a_class_that_is_not_kept_is_named():
    batch = many_classes(200, 5)
    view = View(pane_of(batch, listed_classes=(1,)), PaneQuery(scope="class:2"))
    assert fit("platt", view)["reason"] == "class_not_kept"
    with pytest.raises(CalibrationInputError):
        fit("temperature", view)
    with pytest.raises(CalibrationInputError):
        fit("loess", view)


# Held-out numbers


@pytest.mark.parametrize("method", [*ONE_SCORE, "temperature"])
def test_held_out_gain_covers_what_fresh_data_show(method):
    p, y = scores_and_labels(6000, seed=11)
    fresh, labels = scores_and_labels(60_000, seed=12)
    answer = fitted(method, binary(p, y))
    gain = (
        naive_losses(fresh, labels)["brier"]
        - naive_losses(apply(answer, binary(fresh, labels)), labels)["brier"]
    )
    low, high = answer["heldout"]["gain"]["brier"]["interval"]
    assert low - 1e-3 <= gain <= high + 1e-3
    assert answer["heldout"]["table_bins"] == 60 and answer["heldout"]["n_replicates"] == 64


def test_held_out_needs_enough_replicates_and_kept_tables():
    p, y = scores_and_labels(15)
    y[:8], y[8:] = np.arange(8) % 2, np.arange(7) % 2
    assert fitted("isotonic", binary(p, y))["heldout_reason"] == "few_units"
    batch = many_classes(500)
    assert fitted("platt", batch, scope="class:1")["heldout"]["table_bins"] == 15
    found = fitted("temperature", batch)
    assert found["heldout"]["gain"]["nll"]["interval"][0] > 0
    assert found["heldout"]["n"] == 500 and found["heldout"]["fitted_to"] == "window"
    halves = found["heldout"]["halves"]
    assert halves["sample"]["n_drawn_from"] == 500
    assert halves["n"] == halves["sample"]["n"] > 200


# Of all maps


@pytest.mark.parametrize(
    "options", [Options(bins=0), Options(bins=5000), Options(binning="deciles")]
)
def test_options_out_of_range_are_rejected(options):
    p, y = scores_and_labels(50)
    with pytest.raises(CalibrationInputError):
        fitted("histogram", binary(p, y), options=options)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1e-12, 0.25, 0.3, 1 / 3, 0.5, 0.999, 1]), st.integers(0, 1)),
        min_size=1,
    ),
    st.sampled_from(list(MAPS)),
)
def test_any_rows_give_a_map_or_a_reason(rows, method):
    batch = binary([p for p, _ in rows], [y for _, y in rows])
    answer = fitted(method, batch)
    json.dumps(answer, allow_nan=False)
    if answer["parameters"] is None:
        assert answer["reason"]
    else:
        mapped = apply(answer, batch)
        assert ((mapped >= 0) & (mapped <= 1)).all()
