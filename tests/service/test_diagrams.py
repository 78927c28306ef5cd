"""Diagrams: drawn from the table, the same bytes for the same table, and without data saying so."""

import io
import itertools

import numpy as np
import pytest
from matplotlib.image import imread

from calibrant.figures.base import BLUE, ORANGE
from calibrant.figures.images import image
from calibrant.figures.reliability import draw_reliability
from calibrant.figures.roc import draw_roc
from tests.service.conftest import PREDICTIONS
from tests.service.figure_marks import Figure

URL = "/v1/models/digits/reliability"


def row(lower, upper, weight, confidence, accuracy, interval):
    return {
        **{"lower": lower, "upper": upper, "weight": weight},
        **{"mean_confidence": confidence, "accuracy": accuracy, "interval": interval},
    }


ANSWER = {
    "model": "digits",
    "window": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
    **{"scope": "top_label", "raters": "pooled", "binning": "equal_width", "bins": 3, "ci": 0.95},
    **{"n": 30, "n_ratings": 90},
    "table": [
        row(0.0, 1 / 3, 0.0, None, None, None),
        row(1 / 3, 2 / 3, 30.0, 0.5, 0.4, [0.3, 0.5]),
        row(2 / 3, 1.0, 60.0, 0.9, 0.8, [0.7, 0.9]),
    ],
}


def test_png():
    picture = imread(io.BytesIO(image(draw_reliability(ANSWER), "image/png")), format="png")
    height, width = picture.shape[:2]
    assert (width, height) == (750, 900)
    assert picture[..., :3].min() < 0.2 and picture[..., :3].max() == 1.0


def test_svg_is_repeatable_and_has_nothing_from_elsewhere():
    drawn = image(draw_reliability(ANSWER))
    assert drawn == image(draw_reliability(ANSWER))
    assert drawn.lstrip().startswith(b"<?xml") and b"<script" not in drawn


def test_empty_bins_are_not_drawn():
    filled = {**ANSWER, "table": [each for each in ANSWER["table"] if each["weight"]]}  # type: ignore[attr-defined]
    assert image(draw_reliability(ANSWER)) == image(draw_reliability(filled))


@pytest.mark.parametrize("table", [[], [row(0.0, 1.0, 0.0, None, None, None)]])
def test_without_data(table):
    empty = {**ANSWER, "table": table, "reason": "no_data"}
    assert image(draw_reliability(empty), "image/png") != image(
        draw_reliability(ANSWER), "image/png"
    )


def test_without_data_the_diagram_says_so():
    drawn = Figure.of(image(draw_reliability({**ANSWER, "table": [], "reason": "no_data"})))
    assert "Nothing to draw: no data" in drawn.texts
    # Neither marks nor the line of a calibrated model cross the card.
    assert not drawn.shapes(ORANGE, 2) and not drawn.lines(BLUE) and not drawn.lines("#8A8A8A")
    assert "calibrated" not in drawn.texts


def test_marks_are_where_the_table_has_them():
    drawn = Figure.of(image(draw_reliability(ANSWER)))
    *intervals, curve = drawn.lines(BLUE)
    np.testing.assert_allclose(curve, [(0.5, 0.4), (0.9, 0.8)], atol=1e-4)
    np.testing.assert_allclose(
        intervals, [[(0.5, 0.3), (0.5, 0.5)], [(0.9, 0.7), (0.9, 0.9)]], atol=1e-4
    )
    (ideal,) = drawn.lines("#8A8A8A")
    np.testing.assert_allclose(ideal, [(0.0, 0.0), (1.0, 1.0)], atol=1e-4)
    # The axis of shares ends at 1.05 times the largest.
    bars = drawn.shapes(ORANGE, 2, y=(0.0, 1.05 * 2 / 3))
    found = [(each[:, 0].min(), each[:, 0].max(), each[:, 1].max()) for each in bars]
    np.testing.assert_allclose(found, [(0.3467, 0.6533, 1 / 3), (0.68, 0.9867, 2 / 3)], atol=1e-3)
    assert {
        "Reliability of digits",
        "n = 30 labelled predictions with 90 ratings",
        "labels: pooled (every rating counted); 3 equal-width bins",
        "2026-01-01 00:00 to 2026-01-02 00:00 UTC",
        *(
            "accuracy",
            "confidence of the top class",
            "share",
            "95 % interval",
            "calibrated",
            "observed",
        ),
    } <= set(drawn.texts)


def test_pixels_of_the_curve_and_of_the_background():
    picture = imread(io.BytesIO(image(draw_reliability(ANSWER), "image/png")), format="png")[
        ..., :3
    ]
    drawn = image(draw_reliability(ANSWER))
    left, top, right, bottom = Figure.of(drawn).frame(1)

    def pixels(x, y):
        """Those around a point of the curve's axes; a picture of 150 dots has 72 points an inch."""
        column = left + (x + 0.02) / 1.04 * (right - left)
        line = bottom - (y + 0.02) / 1.04 * (bottom - top)
        i, j = (round(each * 150 / 72) for each in (line, column))
        return picture[i - 2 : i + 3, j - 2 : j + 3].reshape(-1, 3)

    blue = np.array([0x00, 0x72, 0xB2]) / 255
    for x, y in ((0.6, 0.5), (0.7, 0.6), (0.8, 0.7)):
        assert np.abs(pixels(x, y) - blue).max(axis=1).min() < 0.1
    for x, y in ((0.3, 0.9), (0.7, 0.3), (0.1, 0.5)):
        assert pixels(x, y).min() == 1.0


@pytest.mark.anyio
async def test_the_diagram_has_the_error_of_its_window_and_bins(client, inbox):
    await client.post("/v1/models/digits/predictions", json=PREDICTIONS)
    error = {"value": 0.0831, "interval": [0.07, 0.09], "null_mean": 0.011, "null_q95": 0.016}
    answer = {name: ANSWER[name] for name in ANSWER if name != "window"}
    inbox.answers["reliability"] = answer | {"error": error}
    asked = {
        "bins": 3,
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-02T00:00:00Z",
        "raters": "mean",
    }
    found = await client.get(URL, params=asked | {"format": "svg"})
    assert found.status_code == 200
    lines = {"ECE 0.083 (0.070 to 0.090)", "a calibrated model: 0.011, 95 % below 0.016"}
    assert lines <= set(Figure.of(found.content).texts)
    [(kind, _, query, *_)] = inbox.asked
    assert (kind, query["include"]) == ("reliability", "error")


def test_few_units_are_not_joined_and_the_null_has_a_band():
    rows = [
        row(k / 5, (k + 1) / 5, 20.0, k / 5 + 0.1, k / 5 + 0.05, [k / 5, k / 5 + 0.1])
        | {"n_effective": n}
        for k, n in enumerate((30.0, 30.0, 2.0, 30.0, 30.0))
    ]
    drawn = Figure.of(image(draw_reliability({**ANSWER, "table": rows})))
    curves = [line for line in drawn.lines(BLUE) if len(line) == 2 and line[0][0] != line[1][0]]
    np.testing.assert_allclose(
        curves, [[(0.1, 0.05), (0.3, 0.25)], [(0.7, 0.65), (0.9, 0.85)]], atol=1e-4
    )
    reach = 1.959964 * (0.3 * 0.7 / 30) ** 0.5
    bands = [each for each in drawn.shapes("#E4E4E4") if abs(each[:, 0].min() - 0.2) < 1e-3]
    assert any(abs(each[:, 1].max() - (0.3 + reach)) < 1e-3 for each in bands)
    assert {"worth fewer than 5 independent units", "calibrated model, 95 % of each bin"} <= set(
        drawn.texts
    )


def test_a_figure_has_a_title_and_a_description():
    root = Figure.of(image(draw_reliability(ANSWER))).root
    names = [root.find(f"{{http://www.w3.org/2000/svg}}{name}") for name in ("title", "desc")]
    assert [each.text.split(".")[0] for each in names] == [
        "Reliability of digits",
        "n = 30 labelled predictions with 90 ratings",
    ]
    assert root.get("role") == "img"


def test_names_are_drawn_as_they_are():
    long = Figure.of(image(draw_reliability({**ANSWER, "model": "a$b_{$" + "x" * 120})))
    line = next(text for text in long.texts if text.startswith("of a"))
    assert line.startswith("of a$b_{$xxx") and line.endswith("x…") and "Reliability" in long.texts
    bare = {**ANSWER, "scope": "class:3", "raters": None, "ci": None}
    texts = Figure.of(image(draw_reliability(bare))).texts
    assert {"probability of class 3", "observed frequency", "interval"} <= set(texts)


def test_equal_mass_bins_and_points_at_the_ends():
    table = [row(0.0, 0.0, 5.0, 0.0, 0.0, None), row(0.0, 1.0, 5.0, 1.0, 1.0, [0.9, 1.0])]
    answer = {**ANSWER, "binning": "equal_mass", "table": table}
    drawn = Figure.of(image(draw_reliability(answer)))
    interval, curve = drawn.lines(BLUE)
    np.testing.assert_allclose(curve, [(0.0, 0.0), (1.0, 1.0)], atol=1e-4)
    np.testing.assert_allclose(interval, [(1.0, 0.9), (1.0, 1.0)], atol=1e-4)
    # A bin of one score has no width; the other's share is drawn as a density.
    assert len(drawn.shapes(ORANGE, 2)) == 1 and "density (log)" in drawn.texts
    assert "labels: pooled (every rating counted); 3 equal-mass bins" in drawn.texts


def test_narrow_bins_do_not_hide_the_wide_ones():
    """Of equal mass, as of a confident model: the wide bin is as heavy as those that are crowded at 1."""
    cuts = [0.3, 0.9, 0.99, 0.999, 0.9999, 1.0]
    table = [
        row(low, high, 20.0, (low + high) / 2, 0.8, [0.7, 0.9])
        for low, high in itertools.pairwise(cuts)
    ]
    picture = imread(
        io.BytesIO(
            image(
                draw_reliability({**ANSWER, "binning": "equal_mass", "table": table}), "image/png"
            )
        ),
        format="png",
    )
    beneath = picture[int(0.78 * len(picture)) :, :, :3]
    orange = np.abs(beneath - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=2) < 0.02
    assert orange.any(axis=0).mean() > 0.45


ROC = ANSWER | {
    **{"auc": 0.875, "area": {"interval": [0.8, 0.95]}},
    **{"true_positive_rate": [0.0, 0.5, 1.0], "false_positive_rate": [0.0, 0.0, 1.0]},
}


def test_roc():
    drawn = Figure.of(image(draw_roc(ROC)))
    np.testing.assert_allclose(drawn.lines(BLUE)[-1], [(0, 0), (0, 0.5), (1, 1)], atol=1e-4)
    assert {
        "ROC of digits",
        "area 0.8750, 95 % interval 0.8000 to 0.9500",
        "false positive rate",
        "true positive rate (a correct prediction)",
    } <= set(drawn.texts)
    of_class = Figure.of(image(draw_roc(ROC | {"scope": "class:3"})))
    assert "true positive rate (the class)" in of_class.texts
    nothing = ROC | {"auc": None, "area": {}, "reason": "one_outcome"}
    empty = Figure.of(image(draw_roc(nothing)))
    assert "Nothing to draw: one outcome" in empty.texts and not empty.lines(BLUE)
    assert image(draw_roc(ROC), "image/png").startswith(b"\x89PNG")


@pytest.mark.anyio
async def test_the_picture_by_accept_or_by_query(client, inbox):
    await client.post("/v1/models/digits/predictions", json=PREDICTIONS)
    inbox.answers["reliability"] = ANSWER
    for accept, query, media in (
        ("image/png", "", "image/png"),
        ("image/svg+xml,*/*;q=0.1", "", "image/svg+xml"),
        ("application/json", "?format=png", "image/png"),
        ("*/*", "?format=svg", "image/svg+xml"),
        ("image/*", "?format=json", "application/json"),
        ("text/html,*/*;q=0.8", "", "application/json"),
    ):
        answer = await client.get(URL + query, headers={"Accept": accept})
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] == media
        assert "accept" in answer.headers["vary"].lower()


@pytest.mark.anyio
async def test_a_posted_batch_is_scored_as_a_figure(client):
    drawn = await client.post("/v1/score", json=PREDICTIONS, headers={"Accept": "image/svg+xml"})
    assert (drawn.status_code, drawn.headers["content-type"]) == (200, "image/svg+xml")
    scores = (await client.post("/v1/score", json=PREDICTIONS)).json()["metrics"]["ece"]
    [text] = [each for each in Figure.of(drawn.content).texts if each.startswith("ECE ")]
    assert text.startswith(f"ECE {scores['value']:.3f}")
    image = await client.post("/v1/score", json=PREDICTIONS, headers={"Accept": "image/png"})
    assert image.content.startswith(b"\x89PNG")
    assert (
        await client.post("/v1/score", json=PREDICTIONS, headers={"Accept": "text/html"})
    ).status_code == 406
