"""Further figures: drawn from the library's answers in both formats, the same bytes again, and without data saying so."""

import io
from functools import partial

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators import MAPS
from calibrant.calibrators import fit as fit_map
from calibrant.calibrators.temperature.fit import fit_temperature
from calibrant.calibrators.temperature.surface_report import surface_report
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.figures.base import BLUE, ORANGE, density
from calibrant.figures.calibration_map import SCORES, draw_calibration_map
from calibrant.figures.cases import draw_sensitivity
from calibrant.figures.comparison import draw_dots, draw_radar
from calibrant.figures.confidence_histogram import draw_confidence_histogram
from calibrant.figures.disagreement import draw_disagreement
from calibrant.figures.images import image
from calibrant.figures.label_distribution import draw_label_distribution
from calibrant.figures.losses import draw_losses
from calibrant.figures.stability import draw_stability
from calibrant.figures.temperature_surface import draw_temperature_surface
from calibrant.figures.uncertainty import draw_uncertainty
from calibrant.metrics import compute_metrics
from calibrant.raters.disagreement_report import disagreement_report
from calibrant.results.uncertainty import uncertainty_of
from calibrant.segmentation.histogram_state import confidence_of, left
from calibrant.stability.curves import stability
from calibrant_server.service.routes.metrics import joined, relative
from tests.service.figure_marks import Figure as Marks

ABOUT = {
    "model": "seg <$x$> & co",
    "window": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
}


def pane_of(n_classes, n=300):
    rng = np.random.default_rng(n_classes)
    p = rng.dirichlet(np.ones(n_classes), n)
    ratings = [rng.multinomial(3, row).tolist() for row in p]
    pane = Pane(PaneSpec("multiclass", n_classes))
    sharp = p**2 / (p**2).sum(axis=1, keepdims=True)
    columns = {"logits": np.log(sharp), "label_counts": ratings}
    pane.fill_batch(Batch.from_columns(columns, task="multiclass").batch)
    return pane


TWO, TEN = pane_of(2), pane_of(10)
RADAR = {
    "models": ["a", "b$", "c"],
    "raters": "pooled",
    "relative": {
        name: {"a": 1.0, "b$": 0.5, "c": 0.1 * i}
        for i, name in enumerate(("ece", "dice", "brier", "mce"))
    },
}
TWO_SPOKES = RADAR | {
    "relative": {"ece": RADAR["relative"]["ece"], "nll": {"a": None, "b$": 1.0, "c": 1.0}}
}
SENSITIVITY = [
    {"bins": bins}
    | {name: {"value": 0.1 + bins / 500, "sd": 0.02} for name in ("ece", "ace", "mce")}
    for bins in (5, 10, 20, 50, 100)
]
FIGURES = {
    "losses": (draw_losses, lambda: ABOUT | fit_temperature(TWO)),
    "stability": (
        draw_stability,
        lambda: ABOUT | {"n": 3, "n_ratings": 9} | stability(View(TEN, PaneQuery()), "ece"),
    ),
    "disagreement": (
        draw_disagreement,
        lambda: ABOUT | disagreement_report(View(TEN, PaneQuery())),
    ),
    "uncertainty": (
        draw_uncertainty,
        lambda: ABOUT | uncertainty_of(View(TWO, PaneQuery())).to_dict(),
    ),
    "uncertainty of ten": (
        draw_uncertainty,
        lambda: ABOUT | uncertainty_of(View(TEN, PaneQuery())).to_dict(),
    ),
    "surface": (
        draw_temperature_surface,
        lambda: ABOUT | surface_report(View(TWO, PaneQuery()), points=5),
    ),
    "surface of ece": (
        partial(draw_temperature_surface, objective="ece"),
        lambda: ABOUT | surface_report(View(TWO, PaneQuery()), points=5),
    ),
    "label distribution": (
        draw_label_distribution,
        lambda: (
            ABOUT
            | {"n": 300, "n_ratings": 900}
            | compute_metrics(View(TEN, PaneQuery()), ["ent_ce", "dist_ce", "rank_cs"])
        ),
    ),
    "map": (
        partial(draw_calibration_map, n_classes=2),
        lambda: ABOUT | fit_map("isotonic", View(TWO, PaneQuery(scope="class:1"))),
    ),
    "map of rows": (
        partial(draw_calibration_map, n_classes=10),
        lambda: ABOUT | fit_map("temperature", View(TEN, PaneQuery())),
    ),
    "sensitivity": (draw_sensitivity, lambda: ABOUT | {"n_cases": 4, "sensitivity": SENSITIVITY}),
    "radar": (draw_radar, lambda: RADAR),
    "bars": (draw_radar, lambda: TWO_SPOKES),
    "confidence": (
        draw_confidence_histogram,
        lambda: (
            ABOUT
            | {"classes": list("abcdefghij")}
            | confidence_of(View(TEN, left(60, "pooled")), smoothing=2)
        ),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_drawn_in_both_formats_and_the_same_again(name):
    draw, make = FIGURES[name]
    answer = make()
    picture = imread(io.BytesIO(image(draw(answer), "image/png")), format="png")
    assert picture.shape[0] > 500 and picture[..., :3].min() < 0.4
    drawn = image(draw(answer))
    assert drawn == image(draw(answer)) and b"<script" not in drawn


def bins_of(rows, x, y):
    return [(row[x], row[y]) for row in rows if row["weight"]]


def stability_limits(answer):
    """Limits of both axes: a margin of a twentieth, and 35 % above the highest point."""
    first, last = answer["fractions"][0], answer["fractions"][-1]
    margin = 0.05 * (last - first)
    highest = max(max(each["curve"]) for each in answer["raters"].values())
    return {"x": (first - margin, last + margin), "y": (0.0, 1.35 * highest)}


# By figure: the points that the answer holds, the limits of the axes, and texts.
MARKS = {
    "disagreement": (
        lambda answer: bins_of(answer["reliability"], "predicted", "observed"),
        lambda answer: {},
        {
            "Disagreement of seg <$x$> & co",
            "observed disagreement",
            "predicted probability that two raters disagree",
        },
    ),
    "uncertainty": (
        lambda answer: bins_of(answer["table"], "mean_uncertainty", "error_rate"),
        lambda answer: {},
        {"Uncertainty of seg <$x$> & co", "share of errors", "ideal for two classes"},
    ),
    "stability": (
        lambda answer: list(
            zip(answer["fractions"], answer["raters"]["pooled"]["curve"], strict=True)
        ),
        stability_limits,
        {"Stability of seg <$x$> & co", "fraction of the data", "Expected calibration error"},
    ),
}


@pytest.mark.parametrize("name", MARKS)
def test_points_of_a_curve_are_those_of_the_answer(name):
    draw, make = FIGURES[name]
    points, limits, texts = MARKS[name]
    answer = make()
    drawn = Marks.of(image(draw(answer)))
    curve = max(drawn.lines(BLUE, **limits(answer)), key=len)
    np.testing.assert_allclose(curve, points(answer), atol=1e-4)
    assert texts <= set(drawn.texts)


def test_the_curve_of_a_map_is_the_map():
    draw, make = FIGURES["map"]
    answer = make()
    drawn = Marks.of(image(draw(answer)))
    curve = max(drawn.lines(BLUE), key=len)
    mapped = MAPS["isotonic"].at_scores(answer["parameters"], SCORES)
    # Points on a straight line are left out, so that each drawn point is near one of the map.
    distance = np.abs(curve[:, None] - np.column_stack([SCORES, mapped])).max(axis=2).min(axis=1)
    assert len(curve) > 10 and distance.max() < 1e-3
    assert curve[-1] == pytest.approx([1.0, mapped[-1]], abs=1e-4)
    assert {"probability of class 1", "recalibrated", "isotonic"} <= set(drawn.texts)


NOTHING = ABOUT | {"n": 0, "n_ratings": 0, "reason": "no_data", "raters": "pooled", "bins": 15}


@pytest.mark.parametrize(
    ("draw", "answer"),
    [
        (draw_losses, NOTHING | {"temperature": None, "curve": None}),
        (draw_stability, NOTHING | {"raters": None, "ratio": None, "metric": "nll"}),
        (draw_disagreement, NOTHING | {"reliability": [], "concentration": None}),
        (draw_uncertainty, NOTHING | {"table": [], "value": None}),
        (draw_temperature_surface, NOTHING | {"nll": None}),
        (draw_sensitivity, NOTHING | {"n_cases": 0}),
        (
            partial(draw_calibration_map, n_classes=2),
            NOTHING | {"method": "platt", "scope": "positive", "parameters": None},
        ),
        (draw_confidence_histogram, NOTHING | {"label": None, "classes": ["a", "b"]}),
    ],
)
def test_without_data_a_figure_says_so(draw, answer):
    assert image(draw(answer), "image/png").startswith(b"\x89PNG")
    for reason in ("no_data", "no_cases"):
        drawn = Marks.of(image(draw(answer | {"reason": reason})))
        assert f"Nothing to draw: {reason.replace('_', ' ')}" in drawn.texts


def compared(values: dict[str, dict[str, float | None]]) -> dict:
    """A comparison as the service answers it, of these metrics by model."""
    shown = {"window": ABOUT["window"], "state_version": "x", "n_predictions": 9, "n_ratings": 9}
    estimate = {"interval": [0.05, 0.2], "null_q95": 0.04}
    results = {
        model: shown
        | {"metrics": {name: estimate | {"value": value} for name, value in each.items()}}
        for model, each in values.items()
    }
    return joined(results, "pooled")


def test_models_are_compared_by_dots_with_intervals():
    answer = compared({"a": {"ece": 0.1234, "brier": 2.5e-7}, "b$": {"ece": None, "brier": 0.2}})
    drawn = Marks.of(image(draw_dots(answer)))
    shown = {
        *("Expected calibration error (smaller is better)", "Brier score (smaller is better)"),
        *("a", "b$", "0.123", "no value"),
    }
    assert shown <= set(drawn.texts)
    assert "below 0.0001" in drawn.texts and not [text for text in drawn.texts if "e-" in text]
    assert image(draw_dots(answer), "image/png").startswith(b"\x89PNG")
    nothing = Marks.of(image(draw_dots(compared({"a": {"ece": None}, "b": {"ece": None}}))))
    assert any("no metric has a value" in text for text in nothing.texts)


def test_metrics_are_called_by_their_titles_in_a_comparison():
    relative_values = {
        key: {"a": 1.0, "b$": 0.5, "c": 0.1} for key in ("lp_ece(order=3)", "dice", "brier")
    }
    for left_out in ({}, {"nll": {"a": None, "b$": 1.0, "c": 1.0}}):
        drawn = Marks.of(image(draw_radar(RADAR | {"relative": relative_values | left_out})))
        words = " ".join(drawn.texts)
        for title in ("Calibration error of order p", "1 − Dice over cases", "Brier score"):
            assert all(word in words for word in title.split())
        assert ("not every model has a value of: Negative log-likelihood" in words) is bool(
            left_out
        )
        assert "lp_ece" not in words and "nll" not in words
    nothing = compared({"a": {"ece": 0.1, "nll": None}, "b": {"ece": 0.2, "nll": None}})
    texts = Marks.of(image(draw_dots(nothing))).texts
    assert any("no model has a value of: Negative log-likelihood" in text for text in texts)


def test_classes_are_called_by_their_names():
    surface = ABOUT | surface_report(View(TWO, PaneQuery()), points=5)
    names = Marks.of(image(draw_temperature_surface(surface, classes=["calm", "urgent"]))).texts
    assert {"temperature of calm", "temperature of urgent"} <= set(names)
    fitted = ABOUT | fit_map("isotonic", View(TWO, PaneQuery(scope="class:1")))
    for classes, text in (
        (["calm", "urgent"], "probability of urgent"),
        (None, "probability of class 1"),
    ):
        drawn = Marks.of(image(draw_calibration_map(fitted, n_classes=2, classes=classes)))
        assert text in drawn.texts


def test_policies_with_the_same_curve_are_one_line():
    answer = ABOUT | {"n": 3, "n_ratings": 9} | stability(View(TEN, PaneQuery()), "ece")
    [first, *others] = answer["raters"]
    same = answer | {"raters": {each: answer["raters"][first] for each in (first, *others)}}
    texts = Marks.of(image(draw_stability(same))).texts
    assert len([text for text in texts if "total variation" in text]) == 1


def test_models_without_a_common_metric():
    nothing = RADAR | {"relative": {"nll": {"a": None, "b$": None, "c": None}}}
    assert image(draw_radar(nothing), "image/png").startswith(b"\x89PNG")


def test_relative_numbers_are_distances_from_the_best():
    assert relative("ece", {"a": 0.1, "b": 0.05, "c": None}) == {"a": 1.0, "b": 0.5, "c": None}
    found = relative("dice", {"a": 0.9, "b": 0.8})
    assert found == {"a": pytest.approx(0.5), "b": 1.0}
    assert relative("spiegelhalter_z", {"a": -4.0, "b": 1.0}) == {"a": 1.0, "b": 0.25}
    assert relative("ece", {"a": 0.0, "b": 0.0}) == {"a": 0.0, "b": 0.0}
    result = {
        "window": {},
        "state_version": "x",
        "n_predictions": 1,
        "n_ratings": 1,
        "scope": "positive",
    }
    answers = {
        model: result | {"metrics": {"ece": {"value": value}}}
        for model, value in (("a", 0.2), ("b", 0.1))
    }
    answer = joined(answers, "mean")
    assert (answer["models"], answer["raters"]) == (["a", "b"], "mean")
    assert answer["relative"] == {"ece": {"a": 1.0, "b": 0.5}}


@pytest.mark.parametrize(
    "shares", [[0.42, 0.06, 0.12, 0.4], [1.0], [0.9, 0.1 - 1e-7, 1e-7], [0.3, 0.3, 0.4]]
)
def test_marks_of_a_logarithmic_share_do_not_overlap(shares):
    figure = Figure((3, 3))
    axes = figure.add_axes((0.2, 0.1, 0.7, 0.2))
    rows = [
        {"lower": i / len(shares), "upper": (i + 1) / len(shares), "weight": share}
        for i, share in enumerate(shares)
    ]
    density(axes, rows, log=True)
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    marks = axes.yaxis.get_ticklabels() + axes.yaxis.get_ticklabels(minor=True)
    boxes = [
        mark.get_window_extent()
        for mark in marks
        if mark.get_text() and low <= mark.get_position()[1] <= high
    ]
    assert 1 <= len(boxes) <= 4
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert low < min(shares) and high > max(shares)


def _orange(drawn):
    pixels = imread(io.BytesIO(drawn), format="png")[..., :3]
    return int((np.abs(pixels - to_rgb(ORANGE)).max(axis=-1) < 0.01).sum())


@pytest.mark.parametrize("found", [1 / 32, 32.0])
def test_a_temperature_outside_the_usual_range_is_in_the_figure(found):
    """The line at the fitted temperature runs through all three panels, and its legend is not of something out of sight."""
    answer = ABOUT | fit_temperature(TWO)
    bound = answer | {"temperature": found, "at_bound": True}
    assert _orange(image(draw_losses(bound), "image/png")) > 0.9 * _orange(
        image(draw_losses(answer), "image/png")
    )


def test_times_are_written_as_on_pages() -> None:
    """They were `2026-01-01T00:00:00Z`."""
    drawn = image(draw_losses(ABOUT | {"reason": "no_data"})).decode()
    assert "2026-01-01 00:00 to 2026-01-02 00:00 UTC" in drawn and "T00:00" not in drawn
