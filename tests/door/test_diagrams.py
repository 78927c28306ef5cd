"""Diagrams: drawn from the table, the same bytes for the same table, and without data saying so."""

import io
import itertools

import numpy as np
import pytest
from matplotlib.image import imread

from calibrant_server.service.figures.reliability import draw_reliability
from calibrant_server.service.figures.roc import draw_roc
from tests.door.conftest import PREDICTIONS

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
    image = imread(io.BytesIO(draw_reliability(ANSWER, "image/png")), format="png")
    height, width = image.shape[:2]
    assert (width, height) == (900, 1050)
    assert image[..., :3].min() < 0.2 and image[..., :3].max() == 1.0


def test_svg_is_repeatable_and_has_nothing_from_elsewhere():
    drawn = draw_reliability(ANSWER, "image/svg+xml")
    assert drawn == draw_reliability(ANSWER, "image/svg+xml")
    assert drawn.lstrip().startswith(b"<?xml") and b"<script" not in drawn


def test_empty_bins_are_not_drawn():
    filled = {**ANSWER, "table": [each for each in ANSWER["table"] if each["weight"]]}
    assert draw_reliability(ANSWER, "image/svg+xml") == draw_reliability(filled, "image/svg+xml")


@pytest.mark.parametrize("table", [[], [row(0.0, 1.0, 0.0, None, None, None)]])
def test_without_data(table):
    empty = {**ANSWER, "table": table, "reason": "no_data"}
    assert draw_reliability(empty, "image/png") != draw_reliability(ANSWER, "image/png")


def test_names_are_drawn_as_they_are():
    draw_reliability({**ANSWER, "model": "a$b_{$" + "x" * 120}, "image/png")
    draw_reliability({**ANSWER, "scope": "class:3", "raters": None, "ci": None}, "image/png")


def test_equal_mass_bins_and_points_at_the_ends():
    table = [row(0.0, 0.0, 5.0, 0.0, 0.0, None), row(0.0, 1.0, 5.0, 1.0, 1.0, [0.9, 1.0])]
    draw_reliability({**ANSWER, "binning": "equal_mass", "table": table}, "image/png")


def test_narrow_bins_do_not_hide_the_wide_ones():
    """Of equal mass, as of a confident model: the wide bin is as heavy as those that are crowded at 1."""
    cuts = [0.3, 0.9, 0.99, 0.999, 0.9999, 1.0]
    table = [
        row(low, high, 20.0, (low + high) / 2, 0.8, [0.7, 0.9])
        for low, high in itertools.pairwise(cuts)
    ]
    image = imread(
        io.BytesIO(
            draw_reliability({**ANSWER, "binning": "equal_mass", "table": table}, "image/png")
        ),
        format="png",
    )
    beneath = image[int(0.78 * len(image)) :, :, :3]
    orange = np.abs(beneath - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=2) < 0.02
    assert orange.any(axis=0).mean() > 0.5


ROC = ANSWER | {
    **{"auc": 0.875, "area": {"interval": [0.8, 0.95]}},
    **{"true_positive_rate": [0.0, 0.5, 1.0], "false_positive_rate": [0.0, 0.0, 1.0]},
}


def test_roc():
    nothing = ROC | {"auc": None, "area": {}, "reason": "one_outcome"}
    drawn = {draw_roc(each, "image/svg+xml") for each in (ROC, nothing, ROC | {"scope": "class:3"})}
    assert len(drawn) == 3
    assert draw_roc(ROC, "image/png").startswith(b"\x89PNG")


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
