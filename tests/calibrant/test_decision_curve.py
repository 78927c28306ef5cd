"""The decision curve: net benefit counted by hand at every threshold, from rows and from state, and as a figure."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from matplotlib.figure import Figure

import calibrant as cal
from calibrant.figures.decision_curve import draw_decision_curve
from calibrant.figures.images import image
from calibrant.results.decision_curve import (
    DecisionCurve,
    DecisionCurveQuery,
    decision_curve,
)
from calibrant.results.reads import State

RNG = np.random.default_rng(5)
# Half of the scores are on multiples of .01: at a threshold one acts.
SCORES = np.where(RNG.random(700) < 0.5, RNG.beta(1, 3, 700), RNG.integers(0, 60, 700) / 100)
LABELS = (RNG.random(700) < SCORES).astype(int)
WEIGHTS = RNG.uniform(0.5, 2.0, 700)


def naive(threshold: float, weights: np.ndarray) -> tuple[float, float]:
    true = false = cases = total = 0.0
    for score, label, weight in zip(SCORES, LABELS, weights, strict=True):
        total += weight
        cases += weight * label
        if score >= threshold:
            true += weight * label
            false += weight * (1 - label)
    cost = threshold / (1 - threshold)
    return (true - cost * false) / total, (cases - cost * (total - cases)) / total


@pytest.mark.parametrize("weights", [np.ones(700), WEIGHTS])
def test_rows_and_state_equal_the_naive_version(weights: np.ndarray) -> None:
    curve = cal.decision_curve(SCORES, LABELS, weights=weights)
    assert curve.threshold == [round(k / 100, 2) for k in range(1, 100)]
    expected = [naive(each, weights) for each in curve.threshold]
    assert curve.net_benefit == pytest.approx([each for each, _ in expected], abs=1e-12)
    assert curve.treat_all == pytest.approx([each for _, each in expected], abs=1e-12)
    assert curve.prevalence == pytest.approx(np.average(LABELS, weights=weights))
    state = State(cal.Pane.fill(SCORES, LABELS, weights=weights), cast(Any, None))
    stored = decision_curve(state, DecisionCurveQuery())
    assert stored.net_benefit == pytest.approx(curve.net_benefit, abs=1e-12)
    assert stored.error_bound is None


def test_points_are_those_of_the_metric() -> None:
    curve = cal.decision_curve(SCORES, LABELS, thresholds=[0.1, 0.25, 0.4])
    for i, threshold in enumerate(curve.threshold):
        one = cal.net_benefit(SCORES, LABELS, threshold=threshold)
        assert curve.net_benefit[i] == one.value and curve.acted_on[i] == one.extra["acted_on"]
        assert curve.interval[i] == (None if one.interval is None else list(one.interval))


def test_a_threshold_that_divides_cells_states_a_bound() -> None:
    rows = cal.decision_curve(SCORES, LABELS, thresholds=[0.12345])
    state = State(cal.Pane.fill(SCORES, LABELS), cast(Any, None))
    query = DecisionCurveQuery(low=0.12345, high=0.5, points=2)
    found = decision_curve(state, query)
    bound = found.error_bound or 0.0
    assert found.net_benefit[0] == pytest.approx(rows.net_benefit[0], abs=bound + 1e-12)


@pytest.mark.parametrize(
    "thresholds", [[], [0.2, 0.1], [0.2, 0.2], [0.0], [1.0], ["a"], np.linspace(0.1, 0.9, 200)]
)
def test_other_thresholds_are_refused(thresholds: object) -> None:
    with pytest.raises(cal.CalibrationInputError, match="Received"):
        cal.decision_curve(SCORES, LABELS, thresholds=thresholds)


def test_no_labels_have_no_curve() -> None:
    found = cal.decision_curve([0.2, 0.4], [None, None])
    assert found.reason == "no_data" and found.net_benefit == []
    assert image(draw_decision_curve(found.to_dict()))


def lines_of(figure: Figure) -> dict[str, list[float]]:
    return {str(line.get_label()): list(line.get_ydata()) for line in figure.axes[0].lines}


def test_the_figure_has_the_three_curves_and_the_interval() -> None:
    curve = cal.decision_curve(SCORES, LABELS, ids=np.arange(700))
    figure = draw_decision_curve(curve.to_dict() | {"model": "sepsis"})
    lines = lines_of(figure)
    assert lines["act on the model"] == curve.net_benefit
    assert lines["act on all"] == curve.treat_all
    assert set(lines["act on none"]) == {0.0}
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert any("95 % interval" in each for each in labels)
    low, high = figure.axes[0].get_ylim()
    # Acting on all falls to minus 60 at .99: it must not hide the curve.
    assert low > -0.5 and high < 1.0 and min(curve.treat_all) < -20
    assert figure.get_label() == "Decision curve of sepsis"
    for kind, head in (("image/png", b"\x89PNG"), ("image/svg+xml", b"<?xml")):
        assert image(draw_decision_curve(curve.to_dict()), kind).startswith(head)


def test_it_plots_and_is_read_again() -> None:
    curve = cal.decision_curve(SCORES, LABELS, thresholds=[0.1, 0.2, 0.3])
    axes = Figure().subplots()
    assert curve.plot(axes) is axes and len(axes.lines) == 3
    assert DecisionCurve.from_json(curve.to_json()).to_dict() == curve.to_dict()


def test_intervals_contain_the_true_benefit() -> None:
    """Scores of density 4 (1 - s)^3 and calibrated labels: the benefit at t is an integral."""
    thresholds = [0.1, 0.2, 0.4]
    s = np.random.default_rng(0).beta(1, 4, 2_000_000)
    truth = [(s * (s >= t) - t / (1 - t) * (1 - s) * (s >= t)).mean() for t in thresholds]
    held = np.zeros(3)
    for seed in range(80):
        rng = np.random.default_rng([2, seed])
        scores = rng.beta(1, 4, 800)
        found = cal.decision_curve(scores, rng.random(800) < scores, thresholds=thresholds)
        for i, bounds in enumerate(found.interval):
            assert bounds is not None
            held[i] += bounds[0] <= truth[i] <= bounds[1]
    assert (held >= 70).all(), held


@pytest.mark.parametrize("width", [4.2, 6.4])
def test_the_legend_is_outside_of_the_data(width: float) -> None:
    figure = Figure(figsize=(width, 4.0), layout="constrained")
    axes = cal.decision_curve(SCORES[:80], LABELS[:80]).plot(figure.subplots())
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend is not None and legend.get_window_extent().y0 >= axes.get_window_extent().y1
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= figure.bbox.x1
