"""`cal.compare` and `Pane.compare`: differences of two models, paired by row or unit."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.figures.losses import drawn_curve
from calibrant.inference.metrics_differences import differences

N = 400
RNG = np.random.default_rng(11)
LOGITS = 2.0 * RNG.normal(size=(N, 3))
TRUE = np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum(axis=1, keepdims=True)
LABELS = (TRUE.cumsum(axis=1) < RNG.random((N, 1))).sum(axis=1)


def test_a_difference_is_that_of_the_two_reports() -> None:
    found = cal.compare(logits=LOGITS, other_logits=LOGITS / 2, labels=LABELS)
    first = cal.evaluate(logits=LOGITS, labels=LABELS)
    second = cal.evaluate(logits=LOGITS / 2, labels=LABELS)
    assert list(found) == list(first) and len(found) == 12
    for slug, each in found.items():
        assert each.first.value == first[slug].value and each.second.value == second[slug].value
        assert float(each) == first[slug].value - second[slug].value  # type: ignore[operator]
    assert found["ece"].differs and found["ece"].value > 0.05  # type: ignore[operator]


def test_rows_are_paired_by_their_number() -> None:
    """The same classes win, row by row: nothing is left of the difference, nor of its interval."""
    found = cal.compare(
        logits=LOGITS, other_logits=LOGITS / 2, labels=LABELS, metrics="accuracy,brier"
    )
    assert found["accuracy"].interval == pytest.approx((0, 0), abs=1e-9)
    assert found["accuracy"].differs is False
    low, high = found["brier"].interval  # type: ignore[misc]
    own = found["brier"].first.interval
    assert own is not None and high - low < 0.5 * (own[1] - own[0])


def test_equal_models_in_another_order_of_rows_are_not_paired() -> None:
    """The interval of rows that are not of the same items is as wide as of two samples."""
    order = np.random.default_rng(1).permutation(N)
    shuffled = cal.compare(
        logits=LOGITS, other_logits=LOGITS[order], labels=[1] * N, metrics="brier"
    )
    paired = cal.compare(logits=LOGITS, other_logits=LOGITS, labels=[1] * N, metrics="brier")
    widths = [each["brier"].interval for each in (shuffled, paired)]
    assert widths[1] == pytest.approx((0, 0), abs=1e-12)
    assert widths[0] is not None and widths[0][1] - widths[0][0] > 0.05


def test_panes_compare_as_the_service_does() -> None:
    units = [f"patient-{i % 80}" for i in range(N)]
    panes = [
        cal.Pane.fill(logits=each, labels=LABELS, units=units, ids=range(N))
        for each in (LOGITS, LOGITS / 2)
    ]
    found = panes[0].compare(panes[1], ["ece", "brier"], bins=10)
    views = [View(each, PaneQuery(bins=10)) for each in panes]
    expected = differences(views[0], views[1], ["ece", "brier"])
    assert found.to_dict()["metrics"] == json.loads(json.dumps(expected))
    with pytest.raises(cal.CalibrationInputError, match="spec"):
        panes[0].compare(cal.Pane.fill([0.9], [1]))


@pytest.mark.parametrize(
    ("second", "argument", "rule"),
    [
        ({}, "other", "one_score_column"),
        ({"other": TRUE, "other_logits": LOGITS}, "other", "one_score_column"),
        ({"other_logits": LOGITS[:5]}, "other_logits", "length"),
        ({"other_logits": LOGITS[:, :2]}, "other_logits", "n_classes"),
        ({"other": TRUE[:, 0]}, "other", "n_classes"),
        ({"other": LOGITS}, "other", "range"),
    ],
)
def test_errors_name_the_argument_of_the_second_model(
    second: dict[str, object], argument: str, rule: str
) -> None:
    with pytest.raises(cal.CalibrationInputError) as caught:
        cal.compare(logits=LOGITS, labels=LABELS, **second)  # type: ignore[arg-type]
    violation = caught.value.violations[0]
    assert (violation.argument, violation.rule) == (argument, rule)


def test_no_data_is_not_zero() -> None:
    found = cal.compare([0.9, 0.2], [0.8, 0.3], [None, None], "ece")["ece"]
    assert (found.value, found.interval, found.differs) == (None, None, None)
    assert found.reason == "no_data"
    with pytest.raises(ValueError, match="no_data"):
        float(found)
    few = cal.compare([0.9, 0.2], [0.8, 0.3], [1, 0], "ece")["ece"]
    assert few.value is not None and few.interval is None and few.reason == "too_few_units"


def test_it_prints() -> None:
    found = cal.compare(logits=LOGITS, other_logits=LOGITS / 2, labels=LABELS, metrics="ece,dice")
    text = repr(found).splitlines()
    assert text[0].startswith("Comparison on 400 labelled predictions")
    assert text[1].split()[:4] == ["metric", "first", "second", "difference"]
    assert text[3].split()[-1] == "no_cases"
    assert "<table" in found._repr_html_()
    assert json.dumps(found.to_dict(), allow_nan=False)
    with pytest.raises(KeyError, match="ece, dice"):
        found["brier"]


def test_every_metric_that_is_no_calibration_error_has_its_own_axis() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    report = cal.evaluate(logits=LOGITS, labels=LABELS)
    for figure in (
        report.plot(),
        cal.compare(logits=LOGITS, other_logits=LOGITS / 2, labels=LABELS).plot(),
    ):
        figure.canvas.draw()
        rows = [[each.get_text() for each in axes.get_yticklabels()] for axes in figure.axes]
        assert len(rows[0]) == 8 and rows[1:] == [
            ["Accuracy"],
            ["Brier score"],
            ["Negative log-likelihood"],
            ["Miscalibration (CORP)"],
        ]
        lone = [axes.get_xlim() for axes in figure.axes[1:]]
        assert len(set(lone)) == len(lone)
    # An interval fills its axis: on a common axis, that of CORP was 2 % of it.
    axes = report.plot().axes[-1]
    interval = report["corp_miscalibration"].interval
    assert interval is not None
    assert interval[1] - interval[0] > 0.3 * (axes.get_xlim()[1] - axes.get_xlim()[0])
    plt.close("all")


def test_a_drawn_loss_is_the_loss() -> None:
    """Between stored temperatures, the line is the loss itself, not a polygon."""
    fitted = cal.fit_temperature(logits=LOGITS, labels=LABELS)
    points = dict(zip(fitted.curve["temperature"], fitted.curve["nll"], strict=True))
    along = np.geomspace(0.4, 8.0, 60)
    drawn = drawn_curve("nll", points, along)
    true = [
        float(np.mean(np.log(np.exp(LOGITS / t).sum(axis=1)) - LOGITS[np.arange(N), LABELS] / t))
        for t in along
    ]
    assert np.abs(drawn - true).max() < 3e-4 * np.ptp(true)
    # An ECE has kinks: its line stays within its neighbours.
    steps = drawn_curve(
        "ece", {0.5: 0.3, 1.0: 0.3, 2.0: 0.0, 4.0: None, 8.0: 0.0}, along[along > 0.5]
    )
    assert steps.min() >= 0 and steps.max() <= 0.3
